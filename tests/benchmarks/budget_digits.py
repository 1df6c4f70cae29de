"""Feature budgets on digits: eight extractors whose real costs are measured, and accuracy against a budget in seconds.

scikit-learn's digits, each turned, moved and stretched a little, are drawn at 8, 16, 32, 64 or 128 pixels a side. What
is computed of one before it is told which digit it shows is decided by its size and a budget, which is for all the work:
the look-up, the features, and the model. Costs are polynomials of the pixels a side, above all timings (--quantile 1) or
so many of them, and provided for by every method. Methods:

  poly-dom a     the index over what a search with alpha a expanded, taking accuracy for monotone
  poly-dom a, e  the same where features added may lower accuracy by e, the most that was found among all sets
  optimum        the index over all 256 sets
  greedy         sequences of features for seven trade-offs of accuracy and cost, at the median size, followed while time
                 is left; greedy-accuracy and greedy-cost are the one that looks at accuracy or at cost only
  all features   whatever they cost

The black box is scikit-learn's logistic regression on standardised columns, or another (--estimator). `estimated` is its
accuracy in cross-validation, `realised` that on images which nothing was fitted to or timed on. A prediction is within
its budget if all its work was, by the clock of the wall: what else the machine does counts against it.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from protodask.budget.classifier import BudgetedClassifier
from protodask.budget.measuring import MeasuredCosts, measure_costs
from protodask.budget.polynomials import evaluate
from protodask.budget.prediction import Prediction
from protodask.explain.plots import budget_plot
from protodask.prototypes.estimator import PrototypeSetClassifier

if TYPE_CHECKING:
    from benchmarks import _budget_images as drawn
    from benchmarks import _common as common
else:
    import _budget_images as drawn
    import _common as common

Floats = NDArray[np.float64]

ESTIMATORS: dict[str, Callable[[], Any]] = {
    "logistic": lambda: make_pipeline(StandardScaler(), LogisticRegression(C=0.1, tol=1e-3, max_iter=500)),
    "discriminant": lambda: LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.05),
    "prototypes": lambda: PrototypeSetClassifier(n_candidates=200),
}

OPTIMUM, GREEDY, ALL = "optimum", "greedy", "all features"
TRAIN_SHARE = 0.6
LEAST_WITHIN = 0.99
ROUNDING = 1e-9
MILLISECONDS = 1e3


@dataclass(frozen=True)
class Timings:
    """What an extractor takes, and how many timings its curve is above."""

    extractor: str
    columns: int
    accuracy: float
    """Of a model on it alone, cross-validated."""
    milliseconds: dict[int, float]
    """By pixels a side, medians."""
    provided: dict[int, float]
    """What the curve says."""
    coverage: float
    held_out_coverage: float


@dataclass(frozen=True)
class Fitted:
    """What a method needed."""

    method: str
    expanded: int
    entries: int | None
    models: int
    overhead_milliseconds: float
    fit_seconds: float
    largest_shortfall: float
    """Of the estimated accuracy below that of the optimum, of all sizes and many budgets."""


@dataclass(frozen=True)
class Realised:
    """Predictions of all test images under one budget."""

    method: str
    budget_milliseconds: float
    estimated: float
    realised: float
    milliseconds: float
    """Spent, mean."""
    features: float
    """Computed, mean."""
    within: float
    """Share of predictions within the budget."""
    fell_back: float
    by_side: dict[int, float]
    """Accuracy by pixels a side."""


def side_of(image: drawn.Image) -> float:
    """The size of an item: pixels a side, of which costs are polynomials."""
    return float(len(image))


def lonely(classifier: BudgetedClassifier, feature: int) -> float:
    """The accuracy of a model on one feature."""
    (found,) = (one.accuracy for one in classifier.index_.expansions if one.features == frozenset([feature]))
    return float("nan") if found is None else found


def largest_fall(classifier: BudgetedClassifier) -> float:
    """The most that accuracy falls where features are added, over all pairs of sets."""
    known = {one.features: one.accuracy for one in classifier.index_.expansions if one.accuracy is not None}
    return max(accuracy - known[whole] for part, accuracy in known.items() for whole in known if part <= whole)


def make_classifiers(
    images: Sequence[drawn.Image], target: NDArray[np.int64], costs: MeasuredCosts, settings: argparse.Namespace, record: str
) -> Iterator[tuple[str, BudgetedClassifier, float]]:
    """Each method's, fitted, and the seconds that took; an accuracy that one has found is not sought again."""

    def fitted(**method: Any) -> tuple[BudgetedClassifier, float]:
        classifier = BudgetedClassifier(
            ESTIMATORS[settings.estimator](), costs=costs, cost_quantile=settings.quantile, headroom=settings.headroom,
            size=side_of, **method,
        )  # fmt: skip
        began = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            classifier.fit(images, target, drawn.EXTRACTORS, record=record)
        return classifier, time.perf_counter() - began

    whole, seconds = fitted(monotone_error=1.0)
    error = largest_fall(whole)
    yield OPTIMUM, whole, seconds
    for alpha in settings.alphas:
        yield f"poly-dom {alpha:g}", *fitted(alpha=alpha)
        yield f"poly-dom {alpha:g}, {error:.3f}", *fitted(alpha=alpha, monotone_error=error)
    for method in (GREEDY, "greedy-accuracy", "greedy-cost"):
        yield method, *fitted(method=method)
