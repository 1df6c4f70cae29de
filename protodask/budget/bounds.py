"""What expanded sets say of the others: bounds on the accuracy of all `2^m` sets, kept as arrays over bit masks.

And which of all sets cost no more than others, whatever the size of the item.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from math import comb

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from protodask.budget.costs import CostCurves
from protodask.budget.expansions import Expansion, FeatureSet
from protodask.budget.noise import CONFIDENCE
from protodask.engine.records import Floats

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


ROUNDING = 1e-12
"""Differences of accuracies that should be equal are off by less than this: 0.91 - 0.9 is more than 0.01."""

MOST_PAIRED = 500
"""Features up to which all `4^m` pairs of sets have a probability each that is a float."""


def agrees(observed_error: float, monotone_error: float) -> bool:
    """Whether the accuracies seen agree with the error of monotonicity that was assumed."""
    return observed_error <= monotone_error + ROUNDING


class Bounds:
    """Bounds on accuracy that is monotone within `e` (`a_r <= a_s + e` for every part `r` of `s`).

    `low(s)` is the largest `a_r` of the expanded parts `r` of `s`, of which `s` may be one. `high(s)` is at least
    `a_s`: `e` more than the smallest `a_t` of the expanded sets `t` around `s`. With diminishing returns, where

        a(x + l) - a(x) <= a(s + l) - a(s) + e      for every part s of x, and every feature l outside x,

    what a feature adds is known from a part, or from a set around, to which it was added: `high` is also lowered to

        high(x) + a(s + l) - a(s) + e   at x + l, for expanded s and s + l, with s a part of x, and
        high(x + l) - a(s + l) + a(s) + e   at x, for expanded s and s + l, with x a part of s.

    Applied feature by feature this bounds a set by what all of its features add to one part of it (*covering*).

    `serves(s)` is the largest `a_r` of the expanded sets `r` that cost no more than `s` whatever the size: its parts,
    and those that an order by cost tells of.
    """

    def __init__(
        self, n_features: int, monotone_error: float, diminishing_returns: bool, order: CostOrder | None = None
    ) -> None:
        n_sets = 1 << n_features
        self._n_features = n_features
        self._error = monotone_error
        self._diminishing = diminishing_returns
        self._order = order
        self.accuracy = np.full(n_sets, np.nan)
        """NaN where a set is not expanded."""
        self.low = np.full(n_sets, -np.inf)
        self.serves = self.low if order is None else self.low.copy()
        self.high = np.full(n_sets, np.inf)

    def learn(self, sets: Masks, accuracy: Floats) -> None:
        """Draw all conclusions from sets that were expanded."""
        self.accuracy[sets] = accuracy
        self.low[sets] = np.maximum(self.low[sets], accuracy)
        spread_to_supersets(self.low, np.maximum)
        if self._order is not None:
            np.maximum(self.serves, self.low, out=self.serves)
            for number, value in zip(sets, accuracy, strict=True):
                np.maximum(self.serves, value, out=self.serves, where=self._order.no_cheaper_than(int(number)))
        self.high[sets] = np.minimum(self.high[sets], accuracy)
        if self._diminishing:
            for feature in range(self._n_features):
                self._add_or_leave_out(feature)
        self._pass_down()

    def gaps(self) -> Floats:
        """`high(s) - serves(s)` of every set `s`: what is lost at most where what serves takes its place."""
        return np.asarray(self.high - self.serves)

    def observed_error(self) -> float:
        """By how much what is expanded falls short of being monotone and, if assumed, of diminishing returns."""
        expanded = ~np.isnan(self.accuracy)
        worst = np.max(self.low[expanded] - self.accuracy[expanded], initial=0.0)
        if self._diminishing:
            for feature in range(self._n_features):
                rises = self._rises(feature)
                known = ~np.isnan(rises)
                smallest = np.where(known, rises, np.inf)
                spread_to_supersets(smallest, np.minimum)
                worst = max(worst, np.max(rises[known] - smallest[known], initial=0.0))
            excess = np.max(self.accuracy[expanded] - self.high[expanded], initial=0.0)
            if worst <= self._error + ROUNDING < self._error + excess:
                worst = self._error + excess  # nothing that was seen twice tells, and yet it cannot be
        return float(worst)

    def _pass_down(self) -> None:
        """`a_s <= a_t + e <= high(t) + e` for all sets `t` around `s`."""
        if self._error == 0:
            spread_to_subsets(self.high, np.minimum)
            return
        around = self.high.copy()
        spread_to_subsets(around, np.minimum)
        np.minimum(self.high, around + self._error, out=self.high)

    def _rises(self, feature: int) -> Floats:
        """`a(s + l) - a(s)` for the sets `s` of all other features, NaN unless both are expanded."""
        without, with_it = _split(self.accuracy, feature)
        return np.asarray(with_it - without).reshape(-1)

    def _add_or_leave_out(self, feature: int) -> None:
        rises = self._rises(feature)
        known = ~np.isnan(rises)
        if not known.any():
            return
        without, with_it = _split(self.high, feature)
        most = np.where(known, rises + self._error, np.inf)
        spread_to_supersets(most, np.minimum)
        np.minimum(with_it, without + most.reshape(without.shape), out=with_it)
        least = np.where(known, rises - self._error, -np.inf)
        spread_to_subsets(least, np.maximum)
        np.minimum(without, with_it - least.reshape(without.shape), out=without)


def spread_to_supersets(values: Floats, choose: np.ufunc) -> None:
    """In place, for every set: the largest (or smallest) value among its parts, and its own."""
    for feature in range(_n_features(values)):
        without, with_it = _split(values, feature)
        choose(without, with_it, out=with_it)


def spread_to_subsets(values: Floats, choose: np.ufunc) -> None:
    """In place, for every set: the largest (or smallest) value among the sets around it, and its own."""
    for feature in range(_n_features(values)):
        without, with_it = _split(values, feature)
        choose(without, with_it, out=without)


def _n_features(values: Floats) -> int:
    return len(values).bit_length() - 1


def _split(values: Floats, feature: int) -> tuple[Floats, Floats]:
    """Views of the values of the sets without a feature and, in the same order, of those with it."""
    pairs = values.reshape(-1, 2, 1 << feature)
    return pairs[:, 0], pairs[:, 1]


def margins(
    expansions: Sequence[Expansion], chosen: Sequence[FeatureSet], n_features: int, guarantee: float, error: float
) -> Floats | None:
    """`M_c` of each chosen set (see `noise`), all of them expanded, (C,); None where the noise of some accuracy is not
    known, or sets are too many to be compared. No accuracy is more than 1 better than another, whatever its noise.
    """
    known = {one.features: one for one in expansions if one.accuracy is not None}
    noises = [one.noise for one in known.values() if one.noise is not None]
    comparable = len(noises) == len(known) and len({len(noise.parts) for noise in noises}) == 1
    if not comparable or n_features > MOST_PAIRED:
        return None
    if math.isinf(guarantee):
        guarantee = error = 0.0
    accuracy = np.array([one.accuracy for one in known.values()])
    parts = np.array([noise.parts for noise in noises])
    freedom, n_rows = min(noise.freedom for noise in noises), min(noise.rows for noise in noises)
    seldom = (1 - CONFIDENCE) / 4.0**n_features
    quantile, unseen = -float(stdtrit(freedom, seldom)), -math.log(seldom) / n_rows
    place = {features: number for number, features in enumerate(known)}
    found = []
    for number in map(place.__getitem__, chosen):
        ahead = accuracy - accuracy[number] - guarantee
        rivals = ahead <= ROUNDING
        variance = np.square(parts[rivals] - parts[number]).sum(axis=1) * (1 + 1 / freedom)
        bounds = quantile * np.sqrt(variance) + unseen + np.minimum(ahead[rivals] + error, 0.0)
        found.append(min(max(0.0, float(bounds.max())), 1.0))
    return np.array(found)
