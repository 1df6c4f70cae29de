"""Who hears of a run besides the terminal: the options on logs, notifications and metrics."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from protodask.cli.console import complain, remark, write_line
from protodask.cli.errors import WrongUseError, wrong_use
from protodask.errors import ProtodaskError, count
from protodask.pipeline.steps.base import Option
from protodask.pipeline.telling import events

if TYPE_CHECKING:
    from protodask.cli.progress import Reporter
    from protodask.pipeline.state.records import State
    from protodask.pipeline.telling.log import WriteLine
    from protodask.pipeline.telling.notify import Notify

UNATTENDED = "For runs that nobody watches"

_who = partial(Option, panel=UNATTENDED, of_environment=True)


@dataclass(frozen=True)
class Telling:
    """The options on who is told of a run."""

    log: Annotated[
        Literal["lines", "json"], _who("What standard error gets: lines for people, or a JSON object a line.")
    ] = "lines"
    log_file: Annotated[str | None, _who("Append the log as JSON to this file, too.", "FILE")] = None
    notify: Annotated[
        str | None,
        _who(
            "Send a POST here when the run fails and when a gate says no. Others can read a command line, but not the "
            "environment.",
            "URL",
        ),
    ] = None
    notify_command: Annotated[
        str | None,
        _who("Run this on the same occasions, with a sentence as its input, to send mail for example.", "COMMAND"),
    ] = None
    metrics: Annotated[str | None, _who("Write the figures of the run to this file, as OpenMetrics text.", "FILE")] = (
        None
    )


class Told:
    """Passes on what happens: to the terminal, and to those that the options and the pipeline file name."""

    def __init__(self, pipeline: str, json_only: bool, quiet: bool = False) -> None:
        self._pipeline = pipeline
        self._json_only = json_only
        self._quiet = quiet
        self._listeners: list[events.RunListener] = []
        self._notified: set[tuple[str | None, str | None]] = set()
        self._state: State | None = None
        self._steps = 0
        self._reporter: Reporter | None = None
        self.ended: events.RunEnded | None = None
        """How the run ended, once it has."""

    @property
    def lines(self) -> WriteLine | None:
        """Takes the lines of a reporter, if they are not for people."""
        return self.line if self._json_only else None

    def tell(self, options: Telling, settings: Sequence[str]) -> None:
        """Tell those whom the options name and the file, those of notifications first: they hear what is wrong here."""
        from protodask.data.places.locations import locate
        from protodask.pipeline.file.definition import read_beforehand
        from protodask.pipeline.state.records import State
        from protodask.pipeline.telling.log import lines_to_file, run_log
        from protodask.pipeline.telling.metrics import run_metrics
        from protodask.pipeline.telling.notify import Notify

        if self._json_only:
            self._listeners.append(run_log(write_line, self._pipeline))
        state_folder, to_be_told = read_beforehand(self._pipeline, settings)
        self._state = State(locate(state_folder), self._pipeline)
        with wrong_use():
            for notify in (Notify(options.notify), Notify(command=options.notify_command)):
                if notify != Notify():
                    self._notify(notify)
        if to_be_told is not None:
            self._notify(to_be_told)
        _check_files(self._pipeline, options, settings)
        with wrong_use():
            if options.log_file is not None:
                self._listeners.append(run_log(lines_to_file(options.log_file), self._pipeline))
            if options.metrics is not None:
                self._listeners.append(run_metrics(options.metrics, self.warn))

    def show_on(self, reporter: Reporter | None) -> None:
        """Let lines go through what has the terminal while something runs."""
        self._reporter = reporter

    def _notify(self, settings: Notify) -> None:
        """Send notifications like that; to one address, or by one command, only once."""
        from protodask.pipeline.telling.notify import notifier

        to = settings.url, settings.command
        if to not in self._notified:
            self._notified.add(to)
            self._listeners.append(notifier(settings, self.warn))

    def hear(self, event: events.RunEvent) -> None:
        """Pass an event on. Who fails to hear it is complained of: a run is worth more than what is told of it."""
        match event:
            case events.RunStarted():
                self._steps = event.steps
            case events.RunEnded():
                self.ended = event
        for listen in self._listeners:
            try:
                listen(event)
            except Exception as error:
                if not isinstance(event, events.Said):  # such as the warning that follows
                    said = f"{type(error).__name__}: {error}"
                    self.warn(f"Something unexpected happened while others were told ({said}).")
        is_warning = isinstance(event, events.Said) and event.level == "warning"
        if not self._json_only and (is_warning or not self._quiet):
            for line in _describe_event(event, self._steps):
                self._show(line)

    def line(self, text: str) -> None:
        """A line on how far things are."""
        self.hear(events.Said(text))

    def warn(self, text: str) -> None:
        """A warning: to all that get lines."""
        self.hear(events.Said(text, "warning"))

    def _show(self, text: str) -> None:
        if self._reporter is not None and not self._quiet:
            self._reporter.line(text)
        else:
            remark(text)

    def complain(self, seen: str, remedy: str, code: str) -> None:
        """What went wrong. To those who wait for the end of a run it is that, if there was none."""
        if self.ended is None:
            self.hear(self.ended_early(f"{seen} {remedy}", code))
        elif self.ended.status != "failed":  # what came of the run could not be shown
            self.hear(events.Said(f"{seen} {remedy}", "error", code))
        if not self._json_only:
            complain(seen, remedy, code)

    def ended_early(self, message: str, code: str) -> events.RunEnded:
        """The end of a run that did not come to its steps.

        It is noted, but for the first run, which leaves nothing, and beside another one, which notes its own end.
        """
        end = events.RunEnded(self._pipeline, "", datetime.now(UTC), 0.0, "failed", message, code)
        if self._state is None or not os.path.isdir(self._state.folder):
            return end
        last = self._state.last_run()
        end = end if last is None else replace(end, known=last.known)
        try:
            with self._state.sole_run(wait=False) as alone:
                pass  # let go at once: a run that begins now would be refused
            if alone:
                self._state.ended(end)
        except ProtodaskError as error:
            self.warn(f"How the run ended could not be noted ({error}).")
        return end


def tell_of_wrong_use(given: Mapping[str, Any], message: str) -> None:
    """Tell those who wait for the end of a run that its options cannot be read; those that can are `given`."""
    telling = Telling(**{field.name: given[field.name] for field in fields(Telling) if given[field.name]})
    told = Told(given["pipeline"], telling.log == "json", quiet=True)
    with suppress(ProtodaskError):  # what is wrong with the options is said already
        told.tell(telling, given["settings"] or ())
    told.hear(told.ended_early(message, "bad-setting"))


def _check_files(pipeline: str, options: Telling, settings: Sequence[str]) -> None:
    """Refuse to write over the pipeline itself, which a forgotten word in a command line is enough for, or what its
    steps read and write.
    """
    from protodask.pipeline.file.definition import parse_settings, read_pipeline
    from protodask.pipeline.file.places import holds, inputs, is_same, outputs, takes_in

    given = {"--log-file": options.log_file, "--metrics": options.metrics}
    told = {option: path for option, path in given.items() if path is not None}
    if not told:
        return
    taken, read, written = {os.path.realpath(pipeline): "the pipeline"}, list[str](), list[str]()
    with suppress(ProtodaskError):  # what is wrong with it is said later
        for step in read_pipeline(pipeline, parse_settings(settings)).steps:
            read += inputs(step)
            written += outputs(step)
    for option, path in told.items():
        place = os.path.realpath(path)
        if place in taken:
            raise WrongUseError(
                "places-overlap", f"{path} of {option} is {taken[place]}.", "Give the name of another file."
            )
        is_read = any(is_same(one, path) or takes_in(one, path) for one in read)
        if is_read or any(holds(one, path) for one in written):
            raise WrongUseError(
                "places-overlap",
                f"{path} of {option} is among what the steps read or write.",
                "Give the name of another file.",
            )
        taken[place] = f"that of {option}"


def _describe_event(event: events.RunEvent, steps: int) -> Iterator[str]:
    """Lines on what happens in a run of so many steps."""
    match event:
        case events.StepFresh():
            yield f"{_step(event.step, steps)} is up to date{waiting_text(event.waiting or 0)}"
        case events.StepStarted():
            yield f"step {event.step.number} of {steps}: {event.what} ({event.why})"
        case events.StepFailed() if event.result is not None:
            yield f"{_step(event.step, steps)} failed for some files; the steps after it go on"
        case events.GateRefused():
            again = "still says no" if event.repeated else "says no"
            yield f"{_step(event.step, steps)} {again}: {' '.join(event.reasons)}"
        case events.Said(level="error"):
            return  # people are told of errors by themselves
        case events.Said():
            yield f"{'Warning: ' if event.level == 'warning' else ''}{event.text}"


def waiting_text(waiting: int) -> str:
    """What is said of files that wait."""
    return f"; {count(waiting, 'file')} changed a moment ago: left for the next run" if waiting else ""


def _step(step: events.StepIdentity, steps: int) -> str:
    return f"step {step.number} of {steps}: {step.kind if step.name.startswith(step.kind) else step.name}"
