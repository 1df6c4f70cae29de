"""Which sets of features are expanded: a search through the lattice of subsets from both of its ends.

Accuracy is taken to be monotone within `e`: `a_r <= a_s + e` wherever `r` is a part of `s`. Of every set `s`

    low(s)  = max of a_r over expanded r within s        (such an r costs no more than s)
    high(s) = min of a_t over expanded t that contain s  (so a_s <= high(s) + e)
    gap(s)  = high(s) + e - low(s)

and a set is *settled*, sandwiched between an `r` and a `t`, when `gap(s) <= alpha`: in its place an expanded part of it
serves that costs no more and is at most `alpha` worse. Both bounds are kept for all `2^m` sets, so none is overlooked.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from protodask.budget.expansions import Expand, Expansion, FeatureSet
from protodask.errors import InputError

Floats = NDArray[np.float64]
Masks = NDArray[np.int64]
"""Sets of features as bits: feature `f` is in the set where bit `f` is 1."""

MOST_FEATURES = 20
"""Some 40 bytes for each of the `2^m` sets, 40 MB at 20 features."""

ROUNDING = 1e-12
"""Differences of accuracies that should be equal are off by as much as this: 0.91 - 0.9 is more than 0.01."""


@dataclass(frozen=True)
class ExplorationProgress:
    """How far an exploration is."""

    expanded: int
    failed: int
    waiting: int
    """Sets that were asked for and have not ended."""
    guarantee: float
    """Reached with what had ended when the sets at work were asked for."""


@dataclass(frozen=True)
class Exploration:
    """What was expanded, and what can be said of the sets that were not."""

    expansions: tuple[Expansion, ...]
    """In the order in which they were asked for, failed ones among them."""
    guarantee: float
    """The alpha that is reached: every set that did not fail has an expanded part at most so much less accurate."""
    observed_error: float
    """The smallest `monotone_error` that agrees with the accuracies seen, 0 where they are monotone."""
    alpha: float
    monotone_error: float

    @property
    def assumption_holds(self) -> bool:
        """Whether the accuracies seen agree with the `monotone_error` that was assumed; else nothing is guaranteed."""
        return self.observed_error <= self.monotone_error + ROUNDING


def explore(
    n_features: int,
    expand: Expand,
    *,
    alpha: float = 0.0,
    monotone_error: float = 0.0,
    diminishing_returns: bool = False,
    most_fits: int | None = None,
    listen: Callable[[ExplorationProgress], None] | None = None,
) -> Exploration:
    """Expand sets until each of the others has an expanded part that is at most `alpha` less accurate."""
    raise NotImplementedError
