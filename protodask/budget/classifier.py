"""A classifier that computes, for each item, the features that a budget is best spent on."""

from __future__ import annotations

import hashlib
import math
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.validation import check_is_fitted

from protodask.budget.costs import CostCurves
from protodask.budget.expanding import expander
from protodask.budget.expansions import Expand, require_models, warn_of_failures
from protodask.budget.greedy import TradeOff, checked_sequences, make_greedy
from protodask.budget.greedy_index import GreedyIndex
from protodask.budget.index import BudgetIndex
from protodask.budget.index_building import SearchSettings, index_exploration, search_sets, warn_of_assumption
from protodask.budget.lattice import check_exploration
from protodask.budget.matrix_models import MatrixModels, fit_all, make_folds
from protodask.budget.measuring import (
    Clock,
    Extractor,
    MeasuredCosts,
    as_coefficients,
    check_extractors,
    check_measuring,
    check_quantile,
    costs_of,
    extract,
    item_size,
    sizes_of,
)
from protodask.budget.prediction import Prediction, Predictor, look_up_all, measure_overhead
from protodask.budget.recorded import recorded
from protodask.data.tables.frames import array_of_names
from protodask.engine import EngineLike, open_engine
from protodask.engine.records import Floats
from protodask.errors import InputError
from protodask.prototypes.estimator import PrototypeSetClassifier
from protodask.prototypes.estimator_rows import checked_labels, class_codes, labels_given

Method = Literal["index", "greedy-index", "greedy", "greedy-accuracy", "greedy-cost"]
METHODS: tuple[Method, ...] = get_args(Method)

DEFAULT_CANDIDATES = 200
"""Of the default estimator: enough to tell sets of features apart, and a fit of some thousand rows takes a second."""

ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


class BudgetedClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """The most accurate model within a budget, item by item: which features to compute is decided when one is seen.

    X is a sequence of items of any kind, and features are functions of an item. `fit` measures what they cost by size
    of item and how accurate models on sets of them are; `predict_proba(item, budget)` looks up the best set for the
    item's size and the budget, computes only that, and changes to another when costs turn out otherwise. A budget is
    for all the work on an item, in seconds unless `timed` is False.

    Parameters
    ----------
    estimator
        Any scikit-learn classifier with `predict_proba`; None is a `PrototypeSetClassifier` with 200 candidates.
    method
        "index" looks up the best of all sets within `alpha`, "greedy-index" the best of those that greedy sequences
        come by; "greedy" follows these sequences, and "greedy-accuracy" and "greedy-cost" the one that looks at
        accuracy or at cost only.
    alpha, monotone_error
        Of "index": how much accuracy may be given up for fewer fits, and by how much features may lower accuracy.
    diminishing_returns
        Of "index": whether features add less to a set the larger it is, which saves fits; see
        `protodask.budget.build_index`.
    trade_offs
        Of "greedy" and "greedy-index": accuracy per second, see `protodask.budget.build_greedy`; None chooses them.
    costs
        What features cost, if it is known: `MeasuredCosts`, or coefficients by size, constant first, as an array
        (features, degree + 1) or by name. None measures it while the features of X are computed.
    cost_quantile, cost_degree, cost_repeats, headroom
        Of measuring: the quantile of timings that is provided for (1 is the worst seen), the degree of the polynomials,
        how often each item is timed, and a factor on top. At quantile 1 one pause of the machine can make a feature
        unaffordable, see `protodask.budget.measure_costs`.
    overhead_quantile
        Of what predictions take besides features: kept back of every budget, with the same `headroom`.
    size
        A function from an item to its size; None takes the elements of an array, else the length, else 1.
    folds
        Of the cross-validation that says how accurate a set is, stratified by class.
    most_fits
        The most sets to expand, each a cross-validation; None for as many as it takes.
    random_state
        Seed of the folds.
    timed
        Whether budgets are seconds. If not they are in the unit of `costs`, and what a prediction spends is the sum of
        the costs of the features it computes.
    any_time
        Whether to answer to real costs: to fall back when a feature took too long, and to go on along a greedy
        sequence while time is left. Otherwise what was looked up is computed, however long it takes.
    engine
        Where sets are fitted, several at once: None for threads of this process, an `Engine`, a `distributed.Client`,
        or a scheduler's address.
    clock
        What tells the time in seconds.

    Attributes
    ----------
    classes_
        The classes.
    feature_names_
        The names of the extractors, in the order of the numbers that sets of features hold.
    costs_
        The `MeasuredCosts`, or `CostCurves` where costs were given.
    index_
        The `BudgetIndex` or `GreedyIndex`.
    models_
        The model of each set that the index answers with.
    overhead_
        Seconds of a prediction that do not go into features: they are kept back of every budget.
    """

    def __init__(
        self,
        estimator: Any = None,
        *,
        method: Method = "index",
        alpha: float = 0.0,
        monotone_error: float = 0.0,
        diminishing_returns: bool = False,
        trade_offs: Sequence[TradeOff] | None = None,
        costs: MeasuredCosts | Mapping[str, ArrayLike] | ArrayLike | None = None,
        cost_quantile: float = 1.0,
        cost_degree: int = 2,
        cost_repeats: int = 1,
        headroom: float = 1.0,
        overhead_quantile: float = 0.99,
        size: Callable[[Any], float] | None = None,
        folds: int = 5,
        most_fits: int | None = None,
        random_state: int = 0,
        timed: bool = True,
        any_time: bool = True,
        engine: EngineLike = None,
        clock: Clock = time.perf_counter,
    ) -> None:
        self.estimator = estimator
        self.method = method
        self.alpha = alpha
        self.monotone_error = monotone_error
        self.diminishing_returns = diminishing_returns
        self.trade_offs = trade_offs
        self.costs = costs
        self.cost_quantile = cost_quantile
        self.cost_degree = cost_degree
        self.cost_repeats = cost_repeats
        self.headroom = headroom
        self.overhead_quantile = overhead_quantile
        self.size = size
        self.folds = folds
        self.most_fits = most_fits
        self.random_state = random_state
        self.timed = timed
        self.any_time = any_time
        self.engine = engine
        self.clock = clock

    def __sklearn_clone__(self) -> BudgetedClassifier:
        # The engine is where to compute, not what: clones share it, and a connection cannot be copied.
        estimator = None if self.estimator is None else clone(self.estimator)
        return type(self)(**self.get_params(deep=False) | {"estimator": estimator})

    def fit(
        self,
        X: Sequence[Any],
        y: ArrayLike,
        extractors: Mapping[str, Extractor],
        groups: ArrayLike | None = None,
        record: str | os.PathLike[str] | None = None,
    ) -> BudgetedClassifier:
        """Compute all features of all items, expand sets of features, index them, and fit the models to answer with.

        An extractor makes a number of an item, or a vector of the same length for each. Items of the same of `groups`
        are never on both sides of a fold. `record` names a file in which expansions are kept as they end: interrupted,
        the same call goes on from there, once the features are computed again.
        """
        self._check(extractors)
        names = tuple(extractors)
        curves = None if self.costs is None else CostCurves.of(as_coefficients(self.costs, names))
        _check_items(X)
        classes, codes = checked_labels(y, len(X))
        folds = make_folds(codes, self.folds, self.random_state, groups, classes.tolist())
        size = item_size if self.size is None else self.size
        sizes = sizes_of(X, size)
        extracted = extract(extractors, X, self.cost_repeats, self.clock)
        measured = self.costs if isinstance(self.costs, MeasuredCosts) else None
        if curves is None:
            measured = costs_of(
                names,
                sizes,
                extracted.seconds,
                quantile=self.cost_quantile,
                degree=self.cost_degree,
                headroom=self.headroom,
            )
            curves = CostCurves.of(measured.costs)
        ends = np.cumsum(extracted.widths)
        spans = tuple(slice(int(end) - width, int(end)) for end, width in zip(ends, extracted.widths, strict=True))
        # As numbers: texts are sorted once, not for each set of features.
        belonging = None if groups is None else np.unique(array_of_names(groups), return_inverse=True)[1]
        box = MatrixModels(self._estimator(), extracted.matrix, codes.astype(np.int64), spans, folds, belonging)
        with open_engine(self.engine) as engine:
            with recorded(expander(box.accuracy, engine), record, {"rows": _key(box)}) as expand:
                index = self._index(expand, curves, names, float(np.median(sizes)))
            if not any(index.sets):
                require_models(index.failures)
            models = fit_all(box, index.answers, engine)
        warn_of_failures(index.failures, index.expanded, stacklevel=2)
        if isinstance(index, BudgetIndex):
            warn_of_assumption(index, stacklevel=2)
        predictor = Predictor(
            functions=tuple(extractors.values()),
            widths=extracted.widths,
            index=index,
            models=models,
            shares=box.shares(),
            classes=classes,
            overhead=0.0,
            size=size,
            timed=self.timed,
            any_time=self.any_time,
            clock=self.clock,
        )
        overhead = measure_overhead(predictor, extracted.matrix, spans, sizes, self.overhead_quantile) * self.headroom
        self.costs_ = curves if measured is None else measured
        return self.serve(replace(predictor, overhead=overhead if self.timed else 0.0))

    def serve(self, predictor: Predictor) -> BudgetedClassifier:
        """Predict with what is given, as if it came from `fit`."""
        predictor.warm_up()
        self._predictor = predictor
        self.classes_: NDArray[Any] = predictor.classes
        self.feature_names_ = predictor.index.feature_names
        self.index_ = predictor.index
        self.models_ = dict(predictor.models)
        self.overhead_ = predictor.overhead
        return self

    @property
    def predictor(self) -> Predictor:
        """All that a prediction needs."""
        check_is_fitted(self, "index_")
        return self._predictor

    def predict_item(self, item: Any, budget: float) -> Prediction:
        """What is said of one item, which features that took, and what they cost."""
        return self.predictor.predict(item, budget)

    def predict_proba(self, item: Any, budget: float) -> Floats:
        """Probabilities of the classes for one item, (K,)."""
        return self.predict_item(item, budget).probabilities

    def predict(self, item: Any, budget: float) -> Any:
        """The most probable class of one item."""
        return self.predict_item(item, budget).label

    def predict_many(self, items: Sequence[Any], budgets: ArrayLike) -> list[Prediction]:
        """Predictions for items in turn, each with a budget of its own or all with the same; one look-up for all."""
        predictor = self.predictor
        _check_items(items)
        each, numbers = look_up_all(predictor, items, budgets)
        return [
            predictor.predict(item, budget, number)
            for item, budget, number in zip(items, each.tolist(), numbers.tolist(), strict=True)
        ]

    def score(self, X: Sequence[Any], y: ArrayLike, budgets: ArrayLike = math.inf) -> float:
        """The share of items whose most probable class is right, within budgets."""
        _check_items(X)
        labels = labels_given(y, len(X))
        if len(X) == 0:
            raise InputError("no-rows", "There are no items.", "Give items, and a label for each.")
        class_codes(labels)  # refuses what is missing
        said = np.array([prediction.label for prediction in self.predict_many(X, budgets)])
        return float((said == labels).mean())

    def _check(self, extractors: Mapping[str, Extractor]) -> None:
        check_extractors(extractors)
        if self.method not in METHODS:
            raise InputError("bad-setting", f"method is {self.method!r}.", f"Choose one of {', '.join(METHODS)}.")
        check_measuring(self.cost_repeats, self.cost_quantile, self.cost_degree, self.headroom)
        if self.method == "index":
            check_exploration(len(extractors), self.alpha, self.monotone_error, self.most_fits)
        else:
            checked_sequences(self.trade_offs, self.most_fits)
        check_quantile("overhead_quantile", self.overhead_quantile)
        if not self.timed and self.costs is None:
            raise InputError(
                "setting-missing",
                "Budgets are not time, and no costs are given.",
                "Give costs in the unit of budgets.",
            )
        if not hasattr(self._estimator(), "predict_proba"):
            raise InputError(
                "wrong-type",
                f"{type(self.estimator).__name__} does not predict probabilities.",
                "Choose a classifier that does, or calibrate it with scikit-learn's CalibratedClassifierCV.",
            )

    def _estimator(self) -> Any:
        if self.estimator is not None:
            return self.estimator
        # Fits are many, and predictions are what the budget is for: models have few prototypes.
        return PrototypeSetClassifier(recipe="source", n_candidates=DEFAULT_CANDIDATES)

    def _index(
        self, expand: Expand, curves: CostCurves, names: tuple[str, ...], median: float
    ) -> BudgetIndex | GreedyIndex:
        if self.method == "index":
            # Without the costs: which sets are expanded depends on accuracies alone then, not on timings, so that a
            # record serves again; and every set is near to a part of it, to which a prediction can fall back.
            every = SearchSettings(
                "all", self.alpha, self.monotone_error, self.diminishing_returns, self.most_fits, minds_costs=False
            )
            return index_exploration(curves, search_sets(curves, expand, every), names)
        if self.method == "greedy-index":
            some = SearchSettings("greedy", most_fits=self.most_fits, size=median, trade_offs=self.trade_offs)
            return index_exploration(curves, search_sets(curves, expand, some), names)
        own: dict[str, Sequence[TradeOff]] = {"greedy-accuracy": ["accuracy"], "greedy-cost": ["cost"]}
        return make_greedy(
            curves,
            expand,
            own.get(self.method, self.trade_offs),
            size=median,
            most_fits=self.most_fits,
            feature_names=names,
        )


def _check_items(items: object) -> None:
    if not isinstance(items, Sized):
        raise InputError(
            "wrong-type", f"The items are a {type(items).__name__}.", "Give a list of items, or another sequence."
        )


def _key(box: MatrixModels) -> str:
    """What accuracies depend on."""
    digest = hashlib.blake2b(digest_size=16)
    settings = sorted(box.estimator.get_params().items()) if hasattr(box.estimator, "get_params") else box.estimator
    # Functions among the settings are printed with an address, which is another one in every process.
    text = ADDRESS.sub("", repr((box.matrix.shape, box.spans, type(box.estimator).__name__, settings)))
    digest.update(text.encode())
    for array in (box.matrix, box.codes, *(part for fold in box.folds for part in fold)):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
