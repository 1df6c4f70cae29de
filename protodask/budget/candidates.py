"""The sets of features that can be an answer: what is left of the expanded ones when the dominated have gone.

A set `r` dominates `s` where `a_r >= a_s` and `c_r(n) <= c_s(n)` at all sizes. It is taken to do so only where the
costs that are *computed* compare in that way at every size too, so that nothing is lost at any budget: where no
coefficient of `c_r` is above that of `c_s` (Horner's rule is monotone in each of them; with costs that have no negative
coefficient, every part `r` of `s` is such a one), or where `c_s - c_r` stays above a bound on the roundings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from protodask.budget.costs import CostCurves
from protodask.budget.expansions import Expansion, FeatureSet
from protodask.budget.polynomials import Flags, evaluate, never_below, position, position_after
from protodask.engine.records import Floats, Integers
from protodask.errors import InputError

MARGIN = 1e-12
"""Relative to the sum of all terms of both costs: far above their rounding."""

BLOCK_SETS = 256
"""Compared at once with all that were kept."""

MOST_TRIED = 64
"""Sets that are compared with one by their polynomials at once."""

SAMPLES = 14
"""Sizes at which costs are compared before their polynomials are."""


@dataclass(frozen=True, eq=False)
class Candidates:
    """`C` sets by rising accuracy; of equally accurate ones those with more features come first."""

    sets: tuple[FeatureSet, ...]
    accuracies: Floats
    """(C,)."""
    costs: Floats
    """(C, degree + 1): coefficients, constant first."""


def order_candidates(sets: Sequence[FeatureSet], accuracies: Floats, costs: Floats) -> Candidates:
    """Candidates in their order: of equally accurate ones the preferred is the last."""
    order = np.lexsort((-_preference(sets), accuracies))
    return Candidates(tuple(sets[i] for i in order), np.asarray(accuracies)[order], np.asarray(costs)[order])


def _preference(sets: Sequence[FeatureSet]) -> Integers:
    """The place of each set among all, those of few features and low numbers first."""
    rank = np.empty(len(sets), dtype=np.int64)
    rank[sorted(range(len(sets)), key=lambda i: (len(sets[i]), sorted(sets[i])))] = np.arange(len(sets))
    return rank


def known_accuracies(expansions: Sequence[Expansion]) -> tuple[list[FeatureSet], Floats]:
    """The sets whose expansion did not fail, and how accurate their models are."""
    known = {item.features: item.accuracy for item in expansions if item.accuracy is not None}
    return list(known), np.array(list(known.values()), dtype=np.float64)


def find_candidates(curves: CostCurves, expansions: Sequence[Expansion]) -> Candidates:
    """The expanded sets that no other one dominates; of several with the same accuracy and cost one is left.

    That is the one of the fewest features, and of the lowest numbers among those of as many.
    """
    sets, accuracies = known_accuracies(expansions)
    _check(curves, sets, accuracies)
    costs = curves.of_sets(sets)
    sampled = evaluate(costs[:, None, :], _samples(costs, curves.low, curves.high))
    # A set comes after those that can dominate it.
    order = np.lexsort((_preference(sets), *sampled.T[::-1], -accuracies))
    kept = order[_undominated(costs[order], sampled[order], position(curves.low), position_after(curves.high))]
    return order_candidates([sets[i] for i in kept], accuracies[kept], costs[kept])


def _check(curves: CostCurves, sets: Sequence[FeatureSet], accuracies: Floats) -> None:
    if not sets:
        raise InputError(
            "too-few", "There is no set of features with a model.", "Give at least one expansion that succeeded."
        )
    known = frozenset(range(curves.n_features))
    unknown = next((features for features in sets if not features <= known), None)
    if unknown is not None:
        raise InputError(
            "columns-differ",
            f"A set has the features {sorted(unknown)}, and there are {curves.n_features} with a cost.",
            "Give a cost for each feature; they are numbered from 0.",
        )
    if not np.isfinite(accuracies).all():
        raise InputError(
            "bad-value", "The accuracy of a set is not a finite number.", "Report such an expansion as a failure."
        )


def _samples(costs: Floats, low: float, high: float) -> Floats:
    """Sizes of the range, from one at which the lowest powers rule to one at which the highest do."""
    magnitude = np.abs(costs).max(axis=0).tolist()
    powers = np.flatnonzero(magnitude)
    turning = [(magnitude[i] / magnitude[j]) ** (1 / (j - i)) for i, j in pairwise(powers.tolist())] or [1.0]
    grid = np.geomspace(max(min(turning), 1e-100) / 1e3, min(max(turning), 1e100) * 1e3, SAMPLES)
    ends = [low] if np.isinf(high) else [low, high]
    return np.unique(np.concatenate([ends, np.clip(grid, low, high)]))


def _undominated(costs: Floats, sampled: Floats, start: int, end: int) -> Flags:
    """Of sets by falling accuracy, each after those that can dominate it, which are dominated by none before."""
    kept = np.zeros(len(costs), dtype=np.bool_)
    for begin in range(0, len(costs), BLOCK_SETS):
        block = np.arange(begin, min(begin + BLOCK_SETS, len(costs)))
        before = np.flatnonzero(kept[:begin])
        block = block[~_none_above(costs[before], costs[block]).any(axis=0)]
        # Dominance is transitive: within a block all that come before count, dominated or not.
        block = block[~np.triu(_none_above(costs[block], costs[block]), 1).any(axis=0)]
        others = np.concatenate([before, block])
        possible = _none_above(sampled[others], sampled[block])
        possible[len(before) :] &= np.triu(np.ones((len(block), len(block)), dtype=np.bool_), 1)
        kept[block[~_dominated(costs[others], costs[block], possible, start, end)]] = True
    return kept


def _none_above(values: Floats, others: Floats) -> Flags:
    """(R, S): whether none of the values of a row is above the one in its place in another row."""
    result = np.ones((len(values), len(others)), dtype=np.bool_)
    for value, other in zip(values.T.copy(), others.T.copy(), strict=True):
        result &= value[:, None] <= other
    return result


def _dominated(costs: Floats, others: Floats, possible: Flags, start: int, end: int) -> Flags:
    """(S,): whether one of the costs (R, d + 1) that possibly does stays below another (S, d + 1) at all sizes."""
    result = np.zeros(len(others), dtype=np.bool_)
    possible, count = possible.copy(), 1
    while len(which := np.flatnonzero(~result & possible.any(axis=0))):
        # What costs less at all samples mostly does so everywhere: one for each is enough, or many are to be tried.
        tried = possible[:, which] & (np.cumsum(possible[:, which], axis=0, dtype=np.int32) <= count)
        lower, upper = np.nonzero(tried)
        below, above = costs[lower], others[which[upper]]
        dominated = never_below(above - below - MARGIN * (np.abs(above) + np.abs(below)), start, end)
        result[which[upper[dominated]]] = True
        possible[lower, which[upper]] = False
        count = min(8 * count, MOST_TRIED)
    return result
