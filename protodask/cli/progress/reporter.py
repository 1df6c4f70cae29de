"""Showing how far things are: bars and a live line on a terminal, a log line now and then elsewhere."""

from __future__ import annotations

import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, TextIO

import typer

from protodask.cli.showing.console import is_terminal, plain
from protodask.pipeline.file.setting_words import as_options
from protodask.pipeline.steps import Listeners
from protodask.pipeline.telling.wording import describe_seconds

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from protodask.cli.progress.budget import BudgetTally
    from protodask.cli.progress.robust import RobustTally
    from protodask.cli.progress.search import SearchTally
    from protodask.engine.progress import Progress
    from protodask.pipeline.work.budget import BudgetNews
    from protodask.pipeline.work.tuning import SearchNews
    from protodask.prototypes.history import BatchRecord, FitEvent, IterationDone
    from protodask.robust.training import PlanePass

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


class Reporter(Protocol):
    """Shows what happens. Progress may come from any thread."""

    def on_progress(self, progress: Progress) -> None: ...

    def on_fit(self, event: FitEvent) -> None: ...

    def on_search(self, event: SearchNews) -> None: ...

    def on_budget(self, event: BudgetNews) -> None: ...

    def on_robust(self, event: PlanePass) -> None: ...

    def line(self, text: str) -> None:
        """Show a line that stays."""
        ...


def listeners(reporter: Reporter) -> Listeners:
    """What a step tells a reporter."""
    return Listeners((reporter.on_fit,), reporter.on_search, reporter.on_budget, reporter.on_robust)


@contextmanager
def reporting(
    show: Callable[[str], None] | None = None, warn: Callable[[str], None] | None = None
) -> Iterator[Reporter]:
    """A reporter for standard error, or for lines that `show` takes; warnings become lines of it, or go to `warn`."""
    if show is None and is_terminal():
        with _terminal_reporter() as reporter, _warnings_as_lines(reporter, warn):
            yield reporter
    else:
        log = LogReporter(show=show)
        with _warnings_as_lines(log, warn):
            yield log


OF_DEVELOPERS = (DeprecationWarning, PendingDeprecationWarning, FutureWarning)


@contextmanager
def _warnings_as_lines(reporter: Reporter, warn: Callable[[str], None] | None) -> Iterator[None]:
    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if issubclass(category, OF_DEVELOPERS) and not sys.warnoptions:
            return
        text = as_options(" ".join(str(message).split()))
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


def describe_iteration(event: IterationDone) -> str:
    """The state of the running batch in one line."""
    return (
        f"batch {event.batch}  {_part(event.rows)}iteration {event.iteration}  evaluations {event.evaluations}  "
        f"objective {event.value:.6g}  {_held_out(event.held_out)}gradient {event.gradient_norm:.2g}  "
        f"features {event.active_features}  prototypes {event.candidates}  {describe_seconds(event.seconds)}"
    )


def describe_batch(record: BatchRecord) -> str:
    """How the fit of a batch went, in one line."""
    return (
        f"batch {record.batch}  {record.status}  iterations {record.iterations}  evaluations {record.evaluations}  "
        f"objective {record.value:.6g}  {_held_out(record.held_out)}gradient {record.gradient_norm:.2g}  "
        f"features {record.active_features}  prototypes {record.prototypes}  {describe_seconds(record.seconds)}"
    )


def _part(rows: int | None) -> str:
    return "" if rows is None else f"of {rows:,} rows  "


def _held_out(loss: float | None) -> str:
    return "" if loss is None else f"held out {loss:.6g}  "


class _Tallies:
    """Adds up what is heard of a search, a budget or a robust fit."""

    def __init__(self) -> None:
        self._search: SearchTally | None = None
        self._budget: BudgetTally | None = None
        self._robust: RobustTally | None = None

    def on_search(self, event: SearchNews) -> None:
        from protodask.cli.progress.search import SearchTally, describe_start
        from protodask.pipeline.work.tuning import SearchStarted

        if isinstance(event, SearchStarted):
            self.line(describe_start(event))
            self._search = SearchTally(event)
        elif self._search is not None:
            self._search.hear(event)

    def on_budget(self, event: BudgetNews) -> None:
        from protodask.cli.progress.budget import BudgetTally, describe_budget_start
        from protodask.pipeline.work.budget import BudgetStarted

        if isinstance(event, BudgetStarted):
            self.line(describe_budget_start(event))
            self._budget = BudgetTally(event)
        elif self._budget is not None:
            stage = self._budget.stage
            self._budget.hear(event)
            self._heard(self._budget, stage != self._budget.stage)

    def on_robust(self, event: PlanePass) -> None:
        from protodask.cli.progress.robust import RobustTally, begins

        if self._robust is None or begins(event):
            self._robust = RobustTally()
        plane = self._robust.plane
        self._robust.hear(event)
        self._heard(self._robust, plane != event.plane)

    def line(self, text: str) -> None:
        """Show a line that stays."""
        raise NotImplementedError

    def _heard(self, tally: BudgetTally | RobustTally, other: bool) -> None:
        """Something new is known; `other` says that it is of another stage or plane than before."""


