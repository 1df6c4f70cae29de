"""What a fit tells while it runs and afterwards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protodask.prototypes.solver import Status


@dataclass(frozen=True)
class StageRecord:
    """How the small steps of a round went; in records of earlier versions, its evaluations of a part of the rows."""

    rows: int
    """Of the sample that steps are taken on."""
    iterations: int
    """Steps."""
    evaluations: int
    """The same."""
    candidates: int | None = None
    """That went on to what followed; None in records of earlier versions."""


@dataclass(frozen=True)
class BatchRecord:
    """How the fit of one round went: a batch, or several that were trained together."""

    batch: int
    """Number of the round, from 1; those of a draw are counted on from those of the draws before."""
    status: Status
    iterations: int
    evaluations: int
    seconds: float
    """Of this run: not what was computed before an interruption and is on record."""
    value: float
    """Objective at the end."""
    gradient_norm: float
    """Largest entry of the projected gradient at the end."""
    active_features: int
    prototypes: int
    candidates: NDArray[np.int64]
    """Row numbers of all candidates, ascending."""
    values: tuple[float, ...] = ()
    """Objective after each iteration: the training curve. It may jump where candidates grow."""
    held_out: float | None = None
    """Mean log-loss of the rows that were held out, as long as they were; None where none were."""
    stages: tuple[StageRecord, ...] = ()
    """Of small steps, before evaluations of all rows, of which all else here is said."""
    on_all_rows: int = 0
    """Of the iterations, those at the end on all rows, with the ones held out among them. The objective is that of
    other rows there, and its values may jump; what is said of the end, but for `held_out`, is said of all rows."""
    batches: int | None = None
    """That were trained together; None in records of earlier versions."""
    by_region: bool = False
    """Whether a class has several, each of a region of the rows, see the module `regions`."""
    kept: bool = True
    """Whether the model has it: not if draws that weigh features like its own lose clearly more on rows held out."""


@dataclass(frozen=True)
class BatchStarted:
    """A round's candidates are drawn, its training begins."""

    batch: int
    n_batches: int
    """Rounds of all draws, and of the model that the fit begins from."""
    candidates: int


@dataclass(frozen=True)
class IterationDone:
    """The solver finished an iteration of a round."""

    batch: int
    iteration: int
    evaluations: int
    value: float
    gradient_norm: float
    active_features: int
    candidates: int
    """Candidates with positive weight."""
    seconds: float
    held_out: float | None = None
    """Mean log-loss of the rows that are held out; None where none are."""
    rows: int | None = None
    """Of a stage, of which all this is said; None of all rows."""


@dataclass(frozen=True)
class BatchDone:
    """A round is part of the model, or of one of its draws."""

    record: BatchRecord


FitEvent = BatchStarted | IterationDone | BatchDone
Callback = Callable[[FitEvent], None]
