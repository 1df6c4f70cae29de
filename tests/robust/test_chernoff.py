"""Chernoff's bound of uncertain rows, against enumeration, brackets, and an exponent by brute force."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference.uncertain_sets import two_points
from scipy.optimize import minimize_scalar

from protodask.robust import UncertainRows
from protodask.robust.certified import BOUNDS, eps_of_kappa, knowledge, largest_kappa
from protodask.robust.chernoff import log_bounds, scaled
from protodask.robust.formulations import largest_deviation, unit_terms
from protodask.robust.spread import largest_growth
from protodask.robust.terms import Floats

SEEDS = st.integers(0, 10**6)
MEANS = 4001


def drawn_rows(seed: int, samples: int, features: int) -> tuple[UncertainRows, Floats, Floats, float]:
    """Rows of which features are known exactly, roughly or not at all, the side of their middles, and a plane."""
    random = np.random.default_rng(seed)
    shape = (samples, features)
    center, half = random.normal(size=shape), random.uniform(0.1, 1, shape) * random.choice([0.0, 1.0, 1.0, 1.0], shape)
    mean, slack = random.uniform(-0.9, 0.9, shape), random.choice([0.0, 0.0, 0.1, 0.4], shape)
    low, high = np.clip(mean - slack, -1, 1), np.clip(mean + slack, -1, 1)
    least = np.maximum(low**2, high**2)
    second = least + (1 - least) * random.random(shape) ** 2 * random.choice([0.0, 1.0, 1.0], shape)
    rows = UncertainRows(
        center - half, center + half, center + half * low, center + half * high, half**2 * second, center
    )
    weights = random.normal(size=features) * random.choice([0.0, 1.0, 1.0], features)
    intercept = float(0.3 * random.normal() + center.mean(axis=0) @ weights)
    side = np.where(rows.mean_midpoint @ weights - intercept >= 0, 1.0, -1.0)
    return rows, side, weights, intercept


def growth_by_brute_force(t: float, low: float, high: float, sigma: float) -> float:
    """The largest `log E exp(t X)` of two points that have an end, over many means."""
    found = -np.inf
    for mean in np.linspace(low, high, MEANS) if low < high else [high]:
        points, probabilities = two_points(float(mean), sigma**2, upper_end=True)
        found = max(found, float(np.log(probabilities @ np.exp(t * points))))
    return found


@given(SEEDS, st.floats(1e-3, 20))
def test_growth__is_that_of_two_points_at_the_worst_mean(seed: int, t: float) -> None:
    random = np.random.default_rng(seed)
    low, high = np.sort(random.uniform(-0.95, 0.95, 2))
    least = max(low**2, high**2)
    sigma = np.sqrt(least + (1 - least) * random.random() ** 2)
    growth, slope = (values[0] for values in largest_growth(*(np.array([v]) for v in (t, low, high, sigma))))
    brute = growth_by_brute_force(t, low, high, sigma) - high * t
    assert growth >= brute - 1e-12 * (1 + t)
    assert growth == pytest.approx(brute, abs=1e-4)
    step = 1e-5 * t
    beside = [largest_growth(*(np.array([v]) for v in (t + d, low, high, sigma)))[0][0] for d in (-step, step)]
    assert slope == pytest.approx((beside[1] - beside[0]) / (2 * step), abs=1e-5)


@given(SEEDS, st.integers(1, 6))
def test_bounds__never_exceed_those_of_brackets(seed: int, features: int) -> None:
    rows, side, weights, intercept = drawn_rows(seed, 30, features)
    found = log_bounds(scaled(rows), side, weights, intercept)
    for name in ("SBMV", "SBMV-I"):
        bracket = -(largest_kappa(unit_terms(rows, name), side, weights, intercept) ** 2) / 2
        assert np.all(found <= bracket * (1 - 1e-6) + 1e-9)


@given(SEEDS, st.integers(1, 5))
def test_bounds__are_the_least_exponent(seed: int, features: int) -> None:
    rows, side, weights, intercept = drawn_rows(seed, 6, features)
    found = log_bounds(scaled(rows), side, weights, intercept)
    known = scaled(rows)
    for row, bound in enumerate(found):
        against = -side[row] * weights
        low = np.where(against > 0, known.low[row], -known.high[row])
        high = np.where(against > 0, known.high[row], -known.low[row])
        gain = known.half_width[row] * np.abs(weights)
        level = float(against @ known.center[row] + side[row] * intercept)

        def exponent(
            log_t: float,
            gain: Floats = gain,
            low: Floats = low,
            high: Floats = high,
            level: float = level,
            row: int = row,
        ) -> float:
            t = np.exp(log_t)
            growth, _ = largest_growth(t * gain, low, high, known.sigma[row])
            return float(t * level + (growth + high * t * gain).sum())

        best = minimize_scalar(exponent, bounds=(-8, 8), method="bounded", options={"xatol": 1e-9}).fun
        if np.isfinite(bound) and bound > -25:
            assert bound <= min(best, 0) + 1e-3 * (1 + abs(best))


@given(SEEDS, st.integers(1, 4))
def test_bounds__hold_for_two_points(seed: int, features: int) -> None:
    """Every feature at a mean within its bounds, with the largest second moment, and an end of the support."""
    rows, side, weights, intercept = drawn_rows(seed, 12, features)
    random = np.random.default_rng(seed)
    known = scaled(rows)
    eps, by = knowledge(rows, "SBMV").least(side, weights, intercept)
    for row in range(len(rows)):
        outcomes = []
        for j in range(features):
            mean = random.uniform(known.low[row, j], known.high[row, j])
            points, probabilities = two_points(
                mean, max(known.sigma[row, j] ** 2, mean**2), upper_end=bool(random.random() < 0.5)
            )
            points = np.clip(points, -1, 1)
            outcomes.append(list(zip(points, probabilities, strict=True)))
        wrong = 0.0
        for chosen in itertools.product(*outcomes):
            x = known.center[row] + known.half_width[row] * np.array([point for point, _ in chosen])
            if side[row] * (x @ weights - intercept) < -1e-12:
                wrong += float(np.prod([probability for _, probability in chosen]))
        assert wrong <= eps[row] * (1 + 1e-9) + 1e-12
    assert set(by.tolist()) <= set(range(len(BOUNDS)))


@given(SEEDS, st.integers(1, 4))
def test_least__is_the_least_of_what_is_known(seed: int, features: int) -> None:
    rows, side, weights, intercept = drawn_rows(seed, 40, features)
    eps, by = knowledge(rows, "SBMV-I").least(side, weights, intercept)
    chernoff = np.exp(log_bounds(scaled(rows), side, weights, intercept))
    variance = np.square(largest_deviation(rows)) @ np.square(weights)
    chebyshev = eps_of_kappa(largest_kappa(unit_terms(rows, "MC"), side, weights, intercept), "chebyshev")
    np.testing.assert_array_equal(eps, np.minimum(chernoff, chebyshev))
    assert np.all((by == 0) == (eps == 1))
    assert np.all((by == 1) == (eps == 0))
    assert np.all(chernoff[by == 2] < chebyshev[by == 2])
    assert np.all((chebyshev <= chernoff)[by == 3])
    assert np.all(variance[by == 3] > 0)


def test_bounds__by_hand() -> None:
    # One coin of -1 and 1 with mean 0.5 and nothing else known: at t = log(3) / 2 E exp(-t X) is least, 0.866.
    rows = UncertainRows([[-1.0]], [[1.0]], [[0.5]], [[0.5]])
    eps, by = knowledge(rows, "SM").least(np.array([1.0]), np.array([2.0]), 0.0)
    assert eps == pytest.approx([0.75]), "Chebyshev: a variance of 0.75, a margin of 0.5"
    assert by.tolist() == [3]
    assert np.exp(log_bounds(scaled(rows), np.array([1.0]), np.array([2.0]), 0.0)) == pytest.approx([np.sqrt(0.75)])
    # Without a weight, or where the support is on one side, nothing can go wrong; with the mean on the other, anything.
    assert knowledge(rows, "SM").least(np.array([1.0]), np.array([0.0]), -1.0)[0] == [0.0]
    eps, by = knowledge(rows, "SM").least(np.array([1.0]), np.array([1.0]), -1.0)
    assert (eps[0], by[0]) == (0.0, 1)
    eps, by = knowledge(rows, "SM").least(np.array([-1.0]), np.array([1.0]), 0.0)
    assert (eps[0], by[0]) == (1.0, 0)
