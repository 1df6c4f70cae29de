"""What features cost: a polynomial of the size of an item for each, and for a set of features the sum of theirs."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from protodask.budget.expansions import FeatureSet
from protodask.budget.polynomials import evaluate, first_range_below, position, position_after
from protodask.engine.records import Floats
from protodask.errors import InputError, count, refusing

LARGEST_COEFFICIENT = 1e200
"""Sums and derivatives of costs stay within the range of floats."""

MOST_COEFFICIENTS = 100
"""Of a cost: the crossings of costs are found by way of those of all their derivatives."""

ROUNDING = 1e-14
"""What a computed cost may be off, as a share of the sum of its terms: so many roundings has no sensible degree."""


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
        with refusing(
            (TypeError, ValueError),
            "wrong-type",
            "The costs are no table of numbers",
            "Give a row of coefficients for each feature, constant first, all rows of the same length.",
        ):
            coefficients = np.array(costs, dtype=np.float64)
        if coefficients.ndim != 2 or 0 in coefficients.shape:
            raise InputError(
                "wrong-shape",
                f"The costs have the shape {coefficients.shape}.",
                "Give a row of coefficients for each feature, constant first: (features, degree + 1).",
            )
        if not np.isfinite(coefficients).all():
            raise InputError("bad-value", "A cost has a coefficient that is not a finite number.", "Give numbers.")
        if coefficients.shape[1] > MOST_COEFFICIENTS:
            raise InputError(
                "over-limit",
                f"A cost has {coefficients.shape[1]} coefficients.",
                f"Give at most {MOST_COEFFICIENTS}; the fewest that describe the costs serve best.",
            )
        kinds, remedy = (TypeError, ValueError, OverflowError), "Give two numbers: (smallest, largest)."
        with refusing(kinds, "bad-setting", f"The sizes of items are {sizes!r}", remedy):
            low, high = map(float, sizes)
        if not 0 <= low <= high or math.isinf(low):
            raise InputError(
                "bad-setting",
                f"The sizes of items range from {low:.15g} to {high:.15g}.",
                "Give a smallest and a largest size, 0 or more.",
            )
        largest = float(np.abs(coefficients).max())
        if largest > LARGEST_COEFFICIENT:
            raise InputError(
                "overflow", f"A cost has the coefficient {largest:g}.", "Use a larger unit for costs or for sizes."
            )
        curves = CostCurves(coefficients, abs(low), high)
        curves._check_signs()
        return curves

    def _check_signs(self) -> None:
        start, end = position(self.low), position_after(self.high)
        for feature, cost in enumerate(self.coefficients):
            # Where a cost touches zero it may be computed to be less, by a rounding.
            found = first_range_below(cost + ROUNDING * np.abs(cost), start, end)
            if found is not None:
                upward = "up" if found[1] == sys.float_info.max else f"to {found[1]:.6g}"
                raise InputError(
                    "bad-value",
                    f"The cost of feature {feature} is negative for items of sizes from {found[0]:.6g} {upward}.",
                    "Give costs that are 0 or more for all items, or the sizes from which to which items really are.",
                )

    def check_names(self, feature_names: Sequence[str] | None) -> tuple[str, ...]:
        """The names of the features, by default their numbers; there must be one for each."""
        if feature_names is None:
            return tuple(map(str, range(self.n_features)))
        names = tuple(map(str, feature_names))
        if len(names) != self.n_features or len(set(names)) != len(names):
            raise InputError(
                "wrong-shape" if len(names) != self.n_features else "named-twice",
                f"{count(len(set(names)), 'different name is', 'different names are')} given for "
                f"{count(self.n_features, 'feature')}.",
                "Give each feature a name of its own.",
            )
        return names

    @property
    def n_features(self) -> int:
        return len(self.coefficients)

    def of_set(self, features: FeatureSet) -> Floats:
        """The coefficients of a set's cost, (degree + 1,): those of its features, added in ascending order."""
        if not features:
            return np.zeros(self.coefficients.shape[1])
        # sum(axis=0) would add a single column pairwise.
        return np.asarray(np.add.accumulate(self.coefficients[sorted(features)], axis=0)[-1])

    def of_sets(self, sets: Sequence[FeatureSet]) -> Floats:
        """(sets, degree + 1)."""
        if not sets:
            return np.zeros((0, self.coefficients.shape[1]))
        return np.stack([self.of_set(features) for features in sets])

    def at(self, features: FeatureSet, size: float) -> float:
        """What a set costs on an item of a size."""
        return float(evaluate(self.of_set(features), size))


def padded(rows: Sequence[Sequence[float] | Floats]) -> Floats:
    """Rows of coefficients, constant first, as a table: powers that a row has not are 0."""
    table = np.zeros((len(rows), max(map(len, rows))))
    for number, row in enumerate(rows):
        table[number, : len(row)] = row
    return table
