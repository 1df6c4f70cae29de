"""Bounds on the accuracy of all sets, by the definitions taken literally, and costs, compared for all sizes at once."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from protodask.budget.bounds import (
    MOST_COMPARED,
    Bounds,
    CostOrder,
    agrees,
    coordinates,
    spread_to_subsets,
    spread_to_supersets,
    sums_of_sets,
)
from protodask.budget.costs import CostCurves
from protodask.budget.polynomials import evaluate

Floats = NDArray[np.float64]


def is_part(small: int, large: int) -> bool:
    return small & ~large == 0


def saturating(n_features: int, seed: int) -> Floats:
    """A sum of weights that saturates, and some items that any of several features tells: diminishing returns both."""
    rng = np.random.default_rng(seed)
    weights = rng.exponential(size=n_features) ** 2
    tells = rng.random((n_features, 12)) < 0.3
    values = np.zeros(1 << n_features)
    for number in range(1 << n_features):
        inside = [feature for feature in range(n_features) if number >> feature & 1]
        values[number] = 0.5 - 0.5 * np.exp(-weights[inside].sum()) + 0.5 * tells[inside].any(axis=0).mean()
    return values


def test_agrees__allows_for_the_rounding_of_differences_and_no_more() -> None:
    assert 0.91 - 0.9 > 0.01
    assert agrees(0.91 - 0.9, 0.01)
    assert not agrees(0.0101, 0.01)


@given(st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_spreading__is_the_extreme_over_parts_and_over_sets_around(n_features: int, seed: int) -> None:
    values = np.random.default_rng(seed).integers(0, 9, 1 << n_features).astype(np.float64)
    sets = range(1 << n_features)
    up, down = values.copy(), values.copy()
    spread_to_supersets(up, np.maximum)
    spread_to_subsets(down, np.minimum)
    for one in sets:
        assert up[one] == max(values[other] for other in sets if is_part(other, one))
        assert down[one] == min(values[other] for other in sets if is_part(one, other))


@given(st.integers(1, 6), st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.125]))
def test_bounds__of_monotone_accuracy_are_the_definitions(n_features: int, seed: int, error: float) -> None:
    rng = np.random.default_rng(seed)
    accuracy = rng.integers(0, 9, 1 << n_features) / 8
    order = rng.permutation(1 << n_features)[: rng.integers(1, 1 << n_features, endpoint=True)]
    bounds = Bounds(n_features, error, diminishing_returns=False)
    for layer in np.array_split(order, 3):
        bounds.learn(layer, accuracy[layer])
    for one in set(range(1 << n_features)) - set(order.tolist()):
        below = [accuracy[other] for other in order if is_part(int(other), one)]
        above = [accuracy[other] + error for other in order if is_part(one, int(other))]
        assert bounds.low[one] == max(below, default=-np.inf)
        assert bounds.high[one] == min(above, default=np.inf)
    drops = [accuracy[r] - accuracy[s] for s in order for r in order if is_part(int(r), int(s))]
    assert bounds.observed_error() == max(drops)


@given(st.integers(1, 7), st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.02]))
def test_bounds__with_diminishing_returns_hold(n_features: int, seed: int, error: float) -> None:
    rng = np.random.default_rng(seed)
    # Off by a quarter each, differences are off by half and differences of these by the whole of the error.
    accuracy = saturating(n_features, seed) + rng.uniform(-error, error, 1 << n_features) / 4
    order = rng.permutation(1 << n_features)[: rng.integers(1, 1 << n_features, endpoint=True)]
    plain, lower = (Bounds(n_features, error, diminishing_returns=assumed) for assumed in (False, True))
    for layer in np.array_split(order, 3):
        plain.learn(layer, accuracy[layer])
        lower.learn(layer, accuracy[layer])
        assert (accuracy <= lower.high + 1e-12).all()
        assert (lower.high <= plain.high + 1e-12).all()
    assert lower.observed_error() <= error + 1e-12


def test_bounds__with_diminishing_returns_by_hand() -> None:
    bounds = Bounds(3, 0.0, diminishing_returns=True)
    sets = np.array([0b000, 0b001, 0b010, 0b100, 0b111, 0b110])
    bounds.learn(sets, np.array([0.5, 0.6, 0.55, 0.51, 0.62, 0.56]))
    # Covering: what features 0 and 2 add to nothing, they add to each other at most.
    assert bounds.high[0b101] == pytest.approx(0.5 + 0.1 + 0.01)
    # From above as well: feature 0 adds 0.06 to all others, so that it adds that much to fewer at least.
    assert bounds.high[0b011] == pytest.approx(0.62)
    downwards = Bounds(2, 0.0, diminishing_returns=True)
    downwards.learn(np.array([0b11, 0b10, 0b01]), np.array([0.9, 0.7, 0.8]))
    assert downwards.high[0b00] == pytest.approx(0.9 - 0.2 - 0.1)


@pytest.mark.parametrize(("error", "observed"), [(0.0, 0.4), (0.1, 0.4)])
def test_observed_error__of_a_feature_that_adds_more_to_more(error: float, observed: float) -> None:
    bounds = Bounds(2, error, diminishing_returns=True)
    bounds.learn(np.array([0b00, 0b01, 0b10, 0b11]), np.array([0.5, 0.5, 0.5, 0.9]))
    assert bounds.observed_error() == pytest.approx(observed)


def test_observed_error__of_an_accuracy_above_its_bound() -> None:
    """No feature was added to two sets, and yet returns cannot diminish."""
    bounds = Bounds(3, 0.0, diminishing_returns=True)
    bounds.learn(np.array([0b000, 0b001, 0b010, 0b100, 0b111]), np.array([0.5, 0.5, 0.5, 0.5, 1.0]))
    assert bounds.observed_error() == pytest.approx(0.5)


SEEDS = st.integers(0, 2**32 - 1)
RANGES = st.sampled_from([(0, math.inf), (0, 10), (1, 100), (2, 2), (3, math.inf), (0, 0), (0.5, 1e250)])


def draw_costs(n_features: int, degree: int, seed: int, sizes: tuple[float, float]) -> CostCurves:
    """Of few values or many, with overheads that features share, and now and then with coefficients below zero."""
    rng = np.random.default_rng(seed)
    costs = rng.exponential(size=(n_features, degree + 1))
    if rng.random() < 0.5:
        costs = np.round(costs * 2) / 10
    if rng.random() < 0.3:
        costs[:, 0] = 0.1
    if degree == 2 and rng.random() < 0.3:
        costs[:, 1] = -np.sqrt(costs[:, 0] * costs[:, 2])  # a quarter of what would make it negative somewhere
    return CostCurves.of(costs, sizes)


def sizes_within(curves: CostCurves) -> list[float]:
    high = min(curves.high, 1e6)
    drawn = np.random.default_rng(0).random(20)
    return [curves.low, high, *(curves.low + (high - curves.low) * drawn**4)]


@settings(max_examples=80)
@given(st.integers(1, 6), st.integers(0, 3), SEEDS, RANGES)
def test_cost_order__is_right_at_every_size(
    n_features: int, degree: int, seed: int, sizes: tuple[float, float]
) -> None:
    curves = draw_costs(n_features, degree, seed, sizes)
    order, sums = CostOrder(curves), sums_of_sets(curves.coefficients)
    costs = np.stack([evaluate(sums, size) for size in sizes_within(curves)])
    for number in range(1 << n_features):
        dearer = order.no_cheaper_than(number)
        assert dearer[number]
        assert (costs[:, dearer] >= costs[:, [number]]).all(), "as computed, to the last bit"


@given(st.integers(1, 5), SEEDS)
def test_cost_order__of_costs_in_proportion_to_the_size_knows_all(n_features: int, seed: int) -> None:
    """With a range of sizes, costs that are straight lines are compared at its ends, which is all there is."""
    curves = draw_costs(n_features, 1, seed, (1, 7))
    order, sums = CostOrder(curves), sums_of_sets(curves.coefficients)
    ends = np.stack([evaluate(sums, size) for size in (1, 7)])
    for number in range(1 << n_features):
        clearly = (ends * (1 - 1e-6) >= ends[:, [number]]).all(axis=0)
        assert order.no_cheaper_than(number)[clearly].all()


@given(st.integers(1, 6), st.integers(0, 3), SEEDS, RANGES)
def test_cheapest__are_those_that_none_is_cheaper_than(
    n_features: int, degree: int, seed: int, sizes: tuple[float, float]
) -> None:
    curves = draw_costs(n_features, degree, seed, sizes)
    sets = np.flatnonzero(np.random.default_rng(seed).random(1 << n_features) < 0.6)
    found = CostOrder(curves).cheapest(sets)
    assert set(found) <= set(sets)
    assert (len(found) > 0) == (len(sets) > 0)
    known = coordinates(curves)
    sums = sums_of_sets(curves.coefficients if known is None or sizes == (0, math.inf) else known)
    for one in sets:
        cheaper = [other for other in sets if (sums[other] <= sums[one]).all() and (sums[other] < sums[one]).any()]
        assert (one in found) == (not cheaper)


def test_cheapest__of_very_many_are_some_of_the_cheapest() -> None:
    curves = CostCurves.of(np.random.default_rng(0).random((13, 2)))
    found = CostOrder(curves).cheapest(np.arange(1, 1 << 13))
    assert 0 < len(found) <= MOST_COMPARED
    few = CostOrder(curves).cheapest(np.array([1 << feature for feature in range(13)]))
    assert set(found) == set(few), "a single feature is cheaper than all sets with it"


@given(st.integers(1, 8), st.integers(1, 3), SEEDS)
def test_sums_of_sets__are_those_of_the_curves(n_features: int, degree: int, seed: int) -> None:
    curves = draw_costs(n_features, degree, seed, (0, math.inf))
    sums = sums_of_sets(curves.coefficients)
    for number in range(1 << n_features):
        features = frozenset(feature for feature in range(n_features) if number >> feature & 1)
        np.testing.assert_array_equal(sums[number], curves.of_set(features))


def test_coordinates__by_hand() -> None:
    curves = CostCurves.of([[1, 0, 1]], (1, 3))
    # 1 + n^2 with n = 1 + 2u: 2 + 4u + 4u^2, in Bernstein's basis 2, 2 + 4/2, 2 + 4 + 4.
    assert np.array(coordinates(curves)).tolist() == [[2, 4, 10]]
    upward = CostCurves.of([[1, 0, 1]], (1, math.inf))
    assert np.array(coordinates(upward)).tolist() == [[2, 2, 1]]


@pytest.mark.parametrize(("sizes", "known"), [((1, 1e250), True), ((1e250, math.inf), False)])
def test_coordinates__beyond_the_range_of_floats(sizes: tuple[float, float], known: bool) -> None:
    curves = CostCurves.of([[1, 0, 1], [1, 1, 1]], sizes)
    assert (coordinates(curves) is not None) == known
    np.testing.assert_array_equal(CostOrder(curves).no_cheaper_than(0b01), [False, True, True, True])
