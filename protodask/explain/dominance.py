"""How much of the evidence fixes a decision, whatever the classes of the rest.

`J` contributions by impact, strongest first, with classes `y_j`; `K` classes with marginals `p0`. For a prefix `S`,

    q_l(S) = p0_l + sum of the impacts of class l in S        R(S) = sum of the impacts outside S

the worst that can happen to the winner `k` is that everything outside `S` speaks for one and the same rival. So `S`
fixes `k` if and only if for every other class `l`, `q_k(S) > q_l(S) + R(S)`, or both are equal and `k` comes first.

Marginals and impacts are taken as the exact numbers they are stored as, and what is said of them is exact: sums in
float64 decide where they differ by more than their rounding can amount to, and `math.fsum`, whose result has the sign
of the exact sum, decides the rest, ties included. What the numbers themselves were rounded by, about 1e-15 of each, is
not in question here.
"""

from __future__ import annotations

import math
from bisect import bisect_left

import numpy as np

from protodask.engine.records import Floats, Integers


def decided(marginals: Floats, impacts: Floats, classes: Integers) -> tuple[int, int]:
    """The class of the largest `p0_k + sum of its impacts`, the first of several, and what fixes it.

    That is the length of the smallest prefix of `impacts` (J,), strongest first, that does; 0 if `p0` alone does.
    """
    evidence = _Evidence(marginals, impacts, classes)
    winner = evidence.winner()
    # A longer prefix leaves less to change, so it fixes what a shorter one fixes.
    return winner, bisect_left(range(len(impacts)), True, key=lambda size: evidence.is_fixed(winner, size))


class _Evidence:
    """Marginals (K,) and impacts (J,) with their classes, summed up with a bound on the rounding."""

    def __init__(self, marginals: Floats, impacts: Floats, classes: Integers) -> None:
        self._marginals = marginals
        self._impacts = impacts
        self._classes = classes
        # Each of the three sums below adds at most J + K numbers of at least 0, in whatever order: its error is at most
        # their number times half an epsilon times their total. Eight such errors cover their difference with room.
        total = float(marginals.sum()) + float(impacts.sum())
        self._rounding = 4 * np.finfo(np.float64).eps * (len(marginals) + len(impacts)) * total

    def winner(self) -> int:
        sums = self._sums(len(self._impacts))
        best = int(sums.argmax())
        for rival in np.flatnonzero(sums >= sums[best] - self._rounding).tolist():
            exact = self._exact_margin(rival, best, len(self._impacts))
            if exact > 0 or (exact == 0 and rival < best):
                best = rival
        return best

    def is_fixed(self, winner: int, size: int) -> bool:
        """Whether the first `size` impacts keep the winner what it is."""
        sums = self._sums(size)
        margins = sums[winner] - sums - float(self._impacts[size:].sum())
        margins[winner] = np.inf
        if (margins < -self._rounding).any():
            return False
        for rival in np.flatnonzero(margins <= self._rounding).tolist():
            exact = self._exact_margin(winner, rival, size)
            if exact < 0 or (exact == 0 and rival < winner):
                return False
        return True

    def _sums(self, size: int) -> Floats:
        """`q_l(S)` (K,) of the first `size` impacts."""
        return self._marginals + np.bincount(
            self._classes[:size], weights=self._impacts[:size], minlength=len(self._marginals)
        )

    def _exact_margin(self, winner: int, rival: int, size: int) -> float:
        """A number of the sign of `q_winner(S) - q_rival(S) - R(S)`."""
        inside, classes = self._impacts[:size], self._classes[:size]
        return math.fsum(
            [
                float(self._marginals[winner]),
                -float(self._marginals[rival]),
                *inside[classes == winner].tolist(),
                *(-inside[classes == rival]).tolist(),
                *(-self._impacts[size:]).tolist(),
            ]
        )
