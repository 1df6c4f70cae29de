"""Running a pipeline: what is stale of its steps, one after the other."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from protodask._version import __version__
from protodask.data.places.locations import is_url, locate
from protodask.errors import InputError, NothingYetError, OutputExistsError, ProtodaskError
from protodask.pipeline.file.definition import Pipeline
from protodask.pipeline.file.places import check_step, check_step_outside, holds, inputs
from protodask.pipeline.file.values import as_keys, suggestion
from protodask.pipeline.state.identities import identity, identity_of_files
from protodask.pipeline.state.records import Begun, State, StepRecord, undisturbed
from protodask.pipeline.state.staleness import Look, Planned, look, planned
from protodask.pipeline.steps.base import Step, describe_step
from protodask.pipeline.steps.training import Training, run_directory
from protodask.pipeline.telling import events
from protodask.pipeline.telling.result import FilesFailedError, Result
from protodask.places import mask

Performer = Callable[[Step], Result]


@dataclass(frozen=True)
class Part:
    """Which steps of a pipeline are meant: from which number on, to which, and whether they are done though fresh."""

    first: int = 1
    last: int | None = None
    forced: bool = False

    def has(self, number: int) -> bool:
        return self.first <= number and (self.last is None or number <= self.last)


WHOLE = Part()

IN_THE_WAY = ("exists", "written-by-another")
"""Codes of errors that say that others write where a step was to."""


def step_number(pipeline: Pipeline, text: str) -> int:
    """The number of the step that a text means: by its number, its name, or its kind where no other has that."""
    names = [pipeline.name(number) for number, _ in enumerate(pipeline.steps, start=1)]
    if text in names:
        return names.index(text) + 1
    if text.isdecimal() and 1 <= int(text) <= len(names):
        return int(text)
    same = [number for number, step in enumerate(pipeline.steps, start=1) if step.command == text]
    if len(same) == 1:
        return same[0]
    said = f"The pipeline {pipeline.path} has {len(same) or 'no'} {'steps' if same else 'step'} {text!r}."
    raise InputError("unknown-name", said, f"{suggestion(text, names)}Its steps are {', '.join(names)}.")


def check_pipeline(pipeline: Pipeline) -> None:
    """Refuse a pipeline with a step whose settings cannot work."""
    for number, step in enumerate(pipeline.steps, start=1):
        try:
            check_step(step)
            check_step_outside(step)
        except InputError as error:
            raise _in_file(pipeline, number, error, error.remedy) from error


def _in_file(pipeline: Pipeline, number: int, error: ProtodaskError, remedy: str) -> ProtodaskError:
    """The error of a step of the file, in the file's words."""
    found = type(error)(error.code, f"{pipeline.where(number)}: {as_keys(error.seen)}", as_keys(remedy))
    found.of_file = True
    return found


def run_pipeline(
    pipeline: Pipeline,
    perform: Performer,
    *,
    listen: events.RunListener = events.nobody,
    part: Part = WHOLE,
    check: Callable[[Pipeline], None] = check_pipeline,
) -> events.RunEnded:
    """Do what is stale of the steps, in order. The first that fails ends the run; what was done before stays.

    One that fails for some of its files has done the others: as if those had not come yet, the steps after it go on,
    and the run fails in the end.

    `perform` does a step. Before the first that is stale, `check` looks at all of them; where nothing is stale, neither
    is called. `listen` hears what happens, at last how the run ended, also where that is an error.
    """
    state = State(locate(pipeline.state_folder), pipeline.path)
    if not os.path.isdir(state.folder):  # nothing was ever done: what cannot work leaves nothing behind
        check(pipeline)
    run = _Run(pipeline, planned(pipeline), perform, listen, part, check, state)
    with state.sole_run(pipeline.overlap == "wait", run.waits) as alone:
        if alone:
            return run.all_steps()
        other = state.other_run()
    return run.gives_way(other)


