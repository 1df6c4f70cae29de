"""Calibration curves against loops, scipy and scikit-learn, and their sums as a monoid."""

from dataclasses import fields
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import binomtest
from sklearn.calibration import calibration_curve as sklearn_curve
from support.errors import refused
from support.models import make_model

from protodask.engine import add_records, array_source, thread_engine
from protodask.evaluation.calibration import (
    CalibrationSums,
    calibration_curve,
    calibration_sums,
    finish_calibration,
    no_calibration,
    wilson_interval,
)
from protodask.evaluation.outcomes import Outcomes
from protodask.prototypes.model import PrototypeSet

Floats = NDArray[np.float64]


def make_outcomes(seed: int, n_rows: int, n_classes: int = 3, dtype: str = "float64") -> Outcomes:
    """Sixteenths and quarters, so that sums are exact in any order."""
    rng = np.random.default_rng(seed)
    cuts = np.sort(rng.integers(0, 17, (n_rows, n_classes - 1)), axis=1)
    probability = np.diff(cuts, prepend=0, append=16, axis=1) / 16
    weight = rng.integers(1, 9, n_rows) / 4
    return Outcomes(probability.astype(dtype), rng.integers(0, n_classes, n_rows), weight)


def assert_equal_sums(found: CalibrationSums, expected: CalibrationSums) -> None:
    for field in fields(CalibrationSums):
        np.testing.assert_array_equal(getattr(found, field.name), getattr(expected, field.name))


@given(st.integers(0, 1000), st.lists(st.integers(0, 30), min_size=1, max_size=4), st.integers(1, 12))
def test_calibration_sums__merge_as_a_monoid(seed: int, sizes: list[int], n_bins: int) -> None:
    whole = make_outcomes(seed, sum(sizes))
    edges = np.cumsum([0, *sizes])
    total = no_calibration(3, n_bins)
    for first, last in pairwise(edges.tolist()):
        part = Outcomes(whole.probability[first:last], whole.target[first:last], whole.weight[first:last])
        total = add_records(total, calibration_sums(part, n_bins))
    assert_equal_sums(total, calibration_sums(whole, n_bins))


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_calibration_sums__are_those_of_a_loop(dtype: str) -> None:
    outcomes = make_outcomes(1, 200, dtype=dtype)
    found = calibration_sums(outcomes, 5)
    expected = no_calibration(3, 5)
    for p, y, s in zip(outcomes.probability, outcomes.target, outcomes.weight, strict=True):
        for k in range(3):
            place = (k, min(int(float(p[k]) * 5), 4))
            expected.rows[place] += 1
            expected.weight[place] += s
            expected.squares[place] += s * s
            expected.predicted[place] += s * float(p[k])
            expected.outcome[place] += s * (y == k)
            expected.outcome_squares[place] += s * s * (y == k)
    assert_equal_sums(found, expected)


@pytest.mark.parametrize("n_bins", [7, 20, 50, 100, 1000])
def test_calibration_sums__count_a_probability_on_an_edge_in_the_bin_above(n_bins: int) -> None:
    edges = finish_calibration(no_calibration(2, n_bins), ["no", "yes"]).edges
    expected = np.ones(n_bins, dtype=np.int64)
    expected[-1] += 1  # 1 itself
    for written in (edges, np.array([place / n_bins for place in range(n_bins + 1)])):
        outcomes = Outcomes(np.stack([1 - written, written], axis=1), np.ones(n_bins + 1, int), np.ones(n_bins + 1))
        np.testing.assert_array_equal(calibration_sums(outcomes, n_bins).rows[1], expected)


def test_curve__is_scikit_learns_where_weights_are_equal() -> None:
    rng = np.random.default_rng(0)
    p = rng.random(500)
    y = (rng.random(500) < p).astype(np.intp)
    outcomes = Outcomes(np.column_stack([1 - p, p]), y, np.full(500, 2.0))
    curve = finish_calibration(calibration_sums(outcomes, 10), (0, 1))
    observed, predicted = sklearn_curve(y, p, n_bins=10)
    np.testing.assert_allclose(curve.observed[1], observed)
    np.testing.assert_allclose(curve.predicted[1], predicted)
    assert curve.rows.sum(axis=1).tolist() == [500, 500]


def test_curve__of_a_handful_of_rows_by_hand() -> None:
    """Weights 1 and 3 in one bin: share 3/4, mean (0.6 + 3 x 0.7) / 4, and 4 / (3 x 1/4 + 1 x 3/4) = 8/3 rows."""
    outcomes = Outcomes(np.array([[0.4, 0.6], [0.3, 0.7]]), np.array([0, 1]), np.array([1.0, 3.0]))
    curve = finish_calibration(calibration_sums(outcomes, 2), ("a", "b"))
    assert curve.edges.tolist() == [0, 0.5, 1]
    assert (curve.observed[1, 1], curve.predicted[1, 1]) == (0.75, pytest.approx(0.675))
    assert np.isnan([curve.observed[1, 0], curve.predicted[1, 0], curve.low[1, 0], curve.high[1, 0]]).all()
    expected = wilson_interval(np.array([0.75]), np.array([8 / 3]))
    assert (curve.low[1, 1], curve.high[1, 1]) == (expected[0][0], expected[1][0])
    assert curve.error[1] == pytest.approx(0.075)


