import math
import tracemalloc
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from protodask.engine import add_records, array_source, thread_engine
from protodask.evaluation import evaluate
from protodask.evaluation.outcomes import Outcomes
from protodask.evaluation.roc import (
    MOST_BINS,
    Areas,
    Runs,
    area,
    collect_curves,
    curve_bins,
    curve_bytes,
    finish_areas,
)
from protodask.evaluation.score_bins import MEMORY_SHARE, BoundedBins

rows = st.lists(
    st.tuples(st.integers(0, 6), st.integers(0, 1), st.sampled_from([0.25, 1.0, 3.0])), min_size=1, max_size=30
)


def outcomes(drawn: list[tuple[int, int, float]]) -> Outcomes:
    score = np.array([level for level, _, _ in drawn], dtype=np.float64) / 8
    return Outcomes(
        np.column_stack([1 - score, score]),
        np.array([label for _, label, _ in drawn], dtype=np.intp),
        np.array([weight for _, _, weight in drawn], dtype=np.float64),
    )


def exact(drawn: list[tuple[int, int, float]]) -> tuple[Runs, ...]:
    return tuple(runs for runs in collect_curves(outcomes(drawn)) if isinstance(runs, Runs))


def area_by_pairs(drawn: list[tuple[int, int, float]]) -> float:
    won = compared = 0.0
    for high, positive, weight in drawn:
        for low, negative, other in drawn:
            if positive == 1 and negative == 0:
                compared += weight * other
                won += weight * other * (1.0 if high > low else 0.5 if high == low else 0.0)
    return won / compared if compared else math.nan


@given(drawn=rows)
def test_area__is_the_share_of_pairs_in_order(drawn: list[tuple[int, int, float]]) -> None:
    (runs,) = exact(drawn)
    np.testing.assert_allclose(area(runs), area_by_pairs(drawn), rtol=1e-12)


@given(drawn=rows)
def test_collect_runs__keeps_each_distinct_score_once_and_all_weight(drawn: list[tuple[int, int, float]]) -> None:
    (runs,) = exact(drawn)
    np.testing.assert_array_equal(runs.score, np.unique([level / 8 for level, _, _ in drawn]))
    assert runs.positive.sum() == sum(weight for _, label, weight in drawn if label == 1)
    assert runs.negative.sum() == sum(weight for _, label, weight in drawn if label == 0)


@given(first=rows, second=rows, third=rows)
def test_merge_curves__is_associative_and_equals_collecting_all_rows(
    first: list[tuple[int, int, float]], second: list[tuple[int, int, float]], third: list[tuple[int, int, float]]
) -> None:
    # The weights are dyadic fractions, whose sums are exact: equality holds to the last bit.
    a, b, c = (exact(drawn) for drawn in (first, second, third))
    (whole,) = exact(first + second + third)
    for merged in (add_records(add_records(a, b), c), add_records(a, add_records(b, c))):
        assert len(merged) == 1
        np.testing.assert_equal(asdict(merged[0]), asdict(whole))


@given(first=rows, second=rows, third=rows, most=st.integers(2, 8))
def test_merge_curves__of_bins_is_associative_and_equals_binning_all_rows(
    first: list[tuple[int, int, float]],
    second: list[tuple[int, int, float]],
    third: list[tuple[int, int, float]],
    most: int,
) -> None:
    a, b, c = (collect_curves(outcomes(drawn), most) for drawn in (first, second, third))
    (whole,) = collect_curves(outcomes(first + second + third), most)
    assert isinstance(whole, BoundedBins)
    for merged in (add_records(add_records(a, b), c), add_records(a, add_records(b, c))):
        assert len(merged) == 1
        np.testing.assert_equal(asdict(merged[0]), asdict(whole))
    assert len(whole.bins.key) <= most


@given(drawn=rows, most=st.integers(2, 8))
def test_finish_areas__of_bins_is_within_its_error_of_the_exact_area(
    drawn: list[tuple[int, int, float]], most: int
) -> None:
    found, wanted = finish_areas(collect_curves(outcomes(drawn), most)), finish_areas(exact(drawn))
    np.testing.assert_array_equal(found.prevalence, wanted.prevalence)
    assert math.isnan(found.macro) == math.isnan(wanted.macro)
    assert wanted.error_bound == 0
    if not math.isnan(wanted.macro):
        assert abs(found.macro - wanted.macro) <= found.error_bound + 1e-15


