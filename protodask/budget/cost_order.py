"""Which sets of features cost no more than others, whatever the size of the item: for all `2^m` sets at once."""

from __future__ import annotations

import math
from math import comb

import numpy as np
from numpy.typing import NDArray

from protodask.budget.costs import CostCurves
from protodask.budget.polynomials import Floats

Masks = NDArray[np.int64]
"""Sets of features as numbers: feature `f` is in a set where bit `f` of its number is 1."""

MARGIN = 1e-9
"""By this share of its cost a set must be cheaper where more than coefficients is compared: rounding is far below."""

MOST_COMPARED = 1024
"""Sets that are compared each with each: some 10 ms."""


class CostOrder:
    """Costs of sets, compared coordinate by coordinate.

    `c_r(n) <= c_s(n)` at all sizes `n >= 0` if no coefficient of `r` is larger, and in floating point as well. Between
    a smallest and a largest size it is enough that none of its coefficients in Bernstein's basis is larger, since that
    basis is nowhere negative there; from a smallest size up, none of those of powers of `n - low`. Either is sufficient
    and not necessary: a set that is cheaper without this being seen is not taken for cheaper.
    """

    def __init__(self, curves: CostCurves) -> None:
        self._sums = [sums_of_sets(curves.coefficients)]
        found = coordinates(curves) if curves.low > 0 or curves.high < math.inf else None
        if found is not None:
            self._sums.append(sums_of_sets(found))

    def no_cheaper_than(self, number: int) -> NDArray[np.bool_]:
        """Of every set, whether it is known to cost at least as much as this one at every size."""
        found = (self._sums[0] >= self._sums[0][number]).all(axis=1)
        for sums in self._sums[1:]:
            found |= (sums >= sums[number] + MARGIN * np.abs(sums[number])).all(axis=1)
        return np.asarray(found)

    def cheapest(self, sets: Masks) -> Masks:
        """Those of some sets that no other of them is known to be cheaper than; of many sets, the first such."""
        sums = self._sums[-1][sets]
        # A set that is cheaper has the smaller sum of coordinates, so that it comes first.
        order = np.argsort(sums.sum(axis=1), kind="stable")[:MOST_COMPARED]
        sets, sums = sets[order], sums[order]
        cheaper = (sums[:, None] <= sums).all(axis=2) & (sums[:, None] < sums).any(axis=2)
        return np.sort(sets[~cheaper.any(axis=0)])


def coordinates(curves: CostCurves) -> Floats | None:
    """(m, degree + 1): where none of these is larger, no cost between the sizes is; None where floats are too small."""
    degree = curves.coefficients.shape[1] - 1
    powers = range(degree + 1)
    with np.errstate(over="ignore", invalid="ignore"):
        # sum over j of c_j n^j = sum over k of t_k (n - low)^k, with t_k = sum over j of C(j, k) low^(j - k) c_j.
        shift = [[comb(j, k) * np.power(curves.low, max(j - k, 0)) for k in powers] for j in powers]
        around_low = curves.coefficients @ np.array(shift)
        # b_j = sum over k of C(j, k) / C(d, k) w^k t_k, for n - low = w u with u in [0, 1].
        width = curves.high - curves.low
        basis = [[comb(j, k) / comb(degree, k) * np.power(width, k) for j in powers] for k in powers]
        bernstein = around_low @ np.array(basis)
        for found in (bernstein, around_low):
            if np.isfinite(np.abs(found).sum()):  # so that no set's sum is infinite
                return np.asarray(found)
    return None


def sums_of_sets(values: Floats) -> Floats:
    """(2^m, ...): of every set the sum of its features' values (m, ...), added in ascending order."""
    sums = np.zeros((1 << len(values), *values.shape[1:]))
    for feature, value in enumerate(values):
        size = 1 << feature
        sums[size : 2 * size] = sums[:size] + value
    return sums
