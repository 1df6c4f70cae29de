"""The best model that a feature budget allows, item by item: which features to compute is decided when one is seen."""

from protodask.budget.building import build_index
from protodask.budget.classifier import BudgetedClassifier
from protodask.budget.classifier_folder import load_budgeted, save_budgeted
from protodask.budget.costs import CostCurves
from protodask.budget.expansions import Choice, Expand, Expansion, FeatureSet
from protodask.budget.greedy import build_greedy, make_greedy
from protodask.budget.greedy_index import GreedyIndex, GreedySequence
from protodask.budget.index import BudgetIndex, make_index
from protodask.budget.measuring import MeasuredCosts, measure_costs
from protodask.budget.prediction import Prediction

__all__ = [
    "BudgetIndex",
    "BudgetedClassifier",
    "Choice",
    "CostCurves",
    "Expand",
    "Expansion",
    "FeatureSet",
    "GreedyIndex",
    "GreedySequence",
    "MeasuredCosts",
    "Prediction",
    "build_greedy",
    "build_index",
    "load_budgeted",
    "make_greedy",
    "make_index",
    "measure_costs",
    "save_budgeted",
]
