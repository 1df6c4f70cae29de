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

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protodask.prototypes.kernel import KernelSide, RowSide, Standardization, kernel_side, product, row_side
from protodask.prototypes.panels import Panels, arrange
from protodask.prototypes.tiles import (
    Array,
    Floats,
    LikelihoodShape,
    Precision,
    Workspace,
    likelihood_tile_rows,
    likelihood_workspaces,
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
        """The candidates' side of the kernel, the active ones first."""
        features = self._looked_at
        columns = np.concatenate([self.active.spread(features), self.idle.spread(features)])
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
    def class_of_panel(self) -> Floats:
        """1 where a panel belongs to a class (k, C)."""
        return np.eye(len(self.classes))[:, self.active.panel_class]

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
    """What an evaluation adds up for a batch: of each tile the class sums, then, given their slopes, the gradients."""

    def __init__(self, batch: BatchKernel, length: int, work: Workspace) -> None:
        self._batch = batch
        self._work = work
        active, idle = batch.active, batch.idle
        self._strips = strips(length, active.width * batch.sum_operand.shape[2])
        self._active_gradient = np.zeros((active.n_panels, active.width))
        self._idle_gradient = np.zeros((idle.n_panels, idle.width))
        n_features = len(batch.side.active)
        self._row_square = np.zeros(n_features)  # sum_n a_n z_nd^2
        self._cross = np.zeros(n_features)  # sum_n z_nd (A s)_nd

    @property
    def classes(self) -> NDArray[np.int64]:
        return self._batch.classes

    def class_sums(self, features: Array, shared: _SharedRows | None, own: Pairs | None = None) -> Floats:
        """`u_b` of the rows of a tile, for the classes of the batch (k, T), and what their gradients need."""
        batch, active = self._batch, self._batch.active
        n_rows = len(features)
        self._standardized = self._in_standard_units(features, shared)
        self._values = batch.side.kernel(self._standardized, self._work.tile)
        self._leave_out(self._values, own)
        self._panels = _by_panel(self._values[:, : active.n_columns], active)
        self._sums = self._work.sums[:, :n_rows]
        for strip in self._strips:
            np.matmul(self._panels[:, strip], batch.sum_operand, out=self._sums[:, strip])
        self._mass: Floats = batch.class_of_panel @ self._sums[:, :, len(batch.side.active)]
        return self._mass

    def class_sums_alone(self, features: Array, shared: _SharedRows | None, own: Pairs | None = None) -> Floats:
        """`u_b` of the rows of a tile, for the classes of the batch (k, T)."""
        batch, active = self._batch, self._batch.active
        standardized = self._in_standard_units(features, shared)
        values = batch.side.kernel(standardized, self._work.tile, active.n_columns)
        self._leave_out(values, own)
        mass: Floats = batch.class_of_panel @ product(_by_panel(values, active), batch.weights)[:, :, 0]
        return mass

    def _leave_out(self, values: Array, own: Pairs | None) -> None:
        """Rows do not look at themselves."""
        if own is not None:
            rows, candidates = own
            columns = self._batch.column_of[candidates]
            known = (columns >= 0) & (columns < values.shape[1])
            values[rows[known], columns[known]] = 0

    def _in_standard_units(self, features: Array, shared: _SharedRows | None) -> Array:
        side, tile = self._batch.side, self._work.tile
        if shared is None:
            return side.standardize(features, tile)
        return shared.select(side, tile.standardized[: len(features)])

    def add_gradients(self, slopes: Floats) -> None:
        """Add a tile's part of the gradients, given the slopes `c` of all classes (K, T)."""
        batch, active, idle = self._batch, self._batch.active, self._batch.idle
        standardized = self._standardized
        n_rows, n_features = standardized.shape
        slope = slopes[batch.classes]
        # Of the order of 1: slopes of the order of 1 / N make denormal numbers of kernel values next to 0, and the
        # products take twenty times as long. A power of 2 changes no other bit.
        size = 2.0 ** np.frexp(np.abs(slope).max(initial=0.0))[1]
        by_class = (slope / size).astype(batch.side.dtype)
        by_panel = by_class[active.panel_class]
        self._active_gradient += size * np.matmul(by_panel[:, None, :], self._panels)[:, 0].astype(np.float64)
        if idle.n_panels:
            idle_panels = _by_panel(self._values[:, active.n_columns :], idle)
            of_idle = np.matmul(by_class[idle.panel_class][:, None, :], idle_panels)[:, 0]
            self._idle_gradient += size * of_idle.astype(np.float64)
        pull = np.einsum("kn,kn->n", slope, self._mass)
        self._row_square += pull @ np.multiply(standardized, standardized, out=self._work.squares[:n_rows])
        weighted = np.einsum("cn,cnd->nd", by_panel, self._sums[:, :, :n_features], out=self._work.weighted[:n_rows])
        self._cross += size * np.einsum("nd,nd->d", standardized, weighted).astype(np.float64)

    def by_candidate(self) -> Floats:
        """(J,)"""
        active, idle = self._batch.active, self._batch.idle
        gradient = np.zeros(len(self._batch.candidate_weight))
        gradient[active.column[active.used]] = self._active_gradient.ravel()[active.used]
        gradient[idle.column[idle.used]] = self._idle_gradient.ravel()[idle.used]
        return gradient

    def by_feature(self, by_candidate: Floats) -> Floats:
        """For all features; `by_candidate` is the gradient by candidate weights.

        `d/dv_d = -v_d sum_nj A_nj (z_nd - s_jd)^2` with `A_nj = c_nk w_j G_nj`, expanded into its three sums.
        """
        batch, features = self._batch, self._batch.side.active
        candidate_square = (batch.candidate_weight * by_candidate) @ batch.squared_features
        gradient = np.zeros(len(batch.feature_weight))
        gradient[features] = -batch.feature_weight[features] * (self._row_square - 2 * self._cross + candidate_square)
        return gradient


def _by_panel(values: Array, panels: Panels) -> Array:
    """Kernel values (T, columns) as (C, T, width)."""
    return values.reshape(len(values), panels.n_panels, panels.width).transpose(1, 0, 2)


class _SharedRows:
    """Rows of a tile in standardised units, found once for all batches; those that are `known` have all features."""

    def __init__(self, sides: Mapping[Precision, RowSide], features: Array, known: Array | None) -> None:
        self._active = {dtype: side.active for dtype, side in sides.items()}
        self._rows = {dtype: _standardized(side, features, known) for dtype, side in sides.items()}

    def select(self, side: KernelSide, out: Array) -> Array:
        """The features that a batch looks at, in `out` unless those are all."""
        rows, active = self._rows[side.dtype], self._active[side.dtype]
        if len(active) == len(side.active):
            return rows
        # Other modes than "raise" write to `out` without a copy between.
        return np.take(rows, np.searchsorted(active, side.active), axis=1, out=out, mode="clip")


def _standardized(side: RowSide, features: Array, known: Array | None) -> Array:
    if known is None or known.dtype != side.dtype:
        return side.standardize(features, np.empty((len(features), len(side.active)), side.dtype))
    # `take` keeps rows together in memory, as indexing would not.
    return known if len(side.active) == known.shape[1] else np.take(known, side.active, axis=1)


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
        shapes = [batch.shape for batch in self.batches]
        counted = max(int(np.count_nonzero(rows)) for rows in (weight, held_out) if rows is not None)
        length = likelihood_tile_rows(counted, shapes)
        works = likelihood_workspaces(length, shapes)
        parts = [_BatchSums(batch, length, work) for batch, work in zip(self.batches, works, strict=True)]
        ends = np.cumsum([len(batch.candidate_weight) for batch in self.batches])
        own = [None] * len(parts) if itself is None else np.split(itself, ends[:-1])

        def unscaled(rows: Any, class_sums: Callable[..., Floats]) -> Floats:
            found = np.empty((previous.shape[-1], len(target[rows])))
            found[...] = previous[rows].T if previous.ndim == 2 else previous[:, None]
            tile, shared = features[rows], None
            if standardized is not None or len(parts) > 1:
                shared = _SharedRows(self.row_sides, tile, None if standardized is None else standardized[rows])
            numbers = np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
            for part, candidates in zip(parts, own, strict=True):
                pairs = None if candidates is None else meetings(candidates, numbers)
                found[part.classes] += class_sums(part, tile, shared, pairs)
            return found

        value, held_out_value = 0.0, 0.0
        for rows in _tiles(weight, length):
            loss, slopes = likelihood_slopes(unscaled(rows, _BatchSums.class_sums), target[rows], weight[rows])
            value += loss
            for part in parts:
                part.add_gradients(slopes)
        if held_out is not None:
            for rows in _tiles(held_out, length):
                sums = unscaled(rows, _BatchSums.class_sums_alone)
                held_out_value += likelihood_value(sums, target[rows], held_out[rows])
        return Likelihood(value, *_gradients(parts), held_out_value)


def _tiles(weight: Floats, length: int) -> Iterator[Any]:
    """Indices of the rows that have a weight, at most so many at a time."""
    rows = np.flatnonzero(weight)
    everywhere = len(rows) == len(weight)
    for first in range(0, len(rows), length):
        yield slice(first, first + length) if everywhere else rows[first : first + length]


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
