"""A feature budget of many features on many rows: what greedy search and its index take, and what a look-up takes.

Rows of two classes; feature f is a normal number whose mean differs between them by d_f, drawn from an exponential
distribution of mean 0.2, so that every feature tells something. Feature f costs k0 + k1 n + k2 n^2 on an item of size
n, as in budget_study.py. All sets that greedy sequences of seven trade-offs come by are cross-validated with a linear
discriminant analysis, the cheapest classifier in scikit-learn that uses features together; then come the index of them,
the sequences themselves from the same accuracies, and the models of all answers on all rows.

Builds are measured in seconds of processor time, which other programs do not change, and so are look-ups. The fits of
the search are independent: two processors take half of it. `of a set` is the mean over the sets of the search. What
--large rows take is told from a sample of the sets that the last build cross-validated: these are cross-validated on so
many rows, and some are fitted to all of them. --large 0 leaves that out.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from protodask.budget import BudgetIndex
from protodask.budget.costs import CostCurves
from protodask.budget.expanding import expander
from protodask.budget.expansions import Expansion, FeatureSet
from protodask.budget.greedy import explore_greedily, make_greedy
from protodask.budget.index_building import index_exploration
from protodask.budget.matrix_models import MatrixModels, fit_all, make_folds
from protodask.engine import one_blas_thread, thread_engine

if TYPE_CHECKING:
    from benchmarks import _budget_workload as work
    from benchmarks import _common as common
else:
    import _budget_workload as work
    import _common as common

PROCESSORS = 2
MOST_SECONDS = 3600.0
MOST_MICROSECONDS = 10.0
MICROSECONDS = 1e6
MIDDLE = (work.SIZES[0] + work.SIZES[1]) / 2


@dataclass(frozen=True)
class Built:
    """Processor time of the parts of a build, in seconds."""

    rows: int
    sets: int
    search: float
    index: float
    sequences: float
    models: float
    answers: int
    entries: int
    margin: float


@dataclass(frozen=True)
class Sampled:
    """Processor time of some of the fits of a large build, in seconds, and what all of them come to."""

    rows: int
    sets: int
    of_a_set: float
    of_a_model: float
    total: float


@dataclass(frozen=True)
class LookedUp:
    """Processor time of a look-up of one item, in seconds."""

    method: str
    median: float
    slow: float
    """Of 99 in 100 no more."""


def processor_seconds(function: Callable[[], Any]) -> tuple[float, Any]:
    """What a call takes, on all threads, and what it gives."""
    began = time.process_time()
    found = function()
    return time.process_time() - began, found


def draw_rows(n_rows: int, n_features: int, n_folds: int, seed: int) -> MatrixModels:
    """Rows, and the classifier to judge on them."""
    rng = np.random.default_rng([n_features, seed])
    apart = rng.exponential(size=n_features) * 0.2
    codes = rng.integers(0, 2, n_rows)
    matrix = rng.standard_normal((n_rows, n_features))
    matrix += np.outer(codes, apart)
    spans = tuple(slice(feature, feature + 1) for feature in range(n_features))
    estimator = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.1)
    return MatrixModels(estimator, matrix, codes, spans, make_folds(codes, n_folds, seed, None, [0, 1]))


def build(box: MatrixModels, curves: CostCurves) -> tuple[Built, dict[str, Any]]:
    """Search, index, sequences and models."""
    with thread_engine(PROCESSORS) as engine:
        expand = expander(box.accuracy, engine)
        known: dict[FeatureSet, Expansion] = {}
        search, found = processor_seconds(lambda: explore_greedily(curves, expand, size=MIDDLE))
        known |= {one.features: one for one in found.expansions}

        def from_record(sets: Any, on_end: Callable[[Expansion], None]) -> None:
            for features in sets:
                on_end(known[features])

        index_seconds, index = processor_seconds(lambda: index_exploration(curves, found))
        assert isinstance(index, BudgetIndex)
        answers_seconds, answers = processor_seconds(lambda: index.answers)
        sequences, greedy = processor_seconds(lambda: make_greedy(curves, from_record, size=MIDDLE))
        models, _ = processor_seconds(lambda: fit_all(box, answers, engine))
    built = Built(
        rows=len(box.codes),
        sets=len(found.expansions),
        search=search,
        index=index_seconds + answers_seconds,
        sequences=sequences,
        models=models,
        answers=len(answers),
        entries=index.n_entries,
        margin=float("nan") if index.margin is None else index.margin,
    )
    return built, {"index": index, "greedy": greedy}


def sample_large(box: MatrixModels, sets: list[FeatureSet], built: Built, most: int, seed: int) -> Sampled:
    """What the same sets and models as in another build take on other rows."""
    chosen = np.random.default_rng(seed).permutation(len(sets))[:most].tolist()
    with one_blas_thread():
        own = [processor_seconds(partial(box.accuracy, sets[number]))[0] for number in chosen]
        models = [processor_seconds(partial(box.fit, sets[number]))[0] for number in chosen[:5] if sets[number]]
    of_a_set, of_a_model = float(np.mean(own)), float(np.mean(models))
    total = of_a_set * built.sets + of_a_model * built.answers + built.index + built.sequences
    return Sampled(len(box.codes), len(own), of_a_set, of_a_model, total)


def look_up(methods: dict[str, Any], curves: CostCurves, queries: int, seed: int) -> list[LookedUp]:
    """Each query by itself, in turns."""
    rng = np.random.default_rng(seed)
    sizes = rng.uniform(*work.SIZES, queries)
    whole = curves.of_set(frozenset(range(curves.n_features)))
    budgets = (whole[0] + whole[1] * sizes + whole[2] * sizes**2) * 10 ** rng.uniform(-2, 0, queries)
    pairs = list(zip(sizes.tolist(), budgets.tolist(), strict=True))
    taken: dict[str, list[float]] = {name: [] for name in methods}
    for size, budget in pairs:
        for name, method in methods.items():
            method.best(size, budget)  # wakes caches, as a second look-up in a row finds them
            seconds, _ = processor_seconds(partial(method.best, size, budget))
            taken[name].append(seconds)
    return [LookedUp(name, common.median(own), float(np.quantile(own, 0.99))) for name, own in taken.items()]


def main() -> None:
    parser = common.make_parser(__doc__)
    parser.add_argument("--rows", type=common.numbers, default=[20_000], help="of the builds")
    parser.add_argument("--large", type=int, default=1_000_000, help="rows of the build whose fits are sampled")
    parser.add_argument("--sample", type=common.positive, default=30, help="sets that are cross-validated on them")
    parser.add_argument("--features", type=common.positive, default=40)
    parser.add_argument("--folds", type=common.positive, default=3)
    parser.add_argument("--queries", type=common.positive, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    settings = parser.parse_args()
    measured_on = common.start("budget_large")
    rng = np.random.default_rng(settings.seed)
    curves = CostCurves.of(rng.uniform(size=(settings.features, 3)) * work.MOST_COEFFICIENTS, work.SIZES)
    table = common.Table(
        f"greedy search of {settings.features} features, {settings.folds} folds: processor seconds",
        ("rows", "sets", "search", "of a set", "index", "sequences", "models", "answers", "entries", "margin"),
        first_width=10,
    )
    results: list[Any] = []
    methods: dict[str, Any] = {}
    for n_rows in settings.rows:
        built, methods = build(draw_rows(n_rows, settings.features, settings.folds, settings.seed), curves)
        results.append(built)
        table.row(n_rows, built.sets, built.search, built.search / built.sets, built.index, built.sequences,
                  built.models, built.answers, built.entries, built.margin)  # fmt: skip
    looked_up = look_up(methods, curves, settings.queries, settings.seed)
    shown = common.Table("microseconds of a look-up of one item", ("method", "median", "99 in 100"), first_width=10)
    for one in looked_up:
        shown.row(one.method, one.median * MICROSECONDS, one.slow * MICROSECONDS)
    checks = [
        common.Check(f"microseconds of a look-up, {one.method}", one.median * MICROSECONDS, "<=", MOST_MICROSECONDS)
        for one in looked_up
    ]
    results += looked_up
    if settings.large:
        box = draw_rows(settings.large, settings.features, settings.folds, settings.seed)
        sets = [one.features for one in methods["index"].expansions]
        large = sample_large(box, sets, built, settings.sample, settings.seed)
        results.append(large)
        print(
            f"\n{large.rows:,} rows: {large.of_a_set:.3g} processor seconds of a set, {large.of_a_model:.3g} of a "
            f"model on all rows, {large.total:,.0f} for {built.sets:,} sets and {built.answers:,} models"
        )
        what = f"seconds on {PROCESSORS} processors for {large.rows:,} rows"
        checks.append(common.Check(what, large.total / PROCESSORS, "<=", MOST_SECONDS))
    common.finish("budget_large", settings, measured_on, results, checks)


if __name__ == "__main__":
    main()
