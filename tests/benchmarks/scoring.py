"""A model's answers outside of any scheduler: from the start of a process, of one row, of many, and as an ONNX graph.

A made-up model of one batch, and one that is fitted with the defaults, on 30 features. `start s` is a fresh process
that reads the model and answers one row, `row us` one more row in a process that has answered before, `rows s` 100,000
rows. The peers, trained on the same rows as the second model, answer the same rows in their fastest documented way.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from protodask import PrototypeSet, PrototypeSetClassifier
from protodask.data.format.schema import Column
from protodask.prototypes.batches import Batch

if TYPE_CHECKING:
    from benchmarks import _common as common
else:
    import _common as common

MOST_START_SECONDS = 0.3
MOST_ROW_MICROSECONDS = 50.0
MOST_DIFFERENCE = 1e-6
CALLS = 2000
MANY = 100_000
FEATURES = 30

OURS = "import sys; from protodask import load_model; load_model(sys.argv[1]).predict_proba([0.5] * 30)"
GRAPH = """
import sys, numpy, onnxruntime
onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"]).run(None, {"rows": ROW})
""".replace("ROW", "numpy.full((1, 30), 0.5, dtype=sys.argv[2])")
PICKLED = "import pickle, sys, numpy; pickle.load(open(sys.argv[1], 'rb')).predict_proba(numpy.full((1, 30), 0.5))"


@dataclass(frozen=True)
class Answers:
    """How fast somebody answers; medians."""

    who: str
    prototypes: int | None
    start_seconds: float
    row_microseconds: float
    rows_seconds: float
    difference: float | None
    """Of the largest probability from that of the model itself."""


def problem(rows: int, seed: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Rows whose class depends on a few features, of which one is skewed."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, FEATURES))
    X[:, 3] = np.exp(X[:, 3])
    return X, (X[:, 0] + X[:, 1] ** 2 + np.log(X[:, 3]) + rng.normal(size=rows) / 2 > 1).astype(np.int64)


def made_up(n_prototypes: int) -> PrototypeSet:
    """A model of one batch that looks at all features."""
    rng = np.random.default_rng(0)
    batch = Batch(
        feature_index=np.arange(FEATURES),
        feature_weight=rng.uniform(0.1, 0.5, FEATURES),
        center=rng.normal(size=FEATURES),
        scale=rng.uniform(0.5, 2, FEATURES),
        prototypes=rng.normal(size=(n_prototypes, FEATURES)),
        prototype_class=np.sort(rng.integers(0, 2, n_prototypes)),
        prototype_weight=rng.uniform(0.1, 1, n_prototypes),
        row=np.arange(n_prototypes),
    )
    names = tuple(f"x{place}" for place in range(FEATURES))
    return PrototypeSet(np.array([0.5, 0.5]), (0, 1), names, tuple(map(Column, names)), batches=(batch,))


def started(program: str, *arguments: str) -> float:
    """Seconds of a process from its start to its end."""
    command = [sys.executable, "-c", program, *arguments]
    return common.median([common.timed(lambda: subprocess.run(command, check=True)) for _ in range(7)])


def answering(function: Callable[[Any], Any], row: Any, rows: Any) -> tuple[float, float]:
    """Microseconds of a row, and seconds of many."""
    function(row)
    times = []
    for _ in range(5):
        began = time.perf_counter()
        for _ in range(CALLS):
            function(row)
        times.append((time.perf_counter() - began) / CALLS * 1e6)
    return common.median(times), common.median([common.timed(lambda: function(rows)) for _ in range(3)])


def measure_model(who: str, model: PrototypeSet, folder: str) -> list[Answers]:
    """The model itself, and its graph."""
    onnxruntime = common.peer("onnxruntime")
    stored, graph = os.path.join(folder, "model.zarr"), os.path.join(folder, "model.onnx")
    model.save(stored, overwrite=True)
    model.to_onnx(graph, overwrite=True)
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    precision = model.row_precision
    rows = problem(MANY, 2)[0].astype(precision)

    def asked(given: Any) -> Any:
        return session.run(None, {"rows": given})[1]

    difference = float(np.abs(asked(rows) - model.predict_proba(rows)).max())
    own = answering(model.predict_proba, rows[:1], rows)
    other = answering(asked, rows[:1], rows)
    return [
        Answers(who, model.n_prototypes, started(OURS, stored), *own, None),
        Answers(f"{who}, onnxruntime", model.n_prototypes, started(GRAPH, graph, precision), *other, difference),
    ]


def measure_peer(who: str, fitted: Any, folder: str, predict: Callable[[Any], Any] | None = None) -> Answers:
    """A fitted scikit-learn estimator; `predict` is a faster way."""
    place = os.path.join(folder, "peer.pickle")
    with open(place, "wb") as file:
        pickle.dump(fitted, file)
    rows = problem(MANY, 2)[0]
    return Answers(
        who, None, started(PICKLED, place), *answering(predict or fitted.predict_proba, rows[:1], rows), None
    )


def main() -> None:
    parser = common.make_parser(__doc__)
    parser.add_argument("--prototypes", type=common.positive, default=1000, help="of the made-up model")
    parser.add_argument("--rows", type=common.positive, default=5000, help="rows to train on")
    settings = parser.parse_args()
    xgboost, boosting = common.peer("xgboost"), common.peer("sklearn.ensemble")
    measured_on = common.start("scoring")
    X, y = problem(settings.rows, 1)
    table = common.Table("answers", ("who", "prototypes", "start s", "row us", "rows s", "difference"))
    results: list[Answers] = []
    with tempfile.TemporaryDirectory() as folder:
        results += measure_model("made up", made_up(settings.prototypes), folder)
        results += measure_model("defaults", PrototypeSetClassifier(random_state=0).fit(X, y).model_, folder)
        trees = xgboost.XGBClassifier(n_jobs=2).fit(X, y)
        results.append(measure_peer("xgboost", trees, folder, trees.get_booster().inplace_predict))
        histogram = boosting.HistGradientBoostingClassifier(random_state=0).fit(X, y)
        results.append(measure_peer("histogram boosting", histogram, folder))
        for found in results:
            table.row(
                found.who, found.prototypes, found.start_seconds, found.row_microseconds, found.rows_seconds,
                found.difference,
            )  # fmt: skip
    checks = [
        common.Check("seconds from start to answer", results[0].start_seconds, "<=", MOST_START_SECONDS),
        common.Check("microseconds of a row", results[0].row_microseconds, "<=", MOST_ROW_MICROSECONDS),
        common.Check(
            "difference of graphs",
            max(found.difference for found in results if found.difference is not None),
            "<=",
            MOST_DIFFERENCE,
        ),
    ]
    common.finish("scoring", settings, measured_on, results, checks)


if __name__ == "__main__":
    main()
