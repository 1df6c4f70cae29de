"""Showing how far things are: bars and a live line on a terminal, a log line now and then elsewhere.

A tally says how far a training, a search, a budget or a robust fit is, in words, from what is heard of it.
"""

from __future__ import annotations

import math
import sys
import threading
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Literal

from protodask.cli.console import Unheeded, is_terminal, plain, remark
from protodask.errors import count
from protodask.pipeline.file.values import as_options
from protodask.pipeline.telling.events import BudgetStarted, ComparisonStarted, RobustStarted, SearchStarted
from protodask.pipeline.telling.result import describe_seconds

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from protodask.engine.progress import Progress
    from protodask.prototypes.history import BatchRecord, IterationDone
    from protodask.robust.training import PlanePass
    from protodask.selection.search import FoldStep, SettingDone
    from protodask.selection.space import Setting

BAR_AFTER_SECONDS = 0.5
"""A pass that is over sooner would only flicker."""

SECONDS_BETWEEN_LINES = 5.0
"""Log lines about one running pass or batch are at least this far apart."""

REFRESHES_PER_SECOND = 8

WORDS = {
    "scan": "looking through the tables",
    "ingest": "writing the dataset",
    "sample": "writing sample data",
    "summary": "summarising",
    "draw": "drawing candidates",
    "take": "reading candidates",
    "evaluate": "evaluating the objective",
    "step": "taking small steps",
    "score": "scoring the training rows",
    "predict": "predicting",
    "metrics": "evaluating",
    "compare": "comparing the models",
    "sample rows": "drawing rows",
    "monitor": "looking at the rows",
    "folds": "assigning folds",
    "groups": "assigning folds by group",
    "hold out": "scoring held-out rows",
    "terms": "bounding the training rows",
    "survey": "looking through the bounds",
}
"""What a pass does, by its label."""

Line = tuple[Literal["stays", "of a log", "passing"], str]
"""What is said of an event: a line that stays, also on a terminal; one of a log; one of a log with no other lately."""

MOST_LOSSES = 12
"""Of one setting in a log line."""

MOST_COUNTED = 22
"""Features of which the number of sets is shown in full."""


@contextmanager
def reporting(
    show: Callable[[str], None] | None = None,
    warn: Callable[[str], None] | None = None,
    words: Callable[[str], str] = as_options,
) -> Iterator[Reporter]:
    """A reporter for standard error, or for lines that `show` takes; warnings become lines of it, or go to `warn`.

    `words` makes of a warning what it says to those who read it: settings as options, or as keys of a file.
    """
    made: AbstractContextManager[Reporter] = nullcontext(LogReporter(show=show))
    if show is None and is_terminal():
        made = _terminal_reporter()
    with made as reporter, _warnings_as_lines(reporter, warn, words):
        yield reporter


OF_DEVELOPERS = (DeprecationWarning, PendingDeprecationWarning, FutureWarning)


@contextmanager
def _warnings_as_lines(
    reporter: Reporter, warn: Callable[[str], None] | None, words: Callable[[str], str]
) -> Iterator[None]:
    def show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        if issubclass(category, OF_DEVELOPERS) and not sys.warnoptions:
            return
        text = words(" ".join(str(message).split()))
        if warn is None:
            reporter.line(f"Warning: {text}")
        else:
            warn(text)

    with warnings.catch_warnings():
        # Those meant for users are shown; what other packages tell their developers is not, unless Python was told to.
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = show
        yield


def describe_pass(progress: Progress) -> str:
    """What a pass does, in words."""
    return WORDS.get(progress.label, progress.label) or "reading"


class LogReporter:
    """Lines with a time, no control characters, and few of them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, show: Callable[[str], None] | None = None) -> None:
        self._clock = clock
        self._show = show or _show_line
        self._lock = threading.Lock()
        self._last_line = clock()
        self._announced: str | None = None
        self._tally: Tally | None = None

    def hear(self, event: object) -> None:
        from protodask.engine.progress import Progress

        if isinstance(event, Progress):
            self._hear_pass(event)
            return
        self._tally, said = _heard(event, self._tally)
        if said is not None:
            with self._lock:
                if said[0] != "passing" or self._is_time():
                    self._write(said[1])

    def _hear_pass(self, progress: Progress) -> None:
        with self._lock:
            if progress.finished:
                if self._announced == progress.label:
                    self._announced = None
                    self._write(f"{describe_pass(progress)}: done in {describe_seconds(progress.seconds)}")
            elif progress.seconds >= SECONDS_BETWEEN_LINES and self._is_time():
                self._announced = progress.label
                share = progress.done / progress.total
                self._write(f"{describe_pass(progress)}: {share:.0%} after {describe_seconds(progress.seconds)}")

    def line(self, text: str) -> None:
        with self._lock:
            self._write(text)

    def _is_time(self) -> bool:
        return self._clock() - self._last_line >= SECONDS_BETWEEN_LINES

    def _write(self, text: str) -> None:
        self._last_line = self._clock()
        self._show(text)


def _show_line(text: str) -> None:
    remark(f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {text}")


class TerminalReporter:
    """Keeps the state of what runs; a display asks for it several times a second, so that reporting costs nothing."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._pass: Progress | None = None
        self._tally: Tally | None = None

    def hear(self, event: object) -> None:
        from protodask.engine.progress import Progress

        if isinstance(event, Progress):
            self._pass = None if event.finished else event
            return
        self._tally, said = _heard(event, self._tally)
        if said is not None and said[0] == "stays":
            self.line(said[1])

    def line(self, text: str) -> None:
        from rich.text import Text

        self._console.print(Text(plain(text)), soft_wrap=True)

    def render(self) -> RenderableType:
        """What the display shows now: nothing, a line, a bar, or both."""
        from rich.console import Group
        from rich.text import Text

        running = self._pass
        parts: list[RenderableType] = []
        if self._tally is not None and (now := self._tally.describe()):
            parts.append(Text(plain(now), no_wrap=True, overflow="ellipsis"))
        if running is not None and running.seconds >= BAR_AFTER_SECONDS:
            parts.append(_bar(running))
        return Group(*parts)


