"""The best model that a feature budget allows, item by item: which features to compute is decided when one is seen."""

from protodask.budget.building import FailedExpansionWarning, MonotonicityWarning, build_index
from protodask.budget.costs import CostCurves
from protodask.budget.expansions import Choice, Expand, Expansion, FeatureSet
from protodask.budget.index import BudgetIndex, make_index

__all__ = [
    "BudgetIndex",
    "Choice",
    "CostCurves",
    "Expand",
    "Expansion",
    "FailedExpansionWarning",
    "FeatureSet",
    "MonotonicityWarning",
    "build_index",
    "make_index",
]
