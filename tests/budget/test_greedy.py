from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import dask.array as da
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.greedy import grow, look_up
from support.errors import refused

from protodask.budget import Choice, FailedExpansionWarning, GreedyIndex, build_greedy
from protodask.budget.costs import CostCurves
from protodask.budget.expanding import expander
from protodask.budget.expansions import Expansion, FeatureSet
from protodask.budget.greedy import explore_greedily, make_greedy
from protodask.engine import thread_engine

ACCURACIES: dict[tuple[int, ...], float] = {
    (): 0.5,
    (0,): 0.6,
    (1,): 0.8,
    (2,): 0.7,
    (0, 1): 0.85,
    (0, 2): 0.9,
    (1, 2): 0.82,
    (0, 1, 2): 0.92,
}
PRICES = np.array([[1.0], [4.0], [2.0]])


def by_hand(features: FeatureSet) -> float:
    return ACCURACIES[tuple(sorted(features))]


def set_of(*features: int) -> FeatureSet:
    return frozenset(features)


def orders(index: GreedyIndex) -> list[tuple[int, ...]]:
    return [sequence.features for sequence in index.sequences]


def test_make_greedy__by_hand() -> None:
    # At 0.09 a unit the first gains are 0.1 - 0.09, 0.3 - 0.36 and 0.2 - 0.18; then 0.2 - 0.09 and 0.12 - 0.36.
    index = build_greedy(PRICES, by_hand, ["accuracy", 0.09, "cost"], size=1.0)

    assert orders(index) == [(1, 0, 2), (2, 0, 1), (0, 2, 1)]
    assert [sequence.trade_off for sequence in index.sequences] == [0.0, 0.09, math.inf]
    assert set(index.sets) == {set_of(), set_of(0), set_of(1), set_of(2), set_of(0, 1), set_of(0, 2), set_of(0, 1, 2)}
    # {1, 2} was a choice of the first two sequences at their second step, so all eight are expanded.
    assert index.expanded == 8
    assert not index.failures


def test_best__by_hand() -> None:
    index = build_greedy(PRICES, by_hand, ["accuracy", 0.09, "cost"], size=1.0)

    # The skyline: {} 0, {0} 1, {2} 2, {0, 2} 3 with 0.9, {0, 1, 2} 7; neither {1} nor {0, 1} is on it.
    assert index.best(1.0, 0.0).features == set_of()
    assert index.best(1.0, 1.5).features == set_of(0)
    assert index.best(1.0, 2.5).features == set_of(2)
    choice = index.best(1.0, 6.9)
    assert (choice.features, choice.accuracy, choice.cost) == (set_of(0, 2), 0.9, 3.0)
    # All features end every sequence; the smallest trade-off is followed, whose prefixes are {1} and {0, 1}.
    assert index.best(1.0, math.inf).features == set_of(0, 1, 2)


def test_best__follows_the_sequence_at_the_size_of_the_item() -> None:
    costs = np.array([[0.0, 1.0], [0.0, 4.0], [0.0, 2.0]])
    index = build_greedy(costs, by_hand, ["cost"], size=2.0)

    # A budget of 6 at the median 2 is {0, 2}. On an item twice as large it lasts for {0} alone, on a small one for all.
    assert index.best(2.0, 6.0).features == set_of(0, 2)
    assert index.best(4.0, 6.0).features == set_of(0)
    assert index.best(0.5, 6.0).features == set_of(0, 1, 2)
    assert index.best(0.0, 0.0).features == set_of(0, 1, 2)  # all features are free at this size


def test_best__answers_with_the_most_accurate_prefix() -> None:
    accuracy = {set_of(): 0.5, set_of(0): 0.9, set_of(0, 1): 0.8}
    index = build_greedy([[1.0], [2.0]], accuracy.__getitem__, ["cost"], size=1.0)

    assert index.best(1.0, 3.0).features == set_of(0)
    assert index.answers == (set_of(), set_of(0))


def test_best__shared_set_is_followed_along_the_smallest_trade_off() -> None:
    def accuracy(features: FeatureSet) -> float:
        return {0: 0.5, 1: 0.6 if 0 in features else 0.7, 2: 0.9}[len(features)]

    index = build_greedy([[0.0, 1.0], [0.0, 2.0]], accuracy, ["accuracy", "cost"], size=1.0)
    assert orders(index) == [(1, 0), (0, 1)]

    # Both features at the median; on an item of size 1.4 there is enough for either alone.
    assert index.best(1.4, 3.0).features == set_of(1)


def test_best__costs_beyond_all_floats_are_never_affordable() -> None:
    index = build_greedy([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]], lambda s: 0.5 + 0.1 * len(s), ["accuracy"], size=1.0)
    assert orders(index) == [(0, 1)]
    assert index.best(1e100, math.inf).features == set_of(0, 1)
    assert index.best(1e200, math.inf).features == set_of()
    assert [index.sets[number] for number in index.choose([1e100, 1e200], math.inf)] == [set_of(0, 1), set_of()]


