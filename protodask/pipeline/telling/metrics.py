"""Figures of a pipeline's latest run, and of what its steps left behind, for those who watch over it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import get_args

from protodask._version import __version__
from protodask.errors import ProtodaskError
from protodask.pipeline.telling.events import SUCCESSES, RunEnded, RunEvent, RunListener, Status, StepOutcome
from protodask.pipeline.telling.figures import FIGURES, FILES, figures_of, rows_of
from protodask.pipeline.telling.open_metrics import Family, Sample, to_text
from protodask.places import mask

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
STEP_PERFORMED = Family(
    "protodask_step_performed", "Whether the latest run that looked at this step did it: 1, or 0 if it was fresh."
)
STEP_FAILED = Family(
    "protodask_step_failed", "Whether this step failed, or was stopped, when it was last begun: 1 or 0."
)
STEP_DURATION = Family(
    "protodask_step_duration_seconds", "How long this step took when it last left something.", "seconds"
)
STEP_ROWS = Family("protodask_step_rows", "Rows that this step dealt with when it was last done.")
STEP_SPEED = Family("protodask_step_rows_per_second", "Those rows by the seconds that the step took.")

RUN_FAMILIES = (VERSION, STATUS, SUCCESS, ENDED, SUCCEEDED, DURATION)
STEP_FAMILIES = (STEP_PERFORMED, STEP_FAILED, STEP_DURATION, STEP_ROWS, STEP_SPEED, *FIGURES)
FAMILIES = (*RUN_FAMILIES, *STEP_FAMILIES)


def run_metrics(path: str, complain: Callable[[str], None]) -> RunListener:
    """A listener that writes the figures of each run that ends to a file, whole, in place of those of the run before.

    Of what this run says nothing new, they are those that are known of earlier ones. That the file cannot be written is
    told to `complain`, and is no error.
    """
    from protodask.data.places.whole_files import check_file_free, replace_file

    check_file_free(path, overwrite=True)

    def listen(event: RunEvent) -> None:
        if not isinstance(event, RunEnded) or event.status == "left":  # the run that is under way writes its own
            return
        try:
            replace_file(path, to_text(FAMILIES, samples_of(event)))
        except (ProtodaskError, OSError) as error:
            complain(f"The metrics were not written ({error}).")

    return listen


def samples_of(end: RunEnded) -> Iterator[Sample]:
    """The figures of a run that has ended so."""
    # Absolute: two pipelines of one name may be watched on one machine.
    labels = {"pipeline": mask(end.pipeline if "://" in end.pipeline else os.path.abspath(end.pipeline))}
    yield VERSION, labels | {"version": __version__}, 1
    for status in get_args(Status):
        if status != "left":
            yield STATUS, labels | {"status": status}, status == end.status
    yield SUCCESS, labels, end.status in SUCCESSES
    yield ENDED, labels, end.time.timestamp()
    if end.known.succeeded is not None:
        yield SUCCEEDED, labels, end.known.succeeded.timestamp()
    yield DURATION, labels, end.seconds
    for outcome in end.known.steps:
        yield from _of_step(outcome, labels | {"step": outcome.step.name})


def _of_step(outcome: StepOutcome, labels: dict[str, str]) -> Iterator[Sample]:
    yield STEP_PERFORMED, labels, outcome.status in ("done", "failed", "interrupted")
    yield STEP_FAILED, labels, outcome.status in ("failed", "interrupted")
    if outcome.seconds is not None:
        yield STEP_DURATION, labels, outcome.seconds
    if outcome.result is not None:
        rows = rows_of(outcome.result)
        if rows is not None:
            yield STEP_ROWS, labels, rows
            if outcome.seconds:
                yield STEP_SPEED, labels, rows / outcome.seconds
        for family, own, value in figures_of(outcome.result):
            yield family, labels | own, value
    if outcome.waiting is not None:
        yield FILES, labels | {"state": "waiting"}, outcome.waiting
