"""The poly-dom index: for an item's size and a budget, the most accurate set of features that the budget allows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from protodask.budget.candidates import Candidates, find_candidates
from protodask.budget.costs import CostCurves
from protodask.budget.expansions import Choice, Expansion, FeatureSet
from protodask.budget.polynomials import Floats, evaluate
from protodask.engine import EngineLike
from protodask.errors import InputError


@dataclass(frozen=True, eq=False)
class BudgetIndex:
    """Look-ups of the most accurate candidate that costs no more than a budget at the size of an item."""

    curves: CostCurves
    feature_names: tuple[str, ...]
    candidates: Candidates
    expansions: tuple[Expansion, ...]
    alpha: float
    monotone_error: float
    guarantee: float
    """No set at all is more than this more accurate than the choice at the same cost; infinite where nothing is known."""
    observed_error: float
    """The largest fall in accuracy that was seen where features were added to a set."""

    @property
    def sets(self) -> tuple[FeatureSet, ...]:
        """The candidates, by rising accuracy: `choose` gives numbers of these."""
        return self.candidates.sets

    @property
    def accuracies(self) -> Floats:
        return self.candidates.accuracies

    @property
    def costs(self) -> Floats:
        return self.candidates.costs

    @property
    def expanded(self) -> int:
        """How many sets were expanded: fits of a model."""
        return len(self.expansions)

    @property
    def failures(self) -> tuple[Expansion, ...]:
        return tuple(item for item in self.expansions if item.accuracy is None)

    @property
    def n_entries(self) -> int:
        """The size of the index: candidates, once for every range of sizes in which they are listed."""
        return len(self.sets)

    def best(self, size: float, budget: float) -> Choice:
        """The most accurate affordable set; of equally accurate ones the cheapest at this size."""
        number = int(self.choose([size], [budget])[0])
        if number < 0:
            least = float(evaluate(self.costs, size).min())
            raise InputError(
                f"No set of features costs as little as {budget:g} on an item of size {size:g}.",
                f"Give a budget of {least!r} or more.",
            )
        return self._choice(number, size)

    def choose(self, sizes: ArrayLike, budgets: ArrayLike) -> NDArray[np.int64]:
        """The number of the best candidate for each item, -1 where none is affordable."""
        n, budget = np.broadcast_arrays(np.asarray(sizes, dtype=np.float64), np.asarray(budgets, dtype=np.float64))
        cost = evaluate(self.costs, n.reshape(-1)[:, None])
        affordable = cost <= budget.reshape(-1)[:, None]
        accuracy = np.where(affordable, self.accuracies, -np.inf)
        best = affordable & (accuracy == accuracy.max(axis=1, keepdims=True))
        cheapest = np.where(best, cost, np.inf)
        last = len(self.sets) - 1 - np.argmin(cheapest[:, ::-1], axis=1)
        return np.where(affordable.any(axis=1), last, -1).reshape(n.shape)

    def skyline(self, size: float) -> list[Choice]:
        """Every choice that some budget leads to at a size, by rising cost and accuracy."""
        found: list[Choice] = []
        for number in np.lexsort((-self.accuracies, evaluate(self.costs, size))).tolist():
            if not found or self.accuracies[number] > found[-1].accuracy:
                found.append(self._choice(number, size))
        return found

    def _choice(self, number: int, size: float) -> Choice:
        return Choice(
            self.sets[number], float(self.accuracies[number]), float(evaluate(self.costs[number], float(size)))
        )


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
    names = tuple(feature_names) if feature_names is not None else tuple(map(str, range(curves.n_features)))
    if len(names) != curves.n_features:
        raise InputError(
            f"There are {len(names)} names for {curves.n_features} features.", "Give a name for each feature."
        )
    if all(item.accuracy is None for item in expansions):
        raise InputError("There is no set of features with a model.", "Give at least one expansion that succeeded.")
    return BudgetIndex(
        curves=curves,
        feature_names=names,
        candidates=find_candidates(curves, expansions),
        expansions=tuple(expansions),
        alpha=alpha,
        monotone_error=monotone_error,
        guarantee=guarantee,
        observed_error=observed_error,
    )


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
