import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reference.skylines import best_numbers, horner_all
from support.errors import refused

from protodask.budget import BudgetIndex, FailedExpansionWarning, MonotonicityWarning, build_greedy, build_index
from protodask.budget.costs import CostCurves
from protodask.budget.expansions import Expansion, FeatureSet
from protodask.budget.index import make_index
from protodask.budget.index_building import index_exploration, warn_of_assumption
from protodask.budget.lattice import Exploration, ExplorationProgress

ROUNDING = 1e-9
"""Of differences of accuracies."""


def all_sets(n_features: int) -> list[FeatureSet]:
    return [frozenset(f for f in range(n_features) if mask >> f & 1) for mask in range(1 << n_features)]


def draw_accuracies(rng: np.random.Generator, n_features: int, error: float) -> dict[FeatureSet, float]:
    """Monotone but for an error: the largest of the parts' own values, less something."""
    own = rng.integers(0, rng.choice([4, 100]), 1 << n_features) / 100
    for feature in range(n_features):
        pairs = own.reshape(-1, 2, 1 << feature)
        pairs[:, 1] = np.maximum(pairs[:, 0], pairs[:, 1])
    own = own - error * rng.random(len(own))
    return dict(zip(all_sets(n_features), own.tolist(), strict=True))


def draw_curves(rng: np.random.Generator, n_features: int) -> CostCurves:
    degree = int(rng.integers(0, 4))
    costs = rng.random((n_features, degree + 1)) * 10.0 ** -np.arange(degree + 1)
    costs[rng.random(costs.shape) < 0.2] = 0
    return CostCurves.of(costs, (float(rng.choice([0, 1])), float(rng.choice([100, math.inf]))))


def check_against_brute_force(seed: int, draws: int, most_features: int) -> None:
    rng = np.random.default_rng(seed)
    for number in range(draws):
        n_features = int(rng.integers(1, most_features + 1))
        curves = draw_curves(rng, n_features)
        error, alpha = float(rng.choice([0, 0.03])), float(rng.choice([0, 0, 0.02, 0.1]))
        accuracy = draw_accuracies(rng, n_features, error)
        index = build_index(curves.coefficients, accuracy.__getitem__, alpha, error, (curves.low, curves.high))
        assert index.guarantee <= alpha
        assert index.expanded <= len(accuracy)
        sets, values = list(accuracy), np.array(list(accuracy.values()))
        costs = curves.of_sets(sets)
        sizes = np.append(
            rng.random(6) * 20 + curves.low, index.listing.starts[rng.integers(len(index.listing.starts))]
        )
        prices = horner_all(costs, sizes)
        budgets = np.concatenate([prices, np.nextafter(prices, math.inf)], axis=1)
        budgets = budgets[:, rng.permutation(budgets.shape[1])[:40]]
        sizes, budgets = np.repeat(sizes, budgets.shape[1]), budgets.ravel()
        expected = best_numbers(sets, values, costs, sizes, budgets)
        found = index.choose(sizes, budgets)
        assert ((expected < 0) == (found < 0)).all()
        known = expected >= 0
        shortfall = values[expected[known]] - index.accuracies[found[known]]
        assert shortfall.max(initial=0) <= alpha + ROUNDING, number
        if alpha == 0 and error == 0:
            assert shortfall.min(initial=0) >= 0


@pytest.mark.slow
def test_build_index__is_at_most_alpha_below_brute_force() -> None:
    check_against_brute_force(seed=0, draws=60, most_features=6)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_build_index__is_at_most_alpha_below_brute_force_in_more_cases(part: int) -> None:
    check_against_brute_force(seed=10 + part, draws=400, most_features=8)


