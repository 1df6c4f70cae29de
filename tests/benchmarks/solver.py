"""In which variables the solver should see the feature weights: the objective reached for the same candidates.

L-BFGS-B minimises over `scale * v` in place of `v`. What is compared: no scaling, `3 D / 10`, `2.4 sqrt(D)` (what the
package uses), and `D`, on the six datasets and on rows of distorted digits. The first batch has the same candidates
whatever the scaling, so its objectives compare; those of later batches depend on the model before. So later batches
are run in two ways: `chain` keeps one scaling throughout (compare the log-loss), `same start` adds the batch to the
model that the package's own scaling led to, with the same candidates for all (compare the objective).

A scaling is marked where its objective is more than 1 per cent above the unscaled one.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from protodask.data.schema import FEATURES, TARGET, Column
from protodask.data.summary import summarize
from protodask.engine import Engine, array_source, thread_engine
from protodask.prototypes import training as training_module
from protodask.prototypes.config import FitConfig
from protodask.prototypes.convergence import ConvergenceWarning
from protodask.prototypes.history import BatchRecord
from protodask.prototypes.model import PrototypeSet
from protodask.prototypes.scores import MemoryScores
from protodask.prototypes.scoring import predict_features
from protodask.prototypes.solver import solver_scale
from protodask.prototypes.training import Training, TrainingData

if TYPE_CHECKING:
    from benchmarks import _common as common
    from benchmarks import _datasets as datasets
else:
    import _common as common
    import _datasets as datasets

Scale = Callable[[int, int], NDArray[np.float64]]

DISTORTED = "distorted"
UNSCALED = "1"
DEFAULT = "2.4 sqrt(D)"
WORSE = 1.01
"""Objective over the unscaled one from which a scaling is marked."""
WANTED_ON_DISTORTED = 0.95
TEST_ROWS = 4000
"""Distorted digits to test with."""


def scaled_by(factor: Callable[[int], float]) -> Scale:
    """`factor(D)` for the feature weights, 1 for the candidates'."""
    return lambda n_features, n_candidates: np.concatenate(
        [np.full(n_features, factor(n_features)), np.ones(n_candidates)]
    )


SCALINGS: dict[str, Scale] = {
    UNSCALED: scaled_by(lambda n_features: 1.0),
    "3D/10": scaled_by(lambda n_features: 0.3 * n_features),
    DEFAULT: solver_scale,
    "D": scaled_by(float),
}


@contextmanager
def solver_sees(scale: Scale) -> Iterator[None]:
    """Train with another scaling."""
    with patch.object(training_module, "solver_scale", scale):
        yield


@dataclass(frozen=True)
class Outcome:
    """One batch of one split with one scaling, or the means over the splits."""

    dataset: str
    way: str
    """`chain` or `same start`; the same for the first batch."""
    batch: int
    scaling: str
    seed: int | None
    """None for the means."""
    objective: float
    log_loss: float
    evaluations: float
    features: float
    prototypes: float


def training_data(engine: Engine, split: datasets.Split) -> TrainingData:
    """The training rows as a source in memory."""
    labels = np.unique(split.train_target)
    if not np.array_equal(labels, np.arange(len(labels))):
        raise ValueError(f"classes are expected to be numbered from 0, not {labels}")
    arrays = {
        FEATURES.name: split.train_features.astype(np.float32),
        TARGET.name: split.train_target.astype(np.int32),
    }
    source = array_source(arrays)
    names = tuple(f"x{number}" for number in range(split.train_features.shape[1]))
    return TrainingData(
        source=source,
        array_names=tuple(arrays),
        summary=summarize(engine, source, len(labels)),
        classes=tuple(labels.tolist()),
        feature_names=names,
        columns=tuple(Column(name) for name in names),
    )


def test_loss(model: PrototypeSet, split: datasets.Split, n_batches: int) -> float:
    """Log-loss of the first batches on the test rows."""
    [(probability, _)] = predict_features(split.test_features.astype(np.float32), model, (n_batches,))
    own = probability[np.arange(len(split.test_target)), split.test_target]
    return float(-np.log(np.maximum(own, np.finfo(np.float64).eps)).mean())


@dataclass(frozen=True)
class Bench:
    """One split of one dataset."""

    name: str
    seed: int
    split: datasets.Split
    engine: Engine
    data: TrainingData
    config: FitConfig

    def train(self, scaling: str, n_batches: int, start: PrototypeSet | None) -> tuple[PrototypeSet, list[BatchRecord]]:
        training = Training(self.data, replace(self.config, n_batches=n_batches), self.engine, MemoryScores())
        with solver_sees(SCALINGS[scaling]), warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return training.run(start)

    def outcomes(self, way: str, scaling: str, model: PrototypeSet, history: list[BatchRecord]) -> list[Outcome]:
        return [
            Outcome(
                dataset=self.name,
                way=way,
                batch=record.batch,
                scaling=scaling,
                seed=self.seed,
                objective=record.value,
                log_loss=test_loss(model, self.split, record.batch),
                evaluations=record.evaluations,
                features=record.active_features,
                prototypes=record.prototypes,
            )
            for record in history
        ]

    def run(self, n_batches: int, scalings: Sequence[str]) -> list[Outcome]:
        """All scalings, both ways."""
        found: list[Outcome] = []
        drawn: list[NDArray[np.int64]] = []
        for scaling in scalings:
            model, history = self.train(scaling, n_batches, None)
            drawn.append(history[0].candidates)
            found += self.outcomes("chain", scaling, model, history)
        if not all(np.array_equal(drawn[0], other) for other in drawn):
            raise AssertionError("the candidates of the first batch must not depend on the scaling")
        common_start, _ = self.train(DEFAULT, 1, None)
        for _ in range(2, n_batches + 1):
            following = common_start
            for scaling in scalings:
                model, history = self.train(scaling, 1, common_start)
                found += self.outcomes("same start", scaling, model, history)
                if scaling == DEFAULT:
                    following = model
            common_start = following
        return found


