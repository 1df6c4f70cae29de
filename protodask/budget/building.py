"""From costs and a black box that says how accurate a set of features is, to an index of the sets worth choosing."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from os import PathLike

from numpy.typing import ArrayLike

from protodask.budget.costs import CostCurves
from protodask.budget.expansions import FeatureSet
from protodask.budget.index import BudgetIndex, make_index
from protodask.engine import EngineLike
def build_index(
    costs: ArrayLike,
    accuracy: Callable[[FeatureSet], float],
    alpha: float = 0.0,
    monotone_error: float = 0.0,
    sizes: tuple[float, float] = (0.0, math.inf),
    *,
    most_fits: int | None = None,
    feature_names: Sequence[str] | None = None,
    engine: EngineLike = None,
    record: str | PathLike[str] | None = None,
    listen: Callable[[Expansion], None] | None = None,
) -> BudgetIndex:
    """Explore the sets of features and index those that can be an answer.

    `costs` are (features, degree + 1) coefficients of the cost of each feature as a polynomial of an item's size,
    constant first; `accuracy` gives the accuracy of a model on a set of columns; `sizes` are the smallest and the
    largest that items have. The accuracy of a choice is at most `alpha` below that of any set that the budget allows,
    where adding features to a set lowers its accuracy by no more than `monotone_error`.
    """
    from protodask.budget.expanding import expander
    from protodask.budget.lattice import explore
    from protodask.budget.recorded import recorded

    curves = CostCurves.of(costs, sizes)
    expand = expander(accuracy, engine)
    if record is not None:
        expand = recorded(expand, record, "budget")
    found: Any = explore(
        curves.n_features, expand, alpha=alpha, monotone_error=monotone_error, most_fits=most_fits, listen=listen
    )
    return make_index(
        curves,
        found.expansions,
        alpha=alpha,
        monotone_error=monotone_error,
        guarantee=found.guarantee,
        observed_error=found.observed_error,
        feature_names=feature_names,
    )
