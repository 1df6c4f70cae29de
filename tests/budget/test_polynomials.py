import math
import sys
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protodask.budget.polynomials import (
    evaluate,
    first_range_below,
    is_below,
    never_below,
    position,
    position_after,
    sign_cuts,
    sizes_at,
)

coefficients = st.integers(-9, 9).map(float) | st.builds(
    lambda digits, power: digits * 10.0**power, st.floats(-10, 10), st.integers(-15, 6)
)
polynomials = st.lists(coefficients, min_size=1, max_size=6)
ends = st.tuples(st.sampled_from([0.0, 0.5, 1.0, 3.0]), st.sampled_from([3.0, 10.0, 1e9, math.inf]))


def exactly(row: list[float], size: float) -> Fraction:
    return sum((Fraction(c) * Fraction(size) ** power for power, c in enumerate(row)), Fraction(0))


def pieces_of(row: list[float], low: float, high: float) -> list[tuple[int, int]]:
    start, end = position(low), position_after(high)
    cuts = sign_cuts(np.array([row]), np.array([start]), np.array([end]))[0].tolist()
    edges = [start, *cuts, end]
    assert edges == sorted(edges)
    return [(a, b) for a, b in pairwise(edges) if a < b]


@settings(max_examples=50)
@given(polynomials, st.floats(0, 1e9))
def test_evaluate__is_within_a_few_roundings(row: list[float], size: float) -> None:
    scale = exactly([abs(c) for c in row], size)
    assert abs(Fraction(float(evaluate(np.array(row), size))) - exactly(row, size)) <= scale / 2**48 + Fraction(1e-300)


def test_evaluate__broadcasts_and_copies() -> None:
    rows = np.array([[1.0, 2.0], [3.0, 4.0]])
    assert evaluate(rows, 2.0).tolist() == [5, 11]
    assert evaluate(rows, np.array([[0.0], [1.0], [2.0]])).tolist() == [[1, 3], [3, 7], [5, 11]]
    constant = rows[:, :1]
    evaluate(constant, 0.0)[:] = 9
    assert constant.tolist() == [[1], [3]]


@pytest.mark.parametrize("size", [0.0, 5e-324, 1.0, 1.5, 1e9, sys.float_info.max])
def test_positions__count_floats(size: float) -> None:
    assert sizes_at([position(size)]).tolist() == [size]
    assert sizes_at([position_after(size)]).tolist() == [math.nextafter(size, math.inf)]
    assert position(0.0) == position(-0.0) == 0
    assert position_after(sys.float_info.max) == position_after(math.inf) == position(math.inf)


@settings(max_examples=50)
@given(polynomials, ends, st.integers(0, 2**32))
def test_sign_cuts__part_what_is_below_zero_from_what_is_not(
    row: list[float], ends: tuple[float, float], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    absolute = [abs(c) for c in row]
    for first, beyond in pieces_of(row, *ends):
        inside = np.unique(np.append(rng.integers(first, beyond, 12), [first, beyond - 1]))
        below = is_below(np.array([row]), inside)
        for size, here in zip(sizes_at(inside).tolist(), below.tolist(), strict=True):
            # What rounding cannot tell from zero may have either sign.
            if size < 1e30 and abs(exactly(row, size)) > exactly(absolute, size) / 2**44 > 1e-280:
                assert here == below[0]


@settings(max_examples=50)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=4, unique=True), st.sampled_from([0.5, 10.5, math.inf]))
def test_sign_cuts__are_at_simple_roots(roots: list[int], high: float) -> None:
    row = [1.0]
    for root in roots:
        row = [b - root * a for a, b in zip([*row, 0.0], [0.0, *row], strict=True)]
    starts = np.array([first for first, _ in pieces_of(row, 0.0, high)])
    below = is_below(np.array([row]), starts)
    found = sizes_at(starts)[1:][below[1:] != below[:-1]]
    expected = sorted(root for root in roots if root < high)
    assert len(found) == len(expected)
    assert np.allclose(found, expected, rtol=1e-9)
    assert below[0] == (len(roots) % 2 == 1)


def test_sign_cuts__linear_change_is_at_the_float() -> None:
    (_, first), (second, _) = pieces_of([-1.0, 3.0], 0.0, math.inf)
    assert first == second
    size = float(sizes_at([first])[0])
    assert 3 * size >= 1 > 3 * math.nextafter(size, 0)


def test_sign_cuts__of_nothing() -> None:
    none = np.array([], dtype=np.int64)
    assert sign_cuts(np.zeros((0, 3)), none, none).shape == (0, 2)
    assert sign_cuts(np.ones((1, 1)), np.array([0]), np.array([9])).shape == (1, 0)


@settings(max_examples=50)
@given(polynomials, ends)
def test_never_below__agrees_with_exact_values(row: list[float], ends: tuple[float, float]) -> None:
    low, high = ends
    never = bool(never_below(np.array([row]), position(low), position_after(high))[0])
    stretch = first_range_below(np.array(row), position(low), position_after(high))
    if stretch is not None:
        assert not never
        assert low <= stretch[0] <= stretch[1] <= high
        assert evaluate(np.array(row), stretch[0]) < 0
        assert evaluate(np.array(row), stretch[1]) < 0
    sizes = [low, *np.geomspace(max(low, 1e-3), min(high, 1e12), 40).tolist()]
    negative = [n for n in sizes if low <= n <= high and exactly(row, n) < -exactly([abs(c) for c in row], n) / 2**44]
    assert not (never and negative)
    if negative:
        assert stretch is not None
        assert stretch[0] <= negative[0]


def test_first_range_below__is_between_the_roots() -> None:
    assert first_range_below(np.array([3.0, -4, 1]), 0, position_after(math.inf)) == (
        math.nextafter(1, 2),
        math.nextafter(3, 0),
    )
    assert first_range_below(np.array([1.0, -2, 1]), 0, position_after(math.inf)) is None
    assert first_range_below(np.array([5.0, -1]), 0, position_after(math.inf)) == (
        math.nextafter(5, 9),
        sys.float_info.max,
    )
