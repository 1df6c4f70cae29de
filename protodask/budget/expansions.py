"""What is known of sets of features: expanding one means to fit a model on it and to see how accurate that is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

FeatureSet = frozenset[int]
"""Numbers of features."""


@dataclass(frozen=True)
class Expansion:
    """How accurate the model on a set of features is, or why there is none."""

    features: FeatureSet
    accuracy: float | None
    """None where the expansion failed."""
    failure: str | None = None
    seconds: float = 0.0


Expand = Callable[[Sequence[FeatureSet], Callable[[Expansion], None]], None]
"""Expands sets, several at once if it can, and calls the listener with each when it is done, from the calling thread.

An expansion that fails is handed over as one that has failed; it does not raise.
"""


@dataclass(frozen=True)
class Choice:
    """The features to compute for an item."""

    features: FeatureSet
    accuracy: float
    """Of the model on these features, as it was estimated."""
    cost: float
    """At the size of the item, in the unit of the budget."""
