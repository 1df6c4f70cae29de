import numpy as np
import pytest
from benchmarks._robust_certificates import certify, eps_of_kappa, largest_kappa, sides
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from support.robust_terms import draw

from protodask.engine.records import Floats
from protodask.robust.brackets import bracket
from protodask.robust.terms import Terms

SEEDS = st.integers(0, 10**6)


def at_kappa(terms: Terms, kappa: float) -> Terms:
    return Terms(terms.mean_low, terms.mean_high, kappa * terms.spread, terms.lower, terms.upper)


def certifies(terms: Terms, y: np.ndarray, weights: Floats, intercept: float, kappa: float) -> np.ndarray:
    return np.asarray(bracket(at_kappa(terms, kappa), y, weights)[0] + y * intercept <= 0)


@given(SEEDS, st.integers(1, 6), st.integers(1, 6), st.booleans())
def test_largest_kappa__certifies_and_no_larger_one_does(
    seed: int, samples: int, features: int, intersected: bool
) -> None:
    drawn = draw(seed, samples, features, intersected)
    rng = np.random.default_rng(seed)
    weights, intercept = rng.normal(size=features) * rng.choice([0.0, 1.0, 1.0], features), float(rng.normal())
    found = largest_kappa(drawn.terms, drawn.y, weights, intercept)
    for row, kappa in enumerate(found):
        one = Terms(*(None if a is None else a[row : row + 1] for a in vars(drawn.terms).values()))  # type: ignore[arg-type]
        y = drawn.y[row : row + 1]
        if np.isinf(kappa):
            assert certifies(one, y, weights, intercept, 1e6)[0]
        else:
            assert not certifies(one, y, weights, intercept, kappa * (1 + 1e-6) + 1e-9)[0]
            if kappa > 0:
                assert certifies(one, y, weights, intercept, kappa * (1 - 1e-6))[0]


@given(SEEDS, st.integers(1, 6), st.integers(1, 6))
def test_certify__the_support_never_makes_it_worse(seed: int, samples: int, features: int) -> None:
    terms = draw(seed, samples, features, intersected=True).terms
    rng = np.random.default_rng(seed)
    weights, intercept = rng.normal(size=features), float(rng.normal())
    inside = certify(terms, weights, intercept)
    plain = certify(Terms(terms.mean_low, terms.mean_high, terms.spread), weights, intercept)
    assert_array_equal(inside.side, plain.side)
    assert np.all(inside.eps <= plain.eps * (1 + 1e-9))
    assert np.all((inside.eps >= 0) & (plain.eps <= 1))


def test_certify__by_hand() -> None:
    # Means from 1 to 2 and at -1; one unit of spread is 0.5; the plane is at 0.
    terms = Terms(np.array([[1.0], [-1.0]]), np.array([[2.0], [-1.0]]), np.full((2, 1), 0.5))
    found = certify(terms, np.array([3.0]), 0.0)
    assert_array_equal(found.side, [1, -1])
    assert_allclose(found.kappa, [2.0, 2.0])
    assert_allclose(found.eps, np.exp([-2.0, -2.0]))
    assert_allclose(certify(terms, np.array([3.0]), 0.0, "chebyshev").eps, [0.2, 0.2])


def test_certify__within_the_support_by_hand() -> None:
    # Mean (2, 2), the sum decides; the second feature stops at a deviation of 0.5, so the first goes 3.5 of the 4.
    lower, upper = np.array([[-9.0, 1.5]]), np.array([[9.0, 2.5]])
    at = np.array([[2.0, 2.0]])
    found = certify(Terms(at, at, np.ones((1, 2)), lower, upper), np.array([1.0, 1.0]), 0.0)
    assert_allclose(found.kappa, [np.hypot(3.5, 0.5)])
    # With the first from 0 on, nothing possible is on the other side.
    lower[0, 0] = 0.0
    found = certify(Terms(at, at, np.ones((1, 2)), lower, upper), np.array([1.0, 1.0]), 0.0)
    assert_array_equal([found.kappa[0], found.eps[0]], [np.inf, 0.0])


def test_certify__where_the_means_are_on_both_sides_certifies_nothing() -> None:
    terms = Terms(np.array([[-1.0]]), np.array([[2.0]]), np.array([[0.5]]))
    found = certify(terms, np.array([1.0]), 0.0)
    assert_array_equal([found.side[0], found.kappa[0], found.eps[0]], [1, 0.0, 1.0])


@pytest.mark.parametrize("intersected", [False, True])
def test_certify__without_weights_has_one_side_for_all(intersected: bool) -> None:
    terms = draw(1, 5, 3, intersected).terms
    for intercept, side in ((-1.0, 1), (1.0, -1)):
        found = certify(terms, np.zeros(3), intercept)
        assert_array_equal(found.side, np.full(5, side))
        assert_array_equal(found.eps, np.zeros(5))


def test_sides__of_a_middle_on_the_plane_is_1() -> None:
    terms = Terms(np.array([[0.0], [0.0], [0.0]]), np.array([[2.0], [2.1], [1.9]]), np.zeros((3, 1)))
    assert_array_equal(sides(terms, np.array([1.0]), 1.0), [1, 1, -1])


def test_eps_of_kappa__is_that_of_the_formulations() -> None:
    eps = np.array([0.5, 0.1, 0.01])
    assert_allclose(eps_of_kappa(np.sqrt(2 * np.log(1 / eps))), eps)
    assert_allclose(eps_of_kappa(np.sqrt((1 - eps) / eps), "chebyshev"), eps)
    assert_array_equal(eps_of_kappa(np.array([0.0, 1e200, np.inf]), "chebyshev"), [1.0, 0.0, 0.0])


def test_certify__at_the_spread_of_training_is_the_constraint_of_training() -> None:
    drawn = draw(2, 200, 4, intersected=True)
    weights, intercept = np.array([1.0, -0.5, 0.3, 2.0]), 0.2
    kappa = np.sqrt(2 * np.log(1 / 0.3))
    side = sides(drawn.terms, weights, intercept)
    constraint = bracket(at_kappa(drawn.terms, kappa), side, weights)[0] + side * intercept <= 0
    certified = certify(drawn.terms, weights, intercept).eps <= 0.3
    assert 0 < certified.sum() < 200
    assert_array_equal(certified, constraint)


@pytest.mark.parametrize("intersected", [False, True])
def test_certify__bounds_what_two_values_do(intersected: bool) -> None:
    # Features at either end of their support with mean m: of the spread 1 (Hoeffding) the bound holds for all of them.
    rng = np.random.default_rng(3)
    weights, intercept = np.array([1.0, 0.5, -0.7]), 0.1
    means = rng.uniform(-0.9, 0.9, (40, 3))
    ends: tuple[Floats, ...] = (-np.ones((40, 3)), np.ones((40, 3))) if intersected else ()
    found = certify(Terms(means, means, np.ones((40, 3)), *ends), weights, intercept)
    draws = np.where(rng.random((20_000, 40, 3)) < (1 + means) / 2, 1.0, -1.0)
    wrong = (found.side * (draws @ weights - intercept) < 0).mean(axis=0)
    assert (found.eps < 1).sum() > 10
    assert np.all(wrong <= found.eps + 4 * np.sqrt(0.25 / 20_000))
