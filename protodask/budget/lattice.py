"""Which sets of features are expanded: a search through the lattice of subsets from both of its ends.

Accuracy is taken to be monotone within `e`: `a_r <= a_s + e` wherever `r` is a part of `s`. Of every set `s`

    low(s)  = max of a_r over expanded parts r of s          (such an r costs no more than s)
    high(s) = min of a_t over expanded t around s, plus e    (a_s is no more than that)
    gap(s)  = high(s) - low(s)

and a set is *settled*, sandwiched between an `r` and a `t`, when `gap(s) <= alpha`: in its place an expanded part of it
serves that costs no more and is at most `alpha` less accurate. The bounds of all `2^m` sets are kept, so that none is
overlooked, and what is expanded was not settled before. Where costs are known, `low` is over all expanded sets that
cost no more than `s` at every size, be they parts of it or not.

A smaller alpha does not always expand all that a larger one does: what it expands besides may settle sets that the
larger one had to expand. What holds is that nothing is expanded twice: as alpha falls within one search, or in another
one with the same record, all that is known is used again.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from protodask.budget.bounds import ROUNDING, Bounds, CostOrder, Masks
from protodask.budget.costs import CostCurves
from protodask.budget.expanding import Expanding
from protodask.budget.expansions import Expand, Expansion, require_models
from protodask.errors import InputError, count
from protodask.prototypes.setting_checks import check_count, check_range

MOST_FEATURES = 22
"""Measured on one busy core: with 20 features 60 MB and 0.06 s a layer, which is one round of fits, with 22 features
240 MB and 0.4 s. Diminishing returns make that 1.1 s and 5 s; where costs are known 22 take 480 MB and 0.5 s a set.
"""

FALL = 0.75
"""What the alpha aimed at falls to within a budget of fits, as a share of the largest gap.

