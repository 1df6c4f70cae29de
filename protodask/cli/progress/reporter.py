"""Showing how far things are: bars and a live line on a terminal, a log line now and then elsewhere."""

from __future__ import annotations

import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, TextIO

import typer

from protodask.cli.showing.console import is_terminal, plain
from protodask.pipeline.file.setting_words import as_options
from protodask.pipeline.telling.wording import describe_seconds

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from protodask.cli.progress.tallies import Tally
    from protodask.engine.progress import Progress

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


@contextmanager
def reporting(
    show: Callable[[str], None] | None = None, warn: Callable[[str], None] | None = None
) -> Iterator[Reporter]:
    """A reporter for standard error, or for lines that `show` takes; warnings become lines of it, or go to `warn`."""
    made: AbstractContextManager[Reporter] = nullcontext(LogReporter(show=show))
    if show is None and is_terminal():
        made = _terminal_reporter()
    with made as reporter, _warnings_as_lines(reporter, warn):
        yield reporter


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
        from protodask.cli.progress.tallies import hear
        from protodask.engine.progress import Progress

        if isinstance(event, Progress):
            self._hear_pass(event)
            return
        self._tally, said = hear(event, self._tally)
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
    typer.echo(f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {plain(text)}", err=True)


class TerminalReporter:
    """Keeps the state of what runs; a display asks for it several times a second, so that reporting costs nothing."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._pass: Progress | None = None
        self._tally: Tally | None = None

    def hear(self, event: object) -> None:
        from protodask.cli.progress.tallies import hear
        from protodask.engine.progress import Progress

        if isinstance(event, Progress):
            self._pass = None if event.finished else event
            return
        self._tally, said = hear(event, self._tally)
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
