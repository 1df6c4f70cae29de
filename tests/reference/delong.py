"""DeLong's interval of an area under the ROC curve, pair by pair."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

Floats = NDArray[np.float64]


def delong(score: Floats, positive: NDArray[np.bool_], confidence: float = 0.95) -> tuple[float, float] | None:
    """The ends, None where there is no interval."""
    first, second = score[positive], score[~positive]
    if min(len(first), len(second)) < 10:
        return None
    wins = (first[:, None] > second) + 0.5 * (first[:, None] == second)
    parts = [wins.mean(axis=axis).var(ddof=1) / len(rows) for axis, rows in ((1, first), (0, second))]
    variance, area = sum(parts), wins.mean()
    if variance < 1e-20 or not 0 < area < 1:
        return None
    freedom = variance**2 / (parts[0] ** 2 / (len(first) - 1) + parts[1] ** 2 / (len(second) - 1))
    reach = stats.t.ppf(0.5 + confidence / 2, freedom) * np.sqrt(variance) / (area * (1 - area))
    low, high = special.expit(special.logit(area) + np.array([-reach, reach]))
    return float(low), float(high)
