"""Training on a subsample of a log with 1 per cent positives, against training on all of it.

Positives are common on four fields of a board of 8 x 8 and rare elsewhere; two further features say nothing. Of the
zeros a share is kept, of the positives all. Then a model is trained with the weights 1 / rate; or without weights on
one half of the rows, and calibrated with weights on the other; or that model is left uncalibrated. XGBoost does the
same on the same rows. Seconds are those of drawing the rows from a dataset on disk, training and calibrating. Log-loss,
expected calibration error (ten bins of equal weight) and AUC are those on test rows of which none were left out. All
are medians over the draws. The penalty on features is below its default, which is of the size of the log-losses here.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from protodask.data import Dataset
from protodask.data.tables.ingest import ingest_arrays
from protodask.evaluation import Calibrator, log_loss, subsample
from protodask.prototypes.estimator import PrototypeSetClassifier

if TYPE_CHECKING:
    from benchmarks import _common as common
else:
    import _common as common

OURS, XGBOOST = "protodask", "xgboost"
FULL, WEIGHTED, CALIBRATED, PLAIN = "all rows", "weights", "calibrated", "neither"

LAMBDA_V = 1e-4

Floats = NDArray[np.float64]
Codes = NDArray[np.int32]

SIDE = 8
RICH_FIELDS = ((1, 2), (3, 6), (5, 1), (6, 5))
"""Of the board, apart from each other."""
RICH, POOR = 0.15, 0.00067
"""Share of positives on those four of 64 fields and elsewhere: 1 per cent in all."""

ALLOWED_LOSS, ALLOWED_TIME = 0.01, 0.1
"""Above the log-loss of full training, and of its time."""
BINS = 10


@dataclass(frozen=True)
class Rows:
    """Features (N, 4) and the outcome 0 or 1 (N,)."""

    features: NDArray[np.float32]
    outcome: Codes


@dataclass(frozen=True)
class Trained:
    """One way of training, or medians over the draws."""

    method: str
    rate: float
    """Of the zeros that were kept."""
    way: str
    rows: float
    seconds: float
    of_full: float
    """Seconds over those of the method's training on all rows."""
    log_loss: float
    calibration_error: float
    auc: float


def make_rows(count: int, seed: int) -> Rows:
    """So many rows of the task."""
    generator = np.random.default_rng(seed)
    features = generator.random((count, 4), dtype=np.float32)
    board = np.zeros((SIDE, SIDE), dtype=np.bool_)
    board[tuple(np.transpose(RICH_FIELDS))] = True
    row, column = np.floor(SIDE * features[:, :2]).astype(np.intp).T
    share = np.where(board[row, column], RICH, POOR)
    return Rows(features, (generator.random(count) < share).astype(np.int32))


def read_rows(dataset: Dataset) -> tuple[Rows, Floats]:
    """The rows of a dataset and the numbers of rows they stand for."""
    blocks = [dataset.read(number) for number in range(dataset.layout.n_blocks)]
    features, target, inclusion = (
        np.concatenate([block[name] for block in blocks]) for name in ("features", "target", "inclusion")
    )
    return Rows(features, target), 1 / inclusion


Predict = Callable[[NDArray[np.float32]], Floats]
"""The probability of a positive (N,)."""


def fit_ours(rows: Rows, weight: Floats | None, seed: int) -> Predict:
    """protodask with its defaults but for the penalty on features."""
    model = PrototypeSetClassifier(recipe="source", lambda_v=LAMBDA_V, random_state=seed).fit(
        rows.features, rows.outcome, weight
    )
    return lambda features: np.asarray(model.predict_proba(features))[:, 1]


def fit_xgboost(rows: Rows, weight: Floats | None, seed: int) -> Predict:
    """XGBoost with its defaults."""
    model: Any = common.peer("xgboost").XGBClassifier(random_state=seed)
    model.fit(rows.features, rows.outcome, sample_weight=weight)
    return lambda features: np.asarray(model.predict_proba(features), dtype=np.float64)[:, 1]


FIT = {OURS: fit_ours, XGBOOST: fit_xgboost}


def calibration_error(score: Floats, outcome: Codes) -> float:
    """Expected calibration error on ten bins of equally many rows, `sum_b n_b |mean p - mean y| / N`."""
    order = np.argsort(score, kind="stable")
    parts = np.array_split(order, BINS)
    return float(sum(len(part) * abs(score[part].mean() - outcome[part].mean()) for part in parts) / len(score))


@dataclass(frozen=True)
class Judge:
    """The test rows."""

    test: Rows

    def judged(self, trained: Trained, score: Floats) -> Trained:
        outcome = self.test.outcome
        return replace(
            trained,
            log_loss=log_loss(np.column_stack([1 - score, score]), outcome),
            calibration_error=calibration_error(score, outcome),
            auc=float(roc_auc_score(outcome, score)),
        )


def train_on_all(method: str, rows: Rows, judge: Judge, seed: int) -> Trained:
    """What everything is compared with."""
    began = time.perf_counter()
    predict = FIT[method](rows, None, seed)
    seconds = time.perf_counter() - began
    unknown = float("nan")
    trained = Trained(method, 1.0, FULL, len(rows.outcome), seconds, 1.0, unknown, unknown, unknown)
    return judge.judged(trained, predict(judge.test.features))


