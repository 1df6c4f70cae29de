"""Looking up greedy sequences: one is chosen at the median size, and followed at the size of the item."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from protodask.budget.costs import CostCurves
from protodask.budget.expansions import Choice, Expansion, FeatureSet
from protodask.budget.lookup import as_item, as_items, check_items
from protodask.budget.polynomials import Floats, Integers, evaluate, horner, plain_rows
from protodask.engine.lazy import is_lazy, map_values
from protodask.errors import InputError


@dataclass(frozen=True)
class GreedySequence:
    """Features in the order in which one trade-off adds them."""

    trade_off: float
    """Accuracy per unit of cost: 0 looks at accuracy only, infinity at cost only."""
    features: tuple[int, ...]
    recorded: tuple[int, ...]
    """For each prefix, from the empty one, the number of its set among those of the index; -1 where it has no model."""


@dataclass(frozen=True, eq=False)
class GreedyIndex:
    """Recorded sets and the sequences they come from; `best` and `choose` answer like those of a `BudgetIndex`."""

    curves: CostCurves
    size: float
    """Of the items that the sequences were made for, the median."""
    sets: tuple[FeatureSet, ...]
    accuracies: Floats
    sequences: tuple[GreedySequence, ...]
    """In the order of their trade-offs."""
    expanded: int
    """How many sets were expanded."""
    failures: tuple[Expansion, ...]
    feature_names: tuple[str, ...]

    @cached_property
    def costs(self) -> Floats:
        """Coefficients of the costs of the recorded sets, (sets, degree + 1)."""
        return self.curves.of_sets(self.sets)

    @property
    def n_entries(self) -> int:
        """Numbers of sets that the index holds: those of its skyline, and a prefix for each step of a sequence."""
        return len(self._skyline.sequences) + sum(len(sequence.recorded) for sequence in self.sequences)

    @property
    def answers(self) -> tuple[FeatureSet, ...]:
        """The recorded sets that some size and budget may be answered with."""
        reached = np.unique(self._tables.best[np.unique(self._skyline.sequences)])
        return tuple(self.sets[number] for number in reached[reached >= 0].tolist())

    def best(self, size: float, budget: float) -> Choice:
        """What to compute for one item."""
        size, budget = as_item(self.curves, size, budget)
        sequence, number = self.sequence_for(budget), -1
        if sequence >= 0:
            costs, best = self._prefixes[sequence]
            low, high = 0, len(costs) - 1
            while low < high:
                middle = (low + high + 1) >> 1
                if horner(costs[middle], size) <= budget:
                    low = middle
                else:
                    high = middle - 1
            number = best[low]
        if number < 0:
            raise InputError(
                "over-limit",
                f"No recorded set of features costs as little as {budget:g} on an item of size {size:g}.",
                "Give a larger budget, of 0 or more in any case.",
            )
        return Choice(self.sets[number], float(self.accuracies[number]), horner(self._set_costs[number], size))

    def choose(self, sizes: Any, budgets: Any) -> Any:
        """The numbers of the sets to compute, -1 where none is within the budget; sizes and budgets broadcast.

        The skyline of all recorded sets at the median size picks the sequence of the most accurate one within the
        budget there; if several hold that set, that of the smallest trade-off. It is followed at the size of the item
        for as long as the budget lasts, and of the prefixes met the most accurate one is the answer, the first of equal
        ones.
        """
        if is_lazy(sizes) or is_lazy(budgets):
            return map_values(self.choose, sizes, budgets, dtype=np.int64)
        n, budget, shape = as_items(self.curves, sizes, budgets)
        n, budget = (np.broadcast_to(values, math.prod(shape)).reshape(shape) for values in (n, budget))
        skyline, tables = self._skyline, self._tables
        entry = np.searchsorted(skyline.costs, budget, side="right") - 1
        if not skyline.sequences.size:
            return np.full(n.shape, -1)
        sequence = skyline.sequences[np.maximum(entry, 0)]
        # The longest prefix within the budget, by bisection for all items at once: prefixes cost more and more.
        low = np.zeros(n.shape, dtype=np.int64)
        high = tables.lengths[sequence]
        while (low < high).any():
            middle = (low + high + 1) // 2
            within = evaluate(tables.costs[sequence, middle], n) <= budget
            low = np.where(within, middle, low)
            high = np.where(within, high, middle - 1)
        return np.where(entry < 0, -1, tables.best[sequence, low])

    def sequence_for(self, budget: float) -> int:
        """The number of the sequence that is followed with a budget; -1 where nothing is within it."""
        entry = bisect.bisect_right(self._skyline.costs_list, budget) - 1
        return -1 if entry < 0 else int(self._skyline.sequences[entry])

    def walk(self, size: float, budget: float) -> GreedyWalk:
        """The any-time way: feature by feature, as what they really cost is seen."""
        check_items(self.curves, np.asarray(size, dtype=np.float64), np.asarray(budget, dtype=np.float64))
        number = self.sequence_for(budget)
        if number < 0:
            return GreedyWalk((), (0.0,), (-1,))
        length = int(self._tables.lengths[number])
        costs = evaluate(self._tables.costs[number, : length + 1], size)
        best = tuple(self._tables.best[number, : length + 1].tolist())
        return GreedyWalk(self.sequences[number].features, tuple(costs.tolist()), best)

    @cached_property
    def _skyline(self) -> _Skyline:
        """Of the recorded sets at the median size: costs and accuracies both strictly ascending."""
        home: dict[int, int] = {}
        for number, sequence in reversed([*enumerate(self.sequences)]):
            home |= dict.fromkeys(sequence.recorded, number)
        costs = evaluate(self.costs, self.size)
        chosen: list[int] = []
        for number in np.lexsort((-self.accuracies, costs)).tolist():
            if not chosen or self.accuracies[number] > self.accuracies[chosen[-1]]:
                chosen.append(number)
        homes = np.array([home[number] for number in chosen], dtype=np.int64)
        return _Skyline(costs[chosen], homes, costs[chosen].tolist())

    @cached_property
    def _prefixes(self) -> list[tuple[list[tuple[float, ...]], list[int]]]:
        """The tables as plain lists, for a single item."""
        tables = self._tables
        return [
            (plain_rows(costs[: length + 1]), best[: length + 1].tolist())
            for costs, best, length in zip(tables.costs, tables.best, tables.lengths.tolist(), strict=True)
        ]

    @cached_property
    def _set_costs(self) -> list[tuple[float, ...]]:
        return plain_rows(self.costs)

    @cached_property
    def _tables(self) -> _Tables:
        lengths = np.array([len(sequence.features) for sequence in self.sequences], dtype=np.int64)
        shape = (len(self.sequences), int(lengths.max(initial=0)) + 1)
        costs = np.zeros((*shape, self.curves.coefficients.shape[1]))
        best = np.full(shape, -1)
        for row, sequence in enumerate(self.sequences):
            leader = -1
            for length, number in enumerate(sequence.recorded):
                costs[row, length] = self.curves.of_set(frozenset(sequence.features[:length]))
                if number >= 0 and (leader < 0 or self.accuracies[number] > self.accuracies[leader]):
                    leader = number
                best[row, length] = leader
        return _Tables(lengths, costs, best)


@dataclass(frozen=True)
class _Skyline:
    costs: Floats
    sequences: Integers
    """From which sequence the set comes."""
    costs_list: list[float]
    """The same for a look-up of one item, where NumPy would cost more than the search."""


@dataclass(frozen=True)
class _Tables:
    lengths: Integers
    """Of the sequences, (sequences,)."""
    costs: Floats
    """Coefficients of the costs of prefixes, (sequences, longest + 1, degree + 1)."""
    best: Integers
    """The most accurate recorded set among the prefixes up to each, (sequences, longest + 1)."""


class GreedyWalk:
    """A sequence followed on one item: which feature to compute next is asked with what is left of the budget."""

    def __init__(self, features: tuple[int, ...], costs: tuple[float, ...], best: tuple[int, ...]) -> None:
        self._features = features
        self._costs = costs
        self._best = best
        self.done = 0
        """Features computed."""

    @property
    def reached(self) -> int:
        """The most accurate recorded set so far, -1 where there is none."""
        return self._best[self.done]

    def target(self, left: float) -> int:
        """The most accurate recorded set within what is left, counting features as dear as expected."""
        return self._best[self._longest(left)]

    def next_feature(self, left: float) -> int | None:
        """The feature to compute now; None where no recorded set within what is left is more accurate."""
        if self._best[self._longest(left)] == self.reached:
            return None
        return self._features[self.done]

    def advance(self) -> None:
        """Say that the feature was computed."""
        self.done += 1

    def _longest(self, left: float) -> int:
        spent = self._costs[self.done]
        longest = self.done
        while longest + 1 < len(self._costs) and self._costs[longest + 1] - spent <= left:
            longest += 1
        return longest


Grown = tuple[float, Sequence[int], Sequence[float | None]]
"""A trade-off, its features in order, and the accuracy of every prefix from the empty one, None without a model."""


def index_sequences(
    curves: CostCurves,
    size: float,
    grown: Sequence[Grown],
    *,
    expanded: int,
    failures: Sequence[Expansion] = (),
    feature_names: Sequence[str] | None = None,
) -> GreedyIndex:
    """The look-up over sequences, by rising trade-off, with sets that several of them meet recorded once."""
    numbers: dict[FeatureSet, int] = {}
    accuracies: list[float] = []
    sequences = []
    for trade_off, order, known in grown:
        recorded = []
        for length, accuracy in enumerate(known):
            features = frozenset(order[:length])
            if accuracy is None:
                recorded.append(-1)
                continue
            if features not in numbers:
                numbers[features] = len(accuracies)
                accuracies.append(accuracy)
            recorded.append(numbers[features])
        sequences.append(GreedySequence(trade_off, tuple(order), tuple(recorded)))
    return GreedyIndex(
        curves=curves,
        size=size,
        sets=tuple(numbers),
        accuracies=np.array(accuracies),
        sequences=tuple(sequences),
        expanded=expanded,
        failures=tuple(failures),
        feature_names=curves.check_names(feature_names),
    )
