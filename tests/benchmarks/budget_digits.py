"""Feature budgets on digits: eight extractors whose real costs are measured, and accuracy against a budget in seconds.

scikit-learn's digits, each turned, moved and stretched a little, are drawn at 8, 16, 32, 64 or 128 pixels a side. What
is computed of one before it is told which digit it shows is decided by its size and a budget, which is for all the
work: the look-up, the features, and the model. Costs are polynomials of the pixels a side that lie above all timings
(--quantile 1), and are provided for by every method. Methods:

  poly-dom a     the index over what a search with alpha a expanded, taking accuracy for monotone
  poly-dom a, e  the same where features added may lower accuracy by e, the most that was found among all sets
  optimum        the index over all 256 sets
  greedy         sequences of features for seven trade-offs of accuracy and cost, at the median size, each followed
                 while time is left; greedy-accuracy and greedy-cost are the one that looks at one of both only
  all features   whatever they cost

The black box is scikit-learn's logistic regression on standardised columns, or another (--estimator). `estimated` is
its accuracy in cross-validation, `realised` that on images which nothing was fitted to or timed on. A prediction is
within its budget if all its work was; of each budget all methods keep back the same for what is not features, the
median of what they measured. Time is that on the wall, so that whatever else the machine does counts against it, or
with --clock processor that of the thread which predicts.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from protodask.budget import BudgetIndex
from protodask.budget.classifier import BudgetedClassifier
from protodask.budget.expansions import FeatureSet
from protodask.budget.measuring import MeasuredCosts, measure_costs
from protodask.budget.polynomials import evaluate
from protodask.engine import one_blas_thread
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
    "prototypes": lambda: PrototypeSetClassifier(recipe="source", n_candidates=200),
}

OPTIMUM, GREEDY, ALL = "optimum", "greedy", "all features"
CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "processor": time.thread_time}
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


@dataclass(frozen=True)
class Outcome:
    """One prediction."""

    label: int
    estimated: float
    spent: float
    features: int
    fell_back: bool


Predict = Callable[[drawn.Image, float], Outcome]


def side_of(image: drawn.Image) -> float:
    """The size of an item: pixels a side, of which costs are polynomials."""
    return float(len(image))


def expanded_by(classifier: BudgetedClassifier) -> dict[FeatureSet, float]:
    """The accuracies of the sets that a search expanded."""
    assert isinstance(classifier.index_, BudgetIndex)
    return {one.features: one.accuracy for one in classifier.index_.expansions if one.accuracy is not None}


def accuracy_of(classifier: BudgetedClassifier, features: FeatureSet) -> float:
    """The accuracy of a model on some features, NaN where there is none."""
    return expanded_by(classifier).get(features, float("nan"))


def largest_fall(classifier: BudgetedClassifier) -> float:
    """The most that accuracy falls where features are added, over all pairs of sets."""
    known = expanded_by(classifier)
    return max(accuracy - known[whole] for part, accuracy in known.items() for whole in known if part <= whole)


def make_classifiers(
    images: Sequence[drawn.Image],
    target: NDArray[np.int64],
    costs: MeasuredCosts,
    settings: argparse.Namespace,
    record: str,
) -> Iterator[tuple[str, BudgetedClassifier, float]]:
    """Each method's, fitted, and the seconds that took; an accuracy that one has found is not sought again."""

    def fitted(**method: Any) -> tuple[BudgetedClassifier, float]:
        classifier = BudgetedClassifier(
            ESTIMATORS[settings.estimator](), costs=costs, cost_quantile=settings.overhead_quantile, size=side_of,
            clock=CLOCKS[settings.clock], **method,
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


def estimated(classifier: BudgetedClassifier, size: float, budgets: Floats) -> Floats:
    """The accuracy of what is looked up, NaN where the budget does not pay for the overhead."""
    left = budgets - classifier.overhead_
    numbers = classifier.index_.choose(np.full(len(left), size), np.maximum(left, 0.0))
    accuracy = np.append(classifier.index_.accuracies, np.nan)[numbers]
    return np.where(left >= 0, accuracy, np.nan)


def shortfall(classifier: BudgetedClassifier, optimum: BudgetedClassifier) -> float:
    """The most by which a method's choice is estimated below the best of all sets that cost no more."""
    worst = 0.0
    for side in drawn.RESOLUTIONS:
        prices = evaluate(optimum.index_.curves.coefficients, side)
        budgets = np.full(400, side), np.geomspace(prices.min(), prices.sum(), 400)
        best, found = (one.index_.accuracies[one.index_.choose(*budgets)] for one in (optimum, classifier))
        worst = max(worst, float((best - found).max()))
    return worst


def as_fitted(name: str, classifier: BudgetedClassifier, seconds: float, optimum: BudgetedClassifier) -> Fitted:
    """The record of a fit."""
    index = classifier.index_
    return Fitted(
        name, index.expanded, index.n_entries, len(classifier.models_), classifier.overhead_ * MILLISECONDS, seconds,
        shortfall(classifier, optimum),
    )  # fmt: skip


def within_budget(classifier: BudgetedClassifier) -> Predict:
    """Predictions of a method."""

    def predict(image: drawn.Image, budget: float) -> Outcome:
        found = classifier.predict_item(image, budget)
        return Outcome(int(found.label), found.accuracy, found.spent, len(found.computed), found.fell_back)

    return predict


def with_all_features(train: drawn.Digits, accuracy: float, settings: argparse.Namespace) -> Predict:
    """Predictions that look at no budget."""
    clock = CLOCKS[settings.clock]

    def row(image: drawn.Image) -> Floats:
        return np.concatenate([extractor(image) for extractor in drawn.EXTRACTORS.values()])

    model = ESTIMATORS[settings.estimator]().fit(np.stack([row(image) for image in train.images]), train.target)

    def predict(image: drawn.Image, budget: float) -> Outcome:
        start = clock()
        with one_blas_thread():
            label = model.classes_[model.predict_proba(row(image)[None, :]).argmax()]
        return Outcome(int(label), accuracy, clock() - start, len(drawn.EXTRACTORS), False)

    return predict


def predict_all(methods: dict[str, Predict], test: drawn.Digits, budget: float) -> dict[str, list[Outcome]]:
    """Every test image by every method, in turns."""
    found: dict[str, list[Outcome]] = {name: [] for name in methods}
    for image in test.images:
        for name, predict in methods.items():
            found[name].append(predict(image, budget))
    return found


def as_realised(name: str, outcomes: Sequence[Outcome], test: drawn.Digits, budget: float) -> Realised:
    """Means over the predictions under one budget."""
    right = np.array([one.label for one in outcomes]) == test.target
    sides = test.sides
    return Realised(
        name,
        budget * MILLISECONDS,
        float(np.mean([one.estimated for one in outcomes])),
        float(right.mean()),
        float(np.mean([one.spent for one in outcomes])) * MILLISECONDS,
        float(np.mean([one.features for one in outcomes])),
        float(np.mean([one.spent <= budget for one in outcomes])),
        float(np.mean([one.fell_back for one in outcomes])),
        {side: float(right[sides == side].mean()) for side in drawn.RESOLUTIONS if (sides == side).any()},
    )


def as_timings(costs: MeasuredCosts, optimum: BudgetedClassifier) -> list[Timings]:
    """The record of the costs, extractor by extractor."""
    sides = np.unique(costs.sizes).astype(np.int64)
    found = []
    for row, name in enumerate(costs.feature_names):
        medians = {int(side): float(np.median(costs.seconds[row, costs.sizes == side])) for side in sides}
        found.append(
            Timings(
                name,
                len(drawn.EXTRACTORS[name](np.zeros((8, 8)))),
                accuracy_of(optimum, frozenset([row])),
                {side: taken * MILLISECONDS for side, taken in medians.items()},
                {int(side): float(evaluate(costs.costs[row], float(side))) * MILLISECONDS for side in sides},
                float(costs.coverage[row]),
                float(costs.held_out_coverage[row]),
            )
        )
    return found


def show_timings(timings: Sequence[Timings]) -> None:
    """A table of them."""
    ends = (min(drawn.RESOLUTIONS), max(drawn.RESOLUTIONS))
    columns = ("extractor", "columns", "accuracy", *(f"ms, {side} px" for side in ends),
               *(f"curve, {side} px" for side in ends), "coverage", "held out")  # fmt: skip
    table = common.Table("cost curves, in milliseconds by pixels a side", columns, first_width=14)
    for one in timings:
        table.row(one.extractor, one.columns, one.accuracy, *(one.milliseconds.get(side) for side in ends),
                  *(one.provided.get(side) for side in ends), one.coverage, one.held_out_coverage)  # fmt: skip


def show_fitted(fitted: Sequence[Fitted]) -> None:
    """A table of them."""
    columns = ("method", "sets expanded", "entries", "models", "overhead ms", "fit s", "shortfall")
    table = common.Table("what a method needs, and how far its choices are below the optimum", columns)
    for one in fitted:
        table.row(one.method, one.expanded, one.entries, one.models, one.overhead_milliseconds, one.fit_seconds,
                  one.largest_shortfall)  # fmt: skip


COLUMNS = ("method", "budget ms", "estimated", "realised", "spent ms", "features", "within", "fell back")


def plot(path: str, classifiers: dict[str, BudgetedClassifier], realised: Sequence[Realised], budgets: Floats) -> None:
    """Estimated accuracy as lines, and what was realised as marks."""
    measured = {
        name: [
            (side, one.budget_milliseconds, accuracy)
            for one in realised
            if one.method == name
            for side, accuracy in one.by_side.items()
        ]
        for name in classifiers
    }

    def line(classifier: BudgetedClassifier) -> Callable[[float, Floats], Floats]:
        return lambda size, at: estimated(classifier, size, at / MILLISECONDS)

    methods = {name: line(classifier) for name, classifier in classifiers.items()}
    ends = (float(budgets[0]) * MILLISECONDS / 1.2, float(budgets[-1]) * MILLISECONDS * 1.2)
    figure = budget_plot(
        methods, drawn.RESOLUTIONS, ends, measured=measured, size_name="pixels", budget_name="milliseconds"
    )
    figure.savefig(path, dpi=150)
    print(f"\nDrawn to {path}.")


def checks_of(realised: Sequence[Realised], fitted: Sequence[Fitted]) -> list[common.Check]:
    """What must hold."""
    provided = [one for one in realised if one.method == OPTIMUM or one.method.startswith("poly-dom")]
    checks = [
        common.Check(
            "predictions within the budget, index", float(np.mean([one.within for one in provided])), ">=", LEAST_WITHIN
        )
    ]
    for one in fitted:
        if "," in one.method:
            alpha = float(one.method.removeprefix("poly-dom ").partition(",")[0])
            checks.append(
                common.Check(f"{one.method}: below the optimum", one.largest_shortfall, "<=", alpha + ROUNDING)
            )
    return checks


def main() -> None:
    parser = common.make_parser(__doc__)
    parser.add_argument("--images", type=common.positive, default=1797, help="of which 40 per cent are to test with")
    parser.add_argument("--estimator", choices=ESTIMATORS, default="logistic", help="the black box")
    parser.add_argument("--alphas", type=common.fractions, default=[0.0, 0.01], help="of poly-dom")
    parser.add_argument("--budgets", type=common.positive, default=8, help="how many, evenly spread on a log axis")
    parser.add_argument("--repeats", type=common.positive, default=3, help="timings of an extractor on an image")
    parser.add_argument("--quantile", type=float, default=1.0, help="of the timings that costs provide for")
    parser.add_argument("--headroom", type=float, default=1.0, help="factor on top of it")
    parser.add_argument("--overhead-quantile", type=float, default=0.999, help="the same of the overhead, rehearsed")
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="of which budgets are seconds")
    parser.add_argument("--seed", type=int, default=0, help="of the drawing of the images")
    parser.add_argument("--plot", metavar="FILE.png", help="also draw accuracy against budget into this file")
    settings = parser.parse_args()
    measured_on = common.start("budget_digits")
    digits = drawn.draw_digits(settings.seed, settings.images)
    cut = int(TRAIN_SHARE * len(digits.images))
    train = drawn.Digits(digits.images[:cut], digits.target[:cut])
    test = drawn.Digits(digits.images[cut:], digits.target[cut:])
    for image in train.images:
        for extractor in drawn.EXTRACTORS.values():
            extractor(image)
    costs = measure_costs(
        drawn.EXTRACTORS, train.images, size=side_of, repeats=settings.repeats, quantile=settings.quantile,
        headroom=settings.headroom, clock=CLOCKS[settings.clock],
    )  # fmt: skip
    classifiers: dict[str, BudgetedClassifier] = {}
    fitted: list[Fitted] = []
    with common.scratch(None) as folder:
        record = os.path.join(folder, "expansions")
        for name, classifier, seconds in make_classifiers(train.images, train.target, costs, settings, record):
            classifiers[name] = classifier
            fitted.append(as_fitted(name, classifier, seconds, classifiers[OPTIMUM]))
    timings = as_timings(costs, classifiers[OPTIMUM])
    show_timings(timings)
    show_fitted(fitted)
    overhead = common.median([classifier.overhead_ for classifier in classifiers.values()])
    for classifier in classifiers.values():
        classifier.serve(replace(classifier.predictor, overhead=overhead))
    methods = {name: within_budget(classifier) for name, classifier in classifiers.items()}
    everything = frozenset(range(len(drawn.EXTRACTORS)))
    methods[ALL] = with_all_features(train, accuracy_of(classifiers[OPTIMUM], everything), settings)

    prices = evaluate(classifiers[OPTIMUM].index_.curves.coefficients, float(max(drawn.RESOLUTIONS)))
    # From what buys a feature of any image to what buys all features of any.
    budgets = np.geomspace(overhead + prices.min(), overhead + prices.sum(), settings.budgets)
    realised: list[Realised] = []
    table = common.Table(f"predictions for {len(test.images)} test images", COLUMNS, first_width=22)
    for budget in budgets.tolist():
        for name, outcomes in predict_all(methods, test, budget).items():
            one = as_realised(name, outcomes, test, budget)
            realised.append(one)
            table.row(name, one.budget_milliseconds, one.estimated, one.realised, one.milliseconds, one.features,
                      one.within, one.fell_back)  # fmt: skip
    if settings.plot is not None:
        plot(settings.plot, classifiers, realised, budgets)
    results = [*timings, *fitted, *realised]
    common.finish("budget_digits", settings, measured_on, results, checks_of(realised, fitted))


if __name__ == "__main__":
    main()
