"""The spread `nu` that stands for a bounded random number in Bernstein's bound.

Normalised: a random number in [-1, 1] whose mean lies in [m-, m+] and whose second moment is at most `sg^2`. The
tightest bound of `E exp(t X)` at a mean `m` is `exp h_{m,sg}(t)`, attained for `t >= 0` by two points, `1` with
probability `p` and `1 - w` (`t <= 0` is its mirror image, `h_{m,sg}(t) = h_{-m,sg}(-t)`):

    w = (1 - m) + (sg^2 - m^2) / (1 - m),     p = (sg^2 - m^2) / ((1 - m)^2 + (sg^2 - m^2)),
    h_{m,sg}(t) = m t + D,    D = log(1 + p (exp(t w) - 1)) - p t w.

`nu` is the least `k >= 0` with `h_{m,sg}(t) <= max(m- t, m+ t) + k^2 t^2 / 2` for all `t` and all `m` in [m-, m+]. So
`nu^2` is the larger one of two sides, `t > 0` with `b = m+` and its mirror image:

    sup over t > 0 and m in [m-, b] of  F = 2 (D_m(t) - (b - m) t) / t^2.

*At `m = b`* the supremum over `t` is known (Kearns and Saul's inequality, which is tight): with `v = sg^2 - b^2` and
`q = v / (1 - b)^2` it is `v` for `q >= 1` and `(1 - b)^2 (1 - q^2) / (-2 log q)` below. It is all there is for exact
means.

*Between the ends*: `exp h` is the value of a linear program in the moments, so concave in `m`, and stationary where the
parabola that touches `exp(t x)` at the lower point and meets it at 1 has no linear term. With `r = t w`, that is at

    t = r + y,    y = r^2 / (2 (exp(r) - 1 - r)),    m = (x + sg^2) / (1 + x),    x = y / t,

so that the best `m` in [m-, b] is the nearest to this one. It is `b` for all `t` unless `b > sg^2`, and always for
`t <= 1`. What remains is one search over `t`, and the objective has several maxima. But `H(t) = max over m of h` is
convex, so that a chord bounds it between two values of `t`, and the bound of F that follows, a linear function over
`t^2`, has its maximum in closed form. Pieces are halved until their bound is within the tolerance of the best value
found, which makes the result a bound whatever the shape of F.

A place in closed form takes some 20 ns, one that is searched 1.5 us. Of bounds made from a few replicates fewer than
one in a hundred are searched; of numbers drawn at random about four in ten, for either side. A table of three
arguments would be of use to the latter alone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from protodask.engine.records import Floats
from protodask.errors import InputError

TOLERANCE = 1e-6
"""How far `nu` may lie above its exact value, relative to it."""

LEAST_TOLERANCE = 1e-7
"""Below it, rounding would decide where chords of such short pieces lie."""

ROUNDING = 1e-12
"""Added to `nu^2`, once relative to it and, where it was searched for, once as it is, for what the arithmetic loses.

