"""Looking up greedy sequences: one is chosen at the median size, and followed at the size of the item."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np

from protodask.budget.candidates import Candidates
from protodask.budget.costs import CostCurves
from protodask.budget.expansions import Choice, Expansion, FeatureSet
from protodask.budget.lookup import Lookup, check_items
from protodask.budget.polynomials import evaluate
from protodask.budget.skyline import Listing
from protodask.engine.records import Floats


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
        return len(self._skyline[0]) + sum(len(sequence.recorded) for sequence in self.sequences)

    @cached_property
    def lookup(self) -> Lookup:
        """What `best` and `choose` look up in.

        The skyline of all recorded sets at the median size picks the sequence of the most accurate one within the
        budget there; if several hold that set, that of the smallest trade-off. It is followed at the size of the item
        for as long as the budget lasts, and of the prefixes met the most accurate one is the answer, the first of equal
        ones: a list for each sequence has those that are more accurate than all before them.
        """
        budgets, followed = self._skyline
        begins = [place for place, number in enumerate(followed) if not place or number != followed[place - 1]]
        lists = [list(dict.fromkeys(met for met in self._best[followed[place]] if met >= 0)) for place in begins]
        listing = Listing(
            np.array([-math.inf, *(budgets[place] for place in begins)]),  # below all of them an empty list
            np.cumsum([0, 0, *map(len, lists)]),
            np.array([number for own in lists for number in own], dtype=np.int32),
        )
        return Lookup(self.curves, Candidates(self.sets, self.accuracies, self.costs), listing, by_budget=True)

    @property
    def answers(self) -> tuple[FeatureSet, ...]:
        """The recorded sets that some size and budget may be answered with."""
        return self.lookup.answers

    def best(self, size: float, budget: float) -> Choice:
        """What to compute for one item; an `InputError` where nothing is within the budget."""
        return self.lookup.best(size, budget)

    def choose(self, sizes: Any, budgets: Any) -> Any:
        """The numbers of the sets to compute for many items, see `Lookup.choose`."""
        return self.lookup.choose(sizes, budgets)

    def walk(self, size: float, budget: float) -> GreedyWalk:
        """The any-time way: feature by feature, as what they really cost is seen."""
        check_items(self.curves, np.asarray(size, dtype=np.float64), np.asarray(budget, dtype=np.float64))
        budgets, followed = self._skyline
        entry = bisect_right(budgets, budget) - 1
        if entry < 0:
            return GreedyWalk((), (0.0,), (-1,))
        number = followed[entry]
        costs = evaluate(self._prefix_costs[number], size)
        return GreedyWalk(self.sequences[number].features, tuple(costs.tolist()), self._best[number])

    @cached_property
    def _skyline(self) -> tuple[list[float], list[int]]:
        """At the median size: costs, ascending, at each of which a more accurate set is reached, and its sequence."""
        home: dict[int, int] = {}
        for number, sequence in reversed([*enumerate(self.sequences)]):
            home |= dict.fromkeys(sequence.recorded, number)
        costs = evaluate(self.costs, self.size)
        chosen: list[int] = []
        for number in np.lexsort((-self.accuracies, costs)).tolist():
            if not chosen or self.accuracies[number] > self.accuracies[chosen[-1]]:
                chosen.append(number)
        return costs[chosen].tolist(), [home[number] for number in chosen]

    @cached_property
    def _best(self) -> list[tuple[int, ...]]:
        """For each sequence and each prefix the most accurate recorded set up to it, -1 where there is none."""

        def better(leader: int, number: int) -> int:
            if leader < 0 or (number >= 0 and self.accuracies[number] > self.accuracies[leader]):
                return number
            return leader

        return [tuple(accumulate(sequence.recorded, better)) for sequence in self.sequences]

    @cached_property
    def _prefix_costs(self) -> list[Floats]:
        """For each sequence the coefficients of the costs of its prefixes, (features + 1, degree + 1)."""
        return [
            self.curves.of_sets([frozenset(sequence.features[:length]) for length in range(len(sequence.recorded))])
            for sequence in self.sequences
        ]


@dataclass
class GreedyWalk:
    """A sequence followed on one item: which feature to compute next is asked with what is left of the budget."""

    features: tuple[int, ...]
    costs: tuple[float, ...]
    """Of its prefixes, from the empty one, at the size of the item."""
    best: tuple[int, ...]
    """The most accurate recorded set up to each prefix."""
    done: int = 0
    """Features computed."""

    @property
    def reached(self) -> int:
        """The most accurate recorded set so far, -1 where there is none."""
        return self.best[self.done]

    def target(self, left: float) -> int:
        """The most accurate recorded set within what is left, counting features as dear as expected."""
        return self.best[self._longest(left)]

    def next_feature(self, left: float) -> int | None:
        """The feature to compute now; None where no recorded set within what is left is more accurate."""
        if self.best[self._longest(left)] == self.reached:
            return None
        return self.features[self.done]

    def advance(self) -> None:
        """Say that the feature was computed."""
        self.done += 1

    def _longest(self, left: float) -> int:
        spent = self.costs[self.done]
        longest = self.done
        while longest + 1 < len(self.costs) and self.costs[longest + 1] - spent <= left:
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
    accuracies: dict[FeatureSet, float] = {}
    for _, order, known in grown:
        for length, accuracy in enumerate(known):
            if accuracy is not None:
                accuracies.setdefault(frozenset(order[:length]), accuracy)
    numbers = {features: number for number, features in enumerate(accuracies)}
    sequences = []
    for trade_off, order, known in grown:
        prefixes = [frozenset(order[:length]) for length in range(len(known))]
        recorded = [-1 if accuracy is None else numbers[own] for own, accuracy in zip(prefixes, known, strict=True)]
        sequences.append(GreedySequence(trade_off, tuple(order), tuple(recorded)))
    return GreedyIndex(
        curves=curves,
        size=size,
        sets=tuple(accuracies),
        accuracies=np.array(list(accuracies.values())),
        sequences=tuple(sequences),
        expanded=expanded,
        failures=tuple(failures),
        feature_names=curves.check_names(feature_names),
    )
