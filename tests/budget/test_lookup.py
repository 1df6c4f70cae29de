"""Look-ups are those of brute force, for every size and budget."""

import math
import sys
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from reference.skylines import Drawn, best_exact, best_numbers, draw, horner, horner_all
from support.errors import refused

from protodask.budget import BudgetIndex
from protodask.budget.candidates import order_candidates
from protodask.budget.costs import CostCurves
from protodask.budget.skyline import find_presence

KINDS = ("plain", "tangent", "bundle", "floats")


def index_of(drawn: Drawn) -> BudgetIndex:
    """All sets, dominated ones too."""
    candidates = order_candidates(drawn.sets, drawn.accuracies, drawn.costs)
    return BudgetIndex(
        curves=CostCurves(np.zeros((20, 1)), drawn.low, drawn.high),
        feature_names=tuple(map(str, range(20))),
        candidates=candidates,
        presence=find_presence(candidates, drawn.low, drawn.high),
        expansions=(),
        alpha=0.0,
        monotone_error=0.0,
        guarantee=0.0,
        observed_error=0.0,
    )


def check_exactly(seed: int, draws: int, queries: int) -> None:
    rng = np.random.default_rng(seed)
    for number in range(draws):
        drawn = draw(rng, KINDS[number % 3])
        index = index_of(drawn)
        sizes = np.clip(rng.choice([0, 0.25, 0.5, 1, 1.25, 1.5, 2, 2.5, 3, 4, 8, 16], queries), drawn.low, drawn.high)
        rows = drawn.costs[rng.integers(len(drawn.costs), size=queries)]
        costs = [horner(row, size) for row, size in zip(rows, sizes.tolist(), strict=True)]
        budgets = np.maximum(costs + rng.choice([0, 0, 0, 0.125, -0.125, 3], queries), 0)
        found = index.choose(sizes, budgets).tolist()
        for size, budget, choice in zip(sizes.tolist(), budgets.tolist(), found, strict=True):
            expected = best_exact(drawn, size, budget)
            if expected is None:
                assert choice == -1
                continue
            assert (
                index.accuracies[choice],
                Fraction(horner(index.costs[choice], size)),
                len(index.sets[choice]),
            ) == expected, (number, size, budget)


def items_around(index: BudgetIndex, drawn: Drawn, rng: np.random.Generator) -> tuple[NDArray[np.float64], ...]:
    """Sizes at, next to and between all breakpoints, with budgets at and next to all costs there."""
    starts = index.listing.starts
    sizes = [starts, (starts[1:] + starts[:-1]) / 2, np.array([0.0, 5e-324, 1e-310, 0.5, 1, 2, 3, 1e300])]
    for toward in (-math.inf, math.inf):
        near = starts
        for _ in range(2):
            near = np.nextafter(near, toward)
            sizes.append(near)
    # Rounding errors around a crossing reach some floats farther than the next.
    sizes.append(starts * (1 + rng.integers(-9, 10, len(starts)) * sys.float_info.epsilon))
    n = np.concatenate(sizes)
    n = np.unique(n[(n >= drawn.low) & (n <= drawn.high)])
    costs = horner_all(index.costs, n)
    others = [np.zeros((len(n), 1)), np.full((len(n), 1), math.inf), rng.random((len(n), 2)) * 20]
    budgets = np.concatenate([costs, np.nextafter(costs, -math.inf), np.nextafter(costs, math.inf), *others], axis=1)
    items = np.broadcast_to(n[:, None], budgets.shape)
    return items[budgets >= 0], budgets[budgets >= 0]


def check_as_computed(seed: int, draws: int) -> None:
    rng = np.random.default_rng(seed)
    for number in range(draws):
        drawn = draw(rng, KINDS[number % 4])
        index = index_of(drawn)
        sizes, budgets = items_around(index, drawn, rng)
        few = rng.permutation(len(sizes))[:300]
        sizes, budgets = sizes[few], budgets[few]
        expected = best_numbers(drawn.sets, drawn.accuracies, drawn.costs, sizes, budgets)
        found = index.choose(sizes, budgets)
        assert [index.sets[i] if i >= 0 else None for i in found] == [
            drawn.sets[i] if i >= 0 else None for i in expected
        ], number
        for i in range(3):
            if expected[i] < 0:
                continue
            choice = index.best(sizes[i], budgets[i])
            number_of = expected[i]
            assert choice.features == drawn.sets[number_of]
            assert choice.accuracy == drawn.accuracies[number_of]
            assert choice.cost == horner(drawn.costs[number_of], float(sizes[i]))


