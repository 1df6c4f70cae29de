"""The sets of features that can be an answer: what is left of the expanded ones when the dominated have gone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from protodask.budget.costs import CostCurves
from protodask.budget.expansions import Expansion, FeatureSet
from protodask.budget.polynomials import Floats


@dataclass(frozen=True, eq=False)
class Candidates:
    """`C` sets by rising accuracy; of equally accurate ones those with more features come first."""

    sets: tuple[FeatureSet, ...]
    accuracies: Floats
    """(C,)."""
    costs: Floats
    """(C, degree + 1): coefficients, constant first."""


def find_candidates(curves: CostCurves, expansions: Sequence[Expansion]) -> Candidates:
    """The expanded sets that are the answer at some size and budget, and perhaps some that never are."""
    known = {item.features: item.accuracy for item in expansions if item.accuracy is not None}
    sets = sorted(known, key=lambda features: (known[features], -len(features), [-f for f in sorted(features)]))
    return Candidates(tuple(sets), np.array([known[features] for features in sets]), curves.of_sets(sets))