@dataclass
class _Run:
    """A run under way."""

    pipeline: Pipeline
    plans: tuple[Planned, ...]
    perform: Performer
    listen: events.RunListener
    part: Part
    check: Callable[[Pipeline], None]
    state: State
    name: str = field(default_factory=lambda: uuid.uuid4().hex)
    began: float = field(default_factory=time.monotonic)
    outcomes: list[events.StepOutcome] = field(default_factory=list)
    failed: list[ProtodaskError] = field(default_factory=list)
    """Errors of steps that failed for some of their files."""
    absent: list[str] = field(default_factory=list)
    """Places that are made of what comes in, and nothing has come."""
    checked: bool = False

    def waits(self, other: str) -> None:
        """Tell that another run is waited for."""
        self.listen(events.Said(f"Waiting for another run of the pipeline ({other})."))

    def gives_way(self, other: str) -> events.RunEnded:
        """The end of a run that found another one under way."""
        seen = f"Another run of the pipeline {self.pipeline.path} is under way ({other})."
        self._started()
        if self.pipeline.overlap == "leave":
            return self._end("left", message=seen, noted=False)
        error = ProtodaskError(
            "written-by-another",
            seen,
            "Let it end first; --overlap wait waits for it, and --overlap leave ends without a failure.",
        )
        self._end("failed", message=seen, code=error.code, noted=False)
        raise error

    def all_steps(self) -> events.RunEnded:
        self._started()
        refused: tuple[str, ...] = ()
        try:
            for plan in self.plans:
                refused = self._step(plan)
                if refused:
                    self.outcomes += [
                        events.StepOutcome(left.identity, "left out") for left in self.plans[plan.number :]
                    ]
                    break
            if self.failed:
                raise self.failed[0]
        except ProtodaskError as error:
            self._end("failed", refused, str(error), error.code)
            raise
        except (KeyboardInterrupt, SystemExit):
            self._end("interrupted")
            raise
        except BaseException as error:
            self._end("failed", message=f"{type(error).__name__}: {error}", code="unexpected")
            raise
        if refused:
            return self._end("stopped" if plan.step.stops_at_no() else "refused", refused, " ".join(refused))
        worked = any(outcome.status == "done" for outcome in self.outcomes)
        return self._end("done" if worked else "fresh")

    def _step(self, plan: Planned) -> tuple[str, ...]:
        """Do a step if it is stale; the reasons of a gate that says no."""
        step = plan.identity
        if not self.part.has(plan.number):
            self.outcomes.append(events.StepOutcome(step, "not looked at"))
            return ()
        if any(holds(place, read) for place in self.absent for read in inputs(plan.step)):
            self._becomes(plan, events.StepOutcome(step, "waits"))
            return ()
        found = look(plan, self.state)
        if found.why is not None or self.part.forced:
            return self._do(plan, found)
        last = found.record
        result, seconds, refused = (None, None, ()) if last is None else (last.result, last.seconds, last.refused)
        self.listen(events.StepFresh(step, found.waiting))
        self._becomes(plan, events.StepOutcome(step, "fresh", result, seconds, waiting=found.waiting))
        if refused:
            self.listen(events.GateRefused(step, refused, plan.step.stops_at_no(), repeated=True))
        return refused

    def _becomes(self, plan: Planned, outcome: events.StepOutcome) -> None:
        """Note what became of a step after which the run goes on, and at which of its places there is nothing yet."""
        self.outcomes.append(outcome)
        self.absent += [place for place in plan.writes if identity(place) is None]

    def _do(self, plan: Planned, found: Look) -> tuple[str, ...]:
        step = plan.identity
        if not self.checked:
            self.check(self.pipeline)
            self.checked = True
        self.listen(events.StepStarted(step, describe_step(plan.step), found.why or "it was asked for"))
        began = time.monotonic()
        own = all(_is_own(place, plan, found, self.state) for place in plan.writes if not plan.grows)
        try:
            result = self.perform(self._prepared(plan, found, own))
            seconds = time.monotonic() - began
            told, refused = result.describe(), result.refused
            # Asked again: among what it read may be what it changed itself.
            made = {place: identity(place) for place in plan.writes}
            files = {place: identity_of_files(place) for place in plan.writes}
            ended = _now().isoformat(timespec="microseconds")
            self.state.done(
                plan.record,
                StepRecord(
                    found.key, found.inputs, plan.settings, made, seconds, ended, told, __version__, refused, files
                ),
            )
        except NothingYetError:  # what looked new has no rows, or is being changed
            self.state.not_begun(plan.record)
            self.listen(events.StepFresh(step, found.waiting))
            self._becomes(plan, events.StepOutcome(step, "waits", waiting=found.waiting))
            return ()
        except (Exception, KeyboardInterrupt, SystemExit) as error:
            self._note_failure(plan, own, error)
            self._fail(plan, error, time.monotonic() - began)
            return ()
        self._becomes(plan, events.StepOutcome(step, "done", told, seconds, result))
        self.listen(events.StepDone(step, seconds, result))
        if refused:
            self.listen(events.GateRefused(step, refused, plan.step.stops_at_no()))
        return refused

    def _fail(self, plan: Planned, error: BaseException, seconds: float) -> None:
        """Tell that a step failed or was stopped. The error ends the run, unless it is of some of the files alone."""
        if not isinstance(error, Exception):
            self.outcomes.append(events.StepOutcome(plan.identity, "interrupted", seconds=seconds))
            raise error
        said = f"Something unexpected happened ({type(error).__name__}: {error})."
        unexpected = ProtodaskError("unexpected", said, "Repeat the run with --debug to see where.")
        told = self._at_step(plan, error if isinstance(error, ProtodaskError) else unexpected)
        left = error.result if isinstance(error, FilesFailedError) else None
        self.listen(events.StepFailed(plan.identity, seconds, told, left))
        if left is not None:
            self.failed.append(told)
            self._becomes(plan, events.StepOutcome(plan.identity, "failed", left.describe(), seconds, left))
            return
        self.outcomes.append(events.StepOutcome(plan.identity, "failed", seconds=seconds))
        if not isinstance(error, ProtodaskError):
            raise error
        raise told from error

    def _prepared(self, plan: Planned, found: Look, own: bool) -> Step:
        """The step as it is done: what it made itself it may replace, and what it left of other work goes."""
        begun = Begun(
            found.key,
            {mask(place): identity(place) for place in inputs(plan.step)} if isinstance(plan.step, Training) else {},
        )
        if found.begun is not None and (found.begun.key, found.begun.inputs) != (begun.key, begun.inputs):
            _remove_unfinished(plan.step)  # before the note of them is lost
        if own:
            self.state.begin(plan.record, begun)
        elif plan.overwrites:  # of what others have there nothing is its own, whatever comes of it
            self.state.begin(plan.record, replace(begun, left=dict.fromkeys(plan.writes)))
        # Where there is nothing yet it needs no leave: what others put there while it works stays theirs.
        replaces = own and any(identity(place) is not None for place in plan.writes)
        return plan.overwriting() if replaces else plan.step

    def _note_failure(self, plan: Planned, own: bool, error: BaseException) -> None:
        """Note what a step left that failed or was stopped: what others put there, before the next run or in its way,
        is theirs.
        """
        in_the_way = isinstance(error, ProtodaskError) and error.code in IN_THE_WAY
        with suppress(ProtodaskError), undisturbed():
            begun = self.state.begun(plan.record)
            if begun is not None and own:
                left = {place: None if in_the_way else identity(place) for place in plan.writes}
                self.state.begin(plan.record, replace(begun, left=left))

    def _at_step(self, plan: Planned, error: ProtodaskError) -> ProtodaskError:
        remedy = error.remedy
        if error.code == "not-found":
            lacking = [place for place in inputs(plan.step) if identity(place) is None]
            for other in self.plans:
                if other is not plan and any(holds(out, place) for out in other.writes for place in lacking):
                    what = "do that first" if other.number < plan.number else "put that step above this one"
                    remedy = f"Step {other.number} ({other.step.command}) writes it: {what}."
                    break
        if isinstance(error, OutputExistsError) and not plan.overwrites:
            remedy = "Choose another place, or let this step replace what is there with `overwrite: true`."
            if self.state.record(plan.record) is None and (old := self.state.beside(plan.record)) is not None:
                remedy = f"If the file had another name before, write `state: {old}` into it. {remedy}"
        return _in_file(self.pipeline, plan.number, error, remedy)

    def _started(self) -> None:
        self.listen(events.RunStarted(self.pipeline.path, self.name, _now(), len(self.pipeline.steps)))

    def _end(
        self,
        status: events.Status,
        reasons: tuple[str, ...] = (),
        message: str = "",
        code: str | None = None,
        noted: bool = True,
    ) -> events.RunEnded:
        """Note how the run has ended, unless another run notes its own end there, and tell it."""
        seconds, steps = time.monotonic() - self.began, tuple(self.outcomes)
        end = events.RunEnded(self.pipeline.path, self.name, _now(), seconds, status, message, code, reasons, steps)
        last = self.state.last_run()
        known = (last.known if last is not None else events.Known()).after(end, [plan.identity for plan in self.plans])
        end = replace(end, known=known)
        try:
            if noted:
                with undisturbed():
                    self.state.ended(end)
        except ProtodaskError as error:
            self.listen(events.Said(f"How the run ended could not be noted ({error}).", "warning"))
        finally:  # who pressed Ctrl-C twice waits for the end, too
            self.listen(end)
        return end


