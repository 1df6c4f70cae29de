"""Made-up features: what each costs and how accurate it is, so that the best set under any budget is known.

`m` features, item sizes `n` from 1 to 500:

    c_f(n) = k0 + k1 n + k2 n^2,     k0 uniform in [0, 100], k1 in [0, 1], k2 in [0, 0.01]
    a_s    = 1 - product over the k best features f of s of (1 - a_f)  -  e u_s

At a size of 100 all three terms count alike, so that curves cross within the range. A feature is helpful with some
probability, `a_f` uniform in [0.7, 1], and else in [0.5, 0.7]. With no feature nothing is predicted, `a = 0`. `u_s`,
uniform in [0, 1] for each set by itself, is what makes accuracy fall where features are added, by `e` at most.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protodask.budget.costs import CostCurves
from protodask.budget.expansions import Expansion, FeatureSet

Floats = NDArray[np.float64]

SIZES = (1.0, 500.0)
MOST_COEFFICIENTS = (100.0, 1.0, 0.01)
BESIDE = 1e-7
HELPFUL, OTHER = (0.7, 1.0), (0.5, 0.7)


@dataclass(frozen=True, eq=False)
class Workload:
    """Costs, and the accuracy of each of the `2^m` sets: feature `f` is in a set where bit `f` of its number is 1."""

    curves: CostCurves
    accuracies: Floats

    @property
    def n_features(self) -> int:
        return self.curves.n_features

    def accuracy(self, features: FeatureSet) -> float:
        """What an expansion finds."""
        return float(self.accuracies[sum(1 << feature for feature in features)])

    def expand(self, sets: Sequence[FeatureSet], listen: Callable[[Expansion], None]) -> None:
        """An `Expand`."""
        for features in sets:
            listen(Expansion(features, self.accuracy(features)))

    def prices(self, size: float) -> Floats:
        """What each feature costs on an item of a size, (m,)."""
        return np.array([self.curves.at(frozenset([feature]), size) for feature in range(self.n_features)])


@dataclass(frozen=True, eq=False)
class Optima:
    """The largest accuracy of all sets within each of many budgets, at several sizes, by brute force."""

    workload: Workload
    sizes: Floats
    """(S,)."""
    budgets: Floats
    """(S, B)."""
    costs: Floats
    """Of all sets, (S, 2^m)."""
    accuracies: Floats
    """The optimum, (S, B)."""

    @staticmethod
    def of(workload: Workload, sizes: Sequence[float], n_budgets: int) -> Optima:
        """Budgets from the cheapest feature to all features, evenly spread on a logarithmic axis.

        None is what any set costs but for rounding: whether it would be within is not for a study to decide.
        """
        costs, budgets, best = [], [], []
        for size in sizes:
            prices = workload.prices(size)
            costs.append(sums_of_sets(prices))
            budgets.append(np.geomspace(prices.min(), prices.sum(), n_budgets) * (1 + BESIDE))
            order = np.argsort(costs[-1], kind="stable")
            # The empty set, which costs nothing, is within every budget.
            within = np.searchsorted(costs[-1][order], budgets[-1], side="right") - 1
            best.append(np.maximum.accumulate(workload.accuracies[order])[within])
        return Optima(workload, np.array(sizes), np.array(budgets), np.array(costs), np.array(best))


def sums_of_sets(values: Floats) -> Floats:
    """The sum of the values of its features, for each of the `2^m` sets."""
    found = np.zeros(1)
    for value in values.tolist():
        found = np.concatenate([found, found + value])
    return found


def draw_workload(n_features: int, best: int, helpful: float, seed: int, error: float = 0.0) -> Workload:
    """One draw; `best` is k, `error` e. The features are the same whatever k and e are."""
    rng = np.random.default_rng([n_features, seed])
    coefficients = rng.uniform(size=(n_features, 3)) * MOST_COEFFICIENTS
    is_helpful = rng.uniform(size=n_features) < helpful
    drawn = np.where(is_helpful, rng.uniform(*HELPFUL, n_features), rng.uniform(*OTHER, n_features))
    clean = accuracies_of_sets(drawn, best)
    noise = rng.uniform(size=len(clean))
    noise[0] = 0.0
    return Workload(CostCurves.of(coefficients, SIZES), clean - error * noise)


def accuracies_of_sets(accuracy: Floats, best: int) -> Floats:
    """`1 - product over the k best features f of s of (1 - a_f)` for all sets `s`."""
    order = np.argsort(-accuracy)
    failing = np.ones(1 << len(accuracy))
    taken = np.zeros(1 << len(accuracy), dtype=np.int64)
    numbers = np.arange(1 << len(accuracy))
    for feature in order.tolist():
        counts = ((numbers >> feature & 1) == 1) & (taken < best)
        failing[counts] *= 1 - accuracy[feature]
        taken[counts] += 1
    return np.asarray(1 - failing)
