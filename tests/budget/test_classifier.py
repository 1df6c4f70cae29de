from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier
from support.errors import refused

from protodask import PrototypeSetClassifier, thread_engine
from protodask.budget import BudgetedClassifier, FailedExpansionWarning, GreedyIndex, MeasuredCosts, MonotonicityWarning
from protodask.budget.classifier import Method
from protodask.budget.costs import CostCurves

NAMES = ("weak", "pair", "strong")
COSTS = np.array([[1.0, 0.0], [1.0, 0.5], [2.0, 1.0]])
"""Seconds by size."""


@dataclass
class Item:
    size: float
    weak: float
    pair: tuple[float, float]
    strong: float
    delay: dict[str, float] = field(default_factory=dict)
    """Seconds more than expected."""
    broken: dict[str, Any] = field(default_factory=dict)
    """What an extractor gives instead, or raises."""


class World:
    """A clock that only extractors move on, and what they were asked for."""

    def __init__(self) -> None:
        self.now = 0.0
        self.calls: list[str] = []
        self.extractors = {name: self._extractor(number, name) for number, name in enumerate(NAMES)}

    def clock(self) -> float:
        return self.now

    def _extractor(self, number: int, name: str) -> Callable[[Item], Any]:
        def function(item: Item) -> Any:
            self.calls.append(name)
            self.now += COSTS[number, 0] + COSTS[number, 1] * item.size + item.delay.get(name, 0.0)
            if name in item.broken:
                if isinstance(item.broken[name], Exception):
                    raise item.broken[name]
                return item.broken[name]
            return getattr(item, name)

        return function


def make_items(n_items: int = 150, seed: int = 0) -> tuple[list[Item], NDArray[np.str_]]:
    generator = np.random.default_rng(seed)
    labels = np.array(["cat", "dog", "eel"])[np.arange(n_items) % 3]
    signal = (np.arange(n_items) % 3).astype(float)
    draws = generator.normal(size=(n_items, 4))
    items = [
        Item(
            size=float(generator.choice([1.0, 2.0, 4.0])),
            weak=signal[row] + 1.5 * draws[row, 0],
            pair=(signal[row] + 0.8 * draws[row, 1], draws[row, 2]),
            strong=signal[row] + 0.3 * draws[row, 3],
        )
        for row in range(n_items)
    ]
    return items, labels


def size_of(item: Item) -> float:
    return item.size


def fitted(world: World, estimator: Any = None, **options: Any) -> BudgetedClassifier:
    items, labels = make_items()
    chosen: dict[str, Any] = {"monotone_error": 1.0, "cost_degree": 1, "size": size_of, "folds": 3} | options
    classifier = BudgetedClassifier(estimator or GaussianNB(), clock=world.clock, **chosen)
    classifier.fit(items, labels, world.extractors)
    world.calls.clear()
    return classifier


@pytest.fixture(scope="module")
def world() -> World:
    return World()


@pytest.fixture(scope="module")
def by_index(world: World) -> BudgetedClassifier:
    return fitted(world)


@pytest.fixture(scope="module")
def by_cost(world: World) -> BudgetedClassifier:
    return fitted(world, method="greedy-cost")


@pytest.fixture
def item(world: World) -> Item:
    world.calls.clear()
    return Item(2.0, 1.1, (0.9, 0.0), 1.05)


def rows_of(items: list[Item], names: tuple[str, ...]) -> NDArray[np.float64]:
    return np.array([np.concatenate([np.atleast_1d(getattr(item, name)) for name in names]) for item in items])


def test_fit__learns_costs_accuracies_and_models(by_index: BudgetedClassifier) -> None:
    items, labels = make_items()
    assert by_index.classes_.tolist() == ["cat", "dog", "eel"]
    assert by_index.feature_names_ == NAMES
    assert isinstance(by_index.costs_, MeasuredCosts)
    np.testing.assert_allclose(by_index.costs_.costs, COSTS, rtol=1e-6)
    assert by_index.costs_.coverage.tolist() == [1, 1, 1]
    assert by_index.overhead_ == 0  # time passes in extractors only
    assert by_index.index_.expanded == 8

    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    for features, accuracy in zip(by_index.index_.sets, by_index.index_.accuracies, strict=True):
        if features:
            rows = rows_of(items, tuple(NAMES[number] for number in sorted(features)))
            assert accuracy == pytest.approx(cross_val_score(GaussianNB(), rows, labels, cv=folds).mean())
        else:
            prior = DummyClassifier(strategy="prior")
            assert accuracy == pytest.approx(cross_val_score(prior, np.zeros((150, 1)), labels, cv=folds).mean())
    assert frozenset() not in by_index.models_
    assert set(by_index.models_) <= set(by_index.index_.sets)


