"""A fit on very many rows under a memory limit: minutes, peak memory and quality, beside XGBoost's.

Made rows of 30 features, of which ten say something: three classes, each a mixture of ten normal distributions. `best`
is the log-loss of the true probabilities. The dataset is written to disk; then, each in a fresh process with two
threads and `--limit` bytes,

fit        the defaults with `--candidates`, on all rows.
sample     the same on the first `--sample` of them, which is what one would do without.
xgboost    on all rows, through its external-memory interface (quantile cuts, hist) from the same dataset, with its
           defaults but for as many trees as it makes in the time that `fit` took, or until fifty of them have not
           lowered the log-loss of rows it does not see. `100 trees` is its loss after its default number.
all        with --all alone: all rows and all candidates from start to end, to compare `fit` with.

All are judged on the `--test` rows that follow those of the dataset. `objective` is that of the end over all rows.
XGBoost keeps to no limit: its peak is what it took.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from protodask.data.format.dataset import Dataset
from protodask.data.format.schema import FEATURES, TARGET, Column
from protodask.data.format.writer import write_dataset
from protodask.engine import Block, Layout, choose_block_rows, thread_engine

if TYPE_CHECKING:
    from benchmarks import _common as common
    from benchmarks._processes import Ready, in_fresh_process
else:
    import _common as common
    from _processes import Ready, in_fresh_process

Floats = NDArray[np.float64]

THREADS = 2
GRANULE = 8192
"""Rows that one random stream makes, by its number: the first rows are the same however many there are."""
CLASSES, CLUSTERS, TELLING = 3, 10, 10
"""Classes, clusters of each, and features that differ between them."""
SPREAD = 1.3
"""Of the clusters' centres, in each feature, where the clusters themselves have standard deviations of 0.5 to 1.5."""
PATIENCE = 50

MOST_MINUTES, LEAST_SPEEDUP = 30.0, 8.0
MOST_OF_OBJECTIVE, MOST_OF_LOSS = 0.001, 0.001


@lru_cache(maxsize=1)
def clusters() -> tuple[Floats, Floats]:
    """Centres (30, 10) and standard deviations (30,) of the clusters; those of a class follow each other."""
    random = np.random.default_rng(20)
    return SPREAD * random.standard_normal((CLASSES * CLUSTERS, TELLING)), random.uniform(0.5, 1.5, CLASSES * CLUSTERS)