@pytest.mark.parametrize("seed", range(3))
def test_make_index__loses_nothing_of_what_is_expanded(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(12):
        n_features = int(rng.integers(1, 6))
        curves = draw_curves(rng, n_features)
        sets = all_sets(n_features)
        values = rng.integers(0, 12, len(sets)) / 10
        index = make_index(curves, [Expansion(*item) for item in zip(sets, values.tolist(), strict=True)])
        starts = index.listing.starts
        sizes = np.concatenate([starts, np.nextafter(starts, math.inf), rng.random(4) * 9 + curves.low])
        sizes = np.repeat(np.minimum(sizes, curves.high), 25)
        chosen = rng.integers(len(sets), size=len(sizes))
        budgets = np.array([curves.at(sets[i], n) for i, n in zip(chosen, sizes, strict=True)])
        expected = best_numbers(sets, values, curves.of_sets(sets), sizes, budgets)
        found = index.choose(sizes, budgets)
        assert (index.accuracies[found] == values[expected]).all()
        costs = [
            (curves.at(index.sets[i], n), curves.at(sets[j], n)) for i, j, n in zip(found, expected, sizes, strict=True)
        ]
        assert all(one == other for one, other in costs)


def accuracy_of(features: FeatureSet) -> float:
    return 0.5 + 0.1 * len(features)


COSTS = [[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]]


def test_build_index__from_outside() -> None:
    index = build_index(COSTS, accuracy_of, sizes=(0, 100), feature_names=["a", "b", "c"])
    choice = index.best(1, 3.5)
    assert choice.features in ({0, 1}, {0, 2})
    assert (choice.accuracy, choice.cost) == (0.7, 3.0)
    assert index.feature_names == ("a", "b", "c")
    assert index.expanded == len(index.expansions) == 8
    assert (index.alpha, index.monotone_error, index.guarantee, index.observed_error) == (0, 0, 0, 0)
    assert index.failures == ()
    assert index.n_entries == len(index.listing.entries) >= len(index.sets)
    assert index.curves.high == 100


def test_skyline__is_what_budgets_lead_to() -> None:
    rng = np.random.default_rng(3)
    curves = draw_curves(rng, 5)
    index = make_index(curves, [Expansion(*item) for item in draw_accuracies(rng, 5, 0.2).items()])
    for size in (1.0, 7.5, 100.0):
        skyline = index.skyline(size)
        assert [index.best(size, choice.cost) for choice in skyline] == skyline
        costs = [choice.cost for choice in skyline]
        assert costs == sorted(set(costs))
        reached = {index.choose(size, budget).item() for budget in np.linspace(0, costs[-1] * 2, 500)} - {-1}
        assert {index.sets[number] for number in reached} <= {choice.features for choice in skyline}
    with refused("bad-value", "-1.0"):
        index.skyline(-1)


def test_build_index__engine_and_none_find_the_same() -> None:
    from protodask.engine import thread_engine

    plain = build_index(COSTS, accuracy_of)
    threaded = build_index(COSTS, accuracy_of, engine=thread_engine(2))
    assert [(one.features, one.accuracy) for one in plain.expansions] == [
        (one.features, one.accuracy) for one in threaded.expansions
    ]
    assert plain.sets == threaded.sets


def test_build_index__resumes_from_its_record(tmp_path: Path) -> None:
    asked: list[FeatureSet] = []

    def interrupted(features: FeatureSet) -> float:
        if len(asked) == 4:
            raise KeyboardInterrupt
        asked.append(features)
        return accuracy_of(features)

    record = tmp_path / "record"
    with pytest.raises(KeyboardInterrupt):
        build_index(COSTS, interrupted, record=record)
    before = asked.copy()
    asked.clear()

    def goes_on(features: FeatureSet) -> float:
        asked.append(features)
        return accuracy_of(features)

    # The costs may have changed since.
    index = build_index(np.array(COSTS) * 2, goes_on, record=record)
    assert len(before) == 4
    assert not set(before) & set(asked)
    assert index.expanded == 8
    with refused("other-run", "feature_names"):
        build_index(COSTS, goes_on, record=record, feature_names=["a", "b", "c"])


def test_build_index__warns_of_failures_and_chooses_others() -> None:
    def fails(features: FeatureSet) -> float:
        if features == {0, 1}:
            raise ValueError("no such rows")
        return accuracy_of(features)

    with pytest.warns(FailedExpansionWarning, match=r"1 of the 8 .* \[0, 1\].*ValueError: no such rows"):
        index = build_index(COSTS, fails)
    assert [one.features for one in index.failures] == [{0, 1}]
    assert index.best(1, 3.2).features == {0, 2}
    assert index.expanded == 8


def test_build_index__all_failed() -> None:
    def fails(features: FeatureSet) -> float:
        raise ValueError("out of order")

    with refused("user-code", 7, "ValueError: out of order"):
        build_index(COSTS, fails)


def accuracy_that_falls(features: FeatureSet) -> float:
    return 0.9 - 0.0123 * len(features) + 0.05 * (0 in features)


def test_build_index__warns_where_the_guarantee_does_not_hold() -> None:
    with pytest.warns(
        MonotonicityWarning, match=r"by 0\.\d+, and `monotone_error` is 0.*monotone_error=0\.\d+ or more"
    ) as seen:
        index = build_index(COSTS, accuracy_that_falls)
    given = float(str(seen[0].message).split("monotone_error=")[1].split(" ")[0])
    assert index.observed_error <= given <= 1.02 * index.observed_error + 1e-12
    # With what it says, it is silent.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert build_index(COSTS, accuracy_that_falls, monotone_error=0.05).observed_error <= 0.05


def exploration(observed: float, assumed: float) -> Exploration:
    return Exploration((Expansion(frozenset({0}), 0.5),), 0.0, observed, 0.0, assumed)


@pytest.mark.parametrize("observed", [0.3, 1e-7, 0.0999999, 12.3456, 1.0, 5e-324])
def test_warn_of_assumption__names_a_value_that_is_enough(observed: float) -> None:
    with pytest.warns(MonotonicityWarning, match="or more") if observed > 1e-12 else warnings.catch_warnings() as seen:
        warn_of_assumption(index_exploration(CostCurves.of([[1.0]]), exploration(observed, 0.0)), stacklevel=1)
    if seen is not None:
        named = float(str(seen[0].message).split("monotone_error=")[1].split(" ")[0])
        assert observed <= named <= 1.02 * observed


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda: build_index(COSTS, accuracy_of, feature_names=["a"]), ("wrong-shape", 1, 3)),
        (lambda: build_index([[1.0, -1.0]], accuracy_of), ("bad-value", 0, 1)),
        (lambda: build_index(COSTS, accuracy_of, alpha=-1), ("bad-setting", "alpha", -1)),
        (lambda: build_index(COSTS, accuracy_of, monotone_error=math.nan), ("bad-setting", "monotone_error", "nan")),
        (lambda: build_index(COSTS, accuracy_of, most_fits=0), ("bad-setting", "most_fits", 0)),
        (lambda: build_index(COSTS, accuracy_of, sizes=(3, 1)), ("bad-setting", 3, 1)),
        (lambda: make_index(CostCurves.of(COSTS), []), ("too-few",)),
    ],
)
def test_build_index__refuses_what_makes_no_sense(call: Callable[[], BudgetIndex], expected: tuple[Any, ...]) -> None:
    with refused(*expected):
        call()


