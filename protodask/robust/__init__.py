"""Maximum-margin classifiers from features that are known only roughly."""

from protodask.robust.classifier import RobustClassifier
from protodask.robust.config import RobustConfig
from protodask.robust.model import RobustModel
from protodask.robust.persistence import load_robust_model
from protodask.robust.replicates import from_replicates
from protodask.robust.training import RobustRun, fit_robust
from protodask.robust.uncertain_columns import columns_of
from protodask.robust.uncertain_rows import UncertainRows

__all__ = [
    "RobustClassifier",
    "RobustConfig",
    "RobustModel",
    "RobustRun",
    "UncertainRows",
    "columns_of",
    "fit_robust",
    "from_replicates",
    "load_robust_model",
]