Reporter = LogReporter | TerminalReporter
"""Shows what happens within a step, and lines that stay. Passes over data tell of themselves from any thread."""


def _bar(progress: Progress) -> RenderableType:
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    left = progress.seconds * (progress.total - progress.done) / progress.done
    row = Table.grid(padding=(0, 1))
    row.add_row(
        describe_pass(progress),
        ProgressBar(total=progress.total, completed=progress.done, width=30),
        f"{progress.done / progress.total:.0%}",
        f"{describe_seconds(progress.seconds)}, about {describe_seconds(left)} left",
    )
    return row


@contextmanager
def _terminal_reporter() -> Iterator[TerminalReporter]:
    from rich.console import Console
    from rich.live import Live

    console = Console(file=Unheeded(sys.stderr), highlight=False, markup=False)  # type: ignore[arg-type]
    reporter = TerminalReporter(console)
    with Live(
        console=console,
        get_renderable=reporter.render,
        refresh_per_second=REFRESHES_PER_SECOND,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    ):
        yield reporter


class Tally(ABC):
    """Where something is that takes its time."""

    _text = ""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()

    @abstractmethod
    def hear(self, event: Any) -> Line | None:
        """Take an event into account; what there is to say of it."""

    def describe(self) -> str:
        """Where it is, in one line; nothing if there is nothing to say."""
        return self._text

    def _so_far(self) -> str:
        return describe_seconds(self._clock() - self._began)


def _heard(event: object, current: Tally | None) -> tuple[Tally | None, Line | None]:
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
    """Where the training of a round is."""

    def hear(self, event: Any) -> Line | None:
        from protodask.prototypes.history import BatchDone, BatchStarted, IterationDone

        match event:
            case BatchStarted():
                begins = f"round {event.batch} of {event.n_batches}"
                self._text = f"{begins}  {event.candidates} candidates"
                return "of a log", f"{begins} begins with {event.candidates} candidates"
            case IterationDone():
                part = "" if event.rows is None else f"of {event.rows:,} rows  "
                self._text = f"round {event.batch}  {part}iteration {_fit(event.iteration, event, event.candidates)}"
                return "passing", self._text
            case BatchDone(record):
                self._text = ""
                said = _fit(record.iterations, record, record.prototypes)
                return "stays", f"round {record.batch}  {record.status}  iterations {said}"
        return None


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
        self._losses: dict[Setting, dict[int, list[float]]] = {}
        """Of the folds, by number of batches, of settings that are at work."""
        self._best = math.inf
        self._best_of: tuple[Setting, int] | None = None
        self._stage = ""

    def hear(self, event: Any) -> Line | None:
        from protodask.selection.search import FoldStep, SettingDone

        if isinstance(event, SearchStarted):
            fits = f"{event.n_folds} folds each, {event.n_settings * event.n_folds} fits"
            settings = count(event.n_settings, "setting")
            return "stays", f"{event.strategy} search: {settings} with {fits}{_together(event.group)}"
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
                self._losses.pop(event.setting, None)
                return "of a log", f"{self._stage}{_setting_done(event)}"
        return None

    def _step(self, event: FoldStep) -> None:
        losses = self._losses.setdefault(event.setting, {}).setdefault(event.n_batches, [])
        losses.append(event.loss)
        if len(losses) == self._started.n_folds:
            mean = math.fsum(losses) / len(losses)
            if mean < self._best:
                self._best, self._best_of = mean, (event.setting, event.n_batches)

    def describe(self) -> str:
        """What matters least stands last, where a narrow terminal cuts it off."""
        parts = [self._so_far(), f"{self._stage}settings {self._done} of {self._of}", f"batches {self._batches}"]
        if self._best_of is not None:
            setting, n_batches = self._best_of
            pair = "" if self._started.strategy == "joint" else f", lambda_w {setting.lambda_w:.2g}"
            many = count(n_batches, "batch", "batches")
            parts.append(f"best {self._best:.4f} ({many}, lambda_v {setting.lambda_v:.2g}{pair})")
        return "  ".join(parts)


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
