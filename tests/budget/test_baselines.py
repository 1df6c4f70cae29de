import math

import numpy as np
import pytest
from benchmarks._budget_baselines import Scan, expand_all, index_all, unpruned
from reference.skylines import draw, skyline_changes
from support.errors import refused

from protodask.budget.candidates import order_candidates
from protodask.budget.costs import CostCurves
from protodask.budget.expanding import expander
from protodask.budget.expansions import Expansion
from protodask.budget.index import make_index


@pytest.mark.parametrize("kind", ["plain", "tangent", "bundle", "floats"])
def test_baselines__choose_what_the_index_chooses(kind: str) -> None:
    rng = np.random.default_rng(6)
    for _ in range(25):
        drawn = draw(rng, kind)
        curves = CostCurves(drawn.costs, drawn.low, drawn.high)
        sets = [frozenset({i}) for i in range(len(drawn.costs))]
        index = make_index(curves, [Expansion(*item) for item in zip(sets, drawn.accuracies.tolist(), strict=True)])
        # Between crossings: next to them an index without margins may differ by rounding.
        sizes = drawn.low + (min(drawn.high, drawn.low + 9) - drawn.low) * rng.random(200)
        sizes = sizes[np.abs(sizes * 8 % 1 - 0.5) < 0.49]
        budgets = rng.random(len(sizes)) * 30
        every = index_all(curves, index.candidates)
        expected = index.choose(sizes, budgets)
        assert (Scan(index.curves, index.candidates).choose(sizes, budgets) == expected).all()
        assert (every.choose(sizes, budgets) == expected).all()
        assert every.n_entries >= len(every.listing.starts)
        one_by_one = Scan(curves, index.candidates)
        for size, budget, number in list(zip(sizes, budgets, expected, strict=True))[:20]:
            if number >= 0:
                choice = index.best(size, budget)
                assert every.best(size, budget) == one_by_one.best(size, budget) == choice
                assert one_by_one.best_vectorized(size, budget) == choice
        # All that was expanded, dominated or not, makes no difference either.
        dull = unpruned(index)
        found = Scan(curves, dull).choose(sizes, budgets)
        assert len(dull.sets) == len(sets)
        assert [dull.accuracies[i] for i in found[expected >= 0]] == [index.accuracies[i] for i in expected if i >= 0]


def test_index_all__has_a_list_between_any_two_crossings() -> None:
    # Lines with slopes 0 ... 4 that all cross each other at sizes of their own.
    costs = np.array([[10.0 - slope - slope**3 / 100, float(slope)] for slope in range(5)])
    curves = CostCurves.of(costs)
    candidates = order_candidates([frozenset({i}) for i in range(5)], np.array([0.5, 0.4, 0.3, 0.2, 0.1]), costs)
    crossings = {
        round((costs[i, 0] - costs[j, 0]) / (costs[j, 1] - costs[i, 1]), 9) for i in range(5) for j in range(i)
    }
    every = index_all(curves, candidates)
    assert every.listing.starts[0] == 0
    assert np.allclose(every.listing.starts[1:], sorted(crossings), rtol=1e-8)


def test_index_all__is_larger_than_the_index() -> None:
    rng = np.random.default_rng(7)
    for _ in range(10):
        costs = rng.random((12, 3))
        curves = CostCurves.of(costs, (0.01, 100))
        expansions = [Expansion(frozenset({i}), float(a)) for i, a in enumerate(rng.random(12))]
        index = make_index(curves, expansions)
        assert index_all(curves, index.candidates).n_entries >= index.n_entries
        assert index_all(curves, unpruned(index)).n_entries >= index.n_entries


def test_baselines__equally_accurate_sets() -> None:
    curves = CostCurves.of([[1.0, 1.0], [3.0, 0.5], [0.0, 0.0]], (0, 10))
    expansions = [Expansion(frozenset({0}), 0.5), Expansion(frozenset({1}), 0.5), Expansion(frozenset({2}), 0.1)]
    index = make_index(curves, expansions)
    sizes = np.array([0.0, 3.9, 4.0, 4.1, 10.0, 2.0])
    budgets = np.array([9.0, 9.0, 9.0, 9.0, 9.0, 2.5])
    expected = [0, 0, 0, 1, 1, 2]
    assert [min(index.sets[i]) for i in index.choose(sizes, budgets)] == expected
    assert [min(index.sets[i]) for i in Scan(index.curves, index.candidates).choose(sizes, budgets)] == expected
    single = Scan(curves, index.candidates)
    assert [min(single.best(n, b).features) for n, b in zip(sizes, budgets, strict=True)] == expected
    every = index_all(curves, index.candidates)
    assert [min(index.sets[i]) for i in every.choose(sizes, budgets)][:2] == expected[:2]


def test_baselines__nothing_affordable_and_bad_items() -> None:
    curves = CostCurves.of([[1.0, 1.0]], (0, 10))
    index = make_index(curves, [Expansion(frozenset({0}), 0.5)])
    for method in (index_all(curves, index.candidates), Scan(curves, index.candidates)):
        assert method.choose([1, 1], [1.5, 2]).tolist() == [-1, 0]
        with refused("over-limit", "1.5"):
            method.best(1, 1.5)
        for size in (11.0, math.nan):
            with refused("bad-value", size, 0, 10):
                method.best(size, 1)
            with refused("bad-value", size, 0, 10):
                method.choose([size], [1])
        for budget in (-1.0, math.nan):
            with refused("bad-setting", budget):
                method.best(1, budget)
            with refused("bad-setting", budget):
                method.choose([1], [budget])


def test_expand_all__is_every_set_once() -> None:
    found = expand_all(4, expander(len))
    assert len(found) == len({item.features for item in found}) == 16
    assert all(item.accuracy == len(item.features) for item in found)
    with refused("over-limit", 21, 20):
        expand_all(21, expander(len))


def test_skyline_changes__counts_by_hand() -> None:
    rng = np.random.default_rng(0)
    drawn = draw(rng, "floats")
    lines = type(drawn)(
        [frozenset({i}) for i in range(3)],
        np.array([0.1, 0.2, 0.3]),
        np.array([[0.0, 3.0], [1.0, 1.0], [2.0, 0.0]]),
        0.0,
        10.0,
    )
    # 3 n passes 1 + n at 0.5 and 2 at 2/3; 1 + n passes 2 at 1. The second is no change: it was off the skyline.
    assert skyline_changes(lines) == 2
