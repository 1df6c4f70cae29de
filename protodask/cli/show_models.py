"""Models as they are after training or calibration, in one line."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from protodask.cli.wording import count, describe_seconds, shorten

if TYPE_CHECKING:
    from protodask.pipeline.results import ModelCalibrated, ModelFitted, ModelPruned, ModelTuned


def summarize_fit(result: ModelFitted | ModelTuned) -> str:
    """What a training left behind, in one line."""
    model = result.model
    seconds = math.fsum(record.seconds for record in result.history)
    return (
        f"The model {shorten(result.path)} has {count(model.n_batches, 'batch', 'batches')} with "
        f"{count(model.n_prototypes, 'prototype')} and uses {len(model.active_features)} of "
        f"{count(model.n_features, 'feature')}; training took {describe_seconds(seconds)}."
    )


def summarize_calibration(result: ModelCalibrated) -> str:
    """What a calibration left behind."""
    found = result.calibration
    return (
        f"The model {shorten(result.path)} has a calibration of {count(found.n_batches, 'batch', 'batches')}, fitted "
        f"to {count(found.rows, 'row')}; --calibrated asks for its probabilities."
    )


def summarize_pruning(result: ModelPruned) -> str:
    """What is left of a model, and what that costs."""
    model, stages = result.pruned.model, result.pruned.stages
    return (
        f"The model {shorten(result.path)} has {count(model.n_prototypes, 'prototype')} of {stages[0].prototypes:,} "
        f"and uses {len(model.active_features)} of {count(model.n_features, 'feature')}. The log-loss of these rows, "
        f"each by all others, is {stages[-1].log_loss:.4g}; it was {stages[0].log_loss:.4g}."
    )
