"""Sums of floating-point numbers without rounding, so that neither order nor blocks nor added zeros change them.

A sum is a whole number of units of `2**-UNIT_BITS`, of which every finite float64 is a multiple; whole numbers of
Python have no largest one. Adding two sums merges them, and `left / right` of two is their ratio, rounded once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

UNIT_BITS = 1126
"""The smallest float64, `2**-1074`, has a mantissa of which 52 bits lie below it as `frexp` scales it."""

HALF_BITS = 27
"""Mantissas are summed in two halves of this many bits, which `SLICE_ROWS` of them cannot fill beyond 53 bits."""

SLICE_ROWS = 2**20
"""Values summed at a time, so that temporaries stay small."""


def exact_sum(values: NDArray[np.float64]) -> int:
    """The sum of finite values, in units of `2**-UNIT_BITS`."""
    return sum(_slice_sum(values[first : first + SLICE_ROWS]) for first in range(0, len(values), SLICE_ROWS))


def exact_count(count: int) -> int:
    """The sum of so many ones."""
    return count << UNIT_BITS


def _slice_sum(values: NDArray[np.float64]) -> int:
    mantissa, exponent = np.frexp(values)
    whole = np.ldexp(mantissa, 53).astype(np.int64)
    place = exponent.astype(np.int64) + (UNIT_BITS - 53)  # value = whole * 2**place units, and place >= 0
    high = np.bincount(place, weights=whole >> HALF_BITS)
    low = np.bincount(place, weights=whole & (2**HALF_BITS - 1))
    total = 0
    for shift in np.flatnonzero((high != 0) | (low != 0)).tolist():
        total += ((int(high[shift]) << HALF_BITS) + int(low[shift])) << shift
    return total
