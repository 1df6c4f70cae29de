"""How good predictions are: exact, weighted metrics of a whole dataset, one pass each, merged and never averaged."""

from protodask.evaluation.auc import AucResult, auc
from protodask.evaluation.calibration import CalibrationCurve, calibration_curve
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
)
from protodask.evaluation.policy import policy_value
from protodask.evaluation.regression import squared_error
from protodask.evaluation.subsampling import balanced_rates, subsample

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
    "calibration_curve",
    "confusion_matrix",
    "evaluate",
    "log_loss",
    "policy_value",
    "roc_auc",
    "squared_error",
    "subsample",
]