def test_merge_curves__refuses_two_kinds() -> None:
    drawn = [(1, 0, 1.0), (2, 1, 1.0)]
    with pytest.raises(TypeError, match="exact curves do not merge with binned ones"):
        add_records(exact(drawn), collect_curves(outcomes(drawn), 8))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_collect_runs__keeps_the_precision_of_the_scores(dtype: type[np.floating]) -> None:
    probability: NDArray[np.floating] = np.array([[0.25, 0.75], [0.5, 0.5]], dtype=dtype)
    curves = collect_curves(Outcomes(probability, np.array([1, 0]), np.ones(2)))
    (runs,), (merged,) = curves, add_records(curves, curves)
    assert isinstance(runs, Runs)
    assert isinstance(merged, Runs)
    assert runs.score.dtype == merged.score.dtype == dtype


def test_finish_areas__means_leave_out_classes_without_an_area() -> None:
    good = Runs(np.array([0.1, 0.9]), np.array([0.0, 3.0]), np.array([1.0, 0.0]))
    even = Runs(np.array([0.5]), np.array([1.0]), np.array([3.0]))
    absent = Runs(np.array([0.5]), np.array([0.0]), np.array([4.0]))
    areas = finish_areas((good, absent, even))
    np.testing.assert_array_equal(areas.error, 0.0)
    np.testing.assert_array_equal(areas.by_class, [1.0, np.nan, 0.5])
    assert areas.macro == 0.75
    assert areas.weighted == (3 * 1.0 + 1 * 0.5) / 4


@pytest.mark.parametrize(
    ("prevalence", "bound"), [([1.0, 9.0, 2.0], 0.0272), ([9.0, 1.0, 2.0], 0.016), ([1.0, 1.0, 8.0], 0.016)]
)
def test_areas__error_bound_is_that_of_either_mean(prevalence: list[float], bound: float) -> None:
    """The third class has no area, whatever its weight."""
    areas = Areas(np.array([0.9, 0.8, np.nan]), np.array(prevalence), np.array([0.002, 0.03, np.nan]))
    assert areas.error_bound == pytest.approx(bound)


@pytest.mark.parametrize("n_classes", [2, 6])
def test_curve_bytes__is_about_the_measured_peak_and_not_below(n_classes: int) -> None:
    random = np.random.default_rng(0)
    n_rows = 40_000
    raw = random.random((n_rows, n_classes))
    arrays = {"probability": raw / raw.sum(axis=1, keepdims=True), "target": random.integers(0, n_classes, n_rows)}
    source = array_source(arrays, 2048)
    with thread_engine(1) as engine:
        evaluate(source, n_classes, engine)
        tracemalloc.start()
        try:
            evaluate(source, n_classes, engine)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert 0.5 * curve_bytes(n_rows, n_classes) < peak < curve_bytes(n_rows, n_classes)


@pytest.mark.parametrize("n_classes", [2, 6])
def test_curve_bins__take_a_share_of_the_memory_that_is_about_the_measured_peak(n_classes: int) -> None:
    random = np.random.default_rng(0)
    n_rows = 80_000
    raw = random.random((n_rows, n_classes)).astype(np.float32)
    raw[:, 0] *= 10.0 ** random.integers(
        -30, 0, n_rows
    )  # scores of all sizes, so that there are as many bins as may be
    arrays = {"probability": raw / raw.sum(axis=1, keepdims=True), "target": random.integers(0, n_classes, n_rows)}
    source = array_source(arrays, 2048)
    memory = curve_bytes(n_rows, n_classes) // 2
    with thread_engine(2, memory) as engine:
        most = curve_bins(engine, source, n_classes)
        assert most is not None
        evaluate(source, n_classes, engine)
        tracemalloc.start()
        try:
            found = evaluate(source, n_classes, engine)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert found.roc_auc_error
    share = MEMORY_SHARE * (memory - sum(array.nbytes for array in arrays.values()))
    assert 0.25 * share < peak < 1.5 * share


def test_curve_bins__only_where_exact_curves_may_be_too_large() -> None:
    source = array_source({"target": np.zeros(1_000_000)}, 4096)
    needed = curve_bytes(1_000_000, 10)
    with thread_engine(1, needed) as engine:
        assert curve_bins(engine, source, 10) is None
    with thread_engine(1, needed - 1) as engine:
        fewer = curve_bins(engine, source, 10)
    with thread_engine(1, curve_bytes(1_000_000, 2) - 1) as engine:
        more = curve_bins(engine, source, 2)
    assert fewer is not None
    assert more is not None
    assert fewer <= MOST_BINS
    assert more <= MOST_BINS
