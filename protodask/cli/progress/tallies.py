"""How far a training, a search, a budget or a robust fit is, in words, from what is heard of it."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from protodask.pipeline.telling.events import BudgetStarted, ComparisonStarted, RobustStarted, SearchStarted
from protodask.pipeline.telling.wording import count, describe_seconds

if TYPE_CHECKING:
    from protodask.prototypes.history import BatchRecord, IterationDone
    from protodask.robust.training import PlanePass
    from protodask.selection.search import FoldStep, SettingDone
    from protodask.selection.space import Setting

Line = tuple[Literal["stays", "of a log", "passing"], str]
"""What is said of an event: a line that stays, also on a terminal; one of a log; one of a log with no other lately."""

MOST_LOSSES = 12
"""Of one setting in a log line."""

MOST_COUNTED = 22
"""Features of which the number of sets is shown in full."""


class Tally(ABC):
    """Where something is that takes its time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()

    @abstractmethod
    def hear(self, event: Any) -> Line | None:
        """Take an event into account; what there is to say of it."""

    @abstractmethod
    def describe(self) -> str:
        """Where it is, in one line; nothing if there is nothing to say."""

    def _so_far(self) -> str:
        return describe_seconds(self._clock() - self._began)


def hear(event: object, current: Tally | None) -> tuple[Tally | None, Line | None]:
    """The tally that an event belongs to, where something begins a new one, and what there is to say of the event."""
    from protodask.prototypes.history import BatchStarted

    match event:
        case BatchStarted():
            current = FitTally()
        case SearchStarted():
            current = SearchTally(event)
        case BudgetStarted():
            current = BudgetTally(event)
        case RobustStarted():
            current = RobustTally()
    return current, None if current is None else current.hear(event)


class FitTally(Tally):
    """Where the training of a batch is."""

    _text = ""

    def hear(self, event: Any) -> Line | None:
        from protodask.prototypes.history import BatchDone, BatchStarted, IterationDone

        match event:
            case BatchStarted():
                begins = f"batch {event.batch} of {event.n_batches}"
                self._text = f"{begins}  {event.candidates} candidates"
                return "of a log", f"{begins} begins with {event.candidates} candidates"
            case IterationDone():
                part = "" if event.rows is None else f"of {event.rows:,} rows  "
                self._text = f"batch {event.batch}  {part}iteration {_fit(event.iteration, event, event.candidates)}"
                return "passing", self._text
            case BatchDone(record):
                self._text = ""
                said = _fit(record.iterations, record, record.prototypes)
                return "stays", f"batch {record.batch}  {record.status}  iterations {said}"
        return None

    def describe(self) -> str:
        return self._text


def _fit(iterations: int, found: IterationDone | BatchRecord, prototypes: int) -> str:
    held_out = "" if found.held_out is None else f"held out {found.held_out:.6g}  "
    return (
        f"{iterations}  evaluations {found.evaluations}  objective {found.value:.6g}  {held_out}"
        f"gradient {found.gradient_norm:.2g}  features {found.active_features}  prototypes {prototypes}  "
        f"{describe_seconds(found.seconds)}"
    )


class SearchTally(Tally):
    """Where a search is."""

    def __init__(self, started: SearchStarted, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock)
        self._started = started
        self._done, self._of = 0, started.n_settings
        self._batches = 0
        self._losses: dict[tuple[Setting, int], list[float]] = {}
        """Of the folds, of settings that are at work."""
        self._best = math.inf
        self._best_of: tuple[Setting, int] | None = None
        self._stage = ""

    def hear(self, event: Any) -> Line | None:
        from protodask.selection.search import FoldStep, SettingDone

        if isinstance(event, SearchStarted):
            return "stays", _search(event)
        if self._done == self._of:  # all settings of the first stage are done: this is the one of the second
            self._stage, self._done, self._of = "stage 2  ", 0, 1
        match event:
            case FoldStep():
                self._batches += 1
                self._step(event)
                fold = f"fold {event.fold + 1}  batch {event.n_batches}  loss {event.loss:.5g}"
                return "passing", f"{_setting(event.setting)}  {fold}"
            case SettingDone():
                self._done, self._of = event.done, event.of
                for place in [place for place in self._losses if place[0] == event.setting]:
                    del self._losses[place]
                return "of a log", f"{self._stage}{_setting_done(event)}"
        return None

    def _step(self, event: FoldStep) -> None:
        place = (event.setting, event.n_batches)
        losses = self._losses.setdefault(place, [])
        losses.append(event.loss)
        if len(losses) == self._started.n_folds:
            mean = math.fsum(losses) / len(losses)
            if mean < self._best:
                self._best, self._best_of = mean, place

    def describe(self) -> str:
        """What matters least stands last, where a narrow terminal cuts it off."""
        parts = [self._so_far(), f"{self._stage}settings {self._done} of {self._of}", f"batches {self._batches}"]
        if self._best_of is not None:
            setting, n_batches = self._best_of
            pair = "" if self._started.strategy == "joint" else f", lambda_w {setting.lambda_w:.2g}"
            many = count(n_batches, "batch", "batches")
            parts.append(f"best {self._best:.4f} ({many}, lambda_v {setting.lambda_v:.2g}{pair})")
        return "  ".join(parts)


