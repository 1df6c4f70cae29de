"""Explanations of single rows, against the equations and the model's own scores."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.errors import refused

from protodask.errors import Code
from protodask.explain import contributions as module
from protodask.explain.contributions import explain_rows
from protodask.explain.dominance import decided
from protodask.explain.explanation import Explanation
from protodask.prototypes.fitted import probabilities
from protodask.prototypes.model import PrototypeSet

MakeModel = Callable[..., PrototypeSet]


def some_rows(n_rows: int = 6, seed: int = 0) -> NDArray[np.float64]:
    return np.random.default_rng(seed).normal(size=(n_rows, 4))


def summed(found: Explanation) -> NDArray[np.float64]:
    """`marginal + shares of what is listed + others`, by class."""
    total = found.marginal + found.others
    for item in found.contributions:
        total[found.classes.index(item.label)] += item.share
    return total


def naive(model: PrototypeSet, x: NDArray[np.float64], n_batches: int) -> list[tuple[float, int, int]]:
    """Impact, batch and position of every prototype, by impact, as loops over the formula."""
    found = []
    for number, batch in enumerate(model.batches[:n_batches], start=1):
        for j in range(batch.n_prototypes):
            square = 0.0
            for d in range(batch.n_features):
                difference = (x[batch.feature_index[d]] - batch.prototypes[j, d]) / batch.scale[d]
                square += (batch.feature_weight[d] * difference) ** 2
            found.append((batch.prototype_weight[j] * math.exp(-square / 2), number, j))
    return sorted(found, key=lambda item: (-item[0], item[1:]))


@pytest.mark.parametrize("n_batches", [0, 1, 2, 3])
def test_explain_rows__are_the_formula(make_model: MakeModel, n_batches: int) -> None:
    model, rows = make_model(1, prototypes=(5, 0, 8)), some_rows()
    for x, found in zip(rows, explain_rows(model, rows, n_batches=n_batches, most=100), strict=True):
        expected = naive(model, x, n_batches)
        total = 1 + math.fsum(impact for impact, _, _ in expected)
        assert [(item.batch, item.position) for item in found.contributions] == [item[1:] for item in expected]
        for item, (impact, number, j) in zip(found.contributions, expected, strict=True):
            batch = model.batches[number - 1]
            assert item.impact == pytest.approx(impact, rel=1e-13)
            assert item.share == pytest.approx(impact / total, rel=1e-13)
            assert item.impact == item.weight * item.similarity
            assert item.weight == batch.prototype_weight[j]
            assert item.row == batch.row[j]
            assert item.label == model.classes[batch.prototype_class[j]]
            assert math.prod(match.similarity for match in item.features) == pytest.approx(item.similarity, rel=1e-13)
            assert [match.name for match in item.features] == [f"x{d}" for d in batch.feature_index]
            assert [match.value for match in item.features] == x[batch.feature_index].tolist()
            assert [match.prototype_value for match in item.features] == batch.prototypes[j].tolist()
            assert [match.weight for match in item.features] == batch.feature_weight.tolist()
        assert found.familiarity == pytest.approx(total - 1, rel=1e-13)
        assert found.marginal_share == pytest.approx(1 / total, rel=1e-13)
        np.testing.assert_allclose(found.marginal, model.marginals / total, rtol=1e-13)
        assert found.others.tolist() == [0, 0, 0]


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.integers(0, 16), st.integers(0, 3), st.floats(0, 50))
def test_explain_rows__sum_to_the_models_probability(
    make_model: MakeModel, seed: int, most: int, n_batches: int, spread: float
) -> None:
    model = make_model(seed, prototypes=(6, 0, 7), n_classes=2 + seed % 4)
    rows = spread * some_rows(4, seed)
    expected = probabilities(model.scores(rows, [n_batches])[0])
    for p, found in zip(expected, explain_rows(model, rows, n_batches=n_batches, most=most), strict=True):
        np.testing.assert_allclose(found.probability, p, rtol=1e-11)
        np.testing.assert_allclose(summed(found), found.probability, rtol=0, atol=1e-12)
        assert found.probability.sum() == pytest.approx(1, abs=1e-12)
        assert found.predicted == model.classes[found.probability.argmax()]
        assert len(found.contributions) <= most
        impacts = [item.impact for item in found.contributions]
        assert impacts == sorted(impacts, reverse=True)


def test_explain_rows__agree_with_a_float32_model_within_its_rounding(make_model: MakeModel) -> None:
    model, rows = replace(make_model(3), precision="float32"), some_rows(50, 1)
    expected = probabilities(model.scores(rows.astype(np.float32), [2])[0])
    found = np.array([item.probability for item in explain_rows(model, rows.astype(np.float32))])
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert found.dtype == np.float64


def test_explain_rows__do_not_depend_on_the_tile(make_model: MakeModel, monkeypatch: pytest.MonkeyPatch) -> None:
    model, rows = make_model(2, prototypes=(40, 30)), some_rows()
    whole = explain_rows(model, rows)
    for entries in (1, 10, 64):
        monkeypatch.setattr(module, "TILE_ENTRIES", entries)
        for one, other in zip(explain_rows(model, rows), whole, strict=True):
            assert one.contributions == other.contributions
            assert one.probability.tobytes() == other.probability.tobytes()


def test_explain_rows__mark_the_dominant_set(make_model: MakeModel) -> None:
    model = make_model(4, prototypes=(12, 9))
    sizes = set()
    for x, found in zip(some_rows(30), explain_rows(model, some_rows(30), most=100), strict=True):
        ordered = naive(model, x, 2)
        classes = [model.batches[number - 1].prototype_class[j] for _, number, j in ordered]
        _, size = decided(model.marginals, np.array([item[0] for item in ordered]), np.array(classes))
        assert found.dominant_size == size
        assert [item.dominant for item in found.contributions] == [rank < size for rank in range(21)]
        sizes.add(size)
    assert len(sizes) > 3


def test_explain_rows__list_no_more_than_asked_for_and_still_know_the_dominant_set(make_model: MakeModel) -> None:
    model, rows = make_model(4, prototypes=(12, 9)), some_rows(30)
    long, short = explain_rows(model, rows, most=100), explain_rows(model, rows, most=2)
    assert any(item.dominant_size > 2 for item in short)
    for one, other in zip(short, long, strict=True):
        assert one.contributions == other.contributions[:2]
        assert one.dominant_size == other.dominant_size
        assert explain_rows(model, rows[:1], most=0)[0].contributions == ()


def test_explain_rows__far_from_everything_are_the_marginals(model: PrototypeSet) -> None:
    (found,) = explain_rows(model, np.full((1, 4), 1e300))
    assert found.contributions == ()
    assert (found.familiarity, found.dominant_size) == (0, 0)
    assert found.marginal_share == pytest.approx(1)
    np.testing.assert_allclose(found.probability, model.marginals, rtol=1e-12)


def test_explain_rows__cut_features_off_where_the_kernel_does(model: PrototypeSet) -> None:
    # Weights so small that 1e12 deviations are near: the kernel takes 1e13 for 1e12 there.
    slight = replace(
        model, batches=tuple(replace(batch, feature_weight=batch.feature_weight * 1e-12) for batch in model.batches)
    )
    rows = np.array([[1e13, 0, -1e14, 1]])
    (found,) = explain_rows(slight, rows)
    assert 0.1 < found.familiarity < 0.999 * sum(batch.prototype_weight.sum() for batch in model.batches)
    np.testing.assert_allclose(found.probability, probabilities(slight.scores(rows, [2])[0])[0], rtol=1e-9)


def test_explain_rows__a_prototype_is_fully_similar_to_itself(model: PrototypeSet) -> None:
    batch = model.batches[1]
    row = np.full((1, 4), 123.456)
    row[0, batch.feature_index] = batch.prototypes[3]
    (found,) = explain_rows(model, row, most=100)
    (own,) = [item for item in found.contributions if (item.batch, item.position) == (2, 3)]
    assert own.similarity == 1
    assert all(match.similarity == 1 for match in own.features)


def test_explain_rows__equal_impacts_come_by_batch_and_position(model: PrototypeSet) -> None:
    first = model.batches[0]
    same = replace(
        first,
        prototype_weight=np.tile([1.0, 2.0, 3.0], 20),
        prototypes=np.tile(first.prototypes[:1], (60, 1)),
        prototype_class=np.repeat(np.arange(3), 20),
        row=np.arange(60)[::-1],
    )
    (found,) = explain_rows(replace(model, batches=(same, same)), some_rows(1), most=200)
    expected = [(b, j) for weight in (2, 1, 0) for b in (1, 2) for j in range(60) if j % 3 == weight]
    assert [(item.batch, item.position) for item in found.contributions] == expected


def test_explain_rows__of_no_rows_or_no_batches(model: PrototypeSet) -> None:
    assert explain_rows(model, np.zeros((0, 4))) == []
    (found,) = explain_rows(replace(model, batches=()), some_rows(1))
    assert found.contributions == ()
    assert found.predicted == model.classes[model.marginals.argmax()]
    np.testing.assert_array_equal(found.probability, found.marginal)


@pytest.mark.parametrize(
    ("rows", "options", "code", "facts"),
    [
        (np.zeros((1, 3)), {}, "wrong-shape", ("3 features", 4)),
        (np.zeros(4), {}, "wrong-shape", ("(4,)", "x[None, :]")),
        (np.zeros((1, 4)), {"n_batches": 3}, "bad-setting", ("n_batches", 3, "2 batches")),
        (np.zeros((1, 4)), {"n_batches": -1}, "bad-setting", ("n_batches", -1, "2 batches")),
        (np.zeros((1, 4)), {"most": -1}, "bad-setting", ("most", 0, -1)),
        (np.zeros((1, 4)), {"most": 2.5}, "bad-setting", ("most", 2.5)),
    ],
)
def test_explain_rows__refuse(
    model: PrototypeSet, rows: NDArray[Any], options: dict[str, Any], code: Code, facts: tuple[object, ...]
) -> None:
    with refused(code, *facts):
        explain_rows(model, rows, **options)


@pytest.mark.parametrize(
    ("rows", "facts"),
    [([[0, 1, 2, 3], [0, 1, np.nan, 3]], ["'x2'", "row 1"]), ([[0, np.inf, 2, 3]], ["'x1'", "row 0"])],
)
def test_explain_rows__name_the_value_they_cannot_use(
    model: PrototypeSet, rows: list[list[float]], facts: list[str]
) -> None:
    with refused("bad-value", *facts):
        explain_rows(model, np.array(rows))
