"""Quality and time of tuning: protodask's search against those of proset, XGBoost and k-nearest neighbours.

Six datasets, the same 70:30 splits for all, one for each seed; five inner folds of the training part. Who tunes how:

protodask  PrototypeSetSearchCV with its defaults: 7 values of lambda_v, each with up to 10 batches.
proset     its own select_hyperparameters with its defaults (11 values of lambda_v, each with up to 10 batches), on rows
           standardised by the training part.
xgboost    a randomised search, 30 draws. Eight of ten draws of 30 see the best twentieth of the space, and more of them
           change little. Drawn are what its documentation names against overfitting: learning rate, depth, the weight a
           leaf needs, shares of rows and of columns, rounded up to whole columns (of two it would take one else, and
           learn no board), and the l2 penalty. The number of trees is not drawn: each fold stops when its held-out
           log-loss has not fallen for 20 trees, and the refit takes the mean number of the folds. Each fit has one
           thread, and as many run as there are processors: threads inside a fit so small cost more than they bring.
knn        a grid over the number of neighbours and their weights, on standardised rows, judged by log-loss. Shares of
           neighbours can be zero and are left as they are; scikit-learn's log-loss takes zero as 2e-16, which costs 36
           nats a row, so that the search itself avoids small numbers of neighbours.

Every search runs in a fresh process; its seconds are those of the search and the refit, with everything imported.
--proset-limit ends the process of proset after so many seconds: its row says "> N" and counts as taking N seconds,
less than it would have taken. What was done is kept with --resume FILE.jsonl, and not done again; nor, without a
limit, are the steps of a search of proset that was stopped, from FILE.jsonl.steps, whose times count as they were.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from sklearn.model_selection import GridSearchCV, ParameterSampler, StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from protodask.engine.threads import available_threads
from protodask.prototypes.estimator import PrototypeSetClassifier
from protodask.selection.estimator import PrototypeSetSearchCV

if TYPE_CHECKING:
    from benchmarks import _common as common
    from benchmarks import _datasets as datasets
    from benchmarks._processes import Journal, Ready, in_fresh_process
    from benchmarks._proset_steps import KeptSteps
    from benchmarks._quality import OURS, PROSET, XGBOOST, mean_known, score, size_of_proset
else:
    import _common as common
    import _datasets as datasets
    from _processes import Journal, Ready, in_fresh_process
    from _proset_steps import KeptSteps
    from _quality import OURS, PROSET, XGBOOST, mean_known, score, size_of_proset

NEIGHBOURS = "knn"

ALLOWED = 0.01
"""Mean log-loss above proset's."""
ALLOWED_TIME = 0.2
"""Share of proset's time."""
INNER_FOLDS = 5

XGBOOST_DRAWS = 30
MOST_TREES = 1000
EARLY_STOPPING = 20
"""Trees in a row that may fail to lower the held-out log-loss."""
XGBOOST_SPACE = {
    "learning_rate": stats.loguniform(0.03, 0.3),  # below, a thousand trees would not be enough
    "max_depth": stats.randint(2, 9),
    "min_child_weight": stats.loguniform(0.5, 16),
    "subsample": stats.uniform(0.5, 0.5),
    "colsample_bytree": stats.uniform(0.5, 0.5),
    "reg_lambda": stats.loguniform(0.1, 30),
}

NEIGHBOUR_COUNTS = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100)

Chosen = Mapping[str, Any]
Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Tuned:
    """One method on one split, or its means over the splits."""

    dataset: str
    method: str
    seed: int | None
    """None for the means."""
    seconds: float
    """Of the search and the refit; what was allowed if it was ended."""
    ended: bool = False
    """Whether it took longer than it was allowed to, so that there is no model; of means, whether any did."""
    log_loss: float | None = None
    accuracy: float | None = None
    features: float | None = None
    """That the model looks at."""
    prototypes: float | None = None
    """Or rows that it keeps; XGBoost keeps none."""
    processor: float | None = None
    """Seconds of all threads together, which a busy machine disturbs less; threads that spin count."""
    chosen: Chosen = field(default_factory=dict)


@dataclass(frozen=True)
class Found:
    """What a search came to."""

    predict: Callable[[Any], Any]
    """From features to probabilities."""
    features: int
    prototypes: int | None
    chosen: Chosen


