"""What a plane says of uncertain points: how likely one is on the other side, at most.

With `mu` what is left of the margin at the worst means, a formulation that knows the support takes the least of two
bounds, Chernoff's (`chernoff`) and Chebyshev's one-sided inequality, of the largest standard deviations `r` that agree
with what is known:

    Prob(y (w.X - b) <= 0)  <=  1 / (1 + kappa^2),    kappa = mu / |r |w||

MC takes the second alone. It is 0 where all that is possible lies on one side, for S otherwise 1.

`N` points, `D` features.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protodask.engine.records import Floats
from protodask.robust.brackets import worst_means
from protodask.robust.chernoff import Scaled, log_bounds, scaled
from protodask.robust.formulations import known_to, named, unit_terms
from protodask.robust.terms import Terms
from protodask.robust.uncertain_rows import UncertainRows

BOUNDS = ("nothing", "the support", "Chernoff's bound", "Chebyshev's inequality")
"""What the least bound of a row may be by."""


LEAST = float(np.finfo(np.float64).tiny)
"""Bounds that are not 0 are no less, however small."""

ROUNDINGS = 4
"""Of each feature's share in a margin, in units of the last place."""


def lost_digits(terms: Terms, weights: Floats, intercept: float) -> Floats:
    """How far margins (N,) may be off by what their sums lose."""
    sizes = np.maximum(np.abs(terms.mean_low), np.abs(terms.mean_high)) @ np.abs(weights)
    lost: Floats = ROUNDINGS * np.finfo(np.float64).eps * len(weights) ** 0.5 * (sizes + abs(intercept))
    return lost


@dataclass(frozen=True, eq=False)
class Knowledge:
    """What a formulation knows of `N` rows, made ready for planes."""

    scaled: Scaled | None
    """For Chernoff's bound; None where the formulation does not ask for it."""
    terms: Terms
    """For Chebyshev's inequality, or the support alone."""

    def least(self, y: Floats, weights: Floats, intercept: float) -> tuple[Floats, NDArray[np.int8]]:
        """The least bound (N,) of the probability that a row is not on the side `y` of a plane, and what it is by.

        What lies as near to the plane as rounding may have it is on neither side.
        """
        margin = -(worst_means(self.terms, y, weights) + y * intercept) - lost_digits(self.terms, weights, intercept)
        gain = self.terms.spread * np.abs(weights)
        largest = gain.max(axis=1, initial=0.0)
        unit = np.where(largest > 0, largest, 1.0)
        length = unit * np.linalg.norm(gain / unit[:, None], axis=1)
        with np.errstate(over="ignore"):
            kappa = np.divide(np.maximum(margin, 0.0), length, out=np.zeros(len(gain)), where=length > 0)
            eps = np.maximum(1 / (1 + np.square(kappa)), LEAST)
        # Where planes have no weights, nothing that is not known could change a side.
        sure = (length == 0) & ((margin > 0) | ~weights.any())
        eps, by = np.where(sure, 0.0, eps), np.where(sure, 1, 3)
        if self.scaled is not None:
            logarithm = log_bounds(self.scaled, y, weights, margin)
            sure = np.isneginf(logarithm)
            found = np.where(sure, 0.0, np.maximum(np.exp(logarithm), LEAST))
            by = np.where(sure, 1, np.where(found < eps, 2, by))
            eps = np.minimum(eps, found)
        return eps, np.where(eps == 1, 0, by).astype(np.int8)


def knowledge(rows: UncertainRows, formulation: str) -> Knowledge:
    """What a formulation that certifies knows of rows."""
    name = named(formulation)
    if name in ("S", "MC"):
        return Knowledge(None, unit_terms(rows, name))
    used = known_to(rows, name)
    return Knowledge(scaled(used), unit_terms(used, "MC"))
