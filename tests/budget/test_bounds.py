"""Bounds on the accuracy of all sets, against the definitions taken literally."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from protodask.budget.bounds import Bounds, agrees, spread_to_subsets, spread_to_supersets

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