def test_predict__computes_only_what_was_chosen(by_index: BudgetedClassifier, world: World) -> None:
    items, labels = make_items()
    new, _ = make_items(12, seed=1)
    models: dict[tuple[str, ...], Any] = {}
    for item in new:
        for budget in (0.0, 1.0, 2.5, 4.5, 6.0, 30.0, math.inf):
            world.calls.clear()
            found = by_index.predict_item(item, budget)
            choice = by_index.index_.best(item.size, budget)
            assert found.features == choice.features
            assert found.names == tuple(NAMES[number] for number in sorted(choice.features))
            assert sorted(world.calls) == sorted(found.names) == sorted(found.computed)
            assert found.accuracy == choice.accuracy
            assert found.expected_cost == pytest.approx(choice.cost, rel=1e-6)
            assert found.spent == pytest.approx(choice.cost, rel=1e-6)
            assert found.within_budget
            assert not found.fell_back
            assert not found.failures
            assert (found.size, found.budget) == (item.size, budget)
            if found.features:
                if found.names not in models:
                    models[found.names] = GaussianNB().fit(rows_of(items, found.names), labels)
                model = models[found.names]
                np.testing.assert_allclose(found.probabilities, model.predict_proba(rows_of([item], found.names))[0])
            else:
                np.testing.assert_allclose(found.probabilities, [1 / 3] * 3)
            assert found.label == by_index.classes_[found.probabilities.argmax()]
            np.testing.assert_array_equal(by_index.predict_proba(item, budget), found.probabilities)
            assert by_index.predict(item, budget) == found.label


def test_predict_many__equals_one_at_a_time(by_index: BudgetedClassifier, by_cost: BudgetedClassifier) -> None:
    items, labels = make_items(30, seed=2)
    budgets = np.linspace(0, 10, 30)
    for classifier in (by_index, by_cost):
        for budget in (budgets, 4.0):
            found = classifier.predict_many(items, budget)
            for one, item, own in zip(found, items, np.broadcast_to(budget, 30).tolist(), strict=True):
                alone = classifier.predict_item(item, own)
                assert (one.features, one.label, one.fell_back) == (alone.features, alone.label, alone.fell_back)
                np.testing.assert_array_equal(one.probabilities, alone.probabilities)
    assert by_index.score(items, labels) > by_index.score(items, labels, 1.0)
    assert by_index.predict_many([], 1.0) == []


def test_predict__items_larger_than_all_seen(by_index: BudgetedClassifier) -> None:
    found = by_index.predict_item(Item(100.0, 0.0, (0.0, 0.0), 0.0), 103.0)
    assert found.expected_cost == pytest.approx(102, rel=1e-6)  # strong alone
    assert found.names == ("strong",)
    assert found.within_budget


def overrun(classifier: BudgetedClassifier, item: Item, budget: float, **delay: float) -> Any:
    item.delay.update(delay)
    return classifier.predict_item(item, budget)


def test_predict__falls_back_when_a_feature_overruns(by_index: BudgetedClassifier, world: World, item: Item) -> None:
    # At size 2: weak 1, pair 2, strong 4.
    full = by_index.predict_item(item, 7.0)
    assert full.names in {NAMES, ("pair", "strong"), ("weak", "strong")}
    first, *rest = world.calls
    world.calls.clear()

    item.delay[first] = 7.0 - full.expected_cost + 0.5
    found = by_index.predict_item(item, 7.0)

    # The first computed took so long that the rest cannot be finished; what is left goes into the best set with it.
    left = 7.0 - found.computed[first]
    prices = dict(zip(NAMES, COSTS @ [1, 2.0], strict=True))
    accuracies = dict(zip(by_index.index_.sets, by_index.index_.accuracies, strict=True))
    expected = max(
        (
            features
            for features in [frozenset(), *by_index.models_]
            if sum(prices[NAMES[number]] for number in features if NAMES[number] != first) <= left
        ),
        key=accuracies.__getitem__,
    )
    assert found.features == expected
    assert found.fell_back
    assert found.within_budget
    assert found.accuracy < full.accuracy
    assert rest


def test_predict__says_so_where_the_budget_is_overrun(by_index: BudgetedClassifier, item: Item) -> None:
    found = overrun(by_index, item, 7.0, weak=100.0, pair=100.0, strong=100.0)
    assert found.fell_back
    assert not found.within_budget
    assert len(found.computed) == 1
    assert found.spent > 100