class LogReporter(_Tallies):
    """Lines with a time, no control characters, and few of them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, show: Callable[[str], None] | None = None) -> None:
        super().__init__()
        self._clock = clock
        self._show = show or _show_line
        self._lock = threading.Lock()
        self._last_line = clock()
        self._announced: str | None = None

    def on_progress(self, progress: Progress) -> None:
        with self._lock:
            if progress.finished:
                if self._announced == progress.label:
                    self._announced = None
                    self._write(f"{describe_pass(progress)}: done in {describe_seconds(progress.seconds)}")
            elif progress.seconds >= SECONDS_BETWEEN_LINES and self._is_time():
                self._announced = progress.label
                share = progress.done / progress.total
                self._write(f"{describe_pass(progress)}: {share:.0%} after {describe_seconds(progress.seconds)}")

    def on_fit(self, event: FitEvent) -> None:
        from protodask.prototypes.history import BatchDone, BatchStarted, IterationDone

        match event:
            case BatchStarted():
                self.line(f"batch {event.batch} of {event.n_batches} begins with {event.candidates} candidates")
            case IterationDone():
                with self._lock:
                    if self._is_time():
                        self._write(describe_iteration(event))
            case BatchDone():
                self.line(describe_batch(event.record))

    def on_search(self, event: SearchNews) -> None:
        from protodask.cli.progress.search import describe_done, describe_step
        from protodask.selection.search import FoldStep, SettingDone

        super().on_search(event)
        if self._search is None:
            return
        match event:
            case FoldStep():
                with self._lock:
                    if self._is_time():
                        self._write(describe_step(event))
            case SettingDone():
                self.line(describe_done(event, self._search.stage))

    def _heard(self, tally: BudgetTally | RobustTally, other: bool) -> None:
        with self._lock:
            if other or self._is_time():
                self._write(tally.describe())

    def line(self, text: str) -> None:
        with self._lock:
            self._write(text)

    def _is_time(self) -> bool:
        return self._clock() - self._last_line >= SECONDS_BETWEEN_LINES

    def _write(self, text: str) -> None:
        self._last_line = self._clock()
        self._show(text)


def _show_line(text: str) -> None:
    typer.echo(f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {plain(text)}", err=True)


class TerminalReporter(_Tallies):
    """Keeps the state of what runs; a display asks for it several times a second, so that reporting costs nothing."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console
        self._pass: Progress | None = None
        self._fit: str | None = None

    def on_progress(self, progress: Progress) -> None:
        self._pass = None if progress.finished else progress

    def on_fit(self, event: FitEvent) -> None:
        from protodask.prototypes.history import BatchDone, BatchStarted, IterationDone

        match event:
            case BatchStarted():
                self._search = None  # what it chose is being trained
                self._fit = f"batch {event.batch} of {event.n_batches}  {event.candidates} candidates"
            case IterationDone():
                self._fit = describe_iteration(event)
            case BatchDone():
                self._fit = None
                self.line(describe_batch(event.record))

    def line(self, text: str) -> None:
        from rich.text import Text

        self._console.print(Text(plain(text)), soft_wrap=True)

    def render(self) -> RenderableType:
        """What the display shows now: nothing, a line, a bar, or both."""
        from rich.console import Group
        from rich.text import Text

        running, fit = self._pass, self._fit
        tallies = (tally for tally in (self._search, self._budget, self._robust) if tally is not None)
        parts: list[RenderableType] = [
            Text(plain(tally.describe()), no_wrap=True, overflow="ellipsis") for tally in tallies
        ]
        if fit is not None:
            parts.append(Text(plain(fit), no_wrap=True, overflow="ellipsis"))
        if running is not None and running.seconds >= BAR_AFTER_SECONDS:
            parts.append(_bar(running))
        return Group(*parts)


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

    console = Console(stderr=True, highlight=False, markup=False)
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
