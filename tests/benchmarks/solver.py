"""Whether the solver reaches the optimum: its end against the best of long runs from other scales and starts.

The candidates of a fit without held-out rows (one draw, feature weights by class, 70 per cent of a table) are the same
for all runs, so their objectives compare. `own` is the package's fit with its defaults. `longer` is the same fit with a
tolerance of a thousandth, `best` the least objective of ten long runs: that one, and nine in other variables and from
other starts. The objective has several optima, so a long run may well end above another one; `spread` is the worst of
the ten over the best. `to 1%` are the evaluations after which the package's fit was within 1 per cent of the best.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from protodask.prototypes import objective as objective_module
from protodask.prototypes import rounds as rounds_module
from protodask.prototypes.config import FitConfig
from protodask.prototypes.convergence import ConvergenceWarning
from protodask.prototypes.estimator import PrototypeSetClassifier
from protodask.prototypes.history import FitEvent, IterationDone
from protodask.prototypes.objective import RoundProblem, starting_point
from protodask.prototypes.solver import solver_scale

if TYPE_CHECKING:
    from benchmarks import _common as common
    from benchmarks import _datasets as datasets
    from benchmarks import _tables as tables
else:
    import _common as common
    import _datasets as datasets
    import _tables as tables

TABLES = ["iris", "wine", "cancer", "digits", "cells", "hpc", "credit", "attrition", "wa_churn", "caravan"]

LONG_TOLERANCE = FitConfig.tolerance / 1000

MOST_ABOVE = 1.01
MOST_EVALUATIONS = 60
SUCCESS = ("converged", "stationary")


@dataclass(frozen=True)
class Way:
    """Times the package's own: scale of candidate weights and feature weights, and candidate weights at the start."""

    by_candidate: float = 1.0
    by_feature: float = 1.0
    start: float = 1.0

    def scale(
        self, n_features: int, n_candidates: int, n_batches: int, lengthening: float, n_varying: int
    ) -> NDArray[np.float64]:
        found = solver_scale(n_features, n_candidates, n_batches, lengthening, n_varying)
        found[n_batches * n_features :] *= self.by_candidate
        found[: n_batches * n_features] *= self.by_feature
        return found

    def starting_point(self, problem: RoundProblem) -> NDArray[np.float64]:
        found = starting_point(problem)
        found[problem.n_feature_weights :] *= self.start
        return found


LONG_RUNS = (
    Way(),
    Way(by_candidate=0.2),
    Way(by_candidate=5),
    Way(by_candidate=20, start=0.1),
    Way(by_feature=0.3),
    Way(by_feature=3),
    Way(by_candidate=0.2, by_feature=0.5),
    Way(start=0.2),
    Way(by_feature=0.5, start=0.1),
    Way(by_candidate=0.4, start=5),
)


@dataclass(frozen=True)
class Outcome:
    """One table, one split."""

    table: str
    seed: int
    status: str
    evaluations: int
    own: float
    """Objective at the end of the package's fit."""
    longer: float
    best: float
    spread: float
    within: int | None
    """Evaluations up to 1 per cent above the best; None where it ended before."""


@contextmanager
def in_the_way(way: Way) -> Iterator[None]:
    with (
        patch.object(objective_module, "solver_scale", way.scale),
        patch.object(rounds_module, "starting_point", way.starting_point),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


def fit(split: datasets.Split, seed: int, way: Way, **settings: Any) -> tuple[Any, list[tuple[int, float]]]:
    """The record of a fit, and its objective by evaluations."""
    path: list[tuple[int, float]] = []

    def hear(event: FitEvent) -> None:
        if isinstance(event, IterationDone):
            path.append((event.evaluations, event.value))

    classifier = PrototypeSetClassifier(
        hold_out=0.0, n_draws=1, feature_weights="class", random_state=seed, callbacks=[hear], **settings
    )
    with in_the_way(way):
        (record,) = classifier.fit(split.train_features, split.train_target).history_
    return record, path


def measure(name: str, seed: int, most: int) -> Outcome:
    split = tables.encode(tables.TABLES[name](), seed, "filled")
    own, path = fit(split, seed, Way())
    values = [fit(split, seed, way, tolerance=LONG_TOLERANCE, max_iterations=most)[0].value for way in LONG_RUNS]
    best = min(values)
    return Outcome(
        table=name,
        seed=seed,
        status=own.status,
        evaluations=own.evaluations,
        own=own.value,
        longer=values[0],
        best=best,
        spread=max(values) / best,
        within=next((evaluations for evaluations, value in path if value <= MOST_ABOVE * best), None),
    )


def main() -> None:
    parser = common.make_parser(__doc__)
    parser.add_argument(
        "--tables", type=common.choices(list(tables.TABLES)), default=TABLES, help="separated by commas"
    )
    parser.add_argument("--seeds", type=common.positive, default=1, help="splits of each table")
    parser.add_argument("--iterations", type=common.positive, default=2000, help="of a long run, at most")
    settings: argparse.Namespace = parser.parse_args()
    measured_on = common.start("solver")
    columns = ("table", "status", "evaluations", "objective", "own/longer", "own/best", "spread", "to 1%")
    printed = common.Table("the end of a fit against long runs", columns)
    results: list[Outcome] = []
    for name in settings.tables:
        for seed in range(settings.seeds):
            found = measure(name, seed, settings.iterations)
            printed.row(
                f"{name}, seed {seed}", found.status, found.evaluations, found.own, found.own / found.longer,
                found.own / found.best, found.spread, found.within,
            )  # fmt: skip
            results.append(found)
    success = [found for found in results if found.status in SUCCESS]
    ends = [found.within if found.within is not None else np.inf for found in results]
    checks = [
        common.Check("evaluations up to 1 per cent above the best, median", common.median(ends), "<=", MOST_EVALUATIONS)
    ]
    if success:
        above = [max(found.own / getattr(found, other) for found in success) for other in ("longer", "best")]
        checks += [
            common.Check("objective where success is reported over a longer run's", above[0], "<=", MOST_ABOVE),
            common.Check("objective where success is reported over the best of ten", above[1], "<=", MOST_ABOVE),
        ]
    common.finish("solver", settings, measured_on, results, checks)


if __name__ == "__main__":
    main()
