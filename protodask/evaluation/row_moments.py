"""Confidence intervals of what is a mean over rows, from sums alone.

Rows count with weights `s_n`, which may go with what is averaged: where zeros of a log were dropped, rows of one class
weigh more than others. A mean `m = sum s x / sum s` has the variance

    V = sum s^2 (x - m)^2 / (sum s)^2 * n / (n - 1),    n = (sum s)^2 / sum s^2

up to higher orders, whatever weights go with; `n` is the number of rows of equal weight that would tell as much where
they go with nothing, without weights the number of rows. All intervals hold 95 per cent; where there are too few rows
for one its ends are NaN.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protodask.engine.records import Floats, Integers
from protodask.evaluation.calibration import wilson_interval
from protodask.evaluation.given_rows import squared
from protodask.evaluation.interval import CONFIDENCE, UNKNOWN, Interval, normal_quantile


@dataclass(frozen=True)
class Moments:
    """Weighted means and squared deviations of some figures of a row (M,); merges as a monoid."""

    weight: float
    """`sum s`."""
    weight_squares: float
    """`sum s^2`."""
    mean: Floats
    centre: Floats
    """`sum s^2 x / sum s^2`."""
    spread: Floats
    """`sum s^2 (x - centre)^2`."""

    def __add__(self, other: Moments) -> Moments:
        """Those of both: with `Q` the sum of `s^2`, the spread gains `(centre_r - centre_l)^2 Q_l Q_r / Q`."""
        if self.weight == 0 or other.weight == 0:
            return other if self.weight == 0 else self
        weight, squares = self.weight + other.weight, self.weight_squares + other.weight_squares
        share = other.weight_squares / squares if squares > 0 else 0.0
        with np.errstate(invalid="ignore"):
            step, distance = other.mean - self.mean, other.centre - self.centre
            return Moments(
                weight,
                squares,
                self.mean + step * (other.weight / weight),
                self.centre + distance * share,
                self.spread + other.spread + np.square(distance) * (self.weight_squares * share),
            )

    @property
    def deviation_squares(self) -> Floats:
        """`sum s^2 (x - mean)^2 / sum s^2` (M,): without weights the variance of a figure, and always about `n` times
        that of its mean.
        """
        with np.errstate(invalid="ignore", divide="ignore"):
            found: Floats = np.square(self.centre - self.mean) + self.spread / self.weight_squares
        return found


def moments(values: Floats, weight: Floats) -> Moments:
    """Moments of figures (N, M) of rows with weights (N,)."""
    total = float(weight.sum())
    if total == 0:
        return no_moments(values.shape[1])
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):  # an infinite loss has no deviation
        square = np.square(weight)
        squares = float(square.sum())
        mean: Floats = weight @ values / total
        # Of weights whose squares are 0 nothing is seen.
        centre: Floats = square @ values / squares if squares > 0 else mean
        spread: Floats = square @ np.square(values - centre)
    return Moments(total, squares, mean, centre, spread)


def no_moments(width: int) -> Moments:
    """Those of no rows: the identity of merging."""
    return Moments(0.0, 0.0, *np.zeros((3, width)))


def effective_rows(weight: float, weight_squares: float) -> float:
    """`(sum s)^2 / sum s^2`; 0 of no rows."""
    return weight * weight / weight_squares if weight_squares > 0 else 0.0


def mean_interval(found: Moments, position: int, factor: float = 1.0) -> Interval:
    """Mean of a figure times `factor`, with `mean +- z sqrt(V)`."""
    value = factor * float(found.mean[position])
    rows = effective_rows(found.weight, found.weight_squares)
    variance = float(found.deviation_squares[position])
    if not rows > 1 or not math.isfinite(value) or not math.isfinite(variance):
        return Interval(value, math.nan, math.nan)
    reach = normal_quantile(CONFIDENCE) * factor * math.sqrt(variance / (rows - 1))
    return Interval(value, max(0.0, value - reach), value + reach)


ALIKE = 1e-12
"""Variance of zeros and ones up to which all of them are alike, however much they weigh."""


def rows_of_share(found: Moments, position: int) -> float:
    """Rows of equal weight whose share of ones would be as far off as that of a figure of zeros and ones."""
    share, rows = float(found.mean[position]), effective_rows(found.weight, found.weight_squares)
    variance = share * (1 - share)
    # Where all are alike, but for rounding, nobody knows what the others would weigh.
    return rows * variance / float(found.deviation_squares[position]) if variance > ALIKE else rows


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


@dataclass(frozen=True)
class BinSums:
    """`sum s` and `sum s^2` of rows by bin (B,); merges as a monoid."""

    weight: Floats
    squares: Floats

    @property
    def rows(self) -> float:
        """`n` of all rows."""
        return effective_rows(float(self.weight.sum()), float(self.squares.sum()))

    @property
    def counts(self) -> Floats:
        """Their weights, in units in which they add up to `n`."""
        total = float(self.weight.sum())
        return self.weight * (self.rows / total) if total > 0 else np.zeros_like(self.weight)

    @property
    def shares(self) -> Floats:
        total = float(self.weight.sum())
        return self.weight / total if total > 0 else np.zeros_like(self.weight)

    def quotients(self, other: BinSums | None = None) -> Floats:
        """`m_b = sum s^2 / sum s` of each bin: what a row of it weighs, about.

        Where a bin holds none, it is what it is in `other` rows, in proportion to the mean of all, or that mean.
        """
        mean = float(self.squares.sum()) / float(self.weight.sum())
        known = np.ones_like(self.weight)
        if other is not None:
            known = other.quotients() / (float(other.squares.sum()) / float(other.weight.sum()))
        return np.divide(self.squares, self.weight, out=known * mean, where=self.weight > 0)

    def rows_of_shares(self, shares: Floats, other: BinSums | None = None) -> Floats:
        """Rows of equal weight that would tell as much of each bin's share, where these are the `shares` (B,).

        n_b = W / (m_b (1 - p_b) + m_-b p_b),    m_-b = sum_{c != b} m_c p_c / (1 - p_b)
        """
        quotients = self.quotients(other)
        weighs = quotients * shares
        rest = np.maximum(weighs.sum() - weighs, 0.0)
        left = 1 - shares
        of_rest = np.divide(rest, left, out=np.full_like(rest, float(weighs.sum())), where=left > 0)
        found: Floats = float(self.weight.sum()) / (quotients * left + of_rest * shares)
        return found

    def together(self, chosen: NDArray[np.bool_]) -> BinSums:
        """Those bins as one, after the others."""
        return BinSums(*(np.append(sums[~chosen], sums[chosen].sum()) for sums in (self.weight, self.squares)))


def bin_sums(bins: Integers, weight: Floats | None, count: int) -> BinSums:
    """Those of rows that lie in these `bins` of so many (N,), of weights (N,), all 1 where there are none."""
    sums = np.bincount(bins, weights=weight, minlength=count).astype(np.float64)
    if weight is None:
        return BinSums(sums, sums)
    return BinSums(sums, np.bincount(bins, weights=squared(weight), minlength=count).astype(np.float64))
