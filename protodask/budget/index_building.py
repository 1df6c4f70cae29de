"""From costs and a black box that says how accurate a set of features is, to an index of the sets worth choosing."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Literal, get_args

from numpy.typing import ArrayLike

from protodask.budget.costs import CostCurves
from protodask.budget.expansions import Expand, FeatureSet, require_models, warn_of_failures
from protodask.budget.greedy import TradeOff, explore_greedily, middle_of
from protodask.budget.index import BudgetIndex, make_index
from protodask.budget.lattice import MOST_FEATURES, Exploration, Listen, explore
from protodask.budget.noise import Estimate
from protodask.budget.recorded import expanded_with
from protodask.engine import EngineLike
from protodask.errors import InputError

Search = Literal["all", "greedy"]
"""Which sets of features are expanded."""


def search_of(search: Search | None, n_features: int) -> Search:
    """The search that was asked for, or that so many features allow."""
    if search is None:
        return "all" if n_features <= MOST_FEATURES else "greedy"
    if search not in get_args(Search):
        raise InputError("unknown-name", f"search is {search!r}.", 'Choose "all" or "greedy".')
    return search


def check_greedy(alpha: float, monotone_error: float, diminishing_returns: bool) -> None:
    """Refuse what greedy search cannot mind."""
    promised = {"alpha": alpha, "monotone_error": monotone_error, "diminishing_returns": diminishing_returns}
    if given := [name for name, value in promised.items() if value]:
        raise InputError(
            "settings-conflict",
            f"{given[0]} is given, and greedy search guarantees nothing by it.",
            "Leave it out, or search all sets, which up to 22 features can be had.",
        )


@dataclass(frozen=True)
class SearchSettings:
    """Which sets are expanded: what `build_index` says of these."""

    search: Search | None = None
    alpha: float = 0.0
    monotone_error: float = 0.0
    diminishing_returns: bool = False
    most_fits: int | None = None
    size: float | None = None
    trade_offs: Sequence[TradeOff] | None = None
    """Of a greedy search; None chooses them."""
    minds_costs: bool = True
    """Whether a search of all sets looks at costs, too, and not at accuracies alone."""


class MonotonicityWarning(UserWarning):
    """Features that were added lowered the accuracy by more than was assumed, so that the guarantee does not hold."""


def build_index(
    costs: ArrayLike,
    accuracy: Callable[[FeatureSet], float | Estimate],
    alpha: float = 0.0,
    monotone_error: float = 0.0,
    sizes: tuple[float, float] = (0.0, math.inf),
    *,
    diminishing_returns: bool = False,
    most_fits: int | None = None,
    search: Search | None = None,
    size: float | None = None,
    feature_names: Sequence[str] | None = None,
    engine: EngineLike = None,
    record: str | PathLike[str] | None = None,
    listen: Listen | None = None,
) -> BudgetIndex:
    """Explore the sets of features, and index those that can be an answer.

    `costs` are (features, degree + 1) coefficients of the cost of each feature as a polynomial of an item's size,
    constant first, and add up within a set; `sizes` are the smallest and the largest that items have. `accuracy` gives
    the accuracy of a model on a set of columns, of the empty one too. Where it raises, that set has no model; a
    `FailedExpansionWarning` says how often that was.

    No set is more than `alpha` more accurate than the choice at the same budget if adding features to a set lowers its
    accuracy by no more than `monotone_error`; what contradicts that is a `MonotonicityWarning`. `explore` says what
    `diminishing_returns` and `most_fits` mean, and what `listen` hears. That is about accuracies as they are given; if
    `accuracy` says of which rows it is right, by an `Estimate.of_rows`, the index's `margin` is what their noise adds.

    `search` says which sets are expanded: "all" that may be needed for that, which up to 22 features can be had, or
    "greedy", those that greedy sequences come by, of whatever number of features (`make_greedy`; at the median `size`
    of items, by default the middle of `sizes`). By default it is "all" where that is possible. Greedily found sets are
    mostly as good at a fraction of the fits, and nothing is guaranteed: `guarantee` is infinite.

    Without an engine one set is expanded after the other in this thread, with one several at once. With a `record`, a
    file, an interrupted build goes on where it was; it must be the same `accuracy` then, while costs and sizes may
    differ.
    """
    curves = CostCurves.of(costs, sizes)
    names = curves.check_names(feature_names)
    settings = SearchSettings(search, alpha, monotone_error, diminishing_returns, most_fits, size)
    with expanded_with(accuracy, names, engine, record) as expand:
        found = search_sets(curves, expand, settings, listen)
    index = index_exploration(curves, found, names)
    warn_of_failures(index.failures, index.expanded, stacklevel=2)
    warn_of_assumption(index, stacklevel=2)
    return index


def search_sets(
    curves: CostCurves, expand: Expand, settings: SearchSettings, listen: Listen | None = None
) -> Exploration:
    """Expand sets as `build_index` says."""
    if search_of(settings.search, curves.n_features) == "greedy":
        check_greedy(settings.alpha, settings.monotone_error, settings.diminishing_returns)
        return explore_greedily(
            curves,
            expand,
            settings.trade_offs,
            size=middle_of(curves) if settings.size is None else settings.size,
            most_fits=settings.most_fits,
            listen=listen,
        )
    return explore(
        curves.n_features,
        expand,
        costs=curves if settings.minds_costs else None,
        alpha=settings.alpha,
        monotone_error=settings.monotone_error,
        diminishing_returns=settings.diminishing_returns,
        most_fits=settings.most_fits,
        listen=listen,
    )


def index_exploration(
    curves: CostCurves, exploration: Exploration, feature_names: Sequence[str] | None = None
) -> BudgetIndex:
    """An index of what was explored."""
    require_models(exploration.expansions)
    return make_index(curves, feature_names=feature_names, **vars(exploration))


def warn_of_assumption(index: BudgetIndex, stacklevel: int) -> None:
    """A `MonotonicityWarning` where accuracies contradict `monotone_error`; the level is that of the caller."""
    if not index.guaranteed:
        warnings.warn(
            f"Adding features lowered the accuracy of a set by {index.observed_error:.6g}, and `monotone_error` is "
            f"{index.monotone_error:.6g}: better sets may have been passed over. Build again with "
            f"monotone_error={_rounded_up(index.observed_error)!r} or more, unless such a loss does not matter.",
            MonotonicityWarning,
            stacklevel=stacklevel + 1,
        )


def _rounded_up(value: float) -> float:
    """To three digits, so that it is no less than what was observed."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 2)
    return float(f"{math.ceil(value / unit) * unit:.3g}")