def _now() -> datetime:
    return datetime.now(UTC)


def _is_own(place: str, plan: Planned, found: Look, state: State) -> bool:
    """Whether a step may write to a place: nothing is there, or what the pipeline put there and nobody changed."""
    begun = found.begun
    if begun is not None and not begun.left:
        return True  # it was killed, and nobody looked at what it left
    beside = [state.record(name) for name in plan.beside]
    known = [record.outputs for record in (found.record, *beside) if record is not None]
    known += [] if begun is None else [begun.left]
    killed = place in plan.shared and any(state.begun(name) is not None for name in plan.beside)
    where = locate(place)
    if not known and not killed and not is_url(where) and os.path.lexists(where):
        return False  # without a look at all that lies there, which may be somebody's home
    now = identity(place)
    return now is None or killed or any(outputs.get(mask(place)) == now for outputs in known)


def _remove_unfinished(step: Step) -> None:
    """Remove the usual run directory of a step that began with other inputs or settings: nobody can go on from it."""
    from protodask.data.places.own_folder import own_folder

    if isinstance(step, Training) and step.run_dir is None:
        with suppress(InputError):
            place = locate(run_directory(step.out, None))
            if not is_url(place) and os.path.isdir(place):
                with own_folder(place) as folder:
                    folder.unwanted = True
