"""How good predictions are: exact, weighted metrics of a whole dataset, one pass each, merged and never averaged."""

from protodask.evaluation.calibration import CalibrationCurve, calibration_curve
from protodask.evaluation.calibrator import Calibrator
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

__all__ = [
    "CalibrationCurve",
    "Calibrator",
    "Scores",
    "accuracy",
    "balanced_accuracy",
    "brier_score",
    "calibration_curve",
    "confusion_matrix",
    "evaluate",
    "log_loss",
    "roc_auc",
]