def test_predict__a_small_overrun_that_leaves_enough_changes_nothing(by_index: BudgetedClassifier, item: Item) -> None:
    found = overrun(by_index, item, 100.0, weak=5.0, pair=5.0, strong=5.0)
    assert not found.fell_back
    assert found.features == by_index.index_.best(2.0, 100.0).features


@settings(max_examples=40)
@given(
    delays=st.tuples(*[st.floats(0, 10)] * 3),
    broken=st.sets(st.sampled_from(NAMES)),
    budget=st.floats(0, 20),
    size=st.sampled_from([0.0, 1.0, 3.0]),
)
def test_predict__only_begins_what_the_budget_is_expected_to_pay(
    by_index: BudgetedClassifier,
    by_cost: BudgetedClassifier,
    world: World,
    delays: tuple[float, ...],
    broken: set[str],
    budget: float,
    size: float,
) -> None:
    delay = dict(zip(NAMES, delays, strict=True))
    item = Item(size, 1.1, (0.9, 0.0), 1.05, delay, {name: ValueError("no") for name in broken})
    for classifier in (by_index, by_cost):
        world.calls.clear()
        found = classifier.predict_item(item, budget)
        last = delay[world.calls[-1]] if world.calls else 0.0
        assert found.spent - last <= budget * (1 + 1e-6)
        assert found.within_budget == (found.spent <= budget)
        assert set(found.failures) == broken & set(world.calls) == broken & set(found.computed)
        assert len(world.calls) == len(set(world.calls))
        # Of all models on what was computed, the most accurate.
        had = {number for number, name in enumerate(NAMES) if name in world.calls and name not in broken}
        accuracies = dict(zip(classifier.index_.sets, classifier.index_.accuracies, strict=True))
        best = max(accuracies[one] for one in [frozenset(), *classifier.models_] if one <= had)
        assert found.accuracy == best == accuracies[found.features]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (ValueError("no edges"), "ValueError: no edges"),
        (math.nan, "not finite"),
        ([1.0, 2.0, 3.0], "3 numbers instead of"),
        ("text", "is no number"),
        (np.zeros((2, 2)), r"array of shape \(2, 2\)"),
        (None, "not finite"),
    ],
)
def test_predict__a_feature_that_cannot_be_had(
    by_index: BudgetedClassifier, by_cost: BudgetedClassifier, item: Item, given: Any, message: str
) -> None:
    for classifier in (by_index, by_cost):
        item.broken = {"strong": given}
        found = classifier.predict_item(item, 7.0)
        assert list(found.failures) == ["strong"]
        assert re.search(message, found.failures["strong"])
        assert 2 not in found.features
        # Nothing was spent before it failed that the best of the others would not need.
        best = max(
            (features for features in [frozenset(), *classifier.models_] if 2 not in features),
            key=dict(zip(classifier.index_.sets, classifier.index_.accuracies, strict=True)).__getitem__,
        )
        assert found.features == best
        assert found.fell_back


def test_predict__nothing_can_be_had(by_index: BudgetedClassifier, by_cost: BudgetedClassifier, item: Item) -> None:
    item.broken = {name: OSError("gone") for name in NAMES}
    for classifier in (by_index, by_cost):
        found = classifier.predict_item(item, 100.0)
        assert not found.features
        np.testing.assert_allclose(found.probabilities, [1 / 3] * 3)
        assert found.fell_back
        assert found.failures["strong" if classifier is by_index else "weak"] == "OSError: gone"


def test_predict__greedy_goes_on_while_time_is_left(by_cost: BudgetedClassifier, world: World, item: Item) -> None:
    assert isinstance(by_cost.index_, GreedyIndex)
    assert by_cost.index_.sequences[0].features == (0, 1, 2)

    item.delay["weak"] = -0.9
    item.delay["pair"] = -1.5
    found = by_cost.predict_item(item, 5.0)  # 7 were expected for all
    assert world.calls == ["weak", "pair", "strong"]
    assert found.spent == pytest.approx(4.6)
    assert found.within_budget
    assert not found.fell_back
    assert found.accuracy >= by_cost.index_.best(2.0, 5.0).accuracy


def test_predict__greedy_stops_early(by_cost: BudgetedClassifier, world: World, item: Item) -> None:
    found = overrun(by_cost, item, 7.0, weak=3.0)
    assert world.calls == ["weak", "pair"]
    assert found.fell_back
    assert found.within_budget
    assert found.spent == pytest.approx(6.0)


def test_predict__not_any_time_computes_what_was_looked_up(world: World, item: Item) -> None:
    for method in ("index", "greedy"):
        classifier = fitted(world, method=method, any_time=False)
        full = classifier.index_.best(2.0, 7.0)
        item.broken = {}
        found = overrun(classifier, item, 7.0, weak=20.0, pair=20.0, strong=20.0)
        assert found.features == full.features
        assert not found.within_budget
        assert not found.fell_back
        item.broken = {"strong": ValueError("no")}
        assert 2 not in classifier.predict_item(item, 7.0).features


