from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.metrics import accuracy_score, log_loss
from support.errors import refused
from support.models import make_model

from protodask.engine import Block, add_records, array_source, thread_engine
from protodask.evaluation.challenging import Rival, compare_models
from protodask.evaluation.stream import (
    CORRECT,
    LOSS,
    Bins,
    StreamSums,
    Watch,
    lay_bins,
    learn_bins,
    sum_stream,
    watch_stream,
    weighted_quantiles,
)
from protodask.prototypes.scoring import predict_features

Arrays = dict[str, NDArray[Any]]


MODEL = make_model(classes=("a", "b", "c"), prototypes=(9,), n_features=2, n_active=2)
OTHER = make_model(1, classes=("c", "b"), prototypes=(9,), n_features=2, n_active=2)


def make_rows(n_rows: int, seed: int = 0) -> Arrays:
    rng = np.random.default_rng(seed)
    return {
        "features": np.column_stack([rng.normal(size=n_rows), rng.integers(0, 3, n_rows)]),
        "target": rng.integers(0, 3, n_rows).astype(np.int32),
        "weight": rng.integers(0, 4, n_rows).astype(np.float64),
    }


def watch(codes: bool = True) -> Watch:
    bins = (Bins(np.linspace(-1, 1, 9), by_value=False), Bins(np.array([0.0, 1.0]), by_value=True))
    return Watch(MODEL, 1, bins, Bins(np.array([0.5, 3.0]), by_value=False), np.arange(3) if codes else None)


def assert_same(found: StreamSums, wanted: StreamSums) -> None:
    for name in ("priority", "rows", "weight"):
        np.testing.assert_array_equal(getattr(found.sample, name), getattr(wanted.sample, name))
    np.testing.assert_allclose(found.sample.values, wanted.sample.values)  # a row alone is summed in another order
    for name in ("counts", "familiarity", "predicted", "labels"):
        np.testing.assert_array_equal(getattr(found, name).weight, getattr(wanted, name).weight)
        np.testing.assert_array_equal(getattr(found, name).squares, getattr(wanted, name).squares)
    np.testing.assert_allclose(found.probability, wanted.probability)
    np.testing.assert_allclose(found.figures.mean, wanted.figures.mean, atol=1e-12)
    np.testing.assert_allclose(found.figures.spread, wanted.figures.spread, atol=1e-9)
    np.testing.assert_array_equal(found.outside, wanted.outside)
    assert found.weight_squares == wanted.weight_squares
    assert found.summary.rows == wanted.summary.rows


@settings(max_examples=20)
@given(st.lists(st.integers(0, 60), min_size=1, max_size=6).filter(any), st.booleans())
def test_merge_streams__does_not_mind_how_rows_are_cut(sizes: list[int], labelled: bool) -> None:
    rows, start, parts = make_rows(sum(sizes)), 0, []
    for number, size in enumerate(sizes):
        own = {name: array[start : start + size] for name, array in rows.items()}
        parts.append(sum_stream(Block(number, start, own), watch(labelled)))
        start += size
    wanted = sum_stream(Block(0, 0, rows), watch(labelled))
    assert_same(reduce(add_records, parts), wanted)
    assert_same(reduce(lambda right, left: add_records(left, right), parts[::-1]), wanted)


def test_watch_stream__against_plain_numpy() -> None:
    rows = make_rows(500)
    with thread_engine(2) as engine:
        found = watch_stream(engine, array_source(rows, 64), watch())
    features, target, weight = rows["features"], rows["target"], rows["weight"]
    ((p, evidence),) = predict_features(features, MODEL, [1])
    edges = [-np.inf, *np.linspace(-1, 1, 9), np.inf]
    assert found.counts.weight[0, :10] == pytest.approx(np.histogram(features[:, 0], edges, weights=weight)[0])
    assert found.counts.weight[1, :3] == pytest.approx([weight[features[:, 1] == value].sum() for value in (0, 1, 2)])
    squares = [np.square(weight[features[:, 1] == value]).sum() for value in (0, 1, 2)]
    assert found.counts.squares[1, :3] == pytest.approx(squares)
    wanted = np.histogram(evidence, [-np.inf, 0.5, 3.0, np.inf], weights=weight)[0]
    assert found.familiarity.weight == pytest.approx(wanted)
    assert found.figures.mean[LOSS] == pytest.approx(log_loss(target, p, sample_weight=weight))
    assert found.figures.mean[CORRECT] == pytest.approx(accuracy_score(target, p.argmax(axis=1), sample_weight=weight))
    residual = np.average(np.eye(3)[target] - p, weights=weight, axis=0)
    assert found.figures.mean[2:] == pytest.approx(residual)
    assert found.labels.weight == pytest.approx(np.bincount(target, weights=weight))
    assert found.labels.squares == pytest.approx(np.bincount(target, weights=weight**2))
    median = weighted_quantiles(found.sample.values, found.sample.weight, [0.5])[0]
    order = np.argsort(evidence)
    assert median == evidence[order][np.searchsorted(np.cumsum(weight[order]), weight.sum() / 2)]


