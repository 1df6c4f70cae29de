"""How good predictions are: exact, weighted metrics of a whole dataset, one pass each, merged and never averaged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protodask._lazy import lazy_names
from protodask.evaluation.auc import AucResult, auc  # at once: its module has the same name

if TYPE_CHECKING:
    from protodask.evaluation.calibration import CalibrationCurve, calibrate_model, calibration_curve
    from protodask.evaluation.calibrator import Calibrator
    from protodask.evaluation.interval import Interval
    from protodask.evaluation.metrics import (
        Scores,
        accuracy,
        balanced_accuracy,
        brier_score,
        confusion_matrix,
        evaluate,
        log_loss,
        roc_auc,
        squared_error,
    )
    from protodask.evaluation.policy import policy_value
    from protodask.evaluation.subsampling import balanced_rates, subsample

_HOMES = {
    "CalibrationCurve": "protodask.evaluation.calibration",
    "Calibrator": "protodask.evaluation.calibrator",
    "Interval": "protodask.evaluation.interval",
    "Scores": "protodask.evaluation.metrics",
    "accuracy": "protodask.evaluation.metrics",
    "balanced_accuracy": "protodask.evaluation.metrics",
    "balanced_rates": "protodask.evaluation.subsampling",
    "brier_score": "protodask.evaluation.metrics",
    "calibrate_model": "protodask.evaluation.calibration",
    "calibration_curve": "protodask.evaluation.calibration",
    "confusion_matrix": "protodask.evaluation.metrics",
    "evaluate": "protodask.evaluation.metrics",
    "log_loss": "protodask.evaluation.metrics",
    "policy_value": "protodask.evaluation.policy",
    "roc_auc": "protodask.evaluation.metrics",
    "squared_error": "protodask.evaluation.metrics",
    "subsample": "protodask.evaluation.subsampling",
}

__all__ = [
    "AucResult",
    "CalibrationCurve",
    "Calibrator",
    "Interval",
    "Scores",
    "accuracy",
    "auc",
    "balanced_accuracy",
    "balanced_rates",
    "brier_score",
    "calibrate_model",
    "calibration_curve",
    "confusion_matrix",
    "evaluate",
    "log_loss",
    "policy_value",
    "roc_auc",
    "squared_error",
    "subsample",
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
