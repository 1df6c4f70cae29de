"""The likelihood of a round of batches: its value and gradient, tile by tile.

The batches of a round are trained together, each with feature weights `v_b` and candidates `J_b` of its own:

    q_nk = prev_nk + sum_b u_bnk,    u_bnk = sum_{j in J_b, y_j = k} w_bj K_{v_b}(x_n, s_j)
    c_nk = r_n (1 / Q_n - [k = y_n] / q_ny),    Q_n = sum_k q_nk
    dl/dw_bj = sum_n c_{n y_j} K_{v_b}(x_n, s_j)
    dl/dv_bd = - v_bd sum_n sum_{j in J_b} c_{n y_j} w_bj K_{v_b}(x_n, s_j) (x_nd - s_jd)^2

Given `c` the batches do not know of each other: a tile takes the kernels and class sums of all, then `c`, then the
gradients. Letters are those of `kernel`; sums over rows are float64 whatever the precision.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protodask.prototypes.kernel import (
    KernelSide,
    RowSide,
    Standardization,
    exponentiate,
    kernel_side,
    product,
    row_side,
)
from protodask.prototypes.panels import Panels, arrange
from protodask.prototypes.tiles import (
    Array,
    BatchMemory,
    Floats,
    LikelihoodShape,
    Precision,
    RowShape,
    alias_padding,
    likelihood_lengths,
    likelihood_memory,
    matrix_in,
    strips,
    sums_width,
)

Pairs = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Rows of a tile, and the candidates of a batch that they are."""


@dataclass(frozen=True)
class Candidates:
    """Candidates of a batch or a round: standardised features (J, all features), classes, global row numbers.

    Those of a batch ascend by class; a round has those of one batch after those of another.
    """

    features: Floats
    classes: NDArray[np.int64]
    rows: NDArray[np.int64]

    @cached_property
    def rows_sorted(self) -> NDArray[np.int64]:
        return np.sort(self.rows)

    def part(self, places: slice | NDArray[np.bool_]) -> Candidates:
        """Those at some places."""
        return Candidates(self.features[places], self.classes[places], self.rows[places])


@dataclass(frozen=True)
class Likelihood:
    """Partial of the likelihood: value, gradient by the feature weights of every batch (B, all features) and by
    candidate weights (J,).
    """

    value: float
    by_feature: Floats
    by_candidate: Floats
    held_out: float = 0.0
    """`- sum_n h_n log(q_y / Q)` over the rows that are held out, of weights `h_n`."""


def merge_likelihoods(left: Likelihood, right: Likelihood) -> Likelihood:
    """Both are sums over rows."""
    return Likelihood(
        left.value + right.value,
        left.by_feature + right.by_feature,
        left.by_candidate + right.by_candidate,
        left.held_out + right.held_out,
    )


