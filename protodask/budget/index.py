"""The poly-dom index: for an item's size and a budget, the most accurate set of features that the budget allows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from protodask.budget.bounds import agrees, margins
from protodask.budget.candidates import Candidates, find_candidates
from protodask.budget.costs import CostCurves
from protodask.budget.expansions import Choice, Expansion, FeatureSet
from protodask.budget.lookup import LARGEST, Lookup, as_item
from protodask.budget.polynomials import evaluate
from protodask.budget.skyline import MOST_ENTRIES, Listing, Presence, count_entries, find_presence, list_candidates
from protodask.engine.records import Floats
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

    It holds for sets whose expansion did not fail, and where `guaranteed` says so.
    """
    observed_error: float
    """The smallest `monotone_error` that agrees with the accuracies seen."""
    margins: Floats | None = None
    """What is to be added to `guarantee` for each candidate, since accuracies are estimates (C,): see `margin`."""

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

    @cached_property
    def lookup(self) -> Lookup:
        """What `best` and `choose` look up in: lists by size."""
        return Lookup(self.curves, self.candidates, self.listing)

    @property
    def answers(self) -> tuple[FeatureSet, ...]:
        """The candidates that some size and budget may be answered with."""
        return self.lookup.answers

    def named(self, features: FeatureSet) -> tuple[str, ...]:
        """The names of a set of features."""
        return tuple(self.feature_names[number] for number in sorted(features))

    @property
    def guaranteed(self) -> bool:
        """Whether `guarantee` is one: accuracies agree with what was assumed of them, or no set is unknown."""
        if agrees(self.observed_error, self.monotone_error):
            return True
        return len({item.features for item in self.expansions}) == 1 << self.curves.n_features

    @property
    def margin(self) -> float | None:
        """The largest of `margins`: how much the noise of the estimated accuracies adds to what is guaranteed.

        With probability `CONFIDENCE`, at every size and budget no set is in truth more than `guarantee + margin` more
        accurate than the choice; where `guarantee` is infinite, no set that was expanded is more than `margin` so. None
        where that is unknown: accuracies came as mere numbers, there are more than 500 features, or diminishing returns
        were assumed, whose bounds add up many estimates. `protodask.budget.noise` has the formula and its proof.
        """
        return None if self.margins is None else float(self.margins.max())

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
        return self.lookup.n_entries

    def best(self, size: float, budget: float) -> Choice:
        """The most accurate affordable set for one item; an `InputError` where none is affordable."""
        return self.lookup.best(size, budget)

    def choose(self, sizes: Any, budgets: Any) -> Any:
        """The number of the best candidate for each of many items, see `Lookup.choose`."""
        return self.lookup.choose(sizes, budgets)

    def skyline(self, size: float) -> list[Choice]:
        """Every choice that some budget leads to at a size, by rising cost and accuracy."""
        size, _ = as_item(self.curves, size, 0.0)
        cost = evaluate(self.costs, size)
        # Among equally accurate ones of the same cost the last is preferred.
        order = np.lexsort((-np.arange(len(cost)), -self.accuracies, cost))
        risen = np.maximum.accumulate(self.accuracies[order])
        first = np.append(True, risen[1:] > risen[:-1]) & (cost[order] <= LARGEST)
        return [
            Choice(self.sets[number], float(self.accuracies[number]), float(cost[number]))
            for number in order[first].tolist()
        ]


def make_index(
    curves: CostCurves,
    expansions: Sequence[Expansion],
    *,
    alpha: float = 0.0,
    monotone_error: float = 0.0,
    guarantee: float = math.inf,
    observed_error: float = 0.0,
    diminishing_returns: bool = False,
    feature_names: Sequence[str] | None = None,
) -> BudgetIndex:
    """An index of sets that are expanded already."""
    names = curves.check_names(feature_names)
    candidates = find_candidates(curves, expansions)
    presence = find_presence(candidates, curves.low, curves.high)
    if (entries := count_entries(presence)) > MOST_ENTRIES:
        raise InputError(
            "over-limit",
            f"The index of {len(candidates.sets):,} candidates would have {entries:,} entries.",
            "Use a larger alpha, fewer features, or a narrower range of sizes.",
        )
    return BudgetIndex(
        curves=curves,
        feature_names=names,
        candidates=candidates,
        presence=presence,
        # What parts of the rows say is in the margins.
        expansions=tuple(one if one.noise is None else replace(one, noise=None) for one in expansions),
        alpha=alpha,
        monotone_error=monotone_error,
        guarantee=guarantee,
        observed_error=observed_error,
        margins=None
        if diminishing_returns
        else margins(expansions, candidates.sets, curves.n_features, guarantee, monotone_error),
    )
