"""One batch of a round at given weights: what its kernel, class sums and gradients need, ready to meet rows.

Letters are those of `likelihood`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
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
    """Candidates of a batch in the columns of its kernel, those with weight before the idle ones: what stays as it is
    as long as the same candidates have weight and the same features are looked at.
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
    class_of_panel: Floats | None
    """1 where a panel of the active ones belongs to a class (k, C); None where each class has one."""


@dataclass(frozen=True, eq=False)
class Candidates:
    """Candidates of a batch or a round: standardised features (J, all features), classes, global row numbers.

    Those of a batch ascend by class; a round has those of one batch after those of another.
    """

    features: Floats
    classes: Integers
    rows: Integers
    _last: list[tuple[list[bytes], Arranged]] = field(default_factory=list, init=False, repr=False)
    """The arrangement asked for last: from one evaluation to the next little changes."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Candidates, (self.features, self.classes, self.rows)

    @cached_property
    def rows_sorted(self) -> Integers:
        return self.rows[self._by_row]

    @cached_property
    def _by_row(self) -> Integers:
        return np.argsort(self.rows, kind="stable")

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
    def _labelled(self) -> Integers:
        """The class of each, as a place among `labels` (J,)."""
        return np.searchsorted(self.labels, self.classes)

    def part(self, places: slice | Chosen) -> Candidates:
        """Those at some places."""
        return Candidates(self.features[places], self.classes[places], self.rows[places])

    def within(self, start: int, stop: int) -> Pairs:
        """Which of the rows from `start` to before `stop` are candidates, counted from `start`, and which."""
        first, last = np.searchsorted(self.rows_sorted, (start, stop))
        return self.rows_sorted[first:last] - start, self._by_row[first:last]

    def arranged(self, active: Chosen, idle: Chosen, looked_at: Chosen) -> Arranged:
        """Given which are which, and the features of positive weight."""
        wanted = [chosen.tobytes() for chosen in (active, idle, looked_at)]
        for known, found in self._last:
            if known == wanted:
                return found
        found = self._arrange(active, idle, looked_at)
        self._last[:] = [(wanted, found)]
        return found

    def _arrange(self, active: Chosen, idle: Chosen, looked_at: Chosen) -> Arranged:
        of_active, of_idle = (arrange(np.flatnonzero(some), self._labelled, len(looked_at)) for some in (active, idle))
        columns = np.concatenate([of_active.column, of_idle.column])
        used = np.flatnonzero(columns >= 0)
        features = np.zeros((len(columns), int(np.count_nonzero(looked_at))))
        features[used] = self.features[np.ix_(columns[used], looked_at)]
        column_of = np.full(len(active), -1, dtype=np.int64)
        column_of[columns[used]] = used
        one_each = np.array_equal(of_active.panel_class, np.arange(len(self.labels)))
        return Arranged(
            active=of_active,
            idle=of_idle,
            features=features,
            squares=np.square(features[: of_active.n_columns]),
            column_of=column_of,
            class_of_panel=None if one_each else np.eye(len(self.labels))[:, of_active.panel_class],
        )


@dataclass(eq=False)
class BatchKernel:
    """One batch of a round at one `(v, w)`, ready to meet rows. All that its blocks share is derived at once, rather
    than in each of several threads at the first block.
    """

    candidates: Candidates
    feature_weight: Floats
    candidate_weight: Floats
    standardization: Standardization
    precision: Precision
    """At least this one: see `FLOAT32_REACH`."""
    columns: Integers | None = None
    """Of the rows, that the features are in; None where they are the columns."""
    asleep: Chosen | None = None
    """Candidates of weight zero whose gradient nobody asks for (J,): it is said to be 0."""

    arranged: Arranged = field(init=False)
    side: KernelSide = field(init=False)
    """The candidates' side of the kernel, the active ones first."""
    column_weight: Floats = field(init=False)
    """`w`, by column of the active ones."""
    sum_operand: Array = field(init=False)
    """`[w s | w]`, filled up with zeros to a multiple of `LANES` columns (C, width, W)."""
    weights: Array = field(init=False)
    """`w` (C, width, 1)."""
    shape: LikelihoodShape = field(init=False)
    """What its memory in an evaluation depends on."""

    def __post_init__(self) -> None:
        active = self.candidate_weight > 0
        idle = ~active if self.asleep is None else ~(active | self.asleep)
        self.arranged = self.candidates.arranged(active, idle, self.feature_weight > 0)
        self.side = kernel_side(self.arranged.features, self.feature_weight, self.precision)
        self.column_weight = self.active.spread(self.candidate_weight)
        n_features, panels = self.arranged.features.shape[1], self.active
        operand = np.zeros((panels.n_columns, sums_width(n_features)), dtype=self.side.dtype)
        features = self.arranged.features[: panels.n_columns]
        np.multiply(features, self.column_weight[:, None], out=operand[:, :n_features], casting="same_kind")
        operand[:, n_features] = self.column_weight
        self.sum_operand = operand.reshape(panels.n_panels, panels.width, operand.shape[1])
        self.weights = np.ascontiguousarray(self.sum_operand[:, :, n_features : n_features + 1])
        self.shape = LikelihoodShape(
            n_features=n_features,
            columns=self.side.operand.shape[1],
            n_panels=panels.n_panels,
            sums_width=operand.shape[1],
            dtype=self.side.dtype,
        )

    @property
    def row_columns(self) -> Integers:
        """Columns of the rows that the features are in."""
        return np.arange(len(self.feature_weight)) if self.columns is None else self.columns

    @property
    def places(self) -> slice | Integers:
        """Where the classes of its candidates are among all."""
        return self.candidates.label_places

    @property
    def active(self) -> Panels:
        return self.arranged.active

    @property
    def idle(self) -> Panels:
        return self.arranged.idle

    @property
    def class_of_panel(self) -> Floats | None:
        return self.arranged.class_of_panel

    def by_class(self, of_panels: Array) -> Array:
        """Sums of panels (C, T) as those of the classes (k, T)."""
        found: Array = of_panels if self.class_of_panel is None else self.class_of_panel @ of_panels
        return found

    @property
    def alone_columns(self) -> int:
        """Columns of the kernel that class sums alone need, and what keeps its rows out of the same cache sets."""
        columns = self.active.n_columns + alias_padding(self.active.n_columns, self.side.dtype)
        return min(columns, int(self.side.operand.shape[1]))
