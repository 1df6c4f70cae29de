"""What a fit tells while it runs and afterwards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protodask.prototypes.solver import Status


@dataclass(frozen=True)
class BatchRecord:
    """How the fit of one batch went."""

    batch: int
    """Number of the batch, from 1."""
    status: Status
    iterations: int
    evaluations: int
    seconds: float
    value: float
    """Objective at the end."""
    gradient_norm: float
    """Largest entry of the projected gradient at the end."""
    active_features: int
    prototypes: int
    candidates: NDArray[np.int64]
    """Row numbers of all candidates, ascending."""
    values: tuple[float, ...] = ()
    """Objective after each iteration: the training curve."""
    held_out: float | None = None
    """Mean log-loss at the end of the rows that were held out; None where none were."""


@dataclass(frozen=True)
class BatchStarted:
    """A batch's candidates are drawn, its training begins."""

    batch: int
    n_batches: int
    """Batches the model will have at the end of the fit."""
    candidates: int


@dataclass(frozen=True)
class IterationDone:
    """The solver finished an iteration of a batch."""

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


@dataclass(frozen=True)
class BatchDone:
    """A batch is part of the model."""

    record: BatchRecord


FitEvent = BatchStarted | IterationDone | BatchDone
Callback = Callable[[FitEvent], None]
