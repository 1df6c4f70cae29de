"""Greedy sequences: features in the order in which each trade-off of accuracy against cost would add them.

For a trade-off `lambda` (accuracy per unit of cost), from the empty set on, the next feature is the one of the largest

    gain(f) = (a_{s + f} - a_s) - lambda c_f(n0)

at one size `n0` of items, the median. `lambda = 0` looks at accuracy only and `lambda = inf` at cost only. The sets on
the way are recorded; at most `m (m + 1) / 2 + 1` sets are expanded for each trade-off, whatever the number of sets.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from os import PathLike
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from protodask.budget.costs import CostCurves
from protodask.budget.expanding import Expanding, OnEnd
from protodask.budget.expansions import Expand, Expansion, FeatureSet, require_models, warn_of_failures
from protodask.budget.greedy_index import GreedyIndex, Grown, index_sequences
from protodask.budget.lattice import Exploration, ExplorationProgress, Listen
from protodask.budget.noise import Estimate
from protodask.budget.recorded import expanded_with
from protodask.engine import EngineLike
from protodask.errors import InputError
from protodask.evaluation.interval import is_real
from protodask.prototypes.setting_checks import check_count

ACCURACY_ONLY = 0.0
COST_ONLY = math.inf
_NAMED: dict[object, float] = {"accuracy": ACCURACY_ONLY, "cost": COST_ONLY}

TradeOff = float | Literal["accuracy", "cost"]

FACTORS = (0.1, 0.3, 1.0, 3.0, 10.0)
"""Trade-offs tried by default, in units of (what all features add to accuracy) / (what they cost).