def train_on_part(
    method: str, part: Dataset, drawing: float, rate: float, judge: Judge, full: Trained, seed: int
) -> list[Trained]:
    """All ways of training on a subsample that took so long to draw."""
    began = time.perf_counter()
    rows, weight = read_rows(part)
    drawing += time.perf_counter() - began
    unknown = float("nan")

    def trained(way: str, seconds: float) -> Trained:
        total = drawing + seconds
        return Trained(method, rate, way, len(rows.outcome), total, total / full.seconds, unknown, unknown, unknown)

    began = time.perf_counter()
    weighted = FIT[method](rows, weight, seed)
    took = time.perf_counter() - began
    found = [judge.judged(trained(WEIGHTED, took), weighted(judge.test.features))]

    # Scores of the rows it was trained on flatter a model.
    half = np.random.default_rng(seed).random(len(weight)) < 0.5
    began = time.perf_counter()
    plain = FIT[method](Rows(rows.features[half], rows.outcome[half]), None, seed)
    training = time.perf_counter() - began
    calibrator = Calibrator().fit(plain(rows.features[~half]), rows.outcome[~half], weight[~half])
    calibrating = time.perf_counter() - began - training
    score = plain(judge.test.features)
    return [
        *found,
        judge.judged(trained(CALIBRATED, training + calibrating), np.asarray(calibrator.transform(score))),
        judge.judged(trained(PLAIN, training), score),
    ]


def medians(results: Sequence[Trained]) -> Trained:
    """Medians over the draws of one way."""
    first = results[0]
    return Trained(
        method=first.method,
        rate=first.rate,
        way=first.way,
        rows=median(one.rows for one in results),
        seconds=median(one.seconds for one in results),
        of_full=median(one.of_full for one in results),
        log_loss=median(one.log_loss for one in results),
        calibration_error=median(one.calibration_error for one in results),
        auc=median(one.auc for one in results),
    )


def rate_list(text: str) -> list[float]:
    """Rates separated by commas, for argparse."""
    rates = [float(part) for part in text.split(",")]
    if not all(0 < rate <= 1 for rate in rates):
        raise argparse.ArgumentTypeError(f"{text}: rates are above 0 and at most 1")
    return rates


def run(settings: argparse.Namespace, folder: str) -> list[Trained]:
    """Train in all ways; returns medians."""
    rows, test = make_rows(settings.rows, 0), make_rows(settings.test_rows, 1)
    judge = Judge(test)
    print(f"{rows.outcome.mean():.3%} of {settings.rows:,} training rows are positive")
    dataset = ingest_arrays(rows.features, rows.outcome, os.path.join(folder, "log.zarr"))
    columns = ["method", "rate", "way", "rows", "seconds", "of full", "log-loss", "cal. error", "AUC"]
    table = common.Table("Test rows are not subsampled", columns, first_width=10)

    def show(one: Trained) -> Trained:
        table.row(
            one.method, one.rate, one.way, int(one.rows), one.seconds, one.of_full, one.log_loss,
            one.calibration_error, one.auc,
        )  # fmt: skip
        return one

    found = []
    for method in settings.methods:
        full = show(medians([train_on_all(method, rows, judge, seed) for seed in range(settings.full_repeats)]))
        found.append(full)
        for rate in settings.rates:
            draws = []
            for seed in range(settings.repeats):
                place = os.path.join(folder, "part.zarr")
                began = time.perf_counter()
                part = subsample(dataset, place, rates={0: rate}, seed=seed, overwrite=True)
                drawing = time.perf_counter() - began
                draws.append(train_on_part(method, part, drawing, rate, judge, full, seed))
            found += [show(medians(way)) for way in zip(*draws, strict=True)]
    return found


def checks(results: Sequence[Trained]) -> list[common.Check]:
    """What is promised at 1 per cent of the zeros."""
    full = {one.method: one for one in results if one.way == FULL}
    found = []
    for one in results:
        if one.method == OURS and one.rate == 0.01 and one.way in (WEIGHTED, CALIBRATED):
            worse = one.log_loss - full[OURS].log_loss
            found.append(common.Check(f"{one.way}, log-loss above full training", worse, "<=", ALLOWED_LOSS))
            found.append(common.Check(f"{one.way}, share of its time", one.of_full, "<=", ALLOWED_TIME))
    return found


def main() -> None:
    """Run the benchmark."""
    parser = common.make_parser(__doc__)
    parser.add_argument("--rows", type=common.positive, default=500_000, help="training rows")
    parser.add_argument("--test-rows", type=common.positive, default=300_000)
    parser.add_argument("--rates", type=rate_list, default=[0.1, 0.01, 0.001], help="of the zeros that are kept")
    parser.add_argument("--repeats", type=common.positive, default=3, help="draws of a subsample")
    parser.add_argument("--full-repeats", type=common.positive, default=1, help="trainings on all rows")
    parser.add_argument("--methods", type=common.choices([OURS, XGBOOST]), default=[OURS, XGBOOST])
    parser.add_argument("--folder", help="where the dataset goes for the time of the run")
    settings = parser.parse_args()
    measured_on = common.start("subsampling")
    with warnings.catch_warnings(), common.scratch(settings.folder) as folder:
        warnings.simplefilter("ignore")  # the weights are meant to be large
        results = run(settings, folder)
    common.finish("subsampling", settings, measured_on, results, checks(results))


if __name__ == "__main__":
    main()
