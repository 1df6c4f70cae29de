"""What the index is compared with: every set expanded, every crossing indexed, no index at all."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from protodask.budget.candidates import Candidates, known_accuracies, order_candidates
from protodask.budget.costs import CostCurves
from protodask.budget.expansions import Choice, Expand, Expansion
from protodask.budget.index import BudgetIndex
from protodask.budget.lookup import CHUNK_ITEMS, LARGEST, Lookup, as_item, as_items
from protodask.budget.polynomials import evaluate, horner, plain_rows, position, position_after, sign_cuts, sizes_at
from protodask.budget.skyline import Listing
from protodask.engine.records import Floats, Integers
from protodask.errors import InputError

CHUNK_VALUES = 2**22
"""Costs held at once."""

MOST_FEATURES = 20


def expand_all(n_features: int, expand: Expand) -> tuple[Expansion, ...]:
    """All `2^m` sets, smaller ones first."""
    if not 1 <= n_features <= MOST_FEATURES:
        raise InputError(
            "over-limit", f"There are {n_features} features.", f"Expand all sets of 1 to {MOST_FEATURES} features."
        )
    sets = [frozenset(some) for size in range(n_features + 1) for some in combinations(range(n_features), size)]
    found: list[Expansion] = []
    expand(sets, found.append)
    return tuple(found)


def unpruned(index: BudgetIndex) -> Candidates:
    """All expanded sets of an index, dominated ones too."""
    sets, accuracies = known_accuracies(index.expansions)
    return order_candidates(sets, accuracies, index.curves.of_sets(sets))


def index_all(curves: CostCurves, candidates: Candidates) -> Lookup:
    """A look-up with a skyline for every range of sizes between two crossings of any two curves.

    Its answers are those of `BudgetIndex`; at sizes that rounding cannot tell from a crossing they may differ.
    """
    cuts = _all_crossings(candidates.costs, position(curves.low), position_after(curves.high))
    return Lookup(curves, candidates, _list_skylines(candidates, cuts))


def _all_crossings(costs: Floats, start: int, end: int) -> Integers:
    """Positions at which any two curves change sides, ascending, and both ends of the range."""
    first, second = np.triu_indices(len(costs), 1)
    found = [np.array([start, end], dtype=np.int64)]
    rows = CHUNK_VALUES // costs.shape[1]
    for begin in range(0, len(first), rows):
        pairs = slice(begin, begin + rows)
        differences = costs[second[pairs]] - costs[first[pairs]]
        starts = np.full(len(differences), start, dtype=np.int64)
        ends = np.full(len(differences), end, dtype=np.int64)
        cuts = sign_cuts(differences, starts, ends)
        found.append(_changes(differences, cuts, starts, ends))
    return np.unique(np.concatenate(found))


def _changes(differences: Floats, cuts: Integers, starts: Integers, ends: Integers) -> Integers:
    """Of cuts those where the sign does change."""
    edges = np.concatenate([starts[:, None], cuts], axis=1)
    inside = edges < ends[:, None]
    below = evaluate(differences[:, None, :], sizes_at(np.minimum(edges, ends[:, None] - 1))) < 0
    # What stands at the end of the range is no crossing.
    changed: Integers = cuts[(below[:, 1:] != below[:, :-1]) & inside[:, 1:]]
    return changed


def _list_skylines(candidates: Candidates, cuts: Integers) -> Listing:
    """The skyline in the middle of each range between cuts."""
    sizes = sizes_at(cuts)
    # Beyond all crossings any size does; far out all costs would be beyond all floats.
    middles = np.where(np.isinf(sizes[1:]), np.maximum(4 * sizes[:-1], 1.0), sizes[:-1] / 2 + sizes[1:] / 2)
    n_sets = len(candidates.sets)
    entries, lengths = [], []
    for begin in range(0, len(middles), rows := max(1, CHUNK_VALUES // n_sets)):
        cost = evaluate(candidates.costs, middles[begin : begin + rows, None])
        # From the most accurate one down: those on the skyline cost less than all that come before.
        falling = cost[:, ::-1]
        least = np.minimum.accumulate(falling, axis=1)
        on_skyline = np.concatenate([np.ones((len(cost), 1), np.bool_), falling[:, 1:] < least[:, :-1]], axis=1)
        on_skyline = on_skyline[:, ::-1] & _cheapest_of_equals(candidates.accuracies, cost)
        lengths.append(on_skyline.sum(axis=1))
        entries.append(np.nonzero(on_skyline)[1].astype(np.int32))
    offsets = np.concatenate([[0], np.cumsum(np.concatenate(lengths))]).astype(np.int64)
    return Listing(sizes[:-1], offsets, np.concatenate(entries))


def _cheapest_of_equals(accuracies: Floats, cost: Floats) -> np.ndarray[Any, np.dtype[np.bool_]]:
    begins = np.flatnonzero(np.append(True, np.diff(accuracies) > 0))
    least = np.minimum.reduceat(cost, begins, axis=1)
    return np.asarray(cost <= np.repeat(least, np.diff(np.append(begins, len(accuracies))), axis=1))


@dataclass(frozen=True, eq=False)
class Scan:
    """No index: candidates are gone through one by one."""

    curves: CostCurves
    candidates: Candidates

    def best(self, size: float, budget: float) -> Choice:
        """See `BudgetIndex.best`; from the most accurate candidate down, until one is affordable."""
        size, budget = as_item(self.curves, size, budget)
        limit = min(budget, LARGEST)
        accuracies, costs = self._accuracies, self._costs
        found, least = -1, math.inf
        for number in range(len(costs) - 1, -1, -1):
            if found >= 0 and accuracies[number] < accuracies[found]:
                break
            cost = horner(costs[number], size)
            if cost <= limit and cost < least:
                found, least = number, cost
        if found < 0:
            raise InputError(
                "over-limit", f"No set of features costs as little as {budget!r}.", "Give a larger budget."
            )
        return Choice(self.candidates.sets[found], accuracies[found], least)

    def choose(self, sizes: ArrayLike, budgets: ArrayLike) -> Any:
        """See `BudgetIndex.choose`, of arrays in memory; each candidate is compared with all items at once."""
        n, budget = as_items(self.curves, sizes, budgets)
        found = np.empty(n.shape, dtype=np.int64)
        for begin in range(0, found.size, CHUNK_ITEMS):
            part = slice(begin, begin + CHUNK_ITEMS)
            found.flat[part] = self._scan(n.flat[part], np.minimum(budget.flat[part], LARGEST))
        return found

    def _scan(self, sizes: Floats, budgets: Floats) -> Integers:
        accuracies, costs = self.candidates.accuracies, self.candidates.costs
        found = np.full(len(sizes), -1, dtype=np.int64)
        ties = np.append(False, np.diff(accuracies) == 0)
        for number, cost in enumerate(costs):
            price = evaluate(cost, sizes)
            better = price <= budgets
            if ties[number]:
                rival = (found >= 0) & (accuracies[found] == accuracies[number])
                better &= ~rival | (price <= evaluate(costs[found], sizes))
            np.copyto(found, number, where=better)
        return found

    def best_vectorized(self, size: float, budget: float) -> Choice:
        """The same as `best`, with the costs of all candidates at once."""
        size, budget = as_item(self.curves, size, budget)
        powers = self._powers
        price = powers[-1]
        for coefficients in powers[-2::-1]:
            price = price * size + coefficients
        within = price <= min(budget, LARGEST)
        found = len(within) - 1 - int(within[::-1].argmax())
        if not within[found]:
            raise InputError(
                "over-limit", f"No set of features costs as little as {budget!r}.", "Give a larger budget."
            )
        first = self._first_of_equals[found]
        if first < found:
            equals = np.where(within[first : found + 1], price[first : found + 1], np.inf)
            found -= int(equals[::-1].argmin())
        return Choice(self.candidates.sets[found], self._accuracies[found], float(price[found]))

    @cached_property
    def _powers(self) -> list[Floats]:
        """The coefficients of each power, constant first."""
        return [column.copy() for column in self.candidates.costs.T]

    @cached_property
    def _first_of_equals(self) -> list[int]:
        """The first candidate of the same accuracy as each."""
        return [int(place) for place in np.searchsorted(self.candidates.accuracies, self.candidates.accuracies)]

    @cached_property
    def _accuracies(self) -> list[float]:
        accuracies: list[float] = self.candidates.accuracies.tolist()
        return accuracies

    @cached_property
    def _costs(self) -> list[tuple[float, ...]]:
        return plain_rows(self.candidates.costs)
