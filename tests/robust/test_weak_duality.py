import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from reference import brackets as reference
from support.robust_terms import draw

from protodask.robust.brackets import bracket
from protodask.robust.weak_duality import best_intercept, dual_bound, plane_of

SEEDS = st.integers(0, 10**6)


def two_labels(seed: int, samples: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.concatenate([[-1.0, 1.0], rng.choice([-1.0, 1.0], samples - 2)])


@given(SEEDS, st.integers(2, 9))
def test_best_intercept__is_the_best_of_all_kinks(seed: int, samples: int) -> None:
    rng = np.random.default_rng(seed)
    sign = two_labels(seed, samples)
    # Whole numbers and equal costs make flat stretches.
    asked, costs = rng.integers(-3, 4, samples).astype(float), rng.integers(1, 3, samples).astype(float)

    def total(b: float) -> float:
        return float(costs @ np.maximum(asked + sign * b, 0.0))

    near = float(rng.normal()) * 3
    found = best_intercept(asked, sign, costs, near)
    kinks = (-sign * asked).tolist()
    least = min(map(total, kinks))
    assert_allclose(total(found), least, atol=1e-12)
    nearest = min((abs(kink - near) for kink in kinks if total(kink) <= least + 1e-12), default=0.0)
    assert abs(found - near) <= nearest + 1e-12


@given(SEEDS, st.integers(2, 8), st.integers(1, 5), st.booleans())
def test_plane_of__has_the_objective_of_the_formula(seed: int, samples: int, features: int, intersected: bool) -> None:
    drawn = draw(seed, samples, features, intersected)
    sign = two_labels(seed, samples)
    rng = np.random.default_rng(seed)
    costs, weights = rng.exponential(size=samples), rng.normal(size=features)
    plane = plane_of(drawn.terms, sign, costs, weights, 0.0)
    values, _ = bracket(drawn.terms, sign, weights)
    expected = reference.objective(
        values.tolist(), [int(s) for s in sign], costs.tolist(), weights.tolist(), plane.intercept
    )
    assert_allclose(plane.objective, expected)


@given(SEEDS, st.integers(2, 8), st.integers(1, 5), st.booleans())
def test_dual_bound__of_any_multipliers_and_points_holds_for_any_plane(
    seed: int, samples: int, features: int, intersected: bool
) -> None:
    drawn = draw(seed, samples, features, intersected)
    sign = two_labels(seed, samples)
    rng = np.random.default_rng(seed)
    costs = rng.exponential(size=samples)
    multipliers = rng.normal(size=samples) * 10.0 ** rng.uniform(-3, 1)
    points = multipliers[:, None] * (drawn.terms.mean_low + rng.normal(size=(samples, features)))
    bound = dual_bound(drawn.terms, sign, costs, multipliers, points)
    for weights in (np.zeros(features), bound.weights, *rng.normal(size=(4, features))):
        plane = plane_of(drawn.terms, sign, costs, weights, float(rng.normal()))
        assert bound.value <= plane.objective * (1 + 1e-12)


def test_dual_bound__of_two_points_by_hand() -> None:
    # Points at -1 and 1: w = 1, b = 0 has the objective 1/2, which the multipliers 1/2 and 1/2 attain.
    drawn = draw(0, 2, 1, intersected=False)
    at = np.array([[-1.0], [1.0]])
    terms = type(drawn.terms)(at, at, 0 * at)
    bound = dual_bound(terms, at[:, 0], np.array([4.0, 4.0]), np.array([0.5, 0.7]), np.array([0.5, 0.7])[:, None] * at)
    assert_allclose([bound.value, bound.weights[0]], [0.5, 1.0])
