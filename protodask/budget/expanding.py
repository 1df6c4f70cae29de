"""Expanding sets of features with a function of the user's."""

from __future__ import annotations

from collections.abc import Callable

from protodask.budget.expansions import Expand, FeatureSet
from protodask.engine import Engine


def expander(accuracy: Callable[[FeatureSet], float], engine: Engine | None = None) -> Expand:
    """Expand with `accuracy`: one set after the other in this thread, or several at once on an engine."""
    raise NotImplementedError