@st.composite
def problems(draw: st.DrawFn) -> tuple[CostCurves, dict[FeatureSet, float | None], list[float], float]:
    m = draw(st.integers(1, 5))
    rows = draw(st.lists(st.tuples(*[st.integers(0, 4).map(float)] * 3), min_size=m, max_size=m))
    some = st.sampled_from([None, *np.linspace(0.5, 1, 9).tolist()])
    accuracy = {frozenset(feature for feature in range(m) if mask >> feature & 1): draw(some) for mask in range(2**m)}
    trade_offs = draw(st.lists(st.sampled_from([0.0, 0.03125, 0.125, 1.0, math.inf]), min_size=1, unique=True))
    return CostCurves.of(np.array(rows)), accuracy, sorted(trade_offs), draw(st.sampled_from([0.0, 0.5, 1.0, 2.0]))


def expanding(accuracy: dict[FeatureSet, float | None], seen: list[FeatureSet] | None = None) -> Callable[..., None]:
    def expand(sets: Sequence[FeatureSet], listen: Callable[[Expansion], None]) -> None:
        for features in sets:
            if seen is not None:
                seen.append(features)
            failure = "failed" if accuracy[features] is None else None
            listen(Expansion(features, accuracy[features], failure))

    return expand


@settings(max_examples=40)
@given(problems())
def test_make_greedy__equals_the_loops(
    problem: tuple[CostCurves, dict[FeatureSet, float | None], list[float], float],
) -> None:
    curves, accuracy, trade_offs, median = problem
    seen: list[FeatureSet] = []
    index = make_greedy(curves, expanding(accuracy, seen), trade_offs, size=median)

    def price(feature: int) -> float:
        return curves.at(frozenset([feature]), median)

    expected = [grow(curves.n_features, price, accuracy.get, trade_off) for trade_off in trade_offs]
    assert orders(index) == [tuple(order) for order in expected]
    assert len(seen) == len(set(seen)) == index.expanded
    assert {failure.features for failure in index.failures} == {one for one in seen if accuracy[one] is None}

    sizes = np.array([0.0, 0.25, 0.5, 1.0, 2.0, 3.0])
    budgets = np.array([0.0, 0.5, 1.0, 2.0, 3.0, 5.0, 8.0, 13.0, 40.0, math.inf])
    found = index.choose(sizes[:, None], budgets)
    for i, j in np.ndindex(found.shape):
        wanted = look_up(expected, curves.at, accuracy.get, median, float(sizes[i]), float(budgets[j]))
        answer = None if found[i, j] < 0 else index.sets[found[i, j]]
        assert answer == wanted
        if answer is not None:
            choice = index.best(float(sizes[i]), float(budgets[j]))
            assert choice == Choice(answer, accuracy[answer] or 0.0, curves.at(answer, float(sizes[i])))
    assert {index.sets[number] for number in np.unique(found[found >= 0])} <= set(index.answers)


def test_explore_greedily__keeps_the_order_of_asking_however_sets_end() -> None:
    def backwards(sets: Sequence[FeatureSet], listen: Callable[[Expansion], None]) -> None:
        for features in reversed(sets):
            listen(Expansion(features, by_hand(features)))

    curves = CostCurves.of(PRICES)
    orders = [
        [one.features for one in explore_greedily(curves, expand, size=1.0).expansions]
        for expand in (backwards, expander(by_hand))
    ]
    assert orders[0] == orders[1]


@settings(max_examples=30)
@given(problems(), st.integers(1, 40))
def test_make_greedy__stops_within_a_budget_of_fits(
    problem: tuple[CostCurves, dict[FeatureSet, float | None], list[float], float], most: int
) -> None:
    curves, accuracy, trade_offs, median = problem
    seen: list[FeatureSet] = []
    index = make_greedy(curves, expanding(accuracy, seen), trade_offs, size=median, most_fits=most)
    whole = make_greedy(curves, expanding(accuracy), trade_offs, size=median)

    assert len(seen) == index.expanded <= most
    for part, all_of_it in zip(orders(index), orders(whole), strict=True):
        assert part == all_of_it[: len(part)]
    if most >= whole.expanded:
        assert orders(index) == orders(whole)


@pytest.mark.parametrize("most", range(1, 10))
def test_make_greedy__asks_for_no_more_fits_than_allowed_for_all_sequences_together(most: int) -> None:
    """At the second step one sequence needs {0, 1} and {1, 2}, and another one {0, 2} besides."""
    seen: list[FeatureSet] = []
    known: dict[FeatureSet, float | None] = {set_of(*features): value for features, value in ACCURACIES.items()}
    curves = CostCurves.of(PRICES)
    index = make_greedy(curves, expanding(known, seen), ["accuracy", 0.09, "cost"], size=1.0, most_fits=most)
    assert len(seen) == index.expanded <= most


