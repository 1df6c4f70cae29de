"""DeLong's interval of an area under the ROC curve, pair by pair."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

Floats = NDArray[np.float64]


def delong(score: Floats, positive: NDArray[np.bool_], confidence: float = 0.95) -> tuple[float, float] | None:
    """The ends, None where there is no interval."""
    first, second = score[positive], score[~positive]
    if min(len(first), len(second)) < 2:
        return None
    wins = (first[:, None] > second) + 0.5 * (first[:, None] == second)
    variance = wins.mean(axis=1).var(ddof=1) / len(first) + wins.mean(axis=0).var(ddof=1) / len(second)
    area = wins.mean()
    if not variance > 0 or not 0 < area < 1:
        return None
    reach = stats.norm.ppf(0.5 + confidence / 2) * np.sqrt(variance) / (area * (1 - area))
    low, high = special.expit(special.logit(area) + np.array([-reach, reach]))
    return float(low), float(high)
