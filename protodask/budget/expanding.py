"""Expanding sets of features with a function that says how accurate the model on a set is."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from protodask.budget.expansions import Expand, Expansion, FeatureSet
from protodask.budget.noise import Estimate
from protodask.engine import Engine
from protodask.engine.together import each_together
from protodask.errors import LostTaskError

Accuracy = Callable[[FeatureSet], float | Estimate]
OnEnd = Callable[[Expansion], None]

MOST_FAILURE_CHARACTERS = 2**12
"""Of the reason why an expansion failed."""

LARGEST_ACCURACY = 1e300
"""Differences of accuracies, of which any measure will do, stay within the range of floats."""


def expander(accuracy: Accuracy, engine: Engine | None = None) -> Expand:
    """Expand with `accuracy`; what it raises, or a result that is no finite number, is a failure of that set alone.

    Without an engine one set follows the other in the calling thread. With one, as many are expanded at a time as it
    has threads: in threads of this process, where `accuracy` must bear that, or on the workers of a cluster, where it
    travels by cloudpickle with all that it refers to. There it may not use that engine itself, whose threads are taken.
    A set whose expansion takes the workers of a cluster down with it, as for want of memory, has failed, too; a
    cluster that has no workers any more, or none that can load `accuracy`, is a `ClusterError`.
    """
    if engine is None:
        return partial(_expand_in_turn, accuracy)
    # One function for all calls: it travels with what `accuracy` refers to, such as a matrix of all rows.
    return partial(_expand_together, engine, partial(_expand_one, accuracy))


def _expand_in_turn(accuracy: Accuracy, sets: Sequence[FeatureSet], on_end: OnEnd) -> None:
    for features in sets:
        on_end(_expand_one(accuracy, features))


def _expand_together(
    engine: Engine, expand_one: Callable[[FeatureSet], Expansion], sets: Sequence[FeatureSet], on_end: OnEnd
) -> None:
    left = list(sets)

    def end(expansion: Expansion) -> None:
        left.remove(expansion.features)
        on_end(expansion)

    while left:
        try:
            each_together(engine, expand_one, tuple(left), lambda _, expansion: end(expansion))
        except LostTaskError:
            # One of those at work, the first that are left, was perhaps too much for a worker. Each alone shows which:
            # the others are not to suffer for it.
            for features in left[: max(1, engine.scheduler.n_threads)]:
                end(_expand_alone(engine, expand_one, features))


def _expand_alone(engine: Engine, expand_one: Callable[[FeatureSet], Expansion], features: FeatureSet) -> Expansion:
    began = time.perf_counter()
    try:
        ((_, expansion),) = engine.each(expand_one, (features,))
    except LostTaskError as error:
        return Expansion(features, None, f"{type(error).__name__}: {error}", time.perf_counter() - began)
    found: Expansion = expansion
    return found


class Expanding:
    """Sets as they are expanded: each once, and known in the order in which they were asked for."""

    def __init__(self, expand: Expand, listen: OnEnd | None) -> None:
        self.found: dict[FeatureSet, Expansion] = {}
        self.expanded = self.failed = self.waiting = 0
        """How many ended well and in vain, and of those asked for last how many have not ended."""
        self._expand = expand
        self._listen = listen

    def ask(self, sets: Iterable[FeatureSet]) -> None:
        """Expand those of some sets that were not; the listener hears of each as it ends."""
        asked = [features for features in dict.fromkeys(sets) if features not in self.found]
        ended: dict[FeatureSet, Expansion | None] = dict.fromkeys(asked)
        self.waiting = len(asked)

        def on_end(expansion: Expansion) -> None:
            expansion = usable(expansion)
            if ended.get(expansion.features, expansion) is not None:
                return  # nobody asked for it, or it was said before
            ended[expansion.features] = expansion
            self.waiting -= 1
            self.expanded += expansion.accuracy is not None
            self.failed += expansion.accuracy is None
            if self._listen is not None:
                self._listen(expansion)

        if asked:
            self._expand(asked, on_end)
        if self.waiting:
            raise ValueError(f"nothing was said of {self.waiting} of {len(asked)} sets to expand")
        self.found |= {features: expansion for features, expansion in ended.items() if expansion is not None}

    def accuracy(self, features: FeatureSet) -> float | None:
        """None where a set was not expanded, or in vain."""
        return self.found[features].accuracy if features in self.found else None


def usable(expansion: Expansion) -> Expansion:
    """An expansion that either has a finite accuracy or says why there is none."""
    if expansion.failure is not None:
        # No more than anybody reads of each of thousands, in characters that every file takes.
        failure = expansion.failure[:MOST_FAILURE_CHARACTERS].encode(errors="backslashreplace").decode()
        return replace(expansion, accuracy=None, failure=failure)
    if expansion.accuracy is None:
        return replace(expansion, failure="Nothing was said of its accuracy.")
    if not math.isfinite(expansion.accuracy):
        failure = f"Its accuracy is {expansion.accuracy}, which is not a finite number."
        return replace(expansion, accuracy=None, failure=failure)
    if abs(expansion.accuracy) > LARGEST_ACCURACY:
        failure = f"Its accuracy is {expansion.accuracy}, which is beyond {LARGEST_ACCURACY:g}."
        return replace(expansion, accuracy=None, failure=failure)
    return expansion


def _expand_one(accuracy: Accuracy, features: FeatureSet) -> Expansion:
    began = time.perf_counter()
    found: object
    try:
        found = accuracy(features)
    except Exception as error:
        return Expansion(features, None, f"{type(error).__name__}: {error}", time.perf_counter() - began)
    seconds = time.perf_counter() - began
    found, noise = (found.accuracy, found.noise) if isinstance(found, Estimate) else (found, None)
    if isinstance(found, (bool, np.bool_)) or not isinstance(found, (int, float, np.integer, np.floating)):
        return Expansion(features, None, f"Its accuracy is a {type(found).__name__}, not a number.", seconds)
    try:
        return usable(Expansion(features, float(found), None, seconds, noise))
    except OverflowError:
        return Expansion(features, None, "Its accuracy is a number beyond the range of float64.", seconds)
