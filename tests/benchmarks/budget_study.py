"""Feature budgets on made-up features, where the best set under any budget is known: the study of the literature.

m features on items of sizes n from 1 to 500. Feature f costs k0 + k1 n + k2 n^2 with k0 drawn from [0, 100], k1 from
[0, 1] and k2 from [0, 0.01], so that curves cross. It is helpful with probability --helpful, then its accuracy is drawn
from [0.7, 1], and else from [0.5, 0.7]. A set is as accurate as 1 - product over its k best features of (1 - accuracy),
0 without any; with k = 1 only the best feature of a set counts, with k = 2 every pair is worth something of its own.
Where features added may also do harm, by e at most, each set loses e times a number drawn from [0, 1].

Methods:

  poly-dom         the index over what a search with alpha expanded: at most alpha below the optimum
  expand-all       all 2^m sets
  greedy           sequences of features for seven trade-offs of accuracy and cost, at the median size
  greedy-accuracy  the one sequence that looks at accuracy only
  greedy-cost      the one that looks at cost only
  index-all        the candidates of poly-dom, indexed at every crossing of two of their curves
  scan             the candidates of poly-dom, gone through one by one

Four metrics: sets expanded; entries of the index (of the scan: candidates); seconds of a look-up, for one item and for
many at once; accuracy against budget, the mean over budgets from the cheapest feature to all features, evenly spread on
a logarithmic axis, at several sizes. Tables show medians over the draws, and maxima where they say so.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from protodask.budget import BudgetIndex, make_index
from protodask.budget.baselines import IndexAll, scan
from protodask.budget.greedy import make_greedy
from protodask.budget.lattice import explore
from protodask.explain.plots import budget_plot

if TYPE_CHECKING:
    from benchmarks import _budget_workload as work
    from benchmarks import _common as common
else:
    import _budget_workload as work
    import _common as common

Floats = NDArray[np.float64]

MEDIAN_SIZE = (work.SIZES[0] + work.SIZES[1]) / 2
SIZES_SHOWN = (1.0, 50.0, 100.0, 250.0, 500.0)
BUDGETS_SHOWN = 200

EXPAND_ALL, GREEDY, GREEDY_ACCURACY, GREEDY_COST = "expand-all", "greedy", "greedy-accuracy", "greedy-cost"
TRADE_OFFS: dict[str, Any] = {GREEDY: None, GREEDY_ACCURACY: ["accuracy"], GREEDY_COST: ["cost"]}
INDEX, INDEX_ALL, SCAN = "index", "index-all", "scan"

BAR_FEATURES, BAR_BEST, BAR_ALPHA = 10, 1, 0.01
MOST_EXPANDED = 100
LEAST_TIMES_SMALLER = 20.0
LEAST_TIMES_FASTER = 10.0
MOST_BULK_MICROSECONDS = 2.0
ROUNDING = 1e-9


@dataclass(frozen=True)
class Case:
    """One draw of the features."""

    features: int
    best: int
    """k"""
    error: float
    """e"""
    seed: int


@dataclass(frozen=True)
class Expanded:
    """How many sets a method expanded."""

    case: Case
    method: str
    sets: int
    seconds: float


@dataclass(frozen=True)
class Indexed:
    """How large the index is; None where it was not made, see --most-index-all."""

    case: Case
    alpha: float
    candidates: int
    index: int
    index_all: int | None
    seconds: float


@dataclass(frozen=True)
class LookedUp:
    """Seconds of a look-up, medians."""

    case: Case
    candidates: int
    method: str
    single: float
    bulk: float
    """For one of many items."""


@dataclass(frozen=True)
class Accurate:
    """Accuracy of what a method finds, the mean over budgets and sizes."""

    case: Case
    method: str
    mean: float
    of_optimum: float
    largest_shortfall: float
    """Below the optimum, of all budgets and sizes."""
    largest_excess: float
    """Above it, or the share by which a budget was exceeded: nothing but rounding."""


def poly_dom(alpha: float) -> str:
    return f"poly-dom {alpha:g}"


def build(workload: work.Workload, case: Case, alpha: float) -> tuple[BudgetIndex, Expanded]:
    """The index that a search with this alpha leads to."""
    began = time.perf_counter()
    found = explore(case.features, workload.expand, alpha=alpha, monotone_error=case.error)
    seconds = time.perf_counter() - began
    index = make_index(workload.curves, found.expansions, alpha=alpha, guarantee=found.guarantee)
    return index, Expanded(case, poly_dom(alpha), len(found.expansions), seconds)


def greedy(workload: work.Workload, case: Case, method: str) -> tuple[Any, Expanded]:
    """Greedy sequences for the median size."""
    began = time.perf_counter()
    index = make_greedy(workload.curves, workload.expand, TRADE_OFFS[method], size=MEDIAN_SIZE)
    return index, Expanded(case, method, index.expanded, time.perf_counter() - began)


def judge(workload: work.Workload, case: Case, method: str, index: Any) -> Accurate:
    """Look every budget up, and compare what the sets really are worth and cost with the brute-force optimum."""
    shortfall, excess, found_at, best_at = 0.0, 0.0, [], []
    masks = np.array([sum(1 << feature for feature in features) for features in index.sets])
    for size in SIZES_SHOWN:
        prices = workload.prices(size)
        budgets = np.geomspace(prices.min(), prices.sum(), BUDGETS_SHOWN)
        chosen = masks[index.choose(np.full(BUDGETS_SHOWN, size), budgets)]
        accuracy, optimum = workload.accuracies[chosen], workload.optimum(size, budgets)
        over_budget = work.sums_of_sets(prices)[chosen] / budgets - 1
        shortfall = max(shortfall, float((optimum - accuracy).max()))
        excess = max(excess, float((accuracy - optimum).max()), float(over_budget.max()))
        found_at.append(accuracy.mean())
        best_at.append(optimum.mean())
    mean, best = float(np.mean(found_at)), float(np.mean(best_at))
    return Accurate(case, method, mean, mean / best, shortfall, excess)


def look_up(index: BudgetIndex, index_all: Any | None, case: Case, queries: int, rounds: int) -> list[LookedUp]:
    """Time single look-ups and one of many, of random sizes and budgets, by each method in turns."""
    rng = np.random.default_rng(case.seed)
    sizes = rng.uniform(*work.SIZES, queries)
    prices = index.curves.of_set(frozenset(range(case.features))) @ np.stack([sizes**0, sizes, sizes**2])
    budgets = prices * 10 ** rng.uniform(-2, 0, queries)
    single = [*zip(sizes[:SINGLE].tolist(), budgets[:SINGLE].tolist(), strict=True)]
    methods: dict[str, Any] = {INDEX: index, SCAN: Scan(index)}
    if index_all is not None:
        methods[INDEX_ALL] = index_all

    def one_by_one(method: Any) -> None:
        for size, budget in single:
            method.best(size, budget)

    ones = common.alternate([partial(one_by_one, method) for method in methods.values()], rounds)
    many = common.alternate([partial(method.choose, sizes, budgets) for method in methods.values()], rounds)
    return [
        LookedUp(case, len(index.sets), name, common.median(one) / len(single), common.median(bulk) / queries)
        for name, one, bulk in zip(methods, ones, many, strict=True)
    ]
