"""The best model that a feature budget allows, item by item: which features to compute is decided when one is seen."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from protodask.budget.costs import CostCurves
from protodask.budget.expansions import Choice, Expand, Expansion, FailedExpansionWarning, FeatureSet
from protodask.budget.greedy import build_greedy, make_greedy
from protodask.budget.greedy_file import load_greedy, save_greedy
from protodask.budget.greedy_index import GreedyIndex, GreedySequence
from protodask.budget.index import BudgetIndex, make_index
from protodask.budget.index_building import MonotonicityWarning, build_index
from protodask.budget.index_file import load_index, save_index

if TYPE_CHECKING:
    from protodask.budget.classifier import BudgetedClassifier
    from protodask.budget.classifier_folder import load_budgeted, save_budgeted
    from protodask.budget.column_folder import BudgetFolder, load_budget, save_budget
    from protodask.budget.column_index import ColumnBudget, budget_index
    from protodask.budget.measuring import MeasuredCosts, measure_costs
    from protodask.budget.prediction import Prediction

_HOMES = {
    "BudgetFolder": "protodask.budget.column_folder",
    "BudgetedClassifier": "protodask.budget.classifier",
    "ColumnBudget": "protodask.budget.column_index",
    "MeasuredCosts": "protodask.budget.measuring",
    "Prediction": "protodask.budget.prediction",
    "budget_index": "protodask.budget.column_index",
    "load_budget": "protodask.budget.column_folder",
    "load_budgeted": "protodask.budget.classifier_folder",
    "measure_costs": "protodask.budget.measuring",
    "save_budget": "protodask.budget.column_folder",
    "save_budgeted": "protodask.budget.classifier_folder",
}
"""Names imported on first use: an index is built and looked up without scikit-learn."""

__all__ = [
    "BudgetFolder",
    "BudgetIndex",
    "BudgetedClassifier",
    "Choice",
    "ColumnBudget",
    "CostCurves",
    "Expand",
    "Expansion",
    "FailedExpansionWarning",
    "FeatureSet",
    "GreedyIndex",
    "GreedySequence",
    "MeasuredCosts",
    "MonotonicityWarning",
    "Prediction",
    "budget_index",
    "build_greedy",
    "build_index",
    "load_budget",
    "load_budgeted",
    "load_greedy",
    "load_index",
    "make_greedy",
    "make_index",
    "measure_costs",
    "save_budget",
    "save_budgeted",
    "save_greedy",
    "save_index",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
