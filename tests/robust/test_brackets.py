import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from reference import brackets as reference
from support.robust_terms import Drawn, draw, sample_of

from protodask.engine.records import Floats, taken
from protodask.robust import brackets
from protodask.robust.brackets import NEGLIGIBLE, _fractions, _limits, bracket, clipped_to_ball, extremes, worst_means
from protodask.robust.terms import Terms

SEEDS = st.integers(0, 10**6)
SHAPES = st.tuples(st.integers(1, 6), st.integers(1, 8))


def plane(seed: int, features: int) -> Floats:
    rng = np.random.default_rng(seed)
    return np.asarray(rng.normal(size=features) * rng.choice([0.0, 1e-3, 1.0, 1.0], size=features))


def size(terms: Terms, weights: Floats) -> float:
    """What rounding errors are relative to."""
    reach = np.maximum(np.abs(terms.mean_low), np.abs(terms.mean_high)) + terms.spread
    return float((reach @ np.abs(weights)).max()) + 1e-300


def upper_bounds(terms: Terms, y: NDArray[np.generic], weights: Floats) -> Floats:
    """A bound of each bracket from above, by the multipliers of the solution found: the values' certificate, (N,)."""
    sign = np.asarray(y, dtype=np.float64)
    direction = -sign[:, None] * np.sign(weights)
    bound = worst_means(terms, y, weights)
    gain = terms.spread * np.abs(weights)
    if terms.lower is None:
        bound += np.linalg.norm(gain, axis=1)
        return bound
    limits = _limits(terms, direction)
    fractions = _fractions(terms, weights, limits)
    moving = gain > NEGLIGIBLE * gain.max(axis=1, keepdims=True)
    free = moving & (fractions < limits)
    # tau from the features short of the support; without any of them the multiplier of the ball is 0.
    square = np.where(free, gain, 0.0)
    length = np.linalg.norm(np.where(free, fractions, 0.0), axis=1)
    tau = np.divide(length, np.linalg.norm(square, axis=1), out=np.full(len(gain), np.inf), where=free.any(axis=1))
    kept = np.minimum(gain, np.divide(limits, tau[:, None], out=np.full(gain.shape, np.inf), where=tau[:, None] > 0))
    bound += np.linalg.norm(kept, axis=1) + np.einsum("nd,nd->n", gain - kept, limits)
    return bound


@settings(max_examples=60)
@given(SEEDS, SHAPES, st.booleans())
def test_bracket__is_the_formula_of_each_sample(seed: int, shape: tuple[int, int], intersected: bool) -> None:
    drawn = draw(seed, *shape, intersected)
    weights = plane(seed + 1, shape[1])
    values, _ = bracket(drawn.terms, drawn.y, weights)
    expected = [
        reference.bracket(sample_of(drawn.terms, row), int(y), weights.tolist()) for row, y in enumerate(drawn.y)
    ]
    assert_allclose(values, expected, atol=2e-7 * size(drawn.terms, weights))


@given(SEEDS, SHAPES, st.booleans())
def test_bracket__bounds_from_both_sides_meet(seed: int, shape: tuple[int, int], intersected: bool) -> None:
    drawn = draw(seed, *shape, intersected)
    weights = plane(seed + 1, shape[1])
    values, _ = bracket(drawn.terms, drawn.y, weights)
    assert_allclose(values, upper_bounds(drawn.terms, drawn.y, weights), atol=1e-13 * size(drawn.terms, weights))


@given(SEEDS, SHAPES, st.booleans())
def test_extreme_points__are_possible(seed: int, shape: tuple[int, int], intersected: bool) -> None:
    drawn = draw(seed, *shape, intersected)
    weights = plane(seed + 1, shape[1])
    for soft in (0.0, 1e-3, 1.0):
        for row, point in enumerate(extremes(drawn.terms, drawn.y, weights, soft).points):
            assert reference.is_possible(sample_of(drawn.terms, row), point.tolist())


@given(SEEDS, SHAPES, st.booleans())
def test_extreme_points__without_a_weight_are_middles_of_means(
    seed: int, shape: tuple[int, int], intersected: bool
) -> None:
    terms, y = draw(seed, *shape, intersected).terms, draw(seed, *shape, intersected).y
    weights = plane(seed + 1, shape[1])
    weights[0] = 0
    middle = (terms.mean_low[:, 0] + terms.mean_high[:, 0]) / 2
    for labels in (y, -y):
        assert_allclose(
            extremes(terms, labels, weights).points[:, 0], middle, atol=1e-12 * size(terms, np.ones(shape[1]))
        )


@given(SEEDS, SHAPES, st.booleans())
def test_bracket__subgradients_are_minorants_everywhere(seed: int, shape: tuple[int, int], intersected: bool) -> None:
    drawn = draw(seed, *shape, intersected)
    weights = plane(seed + 1, shape[1])
    values, subgradients = bracket(drawn.terms, drawn.y, weights)
    assert_allclose(values, subgradients @ weights, atol=1e-13 * size(drawn.terms, weights))
    for other_seed in range(8):
        other = plane(seed + 2 + other_seed, shape[1])
        elsewhere, _ = bracket(drawn.terms, drawn.y, other)
        assert np.all(subgradients @ other <= elsewhere + 1e-12 * size(drawn.terms, other))