def tune_ours(split: datasets.Split, seed: int) -> Found:
    """protodask's search with its defaults."""
    search = PrototypeSetSearchCV(PrototypeSetClassifier(random_state=seed))
    search.fit(split.train_features, split.train_target)
    model = search.best_estimator_.model_
    chosen = {name: search.best_params_[name] for name in ("lambda_v", "n_batches")}
    return Found(search.predict_proba, len(model.active_features), model.n_prototypes, chosen)


def tune_proset(split: datasets.Split, seed: int) -> Found:
    """proset's own search with its defaults."""
    found = common.peer("proset.utility").select_hyperparameters(
        common.peer("proset").ClassifierModel(),
        split.train_features,
        split.train_target,
        transform=StandardScaler(),
        random_state=seed,
    )
    tried = found["search"]["cv_results"].iloc[found["search"]["selected_ix"]]
    features, prototypes = size_of_proset(found["model"]["model"])
    chosen = {"lambda_v": float(tried["lambda_v"]), "n_batches": int(tried["num_batches"])}
    return Found(found["model"].predict_proba, features, prototypes, chosen)


def inner_folds(seed: int) -> StratifiedKFold:
    """For the peers without folds of their own."""
    return StratifiedKFold(INNER_FOLDS, shuffle=True, random_state=seed)


def tune_xgboost(split: datasets.Split, seed: int) -> Found:
    """A randomised search with early stopping on the inner folds."""
    xgboost = common.peer("xgboost")
    features, target = split.train_features, split.train_target
    folds = list(inner_folds(seed).split(features, target))
    draws: list[dict[str, Any]] = list(ParameterSampler(XGBOOST_SPACE, XGBOOST_DRAWS, random_state=seed))
    for drawn in draws:
        drawn["colsample_bytree"] = rounded_up(drawn["colsample_bytree"], features.shape[1])

    def fit_fold(drawn: dict[str, Any], kept: Rows, held: Rows) -> tuple[float, int]:
        model = xgboost.XGBClassifier(
            n_estimators=MOST_TREES, early_stopping_rounds=EARLY_STOPPING, random_state=seed, n_jobs=1, **drawn
        )
        model.fit(features[kept], target[kept], eval_set=[(features[held], target[held])], verbose=False)
        return float(model.best_score), int(model.best_iteration) + 1

    jobs = [(drawn, kept, held) for drawn in draws for kept, held in folds]
    with ThreadPoolExecutor(available_threads()) as pool:
        fitted = np.array(list(pool.map(fit_fold, *zip(*jobs, strict=True))))
    losses, trees = fitted.reshape(len(draws), INNER_FOLDS, 2).mean(axis=1).T
    position = int(losses.argmin())
    best, n_trees = draws[position], round(float(trees[position]))
    model = xgboost.XGBClassifier(n_estimators=n_trees, random_state=seed, n_jobs=1, **best).fit(features, target)
    chosen = {name: _plain(value) for name, value in best.items()}
    return Found(model.predict_proba, len(model.get_booster().get_score()), None, {"trees": n_trees, **chosen})


def rounded_up(share: float, n_features: int) -> float:
    """The share of columns that is the next whole number of them: XGBoost rounds down, and of two would take one."""
    return min(1.0, (math.ceil(share * n_features) + 0.5) / n_features)


def tune_neighbours(split: datasets.Split, seed: int) -> Found:
    """A grid over the number of neighbours and their weights."""
    features, target = split.train_features, split.train_target
    fewest = min(len(kept) for kept, _ in inner_folds(seed).split(features, target))
    grid = {
        "neighbours__n_neighbors": [count for count in NEIGHBOUR_COUNTS if count <= fewest],
        "neighbours__weights": ["uniform", "distance"],
    }
    model = Pipeline([("scale", StandardScaler()), ("neighbours", KNeighborsClassifier())])
    search = GridSearchCV(model, grid, scoring="neg_log_loss", cv=inner_folds(seed)).fit(features, target)
    chosen = {name.removeprefix("neighbours__"): _plain(value) for name, value in search.best_params_.items()}
    return Found(search.predict_proba, features.shape[1], len(features), chosen)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


@dataclass(frozen=True)
class Method:
    """A way to tune, and the library to import before its time begins."""

    tune: Callable[[datasets.Split, int], Found]
    library: str