def test_make_greedy__default_trade_offs_suit_the_data() -> None:
    index = build_greedy(PRICES, by_hand, size=1.0)

    # All features add 0.42 and cost 7.
    expected = [0, 0.006, 0.018, 0.06, 0.18, 0.6, math.inf]
    assert [sequence.trade_off for sequence in index.sequences] == pytest.approx(expected)
    # In another unit of costs the sequences are the same.
    assert orders(build_greedy(PRICES * 1e-6, by_hand, size=1.0)) == orders(index)


@pytest.mark.parametrize("accuracy", [lambda _: 0.5, lambda features: 0.9 - 0.1 * len(features)])
def test_make_greedy__default_where_nothing_rises(accuracy: Callable[[FeatureSet], float]) -> None:
    index = build_greedy(PRICES, accuracy, size=1.0)
    assert [sequence.trade_off for sequence in index.sequences] == [0.0, math.inf]


def test_make_greedy__cost_only_expands_what_it_passes() -> None:
    index = build_greedy(PRICES, by_hand, ["cost"], size=1.0)
    assert index.expanded == 4


def test_make_greedy__hundreds_of_features() -> None:
    m = 60
    generator = np.random.default_rng(0)
    worth = generator.uniform(0, 1, m)
    costs = generator.uniform(0, 1, (m, 2))

    calls: list[int] = []

    def expand(sets: Sequence[FeatureSet], listen: Callable[[Expansion], None]) -> None:
        calls.append(len(sets))
        for features in sets:
            listen(Expansion(features, 1 - 1 / (1 + worth[list(features)].sum())))

    index = make_greedy(CostCurves.of(costs), expand, ["accuracy", "cost"], size=3.0)

    assert [len(order) for order in orders(index)] == [m, m]
    assert list(orders(index)[0]) == np.argsort(-worth).tolist()
    assert list(orders(index)[1]) == np.argsort(costs @ [1, 3.0]).tolist()
    # A step of all sequences is one call: the empty set, and then one for each feature.
    assert len(calls) == m + 1
    sizes, budgets = generator.uniform(0, 9, 50), generator.uniform(0, 900, 50)
    numbers = index.choose(sizes, budgets)
    for number, size, budget in zip(numbers, sizes, budgets, strict=True):
        wanted = look_up(
            orders(index), index.curves.at, lambda s: 1 - 1 / (1 + worth[list(s)].sum()), 3.0, size, budget
        )
        assert index.sets[number] == wanted


def test_choose__keeps_shapes_and_refuses_what_makes_no_sense() -> None:
    index = build_greedy(PRICES, by_hand, size=1.0)
    sizes, budgets = np.array([1.0, 2.0, 3.0])[:, None], np.linspace(0, 10, 4)
    expected = [[int(index.choose(size, budget)) for budget in budgets] for size in sizes[:, 0]]
    assert index.choose(sizes, budgets).tolist() == expected
    assert index.choose([], []).shape == (0,)
    assert index.choose(np.ones((2, 0)), 5).shape == (2, 0)
    with refused("wrong-shape", "(2,)", "(3,)"):
        index.choose([1, 2], [1, 2, 3])
    nonsense: tuple[Any, ...] = ("large", {}, 10**400)
    for wrong in nonsense:
        with refused("wrong-type"):
            index.choose(wrong, 5)
        with refused("wrong-type"):
            index.best(1, wrong)


def test_choose__dask_arrays_lazily() -> None:
    index = build_greedy(PRICES, by_hand, size=1.0)
    budgets = np.linspace(0, 10, 41)
    found = index.choose(da.full(41, 2.0, chunks=10), da.from_array(budgets, chunks=10))
    assert isinstance(found, da.Array)
    np.testing.assert_array_equal(found.compute(), index.choose(2.0, budgets))


def test_walk__goes_on_and_stops_as_the_budget_allows() -> None:
    index = build_greedy([[1.0], [2.0], [4.0]], lambda s: 0.5 + 0.1 * len(s), ["cost"], size=1.0)

    walk = index.walk(1.0, 3.5)
    assert index.sets[walk.target(3.5)] == set_of(0, 1)
    assert walk.next_feature(3.5) == 0
    walk.advance()
    assert index.sets[walk.reached] == set_of(0)
    assert walk.next_feature(1.9) is None  # the first took longer than expected
    assert walk.next_feature(2.0) == 1
    walk.advance()
    assert walk.next_feature(3.9) is None
    assert walk.next_feature(4.0) == 2  # they took less than expected
    walk.advance()
    assert walk.next_feature(math.inf) is None


