"""Losses by counts with every case written out, and expected losses by going through all outcomes.

A selection or an outcome of `n` items is a number whose bits are the items; `table[tp, k, p]` is the loss for `tp` true
positives among `k` selected and `p` positive items.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Counted = Callable[[int, int, int, int], float]
"""A loss by the counts of true positives, false positives, false negatives and true negatives."""


def true_positive_rate(tp: int, fn: int) -> float:
    return tp / (tp + fn) if tp + fn else 1.0


def true_negative_rate(tn: int, fp: int) -> float:
    return tn / (tn + fp) if tn + fp else 1.0


def precision(tp: int, fp: int) -> float:
    return tp / (tp + fp) if tp + fp else 1.0


def am(tp: int, fp: int, fn: int, tn: int) -> float:
    return 1 - (true_positive_rate(tp, fn) + true_negative_rate(tn, fp)) / 2


def f_beta(beta: float) -> Counted:
    def loss(tp: int, fp: int, fn: int, tn: int) -> float:
        if tp + fp + fn == 0:
            return 0.0
        return 1 - (1 + beta**2) * tp / ((1 + beta**2) * tp + beta**2 * fn + fp)

    return loss


def jaccard(tp: int, fp: int, fn: int, tn: int) -> float:
    return (fp + fn) / (tp + fp + fn) if tp + fp + fn else 0.0


def g_tp_pr(tp: int, fp: int, fn: int, tn: int) -> float:
    return 1 - math.sqrt(true_positive_rate(tp, fn) * precision(tp, fp))


def g_mean(tp: int, fp: int, fn: int, tn: int) -> float:
    return 1 - math.sqrt(true_positive_rate(tp, fn) * true_negative_rate(tn, fp))


def h_mean(tp: int, fp: int, fn: int, tn: int) -> float:
    positive, negative = true_positive_rate(tp, fn), true_negative_rate(tn, fp)
    return 1 - 2 / (1 / positive + 1 / negative) if positive and negative else 1.0


def auc(tp: int, fp: int, fn: int, tn: int) -> float:
    pairs = (tp + fn) * (fp + tn)
    return fp * fn / pairs if pairs else 0.0


NAMED: dict[str, Counted] = {
    "am": am,
    "f1": f_beta(1),
    "f2": f_beta(2),
    "f0.5": f_beta(0.5),
    "jaccard": jaccard,
    "g_tp_pr": g_tp_pr,
    "g_mean": g_mean,
    "h_mean": h_mean,
    "auc": auc,
}


def feasible(n: int) -> list[tuple[int, int, int]]:
    """All `(tp, k, p)` that `n` items can have."""
    return [(tp, k, p) for k in range(n + 1) for p in range(n + 1) for tp in range(max(0, k + p - n), min(k, p) + 1)]


def loss_table(counted: Counted, n: int) -> Floats:
    """NaN where no outcome leads."""
    table = np.full((n + 1, n + 1, n + 1), np.nan)
    for tp, k, p in feasible(n):
        table[tp, k, p] = counted(tp, k - tp, p - tp, n - k - p + tp)
    return table


def bits(n: int) -> NDArray[np.int64]:
    """The items of each subset (2^n, n)."""
    return (np.arange(2**n)[:, None] >> np.arange(n)) & 1


def subset_counts(probability: Floats) -> Floats:
    """Chance of `tp` true and `p` positive items for every selection, by all outcomes (2^n, n + 1, n + 1)."""
    n = len(probability)
    subsets = bits(n)
    chance = np.prod(np.where(subsets == 1, probability, 1 - probability), axis=1)
    size = subsets.sum(axis=1)
    numbers = np.arange(2**n)
    counts = np.empty((2**n, (n + 1) ** 2))
    for chosen in numbers:
        counts[chosen] = np.bincount(size[numbers & chosen] * (n + 1) + size, weights=chance, minlength=(n + 1) ** 2)
    return counts.reshape(-1, n + 1, n + 1)


def losses_of_counts(counts: Floats, table: Floats) -> Floats:
    """Expected loss of every selection (2^n,)."""
    by_selection = table[:, bits(table.shape[0] - 1).sum(axis=1), :]
    losses: Floats = np.einsum("stp,tsp->s", counts, np.nan_to_num(by_selection))
    return losses


def subset_losses(probability: Floats, table: Floats) -> Floats:
    """Expected loss of every selection of independent items (2^n,)."""
    return losses_of_counts(subset_counts(probability), table)


def set_losses(probability: Floats, table: Floats) -> Floats:
    """Expected loss of naming every set of classes of which exactly one is true (2^K,)."""
    subsets = bits(len(probability))
    losses = [
        sum(chance * table[named[j], named.sum(), 1] for j, chance in enumerate(probability)) for named in subsets
    ]
    return np.array(losses)


def top_subsets(probability: Floats) -> NDArray[np.int64]:
    """The number of the subset of the 0, 1, .. n largest probabilities, of ties the first (n + 1,)."""
    order = np.argsort(-probability, kind="stable")
    return np.concatenate([[0], np.cumsum(1 << order)])
