"""How far a sum of rare amounts may be off, also where few or none were seen.

Rewards come to a log like drops: their number is nearly Poisson, their amounts `a` differ. Of such a sum `Y = sum a`
the variance is estimated by `V = sum a^2`, but where few were seen neither is near its mean, and with none both are
zero. The interval is that of the gamma distribution with these two moments (for amounts that are all alike it is that
of a Poisson count), and the one that was not seen yet counts half, with an amount `k`:

    low, high:  the quantiles of  1/2 Gamma(mean Y, variance V) + 1/2 Gamma(mean Y + k, variance V + k^2)

That is the mid-P interval of a count. `k` is the amount of a drop as it meets a sum, `sum a^2 / sum a` of those that
came. Where few did, one more stands in that is like those that could have come, any reward of the log on any row whose
action the policy takes; it counts the less the more came. Where rewards are no drops, but come with nearly each row,
the variance of the sum is a small `share` of `V`: then so are the variances here, and the unseen one, and the interval
is `Y -+ z sqrt(share V)`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from protodask.engine.records import Floats


@dataclass(frozen=True)
class Moments:
    """Sums over values that are weighed; they merge by addition."""

    weight: float
    total: float
    squares: float


def moments(values: Floats, weights: Floats | None = None) -> Moments:
    """The sums over some values, of which those of 0 do not count."""
    with np.errstate(over="ignore", under="ignore"):
        weighed = values if weights is None else weights * values
        weight = np.count_nonzero(values) if weights is None else weights[values > 0].sum()
        return Moments(float(weight), float(weighed.sum()), float((weighed * values).sum()))


FEW = 60.0
"""Amounts that came, from which on those that could have come say no more."""

LEAST_ERROR = 1e-8
"""Of a sum, relative to it: below it the functions of gamma distributions have no digits."""

NEARLY_NONE = 1e-100
"""A sum, in units of the unseen amount, that is none."""


def unseen_amount(came: Moments, rewards: Moments, likelihoods: Moments) -> float | None:
    """The amount that counts half; None if none is known.

    What could have come is a reward times a likelihood, each drawn by itself.
    """
    number = came.total / came.squares * came.total if came.squares > 0 else 0.0
    weight, total, squares = max(0.0, 1 - number / FEW), came.total, came.squares
    if weight > 0 and rewards.weight > 0 and likelihoods.weight > 0:
        each = rewards.weight * likelihoods.weight
        total += weight * (rewards.total / each * likelihoods.total)
        squares += weight * (rewards.squares / each * likelihoods.squares)
    amount = squares / total if squares > 0 else 0.0
    return amount if 0 < amount < math.inf else None


def rare_interval(came: Moments, amount: float, share: float, confidence: float) -> tuple[float, float]:
    """Both ends for the sum of what came, given the unseen amount, where the variance is a `share` of `V`."""
    total, variance = came.total / amount, share * came.squares / amount / amount
    if total < NEARLY_NONE:
        total = variance = 0.0
    variance = max(variance, (LEAST_ERROR * total) ** 2)
    tail, unseen = (1 - confidence) / 2, min(share, 1.0) if total > 0 else 1.0
    low, high = (_quantile(total, variance, unseen, at) for at in (tail, 1 - tail))
    return amount * low, amount * high


def _quantile(total: float, variance: float, unseen: float, share: float) -> float:
    """Of the mean of both distributions, in units of the unseen amount, which here is `unseen` of one."""
    from scipy.optimize import brentq
    from scipy.special import gammainc

    def chance_below(value: float, mean: float, spread: float) -> float:
        return float(gammainc((mean / math.sqrt(spread)) ** 2, value * mean / spread))

    def beyond(value: float) -> float:
        seen = chance_below(value, total, variance) if total > 0 else 1.0
        return (seen + chance_below(value, total + unseen, variance + unseen * unseen)) / 2 - share

    if beyond(0.0) >= 0:
        return 0.0
    high = total + unseen + math.sqrt(variance) + unseen
    while beyond(high) < 0:
        high *= 2
    return float(brentq(beyond, 0.0, high, xtol=1e-12 * high, rtol=1e-12))