@pytest.mark.parametrize("rate", [0.1, 0.01])
def test_curve__covers_what_is_true_where_rows_of_one_class_were_dropped(rate: float) -> None:
    rng, hits = np.random.default_rng(0), np.zeros(10)
    for _ in range(200):
        p = rng.random(20_000)
        y = rng.random(len(p)) < p
        kept = y | (rng.random(len(p)) < rate)
        weight = np.where(y, 1.0, 1 / rate)[kept]
        outcomes = Outcomes(np.column_stack([1 - p, p])[kept], y[kept].astype(np.intp), weight)
        curve = finish_calibration(calibration_sums(outcomes, 10), (0, 1))
        middle = np.linspace(0.05, 0.95, 10)
        hits += (curve.low[1] <= middle) & (middle <= curve.high[1])
    assert hits[:9].min() >= 0.88 * 200
    assert hits.sum() <= 0.985 * 2000


def test_curve__counts_rows_of_unlike_weights_where_all_of_a_bin_are_of_one_class() -> None:
    """Zeros stand for ten rows each, and of ones none would have been dropped: 3 x 10 rows without a one among them."""
    p = np.array([0.1, 0.1, 0.1, 0.9])
    outcomes = Outcomes(np.column_stack([1 - p, p]), np.array([0, 0, 0, 1]), np.array([10.0, 10.0, 10.0, 1.0]))
    curve = finish_calibration(calibration_sums(outcomes, 2), (0, 1))
    expected = wilson_interval(np.array([0.0]), np.array([30.0]))
    assert (curve.low[1, 0], curve.high[1, 0]) == (expected[0][0], expected[1][0])


def test_curve__of_no_rows_is_nan_without_a_warning() -> None:
    curve = finish_calibration(no_calibration(3, 4), ("a", "b", "c"))
    assert np.isnan(curve.observed).all()
    assert np.isnan(curve.error).all()


@given(st.integers(1, 200), st.floats(0, 1), st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_wilson_interval__is_scipys(count: int, share: float, confidence: float) -> None:
    hits = round(share * count)
    low, high = wilson_interval(np.array([hits / count]), np.array([float(count)]), confidence)
    expected = binomtest(hits, count).proportion_ci(confidence, method="wilson")
    assert (low[0], high[0]) == (pytest.approx(expected.low, abs=1e-12), pytest.approx(expected.high, abs=1e-12))


def test_effective_rows__equal_weights_count_as_rows() -> None:
    """Doubling every weight leaves the band as it is; a weight of 0.5 for twice the rows does so in expectation."""
    one = make_outcomes(3, 100)
    two = Outcomes(one.probability, one.target, 2 * one.weight)
    left, right = (finish_calibration(calibration_sums(outcomes, 4), "abc") for outcomes in (one, two))
    np.testing.assert_allclose(left.low, right.low)
    np.testing.assert_allclose(left.high, right.high)


@pytest.fixture
def case() -> tuple[PrototypeSet, dict[str, NDArray[Any]]]:
    """A made-up model of three classes and two batches, and weighted rows."""
    rng = np.random.default_rng(4)
    arrays: dict[str, NDArray[Any]] = {
        "features": rng.normal(size=(300, 4)),
        "target": rng.integers(0, 3, 300).astype(np.int32),
        "weight": rng.integers(0, 3, 300) * 1.0,
    }
    return make_model(4, prototypes=(6, 4)), arrays


def test_calibration_curve__is_that_of_the_models_probabilities(
    case: tuple[PrototypeSet, dict[str, NDArray[Any]]],
) -> None:
    model, arrays = case
    codes = np.array([2, 0, 1])
    scores = model.scores(arrays["features"], [1])[0]
    kept = arrays["weight"] > 0
    probability = (scores / scores.sum(axis=1, keepdims=True))[kept]
    outcomes = Outcomes(probability, codes[arrays["target"]][kept], arrays["weight"][kept])
    expected = finish_calibration(calibration_sums(outcomes, 7), model.classes, 0.9)
    with thread_engine(2, 2**28) as engine:
        found = calibration_curve(model, array_source(arrays, 64), codes, engine, 7, n_batches=1, confidence=0.9)
    assert found.classes == model.classes
    for name in ("rows", "weight", "predicted", "observed", "low", "high"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-12)


@pytest.mark.parametrize("threads", [1, 3])
def test_calibration_curve__is_the_same_on_any_threads(
    case: tuple[PrototypeSet, dict[str, NDArray[Any]]], threads: int
) -> None:
    model, arrays = case
    source, codes = array_source(arrays, 32), np.arange(3)
    with thread_engine(2, 2**28) as engine:
        expected = calibration_curve(model, source, codes, engine)
    with thread_engine(threads, 2**28) as engine:
        found = calibration_curve(model, source, codes, engine)
    assert found.predicted.tobytes() == expected.predicted.tobytes()


def test_calibration_curve__refuses_what_makes_no_curve(case: tuple[PrototypeSet, dict[str, NDArray[Any]]]) -> None:
    model, arrays = case
    for n_bins in (0, 1001, 2.5):
        with refused("bad-setting", "from 1 to 1000", "n_bins", n_bins):
            calibration_curve(model, array_source(arrays), np.arange(3), n_bins=n_bins)  # type: ignore[arg-type]
    with refused("no-rows"):
        calibration_curve(model, array_source({name: array[:0] for name, array in arrays.items()}), np.arange(3))
    with refused("bad-setting", "between 0 and 1", "confidence", "1.0"):
        calibration_curve(model, array_source(arrays), np.arange(3), confidence=1.0)
