"""Weighted means and how far they may be off: `R = sum g y / sum g` over rows, as mergeable sums.

The rows are taken for independent draws, both `g` and `y` random: then `sum g (y - R)` has mean zero at the true ratio,
and by the delta method (linearise the ratio around the means of numerator and denominator)

    variance of R  =  n / (n - 1)  sum g^2 (y - R)^2  /  (sum g)^2,        n rows with g > 0.

With all weights equal that is the variance of a mean. A row that was kept with probability `l` has `1/l` as a factor
of `g`; that the draw of what is kept is random, too, is in the formula already.

`sum g` and `sum g y` are added up without rounding, so that neither order nor blocks nor added zeros change them. Such
a sum is a whole number of units of `2**-UNIT_BITS`, of which every finite float64 is a multiple; whole numbers of
Python have no largest one. Adding two sums merges them, and `left / right` of two is their ratio, rounded once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protodask.engine.records import Floats
from protodask.errors import InputError

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


@dataclass(frozen=True)
class RatioSums:
    """What rows contribute to a weighted mean and its variance; merges as a monoid.

    Every term of the variance is a square, so nothing cancels, however far the values lie from zero.
    """

    rows: int
    """Rows with a weight above zero."""
    weight: int
    """`sum g`, exact; the unit is that of `exact_sum`."""
    total: int
    """`sum g y`, of the rounded products, else exact."""
    squares: float
    """`sum g^2`."""
    centre: float
    """`sum g^2 y / sum g^2`."""
    spread: float
    """`sum g^2 (y - centre)^2`."""

    def __add__(self, other: RatioSums) -> RatioSums:
        """The sums over the rows of both."""
        squares = self.squares + other.squares
        share = other.squares / squares if squares > 0 else 0.0
        distance = other.centre - self.centre
        return RatioSums(
            rows=self.rows + other.rows,
            weight=self.weight + other.weight,
            total=self.total + other.total,
            squares=squares,
            centre=self.centre + share * distance,
            spread=self.spread + other.spread + self.squares * share * (distance * distance),
        )


NO_ROWS = RatioSums(0, 0, 0, 0.0, 0.0, 0.0)
"""The sums over no rows: the identity of merging."""


def ratio_sums(weight: Floats | None, product: Floats, value: Floats) -> RatioSums:
    """The sums over some rows, of `g >= 0` (None where all are 1), `g y` and `y`."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        square = None if weight is None else np.square(weight)
        squares = float(len(value) if square is None else square.sum())
        centre = float(np.sum(value if square is None else square * value)) / squares if squares > 0 else 0.0
        distance = np.square(value - centre)
        spread = float(np.sum(distance if square is None else square * distance))
    return RatioSums(
        rows=len(value) if weight is None else int(np.count_nonzero(weight)),
        weight=exact_count(len(value)) if weight is None else exact_sum(weight),
        total=exact_sum(product),
        squares=squares,
        centre=centre,
        spread=spread,
    )


def zero_rows(rows: int) -> RatioSums:
    """The sums over so many rows with `g = 1` and `y = 0`."""
    return RatioSums(rows, exact_count(rows), 0, float(rows), 0.0, 0.0)


def ratio_error(sums: RatioSums) -> tuple[float, float, float]:
    """The ratio, its standard error (infinite where there is but one row), and what it is divided by."""
    try:
        value, divisor = sums.total / sums.weight, sums.weight / 2**UNIT_BITS
    except OverflowError as error:
        raise too_large() from error
    if sums.rows < 2:
        return value, math.inf, divisor
    distance = sums.centre - value
    spread = sums.spread + sums.squares * (distance * distance)
    if not math.isfinite(spread):
        raise too_large()
    return value, math.sqrt(spread * sums.rows / (sums.rows - 1)) / divisor, divisor


def too_large() -> InputError:
    """The error of sums of squares that overflow."""
    return InputError(
        "overflow",
        "The squares of the rewards, divided by their probabilities, are too large to be added up.",
        "Rescale the rewards, or leave out rows of vanishing probability.",
    )
