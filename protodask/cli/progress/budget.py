"""How far the building of a budget is, in words."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from protodask.pipeline.telling.wording import count, describe_seconds

if TYPE_CHECKING:
    from protodask.pipeline.work.budget import BudgetNews, BudgetStarted


def describe_budget_start(event: BudgetStarted) -> str:
    """What the building of a budget is about to do, in one line."""
    together = "" if event.group is None else f"; rows of the same {event.group!r} stay together"
    most = event.most_fits
    if most is None and event.greedy:
        from protodask.budget.greedy import FACTORS

        # A sequence for each factor, one by accuracy alone and one by cost alone.
        most = (len(FACTORS) + 2) * event.n_features * (event.n_features + 1) // 2
    limit = "" if most is None else f", at most {most:,} of them"
    how = "searching greedily among" if event.greedy else "exploring"
    return (
        f"{how} the {_sets(event)} sets of {count(event.n_features, 'feature')}{limit}, with {event.n_folds} folds "
        f"each{together}"
    )


def _sets(event: BudgetStarted) -> str:
    return f"{2**event.n_features:,}" if event.n_features <= MOST_COUNTED else f"2^{event.n_features}"


MOST_COUNTED = 22
"""Features of which the number of sets is shown in full."""


class BudgetTally:
    """Where a build is, from what is heard of it."""

    def __init__(self, started: BudgetStarted, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._of = "" if started.greedy else f" of {_sets(started)}"
        self._text = "assigning folds"
        self.stage = ""

    def hear(self, event: BudgetNews) -> None:
        """Take an event into account."""
        from protodask.budget.column_models import ModelsProgress
        from protodask.budget.lattice import ExplorationProgress
        from protodask.pipeline.work.budget import ComparisonStarted

        match event:
            case ExplorationProgress():
                known = "" if math.isinf(event.guarantee) else f", guarantee {event.guarantee:.4g}"
                failed = f", {event.failed:,} failed" if event.failed else ""
                self.stage = "exploring"
                self._text = f"sets {event.expanded:,}{self._of} expanded{failed}, {event.waiting:,} waiting{known}"
            case ModelsProgress():
                self.stage = "models"
                self._text = f"models {event.done:,} of {event.of:,} fitted to all rows"
            case ComparisonStarted():
                self.stage = event.name
                self._text = f"comparing with {event.name}"

    def describe(self) -> str:
        """Where the build is, in one line."""
        return f"{describe_seconds(self._clock() - self._began)}  {self._text}"