METHODS = {
    OURS: Method(tune_ours, "protodask"),
    PROSET: Method(tune_proset, "proset.utility"),
    XGBOOST: Method(tune_xgboost, "xgboost"),
    NEIGHBOURS: Method(tune_neighbours, "sklearn"),
}


def measure(ready: Ready, dataset: str, method: str, seed: int, steps_folder: str | None) -> Tuned:
    """Tune in a fresh process; `steps_folder` keeps proset's steps."""
    one = METHODS[method]
    common.peer(one.library)
    split = datasets.split(*datasets.DATASETS[dataset](), seed)
    steps = None if steps_folder is None else KeptSteps(steps_folder, f"{dataset}-{seed}")
    ready()
    with warnings.catch_warnings(), nullcontext() if steps is None else steps.used_by_proset():
        warnings.simplefilter("ignore")  # the peers use what their dependencies deprecate
        began, worked = time.perf_counter(), time.process_time()
        found = one.tune(split, seed)
        seconds, processor = time.perf_counter() - began, time.process_time() - worked
        if steps is not None:
            seconds, processor = seconds + steps.seconds, processor + steps.processor
        judged = score(split, found.predict(split.test_features))
    return Tuned(
        dataset=dataset,
        method=method,
        seed=seed,
        seconds=seconds,
        log_loss=judged.log_loss,
        accuracy=judged.accuracy,
        features=found.features,
        prototypes=found.prototypes,
        processor=processor,
        chosen=found.chosen,
    )


Key = tuple[str, str, int | None]


def key_of(row: Tuned) -> Key:
    return row.dataset, row.method, row.seed


def is_done(ended: bool, seconds: float, limit: float | None) -> bool:
    """Whether a row is done; one that was ended is unless it would be allowed longer now."""
    return not ended or (limit is not None and limit <= seconds)


def mean_of(rows: Sequence[Tuned]) -> Tuned:
    """Means over the seeds: of the time all of them, of the rest those with a model."""
    return Tuned(
        dataset=rows[0].dataset,
        method=rows[0].method,
        seed=None,
        seconds=float(np.mean([row.seconds for row in rows])),
        ended=any(row.ended for row in rows),
        log_loss=mean_known([row.log_loss for row in rows]),
        accuracy=mean_known([row.accuracy for row in rows]),
        features=mean_known([row.features for row in rows]),
        prototypes=mean_known([row.prototypes for row in rows]),
        processor=mean_known([row.processor for row in rows]),
    )


COLUMNS = ("dataset", "method", "log-loss", "accuracy", "features", "prototypes", "seconds", "processor s", "chosen")


def show(table: common.Table, label: str, row: Tuned) -> None:
    chosen = ", ".join(f"{name} {common.format_cell(value)}" for name, value in row.chosen.items())
    table.row(
        label, row.method, row.log_loss, row.accuracy, row.features, row.prototypes, time_of(row.seconds, row.ended),
        row.processor, chosen or None,
    )  # fmt: skip


def time_of(seconds: float, ended: bool) -> str:
    return ("> " if ended else "") + common.format_cell(seconds)


def one_dataset(name: str, settings: argparse.Namespace, journal: Journal[Tuned]) -> list[Tuned]:
    """All seeds of a dataset and the means, printed as they come."""
    features, target = datasets.DATASETS[name]()
    table = common.Table(f"{name}: {len(target)} rows, {features.shape[1]} features", COLUMNS)
    found: list[Tuned] = []
    for seed in range(settings.seeds):
        for method in settings.methods:
            limit = settings.proset_limit if method == PROSET else None
            row = journal.find((name, method, seed))
            if row is None or not is_done(row.ended, row.seconds, limit):
                keeps = method == PROSET and limit is None and settings.resume is not None
                steps_folder = f"{settings.resume}.steps" if keeps else None
                row = in_fresh_process(measure, name, method, seed, steps_folder, limit=limit)
                if row is None:
                    assert limit is not None  # without one there is no end to waiting
                    row = Tuned(name, method, seed, limit, ended=True)
                journal.add(row)
            show(table, f"{name}, seed {seed}", row)
            found.append(row)
    means = [mean_of([row for row in found if row.method == method]) for method in settings.methods]
    for row in means:
        show(table, f"{name}, mean of {settings.seeds}", row)
    return found + means