@given(SEEDS, SHAPES, st.booleans())
def test_bracket__is_convex_and_positively_homogeneous(seed: int, shape: tuple[int, int], intersected: bool) -> None:
    drawn = draw(seed, *shape, intersected)
    left, right = plane(seed + 1, shape[1]), plane(seed + 2, shape[1])

    def value(weights: Floats) -> Floats:
        return bracket(drawn.terms, drawn.y, weights)[0]

    rounding = 1e-12 * (size(drawn.terms, left) + size(drawn.terms, right))
    assert np.all(value(0.3 * left + 0.7 * right) <= 0.3 * value(left) + 0.7 * value(right) + rounding)
    assert_allclose(value(1e5 * left), 1e5 * value(left), atol=1e5 * rounding)


@given(SEEDS, SHAPES)
def test_bracket__within_the_support_is_never_larger(seed: int, shape: tuple[int, int]) -> None:
    drawn = draw(seed, *shape, intersected=True)
    terms = drawn.terms
    weights = plane(seed + 1, shape[1])
    inside, _ = bracket(terms, drawn.y, weights)
    plain, _ = bracket(Terms(terms.mean_low, terms.mean_high, terms.spread), drawn.y, weights)
    assert terms.lower is not None
    assert terms.upper is not None
    support, _ = bracket(Terms(terms.lower, terms.upper, np.zeros_like(terms.spread)), drawn.y, weights)
    assert np.all(inside <= np.minimum(plain, support) + 1e-13 * size(terms, weights))


def test_bracket__of_wide_spread_is_the_support() -> None:
    drawn = draw(3, 6, 4, intersected=True)
    terms = drawn.terms
    assert terms.lower is not None
    assert terms.upper is not None
    wide = Terms(terms.mean_low, terms.mean_high, np.full(terms.spread.shape, 1e9), terms.lower, terms.upper)
    weights = plane(4, 4)
    support, _ = bracket(Terms(terms.lower, terms.upper, np.zeros_like(terms.spread)), drawn.y, weights)
    assert_allclose(bracket(wide, drawn.y, weights)[0], support, rtol=1e-12)


def test_bracket__of_one_feature_by_hand() -> None:
    # The mean is 1 or 2, the spread 3: from -2 to 5; with the support from 0 to 4: from 0 to 4.
    one = np.ones((2, 1))
    y = np.array([1, -1])
    plain = Terms(one, 2 * one, 3 * one)
    assert_array_equal(bracket(plain, y, np.array([2.0]))[0], [4.0, 10.0])
    inside = Terms(one, 2 * one, 3 * one, 0 * one, 4 * one)
    assert_array_equal(bracket(inside, y, np.array([2.0]))[0], [0.0, 8.0])
    assert_array_equal(bracket(inside, y, np.array([-2.0]))[1], [[-4.0], [0.0]])


@pytest.mark.parametrize("intersected", [False, True])
def test_bracket__of_no_weights_is_0_with_a_subgradient(intersected: bool) -> None:
    drawn = draw(5, 7, 3, intersected)
    values, subgradients = bracket(drawn.terms, drawn.y, np.zeros(3))
    assert_array_equal(values, np.zeros(7))
    elsewhere, _ = bracket(drawn.terms, drawn.y, np.array([1.0, -2.0, 3.0]))
    assert np.all(subgradients @ [1.0, -2.0, 3.0] <= elsewhere + 1e-12)
    assert bracket(taken(drawn.terms, slice(0, 0)), drawn.y[:0], np.ones(3))[1].shape == (0, 3)


def test_bracket__of_gains_of_all_sizes() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        features = 6
        lower, upper = -(10.0 ** rng.uniform(-9, 3, (4, features))), 10.0 ** rng.uniform(-9, 3, (4, features))
        terms = Terms(0 * lower, 0 * lower, 10.0 ** rng.uniform(-9, 3, (4, features)), lower, upper)
        weights = 10.0 ** rng.uniform(-160, 9, features)
        y = np.array([-1, 1, -1, 1])
        values, _ = bracket(terms, y, weights)
        assert_allclose(values, upper_bounds(terms, y, weights), rtol=1e-12)


def test_clipped_to_ball__keeps_what_others_had_when_one_takes_all() -> None:
    # The first reaches its limit of 1, the whole ball: what rounding leaves to the rest must not undo it.
    found = clipped_to_ball(np.array([[1.0, 1e-9, 0.0]]), np.array([[1.0, 1.0, 0.5]]))
    assert_allclose(found, [[1.0, 1e-9, 0.0]])


def test_bracket__of_a_block_is_that_of_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: Drawn = draw(6, 40, 5, intersected=True)
    weights = plane(7, 5)
    values, subgradients = bracket(drawn.terms, drawn.y, weights)
    monkeypatch.setattr(brackets, "TILE", 5 * 7)
    tiled = extremes(drawn.terms, drawn.y, weights).points
    assert_array_equal(-drawn.y[:, None] * tiled, subgradients)
    for row in range(40):
        one = taken(drawn.terms, slice(row, row + 1))
        assert_allclose(bracket(one, drawn.y[row : row + 1], weights)[0], values[row], rtol=1e-12, atol=1e-14)
