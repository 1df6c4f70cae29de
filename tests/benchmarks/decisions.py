"""Losses of decisions on test rows: the selection of least expected loss against thresholds and xcolumns.

Each class of a dataset against the rest is a task; losses are means over the classes and over the splits, with the
standard error over the splits. A split puts 30 per cent aside to test with. Methods:

  proposed  the selection of least expected loss, by the probabilities of a model of all training rows
  0.5       all of probability at least 0.5, by the same probabilities
  tuned     a model of 70 per cent of the training rows, and the threshold of least loss on the others
  retuned   that threshold with the probabilities of the model of all training rows
  xcolumns  block coordinate ascent of the metric of the expected confusion matrix, from the selection of 0.5, by the
            same probabilities

The probabilities are those of protodask's classifier, or of scikit-learn's logistic regression (`--model logistic`),
with the defaults of each; features are standardised by the training rows. `--public` takes seven real tables, most of
them skewed, in place of the three.

Consistency: how much more the selections lose that come from learnt probabilities than those from the true ones, for
more and more rows to learn from. The last table is time for 2,000 items.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from protodask.decisions import LOSS_NAMES, as_loss, decide, expected_losses
from protodask.prototypes.estimator import PrototypeSetClassifier

if TYPE_CHECKING:
    from benchmarks import _common as common
    from benchmarks import _datasets as datasets
    from benchmarks import _tables as tables
else:
    import _common as common
    import _datasets as datasets
    import _tables as tables

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

PROPOSED, HALF, TUNED, RETUNED, XCOLUMNS = METHODS = ("proposed", "0.5", "tuned", "retuned", "xcolumns")
TABLES = (("f1", "jaccard"), ("am", "g_tp_pr"))
"""Two losses a table, as in the article on these decisions."""
LOSSES = tuple(loss for pair in TABLES for loss in pair)
SHORT = {"f1": "F1", "jaccard": "Jac", "am": "AM", "g_tp_pr": "G"}

QUADRATIC = ("f1", "f2", "jaccard")
TIMED_ITEMS = 2000
MOST_SECONDS = 1.0
MOST_LEFT = 0.25
"""Of the regret, with 64 times as many rows: an eighth is the rate of a model whose form is right."""


def skewed(positive: float) -> tuple[datasets.Features, datasets.Target]:
    """Rows like those of a spam filter: 57 features, 20 of them informative, few positives, 2 per cent wrong labels."""
    features, target = make_classification(
        4000, 57, n_informative=20, n_redundant=10, n_clusters_per_class=3, weights=[1 - positive], flip_y=0.02,
        class_sep=0.8, random_state=0,
    )  # fmt: skip
    return features, target.astype(np.int64)


def made(load: Callable[[], tuple[datasets.Features, datasets.Target]]) -> Callable[[int], datasets.Split]:
    return lambda seed: datasets.split(*load(), seed)


def real(name: str) -> Callable[[int], datasets.Split]:
    return lambda seed: tables.encode(tables.TABLES[name](), seed, "filled")


MADE = {
    "digits": made(datasets.DATASETS["digits"]),
    "skewed 10 %": made(partial(skewed, 0.1)),
    "skewed 3 %": made(partial(skewed, 0.03)),
}
PUBLIC = ("default", "caravan", "lending", "mlc_churn", "attrition", "credit", "jobs")
"""Positives: 3, 6, 95, 14, 16 and 72 per cent; and four classes of 6 to 51."""
DATASETS: dict[str, Callable[[int], datasets.Split]] = MADE | {name: real(name) for name in PUBLIC}
"""The split of a seed."""

LEARNT_FROM = (250, 1000, 4000, 16000)
JUDGED_BY = 20_000
"""Rows of which a selection is made: so many that the loss hardly depends on their labels."""
STEEPNESS = 2.5


def waves(rows: int, random: np.random.Generator) -> tuple[Floats, Floats]:
    """Features (rows, 4) and the true probabilities: about 14 per cent are positive."""
    features = random.standard_normal((rows, 4))
    log_odds = STEEPNESS * (np.sin(2 * features[:, 0]) + features[:, 1] * features[:, 2] / 2) - 3
    return features, 1 / (1 + np.exp(-log_odds))


MODELS: dict[str, Callable[[int], Any]] = {
    "prototypes": lambda seed: PrototypeSetClassifier(random_state=seed),
    "logistic": lambda seed: make_pipeline(StandardScaler(), LogisticRegression(max_iter=5000, random_state=seed)),
}


@dataclass(frozen=True)
class Predicted:
    """Probabilities (rows, classes), and which classes are true."""

    probability: Floats
    truth: Flags


@dataclass(frozen=True)
class Prepared:
    """What the methods work with in a split."""

    test: Predicted
    """By the model of all training rows."""
    held_out: Predicted
    """By the model of a part of them, on the others."""
    part_on_test: Floats
    """The test rows by that model."""


@dataclass(frozen=True)
class Measured:
    """The loss of one method on the test rows of a split, the mean over the classes; or the mean over the splits."""

    dataset: str
    method: str
    loss: str
    seed: int | None
    """None for the mean."""
    value: float
    error: float | None = None
    """Standard error of a mean of several splits."""
    above_proposed: float | None = None
    """Mean of the differences to the proposed method."""
    above_proposed_error: float | None = None


@dataclass(frozen=True)
class Consistent:
    """The loss of a selection by learnt probabilities less that by the true ones, mean over repetitions."""

    rows: int
    loss: str
    regret: float
    error: float | None


@dataclass(frozen=True)
class Timed:
    """Seconds for all expected losses of so many items, median."""

    loss: str
    items: int
    method: str
    seconds: float


def fit(model: str, seed: int, features: Floats, target: datasets.Target) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return MODELS[model](seed).fit(features, target)


def prepare(whole: datasets.Split, model: str, seed: int) -> Prepared:
    """Fit the two models of a split."""
    part = datasets.split(whole.train_features, whole.train_target, seed)
    classes = np.unique(whole.train_target)
    one = [1] if len(classes) == 2 else classes

    def predicted(estimator: Any, rows: Floats) -> Floats:
        return np.asarray(estimator.predict_proba(rows)[:, one], dtype=np.float64)

    def truth(labels: datasets.Target) -> Flags:
        flags: Flags = labels[:, None] == classes[one]
        return flags

    of_all, of_part = (fit(model, seed, split.train_features, split.train_target) for split in (whole, part))
    return Prepared(
        test=Predicted(predicted(of_all, whole.test_features), truth(whole.test_target)),
        held_out=Predicted(predicted(of_part, part.test_features), truth(part.test_target)),
        part_on_test=predicted(of_part, whole.test_features),
    )


def suffered(loss: str, selected: Flags, truth: Flags) -> float:
    """The loss of a selection when the truth is known."""
    return float(as_loss(loss)((selected & truth).mean(), selected.mean(), truth.mean()))


def tuned_threshold(loss: str, probability: Floats, truth: Flags) -> float:
    """The threshold of least loss on these rows, half way between the last selected and the next."""
    order = np.argsort(-probability, kind="stable")
    n = len(order)
    found = np.concatenate([[0], np.cumsum(truth[order])])
    losses = as_loss(loss)(found / n, np.arange(n + 1) / n, truth.mean())
    edges = np.concatenate([[np.inf], probability[order], [-np.inf]])
    allowed = edges[:-1] > edges[1:]
    k = int(np.argmin(np.where(allowed, losses, np.inf)))
    return float("inf") if k == 0 else float(edges[k : k + 2].mean()) if k < n else float(edges[k])


def by_xcolumns(loss: str, probability: Floats) -> Flags:
    """The selection of xcolumns."""
    metrics, coordinate = common.peer("xcolumns.metrics"), common.peer("xcolumns.block_coordinate")
    metric = {
        "f1": metrics.binary_f1_score_on_conf_matrix,
        "jaccard": metrics.binary_jaccard_score_on_conf_matrix,
        "am": metrics.binary_balanced_accuracy_on_conf_matrix,
        "g_tp_pr": lambda tp, fp, fn, tn: tp / np.sqrt((tp + fp) * (tp + fn) + 1e-12),
    }[loss]
    column = probability[:, None]
    start = (column >= 0.5).astype(np.float64)
    selected = coordinate.predict_using_bc_with_0approx(column, metric, 0, init_y_pred=start, seed=0)
    flags: Flags = selected[:, 0] > 0.5
    return flags


def select(method: str, loss: str, prepared: Prepared, column: int) -> Flags:
    """Which test rows a method selects in the task of one class."""
    probability = prepared.test.probability[:, column]
    held_out = prepared.held_out
    match method:
        case "proposed":
            selected = decide(probability, loss).selected
            assert selected is not None
            return selected
        case "0.5":
            return probability >= 0.5
        case "tuned" | "retuned":
            threshold = tuned_threshold(loss, held_out.probability[:, column], held_out.truth[:, column])
            return (prepared.part_on_test[:, column] if method == TUNED else probability) >= threshold
        case _:
            return by_xcolumns(loss, probability)


def measure(dataset: str, prepared: Prepared, method: str, loss: str, seed: int) -> Measured:
    """The mean loss over the classes."""
    truth = prepared.test.truth
    values = [
        suffered(loss, select(method, loss, prepared, column), truth[:, column]) for column in range(truth.shape[1])
    ]
    return Measured(dataset, method, loss, seed, float(np.mean(values)))


def summarise(rows: Sequence[Measured], proposed: Sequence[Measured]) -> Measured:
    """The mean over the splits."""
    values = np.array([row.value for row in rows])
    above = values - [row.value for row in proposed]
    return Measured(
        rows[0].dataset, rows[0].method, rows[0].loss, None, float(values.mean()), standard_error(values),
        float(above.mean()), standard_error(above),
    )  # fmt: skip


def standard_error(of: Floats) -> float | None:
    return float(of.std(ddof=1) / np.sqrt(len(of))) if len(of) > 1 else None


def one_dataset(name: str, settings: argparse.Namespace) -> dict[tuple[str, str], list[Measured]]:
    """All splits, by method and loss."""
    rows: dict[tuple[str, str], list[Measured]] = {}
    for seed in range(settings.seeds):
        began = time.perf_counter()
        prepared = prepare(DATASETS[name](seed), settings.model, seed)
        for method in settings.methods:
            for loss in LOSSES:
                rows.setdefault((method, loss), []).append(measure(name, prepared, method, loss, seed))
        print(f"{name}, split {seed}: {time.perf_counter() - began:.0f} s", flush=True)
    return rows


def show(means: dict[tuple[str, str, str], Measured], names: Sequence[str], methods: Sequence[str]) -> None:
    """The two tables, and what the other methods lose beside the proposed one."""
    for pair in TABLES:
        both = [(method, loss) for loss in pair for method in methods]
        columns = ("dataset", *(f"{method} {SHORT[loss]}" for method, loss in both))
        table = common.Table(f"loss on test rows: {pair[0]} and {pair[1]}", columns, first_width=16)
        for name in names:
            found = [means[name, method, loss] for method, loss in both]
            table.row(name, *(row.value for row in found))
            table.row("  standard error", *(row.error for row in found))
    table = common.Table("loss above that of the proposed method", ("dataset", "method", *LOSSES), first_width=16)
    for name in names:
        for method in methods:
            if method != PROPOSED:
                found = [means[name, method, loss] for loss in LOSSES]
                table.row(name, method, *(row.above_proposed for row in found))
                table.row("  standard error", "", *(row.above_proposed_error for row in found))


def check_consistency(model: str, repetitions: int) -> tuple[list[Consistent], list[common.Check]]:
    """Regrets of selections by learnt probabilities; both selections are of the same rows with the same labels."""
    table = common.Table(
        f"loss above that by the true probabilities ({JUDGED_BY:,} rows)", ("rows", *LOSSES), first_width=16
    )
    found: list[Consistent] = []
    for rows in LEARNT_FROM:
        regrets: dict[str, list[float]] = {loss: [] for loss in LOSSES}
        for seed in range(repetitions):
            random = np.random.default_rng([rows, seed])
            features, chance = waves(rows, random)
            estimator = fit(model, seed, features, (random.uniform(size=rows) < chance).astype(np.int64))
            features, chance = waves(JUDGED_BY, random)
            truth = random.uniform(size=JUDGED_BY) < chance
            learnt = np.asarray(estimator.predict_proba(features)[:, 1], dtype=np.float64)
            for loss in LOSSES:
                by_learnt, by_truth = (decide(eta, loss).selected for eta in (learnt, chance))
                assert by_learnt is not None
                assert by_truth is not None
                regrets[loss].append(suffered(loss, by_learnt, truth) - suffered(loss, by_truth, truth))
        means = [
            Consistent(rows, loss, float(np.mean(values)), standard_error(np.array(values)))
            for loss, values in regrets.items()
        ]
        found += means
        table.row(rows, *(row.regret for row in means))
        table.row("  standard error", *(row.error for row in means))
    return found, [
        common.Check(
            f"{loss}: regret of {LEARNT_FROM[-1]:,} rows over that of {LEARNT_FROM[0]:,}", last.regret / first.regret,
            "<=", MOST_LEFT,
        )
        for loss in LOSSES
        for first, *_, last in [[row for row in found if row.loss == loss]]
    ]  # fmt: skip


def time_exact(rounds: int, beside_xcolumns: bool) -> tuple[list[Timed], list[common.Check]]:
    """All exact expected losses of 2,000 items, and one selection by xcolumns."""
    table = common.Table(f"all expected losses, {TIMED_ITEMS} items", ("loss", "method", "seconds"))
    probability = np.random.default_rng(0).uniform(size=TIMED_ITEMS)
    found: list[Timed] = []
    for loss in (*LOSS_NAMES, "f2"):
        for general in (False, True):
            if general and loss not in QUADRATIC:
                continue
            (seconds,) = common.alternate([partial(expected_losses, probability, loss, general=general)], rounds)
            method = "quadratic" if loss in QUADRATIC and not general else "general"
            found.append(Timed(loss, TIMED_ITEMS, method, common.median(seconds)))
            table.row(loss, method, found[-1].seconds)
        if beside_xcolumns and loss in LOSSES:
            (seconds,) = common.alternate([partial(by_xcolumns, loss, probability)], rounds)
            found.append(Timed(loss, TIMED_ITEMS, XCOLUMNS, common.median(seconds)))
            table.row(loss, XCOLUMNS, found[-1].seconds)
    return found, [
        common.Check(f"seconds for F1 of {row.items} items", row.seconds, "<=", MOST_SECONDS)
        for row in found
        if (row.loss, row.method) == ("f1", "quadratic")
    ]


def main() -> None:
    parser = common.make_parser(__doc__)
    parser.add_argument("--datasets", type=common.choices(list(DATASETS)), help="datasets, separated by commas")
    parser.add_argument("--public", action="store_true", help=f"{', '.join(PUBLIC)} where no datasets are named")
    parser.add_argument("--methods", type=common.choices(METHODS), default=list(METHODS), help="methods to compare")
    parser.add_argument("--model", choices=MODELS, default="prototypes", help="where the probabilities come from")
    parser.add_argument("--seeds", type=common.positive, default=10, help="splits of each dataset")
    parser.add_argument("--rounds", type=common.positive, default=3, help="calls that are timed")
    settings = parser.parse_args()
    if PROPOSED not in settings.methods:
        parser.error(f"--methods needs {PROPOSED}, which the others are compared with")
    if settings.datasets is None:
        settings.datasets = list(PUBLIC if settings.public else MADE)
    measured_on = common.start("decisions")
    results: list[Measured | Consistent | Timed] = []
    means: dict[tuple[str, str, str], Measured] = {}
    for name in settings.datasets:
        for (method, loss), rows in (found := one_dataset(name, settings)).items():
            means[name, method, loss] = summarise(rows, found[PROPOSED, loss])
            results += [*rows, means[name, method, loss]]
    show(means, settings.datasets, settings.methods)
    consistent, shrinking = check_consistency(settings.model, settings.seeds)
    timed, fast = time_exact(settings.rounds, XCOLUMNS in settings.methods)
    common.finish("decisions", settings, measured_on, [*results, *consistent, *timed], [*shrinking, *fast])


if __name__ == "__main__":
    main()