@dataclass(frozen=True)
class Comparison:
    """protodask and proset on the splits of a dataset."""

    dataset: str
    log_loss: float | None
    """Means over the splits on which both have a model."""
    proset_log_loss: float | None
    both: int
    """The number of those splits."""
    seconds: float
    proset_seconds: float
    """Means over all splits."""
    ended: bool
    """Whether proset was ended on any, so that it takes longer than that."""

    def checks(self) -> list[common.Check]:
        found = []
        if self.log_loss is not None and self.proset_log_loss is not None:
            difference = self.log_loss - self.proset_log_loss
            found.append(common.Check(f"log-loss above proset's, {self.dataset}", difference, "<=", ALLOWED))
        what = "at most this share of proset's time" if self.ended else "share of proset's time"
        found.append(common.Check(f"{what}, {self.dataset}", self.seconds / self.proset_seconds, "<=", ALLOWED_TIME))
        return found


def compare(dataset: str, rows: Sequence[Tuned]) -> Comparison:
    """Compare protodask with proset on the rows of a dataset."""
    ours = {row.seed: row for row in rows if row.method == OURS and row.seed is not None}
    theirs = {row.seed: row for row in rows if row.method == PROSET and row.seed is not None}
    both = [seed for seed, row in theirs.items() if not row.ended]
    return Comparison(
        dataset=dataset,
        log_loss=mean_known([ours[seed].log_loss for seed in both]),
        proset_log_loss=mean_known([theirs[seed].log_loss for seed in both]),
        both=len(both),
        seconds=float(np.mean([row.seconds for row in ours.values()])),
        proset_seconds=float(np.mean([row.seconds for row in theirs.values()])),
        ended=any(row.ended for row in theirs.values()),
    )


def summarise(rows: Sequence[Tuned], settings: argparse.Namespace) -> list[common.Check]:
    """The mean log-losses of all methods, and protodask against proset where both ran."""
    means = {(row.dataset, row.method): row for row in rows if row.seed is None}
    for title, attribute in (("mean log-loss", "log_loss"), ("mean accuracy", "accuracy"), ("mean seconds", "seconds")):
        table = common.Table(title, ("dataset", *settings.methods))
        for name in settings.datasets:
            cells = [means[name, method] for method in settings.methods]
            table.row(
                name,
                *(
                    time_of(row.seconds, row.ended) if attribute == "seconds" else getattr(row, attribute)
                    for row in cells
                ),
            )
    if OURS not in settings.methods or PROSET not in settings.methods:
        return []
    checks = []
    table = common.Table(
        "against proset", ("dataset", "protodask", "proset", "difference", "splits", "seconds", "proset s", "share")
    )
    for name in settings.datasets:
        found = compare(name, [row for row in rows if row.dataset == name])
        difference = (
            None if found.log_loss is None or found.proset_log_loss is None else found.log_loss - found.proset_log_loss
        )
        table.row(
            name, found.log_loss, found.proset_log_loss, difference, found.both, found.seconds,
            time_of(found.proset_seconds, found.ended), found.seconds / found.proset_seconds,
        )  # fmt: skip
        checks += found.checks()
    return checks


def positive_seconds(text: str) -> float:
    """For argparse."""
    seconds = float(text)
    if not seconds > 0:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number of seconds")
    return seconds


def main() -> None:
    parser = common.make_parser(__doc__)
    names, methods = list(datasets.DATASETS), list(METHODS)
    parser.add_argument(
        "--datasets", type=common.choices(names), default=names, help="datasets, separated by commas, of all six"
    )
    parser.add_argument("--methods", type=common.choices(methods), default=methods, help="methods to compare")
    parser.add_argument("--seeds", type=common.positive, default=5, help="splits of each dataset")
    parser.add_argument(
        "--proset-limit", type=positive_seconds, metavar="SECONDS", help="end a search of proset after so long"
    )
    parser.add_argument(
        "--resume", metavar="FILE.jsonl", help="add each row to this file at once, and skip those that are in it"
    )
    settings = parser.parse_args()
    measured_on = common.start("tuning")
    began = time.perf_counter()
    journal = Journal(settings.resume, Tuned, key_of)
    results: list[Tuned] = []
    for name in settings.datasets:
        results += one_dataset(name, settings, journal)
    checks = summarise(results, settings)
    print(f"\n{time.perf_counter() - began:.0f} seconds in all")
    common.finish("tuning", settings, measured_on, results, checks)


if __name__ == "__main__":
    main()