@dataclass(frozen=True)
class BatchKernel:
    """One batch of a round at one `(v, w)`, ready to meet rows."""

    candidates: Candidates
    feature_weight: Floats
    candidate_weight: Floats
    standardization: Standardization
    precision: Precision
    """At least this one: see `FLOAT32_REACH`."""
    columns: NDArray[np.int64] | None = None
    """Of the rows, that the features are in; None where they are the columns."""
    asleep: NDArray[np.bool_] | None = None
    """Candidates of weight zero whose gradient nobody asks for (J,): it is said to be 0."""

    @property
    def row_columns(self) -> NDArray[np.int64]:
        """Columns of the rows that the features are in."""
        return np.arange(len(self.feature_weight)) if self.columns is None else self.columns

    @cached_property
    def classes(self) -> NDArray[np.int64]:
        """Those of its candidates, ascending (k,)."""
        return np.unique(self.candidates.classes)

    @cached_property
    def places(self) -> slice | NDArray[np.int64]:
        """Where these are among all classes; a slice where they follow one another, which copies nothing."""
        if len(self.classes) == 0 or np.ptp(self.classes) + 1 > len(self.classes):
            return self.classes
        return slice(int(self.classes[0]), int(self.classes[-1]) + 1)

    @cached_property
    def active(self) -> Panels:
        """Candidates with positive weight: they need their class sums."""
        return self._arrange(self.candidate_weight > 0)

    @cached_property
    def idle(self) -> Panels:
        """Candidates of weight zero: they need their gradient alone."""
        idle = self.candidate_weight == 0
        return self._arrange(idle if self.asleep is None else idle & ~self.asleep)

    def _arrange(self, chosen: NDArray[np.bool_]) -> Panels:
        places = np.searchsorted(self.classes, self.candidates.classes)
        return arrange(np.flatnonzero(chosen), places, self.candidates.features.shape[1])

    @cached_property
    def _looked_at(self) -> Floats:
        """The candidates' features of positive weight (J, D)."""
        features: Floats = self.candidates.features[:, self.feature_weight > 0]
        return features

    @cached_property
    def side(self) -> KernelSide:
        """The candidates' side of the kernel, the active ones first, and columns that nobody looks at."""
        features = self._looked_at
        padding = alias_padding(self.active.n_columns + self.idle.n_columns, self.precision)
        nobody = np.zeros((padding, features.shape[1]))
        columns = np.concatenate([self.active.spread(features), self.idle.spread(features), nobody])
        return kernel_side(columns, self.feature_weight, self.standardization, self.precision, self.row_columns)

    @cached_property
    def sum_operand(self) -> Array:
        """`[w s | w]`, filled up with zeros to a multiple of `LANES` columns (C, width, W)."""
        features, panels = self._looked_at, self.active
        n_features, weight = features.shape[1], panels.spread(self.candidate_weight)
        width = sums_width(n_features)
        operand = np.zeros((panels.n_columns, width), dtype=self.side.dtype)
        operand[:, :n_features] = panels.spread(features) * weight[:, None]
        operand[:, n_features] = weight
        return operand.reshape(panels.n_panels, panels.width, width)

    @cached_property
    def column_of(self) -> NDArray[np.int64]:
        """Columns of the kernel that the candidates are in, -1 of those that are in none (J,)."""
        found = np.full(len(self.candidate_weight), -1, dtype=np.int64)
        for panels, first in ((self.active, 0), (self.idle, self.active.n_columns)):
            found[panels.column[panels.used]] = first + np.flatnonzero(panels.used)
        return found

    @cached_property
    def weights(self) -> Array:
        """`w` (C, width, 1)."""
        column = self._looked_at.shape[1]
        return np.ascontiguousarray(self.sum_operand[:, :, column : column + 1])

    @cached_property
    def squared_features(self) -> Floats:
        """`s^2` (J, D)."""
        squared: Floats = np.square(self._looked_at)
        return squared

    @cached_property
    def class_of_panel(self) -> Floats | None:
        """1 where a panel belongs to a class (k, C); None where each class has one."""
        of_class = np.eye(len(self.classes))[:, self.active.panel_class]
        return None if np.array_equal(self.active.panel_class, np.arange(len(self.classes))) else of_class

    @cached_property
    def alone_columns(self) -> int:
        """Columns of the kernel that class sums alone need, and what keeps its rows out of the same cache sets."""
        columns = self.active.n_columns + alias_padding(self.active.n_columns, self.side.dtype)
        return min(columns, int(self.side.operand.shape[1]))

    @property
    def shape(self) -> LikelihoodShape:
        """What its memory in a tile depends on."""
        return LikelihoodShape(
            n_features=len(self.side.active),
            columns=self.side.operand.shape[1],
            n_panels=self.active.n_panels,
            sums_width=self.sum_operand.shape[2],
            dtype=self.side.dtype,
        )

    def prepare(self) -> None:
        """Derive at once what all blocks share, rather than in each of several threads at the first block."""
        for shared in (self.side, self.sum_operand, self.weights, self.squared_features, self.class_of_panel):
            del shared