def splits(name: str, settings: argparse.Namespace) -> Iterator[tuple[int, datasets.Split]]:
    """The splits of a dataset; distorted digits are made anew for each seed."""
    if name == DISTORTED:
        for seed in range(settings.distorted_seeds):
            rows = settings.distorted_rows
            features, target = datasets.synthetic("digits", rows + TEST_ROWS, seed)
            yield seed, datasets.Split(features[:rows], target[:rows], features[rows:], target[rows:])
        return
    features, target = datasets.DATASETS[name]()
    for seed in range(settings.seeds):
        yield seed, datasets.split(features, target, seed)


def mean_of(rows: Sequence[Outcome]) -> Outcome:
    """Means over the seeds."""

    def mean(field: str) -> float:
        return float(np.mean([getattr(row, field) for row in rows]))

    return replace(
        rows[0],
        seed=None,
        objective=mean("objective"),
        log_loss=mean("log_loss"),
        evaluations=mean("evaluations"),
        features=mean("features"),
        prototypes=mean("prototypes"),
    )


COLUMNS = (
    "batch",
    "    scaling",
    "objective",
    "of unscaled",
    "log-loss",
    "evaluations",
    "features",
    "prototypes",
    "mark",
)


def show(name: str, found: Sequence[Outcome], scalings: Sequence[str]) -> list[Outcome]:
    """Means by way, batch and scaling; an objective is set against the unscaled one only where they compare."""
    table = common.Table(f"{name}: means over {len({row.seed for row in found})} splits", COLUMNS)
    means: list[Outcome] = []
    for way, batch in sorted({(row.way, row.batch) for row in found}, key=lambda pair: (pair[0], pair[1])):
        chosen = [row for row in found if (row.way, row.batch) == (way, batch)]
        by_scaling = {scaling: mean_of([row for row in chosen if row.scaling == scaling]) for scaling in scalings}
        comparable = (batch == 1 or way == "same start") and UNSCALED in by_scaling
        for scaling, row in by_scaling.items():
            ratio = row.objective / by_scaling[UNSCALED].objective if comparable else None
            table.row(
                f"{way}, batch {batch}", scaling, row.objective, ratio, row.log_loss, row.evaluations, row.features,
                row.prototypes, "WORSE" if ratio is not None and ratio > WORSE else "",
            )  # fmt: skip
            means.append(row)
    return means


def checks_of(means: Sequence[Outcome]) -> list[common.Check]:
    """The default scaling, first batch."""
    first = {(row.dataset, row.scaling): row.objective for row in means if (row.way, row.batch) == ("chain", 1)}
    checks: list[common.Check] = []
    for dataset in dict.fromkeys(row.dataset for row in means):
        if (dataset, UNSCALED) not in first or (dataset, DEFAULT) not in first:
            continue
        bound = WANTED_ON_DISTORTED if dataset == DISTORTED else WORSE
        ratio = first[dataset, DEFAULT] / first[dataset, UNSCALED]
        checks.append(common.Check(f"objective over the unscaled one, {dataset}", ratio, "<=", bound))
    return checks


def main() -> None:
    parser = common.make_parser(__doc__)
    names, scalings = [*datasets.DATASETS, DISTORTED], list(SCALINGS)
    parser.add_argument("--datasets", type=common.choices(names), default=names, help="datasets, separated by commas")
    parser.add_argument("--scalings", type=common.choices(scalings), default=scalings, help="scalings to compare")
    parser.add_argument("--seeds", type=common.positive, default=5, help="splits of each of the six datasets")
    parser.add_argument(
        "--batches", type=common.positive, default=3, help="batches on the six datasets; distorted digits have one"
    )
    parser.add_argument("--candidates", type=common.positive, default=1000, help="candidates of a batch")
    parser.add_argument("--distorted-rows", type=common.positive, default=12_000, help="distorted digits to train on")
    parser.add_argument("--distorted-seeds", type=common.positive, default=2, help="sets of distorted digits")
    parser.add_argument("--precision", choices=("float32", "float64"), default="float32", help="of the kernel")
    settings = parser.parse_args()
    measured_on = common.start("solver")
    results: list[Outcome] = []
    all_means: list[Outcome] = []
    with thread_engine() as engine:
        for name in settings.datasets:
            found: list[Outcome] = []
            for seed, split in splits(name, settings):
                config = FitConfig.of(
                    "source", n_candidates=settings.candidates, precision=settings.precision, seed=seed
                )
                bench = Bench(name, seed, split, engine, training_data(engine, split), config)
                found += bench.run(1 if name == DISTORTED else settings.batches, settings.scalings)
                engine.forget(bench.data.source)
            means = show(name, found, settings.scalings)
            results += [*found, *means]
            all_means += means
    common.finish("solver", settings, measured_on, results, checks_of(all_means))


if __name__ == "__main__":
    main()
