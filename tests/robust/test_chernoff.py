"""Chernoff's bound of uncertain rows, against enumeration, brackets, and an exponent by brute force."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from benchmarks._robust_certificates import eps_of_kappa, largest_kappa
from hypothesis import given
from hypothesis import strategies as st
from reference.uncertain_sets import two_points
from scipy.optimize import minimize_scalar

from protodask.engine.records import Floats
from protodask.robust import UncertainRows
from protodask.robust.brackets import worst_means
from protodask.robust.certified import BOUNDS, knowledge
from protodask.robust.chernoff import log_bounds, scaled
from protodask.robust.formulations import largest_deviation, unit_terms
from protodask.robust.spread import largest_growth

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


def bounds_of(rows: UncertainRows, side: Floats, weights: Floats, intercept: float) -> Floats:
    """Logarithms of the bounds, with what is left at the worst means."""
    margin = -(worst_means(unit_terms(rows, "MC"), side, weights) + side * intercept)
    return log_bounds(scaled(rows), side, weights, margin)


def growth_by_brute_force(t: float, low: float, high: float, sigma: float) -> float:
    """The largest `log E exp(t X)` of two points that have an end, over many means."""
    mean = np.linspace(low, high, MEANS) if low < high else np.array([high])
    variance = np.maximum(sigma**2 - mean**2, 0.0)
    share = variance / ((1 - mean) ** 2 + variance)
    return float(np.log(share * np.exp(t) + (1 - share) * np.exp(t * (mean - variance / (1 - mean)))).max())


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
    found = bounds_of(rows, side, weights, intercept)
    for name in ("SBMV", "SBMV-I"):
        bracket = -(largest_kappa(unit_terms(rows, name), side, weights, intercept) ** 2) / 2
        assert np.all(found <= bracket * (1 - 1e-6) + 1e-9)


@given(SEEDS, st.integers(1, 5))
def test_bounds__are_the_least_exponent(seed: int, features: int) -> None:
    rows, side, weights, intercept = drawn_rows(seed, 6, features)
    found = bounds_of(rows, side, weights, intercept)
    known = scaled(rows)
    for row, bound in enumerate(found):
        against = -side[row] * weights
        low = np.where(against > 0, known.low[row], -known.high[row])
        high = np.where(against > 0, known.high[row], -known.low[row])
        gain = known.half_width[row] * np.abs(weights)
        level = float(against @ rows.center[row] + side[row] * intercept)

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

        best = minimize_scalar(exponent, bounds=(-8, 8), method="bounded", options={"xatol": 1e-5}).fun
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
            x = rows.center[row] + known.half_width[row] * np.array([point for point, _ in chosen])
            if side[row] * (x @ weights - intercept) < -1e-12:
                wrong += float(np.prod([probability for _, probability in chosen]))
        assert wrong <= eps[row] * (1 + 1e-9) + 1e-12
    assert set(by.tolist()) <= set(range(len(BOUNDS)))


@given(SEEDS, st.integers(1, 4))
def test_least__is_the_least_of_what_is_known(seed: int, features: int) -> None:
    rows, side, weights, intercept = drawn_rows(seed, 40, features)
    eps, by = knowledge(rows, "SBMV-I").least(side, weights, intercept)
    chernoff = np.exp(bounds_of(rows, side, weights, intercept))
    variance = np.square(largest_deviation(rows)) @ np.square(weights)
    chebyshev = eps_of_kappa(largest_kappa(unit_terms(rows, "MC"), side, weights, intercept), "chebyshev")
    np.testing.assert_allclose(eps, np.minimum(chernoff, chebyshev), rtol=1e-6, atol=1e-300)
    assert np.all((by == 0) == (eps == 1))
    assert np.all((by == 1) == (eps == 0))
    assert np.all(chernoff[by == 2] < chebyshev[by == 2] * (1 + 1e-6))
    assert np.all((chebyshev <= chernoff * (1 + 1e-6))[by == 3])
    assert np.all(variance[by == 3] > 0)


def test_bounds__by_hand() -> None:
    # One coin of -1 and 1 with mean 0.5 and nothing else known: at t = log(3) / 2 E exp(-t X) is least, 0.866.
    rows = UncertainRows([[-1.0]], [[1.0]], [[0.5]], [[0.5]])
    eps, by = knowledge(rows, "SM").least(np.array([1.0]), np.array([2.0]), 0.0)
    assert eps == pytest.approx([0.75]), "Chebyshev: a variance of 0.75, a margin of 0.5"
    assert by.tolist() == [3]
    assert np.exp(bounds_of(rows, np.array([1.0]), np.array([2.0]), 0.0)) == pytest.approx([np.sqrt(0.75)])
    # Without a weight, or where the support is on one side, nothing can go wrong; with the mean on the other, anything.
    assert knowledge(rows, "SM").least(np.array([1.0]), np.array([0.0]), -1.0)[0] == [0.0]
    eps, by = knowledge(rows, "SM").least(np.array([1.0]), np.array([1.0]), -1.001)
    assert (eps[0], by[0]) == (0.0, 1)
    # An end of the support that is on the plane may be on either side, for what rounding knows.
    for side, intercept in ((1.0, -1.0), (-1.0, 1.0)):
        eps, by = knowledge(rows, "SM").least(np.array([side]), np.array([1.0]), intercept)
        assert eps[0] >= (0.25 if side > 0 else 0.75)
    eps, by = knowledge(rows, "SM").least(np.array([-1.0]), np.array([1.0]), 0.0)
    assert (eps[0], by[0]) == (1.0, 0)


@pytest.mark.parametrize("scale", [1e-149, 1e-100, 1e-20, 1.0, 1e20, 1e100])
@pytest.mark.parametrize("weight", [1e-70, 1e-20, 1.0, 1e30])
def test_least__is_the_same_in_other_units(scale: float, weight: float) -> None:
    rows = UncertainRows([[-scale]], [[scale]], [[0.5 * scale]], [[0.5 * scale]])
    if scale * weight > 1e-250:  # else it is a number of few digits
        for name in ("SM", "SM-I", "MC"):
            eps, _ = knowledge(rows, name).least(np.array([1.0]), np.array([weight]), 0.0)
            assert eps == pytest.approx([0.75], rel=1e-9)


def test_least__does_not_depend_on_features_that_say_nothing() -> None:
    """One that is known exactly in all but its support, beside many of next to no weight."""
    half = np.array([[1.0, *[1.0] * 30]])
    mean = np.array([[0.0, *[0.5] * 30]])
    rows = UncertainRows(-half, half, mean, mean, np.array([[0.0, *[0.3] * 30]]))
    found = []
    for gain in (1e-6, 1e-9, 1e-12, 1e-13, 1e-15):
        weights = np.array([1.0, *[gain] * 30])
        eps, _ = knowledge(rows, "SMV").least(np.array([1.0]), weights, 10 * gain)
        found.append(float(eps[0]))
    np.testing.assert_allclose(found[:3], found[0], rtol=1e-3)
    assert found[0] < 0.02


def test_least__of_many_features_is_not_0_for_rounding() -> None:
    half = np.ones((1, 1000))
    rows = UncertainRows(-half, half, 0.9 * half, 0.9 * half)
    eps, by = knowledge(rows, "SM").least(np.array([1.0]), np.ones(1000), 0.0)
    assert 0 < eps[0] < 1e-200
    assert by.tolist() == [2]


def test_least__far_from_the_origin_claims_no_more_than_is_so() -> None:
    """Exact arithmetic of two points for each feature, about as far from the plane as their digits reach."""
    random = np.random.default_rng(0)
    for _ in range(200):
        half = 10.0 ** random.uniform(-6, -3)
        center = 1.7e9 + random.uniform(0, 1e6, (1, 2))
        lower, upper = center - half, center + half
        mean = lower + (upper - lower) * random.uniform(0.2, 0.8, (1, 2))
        weights = random.normal(size=2)
        exact = [[Fraction(float(value)) for value in values[0]] for values in (lower, mean, upper)]
        factors = [Fraction(float(value)) for value in weights]
        intercept = float(sum(a * b for a, b in zip(factors, exact[1], strict=True))) - half * random.uniform(0.1, 3)
        eps, _ = knowledge(UncertainRows(lower, upper, mean, mean), "SM-I").least(np.array([1.0]), weights, intercept)
        wrong = Fraction(0)
        for ends in itertools.product((0, 2), repeat=2):
            shares = [(exact[1][j] - exact[0][j]) / (exact[2][j] - exact[0][j]) for j in range(2)]
            if sum(factors[j] * exact[ends[j]][j] for j in range(2)) < Fraction(intercept):
                wrong += math.prod(shares[j] if ends[j] else 1 - shares[j] for j in range(2))
        assert float(wrong) <= eps[0] * (1 + 1e-6) + 1e-12


@pytest.mark.parametrize("name", ["S", "MC", "SM", "SM-I", "SBMV"])
def test_least__of_what_is_on_the_plane_is_1_on_either_side(name: str) -> None:
    rows = UncertainRows.point(np.array([[0.0, 0.0], [1.0, 1.0], [0.5, -0.5]]))
    for side in (-1.0, 1.0):
        eps, by = knowledge(rows, name).least(np.full(3, side), np.array([1.0, 1.0]), 0.0)
        np.testing.assert_array_equal(eps, [1.0, 0.0 if side > 0 else 1.0, 1.0])
        np.testing.assert_array_equal(by[[0, 2]], 0)
    # Without weights there is no plane, and nothing that is not known could change a side.
    np.testing.assert_array_equal(knowledge(rows, name).least(np.ones(3), np.zeros(2), 0.0)[0], 0.0)


@pytest.mark.parametrize("side", [-1.0, 1.0])
def test_least__where_the_second_moment_bounds_the_mean_is_not_certain(side: float) -> None:
    # 0 or 0.4 against the side, 0.6 of the time: a mean square of 0.096, of the mean no more is known.
    lower, upper = sorted([-side, 3 * side])
    rows = UncertainRows([[lower]], [[upper]], second_moment=[[0.1]])
    bound, _ = knowledge(rows, "SBMV").least(np.array([side]), np.ones(1), -0.4 * side)
    assert bound[0] >= 0.6


@pytest.mark.parametrize("lower", [-1e9, -1e12, -1e30, -1e149])
@pytest.mark.parametrize("upper", [2.0, 1e6])
def test_least__of_an_end_that_is_far_away_is_chebyshevs(lower: float, upper: float) -> None:
    # A mean of 0 and a variance of 1: -3 with a probability of 0.1, 1/3 with 0.9.
    for rows in (
        UncertainRows([[lower]], [[upper]], [[0.0]], [[0.0]], [[1.0]]),
        UncertainRows([[-upper]], [[-lower]], [[0.0]], [[0.0]], [[1.0]]),
    ):
        for name in ("MC", "SBMV", "SMV-I"):
            side = 1.0 if rows.lower[0, 0] == lower else -1.0
            bound, _ = knowledge(rows, name).least(np.array([side]), np.ones(1), -3.0 * side)
            assert bound[0] == pytest.approx(0.1)
    # Next to an end: 0.5, on the plane, with a probability of 0.8, and else -2.
    near = UncertainRows([[lower]], [[1.0]], [[0.0]], [[0.0]], [[1.0]])
    bound, _ = knowledge(near, "SBMV").least(np.array([-1.0]), np.ones(1), 0.5)
    assert bound[0] >= 0.8 * (1 - 1e-9)
