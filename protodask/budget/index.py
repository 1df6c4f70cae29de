"""The poly-dom index: for an item's size and a budget, the most accurate set of features that the budget allows."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from protodask.budget.candidates import Candidates, find_candidates
from protodask.budget.costs import CostCurves
from protodask.budget.expansions import Choice, Expansion, FeatureSet
from protodask.budget.lookup import LARGEST, check_items, in_chunks, look_up, one_slack
from protodask.budget.polynomials import Floats, evaluate
from protodask.budget.skyline import Listing, Presence, find_presence, list_candidates
from protodask.engine.lazy import is_lazy, map_values
from protodask.errors import InputError


@dataclass(frozen=True, eq=False)
class BudgetIndex:
    """Look-ups of the most accurate candidate that costs no more than a budget at the size of an item.

    Of equally accurate candidates the cheapest at that size is meant, of those that cost the same the one of fewer
    features. A cost that is beyond all floats is affordable with no budget, an infinite one included.
    """

    curves: CostCurves
    feature_names: tuple[str, ...]
    candidates: Candidates
    presence: Presence
    expansions: tuple[Expansion, ...]
    """All that were tried, in the order in which they were asked for."""
    alpha: float
    monotone_error: float
    guarantee: float
    """At any size and budget no set is more than this more accurate than the choice; infinite if nothing is known.

    It holds where `observed_error` is at most `monotone_error`, for sets whose expansion did not fail.
    """
    observed_error: float
    """The smallest `monotone_error` that agrees with the accuracies seen."""

    @cached_property
    def listing(self) -> Listing:
        """The lists of candidates that are looked up in."""
        return list_candidates(self.presence)

    @property
    def sets(self) -> tuple[FeatureSet, ...]:
        """The candidates, by rising accuracy: `choose` gives numbers of these."""
        return self.candidates.sets

    @property
    def accuracies(self) -> Floats:
        """(C,)."""
        return self.candidates.accuracies

    @property
    def costs(self) -> Floats:
        """(C, degree + 1): coefficients, constant first."""
        return self.candidates.costs

    @property
    def expanded(self) -> int:
        """How many sets were expanded, failures included."""
        return len(self.expansions)

    @property
    def failures(self) -> tuple[Expansion, ...]:
        return tuple(item for item in self.expansions if item.accuracy is None)

    @property
    def n_entries(self) -> int:
        """The size of the index: candidates, each as often as there are lists with it."""
        return len(self.listing.entries)

    def best(self, size: float, budget: float) -> Choice:
        """The most accurate affordable set for one item; an `InputError` where none is affordable."""
        try:
            size, budget = float(size), float(budget)
        except (TypeError, ValueError) as error:
            raise InputError(f"A size or a budget is no number ({error}).", "Give a number for each.") from error
        if not (self.curves.low <= size <= self.curves.high and size < math.inf and budget >= 0):
            check_items(self.curves, np.array([size]), np.array([budget]))
        found = self._table.find(size, min(budget, LARGEST))
        if found is None:
            least = float(evaluate(self.costs, size).min())
            raise InputError(
                f"No set of features costs as little as {budget!r} on an item of size {size!r}.",
                f"Give a budget of {least!r} or more.",
            )
        number, cost = found
        return Choice(self._table.sets[number], self._table.accuracies[number], cost)

    def choose(self, sizes: Any, budgets: Any) -> Any:
        """The number of the best candidate for each of many items, -1 where none is affordable.

        Sizes and budgets are broadcast against each other; of dask arrays they give one, lazily.
        """
        if is_lazy(sizes) or is_lazy(budgets):
            return map_values(self.choose, sizes, budgets, dtype=np.int64)
        n, budget = _as_floats("sizes", sizes), _as_floats("budgets", budgets)
        check_items(self.curves, n, budget)
        shape = np.broadcast_shapes(n.shape, budget.shape)
        flat = (
            values.reshape(1) if values.size == 1 else np.broadcast_to(values, shape).reshape(-1)
            for values in (n, budget)
        )
        found = in_chunks(lambda n, budget: look_up(self.candidates, self.listing, n, budget), *flat)
        return found.reshape(shape)

    def skyline(self, size: float) -> list[Choice]:
        """Every choice that some budget leads to at a size, by rising cost and accuracy."""
        check_items(self.curves, np.array([float(size)]), np.zeros(1))
        cost = evaluate(self.costs, float(size))
        # Among equally accurate ones of the same cost the last is preferred.
        order = np.lexsort((-np.arange(len(cost)), -self.accuracies, cost))
        risen = np.maximum.accumulate(self.accuracies[order])
        first = np.append(True, risen[1:] > risen[:-1]) & (cost[order] <= LARGEST)
        return [
            Choice(self.sets[number], float(self.accuracies[number]), float(cost[number]))
            for number in order[first].tolist()
        ]

    @cached_property
    def _table(self) -> _Table:
        return _Table.of(self.candidates, self.listing)


def _as_floats(name: str, values: ArrayLike) -> Floats:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"The {name} are no numbers ({error}).", "Give a number for each item.") from error


@dataclass(frozen=True, eq=False)
class _Table:
    """The index as plain lists: for a single item Python's own numbers are faster than arrays, and give the same."""

    sets: tuple[FeatureSet, ...]
    accuracies: list[float]
    costs: list[tuple[float, ...]]
    """The highest power first."""
    slack: tuple[float, ...]
    starts: list[float]
    offsets: list[int]
    entries: list[int]

    @staticmethod
    def of(candidates: Candidates, listing: Listing) -> _Table:
        return _Table(
            candidates.sets,
            candidates.accuracies.tolist(),
            [tuple(row) for row in candidates.costs[:, ::-1].tolist()],
            one_slack(candidates.costs),
            listing.starts.tolist(),
            listing.offsets.tolist(),
            listing.entries.tolist(),
        )

    def find(self, size: float, budget: float) -> tuple[int, float] | None:
        """The number of the best candidate and its cost; see `lookup.look_up`."""
        costs, entries, accuracies = self.costs, self.entries, self.accuracies
        at = bisect_right(self.starts, size) - 1
        first, last = self.offsets[at], self.offsets[at + 1]
        limit = budget * self.slack[0] + _horner(self.slack[1:], size)
        begin = first
        while begin < last:
            middle = (begin + last) >> 1
            if _horner(costs[entries[middle]], size) <= limit:
                begin = middle + 1
            else:
                last = middle
        place = begin - 1
        while place >= first and _horner(costs[entries[place]], size) > budget:
            place -= 1
        if place < first:
            return None
        number = entries[place]
        cost = _horner(costs[number], size)
        while place > first and accuracies[entries[place - 1]] == accuracies[number]:
            place -= 1
            other = _horner(costs[entries[place]], size)
            if other < cost:
                number, cost = entries[place], other
        return number, cost


def _horner(coefficients: tuple[float, ...], size: float) -> float:
    value = coefficients[0]
    for coefficient in coefficients[1:]:
        value = value * size + coefficient
    return value


def make_index(
    curves: CostCurves,
    expansions: Sequence[Expansion],
    *,
    alpha: float = 0.0,
    monotone_error: float = 0.0,
    guarantee: float = math.inf,
    observed_error: float = 0.0,
    feature_names: Sequence[str] | None = None,
) -> BudgetIndex:
    """An index of sets that are expanded already."""
    names = curves.check_names(feature_names)
    candidates = find_candidates(curves, expansions)
    return BudgetIndex(
        curves=curves,
        feature_names=names,
        candidates=candidates,
        presence=find_presence(candidates, curves.low, curves.high),
        expansions=tuple(expansions),
        alpha=alpha,
        monotone_error=monotone_error,
        guarantee=guarantee,
        observed_error=observed_error,
    )
