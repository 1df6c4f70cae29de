"""What the fit saves by rows that grow and candidates that sleep: its defaults against all of both from start to end.

Both are fits of the classifier with the same candidates on the same rows, one after the other on two threads. `flights`
is the table of tables.py, the defaults but for these; `checker` are `--rows` rows of made data of two features with
1,000 candidates. `objective` is the mean over draws of the value that the solver ends with, of all rows in both;
`log-loss` is that of rows that neither has seen.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np
from sklearn.metrics import log_loss

from protodask.data.tables.synthetic import synthetic_source
from protodask.engine import thread_engine
from protodask.prototypes import objective
from protodask.prototypes.convergence import ConvergenceWarning
from protodask.prototypes.estimator import PrototypeSetClassifier

if TYPE_CHECKING:
    from benchmarks import _common as common
    from benchmarks import _tables as tables
    from benchmarks._datasets import Split
else:
    import _common as common
    import _tables as tables
    from _datasets import Split

THREADS = 2
TEST_ROWS = 100_000
CANDIDATES = 1000
NOBODY_SLEEPS = 2**62

LEAST_SPEEDUP = {"flights": 3.0, "checker": 5.0}
MOST_OF_OBJECTIVE, MOST_OF_LOSS = 0.001, 0.001


@dataclass(frozen=True)
class Result:
    """What one of the fits made of a problem."""

    problem: str
    fit: str
    rows: int
    seconds: float
    objective: float
    log_loss: float
    evaluations: int
    """Over all rows."""


def flights(_settings: argparse.Namespace) -> tuple[Split, dict[str, Any]]:
    return tables.encode(tables.ALL["flights"](), 0, "filled"), {}


def checker(settings: argparse.Namespace) -> tuple[Split, dict[str, Any]]:
    made = synthetic_source("checker", settings.rows + TEST_ROWS).rows(0, settings.rows + TEST_ROWS)
    features, target = made["features"], made["target"]
    train, test = slice(settings.rows), slice(settings.rows, None)
    return Split(features[train], target[train], features[test], target[test]), {"n_candidates": CANDIDATES}


PROBLEMS: dict[str, Callable[[argparse.Namespace], tuple[Split, dict[str, Any]]]] = {
    "flights": flights,
    "checker": checker,
}


def measure(problem: str, rows: Split, chosen: dict[str, Any], progressive: bool) -> Result:
    awake = objective.AWAKE if progressive else NOBODY_SLEEPS
    with thread_engine(THREADS) as engine, patch.object(objective, "AWAKE", awake), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = PrototypeSetClassifier(random_state=0, engine=engine, progressive=progressive, **chosen)
        seconds = common.timed(lambda: model.fit(rows.train_features, rows.train_target))
        probabilities = model.predict_proba(rows.test_features)
    return Result(
        problem,
        "defaults" if progressive else "all",
        len(rows.train_target),
        seconds,
        float(np.mean([record.value for record in model.history_])),
        float(log_loss(rows.test_target, probabilities, labels=model.classes_)),
        sum(record.evaluations for record in model.history_),
    )


def main() -> None:
    parser = common.make_parser(__doc__)
    parser.add_argument("--problems", type=common.choices(list(PROBLEMS)), default=list(PROBLEMS))
    parser.add_argument("--rows", type=common.positive, default=200_000, help="of checker")
    settings = parser.parse_args()
    measured_on = common.start("progressive")
    table = common.Table(
        "The fit against all rows and candidates", ("fit", "rows", "seconds", "objective", "log-loss", "evaluations")
    )
    results: list[Result] = []
    checks: list[common.Check] = []
    for problem in settings.problems:
        rows, chosen = PROBLEMS[problem](settings)
        pair = [measure(problem, rows, chosen, progressive) for progressive in (True, False)]
        for found in pair:
            table.row(
                f"{problem}: {found.fit}", found.rows, found.seconds, found.objective, found.log_loss, found.evaluations
            )
        results += pair
        ours, whole = pair
        checks += [
            common.Check(f"{problem}: times as fast", whole.seconds / ours.seconds, ">=", LEAST_SPEEDUP[problem]),
            common.Check(
                f"{problem}: objective over that", ours.objective / whole.objective - 1, "<=", MOST_OF_OBJECTIVE
            ),
            common.Check(f"{problem}: log-loss less that", ours.log_loss - whole.log_loss, "<=", MOST_OF_LOSS),
        ]
    common.finish("progressive", settings, measured_on, results, checks)


if __name__ == "__main__":
    main()
