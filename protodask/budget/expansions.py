"""What is known of sets of features: expanding one means to fit a model on it and to see how accurate that is."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from protodask.budget.noise import Noise, describe_noise, parse_noise
from protodask.errors import InputError

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
    noise: Noise | None = None
    """How far the accuracy may be off, where that is known."""


def describe_expansion(expansion: Expansion) -> dict[str, Any]:
    """Plain values, for files."""
    return {
        "features": sorted(map(int, expansion.features)),
        "accuracy": None if expansion.accuracy is None else float(expansion.accuracy),
        "failure": expansion.failure,
        "seconds": float(expansion.seconds),
        **({} if expansion.noise is None else {"noise": describe_noise(expansion.noise)}),
    }


def parse_expansion(record: Mapping[str, Any]) -> Expansion | None:
    """What `describe_expansion` described, from a file; None where it is nothing of the kind."""
    match record:
        case {
            "features": list(features),
            "accuracy": float() | None as accuracy,
            "failure": str() | None as failure,
            "seconds": float(seconds),
        } if all(type(feature) is int for feature in features):
            return Expansion(frozenset(features), accuracy, failure, seconds, parse_noise(record.get("noise")))
    return None


Expand = Callable[[Sequence[FeatureSet], Callable[[Expansion], None]], None]
"""Expands sets, several at once if it can, and calls the listener with each when it is done, from the calling thread.

An expansion that fails is handed over as one that has failed; it does not raise.
"""


class FailedExpansionWarning(UserWarning):
    """For some sets of features there is no model, and they are never chosen."""


def require_models(expansions: Sequence[Expansion]) -> None:
    """Refuse to go on with the empty set alone, where all else that was tried failed."""
    tried = [one for one in expansions if one.features] or list(expansions)
    if tried and all(one.accuracy is None for one in tried):
        reason = (tried[0].failure or "").rstrip(".")
        raise InputError(
            "user-code",
            f"All sets of features that were tried failed, {len(tried):,} in all, the first of them so: {reason}.",
            "Mend what gives the accuracy of a set of features, or the data and the settings that it is told from.",
        )


def warn_of_failures(failures: Sequence[Expansion], expanded: int, stacklevel: int) -> None:
    """A `FailedExpansionWarning` where some of the sets that were expanded failed; the level is that of the caller."""
    if failures:
        warnings.warn(
            f"{len(failures)} of the {expanded} sets of features that were tried failed and are never chosen, the "
            f"first of them, {sorted(failures[0].features)}, so: {failures[0].failure}",
            FailedExpansionWarning,
            stacklevel=stacklevel + 1,
        )


@dataclass(frozen=True)
class Choice:
    """The features to compute for an item."""

    features: FeatureSet
    accuracy: float
    """Of the model on these features, as it was estimated."""
    cost: float
    """At the size of the item, in the unit of the budget."""
