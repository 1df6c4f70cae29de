"""Figures of a pipeline's latest run, and of what its steps left behind, for those who watch over it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, get_args

from protodask._version import __version__
from protodask.errors import ProtodaskError
from protodask.pipeline.telling.events import (
    GateRefused,
    RunEnded,
    RunEvent,
    RunListener,
    RunStarted,
    Status,
    StepDone,
    StepFailed,
    StepFresh,
    StepIdentity,
)
from protodask.pipeline.telling.figures import FIGURES, FILES, GATE_PASSED, figures_of, rows_of
from protodask.pipeline.telling.open_metrics import Family, Sample, from_text, sample, to_text
from protodask.places import mask

if TYPE_CHECKING:
    from protodask.pipeline.telling.result import Result

VERSION = Family("protodask_version", "1, with the version that did the latest run.")
STATUS = Family("protodask_run_status", "1 for the way in which the latest run ended, 0 for the others.")
SUCCESS = Family("protodask_run_success", "Whether the latest run came to its end without a failure: 1 or 0.")
ENDED = Family("protodask_run_end_timestamp_seconds", "When the latest run ended, in seconds since 1970.", "seconds")
SUCCEEDED = Family(
    "protodask_run_last_success_timestamp_seconds",
    "When the latest run ended that did not fail, in seconds since 1970.",
    "seconds",
)
DURATION = Family("protodask_run_duration_seconds", "How long the latest run took.", "seconds")
STEP_PERFORMED = Family("protodask_step_performed", "Whether the latest run did this step: 1, or 0 if it was fresh.")
STEP_FAILED = Family("protodask_step_failed", "Whether this step failed when it was last begun: 1 or 0.")
STEP_DURATION = Family("protodask_step_duration_seconds", "How long this step took when it was last done.", "seconds")
STEP_ROWS = Family("protodask_step_rows", "Rows that this step dealt with when it was last done.")
STEP_SPEED = Family("protodask_step_rows_per_second", "Those rows by the seconds that the step took.")

RUN_FAMILIES = (VERSION, STATUS, SUCCESS, ENDED, SUCCEEDED, DURATION)
STEP_FAMILIES = (STEP_PERFORMED, STEP_FAILED, STEP_DURATION, STEP_ROWS, STEP_SPEED, *FIGURES)
FAMILIES = (*RUN_FAMILIES, *STEP_FAMILIES)

SUCCESSES: tuple[Status, ...] = ("done", "fresh", "stopped")

MOST_BYTES = 2**22
"""Of the earlier file: a pipeline of a hundred steps with all their figures needs less."""


@dataclass
class _Heard:
    """What a run told so far: the pipeline, how many steps there are, and the new figures of each step by its name."""

    pipeline: str = ""
    steps: int = 0
    figures: dict[str, dict[Family, dict[tuple[tuple[str, str], ...], float]]] = field(default_factory=dict)

    def put(self, step: StepIdentity, family: Family, value: float, **labels: str) -> None:
        own = {"pipeline": self.pipeline, "step": step.name, **labels}
        self.figures.setdefault(step.name, {}).setdefault(family, {})[tuple(own.items())] = float(value)

    def replace(self, step: StepIdentity, result: Mapping[str, object]) -> None:
        """Take the figures of a result in place of all that were there before, also where it has none of a kind."""
        own = self.figures.setdefault(step.name, {})
        own.update({family: {} for family in FIGURES})
        for family, labels, value in figures_of(result):
            self.put(step, family, value, **labels)


def run_metrics(path: str, complain: Callable[[str], None]) -> RunListener:
    """A listener that writes the figures of each run that ends to a file, whole, in place of those of the run before.

    What this run says nothing new of stays as it was: the time of the last success after a failure, the durations of
    steps that were fresh, the figures of steps that were not reached. That the file cannot be written is told to
    `complain`, and is no error.
    """
    from protodask.data.places.whole_files import check_file_free

    check_file_free(path, overwrite=True)
    heard = _Heard()

    def listen(event: RunEvent) -> None:
        nonlocal heard
        match event:
            case RunStarted():
                heard = _Heard(_pipeline_label(event.pipeline), event.steps)
            case RunEnded():
                if event.status == "left":
                    return  # the run that is under way writes its own
                heard.pipeline = heard.pipeline or _pipeline_label(event.pipeline)
                try:
                    _write(path, event, heard)
                except (ProtodaskError, OSError) as error:
                    complain(f"The metrics were not written ({error}).")
            case _:
                _hear(event, heard)

    return listen


def _pipeline_label(path: str) -> str:
    # Absolute: two pipelines of one name may be watched on one machine.
    return mask(path if "://" in path else os.path.abspath(path))


def _hear(event: RunEvent, heard: _Heard) -> None:
    match event:
        case StepFresh(step, result, waiting):
            heard.put(step, STEP_PERFORMED, 0)
            heard.put(step, STEP_FAILED, 0)
            if result is not None:
                heard.replace(step, result)
            if waiting is not None:
                heard.put(step, FILES, waiting, state="waiting")
        case StepDone(step, seconds, result):
            heard.put(step, STEP_PERFORMED, 1)
            heard.put(step, STEP_FAILED, 0)
            heard.put(step, STEP_DURATION, seconds)
            _hear_result(step, seconds, result, heard)
        case StepFailed(step, seconds, _, result):
            heard.put(step, STEP_PERFORMED, 1)
            heard.put(step, STEP_FAILED, 1)
            if result is not None:
                _hear_result(step, seconds, result, heard)
        case GateRefused(step):
            heard.put(step, GATE_PASSED, 0)


def _hear_result(step: StepIdentity, seconds: float, result: Result, heard: _Heard) -> None:
    described = result.describe()
    rows = rows_of(described)
    if rows is not None:
        heard.put(step, STEP_ROWS, rows)
        if seconds > 0:
            heard.put(step, STEP_SPEED, rows / seconds)
    heard.replace(step, described)


def _write(path: str, event: RunEnded, heard: _Heard) -> None:
    from protodask.data.places.whole_files import replace_file

    earlier = tuple(_earlier(path, heard.pipeline))
    complete = event.status in ("done", "fresh") and len(heard.figures) >= heard.steps
    samples = (
        *_of_run(event, heard.pipeline, earlier),
        *_kept(earlier, heard, complete),
        *(
            Sample(family.name, labels, value)
            for figures in heard.figures.values()
            for family, values in figures.items()
            for labels, value in values.items()
        ),
    )
    replace_file(path, to_text(FAMILIES, samples))


def _earlier(path: str, pipeline: str) -> Iterator[Sample]:
    """The figures of this pipeline in the file as it is; none if it is none, or another's."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read(MOST_BYTES)
    except OSError:
        return
    names = {family.name for family in FAMILIES}
    for each in from_text(text):
        if each.family in names and each.label("pipeline") == pipeline:
            yield each


def _of_run(event: RunEnded, pipeline: str, earlier: tuple[Sample, ...]) -> Iterator[Sample]:
    labels = {"pipeline": pipeline}
    ended, success = event.time.timestamp(), event.status in SUCCESSES
    yield sample(VERSION, labels | {"version": __version__}, 1)
    for status in get_args(Status):
        if status != "left":
            yield sample(STATUS, labels | {"status": status}, status == event.status)
    yield sample(SUCCESS, labels, success)
    yield sample(ENDED, labels, ended)
    yield sample(DURATION, labels, event.seconds)
    last = [ended] if success else [each.value for each in earlier if each.family == SUCCEEDED.name]
    if last:
        yield sample(SUCCEEDED, labels, last[-1])


def _kept(earlier: tuple[Sample, ...], heard: _Heard, complete: bool) -> Iterator[Sample]:
    """The earlier figures of steps that this run says nothing new of."""
    of_steps = {family.name: family for family in STEP_FAMILIES}
    for each in earlier:
        family, step = of_steps.get(each.family), each.label("step")
        if family is None or step is None or (complete and step not in heard.figures):
            continue
        if family not in heard.figures.get(step, {}):
            yield each
