"""The best model that a feature budget allows, item by item: which features to compute is decided when one is seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protodask._lazy import lazy_names

if TYPE_CHECKING:
    from protodask.budget.classifier import BudgetedClassifier
    from protodask.budget.classifier_folder import load_budgeted, save_budgeted
    from protodask.budget.column_folder import load_column_budget, save_column_budget
    from protodask.budget.column_index import ColumnBudget, build_column_budget
    from protodask.budget.expansions import Choice, FailedExpansionWarning
    from protodask.budget.greedy import build_greedy
    from protodask.budget.greedy_index import GreedyIndex
    from protodask.budget.index import BudgetIndex
    from protodask.budget.index_building import MonotonicityWarning, build_index
    from protodask.budget.index_file import load_greedy, load_index, save_greedy, save_index
    from protodask.budget.measuring import MeasuredCosts, measure_costs
    from protodask.budget.noise import Estimate
    from protodask.budget.prediction import Prediction

_HOMES = {
    "BudgetIndex": "protodask.budget.index",
    "BudgetedClassifier": "protodask.budget.classifier",
    "Choice": "protodask.budget.expansions",
    "ColumnBudget": "protodask.budget.column_index",
    "Estimate": "protodask.budget.noise",
    "FailedExpansionWarning": "protodask.budget.expansions",
    "GreedyIndex": "protodask.budget.greedy_index",
    "MeasuredCosts": "protodask.budget.measuring",
    "MonotonicityWarning": "protodask.budget.index_building",
    "Prediction": "protodask.budget.prediction",
    "build_column_budget": "protodask.budget.column_index",
    "build_greedy": "protodask.budget.greedy",
    "build_index": "protodask.budget.index_building",
    "load_budgeted": "protodask.budget.classifier_folder",
    "load_column_budget": "protodask.budget.column_folder",
    "load_greedy": "protodask.budget.index_file",
    "load_index": "protodask.budget.index_file",
    "measure_costs": "protodask.budget.measuring",
    "save_budgeted": "protodask.budget.classifier_folder",
    "save_column_budget": "protodask.budget.column_folder",
    "save_greedy": "protodask.budget.index_file",
    "save_index": "protodask.budget.index_file",
}

__all__ = [
    "BudgetIndex",
    "BudgetedClassifier",
    "Choice",
    "ColumnBudget",
    "Estimate",
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

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