Below a tenth the cost of all features weighs less than a tenth of what they bring; above ten times, costs decide.
"""


def build_greedy(
    costs: ArrayLike,
    accuracy: Callable[[FeatureSet], float | Estimate],
    trade_offs: Sequence[TradeOff] | None = None,
    sizes: tuple[float, float] = (0.0, math.inf),
    *,
    size: float | None = None,
    most_fits: int | None = None,
    feature_names: Sequence[str] | None = None,
    engine: EngineLike = None,
    record: str | PathLike[str] | None = None,
    listen: OnEnd | None = None,
) -> GreedyIndex:
    """Greedy sequences from costs (features, degree + 1) and a function that says how accurate a set of features is.

    `size` is the median size of items, by default the middle of `sizes`, the smallest and the largest. The accuracies
    of several sets are asked for at a time where there is an `engine`, and kept in the file `record` as they come, from
    which an interrupted build goes on. Where `accuracy` raises, that set has no model; a `FailedExpansionWarning` says
    how often that was. For the rest see `make_greedy`.
    """
    curves = CostCurves.of(costs, sizes)
    size = middle_of(curves) if size is None else size
    names = curves.check_names(feature_names)
    with expanded_with(accuracy, names, engine, record) as expand:
        index = make_greedy(
            curves, expand, trade_offs, size=size, most_fits=most_fits, feature_names=names, listen=listen
        )
    if not any(index.sets):
        require_models(index.failures)
    warn_of_failures(index.failures, index.expanded, stacklevel=2)
    return index


def middle_of(curves: CostCurves) -> float:
    """The size that sequences are made for where nobody says the median; any one where no cost depends on it."""
    if math.isfinite(curves.high):
        return (curves.low + curves.high) / 2
    if curves.coefficients[:, 1:].any():
        raise InputError(
            "setting-missing",
            "The largest size of items is unknown, and no median size is given.",
            "Say the smallest and the largest of `sizes`, or give the median as `size`.",
        )
    return curves.low


def make_greedy(
    curves: CostCurves,
    expand: Expand,
    trade_offs: Sequence[TradeOff] | None = None,
    *,
    size: float,
    most_fits: int | None = None,
    feature_names: Sequence[str] | None = None,
    listen: OnEnd | None = None,
) -> GreedyIndex:
    """Greedy sequences at the `size` of an item, the median of those to come, and the look-up over them.

    `trade_offs` are numbers of accuracy per unit of cost, "accuracy" for 0 and "cost" for infinity; by default both of
    these and five between them that suit the data, see `FACTORS`. All sequences grow together, and what a step of all
    of them needs is one call of `expand`. A set is expanded once. Where an expansion fails, the feature is not added at
    this step and is tried again at the next; a sequence ends when nothing can be added. Cost only needs no accuracy to
    choose, so it goes on past a set that failed, which then has no model. With `most_fits`, a sequence ends where its
    next step would take more fits than are left.
    """
    names = curves.check_names(feature_names)
    known = Expanding(expand, listen)
    growing = _grow(curves, known, trade_offs, size, most_fits)
    return index_sequences(
        curves,
        size,
        [one.grown(known) for one in growing],
        expanded=len(known.found),
        failures=[expansion for expansion in known.found.values() if expansion.accuracy is None],
        feature_names=names,
    )


def explore_greedily(
    curves: CostCurves,
    expand: Expand,
    trade_offs: Sequence[TradeOff] | None = None,
    *,
    size: float,
    most_fits: int | None = None,
    listen: Listen | None = None,
) -> Exploration:
    """All sets that greedy sequences expand on their way, those that were passed over as well: for an index.

    An index of them answers any size and budget with the best of these sets, where a sequence answers with its own.
    Nothing is guaranteed of sets that were not expanded.
    """

    def told(_: Expansion) -> None:
        if listen is not None:
            listen(ExplorationProgress(known.expanded, known.failed, 0, math.inf))

    known = Expanding(expand, told)
    _grow(curves, known, trade_offs, size, most_fits)
    return Exploration(tuple(known.found.values()), math.inf, 0.0, alpha=0.0, monotone_error=0.0)


def _grow(
    curves: CostCurves,
    known: Expanding,
    trade_offs: Sequence[TradeOff] | None,
    size: float,
    most_fits: int | None,
) -> list[_Growing]:
    if not (is_real(size) and math.isfinite(size) and curves.low <= size <= curves.high):
        raise InputError(
            "bad-setting",
            f"The size that greedy sequences are made for is {size!r}.",
            f"Give a number from {curves.low:.15g} to {curves.high:.15g}, such as the median size of the items.",
        )
    given, most = checked_sequences(trade_offs, most_fits)
    prices = [curves.at(frozenset([feature]), size) for feature in range(curves.n_features)]
    known.ask([frozenset()])
    growing = [_Growing(trade_off, prices) for trade_off in given or _default_trade_offs(known, prices, most)]
    while steps := [one for one in growing if one.left]:
        wanted = [one.wanted() for one in steps]
        for one, answered in zip(steps, _afford(known, wanted, most), strict=True):
            one.step(known, answered)
    return growing


def checked_sequences(trade_offs: Any, most_fits: Any) -> tuple[list[float] | None, float]:
    """Trade-offs as ascending numbers, and the most fits there may be; refused where they make no sense."""
    most = most_fits.item() if isinstance(most_fits, np.generic) else most_fits
    if most is not None:
        check_count("most_fits", most, 1)
    return None if trade_offs is None else _numbers(trade_offs), math.inf if most is None else most


def _numbers(trade_offs: Any) -> list[float]:
    given = list(trade_offs) if np.iterable(trade_offs) and not isinstance(trade_offs, str) else []
    if not given:
        raise InputError(
            "bad-setting",
            f"The trade-offs are {trade_offs!r}.",
            'Give a list with at least one, such as ["accuracy", 0.1, "cost"].',
        )
    found: list[float] = []
    for trade_off in given:
        try:
            found.append(_NAMED[trade_off] if trade_off in _NAMED else float(trade_off))
        except (TypeError, ValueError):
            found.append(math.nan)
        if not found[-1] >= 0:
            raise InputError(
                "bad-setting",
                f"A trade-off is {trade_off!r}.",
                'Give accuracy per unit of cost as a number of 0 or more, "accuracy" or "cost".',
            )
    return sorted(set(found))


def _default_trade_offs(known: Expanding, prices: Sequence[float], most_fits: float) -> list[float]:
    """Cost only, accuracy only, and between them what suits the data; costs no fit that the sequences do not need."""
    features = range(len(prices))
    singles: list[FeatureSet] = [frozenset([feature]) for feature in features]
    whole: FeatureSet = frozenset(features)
    _afford(known, [[whole], singles], most_fits)
    empty, total = known.accuracy(frozenset()), math.fsum(prices)
    best = [known.accuracy(features) for features in (whole, *singles)]
    rises = [accuracy - empty for accuracy in best if accuracy is not None and empty is not None]
    # All features together, unless they failed or do worse than one of them alone.
    rise = max(rises, default=0.0)
    if not (rise > 0 and 0 < total < math.inf):
        return [ACCURACY_ONLY, COST_ONLY]
    return [ACCURACY_ONLY, *(factor * rise / total for factor in FACTORS), COST_ONLY]


def _afford(known: Expanding, wanted: Iterable[Sequence[FeatureSet]], most_fits: float) -> list[bool]:
    """Expand lists of sets, at once; for each list whether it could be afforded, in the order given."""
    missing: dict[FeatureSet, None] = {}
    answered: list[bool] = []
    for sets in wanted:
        more = missing | dict.fromkeys(features for features in sets if features not in known.found)
        answered.append(len(known.found) + len(more) <= most_fits)
        if answered[-1]:
            missing = more
    known.ask(missing)
    return answered


class _Growing:
    """The sequence of one trade-off, as far as it has come."""

    def __init__(self, trade_off: float, prices: Sequence[float]) -> None:
        self.trade_off = trade_off
        self.order: list[int] = []
        self._prices = prices
        # Cheapest first, so that of equal gains the cheaper feature wins, and then the one of the lower number.
        self.left = sorted(range(len(prices)), key=lambda feature: (prices[feature], feature))

    def wanted(self) -> list[FeatureSet]:
        """The sets that the next step chooses from."""
        features = self.left[:1] if self.trade_off == COST_ONLY else self.left
        return [frozenset([*self.order, feature]) for feature in features]

    def step(self, known: Expanding, answered: bool) -> None:
        """Add the next feature, or end."""
        if not answered:
            self.left = []
            return
        if self.trade_off == COST_ONLY:
            self.order.append(self.left.pop(0))
            return
        # What the gains of a step have in common, the accuracy of the set so far, does not change their order.
        gains = [
            -math.inf if accuracy is None else accuracy - self.trade_off * self._prices[feature]
            for feature, accuracy in zip(self.left, map(known.accuracy, self.wanted()), strict=True)
        ]
        best = max(range(len(gains)), key=gains.__getitem__)
        if gains[best] == -math.inf:
            self.left = []
            return
        self.order.append(self.left.pop(best))

    def grown(self, known: Expanding) -> Grown:
        prefixes = [frozenset(self.order[:length]) for length in range(len(self.order) + 1)]
        return self.trade_off, self.order, [known.accuracy(features) for features in prefixes]
