"""The brackets of a block of samples at a hyperplane, their subgradients and certificates that they are exact.

A bracket is the support function of the set of points that a sample may take,

    B(w) = max over z in Z of -y w.z
    plain         Z = {m + d :  m- <= m <= m+,  sum_j (d_j / r_j)^2 <= 1}         (d_j = 0 where r_j = 0)
    intersected   Z = the plain set, with l <= z <= u

The intersected one is that of `terms.py`: the support functions of two bodies that meet are finite, so the one of what
they have in common is the infimal convolution of theirs. The maximum is at hand. With `c = -y w` feature `j` takes the
end of `[m-, m+]` and the direction that the sign of `c_j` asks for. There remains, with `x = |d| / r`,
`g_j = r_j |w_j|` and `h_j` the room up to the support divided by `r_j`,

    max g.x   over   |x| <= 1,  0 <= x <= h        (h infinite for the plain bracket: x = g / |g|, value |g|)

whose optimality conditions are `x_j = min(h_j, tau g_j)` with `|x| = 1`, or `x = h` if `|h| <= 1`.

So `-y z` is a subgradient, and `-y z.w'` a lower bound of `B(w')` for every `w'`: it holds for any `z` of the set. An
upper bound comes from `p >= 0`: `g.x = (g - p).x + p.x <= |(g - p)_+| + h.p`. Both meet at the solution, so that what
is reported is exact to rounding.

`N` samples, `D` features.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protodask.engine.records import Floats, taken
from protodask.robust.terms import Terms

NEGLIGIBLE = 1e-150
"""Gains below this share of a sample's largest have squares that vanish; leaving them out costs that share."""

TILE = 1 << 15
"""Numbers of each array worked on at once: a few such arrays fit in a processor's cache."""

WORTH_COPYING = 0.6
"""Rows that are not finished are set apart once they are less than this share of all."""


def bracket(terms: Terms, y: NDArray[np.generic], weights: Floats) -> tuple[Floats, Floats]:
    """`B(w)` of every sample (N,) and a subgradient of each (N, D), for `y` (N,) of -1 and 1 and `w` (D,).

    `B` is positively homogeneous: each value is its subgradient times `w`, and the subgradient times another `w'` is
    at most `B(w')`.
    """
    sign = np.asarray(y, dtype=np.float64)
    subgradients = extremes(terms, sign, weights).points
    subgradients *= -sign[:, None]
    return subgradients @ weights, subgradients


@dataclass(frozen=True, eq=False)
class Extremes:
    """The points of the samples' sets that lie furthest against their labels, and how they got there, each (N, D)."""

    points: Floats
    spent: Floats
    """How far each feature is beyond the bounds of its mean, `r x`."""
    free: NDArray[np.bool_] | None
    """Where it is short of the end of the support; None if there is none."""