@dataclass(frozen=True)
class Mixture:
    """Rows made when they are read."""

    layout: Layout
    n_features: int
    first: int = 0
    """The granule that they begin with."""

    @property
    def key(self) -> str:
        return f"mixture/{self.layout}/{self.n_features}/{self.first}"

    @property
    def resident(self) -> bool:
        return False

    def read(self, number: int) -> Block:
        start, stop = self.layout.bounds(number)
        features = np.empty((stop - start, self.n_features), np.float32)
        target = np.empty(stop - start, np.int32)
        for low in range(start, stop, GRANULE):
            rows = slice(low - start, min(low + GRANULE, stop) - start)
            features[rows], target[rows] = self._granule(self.first + low // GRANULE, rows.stop - rows.start)
        return Block(number, start, {FEATURES.name: features, TARGET.name: target})

    def _granule(self, number: int, rows: int) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
        random = np.random.Generator(np.random.SFC64(number))
        centers, spread = clusters()
        cluster = random.integers(0, len(centers), GRANULE)
        features = random.standard_normal((GRANULE, self.n_features), np.float32)
        features[:, :TELLING] *= spread[cluster, None].astype(np.float32)
        features[:, :TELLING] += centers[cluster].astype(np.float32)
        return features[:rows], (cluster[:rows] // CLUSTERS).astype(np.int32)


def true_probabilities(features: NDArray[np.float32]) -> Floats:
    """Of each class (N, 3)."""
    centers, spread = clusters()
    telling = features[:, :TELLING].astype(np.float64)
    squared = (telling**2).sum(1)[:, None] - 2 * telling @ centers.T + (centers**2).sum(1)
    logs = -squared / (2 * spread**2) - TELLING * np.log(spread)
    density = np.exp(logs - logs.max(1, keepdims=True)).reshape(len(features), CLASSES, CLUSTERS).sum(2)
    found: Floats = density / density.sum(1, keepdims=True)
    return found


def log_loss(probabilities: Floats, target: NDArray[np.int32]) -> float:
    return float(-np.log(np.maximum(probabilities[np.arange(len(target)), target], 1e-300)).mean())


def test_rows(settings: argparse.Namespace) -> Block:
    """Rows of granules that no dataset here has."""
    granules = -(-settings.rows // GRANULE)
    return Mixture(Layout(settings.test, 2**62), settings.features, granules).read(0)


def make(rows: int, settings: argparse.Namespace, out: str) -> Dataset:
    layout = Layout(rows, choose_block_rows(rows, 4 * settings.features + 4))
    with thread_engine(THREADS, settings.limit) as engine:
        return write_dataset(
            Mixture(layout, settings.features),
            out,
            classes=range(CLASSES),
            columns=[Column(f"x{number}") for number in range(settings.features)],
            engine=engine,
            block_rows=layout.block_rows,
        )


@dataclass(frozen=True)
class Result:
    """What one method made of the rows."""

    method: str
    rows: int
    seconds: float
    peak: int
    """Largest resident size of its process, in bytes."""
    log_loss: float
    objective: float | None = None
    passes: int | None = None
    """Evaluations over all rows."""
    notes: str = ""


def fit_ours(ready: Ready, method: str, data: str, settings: argparse.Namespace) -> Result:
    from protodask.prototypes import FitConfig, fit, objective

    dataset = Dataset.open(data)
    config = FitConfig(n_candidates=settings.candidates, progressive=method != "all")
    if method == "all":
        objective.AWAKE = 2**62  # nobody ever sleeps
    said: list[str] = []
    with thread_engine(THREADS, settings.limit) as engine:
        ready()
        began = time.perf_counter()
        run = fit(dataset, config, engine=engine)
        seconds = time.perf_counter() - began
    peak = common.peak_resident(os.getpid())
    for record in run.history:
        said += [f"{stage.rows:,}: {stage.evaluations}" for stage in record.stages]
        said.append(f"{record.prototypes} prototypes, {record.status}")
    test = test_rows(settings)
    probabilities = run.model.predict_proba(test[FEATURES.name])
    return Result(
        method,
        dataset.n_rows,
        seconds,
        peak,
        log_loss(probabilities, test[TARGET.name]),
        sum(record.value for record in run.history) / len(run.history),
        sum(record.evaluations for record in run.history),
        "; ".join(said),
    )


def fit_xgboost(ready: Ready, data: str, settings: argparse.Namespace, limit: float) -> Result:
    """Trees for as long as `limit` seconds."""
    xgboost = common.peer("xgboost")

    dataset = Dataset.open(data)
    test = test_rows(settings)
    half = settings.test // 2  # those that end it, and those that judge it

    class Blocks(xgboost.DataIter):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__(cache_prefix=os.path.join(os.path.dirname(data), "xgboost-cache"), on_host=False)
            self._at: Iterator[Block] = iter(())

        def next(self, input_data: Callable[..., Any]) -> bool:
            for block in self._at:
                input_data(data=block[FEATURES.name], label=block[TARGET.name])
                return True
            return False

        def reset(self) -> None:
            numbers = range(dataset.layout.n_blocks)
            self._at = iter(map(dataset.read, numbers))

    class Clock(xgboost.callback.TrainingCallback):  # type: ignore[misc,name-defined]
        def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
            return time.perf_counter() - began > limit

    ready()
    began = time.perf_counter()
    rows = xgboost.ExtMemQuantileDMatrix(Blocks(), nthread=THREADS)
    judge = xgboost.QuantileDMatrix(test[FEATURES.name][:half], test[TARGET.name][:half], ref=rows, nthread=THREADS)
    losses: dict[str, dict[str, list[float]]] = {}
    model = xgboost.train(
        {"objective": "multi:softprob", "num_class": CLASSES, "tree_method": "hist", "nthread": THREADS},
        rows,
        num_boost_round=10_000,
        evals=[(judge, "judge")],
        evals_result=losses,
        early_stopping_rounds=PATIENCE,
        callbacks=[Clock()],
        verbose_eval=False,
    )
    seconds = time.perf_counter() - began
    peak = common.peak_resident(os.getpid())
    curve = losses["judge"]["mlogloss"]
    at_default = f"; 100 trees: {curve[99]:.4f}" if len(curve) >= 100 else ""
    ours = xgboost.DMatrix(test[FEATURES.name][half:])
    probabilities = model.predict(ours, iteration_range=(0, model.best_iteration + 1)).astype(np.float64)
    return Result(
        "xgboost",
        dataset.n_rows,
        seconds,
        peak,
        log_loss(probabilities, test[TARGET.name][half:]),
        notes=f"{len(curve)} trees a class{at_default}",
    )


def compare(settings: argparse.Namespace, folder: str) -> tuple[list[Result], list[common.Check]]:
    table = common.Table(
        f"{settings.features} features, {settings.candidates} candidates, limit {settings.limit / common.GIB:g} GiB",
        ("method", "rows", "seconds", "peak MiB", "log-loss", "objective", "passes", "notes"),
    )
    found: list[Result] = []

    def show(result: Result) -> Result:
        found.append(result)
        table.row(
            result.method, result.rows, result.seconds, result.peak / common.MIB, result.log_loss, result.objective,
            result.passes, result.notes,
        )  # fmt: skip
        return result

    test = test_rows(settings)
    best = log_loss(true_probabilities(test[FEATURES.name]), test[TARGET.name])
    show(Result("best", settings.test, 0.0, 0, best))
    del test
    large = os.path.join(folder, "large.zarr")
    began = time.perf_counter()
    make(settings.rows, settings, large)
    print(f"made {settings.rows:,} rows in {time.perf_counter() - began:.0f} s", flush=True)
    fitted = show(some(in_fresh_process(fit_ours, "fit", large, settings)))
    checks = [
        common.Check("minutes of the fit", fitted.seconds / 60, "<=", MOST_MINUTES),
        common.Check("peak GiB of the fit", fitted.peak / common.GIB, "<=", settings.limit / common.GIB),
    ]
    if settings.all:
        whole = show(some(in_fresh_process(fit_ours, "all", large, settings)))
        assert fitted.objective is not None
        assert whole.objective is not None
        checks += [
            common.Check("times as fast as all rows", whole.seconds / fitted.seconds, ">=", LEAST_SPEEDUP),
            common.Check("objective over that", fitted.objective / whole.objective - 1, "<=", MOST_OF_OBJECTIVE),
            common.Check("log-loss less that", fitted.log_loss - whole.log_loss, "<=", MOST_OF_LOSS),
        ]
    if settings.sample < settings.rows:
        small = os.path.join(folder, "small.zarr")
        make(settings.sample, settings, small)
        show(some(in_fresh_process(fit_ours, "sample", small, settings)))
    if settings.xgboost:
        show(some(in_fresh_process(fit_xgboost, large, settings, fitted.seconds)))
    return found, checks


def some(result: Result | None) -> Result:
    assert result is not None  # without a limit it is waited for
    return result


def main() -> None:
    parser = common.make_parser(__doc__)
    parser.add_argument("--rows", type=common.positive, default=10**8, help="rows of the dataset")
    parser.add_argument("--sample", type=common.positive, default=10**6, help="of them, for `sample`")
    parser.add_argument("--test", type=common.positive, default=10**6, help="rows that judge")
    parser.add_argument("--features", type=common.positive, default=30, help="features")
    parser.add_argument("--candidates", type=common.positive, default=1000, help="candidates of the fit")
    parser.add_argument("--limit", type=common.byte_count, default=2 * common.GIB, help="memory limit of a fit")
    parser.add_argument("--folder", help="where the datasets are made, and removed afterwards")
    parser.add_argument("--all", action="store_true", help="also fit with all rows and candidates from start to end")
    parser.add_argument("--no-xgboost", dest="xgboost", action="store_false", help="leave XGBoost out")
    settings = parser.parse_args()
    if settings.xgboost:
        common.peer("xgboost")
    measured_on = common.start("hundred_million")
    with common.scratch(settings.folder) as folder:
        results, checks = compare(settings, folder)
    common.finish("hundred_million", settings, measured_on, results, checks)


if __name__ == "__main__":
    main()
