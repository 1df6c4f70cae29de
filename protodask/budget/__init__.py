"""The best model that a feature budget allows, item by item: which features to compute is decided when one is seen."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from protodask.budget.expansions import Choice, FailedExpansionWarning
from protodask.budget.greedy import build_greedy
from protodask.budget.greedy_file import load_greedy, save_greedy
from protodask.budget.greedy_index import GreedyIndex
from protodask.budget.index import BudgetIndex
from protodask.budget.index_building import MonotonicityWarning, build_index
from protodask.budget.index_file import load_index, save_index

if TYPE_CHECKING:
    from protodask.budget.classifier import BudgetedClassifier
    from protodask.budget.classifier_folder import load_budgeted, save_budgeted
    from protodask.budget.column_folder import load_column_budget, save_column_budget
    from protodask.budget.column_index import ColumnBudget, build_column_budget
    from protodask.budget.measuring import MeasuredCosts, measure_costs
    from protodask.budget.prediction import Prediction

_HOMES = {
    "BudgetedClassifier": "protodask.budget.classifier",
    "ColumnBudget": "protodask.budget.column_index",
    "MeasuredCosts": "protodask.budget.measuring",
    "Prediction": "protodask.budget.prediction",
    "build_column_budget": "protodask.budget.column_index",
    "load_budgeted": "protodask.budget.classifier_folder",
    "load_column_budget": "protodask.budget.column_folder",
    "measure_costs": "protodask.budget.measuring",
    "save_budgeted": "protodask.budget.classifier_folder",
    "save_column_budget": "protodask.budget.column_folder",
}
"""Names imported on first use: an index is built and looked up without scikit-learn."""

__all__ = [
    "BudgetIndex",
    "BudgetedClassifier",
    "Choice",
    "ColumnBudget",
    "FailedExpansionWarning",
    "GreedyIndex",
    "MeasuredCosts",
    "MonotonicityWarning",
    "Prediction",
    "build_column_budget",
    "build_greedy",
    "build_index",
    "load_budgeted",
    "load_column_budget",
    "load_greedy",
    "load_index",
    "measure_costs",
    "save_budgeted",
    "save_column_budget",
    "save_greedy",
    "save_index",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
