"""Rows by descending probability, in bins: what the counts of positives on both sides of a cut are distributed like.

Each row is positive with its probability `eta`, independently. Of the `k` rows of largest probability `TP` are
positive, of the others `FN`: two independent sums of indicators, of which everything follows from sums over rows.

`B` bins, `n` rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protodask.engine.records import Floats, Integers
from protodask.evaluation.score_bins import ScoreBins

Complex = NDArray[np.complex128]

WINDOW = 256
"""Neighbouring integers on which a count of small variance is told apart: 12 deviations to either side and more."""

MOST_KEPT = 2048
"""Transforms that are kept, about: 4 MiB."""

TOGETHER = 1024
"""Bins whose transforms are computed at a time: 2 MiB for each array of them."""

_ANGLES = 2 * np.pi * np.arange(WINDOW // 2 + 1) / WINDOW


@dataclass(frozen=True)
class Counts:
    """M sums of independent indicators: cumulants and, of those of small variance, the characteristic function."""

    most: Integers
    """Rows each is of (M,)."""
    cumulants: Floats
    """Mean, variance, third and fourth (M, 4)."""
    certain: Integers
    """Rows of a probability above 1/2, whose negatives are what the transform counts (M,)."""
    small: NDArray[np.bool_]
    """Which have a transform (M,): S of them."""
    transform: Complex
    """Means of `exp(-i t)` to the power of the count less `certain`, at the angles `t` (S, A)."""


@dataclass(frozen=True)
class Rows:
    """Bins in an order, and sums over the leading ones; all rows of a bin pass for tied at its mean."""

    rows: Integers
    mean: Floats
    """Of the probabilities of a bin (B,)."""
    spread: Floats
    """Mean of `eta (1 - eta)` of a bin (B,)."""
    small: float
    """Counts up to this variance get a characteristic function."""

    @cached_property
    def each(self) -> Floats:
        """Cumulants of a row of each bin (B, 4): `eta`, `s = eta (1 - eta)`, `s (1 - 2 eta)`, `s (1 - 6 s)`."""
        mean, spread = self.mean, self.spread
        return np.stack([mean, spread, spread * (1 - 2 * mean), spread * (1 - 6 * spread)], axis=1)

    @cached_property
    def sums(self) -> Floats:
        """Cumulants of the rows before each bin (B + 1, 4)."""
        return _leading(self.rows[:, None] * self.each)

    @cached_property
    def certain(self) -> Integers:
        """Rows of a probability above 1/2 before each bin (B + 1,)."""
        return _leading(np.where(self.mean > 0.5, self.rows, 0))

    @cached_property
    def _step(self) -> int:
        """Bins between two transforms that are kept."""
        return max(1, len(self.rows) // MOST_KEPT)

    @cached_property
    def _kept(self) -> Complex:
        """Transforms of the rows before every `_step`-th bin, as far as the variance is small."""
        step = self._step
        last = int(np.searchsorted(self.sums[:-1, 1], self.small, side="right") - 1) // step
        kept = np.ones((last + 1, len(_ANGLES)), dtype=np.complex128)
        at_once = max(1, TOGETHER // step)
        for place in range(0, last, at_once):
            until = min(place + at_once, last)
            factors = self._factors(slice(place * step, until * step))
            kept[place + 1 : until + 1] = factors.reshape(-1, step, len(_ANGLES)).prod(axis=1)
        return np.cumprod(kept, axis=0, out=kept)

    def leading(self, whole: Integers, more: Integers) -> Counts:
        """The counts of positives among the rows of the first `whole` bins and `more` rows of the next, each (M,)."""
        bin_of_more = np.minimum(whole, len(self.rows) - 1)
        cumulants = self.sums[whole] + more[:, None] * self.each[bin_of_more]
        certain = self.certain[whole] + np.where(self.mean[bin_of_more] > 0.5, more, 0)
        small = cumulants[:, 1] <= self.small
        transform = self._transforms(whole[small], more[small])
        return Counts(self.before[whole] + more, cumulants, certain, small, transform)

    def _transforms(self, whole: Integers, more: Integers) -> Complex:
        places = np.minimum(whole // self._step, len(self._kept) - 1)
        found = self._kept[places]
        for number in np.flatnonzero(places * self._step < whole).tolist():
            found[number] *= self._factors(slice(places[number] * self._step, whole[number])).prod(axis=0)
        parted = np.flatnonzero(more)
        found[parted] *= _factors(more[parted], self.mean[whole[parted]], self.spread[whole[parted]])
        return found

    @cached_property
    def before(self) -> Integers:
        """Rows before each bin (B + 1,)."""
        return _leading(self.rows)

    def _factors(self, bins: slice) -> Complex:
        return _factors(self.rows[bins], self.mean[bins], self.spread[bins])


def _factors(rows: Integers, mean: Floats, spread: Floats) -> Complex:
    """`1 - eta + eta exp(-i t)` to the power of the rows of a bin, (bins, A); of `eta` above 1/2 times `exp(i t)`.

    What is left is the turn of the rarer outcome: of many rows of a probability near 1 the whole number of turns would
    take the digits.
    """
    rare, sign = np.minimum(mean, 1 - mean)[:, None], np.where(mean > 0.5, 1.0, -1.0)[:, None]
    factors = np.empty((len(mean), len(_ANGLES)), dtype=np.complex128)
    factors.real, factors.imag = 1 - rare * (1 - np.cos(_ANGLES)), sign * rare * np.sin(_ANGLES)
    many = rows > 1
    with np.errstate(divide="ignore"):  # the factor is 0 for 1/2 at half a turn
        size = 0.5 * np.log1p(-2 * np.minimum(spread[many], 0.25)[:, None] * (1 - np.cos(_ANGLES)))
    phase = np.angle(factors[many])
    power = rows[many, None]
    factors[many] = np.exp(power * size) * np.exp(1j * (power * phase))
    return factors


def _leading(values: NDArray[Any]) -> NDArray[Any]:
    return np.concatenate([np.zeros_like(values[:1]), np.cumsum(values, axis=0)])


@dataclass(frozen=True)
class Ranking:
    """All rows by descending probability."""

    bins: ScoreBins
    """Ascending, with the sums of `eta` and `eta (1 - eta)`."""
    head: Rows
    tail: Rows
    """The same bins from the other end: sums over the rest are not differences of large numbers."""

    @classmethod
    def of(cls, bins: ScoreBins, small: float) -> Ranking:
        """Rank the rows of the bins; counts of a variance up to `small` are told apart by integers."""
        rows, mean, spread = bins.rows, bins.sums[:, 0] / bins.rows, bins.sums[:, 1] / bins.rows
        mean = np.clip(mean, bins.lowest, bins.highest)
        return cls(bins, Rows(rows[::-1], mean[::-1], spread[::-1], small), Rows(rows, mean, spread, small))

    @property
    def n(self) -> int:
        return int(self.head.before[-1])

    def place(self, k: Integers) -> tuple[Integers, Integers]:
        """Whole bins among the first `k` rows, and rows of the next; each (M,)."""
        whole = np.searchsorted(self.head.before, k, side="right") - 1
        return whole, k - self.head.before[whole]

    def counts(self, k: Integers) -> tuple[Counts, Counts]:
        """Positives among the first `k` rows (M,), and among the others."""
        whole, more = self.place(k)
        n_bins = len(self.head.rows)
        parted = more > 0
        left = np.where(parted, self.head.rows[np.minimum(whole, n_bins - 1)] - more, 0)
        return self.head.leading(whole, more), self.tail.leading(n_bins - whole - parted, left)
