"""One item under a budget: a set is looked up, its features are computed, and real costs are answered to."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protodask.budget.expansions import FeatureSet
from protodask.budget.greedy_index import GreedyIndex, GreedyWalk
from protodask.budget.index import BudgetIndex
from protodask.budget.lookup import SLACK, as_items
from protodask.budget.matrix_models import Model, predict_row
from protodask.budget.measuring import Clock, Extractor, checked_size, sizes_of, undisturbed, vector
from protodask.budget.polynomials import evaluate
from protodask.engine.records import Floats
from protodask.errors import InputError, count
from protodask.prototypes.model import PrototypeSet

REHEARSALS = 500
"""Predictions from which the overhead is told."""

MOST_SECONDS = 20.0
"""For these, unless there are so many models that each needs its turn."""


@dataclass(frozen=True, eq=False)
class Prediction:
    """What is said of an item, and what it took."""

    probabilities: Floats
    """(K,), in the order of the classes."""
    label: Any
    """The most probable class."""
    features: FeatureSet
    """Numbers of the features that the model looked at."""
    names: tuple[str, ...]
    """Their names."""
    accuracy: float
    """Of the model used, as it was estimated."""
    size: float
    budget: float
    expected_cost: float
    """Of what was looked up, at this size, with the overhead: in seconds, or in the unit of costs that are no time."""
    spent: float
    """What it came to: the time of all the work, or the costs of the features computed."""
    fell_back: bool
    """Whether the model is less accurate than the one looked up, since features cost more than expected, or failed."""
    within_budget: bool
    computed: Mapping[str, float]
    """Every feature that was computed, used or not, and what it took."""
    failures: Mapping[str, str]
    """Features that could not be had, and why."""


@dataclass(frozen=True, eq=False)
class Predictor:
    """All that a prediction needs. Features have the names and the costs that the index has."""

    functions: tuple[Extractor, ...]
    widths: tuple[int, ...]
    index: BudgetIndex | GreedyIndex
    models: Mapping[FeatureSet, Model]
    """Of every set that the index answers with, but the empty one."""
    shares: Floats
    """Of the classes: what is said where nothing is computed (K,)."""
    classes: NDArray[Any]
    overhead: float
    """Seconds that a prediction takes besides its features."""
    size: Callable[[Any], float]
    timed: bool
    """Whether the budget is time."""
    any_time: bool
    clock: Clock

    @cached_property
    def answers(self) -> Answers:
        """The sets that there are models of."""
        accuracies = dict(zip(self.index.sets, np.asarray(self.index.accuracies).tolist(), strict=True))
        nothing: FeatureSet = frozenset()
        accuracies.setdefault(nothing, float(self.shares.max()))
        sets = sorted({nothing, *self.models}, key=lambda features: (-accuracies[features], sorted(features)))
        member = np.zeros((len(sets), len(self.functions)), dtype=bool)
        for row, features in enumerate(sets):
            member[row, sorted(features)] = True
        return Answers(tuple(sets), accuracies, member)

    def for_features(self, budget: Any) -> Any:
        """What a look-up may spend of a budget, or of an array of them."""
        return budget - self.overhead if self.timed else budget * SLACK

    def warm_up(self) -> None:
        """Predict once with every model, and make what look-ups need: first calls import and allocate."""
        _ = self.answers.orders
        self.index.best(self.index.curves.low, math.inf)
        for features, model in self.models.items():
            width = sum(self.widths[feature] for feature in features)
            if isinstance(model, PrototypeSet) and model.n_features != width:
                raise ValueError(f"it was fitted to {count(model.n_features, 'column')}, and its features have {width}")
            found = predict_row(model, np.zeros((1, width)))
            if found.shape != self.shares.shape:
                raise ValueError(f"it knows {count(len(found), 'class', 'classes')}, and there are {len(self.shares)}")

    def predict(self, item: Any, budget: float, number: int | None = None) -> Prediction:
        """The prediction for an item; `number` is the set of the index to compute, where it was looked up before."""
        start = self.clock()
        with undisturbed():
            found = _Run(self, item, budget, start).predict(number)
        if not self.timed:
            return found
        spent = self.clock() - start
        return replace(found, spent=spent, within_budget=spent <= found.budget)


@dataclass(frozen=True, eq=False)
class Answers:
    """Sets that there are models of, by falling accuracy."""

    sets: tuple[FeatureSet, ...]
    accuracies: Mapping[FeatureSet, float]
    member: NDArray[np.bool_]
    """(sets, features)."""

    @cached_property
    def orders(self) -> dict[FeatureSet, tuple[int, ...]]:
        """In which order the features of each set are computed.

        First those of the most accurate smaller set within it that has a model, and so on within that: whenever it has
        to be left unfinished, something good is complete.
        """
        found: dict[FeatureSet, tuple[int, ...]] = {}
        for features in sorted(self.sets, key=len):
            inside = next((other for other in self.sets if other < features), frozenset())
            found[features] = (*found.get(inside, ()), *sorted(features - inside))
        return found

    def reachable(self, had: NDArray[np.bool_], lost: NDArray[np.bool_], prices: Floats, left: float) -> FeatureSet:
        """The most accurate set without lost features whose missing ones are expected to fit into what is left."""
        missing = self.member & ~had
        fits = ~missing.any(axis=1) | ((missing @ prices <= left) & ~(missing & lost).any(axis=1))
        return self.sets[int(np.argmax(fits))]


@dataclass
class _Run:
    """The work on one item."""

    of: Predictor
    item: Any
    budget: float
    start: float
    size: float = 0.0
    values: dict[int, Floats] = field(default_factory=dict)
    computed: dict[str, float] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    def predict(self, number: int | None) -> Prediction:
        of = self.of
        budget = self.budget = checked_budget(self.budget)
        self.size = checked_size(self.item, of.size, "the item")
        self.prices = evaluate(of.index.curves.coefficients, self.size)
        self.had = np.zeros(len(of.functions), dtype=bool)
        self.lost = np.zeros(len(of.functions), dtype=bool)
        planned = self._walk() if isinstance(of.index, GreedyIndex) and of.any_time else self._compute(number)
        used = of.answers.reachable(self.had, self.lost, self.prices, -math.inf)
        if used:
            values = np.concatenate([self.values[feature] for feature in sorted(used)])[None, :]
            probability = predict_row(of.models[used], values)
        else:
            probability = of.shares.copy()
        accuracy, spent = of.answers.accuracies[used], self._spent()
        return Prediction(
            probabilities=probability,
            label=of.classes[int(probability.argmax())],
            features=used,
            names=tuple(of.index.feature_names[feature] for feature in sorted(used)),
            accuracy=accuracy,
            size=self.size,
            budget=budget,
            expected_cost=float(self.prices[sorted(planned)].sum()) + of.overhead,
            spent=spent,
            fell_back=accuracy < of.answers.accuracies[planned],
            within_budget=spent <= budget * SLACK,
            computed=self.computed,
            failures=self.failures,
        )

    def _spent(self) -> float:
        if self.of.timed:
            return self.of.clock() - self.start
        return float(self.prices[self.had | self.lost].sum())

    def _left(self) -> float:
        """For features: of the budget, with the overhead kept back."""
        if not self.of.timed:
            return self.budget * SLACK - self._spent()
        features = sum(self.computed.values())
        return self.budget * SLACK - features - max(self.of.overhead, self._spent() - features)

    def _compute(self, number: int | None) -> FeatureSet:
        """Compute what the index says, or, when that cannot be afforded any more, the best that can."""
        of = self.of
        planned = self._look_up() if number is None else frozenset() if number < 0 else of.index.sets[number]
        order = [*of.answers.orders[planned]]
        while order:
            left = self._left()
            if self.lost[order].any() or (of.any_time and self.prices[order].sum() > left):
                order = self._missing(left if of.any_time else math.inf)
                if not order:
                    break
            self._extract(order.pop(0))
        return planned

    def _look_up(self) -> FeatureSet:
        left = self.of.for_features(self.budget)
        try:
            return self.of.index.best(self.size, left).features if left >= 0 else frozenset()
        except InputError:  # where the expansion of the empty set failed
            return frozenset()

    def _walk(self) -> FeatureSet:
        """Follow a greedy sequence for as long as the budget lasts; then what else the features computed allow."""
        of = self.of
        assert isinstance(of.index, GreedyIndex)
        left = self._left()
        walk: GreedyWalk = of.index.walk(self.size, max(left, 0.0))
        target = walk.target(left)
        while (feature := walk.next_feature(self._left())) is not None:
            self._extract(feature)
            if self.lost[feature]:  # the sequence cannot go on: then the best set within what is left
                while missing := self._missing(self._left()):
                    self._extract(missing[0])
                break
            walk.advance()
        return frozenset() if target < 0 or left < 0 else of.index.sets[target]

    def _missing(self, left: float) -> list[int]:
        """What is still to be computed for the best set within what is left, in its order."""
        answers = self.of.answers
        target = answers.reachable(self.had, self.lost, self.prices, left)
        return [feature for feature in answers.orders[target] if not self.had[feature]]

    def _extract(self, feature: int) -> None:
        of = self.of
        name = of.index.feature_names[feature]
        start = of.clock()
        try:
            value = vector(of.functions[feature](self.item))
            if len(value) != of.widths[feature]:
                raise ValueError(f"{count(len(value), 'number')} instead of {of.widths[feature]}")
        except Exception as error:
            self.failures[name] = f"{type(error).__name__}: {error}"
            self.lost[feature] = True
        else:
            self.values[feature] = value
            self.had[feature] = True
        self.computed[name] = of.clock() - start if of.timed else float(self.prices[feature])


def checked_budget(budget: Any) -> float:
    """A number of 0 or more, or infinity."""
    try:
        found = float(budget)
    except (TypeError, ValueError, OverflowError):
        found = math.nan
    if not found >= 0:
        raise InputError(
            "bad-setting", f"The budget is {budget!r}.", "Give a number of 0 or more, or infinity for no limit."
        )
    return found


def look_up_all(predictor: Predictor, items: Sequence[Any], budgets: Any) -> tuple[Floats, NDArray[np.int64]]:
    """Budgets of items, and the sets of the index to compute within them: one look-up for all."""
    sizes = sizes_of(items, predictor.size)
    _, each = as_items(predictor.index.curves, sizes, budgets)
    if each.shape != sizes.shape:
        raise InputError(
            "wrong-shape",
            f"The budgets for {count(len(sizes), 'item')} are of shape {np.shape(budgets)}.",
            "Give one budget, or one for each item.",
        )
    left = predictor.for_features(each)
    numbers = np.where(left >= 0, predictor.index.choose(sizes, np.maximum(left, 0.0)), -1)
    return each, numbers


def measure_overhead(
    predictor: Predictor, matrix: Floats, spans: tuple[slice, ...], sizes: Floats, quantile: float
) -> float:
    """The quantile of the seconds that predictions take besides features: they are rehearsed, each model in its turn.

    Items are the rows of `matrix`, of these sizes, and the columns `spans` of each feature are known.
    """

    def known(span: slice) -> Extractor:
        return lambda row: matrix[row, span]

    # Each model in turn, whatever is looked up, and without running out of time.
    functions = tuple(known(span) for span in spans)
    stage = replace(predictor, functions=functions, size=lambda row: float(sizes[row]), timed=False, any_time=False)
    stage.warm_up()
    index = predictor.index
    look_up = index.walk if isinstance(index, GreedyIndex) and predictor.any_time else index.best
    numbers = {features: number for number, features in enumerate(index.sets)}
    sets = [*predictor.models, frozenset[int]()]
    taken: list[float] = []
    began = predictor.clock()
    for turn in range(REHEARSALS):
        if turn >= 2 * len(sets) and predictor.clock() - began > MOST_SECONDS:
            break
        row, features = turn % len(sizes), sets[turn % len(sets)]
        size = float(sizes[row])
        budget = index.curves.at(features, size)
        start = predictor.clock()
        look_up(size, budget)
        stage.predict(row, budget, numbers.get(features, -1))
        taken.append(predictor.clock() - start)
    return float(np.quantile(taken, quantile, method="higher"))
