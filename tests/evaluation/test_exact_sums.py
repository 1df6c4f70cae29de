import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protodask.evaluation import ratio
from protodask.evaluation.ratio import UNIT_BITS, exact_count, exact_sum

UNIT = Fraction(1, 2**UNIT_BITS)
FINITE = st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(FINITE, max_size=50))
def test_exact_sum__is_the_sum_of_fractions(values: list[float]) -> None:
    assert exact_sum(np.array(values, dtype=np.float64)) * UNIT == sum(map(Fraction, values))


@given(st.lists(FINITE, max_size=30), st.data())
def test_exact_sum__order_parts_and_zeros_do_not_matter(values: list[float], data: st.DataObject) -> None:
    shuffled = data.draw(st.permutations(values + [0.0] * 5))
    cut = data.draw(st.integers(0, len(shuffled)))
    parts = (np.array(shuffled[:cut], dtype=np.float64), np.array(shuffled[cut:], dtype=np.float64))
    assert exact_sum(parts[0]) + exact_sum(parts[1]) == exact_sum(np.array(values, dtype=np.float64))


@pytest.mark.parametrize("value", [5e-324, -5e-324, 2.0**-1022, 1.7976931348623157e308, -0.1, 0.0, -0.0])
def test_exact_sum__of_the_smallest_and_largest_numbers(value: float) -> None:
    assert exact_sum(np.array([value])) * UNIT == Fraction(value)


def test_exact_sum__of_many_is_that_of_fsum(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(0).normal(size=10_001) * np.exp2(np.arange(10_001) % 200 - 100)
    wanted = math.fsum(values)
    assert exact_sum(values) / exact_count(1) == wanted
    monkeypatch.setattr(ratio, "SLICE_ROWS", 1000)
    assert exact_sum(values) / exact_count(1) == wanted


def test_exact_sum__of_a_full_slice_of_full_mantissas() -> None:
    # The halves of the mantissa are as large as they get, and there are as many as are summed at a time.
    largest = np.nextafter(1.0, 0.0)
    values = np.full(ratio.SLICE_ROWS + 3, largest)
    assert exact_sum(values) * UNIT == len(values) * Fraction(largest)
    assert exact_sum(-values) * UNIT == -len(values) * Fraction(largest)


def test_exact_count__counts_ones() -> None:
    assert exact_count(7) == exact_sum(np.ones(7))
