"""Maximum-margin classifiers from features that are known only roughly."""

from protodask.robust.classifier import RobustClassifier
from protodask.robust.uncertain_rows import UncertainRows

__all__ = ["RobustClassifier", "UncertainRows"]
