"""Confidence intervals of what is a mean over rows, from sums alone.

Rows count with weights `s_n`. `n_eff = (sum s)^2 / sum s^2` is the number of rows of equal weight that would tell as
much; without weights it is the number of rows. All intervals hold 95 per cent; where there are too few rows for
one its ends are NaN.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from protodask.engine.records import Floats
from protodask.evaluation.calibration import wilson_interval
from protodask.evaluation.interval import CONFIDENCE, UNKNOWN, Interval, normal_quantile


@dataclass(frozen=True)
class Moments:
    """Weighted means and squared deviations of some figures of a row (M,); merges as a monoid."""

    weight: float
    """`sum s`."""
    weight_squares: float
    """`sum s^2`."""
    mean: Floats
    squares: Floats
    """`sum s (x - mean)^2`."""

    def __add__(self, other: Moments) -> Moments:
        """Those of both: the squares gain `(mean_r - mean_l)^2 W_l W_r / W`."""
        if self.weight == 0 or other.weight == 0:
            return other if self.weight == 0 else self
        weight = self.weight + other.weight
        with np.errstate(invalid="ignore"):
            step = other.mean - self.mean
            return Moments(
                weight,
                self.weight_squares + other.weight_squares,
                self.mean + step * (other.weight / weight),
                self.squares + other.squares + np.square(step) * (self.weight * other.weight / weight),
            )


def moments(values: Floats, weight: Floats) -> Moments:
    """Moments of figures (N, M) of rows with weights (N,)."""
    total = float(weight.sum())
    if total == 0:
        return no_moments(values.shape[1])
    with np.errstate(invalid="ignore"):  # an infinite loss has no deviation
        mean: Floats = weight @ values / total
        squares: Floats = weight @ np.square(values - mean)
    return Moments(total, float(weight @ weight), mean, squares)


def no_moments(width: int) -> Moments:
    """Those of no rows: the identity of merging."""
    return Moments(0.0, 0.0, np.zeros(width), np.zeros(width))


def effective_rows(weight: float, weight_squares: float) -> float:
    """`(sum s)^2 / sum s^2`; 0 of no rows."""
    return weight * weight / weight_squares if weight_squares > 0 else 0.0


def mean_interval(found: Moments, position: int, factor: float = 1.0) -> Interval:
    """Mean of a figure times `factor`, with `mean +- z sqrt(sum s (x - mean)^2 / sum s / (n_eff - 1))`."""
    value = factor * float(found.mean[position])
    rows = effective_rows(found.weight, found.weight_squares)
    variance = float(found.squares[position]) / found.weight if found.weight > 0 else math.nan
    if rows <= 1 or not math.isfinite(value) or not math.isfinite(variance):
        return Interval(value, math.nan, math.nan)
    reach = normal_quantile(CONFIDENCE) * factor * math.sqrt(variance / (rows - 1))
    return Interval(value, max(0.0, value - reach), value + reach)


def share_interval(share: float, rows: float) -> Interval:
    """A share of `rows` effective rows with Wilson's interval, which stays between 0 and 1 and is never empty."""
    if rows <= 0:
        return Interval(share, math.nan, math.nan)
    low, high = wilson_interval(np.array([share]), np.array([rows]), CONFIDENCE)
    return Interval(share, min(float(low[0]), share), max(float(high[0]), share))


def mean_of_shares(shares: list[Interval]) -> Interval:
    """Mean of independent shares: `mean -+ sqrt(sum (share - end)^2) / K`, from the intervals of each."""
    if not shares:
        return UNKNOWN
    value = math.fsum(share.value for share in shares) / len(shares)
    low, high = (
        math.sqrt(math.fsum((share.value - end) ** 2 for share, end in zip(shares, ends, strict=True))) / len(shares)
        for ends in ([share.low for share in shares], [share.high for share in shares])
    )
    if math.isnan(low + high):
        return Interval(value, math.nan, math.nan)
    return Interval(value, max(0.0, value - low), min(1.0, value + high))
