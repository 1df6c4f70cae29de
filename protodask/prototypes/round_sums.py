"""What one evaluation of the likelihood adds up, for a round of batches: a stretch of rows after another, in tiles.

Letters are those of `likelihood` and of `tiles`; sums of tiles are float64 whatever the precision.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protodask.engine.records import Floats
from protodask.prototypes.batch_kernel import BatchKernel, Pairs
from protodask.prototypes.kernel import RowSide, exponentiate, product
from protodask.prototypes.tiles import (
    SUMMED_ROWS,
    Array,
    BatchMemory,
    Precision,
    RowShape,
    likelihood_lengths,
    likelihood_memory,
    matrix_in,
    strips,
)


@dataclass(frozen=True)
class Rows:
    """The rows of a block that an evaluation may take, see `likelihood.LikelihoodKernel.evaluate`."""

    features: Array
    standardized: Array | None
    previous: Floats
    itself: Sequence[Pairs] | None


def stretches(weight: Floats, length: int) -> Iterator[Any]:
    """Indices of the rows that have a weight, at most so many at a time."""
    rows = np.flatnonzero(weight)
    everywhere = len(rows) == len(weight)
    for first in range(0, len(rows), length):
        last = min(first + length, len(rows))
        yield slice(first, last) if everywhere else rows[first:last]


def meetings(candidates: NDArray[np.int64], rows: NDArray[np.int64]) -> Pairs:
    """Places of candidates among some ascending rows, and which candidates these are; the places ascend if the
    candidates do.
    """
    places = np.minimum(np.searchsorted(rows, candidates), len(rows) - 1)
    met = np.flatnonzero(rows[places] == candidates)
    return places[met], met


class RoundSums:
    """What an evaluation of a round of batches adds up, a stretch of rows after another."""

    def __init__(
        self, batches: Sequence[BatchKernel], sides: Mapping[Precision, RowSide], n_rows: int, rows: Rows
    ) -> None:
        self._sides = sides
        self._rows = rows
        shapes = [batch.shape for batch in batches]
        of_rows = RowShape(
            rows.previous.shape[-1],
            rows.features.shape[1] if rows.standardized is None else rows.standardized.shape[1],
            {dtype: len(side.active) for dtype, side in sides.items()},
        )
        lengths = likelihood_lengths(n_rows, of_rows, shapes)
        self._length = lengths.tile
        self.stretch = lengths.stretch
        self._memory = likelihood_memory(lengths, of_rows, shapes)
        own: Sequence[Pairs | None] = [None] * len(batches) if rows.itself is None else rows.itself
        self._parts = [
            BatchSums(batch, lengths.tile, memory, itself)
            for batch, memory, itself in zip(batches, self._memory.batches, own, strict=True)
        ]

    def take(self, index: Any) -> Floats:
        """The unscaled probabilities of the earlier rounds of a stretch of the rows (K, S), to which those of this one
        are added.
        """
        rows, self._taken = self._rows, index.stop - index.start if isinstance(index, slice) else len(index)
        unscaled = self._memory.unscaled[:, : self._taken]
        unscaled[...] = rows.previous[index].T if rows.previous.ndim == 2 else rows.previous[:, None]
        known = {dtype: self._standardized(dtype, index) for dtype in self._sides}
        self._low = dict.fromkeys(known, False)
        for part in self._parts:
            self._low[part.dtype] |= part.meet(self._columns_of(part, known[part.dtype]), index)
        return unscaled

    def _standardized(self, dtype: Precision, index: Any) -> Array:
        """All features that batches of a precision look at."""
        side, rows, out = self._sides[dtype], self._rows, self._memory.rows[dtype][: self._taken]
        if rows.standardized is None or rows.standardized.dtype != dtype:
            return side.standardize(rows.features[index], out)
        known: Array = rows.standardized[index]
        # Other modes than "raise" write to `out` without a copy between.
        return known if len(side.active) == known.shape[1] else known.take(side.active, axis=1, out=out, mode="clip")

    def _columns_of(self, part: BatchSums, known: Array) -> Array:
        """The features that a batch looks at."""
        active, of_part = self._sides[part.dtype].active, part.batch.side.active
        if len(active) == len(of_part):
            return known
        out = matrix_in(self._memory.scratch, len(known), len(of_part), part.dtype)
        return known.take(np.searchsorted(active, of_part), axis=1, out=out, mode="clip")

    def tiles(self) -> Iterator[slice]:
        """Of the stretch that was taken last."""
        for first in range(0, self._taken, self._length):
            yield slice(first, min(first + self._length, self._taken))

    def add_class_sums(self, tile: slice, unscaled: Floats, alone: bool = False) -> None:
        """Those of a tile; `alone`, without what gradients need."""
        used = dict.fromkeys(self._sides, 0)
        values: list[Array] = []
        length = tile.stop - tile.start
        for part in self._parts:
            columns = part.batch.alone_columns if alone else part.batch.side.operand.shape[1]
            first = used[part.dtype]
            used[part.dtype] += length * columns
            values.append(self._memory.values[part.dtype][first : used[part.dtype]].reshape(length, columns))
            part.exponents(tile, values[-1])
        for dtype, count in used.items():
            exponentiate(self._memory.values[dtype][:count], dtype, self._low[dtype])
        found = unscaled[:, tile]
        for part, own in zip(self._parts, values, strict=True):
            part.leave_out(tile, own)
            found[part.batch.candidates.label_places] += part.class_sums_alone(own) if alone else part.class_sums(own)

    def add_gradients(self, tile: slice, slopes: Floats) -> None:
        """Those of the tile whose class sums were added last, given the slopes `c` (K, T)."""
        size = _size(slopes)
        scaled = slopes / size
        in_precision = {dtype: scaled.astype(dtype, copy=False) for dtype in self._sides}
        for part in self._parts:
            part.add_gradients(tile, slopes, in_precision[part.dtype], size, self._memory.weighted)

    def end_stretch(self) -> None:
        """Add what is left to be done for the stretch that was taken last."""
        for part in self._parts:
            part.end_stretch(self._taken, self._memory.scratch)

    def gradients(self) -> tuple[Floats, Floats]:
        """By the feature weights of every batch (B, all features) and by candidate weights (J,)."""
        batches = [part.batch for part in self._parts]
        by_feature = np.zeros((max(batch.batches.stop for batch in batches), batches[0].feature_weight.shape[1]))
        by_candidate = np.zeros(max(batch.places.stop for batch in batches))
        for part, batch in zip(self._parts, batches, strict=True):
            by_feature[batch.batches] += part.by_feature()
            by_candidate[batch.places] += part.by_candidate()
        return by_feature, by_candidate


class BatchSums:
    """What an evaluation adds up for a batch, or for several that are met together: of a stretch of rows the left
    operands, of each of its tiles the class sums, then, given their slopes, the gradients.
    """

    def __init__(self, batch: BatchKernel, tile: int, memory: BatchMemory, itself: Pairs | None) -> None:
        self.batch = batch
        self._memory = memory
        self._itself = itself
        active, idle = batch.arranged.active, batch.arranged.idle
        self._strips = strips(tile, active.width * batch.sum_operand.shape[2])
        self._active_gradient = np.zeros((active.n_panels, active.width))
        self._idle_gradient = np.zeros((idle.n_panels, idle.width))
        self._n_features = len(batch.side.active)
        # Of `x = r u z` for the root `r` of the kernel's exponential, by batch.
        self._row_square = np.zeros((len(batch.arranged.batches), self._n_features))  # sum_n a_n x_nd^2
        self._cross = np.zeros_like(self._row_square)  # sum_n x_nd (A s)_nd

    @property
    def dtype(self) -> Precision:
        return self.batch.side.dtype

    def meet(self, standardized: Array, index: Any) -> bool:
        """A stretch of rows of these numbers, ascending; whether an exponent may be low."""
        self._own = None
        if self._itself is not None and len(self._itself[0]):
            rows, candidates = self._itself
            if isinstance(index, slice):
                here = slice(*np.searchsorted(rows, (index.start, index.stop)))
                places, met = rows[here] - index.start, candidates[here]
            else:
                places, met = meetings(rows, index)
                met = candidates[met]
            columns = self.batch.arranged.column_of[met]
            self._own = places[columns >= 0], columns[columns >= 0]
        return self.batch.side.left_operand(standardized, self._memory.left[: len(standardized)])

    def exponents(self, tile: slice, values: Array) -> None:
        """Of some rows of the stretch and the first columns, in `values`."""
        product(self._memory.left[tile], self.batch.side.operand[:, : values.shape[1]], out=values)

    def leave_out(self, tile: slice, values: Array) -> None:
        """Rows do not look at themselves."""
        if self._own is not None:
            rows, columns = self._own
            here = slice(*np.searchsorted(rows, (tile.start, tile.stop)))
            rows, columns = rows[here], columns[here]
            if values.shape[1] < self.batch.side.operand.shape[1]:
                rows, columns = rows[columns < values.shape[1]], columns[columns < values.shape[1]]
            values[rows - tile.start, columns] = 0

    def class_sums(self, values: Array) -> Array:
        """`u` of the rows of a tile, for the classes there are (k, T), and what their gradients need."""
        self._values = values
        active = self.batch.arranged.active
        self._panels = active.apart(values[:, : active.n_columns])
        self._sums = self._memory.sums[:, : len(values)]
        for strip in self._strips:
            np.matmul(self._panels[:, strip], self.batch.sum_operand, out=self._sums[:, strip])
        return self.batch.arranged.by_class(self._sums[:, :, self._n_features])

    def class_sums_alone(self, values: Array) -> Array:
        """`u` of the rows of a tile, for the classes there are (k, T)."""
        active = self.batch.arranged.active
        panels = active.apart(values[:, : active.n_columns])
        return self.batch.arranged.by_class(product(panels, self.batch.weights)[:, :, 0])

    def add_gradients(self, tile: slice, slopes: Floats, scaled: Array, size: float, weighted: Array) -> None:
        """Add the part of a tile, given the slopes `c` of all classes (K, T), and those `scaled` by `1 / size` in the
        precision of the batch.
        """
        places, arranged = self.batch.candidates.label_places, self.batch.arranged
        active, idle, by_class = arranged.active, arranged.idle, scaled[places]
        slopes, by_panel = arranged.by_panel(slopes[places]), arranged.by_panel(by_class)
        self._active_gradient += size * np.matmul(by_panel[:, None, :], self._panels)[:, 0].astype(np.float64)
        if idle.n_panels:
            idle_panels = idle.apart(self._values[:, active.n_columns :][:, : idle.n_columns])
            of_idle = np.matmul(by_class[arranged.class_of_idle][:, None, :], idle_panels)[:, 0]
            self._idle_gradient += size * of_idle.astype(np.float64)
        pulled = matrix_in(weighted, len(self._values), self._n_features, self.dtype)
        left = self._memory.left[tile, : self._n_features]
        for number, own in enumerate(arranged.panels_of_batch):
            sums = self._sums[own]
            np.einsum("cn,cn->n", slopes[own], sums[:, :, self._n_features], out=self._memory.pull[number, tile])
            np.einsum("cn,cnd->nd", by_panel[own], sums[:, :, : self._n_features], out=pulled)
            self._cross[number] += size * _summed_products(left, pulled)

    def end_stretch(self, n_rows: int, scratch: Array) -> None:
        """Add what is left to be done for so many rows."""
        left, pull = self._memory.left[:n_rows, : self._n_features], self._memory.pull[:, :n_rows]
        squares = np.square(left, out=matrix_in(scratch, n_rows, self._n_features, self.dtype))
        size = _size(pull)
        self._row_square += size * _weighted_sum((pull / size).astype(self.dtype), squares)

    def by_candidate(self) -> Floats:
        """(J,)"""
        active, idle = self.batch.arranged.active, self.batch.arranged.idle
        gradient = np.zeros(len(self.batch.candidates.rows))
        gradient[active.members] = self._active_gradient.ravel()[active.used]
        gradient[idle.members] = self._idle_gradient.ravel()[idle.used]
        return gradient

    def by_feature(self) -> Floats:
        """By batch, for all features.

        `d/dv_d = -v_d sum_nj A_nj (z_nd - s_jd)^2` with `A_nj = c_nk w_j G_nj`, expanded into its three sums.
        """
        batch, features, factor = self.batch, self.batch.side.active, self.batch.side.weight.astype(np.float64)
        factor[factor == 0] = np.inf  # in float32; the gradient is next to nothing, too
        sums = (self._row_square / factor - 2 * self._cross) / factor
        weight, width = batch.column_weight * self._active_gradient.ravel(), batch.arranged.active.width
        for number, own in enumerate(batch.arranged.panels_of_batch):
            columns = slice(own.start * width, own.stop * width)
            sums[number] += weight[columns] @ batch.arranged.squares[columns]
        gradient = np.zeros_like(batch.feature_weight)
        here = np.ix_(batch.arranged.batches, features)
        gradient[here] = -batch.feature_weight[here] * sums
        return gradient


def _size(numbers: Floats) -> float:
    """What makes them of the order of 1: those of the order of 1 / N make denormal numbers of kernel values next to 0,
    and products take twenty times as long. A power of 2 changes no other bit.
    """
    return float(2.0 ** np.frexp(np.abs(numbers).max(initial=0.0))[1])


def _in_parts(rows: Array) -> Array:
    """So many rows each (parts, rows, ...), without those that are left over."""
    count = len(rows) // SUMMED_ROWS
    parts: Array = rows[: count * SUMMED_ROWS].reshape(count, SUMMED_ROWS, *rows.shape[1:])
    return parts


def _summed_products(left: Array, right: Array) -> Floats:
    """`sum_n left_nd right_nd`, of a few rows at a time in their precision, and of these sums in float64."""
    over = len(left) - len(left) % SUMMED_ROWS
    found: Floats = np.einsum("knd,knd->kd", _in_parts(left), _in_parts(right)).sum(axis=0, dtype=np.float64)
    return found + np.einsum("nd,nd->d", left[over:], right[over:]) if over < len(left) else found


def _weighted_sum(weight: Array, rows: Array) -> Floats:
    """`sum_n weight_bn rows_nd`, likewise (B, D)."""
    over = len(rows) - len(rows) % SUMMED_ROWS
    parts = weight[:, :over].reshape(len(weight), -1, SUMMED_ROWS).transpose(1, 0, 2)
    found: Floats = product(parts, _in_parts(rows)).sum(axis=0, dtype=np.float64)
    return found + weight[:, over:] @ rows[over:] if over < len(rows) else found
