"""Batches of a round at given weights: what their kernel, class sums and gradients need, ready to meet rows.

One batch alone, or several whose features are nearly the same: then one matrix of all features that any of them looks
at takes less time than one for each. Letters are those of `likelihood`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protodask.prototypes.kernel import KernelSide, Standardization, kernel_side
from protodask.prototypes.panels import Panels, arrange
from protodask.prototypes.tiles import Array, Floats, LikelihoodShape, Precision, alias_padding, sums_width

Integers = NDArray[np.int64]
Chosen = NDArray[np.bool_]
Pairs = tuple[Integers, Integers]
"""Places of rows among others, ascending, and which candidates they are."""


@dataclass(frozen=True, eq=False)
class Arranged:
    """Candidates in the columns of the kernel, those with weight before the idle ones: what stays as it is as long as
    the same candidates have weight and the same features are looked at.

    Panels are of one batch and class each, and ascend by them.
    """

    active: Panels
    """Candidates with positive weight: they need their class sums."""
    idle: Panels
    """Candidates of weight zero: they need their gradient alone."""
    features: Floats
    """`s`, of features that are looked at (columns, D)."""
    squares: Floats
    """`s^2` of the active ones."""
    column_of: Integers
    """Columns that the candidates are in, -1 of those that are in none (J,)."""
    batch_of_column: Integers | None
    """(columns,); None of a single batch."""
    panels_of_batch: list[slice]
    """Of the active ones."""
    class_of_panel: Integers
    """Of the active ones, as a place among the classes there are (C,)."""
    class_of_idle: Integers
    """Likewise, of panels of the idle ones."""
    of_class: Floats | None
    """1 where a panel of the active ones belongs to a class (k, C); None where each class has one."""

    def by_panel(self, of_classes: Array) -> Array:
        """What there is of the classes (k, T) for the panels of the active ones (C, T)."""
        return of_classes if self.of_class is None else of_classes[self.class_of_panel]

    def by_class(self, of_panels: Array) -> Array:
        """Sums of panels of the active ones (C, T) as those of the classes (k, T)."""
        found: Array = of_panels if self.of_class is None else self.of_class @ of_panels
        return found


@dataclass(frozen=True, eq=False)
class Candidates:
    """Candidates of a batch or a round: standardised features (J, all features), classes, global row numbers.

    Those of a batch ascend by class; a round has those of one batch after those of another.
    """

    features: Floats
    classes: Integers
    rows: Integers
    sizes: tuple[int, ...] = ()
    """Of the batches, where several are met together."""
    _last: list[tuple[list[bytes], Arranged]] = field(default_factory=list, init=False, repr=False)
    """The arrangement asked for last: from one evaluation to the next little changes. Another takes its place at once,
    so that several threads may ask.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return Candidates, (self.features, self.classes, self.rows, self.sizes)

    @cached_property
    def _by_row(self) -> Pairs:
        """Rows, ascending, and which of the candidates they are."""
        order = np.argsort(self.rows, kind="stable")
        return self.rows[order], order

    @cached_property
    def labels(self) -> Integers:
        """The classes there are, ascending (k,)."""
        return np.unique(self.classes)

    @cached_property
    def label_places(self) -> slice | Integers:
        """Where these are among all classes; a slice where they follow one another, which copies nothing."""
        if len(self.labels) == 0 or np.ptp(self.labels) + 1 > len(self.labels):
            return self.labels
        return slice(int(self.labels[0]), int(self.labels[-1]) + 1)

    @cached_property
    def _groups(self) -> Integers:
        """Of each, which are those of one batch and class (J,): `k` times its batch and the place of its class among
        the `k` labels.
        """
        labelled = np.searchsorted(self.labels, self.classes)
        batch = np.repeat(np.arange(len(self.sizes)), self.sizes) if self.sizes else 0
        return batch * len(self.labels) + labelled

    def part(self, places: slice | Chosen) -> Candidates:
        """Those at some places."""
        return Candidates(self.features[places], self.classes[places], self.rows[places])

    def within(self, start: int, stop: int) -> Pairs:
        """Which of the rows from `start` to before `stop` are candidates, counted from `start`, and which."""
        rows, which = self._by_row
        here = slice(*np.searchsorted(rows, (start, stop)))
        return rows[here] - start, which[here]

    def arranged(self, active: Chosen, idle: Chosen, looked_at: Chosen) -> Arranged:
        """Given which are which, and the features of positive weight."""
        wanted = [chosen.tobytes() for chosen in (active, idle, looked_at)]
        for known, found in self._last:
            if known == wanted:
                return found
        found = self._arrange(active, idle, looked_at)
        self._last[:] = [(wanted, found)]
        return found

    def forget(self) -> None:
        """The arrangement asked for last, which takes memory."""
        self._last.clear()

    def _arrange(self, active: Chosen, idle: Chosen, looked_at: Chosen) -> Arranged:
        of_active, of_idle = (arrange(np.flatnonzero(some), self._groups, len(looked_at)) for some in (active, idle))
        columns = np.concatenate([of_active.column, of_idle.column])
        used = np.flatnonzero(columns >= 0)
        # Two calls that copy take a fifth of the time of one that looks for rows and columns.
        features = self.features.take(np.flatnonzero(looked_at), axis=1).take(columns, axis=0, mode="wrap")
        features[columns < 0] = 0
        column_of = np.full(len(active), -1, dtype=np.int64)
        column_of[columns[used]] = used
        n_labels = len(self.labels)
        class_of_panel, class_of_idle = (some.panel_class % n_labels for some in (of_active, of_idle))
        one_each = np.array_equal(class_of_panel, np.arange(n_labels))
        batch, batch_of_idle = (some.panel_class // n_labels for some in (of_active, of_idle))
        ends = np.searchsorted(batch, np.arange(max(1, len(self.sizes)) + 1)).tolist()
        by_column = np.concatenate([np.repeat(batch, of_active.width), np.repeat(batch_of_idle, of_idle.width)])
        return Arranged(
            active=of_active,
            idle=of_idle,
            features=features,
            squares=np.square(features[: of_active.n_columns]),
            column_of=column_of,
            batch_of_column=by_column if self.sizes else None,
            panels_of_batch=[slice(*own) for own in pairwise(ends)],
            class_of_panel=class_of_panel,
            class_of_idle=class_of_idle,
            of_class=None if one_each else np.eye(n_labels)[:, class_of_panel],
        )


@dataclass(frozen=True, eq=False)
class BatchKernel:
    """One batch of a round at one `(v, w)`, ready to meet rows, or several that meet them together."""

    candidates: Candidates
    arranged: Arranged
    feature_weight: Floats
    """(B, all features)"""
    standardization: Standardization
    columns: Integers
    """Of the rows, that the features are in."""
    side: KernelSide
    """The candidates' side of the kernel, the active ones first."""
    column_weight: Floats
    """`w`, by column of the active ones."""
    sum_operand: Array
    """`[w s | w]`, filled up with zeros to a multiple of `LANES` columns (C, width, W)."""
    weights: Array
    """`w` (C, width, 1)."""
    shape: LikelihoodShape
    """What its memory in an evaluation depends on."""

    @property
    def alone_columns(self) -> int:
        """Columns of the kernel that class sums alone need, and what keeps its rows out of the same cache sets."""
        columns = self.arranged.active.n_columns
        return min(columns + alias_padding(columns, self.side.dtype), int(self.side.operand.shape[1]))


def batch_kernel(
    candidates: Candidates,
    feature_weight: Floats,
    candidate_weight: Floats,
    standardization: Standardization,
    precision: Precision,
    columns: Integers | None = None,
    asleep: Chosen | None = None,
) -> BatchKernel:
    """A batch at `(v, w)`, with all that its blocks share, or those that `candidates` tell apart at `v` (B, D).

    `precision` is the least one, see `FLOAT32_REACH`; `columns` are those of the rows that the features are in, if they
    are not the columns themselves. Of candidates of weight zero that are `asleep` nobody asks for the gradient (J,): it
    is said to be 0.
    """
    feature_weight = np.atleast_2d(feature_weight)
    looked_at = feature_weight.max(axis=0, initial=0.0) > 0
    active = candidate_weight > 0
    idle = ~active if asleep is None else ~(active | asleep)
    arranged = candidates.arranged(active, idle, looked_at)
    panels, n_features = arranged.active, arranged.features.shape[1]
    side = kernel_side(arranged.features, feature_weight, precision, arranged.batch_of_column)
    column_weight, width = panels.spread(candidate_weight), sums_width(n_features)
    operand = np.zeros((panels.n_columns, width), dtype=side.dtype)
    weighted = operand[:, :n_features]
    np.multiply(arranged.features[: panels.n_columns], column_weight[:, None], out=weighted, casting="same_kind")
    operand[:, n_features] = column_weight
    sum_operand = operand.reshape(panels.n_panels, panels.width, width)
    return BatchKernel(
        candidates=candidates,
        arranged=arranged,
        feature_weight=feature_weight,
        standardization=standardization,
        columns=np.arange(feature_weight.shape[1]) if columns is None else columns,
        side=side,
        column_weight=column_weight,
        sum_operand=sum_operand,
        weights=np.ascontiguousarray(sum_operand[:, :, n_features : n_features + 1]),
        shape=LikelihoodShape(
            n_features=n_features,
            columns=side.operand.shape[1],
            n_panels=panels.n_panels,
            sums_width=width,
            dtype=side.dtype,
            n_batches=len(feature_weight),
        ),
    )
