"""Quality on made problems of known kinds: defaults against XGBoost's, and the ways of draws against their mean.

Every problem has as many rows to test on as to train on. `class` and `shared` are log-losses of the mean of those draws
alone in which classes have feature weights of their own, and of the others, each over that of all draws. `ratio` and
`z` are what decides whether one way is left out: how many times as much the worse one loses on held-out rows, and the
difference in standard errors (protodask/prototypes/draws.py). Where one was, `all` says what the mean of all would
lose, over that of the model.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray
from sklearn import datasets as made
from sklearn.metrics import log_loss

from protodask.prototypes import draws
from protodask.prototypes.estimator import PrototypeSetClassifier
from protodask.prototypes.model import PrototypeSet

if TYPE_CHECKING:
    from benchmarks import _common as common
else:
    import _common as common

Features = NDArray[np.float64]
Problem = Callable[[np.random.Generator, int], tuple[Features, NDArray[Any]]]

MOST_OF_GAUSSIANS = 0.10


def two_gaussians(shift: float) -> Problem:
    """N(0, 4 I) against N(a, I) in 20 dimensions, all entries of `a` alike."""

    def make(random: np.random.Generator, rows: int) -> tuple[Features, NDArray[Any]]:
        target = random.integers(0, 2, rows)
        x = random.standard_normal((rows, 20))
        return np.where(target[:, None] == 0, 2 * x, x + shift), target

    return make


def of_library(function: Callable[..., Any], besides: int = 0, **settings: Any) -> Problem:
    """A problem of scikit-learn, with further features that say nothing."""

    def make(random: np.random.Generator, rows: int) -> tuple[Features, NDArray[Any]]:
        x, target = function(rows, random_state=int(random.integers(2**31)), **settings)
        if len(np.unique(target)) > 20:
            target = target > np.median(target)
        return np.hstack([x, random.standard_normal((rows, besides))]), np.unique(target, return_inverse=True)[1]

    return make


def of_rule(draw: Callable[[np.random.Generator, int], Features], rule: Callable[[Features], Any]) -> Problem:
    """Features by chance, and classes that follow from them."""

    def make(random: np.random.Generator, rows: int) -> tuple[Features, NDArray[Any]]:
        x = draw(random, rows)
        return x, np.asarray(rule(x)).astype(int)

    return make


def normal(features: int) -> Callable[[np.random.Generator, int], Features]:
    return lambda random, rows: random.standard_normal((rows, features))


def bits(random: np.random.Generator, rows: int) -> Features:
    return random.integers(0, 2, (rows, 15)).astype(float)


def categories(random: np.random.Generator, rows: int) -> Features:
    """Eight columns of three ranks each, a column of zeros and ones for each rank."""
    return np.eye(3)[random.integers(0, 3, (rows, 8))].reshape(rows, 24)


def grade(x: Features) -> NDArray[Any]:
    """One rank alone is a class; else how many of three sums of ranks are large decides, as where people grade."""
    rank = x.reshape(len(x), 8, 3) @ np.arange(3)
    large = (rank[:, 1] + rank[:, 2] >= 2) * 1 + (rank[:, 3:6].sum(1) >= 3) + (rank[:, 6] + rank[:, 7] >= 3)
    return np.where(rank[:, 0] == 2, 0, 1 + np.minimum(large, 2))


def mostly_zero(random: np.random.Generator, rows: int) -> Features:
    return np.where(random.random((rows, 50)) < 0.9, 0, random.standard_normal((rows, 50)))


PROBLEMS: dict[str, Problem] = {
    **{f"gaussians a={shift:g}": two_gaussians(shift) for shift in (0, 0.25, 0.5, 1)},
    "moons": of_library(made.make_moons, noise=0.25),
    "moons, 20 of noise": of_library(made.make_moons, 20, noise=0.25),
    "circles, 10 of noise": of_library(made.make_circles, 10, noise=0.1, factor=0.6),
    "sum of squares": of_library(made.make_hastie_10_2),
    "shells": of_rule(normal(10), lambda x: np.digitize((x**2).sum(1), [8, 11])),
    "clusters": of_library(made.make_classification, n_features=20, n_informative=8, n_redundant=4),
    "clusters, 10 classes": of_library(
        made.make_classification, n_features=20, n_informative=8, n_redundant=4, n_classes=10
    ),
    "clusters, 300 features": of_library(made.make_classification, n_features=300, n_informative=10, n_redundant=10),
    "clusters, 2% positive": of_library(
        made.make_classification, n_features=20, n_informative=8, weights=[0.98], flip_y=0.005
    ),
    "friedman": of_library(made.make_friedman1, n_features=10, noise=1),
    "parity of 3 bits": of_rule(
        lambda random, rows: random.integers(0, 2, (rows, 15)).astype(float), lambda x: x[:, :3].sum(1) % 2
    ),
    "heavy tails": of_rule(lambda random, rows: random.standard_cauchy((rows, 8)), lambda x: x[:, 0] + x[:, 1] > 0),
    "products": of_rule(lambda random, rows: np.exp(2 * normal(8)(random, rows)), lambda x: x[:, 0] * x[:, 1] > 1),
    "thresholds": of_rule(normal(10), lambda x: ((x[:, 0] > 0.3) & (x[:, 1] > -0.2)) | (x[:, 2] > 1.2)),
    "graded categories": of_rule(categories, grade),
    "mostly zero": of_rule(mostly_zero, lambda x: x[:, :5].sum(1) > 0),
    "angles": of_rule(normal(6), lambda x: np.floor(3 * np.arctan2(x[:, 0], x[:, 1])) % 2),
    "ratios": of_rule(normal(5), lambda x: x[:, 0] / x[:, 1] > 1),
    "rings": of_rule(
        lambda random, rows: random.uniform(-1, 1, (rows, 2)), lambda x: np.floor(8 * np.hypot(x[:, 0], x[:, 1])) % 2
    ),
}


@dataclass(frozen=True)
class Outcome:
    """One problem of so many rows, with one seed."""

    problem: str
    rows: int
    seed: int
    loss: float
    xgboost: float
    by_class: float
    shared: float
    ratio: float
    z: float
    left_out: bool
    of_all: float
    """Log-loss of the mean of all draws."""


class Draws:
    """Takes the models of all draws, and what they lose, while a classifier is fitted."""

    def __init__(self) -> None:
        self.start: PrototypeSet | None = None
        self.models: Sequence[PrototypeSet] = ()
        self.losses: Sequence[float | None] = ()
        self.rows: Sequence[int] = ()
        self.kept: list[bool] = []
        self._average, self._judge = draws.averaged, draws.worth_averaging

    def fit(self, x: Features, target: NDArray[Any], seed: int) -> PrototypeSetClassifier:
        with patch.object(draws, "averaged", self._take), patch.object(draws, "worth_averaging", self._keep_all):
            return PrototypeSetClassifier(random_state=seed).fit(x, target)

    def mean_of(self, which: Sequence[int]) -> PrototypeSet:
        assert self.start is not None
        return self._average(self.start, [self.models[draw] for draw in which])

    def _take(self, start: PrototypeSet, models: Sequence[PrototypeSet]) -> PrototypeSet:
        self.start, self.models = start, models
        return self._average(start, models)

    def _keep_all(self, ways: Sequence[str], losses: Sequence[float | None], rows: Sequence[int]) -> list[bool]:
        self.losses, self.rows = losses, rows
        self.kept = self._judge(ways, losses, rows)
        return [True] * len(ways)

    def compared(self) -> tuple[float, float]:
        """How many times as much the worse way loses, and the difference in standard errors."""
        each = [(loss or 0.0, rows) for loss, rows in zip(self.losses, self.rows, strict=True)]
        found = [draws.loss_of_way(each[way::2]) for way in (0, 1)]
        (low, _), (high, _) = sorted(found)
        return high / low, (high - low) / math.sqrt(found[0][1] + found[1][1])


def measure(name: str, rows: int, seed: int) -> Outcome:
    x, target = PROBLEMS[name](np.random.default_rng([seed, rows]), 2 * rows)
    train, test = slice(rows), slice(rows, None)
    taken = Draws()
    fitted = taken.fit(x[train], target[train], seed)

    def loss(which: Sequence[int]) -> float:
        fitted.model_ = taken.mean_of(which)
        return float(log_loss(target[test], fitted.predict_proba(x[test]), labels=fitted.classes_))

    numbers = range(len(taken.models))
    peer = common.peer("xgboost").XGBClassifier(random_state=seed).fit(x[train], target[train])
    ratio, z = taken.compared()
    return Outcome(
        name,
        rows,
        seed,
        loss([draw for draw in numbers if taken.kept[draw]]),
        float(log_loss(target[test], peer.predict_proba(x[test]), labels=peer.classes_)),
        loss(numbers[::2]),
        loss(numbers[1::2]),
        ratio,
        z,
        not all(taken.kept),
        loss(numbers),
    )


def main() -> None:
    parser = common.make_parser(__doc__)
    parser.add_argument("--problems", type=common.choices(list(PROBLEMS)), default=list(PROBLEMS), help="by commas")
    parser.add_argument("--rows", type=common.numbers, default=[1000, 5000], help="to train on, by commas")
    parser.add_argument("--seeds", type=common.positive, default=1, help="of each problem")
    settings: argparse.Namespace = parser.parse_args()
    measured_on = common.start("synthetic")
    columns = ("problem", "protodask", "xgboost", "over xgb", "class", "shared", "ratio", "z", "all")
    printed = common.Table("log-loss on made problems", columns)
    results = []
    for rows in settings.rows:
        for name in settings.problems:
            for seed in range(settings.seeds):
                found = measure(name, rows, seed)
                printed.row(
                    f"{name}, {rows}", found.loss, found.xgboost, found.loss / found.xgboost,
                    found.by_class / found.of_all, found.shared / found.of_all, found.ratio, found.z,
                    found.of_all / found.loss if found.left_out else None,
                )  # fmt: skip
                results.append(found)
    over = [found.loss / found.xgboost for found in results]
    print(f"\ngeometric mean over XGBoost {math.exp(math.fsum(map(math.log, over)) / len(over)):.3f}, ", end="")
    print(f"ahead on {sum(ratio < 1 for ratio in over)} of {len(over)}")
    checks = []
    if of_gaussians := [
        found.loss for found in results if found.problem.startswith("gaussians") and found.rows >= 5000
    ]:
        checks = [common.Check("log-loss on two Gaussians, at most", max(of_gaussians), "<=", MOST_OF_GAUSSIANS)]
    common.finish("synthetic", settings, measured_on, results, checks)


if __name__ == "__main__":
    main()
