"""Sums over rows by narrow bins of a score, for statistics of its order where every distinct score is too much to keep.

The bits of a float64, with those of negative numbers turned round, are an integer that orders as the floats do: the
key. A bin holds the scores whose keys agree but for their `free` lowest bits, so that a bin of first cut is narrower
than `2^(FIRST_FREE - 52) = 1/1024` of the scores in it, wherever they lie. What falls into a bin depends on the score
alone: bins of different rows merge as a monoid, whatever the rows, and another pass can cut those that matter finer,
until a bin is a single score. Where there would be too many bins, one more bit is freed in all of them, until they are
few enough: the smallest number of free bits that does it depends on the set of scores alone, so that merging remains
associative.

`B` bins, `C` columns of sums, `n` rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protodask.engine import ArraySource, Block, Engine, Reduction, Source, add_records, identity
from protodask.engine.costs import partials_alive
from protodask.engine.records import Floats, Integers, joined, taken
from protodask.engine.sources import leaves

Keys = NDArray[np.uint64]
Free = NDArray[np.uint8]

FIRST_FREE = 42
"""Free bits of the first cut: the exponent and 10 bits of the fraction tell bins apart."""

BIN_BYTES = 33
"""A bin beside its sums, of 8 bytes each."""

MEMORY_SHARE = 0.2
"""Of the memory limit, without rows that are in memory, for the bins of a pass: blocks, caches and the interpreter take
the rest."""

LEAST_BINS = 64
"""However little memory there is."""

_MOST_FREE = 63
_SIGN = np.int64(-(2**63))
_DENSE = 4
"""Bins are counted in an array over their whole range where that has at most so many places for each row."""

Scored = tuple[NDArray[np.floating[Any]], Floats]
"""A score (n,) and what is summed beside it (n, C)."""

ReadScores = Callable[..., Sequence[Scored]]
"""From a block, and further arguments, to one or more scores of its rows; at module level, as workers import it."""


@dataclass(frozen=True)
class ScoreBins:
    """The bins that have rows, by ascending score; merges as a monoid."""

    key: Keys
    """The lowest key of each bin (B,)."""
    free: Free
    """How many of its lowest bits are free (B,)."""
    rows: Integers
    lowest: Floats
    """The lowest score that occurs (B,); equal to `highest` where the rows of a bin are all tied."""
    highest: Floats
    sums: Floats
    """(B, C)."""

    def __add__(self, other: ScoreBins) -> ScoreBins:
        """The bins of the rows of both, which are of the same cut."""
        if len(self.key) == 0:
            return other
        if len(other.key) == 0:
            return self
        both = _in_order([self, other])
        return _join(both, both.key, both.free)

    @property
    def tied(self) -> NDArray[np.bool_]:
        """Bins of a single score (B,): there is nothing to cut."""
        tied: NDArray[np.bool_] = self.lowest == self.highest
        return tied


@dataclass(frozen=True)
class Cuts:
    """Bins that are to be cut finer."""

    key: Keys
    free: Free
    """Before."""
    finer: Free
    """After."""


def score_keys(score: NDArray[np.floating[Any]]) -> Keys:
    """Integers that order as the scores, -0 as 0; scores are not NaN."""
    bits = (score.astype(np.float64) + 0.0).view(np.int64)
    return (bits ^ ((bits >> np.int64(63)) | _SIGN)).view(np.uint64)  # all bits of a negative number, else the sign


def no_bins(n_columns: int) -> ScoreBins:
    """The bins of no rows: the identity of merging."""
    return ScoreBins(
        np.zeros(0, dtype=np.uint64),
        np.zeros(0, dtype=np.uint8),
        np.zeros(0, dtype=np.int64),
        np.zeros(0),
        np.zeros(0),
        np.zeros((0, n_columns)),
    )


def bin_scores(
    score: NDArray[np.floating[Any]], columns: Floats, cuts: Cuts | None = None, free: int = FIRST_FREE
) -> ScoreBins:
    """The bins of some rows, of so many free bits; with `cuts` the finer ones, of rows in the bins they name only."""
    # Of one type with what is looked for: numpy takes 40 times as long for the extremes of a column it has to convert.
    score = score.astype(np.float64, copy=False)
    key = score_keys(score)
    if cuts is None:
        return _gather(key >> np.uint64(free), np.uint8(free), score, columns)
    place = np.searchsorted(cuts.key, key, side="right").astype(np.intp) - 1
    inside = place >= 0
    inside[inside] = (key[inside] - cuts.key[place[inside]]) >> cuts.free[place[inside]].astype(np.uint64) == 0
    place, key, score, columns = place[inside], key[inside], score[inside], columns[inside]
    parts = [
        _gather(key[own] >> np.uint64(finer), finer, score[own], columns[own])
        for finer in np.unique(cuts.finer)
        for own in [cuts.finer[place] == finer]
    ]
    return _in_order(parts) if parts else no_bins(columns.shape[1])


def _gather(number: Keys, free: np.uint8, score: NDArray[np.floating[Any]], columns: Floats) -> ScoreBins:
    """Sums by bin number; within a bin rows are added in their order."""
    if len(number) == 0:
        return no_bins(columns.shape[1])
    first = number.min()
    n_places = int(number.max() - first) + 1
    if n_places <= _DENSE * len(number):
        index = (number - first).astype(np.intp)
        rows = np.bincount(index, minlength=n_places)
        present = np.flatnonzero(rows)
        numbers, rows = present.astype(np.uint64) + first, rows[present]
    else:
        numbers, index, rows = np.unique(number, return_inverse=True, return_counts=True)
        present, n_places = np.arange(len(numbers)), len(numbers)
    lowest, highest = np.full(n_places, np.inf), np.full(n_places, -np.inf)
    np.minimum.at(lowest, index, score)
    np.maximum.at(highest, index, score)
    sums = np.empty((len(present), columns.shape[1]))
    for column in range(columns.shape[1]):
        sums[:, column] = np.bincount(index, weights=columns[:, column], minlength=n_places)[present]
    return ScoreBins(
        numbers << np.uint64(free),
        np.full(len(present), free),
        rows.astype(np.int64),
        lowest[present],
        highest[present],
        sums,
    )


def _join(bins: ScoreBins, key: Keys, free: Free) -> ScoreBins:
    """The same rows in bins of these keys, one for each run of equal ones."""
    first = np.flatnonzero(np.concatenate([[True], key[1:] != key[:-1]]))
    return ScoreBins(
        key[first],
        free[first],
        np.add.reduceat(bins.rows, first),
        np.minimum.reduceat(bins.lowest, first),
        np.maximum.reduceat(bins.highest, first),
        np.add.reduceat(bins.sums, first, axis=0),
    )


def merge_within(left: ScoreBins, right: ScoreBins, most: int) -> ScoreBins:
    """The bins of the rows of both in at most so many; each side is an uncut `bin_scores`, or a result of this."""
    if len(left.key) == 0 or len(right.key) == 0:
        return coarsen(right if len(left.key) == 0 else left, most)
    free = max(int(left.free[0]), int(right.free[0]))
    return coarsen(_with_free(left, free) + _with_free(right, free), most)


@dataclass(frozen=True)
class BoundedBins:
    """Bins of some rows, at most `most` of them; merges as a monoid."""

    bins: ScoreBins
    most: int

    def __add__(self, other: BoundedBins) -> BoundedBins:
        """Those of the rows of both."""
        return BoundedBins(merge_within(self.bins, other.bins, self.most), self.most)


def coarsen(bins: ScoreBins, most: int) -> ScoreBins:
    """The same rows in at most `most` bins, which must be two or more; all bins have the same number of free bits."""
    if len(bins.key) <= most:
        return bins
    free = int(bins.free[0])
    while free < _MOST_FREE and _n_bins(bins.key, free) > most:
        free += 1
    return _with_free(bins, free)


def _n_bins(key: Keys, free: int) -> int:
    number = key >> np.uint64(free)
    return 1 + int(np.count_nonzero(number[1:] != number[:-1]))


def _with_free(bins: ScoreBins, free: int) -> ScoreBins:
    if bins.free[0] == free:
        return bins
    bits = np.uint64(free)
    return _join(bins, bins.key >> bits << bits, np.full(len(bins.key), free, dtype=np.uint8))


def affordable_bins(engine: Engine, source: Source, bin_bytes: int) -> int:
    """Bins a partial may have so that those of a pass stay within their share of the memory that the rows leave."""
    scheduler = engine.scheduler
    held = partials_alive(scheduler.processes(), source.layout.n_blocks)
    rows = sum(
        array.nbytes for leaf in leaves(source) if isinstance(leaf, ArraySource) for array in leaf.arrays.values()
    )
    memory = max(min(scheduler.memory_bytes, scheduler.processes().driver_bytes) - rows, 0)
    return max(LEAST_BINS, int(MEMORY_SHARE * memory) // (held * bin_bytes))


def _in_order(parts: Sequence[ScoreBins]) -> ScoreBins:
    """The bins of all parts by key, those of one key in the order of the parts."""
    every = joined(*parts)
    return taken(every, np.argsort(every.key, kind="stable"))


def choose_cuts(bins: ScoreBins, gain: Floats, most: int, finer_by: int = 8) -> Cuts:
    """Cut the `most` bins of the largest positive `gain` (B,) by so many bits; none where there is nothing to gain.

    Tied bins are left alone. Afterwards there are at most `most * 2^finer_by` bins more.
    """
    worth = np.flatnonzero((gain > 0) & ~bins.tied)
    if len(worth) > most:
        worth = np.sort(worth[np.argsort(-gain[worth], kind="stable")[:most]])
    free = bins.free[worth]
    return Cuts(bins.key[worth], free, np.maximum(free.astype(np.int64) - finer_by, 0).astype(np.uint8))


def refine_bins(bins: ScoreBins, cuts: Cuts, finer: ScoreBins) -> ScoreBins:
    """The bins with those of `cuts` replaced by what a pass with `cuts` found."""
    return _in_order([taken(bins, ~np.isin(bins.key, cuts.key)), finer])


def bin_source(
    engine: Engine,
    source: Source,
    read: ReadScores,
    *args: Any,
    cuts: Sequence[Cuts | None] | None = None,
    label: str = "",
) -> tuple[ScoreBins, ...]:
    """The bins of each score that `read(block, *args)` gives, in one pass; `cuts` as for `bin_scores`, one a score."""
    return engine.reduce(source, _SCORE_BINS, read, cuts, *args, label=label)


def _bin_block(block: Block, read: ReadScores, cuts: Sequence[Cuts | None] | None, *args: Any) -> tuple[ScoreBins, ...]:
    scored = read(block, *args)
    each = [None] * len(scored) if cuts is None else cuts
    return tuple(bin_scores(score, columns, own) for (score, columns), own in zip(scored, each, strict=True))


_SCORE_BINS: Reduction[tuple[ScoreBins, ...], tuple[ScoreBins, ...]] = Reduction(_bin_block, add_records, identity)
