"""Calibration of a model: splines for its probabilities, kept with it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from protodask.data.format.schema import FEATURES
from protodask.engine import Block, EngineLike, Source, open_engine
from protodask.errors import InputError
from protodask.evaluation.control_points import ScoredRows, SplineSettings, class_rows, fit_splines
from protodask.evaluation.outcomes import predicted_outcomes
from protodask.prototypes.model import PrototypeSet
from protodask.prototypes.scoring import predict_features
from protodask.prototypes.splines import SplineCalibration


def fit_calibration(
    model: PrototypeSet,
    source: Source,
    codes: NDArray[np.int64],
    engine: EngineLike = None,
    *,
    n_batches: int | None = None,
    n_bins: int = SplineSettings.n_bins,
    monotone: bool = SplineSettings.monotone,
) -> SplineCalibration:
    """A calibration of the first `n_batches` batches of a model, fitted to rows that it was not trained on.

    `source` has features, targets and, if rows are weighted, `weight` or `inclusion`; `codes` are the model's classes
    of its target codes. `n_bins` and `monotone` are those of `Calibrator`. A few passes of bounded memory: nothing is
    stored in between, so the model is computed in each. A calibration that the model has plays no part.
    """
    settings = SplineSettings(n_bins, monotone)
    (count,) = model.batch_counts(n_batches)
    if source.layout.n_rows == 0:
        raise InputError("no-rows", "There are no rows to calibrate with.", "Give rows of at least two classes.")
    raw = replace(model, calibration=None)
    with open_engine(engine) as opened:
        fitted = fit_splines(opened, source, settings, _read_model_rows, opened.share(raw), codes, count)
        opened.forget(source)
    return SplineCalibration(
        splines=fitted.splines,
        n_batches=count,
        n_bins=int(n_bins),
        monotone=bool(monotone),
        rows=fitted.rows,
        weight=fitted.weight,
    )


def calibrate_model(
    model: PrototypeSet,
    source: Source,
    codes: NDArray[np.int64],
    engine: EngineLike = None,
    *,
    n_batches: int | None = None,
    n_bins: int = SplineSettings.n_bins,
    monotone: bool = SplineSettings.monotone,
) -> PrototypeSet:
    """The model with the calibration of `fit_calibration`, in place of one that it may have had."""
    calibration = fit_calibration(model, source, codes, engine, n_batches=n_batches, n_bins=n_bins, monotone=monotone)
    return replace(model, calibration=calibration)


def _read_model_rows(block: Block, model: PrototypeSet, codes: NDArray[np.int64], n_batches: int) -> ScoredRows:
    ((probability, _),) = predict_features(block[FEATURES.name], model, [n_batches])
    return class_rows(predicted_outcomes(block, probability, codes))
