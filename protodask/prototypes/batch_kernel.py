"""Batches of a round at given weights: what their kernel, class sums and gradients need, ready to meet rows.

One batch alone, or several whose features are nearly the same: then one matrix of all features that any of them looks
at takes less time than one for each. Of these candidates the few that need float64 may have a matrix of their own.
Letters are those of `likelihood`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from protodask.engine.records import Floats, Integers
from protodask.prototypes.kernel import KernelSide, Standardization, kernel_side
from protodask.prototypes.panels import Panels, arrange
from protodask.prototypes.tiles import Array, LikelihoodShape, Precision, alias_padding, sums_width

Chosen = NDArray[np.bool_]
Pairs = tuple[Integers, Integers]
"""Places of rows among others, ascending, and which candidates they are."""


MOST_APART = 0.375
"""Columns of those that need float64 where they are apart, for each of the others: then both take less memory than all
in float64, and two thirds of the time at most."""


class TwoPanels(NamedTuple):
    """Candidates with positive weight, and idle ones."""

    active: Panels
    idle: Panels

    @property
    def n_columns(self) -> int:
        return self.active.n_columns + self.idle.n_columns

    @property
    def members(self) -> Integers:
        return np.concatenate([self.active.members, self.idle.members])


@dataclass(frozen=True, eq=False)
class Arranged:
    """Candidates in the columns of the kernel, those with weight before the idle ones: what stays as it is as long as
    the same candidates have weight and the same features are looked at.

    Panels are of one batch and class each, and ascend by them.
    """

    batches: Integers
    """Of all, those of which candidates are here (B,)."""
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
    """A place among the batches (columns,); None of a single one."""
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
    _last: list[tuple[list[bytes], tuple[Arranged, ...]]] = field(default_factory=list, init=False, repr=False)
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
    def groups(self) -> Integers:
        """Of each, which are those of one batch and class (J,): `k` times its batch and the place of its class among
        the `k` labels.
        """
        labelled = np.searchsorted(self.labels, self.classes)
        return self.batch * len(self.labels) + labelled

    @cached_property
    def batch(self) -> Integers:
        """Of each (J,)."""
        sizes = self.sizes or (len(self.rows),)
        return np.repeat(np.arange(len(sizes)), sizes)

    def part(self, places: slice | Chosen) -> Candidates:
        """Those at some places."""
        return Candidates(self.features[places], self.classes[places], self.rows[places])

    def within(self, start: int, stop: int) -> Pairs:
        """Which of the rows from `start` to before `stop` are candidates, counted from `start`, and which."""
        rows, which = self._by_row
        here = slice(*np.searchsorted(rows, (start, stop)))
        return rows[here] - start, which[here]

    def arranged(
        self, active: Chosen, idle: Chosen, looked_at: Chosen, apart: Chosen | None = None
    ) -> tuple[Arranged, ...]:
        """Given which are which, the features of positive weight (B, all features), and which have columns of their
        own.
        """
        wanted = [b"" if chosen is None else chosen.tobytes() for chosen in (active, idle, looked_at, apart)]
        for known, found in self._last:
            if known == wanted:
                return found
        n_features, parts = looked_at.shape[1], list[TwoPanels]()
        if apart is not None:
            near, far = (self._panels(active & part, idle & part, n_features) for part in (~apart, apart))
            if 0 < far.n_columns <= MOST_APART * near.n_columns:
                parts = [near, far]
        parts = parts or [self._panels(active, idle, n_features)]
        found = tuple(self._arrange(panels, looked_at) for panels in parts)
        self._last[:] = [(wanted, found)]
        return found

    def forget(self) -> None:
        """The arrangement asked for last, which takes memory."""
        self._last.clear()

    def _panels(self, active: Chosen, idle: Chosen, n_features: int) -> TwoPanels:
        return TwoPanels(*(arrange(np.flatnonzero(some), self.groups, n_features) for some in (active, idle)))

    def _arrange(self, panels: TwoPanels, looked_at: Chosen) -> Arranged:
        """Those in some panels, of the batches that they are of and the features that these look at."""
        of_active, of_idle = panels
        batches = np.unique(self.batch[panels.members])
        if len(batches) == 0:
            batches = np.arange(len(looked_at))
        columns = np.concatenate([of_active.column, of_idle.column])
        used = np.flatnonzero(columns >= 0)
        # Two calls that copy take a fifth of the time of one that looks for rows and columns.
        features = self.features.take(np.flatnonzero(looked_at[batches].any(axis=0)), axis=1)
        features = features.take(columns, axis=0, mode="wrap")
        features[columns < 0] = 0
        column_of = np.full(len(self.rows), -1, dtype=np.int64)
        column_of[columns[used]] = used
        n_labels = len(self.labels)
        class_of_panel, class_of_idle = (some.panel_class % n_labels for some in (of_active, of_idle))
        one_each = np.array_equal(class_of_panel, np.arange(n_labels))
        batch, batch_of_idle = (some.panel_class // n_labels for some in (of_active, of_idle))
        ends = [np.searchsorted(batch, batches, side=side).tolist() for side in ("left", "right")]
        by_column = np.concatenate([np.repeat(batch, of_active.width), np.repeat(batch_of_idle, of_idle.width)])
        return Arranged(
            batches=batches,
            active=of_active,
            idle=of_idle,
            features=features,
            squares=np.square(features[: of_active.n_columns]),
            column_of=column_of,
            batch_of_column=np.searchsorted(batches, by_column) if len(batches) > 1 else None,
            panels_of_batch=[slice(*own) for own in zip(*ends, strict=True)],
            class_of_panel=class_of_panel,
            class_of_idle=class_of_idle,
            of_class=None if one_each else np.eye(n_labels)[:, class_of_panel],
        )


@dataclass(frozen=True, eq=False)
class BatchKernel:
    """One batch of a round at one `(v, w)`, ready to meet rows, or several that meet them together; where some of their
    candidates have a matrix of their own, of these alone or of the others alone.
    """

    candidates: Candidates
    """Of which some may be in none of the columns."""
    arranged: Arranged
    batches: slice
    """Those that the candidates are of, in the round."""
    places: slice
    """Of the candidates, likewise."""
    feature_weight: Floats
    """(batches, all features)"""
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


def batch_kernels(
    candidates: Candidates,
    feature_weight: Floats,
    candidate_weight: Floats,
    standardization: Standardization,
    precision: Precision,
    columns: Integers | None = None,
    asleep: Chosen | None = None,
    apart: Chosen | None = None,
    first: tuple[int, int] = (0, 0),
) -> list[BatchKernel]:
    """A batch at `(v, w)`, with all that its blocks share, or those that `candidates` tell apart at `v` (B, D).

    `precision` is the least one, see `FLOAT32_REACH`; `columns` are those of the rows that the features are in, if they
    are not the columns themselves. Of candidates of weight zero that are `asleep` nobody asks for the gradient (J,): it
    is said to be 0. Those that are `apart` have a kernel of their own. `first` are the places of the first batch and
    candidate in the round.
    """
    feature_weight = np.atleast_2d(feature_weight)
    active = candidate_weight > 0
    idle = ~active if asleep is None else ~(active | asleep)
    n_features = feature_weight.shape[1]
    return [
        _batch_kernel(
            candidates,
            arranged,
            feature_weight,
            candidate_weight,
            standardization,
            precision,
            np.arange(n_features) if columns is None else columns,
            first,
        )
        for arranged in candidates.arranged(active, idle, feature_weight > 0, apart)
    ]


def _batch_kernel(
    candidates: Candidates,
    arranged: Arranged,
    feature_weight: Floats,
    candidate_weight: Floats,
    standardization: Standardization,
    precision: Precision,
    columns: Integers,
    first: tuple[int, int],
) -> BatchKernel:
    panels, n_features = arranged.active, arranged.features.shape[1]
    side = kernel_side(arranged.features, feature_weight[arranged.batches], precision, arranged.batch_of_column)
    column_weight, width = panels.spread(candidate_weight), sums_width(n_features)
    operand = np.zeros((panels.n_columns, width), dtype=side.dtype)
    weighted = operand[:, :n_features]
    np.multiply(arranged.features[: panels.n_columns], column_weight[:, None], out=weighted, casting="same_kind")
    operand[:, n_features] = column_weight
    sum_operand = operand.reshape(panels.n_panels, panels.width, width)
    return BatchKernel(
        candidates=candidates,
        arranged=arranged,
        batches=slice(first[0], first[0] + len(feature_weight)),
        places=slice(first[1], first[1] + len(candidate_weight)),
        feature_weight=feature_weight,
        standardization=standardization,
        columns=columns,
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
            n_batches=len(arranged.batches),
        ),
    )
