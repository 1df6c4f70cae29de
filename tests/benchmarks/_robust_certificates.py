"""What brackets alone say of uncertain points: a side for each, and the least eps with which one certifies it.

The side is the sign of `w.m - b` at the middle `m` of the bounds of the mean. With spread `kappa r`, `r` the *unit*
spread (`s nu` of the Bernstein bound, the standard deviation of Chebyshev's), the side `y` is certified where
`y b + B(w) <= 0`. Brackets grow with `kappa`; of the largest that certifies, eps is `exp(-kappa^2 / 2)`, or
`1 / (1 + kappa^2)` by Chebyshev's inequality. `kappa` is in closed form: with `mu` what is left at the worst mean,
`g = r |w|` and the room `h` up to the support,

    plain         kappa = mu / |g|
    intersected   kappa = min |d / r|   over   |w|.d >= mu,  0 <= d <= h:   d_j = min(h_j, tau r_j^2 |w_j|)

It is infinite, and eps 0, where all that is possible lies on that side; without knowledge of the spread or the support
that is all that the bracket can say of a point on the right side, so choose terms that hold what is known.

`N` points, `D` features.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from protodask.engine.records import Floats
from protodask.robust.brackets import NEGLIGIBLE, worst_means
from protodask.robust.terms import Terms

Tail = Literal["bernstein", "chebyshev"]
"""How the spread bounds a probability: `kappa = sqrt(2 log(1 / eps))`, or `sqrt((1 - eps) / eps)` (MC)."""


@dataclass(frozen=True, eq=False)
class Certificates:
    """What is certified of `N` points, each array (N,)."""

    side: NDArray[np.int64]
    """-1 or 1; a middle on the plane counts as 1."""
    kappa: Floats
    """The largest multiple of the unit spread with which the side is certified, 0 where it never is."""
    eps: Floats
    """The bound of the probability of the other side that goes with it, 1 where nothing is certified."""


def certify(unit_terms: Terms, weights: Floats, intercept: float, tail: Tail = "bernstein") -> Certificates:
    """Sides and least eps of points, from terms whose spread is that of `kappa = 1`, for the plane `w.x = b`."""
    side = sides(unit_terms, weights, intercept)
    kappa = largest_kappa(unit_terms, side, weights, intercept)
    return Certificates(side, kappa, eps_of_kappa(kappa, tail))


def sides(terms: Terms, weights: Floats, intercept: float) -> NDArray[np.int64]:
    """The sign of `w.m - b` at the middle of the bounds of the mean, 1 where it is 0; (N,)."""
    middle = terms.mean_low + (terms.mean_high - terms.mean_low) / 2
    return np.where(middle @ weights - intercept >= 0, 1, -1)


def eps_of_kappa(kappa: Floats, tail: Tail = "bernstein") -> Floats:
    """The probability that a spread of `kappa` units leaves outside."""
    with np.errstate(over="ignore"):
        square = np.square(kappa)
        match tail:
            case "bernstein":
                return np.exp(-square / 2)
            case "chebyshev":
                return 1.0 / (1.0 + square)


def largest_kappa(unit_terms: Terms, y: NDArray[np.generic], weights: Floats, intercept: float) -> Floats:
    """The largest `kappa` with `y b + B(w) <= 0`, (N,): 0 where none is, infinite where every one is."""
    sign = np.asarray(y, dtype=np.float64)
    margin = -(worst_means(unit_terms, sign, weights) + sign * intercept)
    gain = unit_terms.spread * np.abs(weights)
    if unit_terms.lower is None or unit_terms.upper is None:
        length = np.linalg.norm(gain, axis=1)
        kappa = np.divide(margin, length, out=np.full(len(gain), np.inf), where=length > 0)
    else:
        above, below = unit_terms.upper - unit_terms.mean_high, unit_terms.mean_low - unit_terms.lower
        room = np.maximum(np.where(-sign[:, None] * weights > 0, above, below), 0.0)
        kappa = _within_support(margin, gain, room, unit_terms.spread, weights)
    return np.where(margin >= 0, np.maximum(kappa, 0.0), 0.0)


def _within_support(margin: Floats, gain: Floats, space: Floats, spread: Floats, weights: Floats) -> Floats:
    """Least `|x|` with `gain . x >= margin` and `0 <= x <= limits`, infinite where no such `x` is.

    As in `brackets.clipped_to_ball`, features join those at their limit and never leave.
    """
    kappa = np.full(len(gain), np.inf)
    largest = gain.max(axis=1, initial=0.0)
    moving = gain > NEGLIGIBLE * largest[:, None]
    limits = np.divide(space, spread, out=np.zeros_like(gain), where=moving)
    reach = np.einsum("nd,nd->n", limits, np.where(moving, gain, 0.0))
    rows = np.flatnonzero((reach > margin) & (margin >= 0))
    unit = np.where(moving, gain, 0.0)[rows] / largest[rows, None]
    wanted, limits = margin[rows] / largest[rows], limits[rows]
    free = unit > 0
    while len(rows):
        rest = wanted - np.einsum("nd,nd->n", np.where(free, 0.0, limits), unit)
        loose = np.where(free, unit, 0.0)
        squares = np.einsum("nd,nd->n", loose, loose)
        tau = np.divide(np.maximum(rest, 0.0), squares, out=np.zeros(len(rows)), where=squares > 0)
        loose *= tau[:, None]
        past = free & (loose > limits)
        again = past.any(axis=1)
        ended = ~again
        kappa[rows[ended]] = np.linalg.norm(np.where(free, loose, limits)[ended], axis=1)
        rows, unit, limits, wanted, free = rows[again], unit[again], limits[again], wanted[again], (free & ~past)[again]
    return kappa