def _search(event: SearchStarted) -> str:
    return (
        f"{event.strategy} search: {event.n_settings} settings with {event.n_folds} folds each, "
        f"{event.n_settings * event.n_folds} fits{_together(event.group)}"
    )


def _together(group: str | None) -> str:
    return "" if group is None else f"; rows of the same {group!r} stay together"


def _setting(setting: Setting) -> str:
    return f"lambda_v {setting.lambda_v:.3g}  lambda_w {setting.lambda_w:.3g}"


def _setting_done(event: SettingDone) -> str:
    more = " ..." if len(event.losses) > MOST_LOSSES else ""
    return (
        f"setting {event.done} of {event.of}  {_setting(event.setting)}  batches 0 to {len(event.losses) - 1}  "
        f"held-out log-loss {' '.join(f'{loss:.4f}' for loss in event.losses[:MOST_LOSSES])}{more}"
    )


class BudgetTally(Tally):
    """Where the building of a budget is."""

    def __init__(self, started: BudgetStarted, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock)
        self._of = "" if started.greedy else f" of {_sets(started)}"
        self._text = "assigning folds"
        self._stage = ""

    def hear(self, event: Any) -> Line | None:
        from protodask.budget.column_models import ModelsProgress
        from protodask.budget.lattice import ExplorationProgress

        before = self._stage
        match event:
            case BudgetStarted():
                return "stays", describe_budget_start(event)
            case ExplorationProgress():
                known = "" if math.isinf(event.guarantee) else f", guarantee {event.guarantee:.4g}"
                failed = f", {event.failed:,} failed" if event.failed else ""
                self._stage = "exploring"
                self._text = f"sets {event.expanded:,}{self._of} expanded{failed}, {event.waiting:,} waiting{known}"
            case ModelsProgress():
                self._stage = "models"
                self._text = f"models {event.done:,} of {event.of:,} fitted to all rows"
            case ComparisonStarted():
                self._stage = event.name
                self._text = f"comparing with {event.name}"
        return "passing" if self._stage == before else "of a log", self.describe()

    def describe(self) -> str:
        return f"{self._so_far()}  {self._text}"


def describe_budget_start(event: BudgetStarted) -> str:
    """What the building of a budget is about to do, in one line."""
    most = event.most_fits
    if most is None and event.greedy:
        from protodask.budget.greedy import FACTORS

        # A sequence for each factor, one by accuracy alone and one by cost alone.
        most = (len(FACTORS) + 2) * event.n_features * (event.n_features + 1) // 2
    limit = "" if most is None else f", at most {most:,} of them"
    how = "searching greedily among" if event.greedy else "exploring"
    return (
        f"{how} the {_sets(event)} sets of {count(event.n_features, 'feature')}{limit}, with {event.n_folds} folds "
        f"each{_together(event.group)}"
    )


def _sets(event: BudgetStarted) -> str:
    return f"{2**event.n_features:,}" if event.n_features <= MOST_COUNTED else f"2^{event.n_features}"


class RobustTally(Tally):
    """Where a fit of planes is."""

    _planes: frozenset[int] = frozenset()
    _text = ""

    def hear(self, event: Any) -> Line | None:
        if isinstance(event, RobustStarted):
            return None
        found: PlanePass = event
        plane = f"plane {found.plane} of {found.n_planes}  " if found.n_planes > 1 else ""
        done, other = found.done, found.plane not in self._planes
        self._planes |= {found.plane}
        self._text = f"{plane}pass {done.number}  objective {done.best:.6g}  gap {done.gap:.2g}  "
        return "of a log" if other else "passing", self.describe()

    def describe(self) -> str:
        return f"{self._text}{self._so_far()}" if self._text else ""
