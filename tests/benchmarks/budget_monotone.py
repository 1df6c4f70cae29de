"""How far accuracy is from monotone on real data, by how many features lie between, and what alpha and e buy.

Two tables of scikit-learn, all sets of whose features are cross-validated with a linear discriminant analysis of
standardised columns: digits, whose features are the eight rows of the image, and breast cancer, whose features are the
ten measurements, each by its mean, standard error and worst value. A pair is a set and a part of it; it is against
monotonicity where the part is the more accurate one, by the difference. `distance` is by how many features the set is
larger. `noise` is the share of pairs whose difference is more than twice its standard error, told from paired rows.

The sweeps expand sets with each alpha and each e, on these accuracies with drawn costs, and on made-up features of
budget_study.py whose accuracies fall by `--error` at most where features are added, ten of which the best two count.
`sets` are those expanded, `short` the largest accuracy below the best of all sets, of 5 sizes and 200 budgets each,
medians over the draws of costs. What is guaranteed is alpha, where e is at least the largest difference (`max`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from protodask.budget.index import make_index
from protodask.budget.lattice import explore
from protodask.budget.matrix_models import MatrixModels, make_folds

if TYPE_CHECKING:
    from benchmarks import _budget_workload as work
    from benchmarks import _common as common
else:
    import _budget_workload as work
    import _common as common

Floats = NDArray[np.float64]

SIZES_SHOWN = (1.0, 50.0, 100.0, 250.0, 500.0)
BUDGETS_SHOWN = 200
ROUNDING = 1e-9
MADE_UP = "made-up features"


@dataclass(frozen=True)
class Distance:
    """Pairs of a set and a part of it with so many features less."""

    data: str
    distance: int
    pairs: int
    share: float
    """Of the pairs that are against monotonicity."""
    median: float
    """Difference of those."""
    high: float
    """Of 95 in 100 no more."""
    most: float
    noise: float


@dataclass(frozen=True)
class Swept:
    """What came of one alpha and one e."""

    data: str
    alpha: float
    error: float
    sets: float
    short: float
    most: float
    """The most of all draws."""
    kept: bool
    """Whether e is at least what accuracies contradict monotonicity by: then alpha is guaranteed."""


def judged(name: str, seed: int) -> tuple[Floats, Floats]:
    """Accuracies of all sets by their numbers, and what they owe to each part of the rows (2^m, G)."""
    loaded = load_digits() if name == "digits" else load_breast_cancer()
    rows, codes = loaded.data, loaded.target.astype(np.int64)
    order = np.arange(64) if name == "digits" else np.arange(30).reshape(3, 10).T.reshape(-1)
    width, n_features = (8, 8) if name == "digits" else (3, 10)
    spans = tuple(slice(width * feature, width * (feature + 1)) for feature in range(n_features))
    estimator = make_pipeline(StandardScaler(), LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.1))
    folds = make_folds(codes, 5, seed, None, np.unique(codes).tolist())
    box = MatrixModels(estimator, np.ascontiguousarray(rows[:, order], dtype=np.float64), codes, spans, folds)
    found = [
        box.accuracy(frozenset(feature for feature in range(n_features) if number >> feature & 1))
        for number in range(1 << n_features)
    ]
    return np.array([one.accuracy for one in found]), np.array([one.noise.parts for one in found])


def by_distance(name: str, accuracies: Floats, parts: Floats) -> list[Distance]:
    """All pairs of a set and a part of it."""
    numbers = np.arange(len(accuracies))
    sizes = np.bitwise_count(numbers)
    apart: dict[int, list[Floats]] = {}
    for whole in numbers.tolist():
        own = numbers[((numbers & whole) == numbers) & (numbers != whole)]
        difference = accuracies[own] - accuracies[whole]
        error = np.sqrt(np.square(parts[own] - parts[whole]).sum(axis=1))
        for distance in np.unique(sizes[whole] - sizes[own]).tolist():
            mine = sizes[whole] - sizes[own] == distance
            apart.setdefault(distance, []).append(np.stack([difference[mine], error[mine]]))
    found = []
    for distance, pairs in sorted(apart.items()):
        difference, error = np.concatenate(pairs, axis=1)
        against = difference[difference > 0]
        some = against if len(against) else np.zeros(1)
        found.append(
            Distance(name, distance, len(difference), len(against) / len(difference), float(np.median(some)),
                     float(np.quantile(some, 0.95)), float(some.max()), float((difference > 2 * error).mean()))
        )  # fmt: skip
    return found


def sweep(
    name: str, workloads: Sequence[work.Workload], alphas: Sequence[float], errors: Sequence[float]
) -> list[Swept]:
    """Every alpha with every e."""
    optima = [work.Optima.of(one, SIZES_SHOWN, BUDGETS_SHOWN) for one in workloads]
    found = []
    for error in errors:
        for alpha in alphas:
            sets, short, kept = [], [], []
            for workload, best in zip(workloads, optima, strict=True):
                explored = explore(workload.n_features, workload.expand, alpha=alpha, monotone_error=error)
                index = make_index(workload.curves, explored.expansions)
                numbers = np.array([sum(1 << feature for feature in features) for features in index.sets])
                chosen = numbers[index.choose(best.sizes[:, None], best.budgets)]
                sets.append(len(explored.expansions))
                short.append(float((best.accuracies - workload.accuracies[chosen]).max()))
                kept.append(monotone_error_of(workload.accuracies) <= error + ROUNDING)
            found.append(Swept(name, alpha, error, common.median(sets), common.median(short), max(short), all(kept)))
    return found


def monotone_error_of(accuracies: Floats) -> float:
    """The largest by which a part is more accurate than the whole."""
    best = accuracies.copy()
    for feature in range(len(accuracies).bit_length() - 1):
        pairs = best.reshape(-1, 2, 1 << feature)
        np.maximum(pairs[:, 0], pairs[:, 1], out=pairs[:, 1])
    return float((best - accuracies).max())


def show_swept(swept: Sequence[Swept], alphas: Sequence[float]) -> None:
    """Rows by e, two columns for each alpha."""
    columns = [f"{what} {alpha:g}" for alpha in alphas for what in ("sets", "short")]
    table = common.Table(f"alpha and e, {swept[0].data}", ("e", *columns), first_width=12)
    for error in dict.fromkeys(one.error for one in swept):
        row = [one for one in swept if one.error == error]
        mark = "" if row[0].kept else " (too small)"
        table.row(f"{error:.4g}{mark}", *(cell for one in row for cell in (one.sets, one.short)))


def main() -> None:
    parser = common.make_parser(__doc__)
    parser.add_argument("--data", type=common.choices(["digits", "cancer"]), default=["digits", "cancer"])
    parser.add_argument("--alphas", type=common.fractions, default=[0.0, 0.005, 0.01, 0.02, 0.05])
    parser.add_argument("--errors", type=common.fractions, default=[0.0, 0.005, 0.01, 0.02], help="values of e")
    parser.add_argument("--error", type=float, default=0.01, help="of the made-up features")
    parser.add_argument("--draws", type=common.positive, default=3, help="of costs, and of made-up features")
    parser.add_argument("--seed", type=int, default=0)
    settings = parser.parse_args()
    measured_on = common.start("budget_monotone")
    results: list[Any] = []
    swept: list[list[Swept]] = []
    for name in settings.data:
        accuracies, parts = judged(name, settings.seed)
        distances = by_distance(name, accuracies, parts)
        title = f"a part is more accurate than the whole, {name}, {len(accuracies):,} sets"
        table = common.Table(title, ("distance", "pairs", "share", "median", "95 in 100", "max", "noise"), 8)
        for one in distances:
            table.row(one.distance, one.pairs, one.share, one.median, one.high, one.most, one.noise)
        results += distances
        n_features = len(accuracies).bit_length() - 1
        drawn = [
            work.Workload(work.draw_workload(n_features, 1, 0.2, draw).curves, accuracies)
            for draw in range(settings.draws)
        ]
        errors = sorted({*settings.errors, monotone_error_of(accuracies)})
        swept.append(sweep(name, drawn, settings.alphas, errors))
    made_up = [work.draw_workload(10, 2, 0.2, draw, settings.error) for draw in range(settings.draws)]
    swept.append(sweep(MADE_UP, made_up, settings.alphas, settings.errors))
    for one_sweep in swept:
        show_swept(one_sweep, settings.alphas)
    results += [one for one_sweep in swept for one in one_sweep]
    checks = [
        common.Check(
            f"short by more than alpha, {one_sweep[0].data}",
            max(one.most - one.alpha for one in one_sweep if one.kept),
            "<=",
            ROUNDING,
        )
        for one_sweep in swept
    ]
    common.finish("budget_monotone", settings, measured_on, results, checks)


if __name__ == "__main__":
    main()
