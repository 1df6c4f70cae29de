"""The area under the ROC curve from cells of neighbouring scores, and cutting those that leave it open.

With weights `a` of positives and `c` of negatives in a cell, `A` and `C` in all, the pairs within a cell count for
something between 0 and `a c`. Taking half is right where all scores of the cell are tied, and else wrong by at most
`a c / 2`:

    AUC = sum_i a_i (c_1 + .. + c_{i-1} + c_i / 2) / (A C),     error <= sum_{i not tied} a_i c_i / 2 / (A C).

Cutting a cell into `m` of equal weights divides its part of the error by `m`. For a given number of cells the error is
least with `m` in proportion to `sqrt(a c)`; it is then at most `1 / 2M` with `M` cells, and less by the square of the
overlap `sum sqrt(a c) / sqrt(A C)` of the two classes.

`B` cells, `P` cells that are cut, `M` places they are cut into.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protodask.engine.records import Floats, Integers, joined, merged_by, taken
from protodask.evaluation.score_bins import (
    FIRST_FREE,
    Keys,
    ScoreBins,
    bin_scores,
    merge_within,
    no_bins,
    score_keys,
)

SUM_BYTES = 32
"""Of one place: two weights and two keys."""

SLICE_ROWS = 2**18
"""Rows worked on together, so that large blocks do not need large temporaries."""

MARGIN = 0.9
"""Of the error that is asked for, what a cut aims at: weights within a cell are not quite even."""

_LAST_KEY = np.uint64(2**64 - 1)
_MOST_SHIFT = 63
_TABLE_BITS = 18  # a table of 2 MiB, of which little is looked at often
_GOLDEN = (5**0.5 - 1) / 2
_LITTLE = 1e-300
_SCALES, _STEPS = (-10.0, 100.0), 24
"""Binary logarithm of the places for a unit of `sqrt(a c) / sqrt(A C)`: between which, and by how many bisections."""


@dataclass(frozen=True)
class Cells:
    """Cells by ascending score, which do not overlap."""

    lowest: Keys
    """Key of the lowest score that occurs (B,); equal to `highest` where all scores of a cell are tied."""
    highest: Keys
    positive: Floats
    negative: Floats

    @property
    def open_pairs(self) -> Floats:
        """Share of the pairs of which it is not known in which order they are (B,)."""
        share = _shares(self.positive) * _shares(self.negative)
        return np.where(self.lowest == self.highest, 0.0, share)


@dataclass(frozen=True)
class Grid:
    """Places that the scores of some cells are told apart by in one pass."""

    lowest: Keys
    """Of each cell (P,)."""
    width: Keys
    """Its highest key less its lowest (P,)."""
    shift: Keys
    """A place holds the scores of a cell whose keys agree, above its lowest, but for so many bits (P,)."""
    first: NDArray[np.intp]
    """First place of each cell, and the number of all (P + 1,)."""
    table: NDArray[np.intp]
    """For keys that agree but for the lowest `table_shift` bits, the last cell that begins at or below one of them."""
    table_shift: np.uint64

    @property
    def n_places(self) -> int:
        return int(self.first[-1])


@dataclass(frozen=True)
class GridSums:
    """Weights and extreme keys of the rows at each place; merges as a monoid. Rows of no place are at the last one."""

    weight: Floats
    """Of negatives and of positives (M + 1, 2)."""
    lowest: Keys = field(metadata=merged_by(np.minimum))
    highest: Keys = field(metadata=merged_by(np.maximum))


def bin_rows(
    score: NDArray[np.floating[Any]],
    positive: NDArray[np.bool_],
    weight: Floats | None,
    most: int,
    free: int = FIRST_FREE,
) -> ScoreBins:
    """At most `most` bins of some rows, with the weights of positives and of negatives."""
    bins = no_bins(2)
    for first in range(0, len(score), SLICE_ROWS):
        rows = slice(first, first + SLICE_ROWS)
        weights = np.array([positive[rows], ~positive[rows]], dtype=np.float64)
        if weight is not None:
            weights *= weight[rows]
        bins = merge_within(bins, bin_scores(score[rows], weights.T, free=free), most)
    return bins


def cells_of_bins(bins: ScoreBins) -> Cells:
    """Bins whose two sums are the weights of positives and of negatives, as cells."""
    return Cells(score_keys(bins.lowest), score_keys(bins.highest), bins.sums[:, 0], bins.sums[:, 1])


def area_of_cells(cells: Cells) -> tuple[float, float]:
    """The area and the largest error it can have; nan and 0 without positives or without negatives."""
    if not (cells.positive.any() and cells.negative.any()):
        return float("nan"), 0.0
    positive, negative = _shares(cells.positive), _shares(cells.negative)
    below = np.cumsum(negative) - 0.5 * negative
    return min(float(np.sum(positive * below)), 1.0), 0.5 * float(np.sum(cells.open_pairs))


def _shares(weight: Floats) -> Floats:
    total = weight.sum()
    return weight / total if total > 0 else weight


def cut_cells(cells: Cells, most_error: float, most: int, passes: int) -> Grid | None:
    """How to cut cells so that the error becomes `most_error` in so many passes of `most` places each.

    Where they do not suffice it becomes about the least that can be had; of several passes this is the first. None
    where the error is small enough already.
    """
    pairs = cells.open_pairs
    if 0.5 * pairs.sum() <= most_error:
        return None
    open_cells = np.flatnonzero(pairs > 0)
    width = cells.highest[open_cells] - cells.lowest[open_cells]
    length = np.frexp(width.astype(np.float64))[1].astype(np.int64)  # bits of the largest difference of keys
    largest = np.minimum(length, most.bit_length() - 1)
    filled = (width.astype(np.float64) + 1) / np.exp2(length)  # of the places that so many bits would have
    bits = _bits_of_cuts(np.sqrt(pairs[open_cells]), filled, largest, 2 * MARGIN * most_error, most * passes)
    # The cells that leave most open first, until the places are used up; the first one always has room.
    order = np.argsort(-pairs[open_cells], kind="stable")
    order = order[bits[order] > 0]
    shift = np.minimum(length - bits, _MOST_SHIFT).astype(np.uint64)
    places = (width >> shift).astype(np.int64) + 1
    kept = np.sort(order[np.cumsum(places[order]) <= most])
    return _make_grid(cells.lowest[open_cells[kept]], width[kept], shift[kept], places[kept])


def _make_grid(lowest: Keys, width: Keys, shift: Keys, places: Integers) -> Grid:
    last = lowest[-1] + width[-1]
    span = int(last - lowest[0])
    table_shift = np.uint64(max(span.bit_length() - _TABLE_BITS, 0))
    start = lowest[0] >> table_shift
    # The last key of an entry; in unsigned numbers, the one before 0 is the last of all.
    entries = np.arange(int(last >> table_shift) - int(start) + 1, dtype=np.uint64)
    ends = ((start + entries + np.uint64(1)) << table_shift) - np.uint64(1)
    return Grid(
        lowest,
        width,
        shift,
        np.concatenate([[0], np.cumsum(places)]).astype(np.intp),
        np.searchsorted(lowest, ends, side="right") - 1,
        table_shift,
    )


def _bits_of_cuts(root: Floats, filled: Floats, largest: Integers, open_after: float, places: int) -> Integers:
    """By how many bits to cut each cell, `m = filled 2^bits`: no more than leaves open what may be, or than fits."""
    # Cells that are alike are doubled one after the other, not all at once.
    turn = np.arange(len(root)) * _GOLDEN % 1 - 0.5
    wanted = np.log2(np.maximum(root, _LITTLE) / filled) + turn

    def bits(scale: float) -> Integers:
        cut: Integers = np.clip(np.rint(wanted + scale).astype(np.int64), 0, largest)
        return cut

    def parts(cut: Integers) -> Floats:
        return np.where(cut > 0, filled * np.exp2(cut), 1.0)

    def has_places(cut: Integers) -> bool:
        return bool(np.sum(np.ceil(parts(cut)), where=cut > 0) <= places)

    low, high = _SCALES
    for _ in range(_STEPS):
        middle = (low + high) / 2
        cut = bits(middle)
        if has_places(cut) and np.sum(np.square(root) / parts(cut)) > open_after:
            low = middle
        else:
            high = middle
    found = bits(high)
    if not has_places(found):
        found = bits(low)
    if not found.any():
        found[int(np.argmax(root))] = 1
    return found


def no_sums(n_places: int) -> GridSums:
    """The sums over no rows: the identity of merging."""
    size = n_places + 1
    return GridSums(np.zeros((size, 2)), np.full(size, _LAST_KEY), np.zeros(size, dtype=np.uint64))


def sum_rows(
    grid: Grid, score: NDArray[np.floating[Any]], positive: NDArray[np.bool_], weight: Floats | None
) -> GridSums:
    """The sums over some rows, added in their order."""
    sums = no_sums(grid.n_places)
    for first in range(0, len(score), SLICE_ROWS):
        rows = slice(first, first + SLICE_ROWS)
        key = score_keys(score[rows])
        cell = find_cells(grid, key)
        offset = key - grid.lowest[cell]
        place = grid.first[cell] + (offset >> grid.shift[cell]).astype(np.intp)
        # Also for keys below all cells, of which the difference wraps round to beyond the first one.
        place[offset > grid.width[cell]] = grid.n_places
        np.add.at(sums.weight.reshape(-1), 2 * place + positive[rows], 1.0 if weight is None else weight[rows])
        np.minimum.at(sums.lowest, place, key)
        np.maximum.at(sums.highest, place, key)
    return sums


def find_cells(grid: Grid, key: Keys) -> NDArray[np.intp]:
    """The last cell that begins at or below each key; the first one for keys below all.

    As `np.searchsorted`, which takes several times as long where few cells begin at keys of one entry of the table.
    """
    start = grid.lowest[0] >> grid.table_shift
    entry = np.clip(key >> grid.table_shift, start, start + np.uint64(len(grid.table) - 1)) - start
    cell: NDArray[np.intp] = grid.table[entry.astype(np.intp)]
    early = np.flatnonzero(key < grid.lowest[cell])
    cell[early] = np.maximum(np.searchsorted(grid.lowest, key[early], side="right") - 1, 0)
    return cell


def refine_cells(cells: Cells, grid: Grid, sums: GridSums) -> Cells:
    """The cells with those of the grid replaced by what a pass over it found."""
    found = taken(sums, np.flatnonzero(sums.lowest[:-1] <= sums.highest[:-1]))
    finer = Cells(found.lowest, found.highest, found.weight[:, 1], found.weight[:, 0])
    every = joined(taken(cells, ~np.isin(cells.lowest, grid.lowest)), finer)
    return taken(every, np.argsort(every.lowest, kind="stable"))
