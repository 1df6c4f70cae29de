"""What a formulation asks of a hyperplane, in one form for all of them.

With `y` = -1 or 1 a sample asks for `1 - xi + y b + B(w) <= 0`, the bracket being

    plain         B(w) = sum_j max(-y m-_j w_j, -y m+_j w_j) + |diag(r) w|
    intersected   B(w) = min over a of  sum_j max(-l_j (y w_j + a_j), -u_j (y w_j + a_j))
                                        + sum_j max(m-_j a_j, m+_j a_j) + |diag(r) a|

with `m-`, `m+` the bounds of the means, `l`, `u` the support and `r` the spread, in the units of the features. What
tells the formulations apart is what they put in:

    SVM, M              m- = m+ = the point or its mean; r = 0
    S                   m- = l, m+ = u; r = 0
    MC                  m- = m+ = the mean; r_j = sqrt((1 - eps) / eps) * sd_j
    SBMV, SMV, SBM, SM  m-, m+ as they are known; r_j = kappa s_j nu_j, kappa = sqrt(2 log(1 / eps)), s = (u - l) / 2
    ...-I               the same, with the support
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, is_dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Floats = NDArray[np.float64]

Table = TypeVar("Table", bound="DataclassInstance")
"""A record of arrays with a row for each sample or the like, of other such records, and of what they have in common."""


def taken(table: Table, rows: slice | NDArray[np.generic]) -> Table:
    """Some rows of a table."""
    return with_arrays(lambda values: values[rows], table)


def joined(first: Table, second: Table) -> Table:
    """The rows of two tables, one after the other; what they have in common is that of the first."""
    return with_arrays(lambda *both: np.concatenate(both), first, second)


def with_arrays(made: Callable[..., Any], first: Table, *others: Table) -> Table:
    """The first table, with what is made of the arrays of one name of all these tables."""
    found: dict[str, Any] = {}
    for name, value in vars(first).items():
        values = (value, *(getattr(table, name) for table in others))
        if isinstance(value, np.ndarray):
            found[name] = made(*values)
        elif is_dataclass(value):
            found[name] = with_arrays(made, *values)
    return replace(first, **found)


@dataclass(frozen=True, eq=False)
class Terms:
    """The brackets of `N` samples of `D` features, each array (N, D)."""

    mean_low: Floats
    mean_high: Floats
    spread: Floats
    """`r`, 0 where nothing is random."""
    lower: Floats | None = None
    """The support where the bracket is intersected with it."""
    upper: Floats | None = None

    @property
    def middle(self) -> Floats:
        """Of the bounds of the means."""
        return self.mean_low + self.half

    @property
    def half(self) -> Floats:
        """The distance of the bounds of the means from their middle."""
        return (self.mean_high - self.mean_low) / 2

    @property
    def intersected(self) -> bool:
        return self.lower is not None