In closed form it lost 1e-15 relative to 60 digits; differences of the search lost 1e-16 as they are.
"""

FIRST_CUTS = np.array([0.0, 0.6, 1.4, 2.4, 3.6, 5.2, 7.5, 11.0, 17.0, 30.0])
"""The first pieces, as values of `r`; beyond the last there is one more. With more, or fewer, it took longer."""

CHUNK = 1 << 13
"""So many places are searched at once: the first pieces of them take a few MB; with more, or fewer, it took longer."""


def nu(mean_low: ArrayLike, mean_high: ArrayLike, sigma: ArrayLike, tolerance: float = TOLERANCE) -> Floats:
    """`nu(m-, m+, sg)` for arrays that broadcast: not below the exact value, and at most `1 + tolerance` times that.

    Where that is less than 1e-6, it may come out as 1e-6.

    It asks for `-sg <= m- <= m+ <= sg <= 1`. `nu` lies between `sqrt(sg^2 - min(m-^2, m+^2))` and 1, also where
    [m-, m+] holds 0. It grows with `sg`, but may fall as [m-, m+] widens: the slack between `m` and the ends, which the
    bound takes for granted, then counts for more. As `sg` comes down to `abs(m)`, it falls to 0 no faster than
    `1 / sqrt(2 log(1 / (sg^2 - m^2)))`.
    """
    if not tolerance >= LEAST_TOLERANCE:
        raise InputError(
            "bad-setting", f"The tolerance of the spread is {tolerance:g}.", f"Give {LEAST_TOLERANCE:g} or more."
        )
    low, high, largest = (
        np.asarray(values, dtype=np.float64) for values in np.broadcast_arrays(mean_low, mean_high, sigma)
    )
    legal = (-largest <= low) & (low <= high) & (high <= largest) & (largest <= 1)
    if not legal.all():
        place = tuple(int(number) for number in np.argwhere(~legal)[0])
        raise InputError(
            "bad-value",
            f"At {place} the bounds of the mean are {low[place]:g} and {high[place]:g}, and sigma is "
            f"{largest[place]:g}.",
            "Give numbers with -sigma <= mean_low <= mean_high <= sigma <= 1.",
        )
    shape = low.shape
    low, high, largest = low.ravel(), high.ravel(), largest.ravel()
    squared = np.maximum(_side(low, high, largest, tolerance), _side(-high, -low, largest, tolerance))
    return np.minimum(np.sqrt(squared), 1.0).reshape(shape)


def _side(low: Floats, high: Floats, sigma: Floats, tolerance: float) -> Floats:
    """The side `t > 0` of `nu^2` for 1-d arrays."""
    squared = _at_the_end(high, sigma)
    between = np.flatnonzero((low < high) & (high > np.square(sigma)))
    for start in range(0, len(between), CHUNK):
        places = between[start : start + CHUNK]
        squared[places] = _search(low[places], high[places], sigma[places], squared[places], 2 * tolerance)
    return squared * (1 + ROUNDING)


def _at_the_end(mean: Floats, sigma: Floats) -> Floats:
    """`sup over t of 2 D_b(t) / t^2`."""
    distance = np.square(1 - mean)
    squared = variance(mean, sigma)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = squared / distance
        skewed = distance * (1 - ratio) * (1 + ratio) / (-2 * np.log(ratio))
    return np.where((ratio > 0) & (ratio < 1), skewed, squared)


def variance(mean: Floats, sigma: Floats) -> Floats:
    """`sg^2 - m^2`, exact to the last places where `sg` is next to `m`, and 0 only where they are equal."""
    least = np.finfo(np.float64).tiny * (sigma > np.abs(mean))
    return np.maximum((sigma - mean) * (sigma + mean), least)


def _search(low: Floats, high: Floats, sigma: Floats, best: Floats, tolerance: float) -> Floats:
    """The supremum over `m` and `t`, which is at least `best`, from above; `tolerance` is relative to it."""
    t, excess = _excess(FIRST_CUTS[:, None], low, high, sigma)
    best = np.maximum(best, (2 * excess / np.square(t)).max(axis=0))
    # `t` is a column, the same for all places; the last piece has no end.
    t_end = np.append(t[1:], [[np.inf]], axis=0)
    excess_end = np.append(excess[1:], np.full((1, len(low)), np.inf), axis=0)
    bound = _bound(t, t_end, excess, excess_end, high)
    wide = bound > best * (1 + tolerance) + ROUNDING
    found = np.maximum(best, np.where(wide, 0.0, bound).max(axis=0))
    cut, at = np.nonzero(wide)
    r1, r2 = FIRST_CUTS[cut], np.append(FIRST_CUTS[1:], np.inf)[cut]
    t1, t2, excess1, excess2 = t[cut, 0], t_end[cut, 0], excess[wide], excess_end[wide]
    while len(at):
        r = np.where(np.isinf(r2), 2 * r1, (r1 + np.where(np.isinf(r2), r1, r2)) / 2)
        t, excess = _excess(r, low[at], high[at], sigma[at])
        np.maximum.at(best, at, 2 * excess / np.square(t))
        at = np.concatenate([at, at])
        r1, r2 = np.concatenate([r1, r]), np.concatenate([r, r2])
        t1, t2 = np.concatenate([t1, t]), np.concatenate([t, t2])
        excess1, excess2 = np.concatenate([excess1, excess]), np.concatenate([excess, excess2])
        bound = _bound(t1, t2, excess1, excess2, high[at])
        wide = bound > best[at] * (1 + tolerance) + ROUNDING
        np.maximum.at(found, at[~wide], bound[~wide])
        at, r1, r2, t1, t2 = at[wide], r1[wide], r2[wide], t1[wide], t2[wide]
        excess1, excess2 = excess1[wide], excess2[wide]
    result: Floats = np.maximum(found, best) + ROUNDING
    return result


def _excess(r: Floats, low: Floats, high: Floats, sigma: Floats) -> tuple[Floats, Floats]:
    """`t` and `max over m of h_m(t) - b t`, at the `t` that belongs to `r`."""
    y = _y(r)
    t = r + y
    mean = _mean_at(y / t, low, high, sigma)
    return t, _two_points(mean, sigma).growth(t) - (high - mean) * t


def _mean_at(x: Floats, low: Floats, high: Floats, sigma: Floats) -> Floats:
    """The mean of the largest `h`, by the point at which the parabola touches."""
    return np.clip((x + np.square(sigma)) / (1 + x), low, high)


class TwoPoints(NamedTuple):
    """Distributions of largest `E exp(t X)` for `t >= 0`: `p` at 1, and the rest `width` below it."""

    width: Floats
    p: Floats

    def growth(self, t: Floats) -> Floats:
        """`D`, what `h` is beyond `m t`."""
        p, z = self.p, t * self.width
        with np.errstate(divide="ignore"):
            # The second form of the same does not overflow, the first does not cancel.
            found = np.where(
                z < 1, np.log1p(p * np.expm1(np.minimum(z, 1))) - p * z, (1 - p) * z + np.log(p + (1 - p) * np.exp(-z))
            )
        return np.maximum(found, 0.0)

    def slope(self, t: Floats) -> Floats:
        """The derivative of `D` by `t`."""
        p, z = self.p, t * self.width
        left = (1 - p) * np.exp(-z)
        return self.width * p * np.divide(-np.expm1(-z) * (1 - p), p + left, out=np.zeros_like(z), where=p + left > 0)


def _two_points(mean: Floats, sigma: Floats) -> TwoPoints:
    distance = 1 - mean
    squared = variance(mean, sigma)
    with np.errstate(invalid="ignore", divide="ignore"):
        width = distance + squared / distance
        return TwoPoints(*(np.where(distance > 0, found, 0.0) for found in (width, squared / (distance * width))))


def largest_growth(t: Floats, low: Floats, high: Floats, sigma: Floats) -> tuple[Floats, Floats]:
    """`H(t) - b t` for `t >= 0`, the most that is possible of `log E exp(t X)` beyond the largest mean, and its slope.

    For 1-d arrays of one length. `H` is the largest value over the means from `low` to `high`, and `b = high`.
    """
    mean = high.copy()
    between = np.flatnonzero((low < high) & (high > np.square(sigma)) & (t > 1))
    if len(between):
        own = t[between]
        r = own - _y(own)
        for _ in range(NEWTON_STEPS):
            y = _y(r)
            r = np.maximum(r - (r + y - own) / (1 + _y_slope(r, y)), 0.0)
        mean[between] = _mean_at(_y(r) / own, low[between], high[between], sigma[between])
    points = _two_points(mean, sigma)
    return points.growth(t) - (high - mean) * t, points.slope(t) - (high - mean)


NEWTON_STEPS = 5
"""From where they begin, four leave no more than rounding."""


def _y_slope(r: Floats, y: Floats) -> Floats:
    """The derivative of `y`."""
    small = r < 0.05
    far = np.where(small, 1.0, np.minimum(r, 700.0))
    return np.where(small, -1 / 3 + r / 18, y * (2 / far - np.expm1(far) / (np.expm1(far) - far)))


def _y(r: Floats) -> Floats:
    """`r^2 / (2 (exp(r) - 1 - r))`."""
    small = r < 0.05
    near = np.where(small, r, 0.0)
    far = np.where(small, 1.0, np.minimum(r, 700.0))
    series = 1 + near / 3 * (1 + near / 4 * (1 + near / 5 * (1 + near / 6 * (1 + near / 7 * (1 + near / 8)))))
    return np.where(small, 1 / series, np.square(far) / (2 * (np.expm1(far) - far)))


def _bound(t1: Floats, t2: Floats, excess1: Floats, excess2: Floats, high: Floats) -> Floats:
    """The maximum of `2 (alpha + beta t) / t^2` over [t1, t2], the line being the chord.

    Beyond the last cut the line has the largest slope that `H(t) - b t` can have, `1 - b`.
    """
    endless = np.isinf(t2)
    with np.errstate(invalid="ignore", divide="ignore"):
        beta = np.where(endless, 1 - high, (excess2 - excess1) / (t2 - t1))
        alpha = excess1 - beta * t1
        inside = (alpha < 0) & (beta > 0) & (-2 * alpha > beta * t1) & (endless | (-2 * alpha < beta * t2))
        peak = np.square(beta) / (-2 * alpha)
        ends = np.maximum(2 * excess1 / np.square(t1), np.where(endless, 0.0, 2 * excess2 / np.square(t2)))
    return np.where(inside, peak, ends)