@pytest.mark.parametrize("part", range(4))
def test_look_up__is_exact_brute_force_where_arithmetic_is_exact(part: int) -> None:
    check_exactly(seed=part, draws=60, queries=21)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_look_up__is_exact_brute_force_in_many_more_cases(part: int) -> None:
    check_exactly(seed=100 + part, draws=2500, queries=10)


@pytest.mark.parametrize("part", range(4))
def test_look_up__is_brute_force_of_computed_costs_at_floats_next_to_crossings(part: int) -> None:
    check_as_computed(seed=part, draws=40)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_look_up__is_brute_force_of_computed_costs_in_many_more_cases(part: int) -> None:
    check_as_computed(seed=100 + part, draws=2500)


def small_index(low: float = 0.0, high: float = 10.0) -> BudgetIndex:
    return index_of(
        Drawn(
            [frozenset(), frozenset({0}), frozenset({1}), frozenset({0, 1})],
            np.array([0.1, 0.5, 0.5, 0.9]),
            np.array([[1.0, 0.0], [1.0, 1.0], [4.0, 0.0], [4.0, 1.0]]),
            low,
            high,
        )
    )


def test_best__is_worked_out_by_hand() -> None:
    index = small_index()
    assert index.best(2, 1).features == frozenset()
    choice = index.best(2, 5)
    assert (choice.features, choice.accuracy, choice.cost) == (frozenset({0}), 0.5, 3.0)
    assert index.best(3, 4).features == frozenset({0})  # both cost 4 and have one feature
    assert index.best(2.5, 4).features == frozenset({0})
    assert index.best(5, 8).features == frozenset({1})
    assert index.best(5, 9).features == frozenset({0, 1})


def test_best__says_how_much_would_do() -> None:
    index = small_index()
    for little in (0.5, 0.999999999):
        with refused("over-limit", little, "7.0", "1.0"):
            index.best(7, little)
    assert index.best(7, 1.0).cost == 1.0


@pytest.mark.parametrize("size", [-1.0, 10.5, math.nan, math.inf])
def test_best__refuses_sizes_out_of_range(size: float) -> None:
    with refused("bad-value", size, 0, 10):
        small_index().best(size, 5)
    with refused("bad-value", size, 0, 10):
        small_index().choose([1, size], 5)


def test_best__says_sizes_that_would_do() -> None:
    with refused("bad-value", 1234568.0, 1234567.25):
        small_index(high=1234567.25).best(1234568, 5)


@pytest.mark.parametrize("budget", [-1.0, math.nan])
def test_best__refuses_what_is_no_budget(budget: float) -> None:
    with refused("bad-setting", budget):
        small_index().best(1, budget)
    with refused("bad-setting", budget):
        small_index().choose([1, 2], [4, budget])


@pytest.mark.parametrize("value", ["large", 10**400], ids=lambda value: str(value)[:5])
def test_best__refuses_what_is_no_number(value: Any) -> None:
    with refused("wrong-type"):
        small_index().best(value, 5)
    with refused("wrong-type", "sizes"):
        small_index().choose([1, value], 5)
    with refused("wrong-type"):
        small_index().best(1, value)
    with refused("wrong-type", "budgets"):
        small_index().choose([1, 2], [4, value])


def test_best__refuses_none() -> None:
    none: Any = None
    with refused("wrong-type"):
        small_index().best(none, 5)
    with refused("bad-value", math.nan):
        small_index().choose([1, none], 5)


def test_choose__names_the_first_bad_item() -> None:
    with refused("bad-value", "12.5"):
        small_index().choose([1, 12.5, 99], 5)
    with refused("bad-value", "inf"):
        small_index(high=math.inf).choose([1, math.inf], 5)
    with refused("bad-value", math.nan):
        small_index().choose(np.ma.masked_array([1, 2], [False, True]), 5)
    with refused("wrong-shape", "(3,)", "(2,)"):
        small_index().choose([1, 2, 3], [1, 2])


