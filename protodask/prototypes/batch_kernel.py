"""One batch of a round at given weights: what its kernel, class sums and gradients need, ready to meet rows.

Letters are those of `likelihood`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from protodask.prototypes.kernel import KernelSide, Standardization, kernel_side
from protodask.prototypes.panels import Panels, arrange
from protodask.prototypes.tiles import Array, Floats, LikelihoodShape, Precision, alias_padding, sums_width


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
    def class_of_panel(self) -> Floats | None:
        """1 where a panel belongs to a class (k, C); None where each class has one."""
        of_class = np.eye(len(self.classes))[:, self.active.panel_class]
        return None if np.array_equal(self.active.panel_class, np.arange(len(self.classes))) else of_class

    def by_class(self, of_panels: Array) -> Array:
        """Sums of panels (C, T) as those of the classes (k, T)."""
        found: Array = of_panels if self.class_of_panel is None else self.class_of_panel @ of_panels
        return found

    @cached_property
    def alone_columns(self) -> int:
        """Columns of the kernel that class sums alone need, and what keeps its rows out of the same cache sets."""
        columns = self.active.n_columns + alias_padding(self.active.n_columns, self.side.dtype)
        return min(columns, int(self.side.operand.shape[1]))

    @property
    def shape(self) -> LikelihoodShape:
        """What its memory in an evaluation depends on."""
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