def test_walk__leaves_out_features_that_lead_nowhere() -> None:
    accuracy = {set_of(): 0.5, set_of(0): 0.9, set_of(0, 1): 0.8, set_of(0, 1, 2): 0.95}
    index = build_greedy([[1.0], [2.0], [4.0]], accuracy.__getitem__, ["cost"], size=1.0)

    walk = index.walk(1.0, 3.0)
    walk.advance()
    assert walk.next_feature(2.0) is None  # {0, 1} is less accurate than {0}
    assert walk.next_feature(6.0) == 1  # on the way to all three


def test_make_greedy__a_failed_set_is_skipped_and_the_feature_tried_again() -> None:
    def accuracy(features: FeatureSet) -> float:
        if features == {0}:
            raise ValueError("a constant column")
        return by_hand(features)

    heard: list[Expansion] = []
    with pytest.warns(FailedExpansionWarning, match=r"1 of the 8 .* \[0\], so: ValueError: a constant column"):
        index = build_greedy(PRICES, accuracy, ["accuracy", "cost"], size=1.0, listen=heard.append)

    assert orders(index) == [(1, 0, 2), (0, 2, 1)]
    assert [failure.features for failure in index.failures] == [set_of(0)]
    assert "a constant column" in str(index.failures[0].failure)
    assert len(heard) == index.expanded
    assert index.sequences[1].recorded[1] == -1  # passed, without a model
    assert index.best(1.0, 1.0).features == set_of()


def test_build_greedy__the_same_on_an_engine_and_from_a_record(tmp_path: object) -> None:
    record = f"{tmp_path}/record.jsonl"
    with thread_engine(threads=2) as engine:
        first = build_greedy(PRICES, by_hand, size=1.0, engine=engine, record=record)
    asked: list[FeatureSet] = []

    def counted(features: FeatureSet) -> float:
        asked.append(features)
        return by_hand(features)

    again = build_greedy(PRICES, counted, size=1.0, record=record)
    assert not asked
    assert orders(first) == orders(again) == orders(build_greedy(PRICES, by_hand, size=1.0))


def test_expander_failures__leave_an_empty_index() -> None:
    def accuracy(_: FeatureSet) -> float:
        raise ValueError("no")

    index = make_greedy(CostCurves.of(PRICES), expander(accuracy), size=1.0)
    assert index.sets == ()
    assert index.choose([1.0, 2.0], [5.0, math.inf]).tolist() == [-1, -1]
    assert index.n_entries == 2 + 3  # the empty prefix, and cost only passes three more
    with refused("user-code", 5, "ValueError: no"):
        build_greedy(PRICES, accuracy, size=1.0)
    with refused("over-limit", 1):
        index.best(1.0, 1.0)


@pytest.mark.parametrize(
    ("trade_offs", "expected"),
    [
        ([], ("bad-setting", "[]")),
        ("accuracy", ("bad-setting", "'accuracy'")),
        (["speed"], ("bad-setting", "'speed'")),
        ([-1.0], ("bad-setting", "-1.0")),
        ([math.nan], ("bad-setting", "nan")),
        ([None], ("bad-setting",)),
        (5, ("bad-setting", 5)),
    ],
)
def test_make_greedy__refuses_trade_offs(trade_offs: list[float], expected: tuple[Any, ...]) -> None:
    with refused(*expected):
        build_greedy(PRICES, by_hand, trade_offs, size=1.0)


def test_make_greedy__refuses_what_makes_no_sense() -> None:
    with refused("setting-missing", "`size`"):
        build_greedy([[1.0, 0.5], [4.0, 0.0], [2.0, 0.0]], by_hand)
    assert build_greedy(PRICES, by_hand).size == 0.0, "none is needed where no cost depends on it"
    with refused("bad-setting", 5, 2):
        build_greedy(PRICES, by_hand, sizes=(2, 4), size=5.0)
    for size in (math.inf, math.nan, "large"):
        with refused("bad-setting", f"{size}", 2):
            build_greedy(PRICES, by_hand, sizes=(2, math.inf), size=size)  # type: ignore[arg-type]
    for most in (0, 1.5, "few"):
        with refused("bad-setting", "most_fits", repr(most)):
            build_greedy(PRICES, by_hand, size=1.0, most_fits=most)  # type: ignore[arg-type]
    with refused("wrong-shape", 1, 3):
        build_greedy(PRICES, by_hand, size=1.0, feature_names=["a"])
    index = build_greedy(PRICES, by_hand, sizes=(0, 4))
    assert index.size == 2.0
    with refused("bad-value", "5.0"):
        index.best(5.0, 1.0)
    with refused("bad-setting", "nan"):
        index.choose(1.0, [1.0, math.nan])
    with refused("bad-setting", "-1.0"):
        index.walk(1.0, -1.0)