def test_choose__keeps_shapes() -> None:
    index = small_index()
    assert index.choose(2, 5).shape == ()
    assert index.choose(np.ones((2, 0)), 5).shape == (2, 0)
    table = index.choose(np.arange(5.0)[:, None], np.array([0, 1, 4, 20]))
    assert table.shape == (5, 4)
    assert [[index.choose(n, b) for b in (0, 1, 4, 20)] for n in range(5)] == table.tolist()
    # More than one chunk, and budgets or sizes that are one for all.
    sizes = np.linspace(0, 10, 20_001)
    assert (index.choose(sizes, 5.5) == index.choose(sizes, np.full(20_001, 5.5))).all()
    assert (index.choose(3.5, sizes) == index.choose(np.full(20_001, 3.5), sizes)).all()


def test_choose__of_dask_arrays_is_lazy() -> None:
    import dask.array

    index = small_index()
    rng = np.random.default_rng(0)
    sizes, budgets = rng.random(1000) * 10, rng.random(1000) * 15
    expected = index.choose(sizes, budgets)
    lazy = dask.array.from_array(sizes, chunks=300)
    found = index.choose(lazy, dask.array.from_array(budgets, chunks=300))
    assert isinstance(found, dask.array.Array)
    assert found.dtype == np.int64
    assert found.chunks == lazy.chunks
    assert (found.compute(scheduler="synchronous") == expected).all()
    assert (index.choose(lazy, budgets).compute(scheduler="synchronous") == expected).all()
    assert (index.choose(lazy, 5).compute(scheduler="synchronous") == index.choose(sizes, 5)).all()
    assert (index.choose(5, lazy).compute(scheduler="synchronous") == index.choose(5, sizes)).all()
    import dask.dataframe

    table = dask.dataframe.from_dict({"size": sizes, "budget": budgets}, npartitions=3)
    assert (index.choose(table["size"], table["budget"]).compute(scheduler="synchronous") == expected).all()
    with refused("bad-value"):
        index.choose(lazy * 100, 5).compute(scheduler="synchronous")


def test_skyline__of_sets_that_tie_is_what_budgets_lead_to() -> None:
    rng = np.random.default_rng(4)
    for number in range(60):
        drawn = draw(rng, KINDS[number % 3])
        index = index_of(drawn)
        for size in np.unique(np.clip([0, 0.5, 1, 2, 3, 4], drawn.low, drawn.high)).tolist():
            skyline = [choice for choice in index.skyline(size) if choice.cost >= 0]  # some curves dip below
            assert [index.best(size, choice.cost) for choice in skyline] == skyline, (number, size)


def test_skyline__refuses_what_is_no_size() -> None:
    for size in (None, "large", [1.0]):
        with refused("wrong-type"):
            small_index().skyline(size)  # type: ignore[arg-type]


def test_choose__calls_nothing_on_dask_arrays() -> None:
    import dask.array

    def fail(block: NDArray[np.float64]) -> NDArray[np.float64]:
        raise AssertionError("computed")

    never = dask.array.ones(4, chunks=2).map_blocks(fail, dtype=np.float64, meta=np.empty(0))
    assert small_index().choose(never, 5).shape == (4,)


def test_look_up__costs_beyond_all_floats_are_never_affordable() -> None:
    drawn = Drawn([frozenset(), frozenset({0})], np.array([0.1, 0.9]), np.array([[1.0, 0, 0], [1, 0, 1]]), 0, math.inf)
    index = index_of(drawn)
    assert index.choose([1e100, 1e200], math.inf).tolist() == [1, 0]
    assert index.best(1e200, math.inf).features == frozenset()
    assert [choice.features for choice in index.skyline(1e200)] == [frozenset()]
    with refused("over-limit", "inf", "1e+200"):
        index_of(Drawn(drawn.sets[1:], drawn.accuracies[1:], drawn.costs[1:], 0, math.inf)).best(1e200, math.inf)


def test_look_up__range_of_a_single_size() -> None:
    index = small_index(low=3.0, high=3.0)
    assert [sorted(index.best(3, budget).features) for budget in (1, 3.5, 4, 7)] == [[], [], [0], [0, 1]]
    assert index.choose([3.0], [4.0]).tolist() == [index.sets.index(frozenset({0}))]


def test_best__gives_plain_numbers() -> None:
    choice = small_index().best(np.float64(2), np.float64(5))
    assert type(choice.cost) is float
    assert type(choice.accuracy) is float