With 160 fits, for accuracies of 10 features drawn at random and closed under maxima, the guarantee reached is 0.73 when
the final alpha is aimed at at once, 0.33 with a share of 1/4, 0.26 with 1/2, 0.18 with 0.7 and 0.16 with 0.9, which
makes smaller layers.
"""

MOST_VAIN_TRIES = 200
"""Expansions that fail, with none that does not but the empty set, before an exploration gives up."""


@dataclass(frozen=True)
class ExplorationProgress:
    """How far an exploration is."""

    expanded: int
    failed: int
    waiting: int
    """Sets of the layer in hand that have not ended."""
    guarantee: float
    """What was reached before this layer."""


@dataclass(frozen=True)
class Exploration:
    """What was expanded, and what can be said of the sets that were not."""

    expansions: tuple[Expansion, ...]
    """In the order in which they were asked for, failed ones among them."""
    guarantee: float
    """The alpha that is reached: for every set that did not fail one is expanded that costs no more and is at most so
    much less accurate. Infinite where so few could be expanded that nothing is known of some set.
    """
    observed_error: float
    """The largest `a_r - a_s` of expanded `r` and `s`, `r` a part of `s`; 0 where there is none above it.

    With diminishing returns also the most by which a feature was seen to add more to a set than to a part of it. Where
    only all accuracies together contradict these, more than `monotone_error` by what one is above its bound.
    """
    alpha: float
    monotone_error: float
    diminishing_returns: bool = False


Listen = Callable[[ExplorationProgress], None]


def explore(
    n_features: int,
    expand: Expand,
    *,
    costs: CostCurves | None = None,
    alpha: float = 0.0,
    monotone_error: float = 0.0,
    diminishing_returns: bool = False,
    most_fits: int | None = None,
    listen: Listen | None = None,
) -> Exploration:
    """Expand sets until every other one has an expanded part that is at most `alpha` less accurate.

    With `costs` not only a part but any set serves that costs no more at every size between theirs: that often halves
    what is expanded, and what is expanded is then worth less where costs turn out to be others.

    `monotone_error` is the `e` by which a part may be more accurate than the whole. `diminishing_returns` says that,
    within `e`, a feature never adds more to a set than to a part of it, and saves expansions where that is so; it is
    not so for features that are of use only together.

    With `most_fits` expansions at most, failed and recorded ones included, the alpha aimed at falls step by step until
    it is `alpha`; `guarantee` is what was reached.
    """
    n_features, alpha, error, left = check_exploration(n_features, alpha, monotone_error, most_fits)
    if costs is not None and costs.n_features != n_features:
        raise InputError(
            "wrong-shape",
            f"Costs of {costs.n_features} are given for {count(n_features, 'feature')}.",
            "Give the costs of each feature.",
        )
    order = None if costs is None else CostOrder(costs)
    search = _Search(n_features, Bounds(n_features, error, diminishing_returns, order), order, expand, listen)
    layer = np.array([0, search.n_sets - 1])
    level = alpha if most_fits is None else math.inf
    while len(layer) and left > 0:
        layer = layer[: min(left, len(layer))]
        search.expand(layer)
        left -= len(layer)
        level = _next_level(search.largest_gap, level, alpha)
        layer = search.next_layer(level)
        if left < len(layer):
            layer = search.widest(layer)
    guarantee = search.largest_gap
    return Exploration(
        tuple(search.expanding.found.values()),
        min(guarantee, alpha) if guarantee <= alpha + ROUNDING else guarantee,
        search.bounds.observed_error(),
        alpha,
        error,
        diminishing_returns,
    )


def _next_level(largest: float, level: float, alpha: float) -> float:
    """The alpha to aim at next: lower, once the one before is reached."""
    if level == alpha or largest > level + ROUNDING:
        return level
    lower = FALL * largest
    return lower if alpha < lower < largest - ROUNDING else alpha


class _Search:
    """What was tried so far, and what there is left to try."""

    def __init__(
        self, n_features: int, bounds: Bounds, order: CostOrder | None, expand: Expand, listen: Listen | None
    ) -> None:
        self.bounds = bounds
        self._order = order
        self.n_sets = 1 << n_features
        self.expanding = Expanding(expand, lambda _: self._tell(self.expanding.waiting))
        self._listen = listen
        self._sizes = np.bitwise_count(np.arange(self.n_sets, dtype=np.uint32))
        self._tried = np.zeros(self.n_sets, dtype=np.bool_)
        self._gaps = np.full(self.n_sets, np.inf)

    @property
    def largest_gap(self) -> float:
        """Of the sets that were not tried; 0 where there is none."""
        return float(np.max(self._gaps, initial=0.0))

    def next_layer(self, level: float) -> Masks:
        """The unsettled sets of the lowest layer that has any or of the highest, whichever has fewer.

        Sets of one layer cannot settle each other, so that they are expanded together. Where costs are known they can,
        the cheaper one the other: then those that none of them is cheaper than.
        """
        unsettled = np.flatnonzero(self._gaps > min(level + ROUNDING, sys.float_info.max))
        if not len(unsettled):
            return unsettled
        if self._order is not None:
            # A union of sets that wait bounds all of them, though it may be too dear to be of use itself: expanded it
            # saves more than it takes, as 19 sets against 47 for 15 features, of which the best one counts.
            union = np.bitwise_or.reduce(unsettled)
            if not self._tried[union]:
                return np.array([union])
        # Expanded at alpha 0.01: median of the study's workload, 10 features by their 1 and 2 best, then 15; mean of 10
        # features by their 3 best, of sums that saturate, and of draws closed under maxima.
        #     the end with fewer sets   18   79    28   146   217  282  478
        #     both ends in turn         74  128   932  1182   183  280  500
        #     both ends at once         90  175   946  1274   252  322  573
        # Parts of a layer at a time, or sets in the middle, need no fewer.
        sizes = self._sizes[unsettled]
        lowest, highest = unsettled[sizes == sizes.min()], unsettled[sizes == sizes.max()]
        layer = np.asarray(lowest if len(lowest) <= len(highest) else highest)
        return layer if self._order is None else self._order.cheapest(layer)

    def widest(self, layer: Masks) -> Masks:
        """The same sets, those of the largest gaps first."""
        return np.asarray(layer[np.argsort(-self._gaps[layer], kind="stable")])

    def expand(self, layer: Masks) -> None:
        """Try some sets, and draw conclusions from how accurate they are."""
        sets = [
            frozenset(feature for feature in range(mask.bit_length()) if mask >> feature & 1) for mask in layer.tolist()
        ]
        self._tell(len(sets))
        self.expanding.ask(sets)
        accuracy = np.array([self.expanding.accuracy(features) for features in sets], dtype=np.float64)
        known = ~np.isnan(accuracy)  # what failed has no accuracy
        self._tried[layer] = True
        if known.any():
            self.bounds.learn(layer[known], accuracy[known])
            self._gaps = self.bounds.gaps()
        elif self.expanding.failed >= MOST_VAIN_TRIES:
            require_models(list(self.expanding.found.values()))
        self._gaps[self._tried] = -np.inf

    def _tell(self, waiting: int) -> None:
        if self._listen is not None:
            ended = self.expanding
            self._listen(ExplorationProgress(ended.expanded, ended.failed, waiting, self.largest_gap))


def check_exploration(
    n_features: Any, alpha: Any, monotone_error: Any, most_fits: Any
) -> tuple[int, float, float, int]:
    """What `explore` is asked for, as plain numbers; refused where it cannot be done."""
    n_features, alpha, monotone_error, most_fits = (
        value.item() if isinstance(value, np.generic) else value
        for value in (n_features, alpha, monotone_error, sys.maxsize if most_fits is None else most_fits)
    )
    check_count("The number of features", n_features, 1)
    if n_features > MOST_FEATURES:
        raise InputError(
            "over-limit",
            f"{n_features} features have 2^{n_features} sets, and at most {MOST_FEATURES} features can be explored.",
            "Group features that are computed together, choose some of them first, or use greedy sequences.",
        )
    for name, value in (("alpha", alpha), ("monotone_error", monotone_error)):
        check_range(name, value, 0.0, sys.float_info.max, "Give a difference of accuracies, a number from 0 up.")
    check_count("`most_fits`, the number of expansions there is time for,", most_fits, 1)
    return n_features, float(alpha), float(monotone_error), most_fits
