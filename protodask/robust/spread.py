"""The spread `nu` that stands for a bounded random number in Bernstein's bound.

Normalised: a random number in [-1, 1] whose mean lies in [m-, m+] and whose second moment is at most `sg^2`. The
tightest bound of `E exp(t X)` at a mean `m` is `exp h_{m,sg}(t)`, attained by a distribution on two points, for
`t >= 0` on `x = (m - sg^2) / (1 - m)` and 1. `nu` is the least `k >= 0` with

    h_{m,sg}(t) <= max(m- t, m+ t) + k^2 t^2 / 2     for all t and all m in [m-, m+] with abs(m) <= sg.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


def nu(mean_low: ArrayLike, mean_high: ArrayLike, sigma: ArrayLike) -> Floats:
    """`nu(m-, m+, sg)` for arrays that broadcast, never below the exact value."""
    low, high, second = np.broadcast_arrays(
        np.asarray(mean_low, dtype=np.float64),
        np.asarray(mean_high, dtype=np.float64),
        np.square(np.asarray(sigma, dtype=np.float64)),
    )
    return np.sqrt(np.maximum(_side(high, second), _side(-low, second)))


def _side(mean: Floats, second: Floats) -> Floats:
    distance = 1 - mean
    variance = np.maximum(second - np.square(mean), 0.0)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratio = variance / np.square(distance)
        below = np.square(distance) * (1 - np.square(ratio)) / (-2 * np.log(ratio))
    return np.where(variance <= 0, 0.0, np.where(ratio < 1, below, variance))
