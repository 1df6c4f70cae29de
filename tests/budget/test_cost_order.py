"""Costs of sets, compared for all sizes at once."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protodask.budget.cost_order import MOST_COMPARED, CostOrder, coordinates, sums_of_sets
from protodask.budget.costs import CostCurves
from protodask.budget.polynomials import evaluate

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