class _BatchSums:
    """What an evaluation adds up for a batch: of a stretch of rows the left operands, of each of its tiles the class
    sums, then, given their slopes, the gradients.
    """

    def __init__(self, batch: BatchKernel, tile: int, memory: BatchMemory) -> None:
        self.batch = batch
        self._memory = memory
        active, idle = batch.active, batch.idle
        self._strips = strips(tile, active.width * batch.sum_operand.shape[2])
        self._active_gradient = np.zeros((active.n_panels, active.width))
        self._idle_gradient = np.zeros((idle.n_panels, idle.width))
        self._n_features = len(batch.side.active)
        # Of `x = r v z` for the root `r` of the kernel's exponential.
        self._row_square = np.zeros(self._n_features)  # sum_n a_n x_nd^2
        self._cross = np.zeros(self._n_features)  # sum_n x_nd (A s)_nd

    @property
    def dtype(self) -> Precision:
        return self.batch.side.dtype

    def take(self, standardized: Array, own: Pairs | None) -> bool:
        """A stretch of rows; whether an exponent may be low.

        `own` are rows that are candidates, which do not look at themselves.
        """
        self._own = None
        if own is not None and len(own[0]):
            order = np.argsort(own[0])
            self._own = own[0][order], self.batch.column_of[own[1][order]]
        return self.batch.side.left_operand(standardized, self._memory.left[: len(standardized)])

    def exponents(self, tile: slice, values: Array) -> None:
        """Of some rows of the stretch and the first columns, in `values`."""
        product(self._memory.left[tile], self.batch.side.operand[:, : values.shape[1]], out=values)

    def leave_out(self, tile: slice, values: Array) -> None:
        """Rows do not look at themselves."""
        if self._own is not None:
            rows, columns = self._own
            here = slice(*np.searchsorted(rows, (tile.start, tile.stop)))
            known = (columns[here] >= 0) & (columns[here] < values.shape[1])
            values[rows[here][known] - tile.start, columns[here][known]] = 0

    def class_sums(self, tile: slice, values: Array) -> Array:
        """`u_b` of some rows of the stretch, for the classes of the batch (k, T), and what their gradients need."""
        batch, active = self.batch, self.batch.active
        self._values = values
        self._panels = _by_panel(values, active, 0)
        self._sums = self._memory.sums[:, : len(values)]
        for strip in self._strips:
            np.matmul(self._panels[:, strip], batch.sum_operand, out=self._sums[:, strip])
        mass = self._sums[:, :, self._n_features]
        self._mass: Array = mass if batch.class_of_panel is None else batch.class_of_panel @ mass
        return self._mass

    def class_sums_alone(self, tile: slice, values: Array) -> Array:
        """`u_b` of some rows of the stretch, for the classes of the batch (k, T)."""
        batch = self.batch
        mass = product(_by_panel(values, batch.active, 0), batch.weights)[:, :, 0]
        return mass if batch.class_of_panel is None else batch.class_of_panel @ mass

    def add_gradients(self, tile: slice, slopes: Floats, scaled: Array, size: float, weighted: Floats) -> None:
        """Add the part of some rows of the stretch, given the slopes `c` of all classes (K, T), and those `scaled` by
        `1 / size` in the precision of the batch.
        """
        batch, active, idle = self.batch, self.batch.active, self.batch.idle
        by_class = scaled[batch.places]
        by_panel = by_class if batch.class_of_panel is None else by_class[active.panel_class]
        self._active_gradient += size * np.matmul(by_panel[:, None, :], self._panels)[:, 0].astype(np.float64)
        if idle.n_panels:
            idle_panels = _by_panel(self._values, idle, active.n_columns)
            of_idle = np.matmul(by_class[idle.panel_class][:, None, :], idle_panels)[:, 0]
            self._idle_gradient += size * of_idle.astype(np.float64)
        np.einsum("kn,kn->n", slopes[batch.places], self._mass, out=self._memory.pull[tile])
        pulled = matrix_in(weighted, len(self._values), self._n_features, self.dtype)
        np.einsum("cn,cnd->nd", by_panel, self._sums[:, :, : self._n_features], out=pulled)
        left = self._memory.left[tile, : self._n_features]
        self._cross += size * _summed_products(left, pulled)

    def end_stretch(self, n_rows: int, scratch: Floats) -> None:
        """Add what is left to be done for so many rows."""
        left = self._memory.left[:n_rows, : self._n_features]
        squares = np.square(left, out=matrix_in(scratch, n_rows, self._n_features, self.dtype))
        self._row_square += _weighted_sum(self._memory.pull[:n_rows].astype(self.dtype), squares)

    def by_candidate(self) -> Floats:
        """(J,)"""
        active, idle = self.batch.active, self.batch.idle
        gradient = np.zeros(len(self.batch.candidate_weight))
        gradient[active.column[active.used]] = self._active_gradient.ravel()[active.used]
        gradient[idle.column[idle.used]] = self._idle_gradient.ravel()[idle.used]
        return gradient

    def by_feature(self, by_candidate: Floats) -> Floats:
        """For all features; `by_candidate` is the gradient by candidate weights.

        `d/dv_d = -v_d sum_nj A_nj (z_nd - s_jd)^2` with `A_nj = c_nk w_j G_nj`, expanded into its three sums.
        """
        batch, features, factor = self.batch, self.batch.side.active, self.batch.side.weight.astype(np.float64)
        candidate_square = (batch.candidate_weight * by_candidate) @ batch.squared_features
        gradient = np.zeros(len(batch.feature_weight))
        sums = self._row_square / factor**2 - 2 * self._cross / factor + candidate_square
        gradient[features] = -batch.feature_weight[features] * sums
        return gradient


