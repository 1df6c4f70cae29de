"""The best model that a feature budget allows, item by item: which features to compute is decided when one is seen."""

from protodask.budget.costs import CostCurves
from protodask.budget.expansions import Choice, Expand, Expansion, FeatureSet

__all__ = ["Choice", "CostCurves", "Expand", "Expansion", "FeatureSet"]
