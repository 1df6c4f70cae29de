import math
from collections.abc import Sequence
from dataclasses import astuple
from functools import reduce

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats
from support.errors import refused

from protodask.engine import add_records
from protodask.evaluation.ratio import NO_ROWS, RatioSums, ratio_error, ratio_sums, zero_rows

Floats = NDArray[np.float64]
Rows = list[tuple[float, float]]

ROWS: st.SearchStrategy[Rows] = st.lists(
    st.tuples(st.sampled_from([0.0, 0.5, 1.0, 3.0, 100.0]), st.floats(-100, 100, width=32)), max_size=12
)


def sums_of(rows: Sequence[tuple[float, float]]) -> RatioSums:
    weight = np.array([row[0] for row in rows], dtype=np.float64)
    value = np.array([row[1] for row in rows], dtype=np.float64)
    return ratio_sums(weight, weight * value, value)


def assert_same(found: RatioSums, wanted: RatioSums) -> None:
    assert (found.rows, found.weight, found.total) == (wanted.rows, wanted.weight, wanted.total)
    np.testing.assert_allclose(astuple(found)[3:], astuple(wanted)[3:], rtol=1e-9, atol=1e-6)


@given(ROWS, ROWS, ROWS)
def test_merge_ratios__is_a_monoid(first: Rows, second: Rows, third: Rows) -> None:
    one, two, three = map(sums_of, (first, second, third))
    assert_same(add_records(add_records(one, two), three), add_records(one, add_records(two, three)))
    assert_same(add_records(one, NO_ROWS), one)
    assert_same(add_records(NO_ROWS, one), one)
    assert_same(add_records(two, one), add_records(one, two))


@given(ROWS, st.integers(1, 5))
def test_merge_ratios__of_parts_is_the_whole(rows: Rows, step: int) -> None:
    parts = [sums_of(rows[first : first + step]) for first in range(0, len(rows), step)]
    assert_same(reduce(add_records, parts, NO_ROWS), sums_of(rows))


@given(st.integers(0, 9))
def test_zero_rows__are_rows_of_weight_one_and_value_zero(count: int) -> None:
    assert_same(zero_rows(count), sums_of([(1.0, 0.0)] * count))


def test_ratio_sums__no_weights_are_ones() -> None:
    value = np.random.default_rng(0).normal(size=100)
    assert_same(ratio_sums(None, value, value), ratio_sums(np.ones(100), value, value))


def test_ratio_error__with_equal_weights_is_the_mean_and_its_standard_error() -> None:
    value = np.random.default_rng(1).gamma(2.0, size=500)
    found, error, divisor = ratio_error(ratio_sums(None, value, value))
    assert found == pytest.approx(value.mean(), rel=1e-14)
    assert error == pytest.approx(stats.sem(value), rel=1e-12)
    assert divisor == 500


def test_ratio_error__is_near_the_jackknife() -> None:
    random = np.random.default_rng(2)
    weight, value = random.gamma(2.0, size=4000), random.normal(3.0, size=4000)
    _, error, _ = ratio_error(ratio_sums(weight, weight * value, value))
    left_out = ((weight * value).sum() - weight * value) / (weight.sum() - weight)
    jackknife = math.sqrt(3999 / 4000 * np.sum(np.square(left_out - left_out.mean())))
    assert error == pytest.approx(jackknife, rel=5e-3)


def test_ratio_error__nothing_cancels_far_from_zero() -> None:
    # Deviations of a millionth around a billion: the mean of squares less the square of the mean would be noise.
    deviation = np.tile([-(2.0**-20), 2.0**-20], 5000)
    value = 2.0**30 + deviation
    parts = [
        ratio_sums(None, value[first : first + 100], value[first : first + 100]) for first in range(0, 10_000, 100)
    ]
    found, _, _ = ratio_error(reduce(add_records, parts))
    # Less than the spacing of numbers of this size, so it can be seen in the sums only.
    merged = reduce(add_records, parts)
    assert found == 2.0**30
    assert merged.spread == pytest.approx(np.sum(np.square(deviation)), rel=1e-9)


def test_ratio_error__one_row_says_nothing_of_the_spread() -> None:
    assert ratio_error(sums_of([(2.0, 3.0), (0.0, 5.0)])) == (3.0, math.inf, 2.0)


def test_ratio_error__sums_that_overflow() -> None:
    value = np.array([1e200, -1e200])
    with refused("overflow", "rewards"):
        ratio_error(ratio_sums(None, value, value))
    half = [ratio_sums(None, value[:1], value[:1]), ratio_sums(None, value[1:], value[1:])]
    with refused("overflow", "rewards"):
        ratio_error(reduce(add_records, half))