SUMMED_ROWS = 32
"""Rows whose products are summed in float32: with all of them the error of the gradient by feature weights, in which
much cancels, is 30 times as large, and fewer take longer."""


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
    """`sum_n weight_n rows_nd`, likewise."""
    over = len(rows) - len(rows) % SUMMED_ROWS
    found: Floats = product(_in_parts(weight)[:, None, :], _in_parts(rows)).sum(axis=(0, 1), dtype=np.float64)
    return found + weight[over:] @ rows[over:] if over < len(rows) else found


def _by_panel(values: Array, panels: Panels, first: int) -> Array:
    """Kernel values (T, columns) from a first column on as (C, T, width)."""
    columns = values[:, first : first + panels.n_columns]
    return columns.reshape(len(values), panels.n_panels, panels.width).transpose(1, 0, 2)


@dataclass(frozen=True)
class LikelihoodKernel:
    """Value and gradient of `- sum_n r_n log(q_y / Q)` for a round of batches, for many blocks on any threads.

    All batches have the same standardisation.
    """

    batches: tuple[BatchKernel, ...]

    @cached_property
    def row_sides(self) -> dict[Precision, RowSide]:
        """Of all features that any batch of a precision looks at."""
        first, sides = self.batches[0], [batch.side for batch in self.batches]
        return {
            dtype: row_side(
                np.unique(np.concatenate([side.active for side in sides if side.dtype == dtype])),
                first.standardization,
                first.row_columns,
                dtype,
            )
            for dtype in {side.dtype for side in sides}
        }

    def prepare(self) -> None:
        """Derive at once what all blocks share."""
        for batch in self.batches:
            batch.prepare()
        shared = self.row_sides
        del shared

    def evaluate(
        self,
        features: Array,
        target: NDArray[np.integer],
        weight: Floats,
        previous: Floats,
        held_out: Floats | None = None,
        standardized: Array | None = None,
        itself: NDArray[np.int64] | None = None,
    ) -> Likelihood:
        """Sum over the rows given: `weight` are the `r_n`, `held_out` the `h_n`, `previous` the unscaled probabilities
        of the earlier rounds, (rows, K) or (K,), `standardized` the features in standard units, where they are known,
        and `itself` says of each candidate which of the rows it is, -1 if none (J,): no row looks at itself then.

        Rows where `r_n` is 0 have no part in the gradient and are left out; of those that are held out the class sums
        are taken alone, by candidates with positive weight.
        """
        counted = max(int(np.count_nonzero(rows)) for rows in (weight, held_out) if rows is not None)
        rows = _Rows(features, standardized, previous, itself)
        sums = _Sums(self, counted, rows)
        value, held_out_value = 0.0, 0.0
        for index in _stretches(weight, sums.lengths.stretch):
            unscaled = sums.take(rows, index)
            own, share = target[index], weight[index]
            for tile in sums.tiles(len(own)):
                sums.add_class_sums(tile, unscaled)
                loss, slopes = likelihood_slopes(unscaled[:, tile], own[tile], share[tile])
                value += loss
                sums.add_gradients(tile, slopes)
            sums.end_stretch(len(own))
        if held_out is not None:
            for index in _stretches(held_out, sums.lengths.stretch):
                unscaled = sums.take(rows, index)
                for tile in sums.tiles(unscaled.shape[1]):
                    sums.add_class_sums(tile, unscaled, alone=True)
                held_out_value += likelihood_value(unscaled, target[index], held_out[index])
        return Likelihood(value, *_gradients(sums.parts), held_out_value)


