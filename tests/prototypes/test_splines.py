"""Splines against interpolation in fractions, and what they promise to the bit."""

from fractions import Fraction
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from protodask.prototypes.splines import Spline, SplineCalibration, apply_splines

finite = st.floats(-1e100, 1e100)
points = st.lists(st.tuples(finite, st.floats(-100, 100)), min_size=1, max_size=8, unique_by=lambda point: point[0])


def made(pairs: list[tuple[float, float]]) -> Spline:
    score, outcome = zip(*sorted(pairs), strict=True)
    return Spline(np.array(score), np.array(outcome))


def interpolated(pairs: list[tuple[float, float]], at: float) -> float:
    """The line through the two points around `at`, exactly; the first or the last outcome beyond all points."""
    points = [(Fraction(score), Fraction(outcome)) for score, outcome in sorted(pairs)]
    x = min(max(Fraction(at), points[0][0]), points[-1][0])
    for (left, low), (right, high) in pairwise(points):
        if left <= x <= right:
            return float(low + (high - low) * (x - left) / (right - left))
    return float(points[0][1])


@given(points, st.lists(finite, max_size=20), st.lists(st.floats(0, 1), max_size=5))
def test_spline__is_linear_between_its_points(
    pairs: list[tuple[float, float]], at: list[float], between: list[float]
) -> None:
    spline = made(pairs)
    first, last = spline.score[0], spline.score[-1]
    at = [*at, *(float(first + (last - first) * share) for share in between)]
    expected = [interpolated(pairs, x) for x in at]
    np.testing.assert_allclose(spline.apply(np.array(at)), expected, rtol=1e-9, atol=1e-9)


@given(points)
def test_spline__passes_through_its_points_and_stays_between_them(pairs: list[tuple[float, float]]) -> None:
    spline = made(pairs)
    assert spline.apply(spline.score).tolist() == spline.outcome.tolist()
    beyond = spline.apply(np.array([-1e300, 1e300]))
    assert beyond.tolist() == [spline.outcome[0], spline.outcome[-1]]


@given(points, st.lists(finite, min_size=2, max_size=20))
def test_spline__is_monotone_to_the_bit_where_its_points_are(pairs: list[tuple[float, float]], at: list[float]) -> None:
    score, outcome = (sorted(values) for values in zip(*pairs, strict=True))
    spline = Spline(np.array(score), np.array(outcome))
    assert (np.diff(spline.apply(np.sort(at))) >= 0).all()


def test_spline__of_points_as_close_as_can_be() -> None:
    """The slope between them is more than any number."""
    spline = Spline(np.array([0.0, 5e-324, 1.0]), np.array([0.0, 0.5, 1.0]))
    assert spline.apply(np.array([0.0, 5e-324, 0.5])).tolist() == [0.0, 0.5, 0.75]


def test_spline__takes_any_shape_and_type() -> None:
    spline = Spline(np.array([0.0, 1.0]), np.array([0.0, 2.0]))
    found = spline.apply(np.array([[0, 1], [1, 0]], dtype=np.float32))
    assert found.tolist() == [[0, 2], [2, 0]]
    assert found.dtype == np.float64
    assert spline.apply(np.zeros(0)).shape == (0,)


def test_apply_splines__renormalises_more_than_two_classes() -> None:
    double, same = (
        Spline(np.array([0.0, 1.0]), np.array([0.0, 2.0])),
        Spline(np.array([0.0, 1.0]), np.array([0.0, 1.0])),
    )
    found = apply_splines([double, same, same], np.array([[0.5, 0.25, 0.25], [0.0, 0.5, 0.5]]))
    np.testing.assert_allclose(found, [[2 / 3, 1 / 6, 1 / 6], [0, 0.5, 0.5]])


def test_apply_splines__keeps_rows_that_all_splines_take_to_zero() -> None:
    step = Spline(np.array([0.5, 0.75]), np.array([0.0, 1.0]))
    found = apply_splines([step] * 3, np.array([[0.5, 0.3, 0.2], [0.8, 0.1, 0.1]]))
    assert found.tolist() == [[0.5, 0.3, 0.2], [1, 0, 0]]


def test_spline_calibration__of_two_classes_is_of_the_second() -> None:
    half = Spline(np.array([0.0, 1.0]), np.array([0.0, 0.5]))
    calibration = SplineCalibration((half,), 1, 20, False, 10, 10.0)
    assert calibration.apply(np.array([[0.2, 0.8]])).tolist() == [[0.6, 0.4]]
