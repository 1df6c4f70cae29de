"""What the largest value of `v.x` over the set of a bracket is, one sample at a time, and two-point distributions.

The set of the plain bracket is a box of means plus an ellipsoid; that of the other is the part of it in the support.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from reference.brackets import Sample

Floats = NDArray[np.float64]


def largest(sample: Sample, v: Floats) -> float:
    """`max v.x` over the set of a sample: `B(w)` for `v = -y w`."""
    total, weighted = 0.0, []
    for j, (low, high, r) in enumerate(zip(sample.mean_low, sample.mean_high, sample.spread, strict=True)):
        total += max(low * v[j], high * v[j])
        room = np.inf
        if sample.lower is not None and sample.upper is not None:
            room = sample.upper[j] - high if v[j] > 0 else low - sample.lower[j]
        weighted.append((r * abs(v[j]), room / r if r > 0 else 0.0))
    # The most of sum g x with |x| <= 1 and 0 <= x <= limit: x = min(limit, g / multiplier), by bisection.
    if math.hypot(*(limit for gain, limit in weighted if gain > 0)) <= 1:
        return total + float(sum(gain * limit for gain, limit in weighted if gain > 0))
    below, above = 0.0, 1e-300 + math.hypot(*(gain for gain, _ in weighted))
    for _ in range(200):
        middle = (below + above) / 2
        length = math.hypot(*[min(limit, gain / middle) for gain, limit in weighted])
        below, above = (middle, above) if length > 1 else (below, middle)
    return total + float(sum(gain * min(limit, gain / above) for gain, limit in weighted))


def two_points(mean: float, second: float, *, upper_end: bool) -> tuple[Floats, Floats]:
    """The points and probabilities of the distribution in [-1, 1] with these moments that has an end of it."""
    sign = 1.0 if upper_end else -1.0
    variance = second - mean * mean
    distance = 1 - sign * mean
    if variance <= 0 or distance <= 0:
        return np.array([mean]), np.ones(1)
    probability = variance / (distance * distance + variance)
    return np.array([mean - sign * variance / distance, sign]), np.array([1 - probability, probability])
