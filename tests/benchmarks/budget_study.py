"""Feature budgets on made-up features, where the best set under any budget is known: the study of the literature.

m features on items of sizes n from 1 to 500. Feature f costs k0 + k1 n + k2 n^2 with k0 drawn from [0, 100], k1 from
[0, 1] and k2 from [0, 0.01], so that curves cross. It is helpful with probability --helpful, then its accuracy is drawn
from [0.7, 1], and else from [0.5, 0.7]. A set is as accurate as 1 - product over its k best features of (1 - accuracy),
0 without any: with k = 1 only the best feature of a set counts, with k = 2 every pair is worth something of its own,
and with k = 15, which the literature does not look at, every feature counts. With an error e features added may also do
harm, by e at most: each set loses e times a number drawn from [0, 1].

Methods:

  poly-dom         the index over what a search with alpha expanded: at most alpha below the optimum; with `costs` the
                   search looks at the cost curves, too, for which it expands fewer sets
  expand-all       all 2^m sets
  greedy           sequences of features for seven trade-offs of accuracy and cost, at the median size
  greedy-accuracy  the one sequence that looks at accuracy only
  greedy-cost      the one that looks at cost only
  index-all        lists for all ranges of sizes between which the curves of any two sets cross: of the candidates,
                   which no other set dominates at all sizes, or of all sets that poly-dom expanded; as long as they are
                   at most --most-index-all sets, since the lists grow with the cube of their number; and for ten
                   features of all 2^m sets, which is what there is without any pruning
  scan             the candidates, gone through one by one
  vector scan      the costs of all candidates at once, with NumPy; of many items at once `scan` is that already

Four metrics: sets expanded; entries of the index (of the scan: candidates); seconds of a look-up, for one item and for
many at once; accuracy against budget, the mean over budgets from the cheapest feature to all features, evenly spread on
a logarithmic axis, at several sizes. Tables show medians over the draws, and maxima where they say so.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from protodask.budget import BudgetIndex
from protodask.budget.greedy import explore_greedily, make_greedy
from protodask.budget.greedy_index import GreedyIndex
from protodask.budget.index import make_index
from protodask.budget.index_building import index_exploration
from protodask.budget.lattice import explore
from protodask.explain.plots import budget_plot

if TYPE_CHECKING:
    from benchmarks import _budget_baselines as baselines
    from benchmarks import _budget_workload as work
    from benchmarks import _common as common
else:
    import _budget_baselines as baselines
    import _budget_workload as work
    import _common as common

Floats = NDArray[np.float64]

MEDIAN_SIZE = (work.SIZES[0] + work.SIZES[1]) / 2
SIZES_SHOWN = (1.0, 50.0, 100.0, 250.0, 500.0)
BUDGETS_SHOWN = 200
SINGLE = 1000
"""Look-ups that are timed one by one."""

EXPAND_ALL, GREEDY, GREEDY_ACCURACY, GREEDY_COST = "expand-all", "greedy", "greedy-accuracy", "greedy-cost"
GREEDY_INDEX = "greedy-index"
TRADE_OFFS: dict[str, Any] = {GREEDY_INDEX: None, GREEDY: None, GREEDY_ACCURACY: ["accuracy"], GREEDY_COST: ["cost"]}
INDEX, INDEX_ALL, SCAN, VECTOR_SCAN = "index", "index-all", "scan", "vector scan"

BAR_FEATURES, BAR_BEST, BAR_ALPHA = 10, 1, 0.01
MOST_EXPANDED = 100
LEAST_TIMES_SMALLER = 20.0
LEAST_TIMES_FASTER = 10.0
MOST_MICROSECONDS = 2.0
MICROSECONDS = 1e6
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

    def is_of(self, features: int, best: int, error: float = 0.0) -> bool:
        """Whatever the seed."""
        return (self.features, self.best, self.error) == (features, best, error)


@dataclass(frozen=True)
class Expanded:
    """How many sets a method expanded."""

    case: Case
    method: str
    sets: int
    seconds: float


@dataclass(frozen=True)
class Indexed:
    """Entries of the index."""

    case: Case
    method: str
    candidates: int
    index: int
    index_all: int | None
    """Of the candidates; None where they are too many."""
    index_all_expanded: int | None
    """The same of all expanded sets."""
    index_all_sets: int | None
    """The same of all sets; None unless these are the features and the search of the bound."""
    seconds: float
    """For finding the candidates, and listing them."""


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
    optimum: float
    """The same of the best of all sets."""
    shortfall: float
    """The largest below the optimum, of all budgets and sizes."""
    excess: float
    """The largest above it, or the share by which a budget was exceeded: nothing but rounding."""


@dataclass(frozen=True)
class Found:
    """All that was measured."""

    expanded: list[Expanded] = field(default_factory=list)
    indexed: list[Indexed] = field(default_factory=list)
    looked_up: list[LookedUp] = field(default_factory=list)
    accurate: list[Accurate] = field(default_factory=list)
    largest: list[tuple[BudgetIndex, Case]] = field(default_factory=list)
    """The index of the most candidates so far."""


@dataclass(frozen=True)
class Search:
    """A way to find the sets to expand."""

    alpha: float
    costs_known: bool = False

    def __str__(self) -> str:
        return f"poly-dom {self.alpha:g}" + (", costs" if self.costs_known else "")


BAR = Search(BAR_ALPHA)


def searches(alphas: Sequence[float]) -> list[Search]:
    """One for each alpha, and that of the bound once more with costs."""
    return [*map(Search, alphas), *(Search(alpha, costs_known=True) for alpha in alphas if alpha == BAR_ALPHA)]


def build(workload: work.Workload, case: Case, search: Search) -> tuple[BudgetIndex, Expanded]:
    """The index that a search leads to."""
    costs = workload.curves if search.costs_known else None
    began = time.perf_counter()
    found = explore(case.features, workload.expand, costs=costs, alpha=search.alpha, monotone_error=case.error)
    seconds = time.perf_counter() - began
    index = make_index(workload.curves, found.expansions, alpha=search.alpha, guarantee=found.guarantee)
    return index, Expanded(case, str(search), len(found.expansions), seconds)


def greedy(workload: work.Workload, case: Case, method: str) -> tuple[Any, Expanded]:
    """Greedy sequences for the median size, or an index of all that they expand."""
    began = time.perf_counter()
    index: BudgetIndex | GreedyIndex
    if method == GREEDY_INDEX:
        index = index_exploration(workload.curves, explore_greedily(workload.curves, workload.expand, size=MEDIAN_SIZE))
    else:
        index = make_greedy(workload.curves, workload.expand, TRADE_OFFS[method], size=MEDIAN_SIZE)
    return index, Expanded(case, method, index.expanded, time.perf_counter() - began)


def size_up(workload: work.Workload, index: BudgetIndex, case: Case, search: Search, most: int) -> Indexed:
    """Make the index anew, which takes some time, and the others."""
    began = time.perf_counter()
    entries = make_index(workload.curves, index.expansions).n_entries
    seconds = time.perf_counter() - began
    of_candidates, of_expanded = (
        baselines.index_all(index.curves, candidates).n_entries if len(candidates.sets) <= most else None
        for candidates in (index.candidates, baselines.unpruned(index))
    )
    of_all = None
    if search == BAR and case.features == BAR_FEATURES:
        every = make_index(workload.curves, baselines.expand_all(case.features, workload.expand))
        of_all = baselines.index_all(every.curves, baselines.unpruned(every)).n_entries
    return Indexed(case, str(search), len(index.sets), entries, of_candidates, of_expanded, of_all, seconds)


def judge(optima: work.Optima, case: Case, method: str, index: Any) -> Accurate:
    """Look every budget up, and compare what the sets really are worth and cost with the optimum."""
    masks = np.array([sum(1 << feature for feature in features) for features in index.sets])
    chosen = masks[index.choose(optima.sizes[:, None], optima.budgets)]
    below = optima.accuracies - optima.workload.accuracies[chosen]
    over_budget = np.take_along_axis(optima.costs, chosen, axis=1) / optima.budgets - 1
    best = float(optima.accuracies.mean())
    excess = max(0.0, -float(below.min()), float(over_budget.max()))
    return Accurate(case, method, best - float(below.mean()), best, float(below.max()), excess)


def study(case: Case, settings: argparse.Namespace, found: Found) -> None:
    """One draw, by all methods."""
    workload = work.draw_workload(case.features, case.best, settings.helpful, case.seed, case.error)
    found.expanded.append(Expanded(case, EXPAND_ALL, 1 << case.features, 0.0))
    optima = work.Optima.of(workload, SIZES_SHOWN, BUDGETS_SHOWN)
    for search in searches(settings.alphas):
        index, expanded = build(workload, case, search)
        found.expanded.append(expanded)
        found.indexed.append(size_up(workload, index, case, search, settings.most_index_all))
        found.accurate.append(judge(optima, case, str(search), index))
        if case.seed == 0 and search.alpha == min(settings.alphas) and not search.costs_known:
            found.looked_up.extend(look_up(index, case, settings))
        if not found.largest or len(index.sets) > len(found.largest[0][0].sets):
            found.largest[:] = [(index, case)]
    for method in TRADE_OFFS:
        index_of_sequences, expanded = greedy(workload, case, method)
        found.expanded.append(expanded)
        found.accurate.append(judge(optima, case, method, index_of_sequences))


def look_up(index: BudgetIndex, case: Case, settings: argparse.Namespace) -> list[LookedUp]:
    """Time look-ups of random sizes and budgets, one at a time and many at once, by each method in turns."""
    rng = np.random.default_rng(case.seed)
    sizes = rng.uniform(*work.SIZES, settings.queries)
    whole = index.curves.of_set(frozenset(range(case.features)))
    budgets = (whole[0] + whole[1] * sizes + whole[2] * sizes**2) * 10 ** rng.uniform(-2, 0, settings.queries)
    single = [*zip(sizes[:SINGLE].tolist(), budgets[:SINGLE].tolist(), strict=True)]
    methods: dict[str, Any] = {INDEX: index, SCAN: baselines.Scan(index.curves, index.candidates)}
    if len(index.sets) <= settings.most_index_all:
        methods[INDEX_ALL] = baselines.index_all(index.curves, index.candidates)

    def one_by_one(best: Any) -> None:
        for size, budget in single:
            best(size, budget)

    bests = {name: method.best for name, method in methods.items()} | {VECTOR_SCAN: methods[SCAN].best_vectorized}
    # Processor time: nothing here waits or runs on several threads, and other programs do not count.
    ones = common.alternate([partial(one_by_one, best) for best in bests.values()], settings.rounds, time.process_time)
    many = common.alternate(
        [partial(method.choose, sizes, budgets) for method in methods.values()], settings.rounds, time.process_time
    )
    bulk = dict(zip(methods, many, strict=True))
    return [
        LookedUp(
            case,
            len(index.sets),
            name,
            common.median(one) / len(single),
            common.median(bulk[name if name in bulk else SCAN]) / settings.queries,
        )
        for name, one in zip(bests, ones, strict=True)
    ]


def name_of(best: int, features: Sequence[int]) -> str:
    """Of a way in which accuracies combine."""
    return f"k = {best}" + (" (every feature counts)" if best >= max(features) > 1 else "")


def show_expanded(found: Found, settings: argparse.Namespace) -> None:
    """A table for each k."""
    methods = [str(search) for search in searches(settings.alphas)]
    columns = [*(part for method in methods for part in (method, "max")), *TRADE_OFFS]
    for best in settings.best:
        title = f"sets expanded, {name_of(best, settings.features)}"
        table = common.Table(title, ("features", EXPAND_ALL, *columns), first_width=8)
        for features in settings.features:
            sets: dict[str, list[int]] = {}
            for one in found.expanded:
                if one.case.is_of(features, best):
                    sets.setdefault(one.method, []).append(one.sets)
            cells = [part for method in methods for part in (common.median(sets[method]), max(sets[method]))]
            table.row(features, 1 << features, *cells, *(common.median(sets[method]) for method in TRADE_OFFS))


def show_indexed(found: Found, settings: argparse.Namespace) -> None:
    """A table for each k: for the first alpha and for that of the bound."""
    alphas = sorted({settings.alphas[0], *(alpha for alpha in settings.alphas if alpha == BAR_ALPHA)})
    kinds = (SCAN, INDEX, INDEX_ALL, "expanded")
    columns = [f"{kind} {alpha:g}" for alpha in alphas for kind in kinds]
    for best in settings.best:
        title = f"entries of the index, {name_of(best, settings.features)}"
        table = common.Table(title, ("features", *columns), first_width=8)
        for features in settings.features:
            cells: list[float | None] = []
            for alpha in alphas:
                rows = [
                    one for one in found.indexed if one.case.is_of(features, best) and one.method == str(Search(alpha))
                ]
                cells += [middle([one.candidates for one in rows]), middle([one.index for one in rows])]
                cells += [middle([one.index_all for one in rows]), middle([one.index_all_expanded for one in rows])]
            table.row(features, *cells)


def middle(values: Sequence[float | None]) -> float | None:
    """The median, None where one is missing."""
    known = [value for value in values if value is not None]
    return common.median(known) if known and len(known) == len(values) else None


def show_looked_up(found: Found) -> None:
    """Microseconds, and how many times those of the index the fastest scan takes."""
    kinds = {"single": (INDEX, INDEX_ALL, SCAN, VECTOR_SCAN), "bulk": (INDEX, INDEX_ALL, SCAN)}
    columns = ("features, k, e", "candidates", *(f"{name}, 1" for name in kinds["single"]), "times",
               *(f"{name}, many" for name in kinds["bulk"]), "times")  # fmt: skip
    table = common.Table("microseconds of a look-up: of one item, and of one of many at once", columns, first_width=16)
    for first in (one for one in found.looked_up if one.method == INDEX):
        case = first.case
        rows = {one.method: one for one in found.looked_up if one.case == case and one.candidates == first.candidates}
        cells: list[float | None] = []
        for seconds, names in kinds.items():
            taken = [getattr(rows.get(name), seconds, None) for name in names]
            cells += [None if one is None else one * MICROSECONDS for one in taken]
            cells.append(fastest_scan(rows, seconds) / getattr(first, seconds))
        table.row(f"{case.features}, {case.best}, {case.error:g}", first.candidates, *cells)


def fastest_scan(rows: dict[str, LookedUp], seconds: str) -> float:
    """Of the two, for one item or for many: what the index has to be compared with."""
    return min(float(getattr(rows[name], seconds)) for name in (SCAN, VECTOR_SCAN))


def show_accurate(found: Found, settings: argparse.Namespace, features: int) -> None:
    """A table for each k."""
    for best in settings.best:
        columns = ("method", "accuracy", "of optimum", "shortfall", "max")
        title = f"accuracy over all budgets, {features} features, {name_of(best, settings.features)}"
        table = common.Table(title, columns)
        for method in (*map(str, searches(settings.alphas)), *TRADE_OFFS):
            rows = [
                one for one in found.accurate
                if one.case.is_of(features, best) and one.method == method
            ]  # fmt: skip
            short = [one.shortfall for one in rows]
            mean, share = [one.mean for one in rows], [one.mean / one.optimum for one in rows]
            table.row(method, common.median(mean), common.median(share), common.median(short), max(short))


def show_errors(found: Found, settings: argparse.Namespace) -> None:
    """What an error of monotonicity costs."""
    methods = [str(search) for search in searches(settings.alphas)]
    columns = ("error", *methods, "greedy", "candidates", INDEX, INDEX_ALL)
    title = f"sets expanded and entries by the error e, {settings.error_features} features, k = {settings.best[0]}"
    table = common.Table(title, columns, first_width=8)
    for error in settings.errors:
        mine = (settings.error_features, settings.best[0], error)
        cells = [
            common.median([
                one.sets for one in found.expanded
                if one.case.is_of(*mine) and one.method == method
            ])
            for method in (*methods, GREEDY)
        ]  # fmt: skip
        rows = [
            one for one in found.indexed
            if one.case.is_of(*mine) and one.method == str(Search(settings.alphas[0]))
        ]  # fmt: skip
        entries = [middle([getattr(one, name) for one in rows]) for name in ("candidates", "index", "index_all")]
        table.row(f"{error:g}", *cells, *entries)


def plot(path: str, settings: argparse.Namespace, features: int) -> None:
    """One draw with k = 2, or what there is."""
    case = Case(features, 2 if 2 in settings.best else settings.best[0], 0.0, 0)
    workload = work.draw_workload(case.features, case.best, settings.helpful, case.seed)
    methods: dict[str, Any] = {str(search): build(workload, case, search)[0] for search in searches(settings.alphas)}
    methods |= {method: greedy(workload, case, method)[0] for method in TRADE_OFFS}
    ends = workload.prices(SIZES_SHOWN[0]).min(), workload.prices(SIZES_SHOWN[-1]).sum()
    budget_plot(methods, SIZES_SHOWN, (float(ends[0]), float(ends[1]))).savefig(path, dpi=150)
    print(f"\nDrawn to {path}.")


def checks_of(found: Found, alphas: Sequence[float]) -> list[common.Check]:
    """What must hold; what was not measured is not checked."""
    checks = []
    if at_bar := [
        one.sets for one in found.expanded if one.case.is_of(BAR_FEATURES, BAR_BEST) and one.method == str(BAR)
    ]:
        checks.append(common.Check(f"sets expanded of {1 << BAR_FEATURES:,}, most", max(at_bar), "<=", MOST_EXPANDED))
    for best in sorted({one.case.best for one in found.indexed}):
        # Over the candidates alone there is nothing to gain: pruning leaves four or five of them where k = 1.
        times = [
            None if one.index_all_sets is None else one.index_all_sets / one.index
            for one in found.indexed
            if one.case.is_of(BAR_FEATURES, best) and one.method == str(BAR)
        ]
        if (typical := middle(times)) is not None:
            what = f"index-all of all {1 << BAR_FEATURES:,} sets over index, k = {best}"
            checks.append(common.Check(what, typical, ">=", LEAST_TIMES_SMALLER))
        alike = [
            None if one.index_all is None else one.index_all / one.index
            for one in found.indexed
            if one.case.is_of(BAR_FEATURES, best) and one.method == str(BAR)
        ]
        if (typical := middle(alike)) is not None:
            checks.append(common.Check(f"index-all of the same candidates over index, k = {best}", typical, ">=", 1.0))
    largest = max(one.candidates for one in found.looked_up)
    rows = {one.method: one for one in found.looked_up if one.candidates == largest}
    slowest = max(one.bulk for one in found.looked_up if one.method == INDEX) * MICROSECONDS
    single, bulk = (fastest_scan(rows, of) / getattr(rows[INDEX], of) for of in ("single", "bulk"))
    plain = rows[SCAN].single / rows[INDEX].single
    checks += [
        common.Check(f"scan over index, {largest} candidates, one item", plain, ">=", LEAST_TIMES_FASTER),
        common.Check(f"faster scan over index, {largest} candidates, one item", single, ">=", 1.0),
        common.Check(f"scan over index, {largest} candidates, many items", bulk, ">=", LEAST_TIMES_FASTER),
        common.Check("microseconds of a look-up among many, most", slowest, "<=", MOST_MICROSECONDS),
        common.Check("above the optimum, all methods", max(one.excess for one in found.accurate), "<=", ROUNDING),
    ]
    for search in searches(alphas):
        worst = max(one.shortfall for one in found.accurate if one.method == str(search))
        checks.append(common.Check(f"below the optimum, {search}", worst, "<=", search.alpha + ROUNDING))
    return checks


def main() -> None:
    parser = common.make_parser(__doc__)
    parser.add_argument("--features", type=common.numbers, default=[*range(1, 16)], help="values of m")
    parser.add_argument("--best", type=common.numbers, default=[1, 2, 15], help="values of k")
    parser.add_argument("--alphas", type=common.fractions, default=[0.0, 0.01, 0.05], help="of poly-dom")
    parser.add_argument("--errors", type=common.fractions, default=[0.0, 0.005, 0.01, 0.02, 0.05], help="values of e")
    parser.add_argument("--error-features", type=common.positive, default=10, help="m where there is an error")
    parser.add_argument(
        "--most-index-all", type=common.positive, default=256, help="sets whose every crossing is indexed"
    )
    parser.add_argument("--helpful", type=float, default=0.2, help="probability that a feature is")
    parser.add_argument("--seeds", type=common.positive, default=10, help="draws of the features")
    parser.add_argument("--queries", type=common.positive, default=100_000, help="look-ups at once")
    parser.add_argument("--rounds", type=common.positive, default=5, help="calls that are timed")
    parser.add_argument("--plot", metavar="FILE.png", help="also draw accuracy against budget into this file")
    settings = parser.parse_args()
    measured_on = common.start("budget_study")
    found = Found()
    for best, features, seed in product(settings.best, settings.features, range(settings.seeds)):
        study(Case(features, best, 0.0, seed), settings, found)
    for error, seed in product(settings.errors, range(settings.seeds)):
        if error > 0 or settings.error_features not in settings.features:
            study(Case(settings.error_features, settings.best[0], error, seed), settings, found)
    if not any(one.candidates == len(found.largest[0][0].sets) for one in found.looked_up):
        found.looked_up.extend(look_up(*found.largest[0], settings))
    shown = BAR_FEATURES if BAR_FEATURES in settings.features else max(settings.features)
    show_expanded(found, settings)
    show_indexed(found, settings)
    show_looked_up(found)
    show_accurate(found, settings, shown)
    show_errors(found, settings)
    if settings.plot is not None:
        plot(settings.plot, settings, shown)
    results = [*found.expanded, *found.indexed, *found.looked_up, *found.accurate]
    common.finish("budget_study", settings, measured_on, results, checks_of(found, settings.alphas))


if __name__ == "__main__":
    main()