@dataclass(frozen=True)
class _Rows:
    """The rows of a block that an evaluation may take, see `LikelihoodKernel.evaluate`."""

    features: Array
    standardized: Array | None
    previous: Floats
    itself: NDArray[np.int64] | None


class _Sums:
    """What an evaluation of a round of batches adds up, a stretch of rows after another."""

    def __init__(self, kernel: LikelihoodKernel, n_rows: int, rows: _Rows) -> None:
        self._sides = kernel.row_sides
        of_rows = RowShape(
            rows.previous.shape[-1],
            rows.features.shape[1] if rows.standardized is None else rows.standardized.shape[1],
            {dtype: len(side.active) for dtype, side in self._sides.items()},
        )
        shapes = [batch.shape for batch in kernel.batches]
        self.lengths = likelihood_lengths(n_rows, of_rows, shapes)
        self._memory = likelihood_memory(self.lengths, of_rows, shapes)
        self.parts = [
            _BatchSums(batch, self.lengths.tile, memory)
            for batch, memory in zip(kernel.batches, self._memory.batches, strict=True)
        ]
        self._ends = np.cumsum([len(batch.candidate_weight) for batch in kernel.batches])[:-1]

    def take(self, rows: _Rows, index: Any) -> Floats:
        """The unscaled probabilities of the earlier rounds of a stretch of the rows (K, S), to which those of this one
        are added.
        """
        previous = rows.previous[index].T if rows.previous.ndim == 2 else rows.previous[:, None]
        numbers = np.arange(index.start, index.stop) if isinstance(index, slice) else index
        unscaled = self._memory.unscaled[:, : len(numbers)]
        unscaled[...] = previous
        known = {dtype: self._standardized(dtype, rows, index, len(numbers)) for dtype in self._sides}
        own = [None] * len(self.parts) if rows.itself is None else np.split(rows.itself, self._ends)
        self._low = dict.fromkeys(known, False)
        for part, candidates in zip(self.parts, own, strict=True):
            pairs = None if candidates is None else meetings(candidates, numbers)
            chosen = self._looked_at(part, known[part.dtype])
            self._low[part.dtype] |= part.take(chosen, pairs)
        return unscaled

    def _standardized(self, dtype: Precision, rows: _Rows, index: Any, count: int) -> Array:
        """All features that batches of a precision look at."""
        side, out = self._sides[dtype], self._memory.rows[dtype][:count]
        if rows.standardized is None or rows.standardized.dtype != dtype:
            return side.standardize(rows.features[index], out)
        known: Array = rows.standardized[index]
        # Other modes than "raise" write to `out` without a copy between.
        return known if len(side.active) == known.shape[1] else known.take(side.active, axis=1, out=out, mode="clip")

    def _looked_at(self, part: _BatchSums, known: Array) -> Array:
        """The features that a batch looks at."""
        active, of_part = self._sides[part.dtype].active, part.batch.side.active
        if len(active) == len(of_part):
            return known
        out = matrix_in(self._memory.scratch, len(known), len(of_part), part.dtype)
        return known.take(np.searchsorted(active, of_part), axis=1, out=out, mode="clip")

    def tiles(self, n_rows: int) -> Iterator[slice]:
        """Of a stretch of so many rows."""
        for first in range(0, n_rows, self.lengths.tile):
            yield slice(first, min(first + self.lengths.tile, n_rows))

    def add_class_sums(self, tile: slice, unscaled: Floats, alone: bool = False) -> None:
        """Those of a tile; `alone`, without what gradients need."""
        used = dict.fromkeys(self._sides, 0)
        values: list[Array] = []
        length = tile.stop - tile.start
        for part in self.parts:
            columns = part.batch.alone_columns if alone else part.batch.side.operand.shape[1]
            first = used[part.dtype]
            used[part.dtype] += length * columns
            values.append(self._memory.values[part.dtype][first : used[part.dtype]].reshape(length, columns))
            part.exponents(tile, values[-1])
        for dtype, count in used.items():
            exponentiate(self._memory.values[dtype][:count], dtype, self._low[dtype])
        found = unscaled[:, tile]
        for part, own in zip(self.parts, values, strict=True):
            part.leave_out(tile, own)
            found[part.batch.places] += part.class_sums_alone(tile, own) if alone else part.class_sums(tile, own)

    def add_gradients(self, tile: slice, slopes: Floats) -> None:
        """Those of the tile whose class sums were added last, given the slopes `c` (K, T)."""
        # Of the order of 1: slopes of the order of 1 / N make denormal numbers of kernel values next to 0, and the
        # products take twenty times as long. A power of 2 changes no other bit.
        size = 2.0 ** np.frexp(np.abs(slopes).max(initial=0.0))[1]
        scaled = slopes / size
        in_precision = {dtype: scaled.astype(dtype, copy=False) for dtype in self._sides}
        for part in self.parts:
            part.add_gradients(tile, slopes, in_precision[part.dtype], size, self._memory.weighted)

    def end_stretch(self, n_rows: int) -> None:
        for part in self.parts:
            part.end_stretch(n_rows, self._memory.scratch)


