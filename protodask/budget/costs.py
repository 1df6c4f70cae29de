"""What features cost: a polynomial of the size of an item for each, and for a set of features the sum of theirs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from protodask.budget.expansions import FeatureSet
from protodask.budget.polynomials import Floats, evaluate
from protodask.errors import InputError


@dataclass(frozen=True)
class CostCurves:
    """Costs `c_f(n) = sum_k c_fk n^k` of `m` features on items of sizes `low <= n <= high`, in the unit of a budget."""

    coefficients: Floats
    """(m, degree + 1), the constants first."""
    low: float
    high: float

    @staticmethod
    def of(costs: ArrayLike, sizes: tuple[float, float] = (0.0, math.inf)) -> CostCurves:
        """Checked: no feature may have a negative cost at any size, since a set must not cost less than its parts."""
        coefficients = np.array(costs, dtype=np.float64)
        if coefficients.ndim != 2 or 0 in coefficients.shape:
            raise InputError(
                f"The costs have the shape {coefficients.shape}.",
                "Give a row of coefficients for each feature, constant first: (features, degree + 1).",
            )
        if not np.isfinite(coefficients).all():
            raise InputError("A cost has a coefficient that is not a finite number.", "Give numbers.")
        low, high = map(float, sizes)
        if not 0 <= low <= high or math.isinf(low):
            raise InputError(
                f"The sizes of items range from {low:g} to {high:g}.", "Give a smallest and a largest size, 0 or more."
            )
        return CostCurves(coefficients, low, high)

    @property
    def n_features(self) -> int:
        return len(self.coefficients)

    def of_set(self, features: FeatureSet) -> Floats:
        """The coefficients of a set's cost, (degree + 1,): those of its features, added in ascending order."""
        return np.asarray(self.coefficients[sorted(features)].sum(axis=0))

    def of_sets(self, sets: Sequence[FeatureSet]) -> Floats:
        """(sets, degree + 1)."""
        if not sets:
            return np.zeros((0, self.coefficients.shape[1]))
        return np.stack([self.of_set(features) for features in sets])

    def at(self, features: FeatureSet, size: float) -> float:
        """What a set costs on an item of a size."""
        return float(evaluate(self.of_set(features), size))