@pytest.mark.parametrize("any_time", [True, False])
def test_predict__overhead_is_kept_back(any_time: bool, world: World, item: Item) -> None:
    class Ticking:
        """Every look at the clock takes a hundredth of a second."""

        def __call__(self) -> float:
            world.now += 0.01
            return world.now

    items, labels = make_items()
    classifier = BudgetedClassifier(
        GaussianNB(),
        clock=Ticking(),
        monotone_error=1.0,
        cost_degree=1,
        size=size_of,
        folds=3,
        headroom=1.5,
        any_time=any_time,
    ).fit(items, labels, world.extractors)

    assert classifier.overhead_ > 1.5 * 0.02
    # Neither the features nor the overhead alone exceed the budget.
    budget = classifier.index_.curves.at(frozenset([0]), 2.0) + 0.5 * classifier.overhead_
    assert classifier.predict_item(item, budget).names == ()
    enough = classifier.predict_item(item, budget + 0.51 * classifier.overhead_)
    assert enough.names == ("weak",)
    assert enough.within_budget
    assert not classifier.predict_item(item, 0.0).within_budget


def test_predict__time_that_goes_by_besides_features_is_not_spent_again(world: World, item: Item) -> None:
    def size_in_time(item: Item) -> float:
        world.now += item.delay.get("size", 0.0)
        return item.size

    classifier = fitted(world, size=size_in_time)
    full = classifier.predict_item(item, 7.0)
    assert full.spent > 4.0
    # At size 2: weak 1, pair 2, strong 4. With half of the budget gone, the first two can be paid at most.
    item.delay["size"] = 3.5
    found = classifier.predict_item(item, 7.0)
    assert set(found.computed) <= {"weak", "pair"}
    assert found.spent == pytest.approx(3.5 + sum(found.computed.values()))
    assert found.within_budget
    assert found.fell_back
    item.delay["size"] = 7.5
    assert classifier.predict_item(item, 7.0).computed == {}


def test_fit__overhead_is_that_of_the_slowest_models(world: World) -> None:
    class Slow(GaussianNB):  # type: ignore[misc]
        def predict_proba(self, X: Any) -> Any:
            world.now += 10.0 * X.shape[1]
            return super().predict_proba(X)

    for method in ("index", "greedy-accuracy"):  # elsewhere a part of what was computed may do better
        classifier = fitted(world, Slow(), method=method, overhead_quantile=1.0)
        widest = max(sum((1, 2, 1)[number] for number in features) for features in classifier.models_)
        assert classifier.overhead_ == pytest.approx(10.0 * widest)


def test_fit__budgets_that_are_no_time(world: World, item: Item) -> None:
    classifier = fitted(world, timed=False, costs={"weak": 1, "pair": [10, 1], "strong": [5]})
    assert isinstance(classifier.costs_, CostCurves)
    assert classifier.overhead_ == 0
    item.delay = {"strong": 1e6}
    found = classifier.predict_item(item, 6.0)
    assert found.names in {("weak", "strong"), ("strong",)}
    assert found.spent == found.expected_cost <= 6
    assert found.within_budget
    item.broken = {"strong": ValueError("no")}
    lost = classifier.predict_item(item, 5.5)
    assert lost.names == ()
    assert lost.spent == 5.0  # asked for and paid


@pytest.mark.parametrize("method", ["index", "greedy-index", "greedy-accuracy"])
@pytest.mark.parametrize("any_time", [True, False])
def test_predict__costs_that_come_to_the_budget_are_within_it(
    world: World, item: Item, method: str, any_time: bool
) -> None:
    costs = {"weak": 9, "pair": 0.1, "strong": 0.2}
    classifier = fitted(world, timed=False, costs=costs, method=method, any_time=any_time)
    both = classifier.index_.accuracies[classifier.index_.sets.index(frozenset({1, 2}))]
    assert both == max(classifier.index_.accuracies)
    for found in (classifier.predict_item(item, 0.3), *classifier.predict_many([item], 0.3)):
        assert found.names == ("pair", "strong")
        assert found.within_budget
        assert not found.fell_back


@pytest.mark.parametrize(
    "costs", [COSTS, COSTS.tolist(), dict(zip(NAMES, COSTS, strict=True)), "measured"], ids=lambda c: type(c).__name__
)
def test_fit__with_costs_that_are_known(by_index: BudgetedClassifier, costs: Any, world: World) -> None:
    classifier = fitted(world, costs=by_index.costs_ if isinstance(costs, str) else costs)
    np.testing.assert_allclose(classifier.index_.curves.coefficients, COSTS, rtol=1e-6)