def test_watch_stream__counts_what_is_beyond_the_range_of_other_rows() -> None:
    rows, before = make_rows(500), make_rows(50, seed=1)
    within = sum_stream(Block(0, 0, before), watch()).summary
    seen = before["features"][before["weight"] > 0]
    with thread_engine(2) as engine:
        found = watch_stream(engine, array_source(rows, 64), replace(watch(), within=within))
        assert not watch_stream(engine, array_source(rows, 64), watch()).outside.any()
    beyond = (rows["features"] < seen.min(axis=0)) | (rows["features"] > seen.max(axis=0))
    np.testing.assert_array_equal(found.outside, rows["weight"] @ beyond)
    assert found.outside[0] > 0
    assert found.outside[1] == 0


def test_watch__numbers_classes_as_the_model_does_and_unknown_ones_after_them() -> None:
    found = replace(watch(), codes=None).labelled(("c", True, "a", 1))
    assert found.codes is not None
    assert found.codes.tolist() == [2, 3, 0, 4]
    assert found.unknown == (True, 1)
    assert found.n_labels == 5
    assert (found.labelled(None).codes, found.labelled(None).unknown) == (None, ())


def test_lay_bins__by_quantiles_or_by_value() -> None:
    rng = np.random.default_rng(0)
    many = lay_bins(rng.normal(size=10_000))
    assert not many.by_value
    assert np.bincount(many.place(rng.normal(size=100_000))) == pytest.approx(10_000, rel=0.1)
    few = lay_bins(np.repeat([0.0, 0.1, 7.0], 50))
    assert few.by_value
    np.testing.assert_array_equal(few.place(np.array([0.1, 7, 0, 3], dtype=np.float64)), [1, 2, 0, 3])
    np.testing.assert_array_equal(few.place(np.array([0.1], dtype=np.float32)), [1], "of either type")
    assert not lay_bins(rng.normal(size=15)).by_value, "15 different values of 15 rows are not all there are"
    half = lay_bins(np.concatenate([np.zeros(500), rng.exponential(size=500)]))
    assert (np.diff(half.points) > 0).all()
    assert half.place(np.array([-1.0, 0.0, 1e300]))[[0, 2]].tolist() == [0, half.count - 1]


def test_learn_bins__needs_rows_of_positive_weight() -> None:
    rows = make_rows(50) | {"weight": np.zeros(50)}
    with thread_engine(1) as engine, refused("no-rows", "weights", 0):
        learn_bins(engine, array_source(rows), MODEL, 1)


@pytest.mark.parametrize("loss", ["log-loss", "error", "brier"])
def test_compare_models__does_not_mind_the_blocks_and_looks_at_the_newest(loss: Any) -> None:
    rows = make_rows(1000)
    champion, challenger = Rival(OTHER, np.array([2, 1])), Rival(MODEL, np.arange(3))
    with thread_engine(2) as engine:
        found = [
            compare_models(champion, challenger, array_source(rows, block_rows), np.arange(3), engine, loss=loss)
            for block_rows in (16, 1024)
        ]
        newest = compare_models(
            champion, challenger, array_source(rows, 64), np.arange(3), engine, loss=loss, newest=300
        )
        last = {name: array[700:] for name, array in rows.items()}
        alone = compare_models(champion, challenger, array_source(last, 1024), np.arange(3), engine, loss=loss)
    assert found[0].low == pytest.approx(found[1].low, rel=1e-12)
    assert found[0].champion == pytest.approx(found[1].champion, rel=1e-12)
    assert found[0].blocks == 100
    assert newest.low == pytest.approx(alone.low, rel=1e-12)
    assert newest.rows == np.count_nonzero(last["weight"])


def test_compare_models__takes_groups_as_they_are() -> None:
    rows = make_rows(1000)
    rows["weight"] = np.ones(1000)
    group = np.random.default_rng(5).integers(0, 40, 1000)
    champion, challenger = (
        Rival(make_model(1, prototypes=(9,), n_features=2, n_active=2), np.arange(3)),
        Rival(MODEL, np.arange(3)),
    )
    with thread_engine(1) as engine:
        found = compare_models(
            champion, challenger, array_source({**rows, "group": group}, 64), np.arange(3), engine, grouped=True
        )
    assert found.grouped
    assert found.blocks == len(np.unique(group)), "40 of 2,000 bins hardly ever meet"