def extremes(terms: Terms, y: NDArray[np.generic], weights: Floats, soft: float = 0.0) -> Extremes:
    """The extreme points of all samples at a hyperplane.

    With `soft` they are those of a softened norm, `sqrt(|g|^2 + soft^2)`: points of the sets as well, which move
    smoothly with the weights and are means where there are none. It is one more feature, of gain `soft`.
    """
    sign = np.asarray(y, dtype=np.float64)
    points, spent = np.empty_like(terms.mean_low), np.empty_like(terms.mean_low)
    free = np.empty(points.shape, dtype=np.bool_) if terms.intersected else None
    step = max(1, TILE // max(1, len(weights)))
    for start in range(0, len(points), step):
        rows = slice(start, start + step)
        part = taken(terms, rows)
        direction = -sign[rows, None] * np.sign(weights)
        limits = _limits(part, direction) if terms.intersected else None
        fractions = _fractions(part, weights, limits, soft)
        if free is not None and limits is not None:
            np.less(fractions, limits, out=free[rows])
        np.multiply(fractions, part.spread, out=spent[rows])
        np.multiply(direction, spent[rows], out=points[rows])
        points[rows] += _towards(part, direction)
        if part.lower is not None and part.upper is not None:
            # Rounding must not lead out of the support; where a mean is past its end by rounding, the mean counts.
            np.maximum(points[rows], np.minimum(part.lower, part.mean_low), out=points[rows])
            np.minimum(points[rows], np.maximum(part.upper, part.mean_high), out=points[rows])
    return Extremes(points, spent, free)


def worst_means(terms: Terms, y: NDArray[np.generic], weights: Floats) -> Floats:
    """`sum_j max(-y m-_j w_j, -y m+_j w_j)`, what the brackets are without spread, (N,)."""
    sign = np.asarray(y, dtype=np.float64)
    return -sign * (_towards(terms, -sign[:, None] * np.sign(weights)) @ weights)


def _towards(terms: Terms, direction: Floats) -> Floats:
    """The end of the bounds of the mean in a direction, their middle where there is none."""
    ends = np.where(direction > 0, terms.mean_high, terms.mean_low)
    # A weight is 0 for all samples alike; the middle treats both labels the same way.
    still = np.flatnonzero(~direction.any(axis=0))
    low = terms.mean_low[:, still]
    ends[:, still] = low + (terms.mean_high[:, still] - low) / 2
    return ends


def _limits(terms: Terms, direction: Floats) -> Floats:
    """`h`, at most 1 since `x` is in the unit ball; 0 where there is no spread."""
    limits = np.ones(direction.shape)
    if terms.lower is None or terms.upper is None:
        return limits
    # A mean beyond the support by rounding has no room.
    space = np.maximum(np.where(direction > 0, terms.upper - terms.mean_high, terms.mean_low - terms.lower), 0.0)
    return np.divide(space, terms.spread, out=limits, where=space < terms.spread)


def _fractions(terms: Terms, weights: Floats, limits: Floats | None, soft: float = 0.0) -> Floats:
    """`x` (N, D): the deviations as shares of the spread, all at least 0."""
    gain = terms.spread * np.abs(weights)
    largest = np.maximum(gain.max(axis=1, initial=0.0, keepdims=True), soft)
    unit = np.where(largest > 0, largest, 1.0)
    gain /= unit
    if limits is None:
        length = np.hypot(np.sqrt(np.einsum("nd,nd->n", gain, gain))[:, None], soft / unit)
        gain /= np.where(length > 0, length, 1.0)
        return gain
    gain[gain < NEGLIGIBLE] = 0.0
    if soft == 0:
        return clipped_to_ball(gain, limits)
    beside = np.ones((len(gain), 1))
    return clipped_to_ball(np.hstack([gain, soft / unit]), np.hstack([limits, beside]))[:, :-1]


def clipped_to_ball(gain: Floats, limits: Floats) -> Floats:
    """`x` that maximises `gain . x` over `|x| <= 1`, `0 <= x <= limits`, a problem in each row of (N, D).

    Gains are 0, or so large that their squares do not vanish. `tau` from `|x| = 1` for the features that are not at
    their limit brings others to theirs: it only grows, so none ever leaves again and the end is exact.
    """
    limits = np.where(gain > 0, limits, 0.0)
    result = np.empty(len(gain))
    rows, some_gain, some_limits = np.arange(len(gain)), gain, limits
    gain_squares, limit_squares = gain * gain, limits * limits
    tau = _tau(np.ones(len(gain)), gain_squares.sum(axis=1))
    before = np.zeros(len(gain), dtype=np.int64)
    while len(rows):
        result[rows] = tau
        stopped = some_gain * tau[:, None] >= some_limits
        count = np.count_nonzero(stopped, axis=1)
        again = count > before
        if not again.any():
            break
        if np.count_nonzero(again) < WORTH_COPYING * len(rows):
            rows, some_gain, some_limits = rows[again], some_gain[again], some_limits[again]
            gain_squares, limit_squares = gain_squares[again], limit_squares[again]
            stopped, count, tau = stopped[again], count[again], tau[again]
        before = count
        left = 1.0 - np.einsum("nd,nd->n", limit_squares, stopped)
        # Rounding leaves nothing where a limit is 1, and must not take back what the others have.
        tau = np.maximum(tau, _tau(np.maximum(left, 0.0), np.einsum("nd,nd->n", gain_squares, ~stopped)))
    return np.minimum(gain * result[:, None], limits)


def _tau(left: Floats, squares: Floats) -> Floats:
    """`sqrt(left / squares)`; without any square so large that whatever has a gain is at its limit."""
    ratio: Floats = np.divide(left, squares, out=np.full(len(left), 1.0 / NEGLIGIBLE**2), where=squares > 0)
    return np.sqrt(ratio)