class Fussy(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Cannot be fitted to some numbers of columns."""

    def __init__(self, widths: tuple[int, ...] = (1,)) -> None:
        self.widths = widths

    def fit(self, X: Any, y: Any) -> Fussy:
        if X.shape[1] in self.widths:
            raise RuntimeError(f"{X.shape[1]} columns")
        self.model_ = GaussianNB().fit(X, y)
        self.classes_ = self.model_.classes_
        return self

    def predict(self, X: Any) -> Any:
        return self.model_.predict(X)

    def predict_proba(self, X: Any) -> Any:
        return self.model_.predict_proba(X)


@pytest.mark.parametrize("method", ["index", "greedy-index", "greedy", "greedy-accuracy", "greedy-cost"])
def test_fit__sets_that_fail_are_reported_and_left_out(world: World, item: Item, method: str) -> None:
    with pytest.warns(FailedExpansionWarning, match="RuntimeError: 1 columns"):
        classifier = fitted(world, Fussy((1,)), method=method)
    assert {failure.features for failure in classifier.index_.failures} <= {frozenset([0]), frozenset([2])}
    assert not {frozenset([0]), frozenset([2])} & set(classifier.models_)
    assert classifier.predict_item(item, math.inf).names


def test_fit__no_model_at_all(world: World) -> None:
    with refused("user-code", 7, "RuntimeError: 4 columns"):
        fitted(world, Fussy((1, 2, 3, 4)))


@pytest.mark.parametrize(
    ("estimator", "names"),
    [
        (LogisticRegression(), NAMES),
        (DecisionTreeClassifier(max_depth=3, random_state=0), NAMES),
        (RandomForestClassifier(5, random_state=0), NAMES),
        (PrototypeSetClassifier(recipe="source", n_candidates=20, tolerance=1e-2), ("pair", "strong")),
        (None, ("strong",)),
    ],
    ids=lambda value: "" if isinstance(value, tuple) else type(value).__name__,
)
def test_fit__every_kind_of_estimator(world: World, item: Item, estimator: Any, names: tuple[str, ...]) -> None:
    items, labels = make_items(60)
    method: Method = "greedy-cost" if estimator is None else "greedy"
    classifier = BudgetedClassifier(
        estimator, method=method, monotone_error=1.0, size=size_of, folds=3, clock=world.clock, cost_degree=1
    )
    assert clone(classifier).get_params()["method"] == method
    classifier.fit(items, labels, {name: world.extractors[name] for name in names})
    rows = rows_of(items, NAMES)
    for budget in (4.0, math.inf):
        found = classifier.predict_item(item, budget)
        assert found.probabilities.shape == (3,)
        assert found.probabilities.sum() == pytest.approx(1)
        columns = {"weak": [0], "pair": [1, 2], "strong": [3]}
        used = [column for name in found.names for column in columns[name]]
        model = clone(estimator) if estimator is not None else PrototypeSetClassifier(recipe="source", n_candidates=200)
        model.fit(rows[:, used], labels)
        expected = model.predict_proba(rows_of([item], found.names))[0]
        np.testing.assert_allclose(found.probabilities, expected, atol=1e-12)


def test_clone__shares_the_engine_and_forgets_the_fit(by_index: BudgetedClassifier) -> None:
    with thread_engine(threads=1) as engine:
        again = clone(by_index.set_params(engine=engine))
        assert again.engine is engine
        by_index.set_params(engine=None)
    assert not hasattr(again, "index_")


def test_clone__has_an_estimator_of_its_own() -> None:
    first = BudgetedClassifier(LogisticRegression(C=1.0))
    clone(first).set_params(estimator__C=3.0)
    assert first.estimator.C == 1.0
    assert clone(BudgetedClassifier()).estimator is None


def test_fit__items_in_a_series(world: World) -> None:
    pandas = pytest.importorskip("pandas")
    items, labels = make_items(60)
    series = pandas.Series(items, index=range(100, 160))
    classifier = BudgetedClassifier(
        GaussianNB(), clock=world.clock, monotone_error=1.0, size=size_of, folds=3, cost_degree=1
    ).fit(series, pandas.Series(labels, index=range(60)), world.extractors)
    assert len(classifier.predict_many(series, 4.0)) == 60


def test_fit__labels_of_other_kinds(world: World) -> None:
    items, labels = make_items(60)
    codes = np.unique(labels, return_inverse=True)[1]
    for own in (codes, codes.astype(float), codes == 1):
        classifier = BudgetedClassifier(
            GaussianNB(), clock=world.clock, monotone_error=1.0, size=size_of, folds=3, cost_degree=1
        ).fit(items, own, world.extractors)
        assert classifier.predict_item(items[1], math.inf).label == own[1]
        assert classifier.classes_.dtype == own.dtype


def test_fit__says_which_model_cannot_be_fitted_to_all_items(world: World) -> None:
    class Limited(GaussianNB):  # type: ignore[misc]
        def fit(self, X: Any, y: Any) -> Any:
            if len(X) > 100:
                raise MemoryError("too many")
            return super().fit(X, y)

    with refused("user-code", "MemoryError: too many"):
        fitted(world, Limited())


def test_fit__groups_are_not_split(world: World) -> None:
    items, labels = make_items(90)
    seen: list[tuple[frozenset[float], frozenset[float]]] = []
    group = np.arange(90) // 6

    class Spy(GaussianNB):  # type: ignore[misc]
        def fit(self, X: Any, y: Any) -> Any:
            self.trained = frozenset(X[:, 0].tolist())
            return super().fit(X, y)

        def predict(self, X: Any) -> Any:
            seen.append((self.trained, frozenset(X[:, 0].tolist())))
            return super().predict(X)

    options: dict[str, Any] = {"monotone_error": 1.0, "size": size_of, "folds": 3, "cost_degree": 1}
    found: Any = BudgetedClassifier(Spy(), clock=world.clock, **options).fit(
        items, labels, {"group": lambda item: float(group[items.index(item)])}, groups=[f"of {one}" for one in group]
    )
    assert seen
    assert not any(train & test for train, test in seen)
    # Of what 15 groups do not show, however alike their items are.
    assert found.index_.margin >= 0.999 * math.log(4 / 0.05) / 15


def test_fit__goes_on_from_a_record(world: World, tmp_path: Any) -> None:
    fits: list[int] = []

    class Counted(GaussianNB):  # type: ignore[misc]
        def fit(self, X: Any, y: Any) -> Any:
            fits.append(len(X))
            if len(fits) == 8:
                raise KeyboardInterrupt
            return super().fit(X, y)

    items, labels = make_items(90)
    options: dict[str, Any] = {"monotone_error": 1.0, "size": size_of, "folds": 3, "cost_degree": 1}

    def fit() -> BudgetedClassifier:
        with thread_engine(threads=1) as engine:
            classifier = BudgetedClassifier(Counted(), clock=world.clock, engine=engine, **options)
            return classifier.fit(items, labels, world.extractors, record=tmp_path / "record.jsonl")

    with pytest.raises(KeyboardInterrupt):
        fit()
    began = len(fits)
    classifier = fit()
    # Two sets of three folds were done, one of them begun; five of seven are left, and the models.
    assert len(fits) - began == 5 * 3 + len(classifier.models_)
    plain = BudgetedClassifier(GaussianNB(), clock=world.clock, **options).fit(items, labels, world.extractors)
    assert plain.index_.sets == classifier.index_.sets
    other = BudgetedClassifier(GaussianNB(), clock=world.clock, **options)
    with refused("other-run", "rows"):
        other.fit(items[:87], labels[:87], world.extractors, record=tmp_path / "record.jsonl")


def test_fit__a_record_knows_settings_that_are_functions(world: World, tmp_path: Any) -> None:
    items, labels = make_items(60)
    asked: list[int] = []

    def fit() -> None:
        def twice(rows: Any) -> Any:
            asked.append(len(rows))
            return 2 * rows

        estimator = make_pipeline(FunctionTransformer(twice), GaussianNB())
        BudgetedClassifier(
            estimator, clock=world.clock, monotone_error=1.0, size=size_of, folds=3, cost_degree=1, method="greedy-cost"
        ).fit(items, labels, world.extractors, record=tmp_path / "record.jsonl")

    fit()
    first = asked.count(40)
    assert first == 3 * 3
    fit()
    assert asked.count(40) == first  # no part of three folds was trained on again


def test_fit__the_same_with_any_number_of_threads(world: World, by_index: BudgetedClassifier) -> None:
    with thread_engine(threads=1) as engine:
        alone = fitted(world, engine=engine)
    assert alone.index_.sets == by_index.index_.sets
    assert alone.index_.accuracies.tolist() == by_index.index_.accuracies.tolist()


def test_fit__warns_where_features_lower_the_accuracy(world: World) -> None:
    items, labels = make_items(90)
    noisy: dict[str, Any] = dict(world.extractors)
    generator = np.random.default_rng(0)
    noise = {id(item): generator.normal(size=40) for item in items}
    noisy["noise"] = lambda item: noise[id(item)]
    with pytest.warns(MonotonicityWarning, match="monotone_error="):
        BudgetedClassifier(
            DecisionTreeClassifier(random_state=0), clock=world.clock, size=size_of, folds=3, cost_degree=1
        ).fit(items, labels, noisy)


def failing_fit(
    world: World,
    expected: tuple[Any, ...],
    extractors: Mapping[Any, Any] | None = None,
    labels: Any = None,
    groups: Any = None,
    **options: Any,
) -> None:
    items, own = make_items(30)
    classifier = BudgetedClassifier(**({"estimator": GaussianNB(), "folds": 3, "size": size_of} | options))
    with refused(*expected):
        classifier.fit(
            items,
            own if labels is None else labels,
            world.extractors if extractors is None else extractors,
            groups=groups,
        )


def test_fit__refuses_what_makes_no_sense(world: World) -> None:
    failing_fit(world, ("bad-setting", "extractors", "empty"), {})
    failing_fit(world, ("bad-setting", "extractors", "list"), [1])  # type: ignore[arg-type]
    failing_fit(world, ("wrong-type", "'a'"), {"a": 1})
    failing_fit(world, ("wrong-type", 1), {1: len})
    failing_fit(world, ("wrong-shape", 30, "(2,)"), labels=[1, 2])
    failing_fit(world, ("one-class", "same label"), labels=["a"] * 30)
    failing_fit(world, ("too-few", "'a'", 2, 3), labels=["a"] * 2 + ["b"] * 28)
    failing_fit(world, ("wrong-shape", "(2,)", 30), groups=[1, 2])
    failing_fit(world, ("too-few", 2, 3), groups=np.arange(30) % 2)
    failing_fit(world, ("too-few", "'a'"), labels=["a"] * 10 + ["b"] * 20, groups=np.arange(30) // 10)
    failing_fit(world, ("bad-setting", "method", "'best'"), method="best")
    failing_fit(world, ("bad-setting", "folds", 1), folds=1)
    failing_fit(world, ("bad-setting", "folds", "'5'"), folds="5")
    assert fitted(world, folds=np.int64(3)).index_.expanded
    failing_fit(world, ("wrong-type", "Groups"), groups=np.array(["a", 3] * 15, dtype=object))
    failing_fit(world, ("bad-value", "no group"), groups=[1, 2, 3, 4, math.nan] * 6)
    failing_fit(world, ("bad-value", "no group"), groups=["a", "b", None] * 10)
    failing_fit(world, ("wrong-type", "'cheap'"), costs="cheap")
    failing_fit(world, ("wrong-shape", "'weak'"), costs={name: [[1.0]] for name in world.extractors})
    with refused("wrong-type", "generator"):
        BudgetedClassifier().fit((item for item in make_items(30)[0]), [0, 1] * 15, world.extractors)  # type: ignore[arg-type]
    failing_fit(world, ("bad-setting", "Timings", 0), cost_repeats=0)
    failing_fit(world, ("bad-setting", "overhead_quantile", "0.0"), overhead_quantile=0.0)
    failing_fit(world, ("setting-missing", "costs"), timed=False)
    failing_fit(world, ("wrong-type", "LinearSVC", "CalibratedClassifierCV"), estimator=LinearSVC())
    failing_fit(world, ("wrong-shape", "(1, 1)", 3), costs=[[1.0]])
    failing_fit(world, ("setting-missing", "'pair'"), costs={"weak": 1})


def test_fit__refuses_labels_that_are_no_classes(world: World) -> None:
    pandas = pytest.importorskip("pandas")
    for missing in ([None, "a"], [math.nan, 1.0], pandas.Series([pandas.NA, "a"])):
        failing_fit(world, ("bad-value", "labels"), labels=np.tile(np.asarray(missing), 15))
    failing_fit(world, ("bad-value", "labels", "continuous"), labels=np.arange(30) / 4)
    failing_fit(world, ("bad-value", "labels"), labels=np.array([1, "a"] * 15, dtype=object))


def test_fit__names_extractor_and_item(world: World) -> None:
    items, _ = make_items(30)
    third = items.index(items[3])

    def odd(value: Any) -> dict[str, Any]:
        def function(item: Item) -> Any:
            if item.weak == items[third].weak:
                if isinstance(value, Exception):
                    raise value
                return value
            return 1.0

        return {"odd": function}

    failing_fit(world, ("user-code", "'odd'", 3, "KeyError: 'x'"), odd(KeyError("x")))
    failing_fit(world, ("user-code", "'odd'", 3), odd(math.inf))
    failing_fit(world, ("user-code", "'odd'", 2, 3, 1), odd([1, 2]))
    failing_fit(world, ("user-code", "'odd'", "(1, 1)", 3), odd([[1]]))
    failing_fit(world, ("user-code", "'odd'", 3), odd("?"))
    failing_fit(world, ("user-code", "'odd'", "(0,)", 3), odd([]))


def test_predict__refuses_what_makes_no_sense(by_index: BudgetedClassifier, item: Item) -> None:
    with refused("bad-setting", "budget", "-1.0"):
        by_index.predict(item, -1.0)
    with refused("bad-setting", "budget", "nan"):
        by_index.predict(item, math.nan)
    with refused("bad-setting", "budget", "'much'"):
        by_index.predict(item, "much")  # type: ignore[arg-type]
    with refused("user-code", "`size`"):
        by_index.predict("no item", 1.0)
    item.size = math.inf
    with refused("user-code", "inf", "`size`"):
        by_index.predict(item, 1.0)
    item.size = 1.0
    with refused("wrong-shape", "(2,)", 3):
        by_index.predict_many([item, item, item], [1.0, 2.0])
    with refused("bad-setting", "budget"):
        by_index.predict_many([item, item], [1.0, -2.0])
    with pytest.raises(ValueError, match="not fitted"):
        BudgetedClassifier().predict(item, 1.0)


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ({"alpha": -0.1}, ("bad-setting", "alpha", "-0.1")),
        ({"monotone_error": "small"}, ("bad-setting", "monotone_error", "'small'")),
        ({"most_fits": 0}, ("bad-setting", "most_fits", 0)),
        ({"cost_repeats": "3"}, ("bad-setting", "Timings", "'3'")),
        ({"cost_quantile": 0.0}, ("bad-setting", "quantile", "0.0")),
        ({"cost_quantile": "worst"}, ("bad-setting", "quantile", "'worst'")),
        ({"cost_degree": 1.5}, ("bad-setting", "degree", "1.5", 10)),
        ({"headroom": "much"}, ("bad-setting", "headroom", "'much'")),
        ({"overhead_quantile": "worst"}, ("bad-setting", "overhead_quantile", "'worst'")),
        ({"random_state": -1}, ("bad-setting", "random_state", -1)),
        ({"random_state": "a"}, ("bad-setting", "random_state", "'a'")),
        ({"method": "greedy", "trade_offs": 5}, ("bad-setting", "trade-offs", 5)),
        ({"method": "greedy-index", "trade_offs": [-1.0]}, ("bad-setting", "trade-off", "-1.0")),
        ({"method": "greedy", "most_fits": "few"}, ("bad-setting", "most_fits", "'few'")),
        ({"costs": [[-1.0]]}, ("bad-value", 0)),
        ({"costs": {"other": [1.0]}}, ("setting-missing", "'one'")),
    ],
)
def test_fit__refuses_settings_before_anything_is_computed(option: dict[str, Any], expected: tuple[Any, ...]) -> None:
    computed: list[float] = []

    def extractor(item: float) -> float:
        computed.append(item)
        return item

    with refused(*expected):
        BudgetedClassifier(GaussianNB(), **option).fit([0.0, 1.0] * 20, [0, 1] * 20, {"one": extractor})
    assert not computed


def test_fit__refuses_too_many_features_before_anything_is_computed() -> None:
    def never(item: float) -> float:
        raise AssertionError("computed")

    extractors = {f"feature {number}": never for number in range(23)}
    with refused("over-limit", 23, 22):
        BudgetedClassifier(GaussianNB()).fit([0.0, 1.0] * 20, [0, 1] * 20, extractors)


def test_predict_many__refuses_what_is_no_sequence_of_items(by_index: BudgetedClassifier, item: Item) -> None:
    with refused("wrong-type", "generator"):
        by_index.predict_many((one for one in [item]), 1.0)  # type: ignore[arg-type]
    with refused("wrong-type", "'much'"):
        by_index.predict_many([item], "much")
    with refused("wrong-shape", 1, "(2,)"):
        by_index.score([item], ["a", "b"])
    with refused("no-rows", "no items"):
        by_index.score([], [])
    with refused("wrong-type", "list_iterator"):
        by_index.score(iter([item]), ["a"])  # type: ignore[arg-type]


def test_score__refuses_missing_labels_of_arrow_in_place_of_taking_them_for_the_last_class(
    by_index: BudgetedClassifier, item: Item
) -> None:
    labels = ["a", None, "b"]
    with refused("bad-value", "row 1"):
        by_index.score([item] * 3, pyarrow.chunked_array([pyarrow.array(labels).dictionary_encode()]))
