"""Columns of the kernel matrix, arranged so that one call of the BLAS serves all classes.

The prototypes of a class stand side by side, and every class is filled up to a whole number of *panels* of one width
with columns of weight zero. A kernel matrix of `T` rows then views as `(C, T, width)`, panel by panel, and a single
batched product computes what would otherwise be a product for each class: with several threads, every call that
releases and takes back the interpreter lock costs more than the padding.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

NARROWEST_PANEL = 32
"""Columns below which the product of a panel is dominated by its overhead."""

PANEL_OVERHEAD = 8
"""Cost of a panel's sums over a row, for each feature, in units of a kernel entry's cost for each feature."""


@dataclass(frozen=True)
class Panels:
    """`C` panels of `width` columns: `column[i]` is the prototype in column `i`, or -1 for padding."""

    width: int
    column: NDArray[np.int64]
    panel_class: NDArray[np.int64]

    @property
    def n_panels(self) -> int:
        return len(self.panel_class)

    @property
    def n_columns(self) -> int:
        return len(self.column)

    @cached_property
    def used(self) -> NDArray[np.int64]:
        """Columns that are no padding."""
        return np.flatnonzero(self.column >= 0)

    @cached_property
    def members(self) -> NDArray[np.int64]:
        """The prototypes in these."""
        return self.column[self.used]

    def spread(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Values of the prototypes (J, ...) at their columns, zeros at the padding."""
        spread = np.zeros((self.n_columns, *values.shape[1:]), dtype=values.dtype)
        spread[self.used] = values[self.members]
        return spread

    def apart(self, values: NDArray[Any]) -> NDArray[Any]:
        """Columns of a kernel matrix (T, columns), panel by panel (C, T, width)."""
        return values.reshape(len(values), self.n_panels, self.width).transpose(1, 0, 2)


NO_PANELS = Panels(1, np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))


def arrange(members: NDArray[np.int64], classes: NDArray[np.int64], n_features: int) -> Panels:
    """Panels for the prototypes `members`, of which `classes` gives every prototype's class; ascending by class."""
    if len(members) == 0:
        return NO_PANELS
    members = members[np.argsort(classes[members], kind="stable")]
    counts = np.bincount(classes[members])
    labels = np.flatnonzero(counts)
    counts = counts[labels]
    width = _choose_width(counts, n_features)
    panels = -(-counts // width)
    padding = panels * width - counts
    column = np.full(int(panels.sum()) * width, -1, dtype=np.int64)
    column[np.arange(len(members)) + np.repeat(np.cumsum(padding) - padding, counts)] = members
    return Panels(width, column, np.repeat(labels, panels))


def _choose_width(counts: NDArray[np.int64], n_features: int) -> int:
    """The width with the least work: columns with their padding, and the sums each panel adds."""
    largest = int(counts.max())
    widths = -(-largest // np.arange(1, max(1, largest // NARROWEST_PANEL) + 1))
    n_panels = (-(-counts[:, None] // widths)).sum(axis=0)
    cost = n_panels * widths * (n_features + PANEL_OVERHEAD) + PANEL_OVERHEAD * n_panels * n_features
    return int(widths[cost.argmin()])
