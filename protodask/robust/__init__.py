"""Maximum-margin classifiers from features that are known only roughly."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protodask._lazy import lazy_names

if TYPE_CHECKING:
    from protodask.robust.classifier import RobustClassifier
    from protodask.robust.config import RobustConfig
    from protodask.robust.model import RobustModel, load_robust_model
    from protodask.robust.replicates import from_replicates
    from protodask.robust.training import RobustRun, fit_robust
    from protodask.robust.uncertain_columns import columns_of
    from protodask.robust.uncertain_rows import UncertainRows

_HOMES = {
    "RobustClassifier": "protodask.robust.classifier",
    "RobustConfig": "protodask.robust.config",
    "RobustModel": "protodask.robust.model",
    "RobustRun": "protodask.robust.training",
    "UncertainRows": "protodask.robust.uncertain_rows",
    "columns_of": "protodask.robust.uncertain_columns",
    "fit_robust": "protodask.robust.training",
    "from_replicates": "protodask.robust.replicates",
    "load_robust_model": "protodask.robust.model",
}

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

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
