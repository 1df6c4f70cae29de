"""Greedy sequences and their look-up as loops over sets, one item and one trade-off at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

FeatureSet = frozenset[int]
Cost = Callable[[FeatureSet, float], float]


def grow(
    n_features: int, price: Callable[[int], float], accuracy: Callable[[FeatureSet], float | None], trade_off: float
) -> list[int]:
    """The features in the order in which one trade-off adds them; sets of no accuracy are not gone to."""
    order: list[int] = []
    while len(order) < n_features:
        have = frozenset(order)
        before = accuracy(have) or 0.0
        best: tuple[float, float, int] | None = None
        for feature in range(n_features):
            if feature in have:
                continue
            if math.isinf(trade_off):
                key = (0.0, -price(feature), -feature)
            else:
                after = accuracy(have | {feature})
                if after is None:
                    continue
                key = (after - before - trade_off * price(feature), -price(feature), -feature)
            if best is None or key > best:
                best = key
        if best is None:
            break
        order.append(-best[2])
    return order


def look_up(
    sequences: Sequence[Sequence[int]],
    cost: Cost,
    accuracy: Callable[[FeatureSet], float | None],
    median: float,
    size: float,
    budget: float,
) -> FeatureSet | None:
    """The set for an item; sequences by rising trade-off."""
    chosen: tuple[float, float, int] | None = None
    for number, order in enumerate(sequences):
        for length in range(len(order) + 1):
            features = frozenset(order[:length])
            reached = accuracy(features)
            if reached is None or cost(features, median) > budget:
                continue
            key = (reached, -cost(features, median), -number)
            if chosen is None or key > chosen:
                chosen = key
    if chosen is None:
        return None
    order = sequences[-chosen[2]]
    answer: FeatureSet | None = None
    for length in range(len(order) + 1):
        features = frozenset(order[:length])
        if cost(features, size) > budget:
            break
        reached = accuracy(features)
        if reached is not None and (answer is None or reached > (accuracy(answer) or 0.0)):
            answer = features
    return answer