def test_build_index__within_a_number_of_fits_says_what_it_reached() -> None:
    # All features are worth the same, and crossing costs leave none in the place of another.
    costs = [[1.0 + f, 6.0 - f] for f in range(6)]
    heard: list[ExplorationProgress] = []
    index = build_index(costs, accuracy_of, most_fits=10, listen=heard.append)
    assert index.expanded <= 10
    assert index.guarantee > 0.05
    assert heard[-1].expanded == index.expanded
    assert build_index(costs, accuracy_of).guarantee == 0


@pytest.mark.parametrize("seed", range(8))
def test_build_index__of_greedy_sets_has_all_that_sequences_come_by(seed: int) -> None:
    rng = np.random.default_rng(seed)
    curves = draw_curves(rng, int(rng.integers(2, 7)))
    accuracy = draw_accuracies(rng, curves.n_features, 0.0)
    size = curves.low + 3.0
    told: list[ExplorationProgress] = []
    given = (curves.coefficients, accuracy.__getitem__)
    index = build_index(*given, sizes=(curves.low, curves.high), search="greedy", size=size, listen=told.append)
    sequences = build_greedy(*given, sizes=(curves.low, curves.high), size=size)
    assert index.expanded == sequences.expanded == told[-1].expanded
    assert index.guarantee == math.inf
    assert index.guaranteed, "nothing is said to be contradicted"
    sizes = np.repeat(rng.random(20) * 20 + curves.low, 30)
    whole = np.array([curves.at(frozenset(range(curves.n_features)), one) for one in sizes])
    budgets = whole * rng.random(len(sizes)) * 1.2
    found, others = index.choose(sizes, budgets), sequences.choose(sizes, budgets)
    for number, other, size_, budget in zip(found, others, sizes, budgets, strict=True):
        affordable = [one.features for one in index.expansions if curves.at(one.features, size_) <= budget]
        best = max((accuracy[features] for features in affordable), default=-math.inf)
        assert (index.accuracies[number] if number >= 0 else -math.inf) == best
        if other >= 0 and curves.at(sequences.sets[other], size_) <= budget:
            assert accuracy[sequences.sets[other]] <= best


@pytest.mark.parametrize(
    "given",
    [{"alpha": 0.1}, {"monotone_error": 0.1}, {"diminishing_returns": True}],
    ids=lambda given: next(iter(given)),
)
@pytest.mark.parametrize(("features", "search"), [(3, "greedy"), (23, None)])
def test_build_index__of_greedy_sets_promises_nothing(given: dict[str, Any], features: int, search: Any) -> None:
    with refused("settings-conflict", next(iter(given)), "greedy"):
        build_index(np.ones((features, 1)), lambda _: 0.5, search=search, sizes=(1, 2), **given)


def test_build_index__of_many_features_searches_greedily() -> None:
    def accuracy(features: FeatureSet) -> float:
        return 1 - 0.5 * math.prod(0.9 if feature % 3 else 0.7 for feature in features)

    costs = [[1 + feature % 5] for feature in range(30)]
    index = build_index(costs, accuracy, sizes=(1, 10), most_fits=2000)
    assert index.expanded < 2000
    for budget in (4, 12, 30, 60):
        assert index.best(5, budget).accuracy == pytest.approx(best_of_knapsack(accuracy, costs, budget), abs=0.01)
    with refused("over-limit", "30", "22"):
        build_index(costs, accuracy, search="all")
    with refused("unknown-name", "'some'"):
        build_index(costs, accuracy, search="some")  # type: ignore[arg-type]
    assert build_index(costs, accuracy, most_fits=50).expanded <= 50, "no size is needed where no cost depends on it"
    with refused("setting-missing", "size"):
        build_index([[1, feature % 2] for feature in range(30)], accuracy)


def best_of_knapsack(accuracy: Callable[[FeatureSet], float], costs: list[list[int]], budget: int) -> float:
    """By dynamic programming: what is left open is a product over features."""
    left = [1.0] * (budget + 1)
    for feature, (cost,) in enumerate(costs):
        factor = (1 - accuracy(frozenset([feature]))) / 0.5
        for most in range(budget, cost - 1, -1):
            left[most] = min(left[most], left[most - cost] * factor)
    return 1 - 0.5 * left[budget]
