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

from protodask.evaluation.score_bins import ScoreBins

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

WINDOW = 256
"""Neighbouring integers on which a count of small variance is told apart: 12 deviations to either side and more."""

MOST_KEPT = 2048
"""Transforms that are kept, about: 4 MiB."""

TOGETHER = 1024
"""Bins whose transforms are computed at a time: 1 MiB for each array of them."""

_ANGLES = 2 * np.pi * np.arange(WINDOW // 2 + 1) / WINDOW


@dataclass(frozen=True)
class Count:
    """A sum of independent indicators: its cumulants and, of small variance, its characteristic function."""

    most: int
    """Rows it is of."""
    mean: float
    variance: float
    third: float
    fourth: float
    certain: int
    """Rows of a probability above 1/2, whose negatives are what the transform counts."""
    log_size: Floats | None = None
    """Log of the absolute value of the characteristic function of the count less `certain`, at the angles."""
    phase: Floats | None = None


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
    def _kept(self) -> tuple[Floats, Floats]:
        """Transforms of the rows before every `_step`-th bin, as far as the variance is small."""
        step = self._step
        last = int(np.searchsorted(self.sums[:-1, 1], self.small, side="right") - 1) // step
        sizes, phases = np.zeros((last + 1, len(_ANGLES))), np.zeros((last + 1, len(_ANGLES)))
        at_once = max(1, TOGETHER // step)
        for place in range(0, last, at_once):
            until = min(place + at_once, last)
            size, phase = self._weighted_factors(place * step, until * step)
            sizes[place + 1 : until + 1] = size.reshape(-1, step, len(_ANGLES)).sum(axis=1)
            phases[place + 1 : until + 1] = phase.reshape(-1, step, len(_ANGLES)).sum(axis=1)
        return np.cumsum(sizes, axis=0), np.cumsum(phases, axis=0)

    def leading(self, whole: int, more: int) -> Count:
        """The count of positives among the rows of the first `whole` bins and `more` rows of the next."""
        sums, most, certain = self.sums[whole], int(self.before[whole]) + more, int(self.certain[whole])
        if more:
            sums = sums + more * self.each[whole]
            certain += more if self.mean[whole] > 0.5 else 0
        mean, variance, third, fourth = sums.tolist()
        if variance > self.small:
            return Count(most, mean, variance, third, fourth, certain)
        place = min(whole // self._step, len(self._kept[0]) - 1)
        size, phase = self._kept[0][place], self._kept[1][place]
        if place * self._step < whole:
            rest_size, rest_phase = self._weighted_factors(place * self._step, whole)
            size, phase = size + rest_size.sum(axis=0), phase + rest_phase.sum(axis=0)
        if more:
            own_size, own_phase = _log_factors(self.mean[whole : whole + 1], self.spread[whole : whole + 1])
            size, phase = size + more * own_size[0], phase + more * own_phase[0]
        return Count(most, mean, variance, third, fourth, certain, size, phase)

    @cached_property
    def before(self) -> Integers:
        """Rows before each bin (B + 1,)."""
        return _leading(self.rows)

    def _weighted_factors(self, first: int, last: int) -> tuple[Floats, Floats]:
        size, phase = _log_factors(self.mean[first:last], self.spread[first:last])
        rows = self.rows[first:last, None]
        return rows * size, rows * phase


def _log_factors(mean: Floats, spread: Floats) -> tuple[Floats, Floats]:
    """Log of `1 - eta + eta e^{it}` as size and phase, (bins, angles); of `eta` above 1/2 less the phase `t`.

    The phase that is left is that of the rarer outcome: of many rows of a probability near 1 the whole number of turns
    would take the digits.
    """
    rare, sign = np.minimum(mean, 1 - mean)[:, None], np.where(mean > 0.5, -1.0, 1.0)[:, None]
    with np.errstate(divide="ignore"):  # the factor is 0 for 1/2 at half a turn
        size = 0.5 * np.log1p(-2 * np.minimum(spread, 0.25)[:, None] * (1 - np.cos(_ANGLES)))
    return size, sign * np.arctan2(rare * np.sin(_ANGLES), 1 - rare + rare * np.cos(_ANGLES))


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

    def place(self, k: int) -> tuple[int, int]:
        """Whole bins among the first `k` rows, and rows of the next."""
        whole = int(np.searchsorted(self.head.before, k, side="right")) - 1
        return whole, k - int(self.head.before[whole])

    def counts(self, k: int) -> tuple[Count, Count]:
        """Positives among the first `k` rows, and among the others."""
        whole, more = self.place(k)
        selected = self.head.leading(whole, more)
        n_bins = len(self.head.rows)
        if more == 0:
            return selected, self.tail.leading(n_bins - whole, 0)
        return selected, self.tail.leading(n_bins - 1 - whole, int(self.head.rows[whole]) - more)
