"""What a formulation asks of a hyperplane, in one form for all of them.

With `y` = -1 or 1 a sample asks for `1 - xi + y b + B(w) <= 0`, the bracket being

    plain         B(w) = sum_j max(-y m-_j w_j, -y m+_j w_j) + |diag(r) w|
    intersected   B(w) = min over a of  sum_j max(-l_j (y w_j + a_j), -u_j (y w_j + a_j))
                                        + sum_j max(m-_j a_j, m+_j a_j) + |diag(r) a|

with `m-`, `m+` the bounds of the means, `l`, `u` the support and `r` the spread, in the units of the features. What
tells the formulations apart is what they put in:

    SVM, M              m- = m+ = the point or its mean; r = 0
    S                   m- = l, m+ = u; r = 0
    MC                  m- = m+ = the mean; r_j = sqrt((1 - eps) / eps) * sd_j
    SBMV, SMV, SBM, SM  m-, m+ as they are known; r_j = kappa s_j nu_j, kappa = sqrt(2 log(1 / eps)), s = (u - l) / 2
    ...-I               the same, with the support
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from protodask.engine.records import Floats


@dataclass(frozen=True, eq=False)
class Terms:
    """The brackets of `N` samples of `D` features, each array (N, D)."""

    mean_low: Floats
    mean_high: Floats
    spread: Floats
    """`r`, 0 where nothing is random."""
    lower: Floats | None = None
    """The support where the bracket is intersected with it."""
    upper: Floats | None = None

    @property
    def middle(self) -> Floats:
        """Of the bounds of the means."""
        return self.mean_low + self.half

    @property
    def half(self) -> Floats:
        """The distance of the bounds of the means from their middle."""
        return (self.mean_high - self.mean_low) / 2

    @property
    def room(self) -> Floats | None:
        """What is left between the bounds of the means and the support, where it is nearer; None without a support."""
        if self.lower is None or self.upper is None:
            return None
        return np.minimum(self.mean_low - self.lower, self.upper - self.mean_high)

    @property
    def intersected(self) -> bool:
        return self.lower is not None
