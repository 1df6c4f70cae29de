"""The step that calibrates a model on rows it was not trained on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from protodask.data import Dataset
from protodask.data.storage import check_free, check_outside, locate
from protodask.engine import Engine, Source
from protodask.evaluation.model_calibration import fit_calibration
from protodask.pipeline.results import ModelCalibrated
from protodask.pipeline.scoring_data import rows_of_step
from protodask.pipeline.steps import CalibrateStep
from protodask.prototypes.fitting import FITS
from protodask.prototypes.model import PrototypeSet
from protodask.prototypes.persistence import CALIBRATION, MODEL, load_model, save_model

SEEN_BEFORE = (
    "The model was trained on these very rows, where it looks better than it is; calibrate it on rows it has not seen."
)


def calibrate(step: CalibrateStep, engine: Engine) -> ModelCalibrated:
    """Write the model with its calibration."""
    model = load_model(step.model)
    model.batch_counts(step.batches)
    where = locate(step.out)
    for read in (step.model, step.data):
        check_outside(where, read)
    check_free(where, step.overwrite, MODEL)
    source, codes = rows_of_step(model, step, engine)
    notes = (SEEN_BEFORE,) if _was_trained_on(model, source) else ()
    calibration = fit_calibration(
        model, source, codes, engine, n_batches=step.batches, n_bins=step.bins, monotone=step.monotone
    )
    provenance = {**model.provenance, CALIBRATION: _entry(source)}
    save_model(replace(model, calibration=calibration, provenance=provenance), where, overwrite=step.overwrite)
    return ModelCalibrated(where, model.classes, calibration, notes)


def _was_trained_on(model: PrototypeSet, source: Source) -> bool:
    fits = model.provenance.get(FITS)
    keys = {fit.get("dataset") for fit in fits if isinstance(fit, Mapping)} if isinstance(fits, list) else set()
    return isinstance(source, Dataset) and source.key in keys


def _entry(source: Source) -> dict[str, Any]:
    """What the provenance says of a calibration."""
    return {
        "dataset": source.key if isinstance(source, Dataset) else None,
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }
