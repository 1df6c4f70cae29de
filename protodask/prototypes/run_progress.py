"""How far a run has come, from its directory alone: whoever can read the files need not reach the driver."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np

from protodask.data.places.bounded import file_status
from protodask.data.places.locations import storage_errors
from protodask.prototypes.runs import HISTORY_FILE, RunDirectory, read_arrays, read_log, read_run

DRIVER_LOG = ".driver.log"
"""Where a detached driver writes. Hidden, because a folder that has other files in it is no place for a new run."""

LOG_NAME = re.compile(r"batch-([0-9]{1,9})-(rows-([0-9]{1,12})|(?:grown-|whole-)?(?:float32|float64))\.log", re.ASCII)
"""Of runs of versions before 0.2 there are logs of parts of the rows, too."""

STEPS_NAME = re.compile(r"batch-([0-9]{1,9})-steps-([0-9]{1,9})\.arrays", re.ASCII)

STEPS = "steps"
"""The stage of small steps, which comes before the others."""


@dataclass(frozen=True)
class StageProgress:
    """The evaluations of one batch on a part of the rows, or on all of them in one precision."""

    batch: int
    """Number of the batch in the model, from 1."""
    stage: str
    """Precision of the kernel on all rows: float64 follows float32 where rounding hid the last descent. With "grown-"
    it is that of more candidates, with "whole-" that of the end, on the rows held out as well. Before, small "steps" on
    a part of the rows; in earlier versions evaluations of it, such as rows-8192."""
    evaluations: int
    """On record; of small steps, how many were taken."""
    value: float | None
    """Objective of the last evaluation, which may be a step too long that the solver takes back."""
    lowest: float | None
    """Lowest objective so far."""
    recorded: datetime
    """When the last evaluation was written down, in UTC."""


@dataclass(frozen=True)
class RunProgress:
    """How far a run has come."""

    finished: bool
    n_batches: int | None
    """Batches that the run adds to its model in all."""
    stages: tuple[StageProgress, ...]
    """In the order in which they are trained; a stage without a whole evaluation is none."""

    @property
    def current(self) -> StageProgress | None:
        """The stage that the run is at, or ended with: the one last written down."""
        return max(reversed(self.stages), key=lambda stage: stage.recorded, default=None)

    @property
    def evaluations(self) -> int:
        """Evaluations on record, of all batches."""
        return sum(stage.evaluations for stage in self.stages)

    @property
    def position(self) -> int | None:
        """The how many-th of its batches the run is at: it may have begun from a model that had some."""
        return len({stage.batch for stage in self.stages}) or None

    def describe(self) -> dict[str, Any]:
        """Plain values, for files."""
        current = self.current
        return {
            "batch": None if current is None else current.batch,
            "position": self.position,
            "of_batches": self.n_batches,
            "stage": None if current is None else current.stage,
            "evaluations": self.evaluations,
            "stage_evaluations": 0 if current is None else current.evaluations,
            "last_value": None if current is None else current.value,
            "lowest_value": None if current is None else current.lowest,
            "last_recorded": None if current is None else current.recorded.isoformat(timespec="seconds"),
        }


def read_progress(path: str) -> RunProgress:
    """How far the run in the directory `path` has come. A log counts up to its first torn or damaged record."""
    record = read_run(path)
    config = record.get("config")
    wanted = _batches_of(config) if isinstance(config, dict) else None
    with storage_errors(path, "reading"):
        names = os.listdir(path)
    logs = [name for name in map(LOG_NAME.fullmatch, names) if name]
    logs.sort(key=lambda name: (int(name[1]), float(name[3] or "inf"), name[2]))
    steps: dict[int, list[int]] = {}
    for name in filter(None, map(STEPS_NAME.fullmatch, names)):
        steps.setdefault(int(name[1]), []).append(int(name[2]))
    directory = RunDirectory.existing(path)
    stages = [_read_stage(directory, name[0], int(name[1]), name[2]) for name in logs]
    stages += [_read_steps(directory, batch, taken) for batch, taken in steps.items()]
    stages.sort(key=lambda stage: (stage.batch, stage.stage != STEPS))
    return RunProgress(
        finished=os.path.exists(os.path.join(path, HISTORY_FILE)),
        n_batches=wanted,
        stages=tuple(stage for stage in stages if stage.evaluations),
    )


def _batches_of(config: Mapping[str, Any]) -> int | None:
    """Rounds of all draws."""
    counts = [config.get("n_batches"), config.get("n_draws", 1)]
    return math.prod(counts) if all(type(count) is int for count in counts) else None


def _read_steps(directory: RunDirectory, batch: int, taken: Sequence[int]) -> StageProgress:
    """The parts of the way on record."""
    values: list[float] = []
    done, recorded = 0, datetime.fromtimestamp(0, UTC)
    for number in sorted(taken):
        name = f"batch-{batch}-{STEPS}-{number}.arrays"
        file = os.path.join(directory.path, name)
        with storage_errors(file, "reading"):
            arrays = read_arrays(file, directory.seal_of(name))
            if arrays is None or arrays.get("value", np.zeros(0)).shape != (1,):
                break
            recorded = datetime.fromtimestamp(file_status(directory.path, name).st_mtime, UTC)
        values.append(float(arrays["value"][0]))
        done = number
    return _progress(batch, STEPS, done, values, recorded)


def _read_stage(directory: RunDirectory, name: str, batch: int, stage: str) -> StageProgress:
    file = os.path.join(directory.path, name)
    with storage_errors(file, "reading"):
        recorded = datetime.fromtimestamp(file_status(directory.path, name).st_mtime, UTC)
        values = [entry.evaluation.value for entry in read_log(file, directory.seal_of(name))]
    return _progress(batch, stage, len(values), values, recorded)


def _progress(batch: int, stage: str, done: int, values: Sequence[float], recorded: datetime) -> StageProgress:
    value, lowest = (values[-1], min(values)) if values else (None, None)
    return StageProgress(batch, stage, done, value, lowest, recorded)
