"""How far a sum of rare amounts may be off, also where few or none were seen.

Rewards come to a log like drops: their number is nearly Poisson, their amounts `a` differ. Of such a sum `Y = sum a`
the variance is estimated by `V = sum a^2`, but where few were seen neither is near its mean, and with none both are
zero. The interval is that of the gamma distribution with these two moments (for amounts that are all alike it is that
of a Poisson count), and the one that was not seen yet counts half: its amount `k = E a^2 / E a` is that of a drop as
it meets a sum, estimated from all that could have come.

    low, high:  the quantiles of  1/2 Gamma(mean Y, variance V) + 1/2 Gamma(mean Y + k, variance V + k^2)

That is the mid-P interval of a count; with many drops it becomes `Y -+ z sqrt(V)`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from protodask.evaluation.ratio import Floats


@dataclass(frozen=True)
class RareSums:
    """Amounts of one sign that came, and that could have come; merges as a monoid."""

    total: float
    """`sum a` of those that came."""
    squares: float
    """`sum a^2` of those that came."""
    possible: float
    """`sum a` of all."""
    possible_squares: float
    """`sum a^2` of all."""


LARGEST = 1e140
"""An amount of which the squares of any number of rows can be added up."""

NOTHING = RareSums(0.0, 0.0, 0.0, 0.0)


def rare_sums(came: Floats, possible: Floats) -> RareSums:
    """The sums over some amounts, of which those below zero do not count."""
    with np.errstate(over="ignore", under="ignore"):
        came, possible = np.maximum(came, 0), np.clip(possible, 0, LARGEST)
        return RareSums(
            float(came.sum()), float(np.square(came).sum()), float(possible.sum()), float(np.square(possible).sum())
        )


def merge_rare(left: RareSums, right: RareSums) -> RareSums:
    """The sums over the amounts of both."""
    return RareSums(
        left.total + right.total,
        left.squares + right.squares,
        left.possible + right.possible,
        left.possible_squares + right.possible_squares,
    )


def rare_interval(sums: RareSums, share: float, confidence: float) -> tuple[float, float] | None:
    """Both ends for the sum of the amounts, where its variance is a `share` of `V`; None if no amount is known.

    The variance is at least that of one amount, if any came: that all were alike does not say that the next one is.
    """
    if not sums.possible_squares > 0:
        return None
    unit = sums.possible_squares / sums.possible
    total, variance = sums.total / unit, 0.0
    if total > 0:
        variance = max(share * sums.squares / unit / unit, 1.0)
    tail = (1 - confidence) / 2
    return unit * _quantile(total, variance, tail), unit * _quantile(total, variance, 1 - tail)


def _quantile(total: float, variance: float, share: float) -> float:
    from scipy.optimize import brentq
    from scipy.special import gammainc

    def beyond(value: float) -> float:
        seen = gammainc(total * total / variance, value * total / variance) if total > 0 else 1.0
        more = gammainc((total + 1) ** 2 / (variance + 1), value * (total + 1) / (variance + 1))
        return float(seen + more) / 2 - share

    if beyond(0.0) >= 0:
        return 0.0
    high = total + 1 + math.sqrt(variance + 1)
    while beyond(high) < 0:
        high *= 2
    return float(brentq(beyond, 0.0, high, xtol=1e-12, rtol=1e-12))
