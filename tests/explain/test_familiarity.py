"""Familiarity among held-out rows."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support.errors import refused

from protodask.data.format.schema import Column
from protodask.engine import Engine, array_source
from protodask.evaluation.row_sample import RowSample, sample_rows
from protodask.explain.contributions import explain_rows
from protodask.explain.familiarity import (
    FamiliarityReference,
    reference,
)
from protodask.prototypes.candidates import priority
from protodask.prototypes.model import PrototypeSet


def rows_of(n_rows: int, seed: int, **others: NDArray[Any]) -> dict[str, NDArray[Any]]:
    return {"features": np.random.default_rng(seed).normal(size=(n_rows, 4)), **others}


def of(values: list[float]) -> FamiliarityReference:
    return FamiliarityReference(np.sort(np.array(values)), np.arange(len(values)), len(values), 1)


def test_reference__is_the_rows_of_smallest_priority_whatever_the_blocks(model: PrototypeSet, engine: Engine) -> None:
    weight = np.where(np.arange(500) % 3 == 0, 0.0, 2.0)
    arrays = rows_of(500, 1, weight=weight)
    found = [
        reference(model, array_source(arrays, block_rows), engine, most=40, seed=9) for block_rows in (1, 8, 64, 512)
    ]
    positive = np.flatnonzero(weight)
    expected = positive[np.argsort(priority(9, 0, positive))[:40]]
    (scores,) = model.scores(arrays["features"], [2])
    for one in found:
        assert one.n_rows == len(positive)
        assert sorted(one.rows.tolist()) == sorted(expected.tolist())
        np.testing.assert_array_equal(one.rows, found[0].rows)
        np.testing.assert_allclose(one.familiarity, scores.sum(axis=1)[one.rows] - 1, rtol=1e-11, atol=1e-13)
        assert (np.diff(one.familiarity) >= 0).all()


def test_reference__of_fewer_rows_than_wanted_is_all_of_them(model: PrototypeSet, engine: Engine) -> None:
    found = reference(model, array_source(rows_of(30, 1), 8), engine, n_batches=1)
    assert sorted(found.rows.tolist()) == list(range(30))
    assert (found.n_rows, found.n_batches) == (30, 1)


def test_reference__differs_by_seed_and_from_the_draw_of_candidates(model: PrototypeSet, engine: Engine) -> None:
    source = array_source(rows_of(200, 1), 64)
    drawn = [set(reference(model, source, engine, most=20, seed=seed).rows.tolist()) for seed in (0, 1)]
    candidates = set(np.argsort(priority(0, 1, np.arange(200)))[:20].tolist())
    assert drawn[0] != drawn[1]
    assert drawn[0] != candidates


def test_sample_familiarity__merges_as_a_monoid() -> None:
    rng = np.random.default_rng(0)

    def sample(first: int, size: int) -> RowSample:
        rows = np.arange(first, first + size)
        return sample_rows(rows, np.ones(size), rng.normal(size=size), 5, priority(3, 0, rows))

    one, two, three, empty = sample(0, 9), sample(9, 2), sample(11, 20), sample(31, 0)
    left, right = (one + two) + three, one + (two + three)
    for found, expected in ((left, right), (one + empty, one), (empty + one, one)):
        assert found.n_rows == expected.n_rows
        for name in ("priority", "rows", "values"):
            np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


def test_p_value__counts_what_is_no_more_familiar() -> None:
    found = of([0.5, 1.0, 1.0, 2.0])
    assert [found.p_value(value) for value in (0.0, 0.5, 1.0, 1.5, 2.0, 9.0)] == [0.2, 0.4, 0.8, 0.8, 1.0, 1.0]
    assert [found.quantile(value) for value in (0.0, 0.5, 1.0, 9.0)] == [0.0, 0.25, 0.75, 1.0]


def test_p_value__takes_what_differs_by_rounding_for_equal() -> None:
    found = of([2.2e-16, 0.0, -1.1e-16, 1.0])
    assert found.p_value(0.0) == 0.8
    assert found.p_value(1.0 - 1e-7) == 1.0
    assert found.p_value(1.0 - 1e-4) == 0.8


@pytest.mark.parametrize("discrete", [False, True])
def test_p_value__is_super_uniform_on_exchangeable_rows(discrete: bool) -> None:
    rng = np.random.default_rng(5)
    draws = rng.exponential(size=(4000, 20))
    draws = np.floor(2 * draws) if discrete else draws
    found = np.array([of(row[:-1].tolist()).p_value(row[-1]) for row in draws])
    for level in (0.05, 0.1, 0.25, 0.5, 0.9):
        share, slack = (found <= level + 1e-12).mean(), 4 * np.sqrt(level * (1 - level) / len(found))
        assert share <= level + slack
        assert discrete or share >= level - slack


def test_p_value__of_held_out_rows_is_uniform_and_of_strange_ones_small(model: PrototypeSet, engine: Engine) -> None:
    near = replace(model, precision="float32")
    found = reference(near, array_source(rows_of(3000, 1), 256), engine)
    new = [found.p_value(item.familiarity) for item in explain_rows(near, rows_of(400, 2)["features"])]
    assert 0.45 < np.mean(new) < 0.55
    assert 0.02 < np.mean(np.array(new) <= 0.1) < 0.18
    (strange,) = explain_rows(near, np.full((1, 4), 50.0))
    assert found.p_value(strange.familiarity) < 0.01


def test_p_value__without_batches_is_one(model: PrototypeSet, engine: Engine) -> None:
    found = reference(model, array_source(rows_of(50, 1), 16), engine, n_batches=0)
    (item,) = explain_rows(model, np.zeros((1, 4)), n_batches=0)
    assert found.p_value(item.familiarity) == 1.0


def test_reference__refuses_what_is_none(model: PrototypeSet, engine: Engine) -> None:
    with refused("no-rows", "positive weight"):
        reference(model, array_source(rows_of(5, 1, weight=np.zeros(5)), 4), engine)
    with refused("no-rows"):
        reference(model, array_source({"features": np.zeros((0, 4))}, 4), engine)
    with refused("bad-setting", "from 1", 0):
        reference(model, array_source(rows_of(5, 1), 4), engine, most=0)
    with refused("bad-setting", "n_batches", 3, "2 batches"):
        reference(model, array_source(rows_of(5, 1), 4), engine, n_batches=3)


def test_reference__of_a_model_of_an_empty_batch(model: PrototypeSet, engine: Engine) -> None:
    empty = replace(model, columns=tuple(map(Column, model.feature_names)), batches=model.batches[:0])
    assert reference(empty, array_source(rows_of(8, 1), 4), engine).p_value(0.0) == 1.0