def _stretches(weight: Floats, length: int) -> Iterator[Any]:
    """Indices of the rows that have a weight, at most so many at a time."""
    rows = np.flatnonzero(weight)
    everywhere = len(rows) == len(weight)
    for first in range(0, len(rows), length):
        last = min(first + length, len(rows))
        yield slice(first, last) if everywhere else rows[first:last]


def meetings(candidates: NDArray[np.int64], rows: NDArray[np.int64]) -> Pairs:
    """Places of candidates among some ascending rows, and which candidates these are."""
    places = np.minimum(np.searchsorted(rows, candidates), len(rows) - 1)
    met = np.flatnonzero(rows[places] == candidates)
    return places[met], met


def _gradients(parts: Sequence[_BatchSums]) -> tuple[Floats, Floats]:
    by_candidate = [part.by_candidate() for part in parts]
    by_feature = [part.by_feature(gradient) for part, gradient in zip(parts, by_candidate, strict=True)]
    return np.stack(by_feature), np.concatenate(by_candidate)


def likelihood_value(unscaled: Floats, target: NDArray[np.integer], weight: Floats) -> float:
    """`- sum_n h_n log(q_y / Q)` for `q` (K, T)."""
    share = unscaled[target, np.arange(len(target))] / unscaled.sum(axis=0)
    return -float(weight @ np.log(share))


def likelihood_slopes(unscaled: Floats, target: NDArray[np.integer], weight: Floats) -> tuple[float, Floats]:
    """Value `- sum_n r_n log(q_y / Q)` and its derivative `r_n (1 / Q_n - [k = y_n] / q_ny)` by `q_kn`, (K, T)."""
    total = unscaled.sum(axis=0)
    index = np.arange(len(target))
    own = unscaled[target, index]
    share = own / total
    value = -float(weight @ np.log(share))
    slope = np.empty_like(unscaled)
    slope[...] = weight / total
    slope[target, index] = weight * (share - 1) / own
    return value, slope
