from collections.abc import Callable
from typing import Any

import clarabel
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from reference import brackets as reference
from sklearn.svm import SVC
from support.errors import refused
from support.robust_terms import draw, sample_of

from protodask.engine.records import Floats
from protodask.errors import Code
from protodask.robust import cone_program, conic
from protodask.robust.brackets import bracket
from protodask.robust.conic import solve_conic
from protodask.robust.terms import Terms
from protodask.robust.weak_duality import best_intercept

SEEDS = st.integers(0, 10**6)


def golden(value: Callable[[float], float], low: float, high: float, steps: int = 60) -> float:
    """The least value of a convex function of one number."""
    ratio = (np.sqrt(5) - 1) / 2
    left, right = high - ratio * (high - low), low + ratio * (high - low)
    at_left, at_right = value(left), value(right)
    for _ in range(steps):
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - ratio * (high - low)
            at_left = value(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + ratio * (high - low)
            at_right = value(right)
    return min(at_left, at_right)


def least_objective(terms: Terms, y: np.ndarray, costs: Floats) -> float:
    """By nested searches over the weights of one or two features, from the corners of the samples' sets."""
    points = np.stack([reference.corners(sample_of(terms, row), 200) for row in range(len(y))])
    # At the optimum 1/2 |w|^2 is at most the objective of no weights.
    reach = 1.0 + np.sqrt(2 * 2 * min(costs[y > 0].sum(), costs[y < 0].sum()))

    def objective(*weights: float) -> float:
        values = np.max(-y[:, None] * (points @ np.array(weights)), axis=1)
        kinks = -y * (1 + values)
        hinges = np.maximum(1 + values + np.outer(kinks, y), 0.0) @ costs
        return float(np.square(weights).sum() / 2 + hinges.min())

    if terms.mean_low.shape[1] == 1:
        return golden(objective, -reach, reach)
    return golden(lambda first: golden(lambda second: objective(first, second), -reach, reach, 30), -reach, reach, 30)


def with_both_labels(y: np.ndarray) -> np.ndarray:
    return np.concatenate([[-1, 1], y[2:]])


@settings(max_examples=25)
@given(SEEDS, st.integers(2, 8), st.floats(-2, 2), st.booleans())
def test_solve_conic__of_one_feature_is_the_least_found_by_search(
    seed: int, samples: int, power: float, intersected: bool
) -> None:
    drawn = draw(seed, samples, 1, intersected)
    y = with_both_labels(drawn.y)
    costs = 10.0**power * np.random.default_rng(seed).uniform(0.5, 2.0, samples)
    solution = solve_conic(drawn.terms, y, costs)
    assert_allclose(solution.objective, least_objective(drawn.terms, y, costs), rtol=3e-6)


@settings(max_examples=10)
@example(2, 2, 0.0, True)  # where the ends of the support cut the ball the reference once fell short by its step
@example(5, 5, 1.0, True)
@given(SEEDS, st.integers(2, 6), st.floats(-2, 1.5), st.booleans())
def test_solve_conic__of_two_features_is_the_least_found_by_search(
    seed: int, samples: int, power: float, intersected: bool
) -> None:
    drawn = draw(seed, samples, 2, intersected)
    y = with_both_labels(drawn.y)
    solution = solve_conic(drawn.terms, y, 10.0**power)
    expected = least_objective(drawn.terms, y, np.full(samples, 10.0**power))
    assert_allclose(solution.objective, expected, rtol=2e-4)
    # The grid of corners misses some of each set.
    assert solution.dual_objective <= expected * (1 + 1e-4)


@settings(max_examples=25)
@given(SEEDS, st.integers(2, 30), st.integers(1, 50), st.floats(-2, 2), st.booleans())
def test_solve_conic__reports_what_its_plane_costs_and_a_bound(
    seed: int, samples: int, features: int, power: float, intersected: bool
) -> None:
    drawn = draw(seed, samples, features, intersected, confidence=0.01)
    y = with_both_labels(drawn.y)
    costs = 10.0**power * np.random.default_rng(seed).uniform(0.0, 2.0, samples)
    solution = solve_conic(drawn.terms, y, costs)
    values, _ = bracket(drawn.terms, y, solution.weights)
    assert_allclose(solution.slack, np.maximum(1 + y * solution.intercept + values, 0.0), atol=1e-10)
    assert_allclose(solution.objective, solution.weights @ solution.weights / 2 + costs @ solution.slack, rtol=1e-7)
    assert -1e-10 * solution.objective <= solution.gap <= 1e-6 * solution.objective
    rng = np.random.default_rng(seed)
    for step in rng.normal(size=(5, features)):
        weights = solution.weights + 10.0 ** rng.uniform(-4, 0) * step
        elsewhere, _ = bracket(drawn.terms, y, weights)
        intercept = best_intercept(1 + elsewhere, y.astype(float), costs, 0.0)
        objective = weights @ weights / 2 + costs @ np.maximum(1 + elsewhere + y * intercept, 0.0)
        assert solution.dual_objective <= objective * (1 + 1e-10)


def test_solve_conic__without_spread_is_the_support_vector_machine() -> None:
    rng = np.random.default_rng(0)
    y = rng.choice([-1, 1], 40)
    points = rng.normal(size=(40, 3)) + 0.7 * y[:, None]
    solution = solve_conic(Terms(points, points, 0 * points), y, 0.5)
    fitted = SVC(kernel="linear", C=0.5, tol=1e-8).fit(points, y)
    assert_allclose(solution.weights, fitted.coef_[0], rtol=1e-4)
    assert_allclose(solution.intercept, -fitted.intercept_[0], rtol=1e-3, atol=1e-4)


def test_solve_conic__of_two_points_by_hand() -> None:
    # Balls of radius 1 around -2 and 2: what must be told apart are -1 and 1.
    at = np.array([[-2.0], [2.0]])
    solution = solve_conic(Terms(at, at, np.ones((2, 1))), np.array([-1, 1]), 10.0)
    assert_allclose([solution.weights[0], solution.intercept, solution.objective], [1.0, 0.0, 0.5], atol=1e-7)
    # The support ends at half that.
    inside = Terms(at, at, np.ones((2, 1)), at - 0.5, at + 0.5)
    solution = solve_conic(inside, np.array([-1, 1]), 10.0)
    assert_allclose([solution.weights[0], solution.objective], [1 / 1.5, 0.5 / 1.5**2], atol=1e-7)


@pytest.mark.parametrize("label", [-1, 1])
def test_solve_conic__of_one_label_costs_nothing(label: int) -> None:
    drawn = draw(1, 5, 3, intersected=True)
    y = np.full(5, label)
    solution = solve_conic(drawn.terms, y, 1.0)
    assert_array_equal(solution.weights, np.zeros(3))
    assert_array_equal([solution.objective, solution.gap, *solution.slack], np.zeros(7))
    assert np.sign(solution.weights @ np.ones(3) - solution.intercept) == label
    # A sample of the other label that costs nothing changes nothing but its own slack.
    y[0] = -label
    free = solve_conic(drawn.terms, y, np.array([0.0, 1.0, 1.0, 1.0, 1.0]))
    assert_array_equal(free.slack, [2.0, 0.0, 0.0, 0.0, 0.0])
    assert solve_conic(drawn.terms, y, 0.0).status == "no cost"
    assert solve_conic(draw(1, 0, 3, intersected=True).terms, y[:0], 1.0).objective == 0.0


@pytest.mark.parametrize("intersected", [False, True])
@pytest.mark.parametrize("spread", [1e4, 1e9])
def test_solve_conic__of_spread_that_hides_everything_has_no_weights(spread: float, intersected: bool) -> None:
    rng = np.random.default_rng(1)
    at = rng.normal(size=(6, 2))
    y = np.array([-1, 1, 1, 1, -1, 1])
    support: Any = (at - spread, at + spread) if intersected else ()
    solution = solve_conic(Terms(at, at, np.full(at.shape, spread), *support), y, 1.0)
    # Two samples are given up, at a slack of 2 each.
    assert_allclose(solution.objective, 4.0, rtol=1e-6)
    assert_allclose(solution.weights, [0.0, 0.0], atol=1e-3)


@pytest.mark.parametrize("intersected", [False, True])
def test_solve_conic__of_the_same_point_twice_and_with_both_labels(intersected: bool) -> None:
    drawn = draw(3, 1, 4, intersected)
    terms = Terms(*(None if a is None else np.repeat(a, 6, axis=0) for a in vars(drawn.terms).values()))  # type: ignore[arg-type]
    assert_allclose(solve_conic(terms, np.array([-1, 1, 1, -1, 1, 1]), 3.0).objective, 12.0, rtol=1e-6)


@pytest.mark.parametrize("intersected", [False, True])
@pytest.mark.parametrize(("scale", "offset"), [(1e-6, 0.0), (1e4, 0.0), (1.0, 1e6), (1e-3, 1e3)])
def test_solve_conic__of_features_in_any_unit(scale: float, offset: float, intersected: bool) -> None:
    drawn = draw(4, 12, 3, intersected)
    y = with_both_labels(drawn.y)
    terms = drawn.terms

    def moved(array: Floats | None) -> Floats | None:
        return None if array is None else array * scale + offset

    ends: Any = [moved(a) for a in (terms.mean_low, terms.mean_high, terms.lower, terms.upper)]
    other = solve_conic(Terms(ends[0], ends[1], terms.spread * scale, ends[2], ends[3]), y, 2.0 / scale**2)
    same = solve_conic(terms, y, 2.0)
    assert_allclose(other.objective * scale**2, same.objective, rtol=1e-5)


@pytest.mark.parametrize("intersected", [False, True])
def test_solve_conic__of_costs_beyond_the_solvers_digits(intersected: bool) -> None:
    drawn = draw(8, 10, 4, intersected)
    y = with_both_labels(drawn.y)
    # So far apart that all are told apart: the plane is that of any cost that is high enough.
    terms = drawn.terms
    ends: Any = (terms.mean_low, terms.mean_high, terms.lower, terms.upper)
    ends = [None if array is None else array + 30.0 * y[:, None] for array in ends]
    apart = Terms(ends[0], ends[1], terms.spread, ends[2], ends[3])
    assert_allclose(solve_conic(apart, y, 1e12).objective, solve_conic(apart, y, 1.0).objective, rtol=1e-5)


def test_solve_conic__more_information_never_costs_more() -> None:
    for seed in range(10):
        drawn = draw(seed, 12, 4, intersected=True)
        y = with_both_labels(drawn.y)
        terms = drawn.terms
        assert terms.lower is not None
        assert terms.upper is not None
        none = np.zeros_like(terms.spread)
        middle = (terms.mean_low + terms.mean_high) / 2
        inside = solve_conic(terms, y, 1.0).objective
        plain = solve_conic(Terms(terms.mean_low, terms.mean_high, terms.spread), y, 1.0).objective
        support = solve_conic(Terms(terms.lower, terms.upper, none), y, 1.0).objective
        means = solve_conic(Terms(middle, middle, none), y, 1.0).objective
        assert means <= inside * (1 + 1e-5)
        assert inside <= min(plain, support) * (1 + 1e-5)


def test_solve_conic__refuses_what_is_too_large() -> None:
    drawn = draw(1, 20, 4, intersected=False)
    assert cone_program.entries_of(drawn.terms) > 100
    with refused("over-limit", "20 samples", cone_program.entries_of(drawn.terms), 100, "bundle"):
        solve_conic(drawn.terms, with_both_labels(drawn.y), 1.0, most_entries=100)


@pytest.mark.parametrize("intersected", [False, True])
def test_entries_of__bounds_the_matrix_that_is_solved(monkeypatch: pytest.MonkeyPatch, intersected: bool) -> None:
    drawn = draw(1, 20, 4, intersected)
    seen: list[int] = []
    honest = clarabel.DefaultSolver

    def counts(quadratic: Any, linear: Any, matrix: Any, *rest: Any) -> Any:
        seen.append(matrix.nnz)
        return honest(quadratic, linear, matrix, *rest)

    monkeypatch.setattr("clarabel.DefaultSolver", counts)
    solve_conic(drawn.terms, with_both_labels(drawn.y), 1.0)
    assert 0.4 * cone_program.entries_of(drawn.terms) < seen[0] <= cone_program.entries_of(drawn.terms)


@pytest.mark.parametrize(
    ("y", "cost", "code", "facts"),
    [
        ([0, 1, 1], 1.0, "bad-value", ("label", "sample 0", 0.0)),
        ([-1, 1, 1], [1.0, -2.0, 1.0], "bad-value", ("cost", "sample 1", -2.0)),
        ([-1, 1, 1], np.nan, "bad-value", ("cost", "sample 0", "nan")),
        ([-1, 1, 1], [1.0, np.inf, 1.0], "bad-value", ("cost", "sample 1", "inf")),
        ([-1, 1], 1.0, "wrong-shape", ("3 samples", "labels of 3 samples are of shape (2,)")),
        ([-1, 1, 1], [1.0, 2.0], "wrong-shape", ("3 samples", "costs of shape (2,)")),
    ],
)
def test_solve_conic__refuses_labels_and_costs_it_cannot_use(
    y: list[int], cost: Any, code: Code, facts: tuple[object, ...]
) -> None:
    with refused(code, *facts):
        solve_conic(draw(1, 3, 2, intersected=False).terms, np.array(y), cost)


def test_solve_conic__that_no_attempt_solves_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = draw(1, 20, 4, intersected=False)
    y = with_both_labels(drawn.y)
    asked: list[str] = []

    def nothing(terms: Terms, sign: Floats, costs: Floats, objective: float, setup: str) -> None:
        asked.append(setup)

    monkeypatch.setattr(conic, "solve_program", nothing)
    with refused("no-convergence", "1.0e+00", "1.0e-06", "failed", "bundle"):
        solve_conic(drawn.terms, y, 1.0)
    assert set(asked) == set(cone_program.SETUPS)


def test_solve_conic__goes_on_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = draw(1, 20, 4, intersected=False)
    y = with_both_labels(drawn.y)
    honest = cone_program.solve_program

    def fails_first(terms: Terms, sign: Floats, costs: Floats, objective: float, setup: cone_program.Setup) -> Any:
        return None if setup == "as scaled" else honest(terms, sign, costs, objective, setup)

    expected = solve_conic(drawn.terms, y, 1.0)
    monkeypatch.setattr(conic, "solve_program", fails_first)
    assert_allclose(solve_conic(drawn.terms, y, 1.0).objective, expected.objective, rtol=1e-5)
    assert solve_conic(drawn.terms, y, 1.0).attempts > 1


def test_solve_conic__does_not_believe_the_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = draw(1, 20, 4, intersected=True)
    y = with_both_labels(drawn.y)
    lie = cone_program.Answer(np.ones(4), 0.0, np.full(20, 1e3), np.zeros((20, 4)), "Solved", 9)
    monkeypatch.setattr(conic, "solve_program", lambda *_: lie)
    with refused("no-convergence", "Solved", "1.0e-06"):
        solve_conic(drawn.terms, y, 1.0)


def test_solve_program__that_panics_has_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    class PanicException(BaseException):
        pass

    def panics(*_: Any) -> Any:
        raise PanicException

    drawn = draw(1, 6, 2, intersected=False)
    sign, costs = with_both_labels(drawn.y).astype(float), np.ones(6)
    assert cone_program.solve_program(drawn.terms, sign, costs, 1.0, "balanced") is not None
    monkeypatch.setattr("clarabel.DefaultSolver", panics)
    assert cone_program.solve_program(drawn.terms, sign, costs, 1.0, "balanced") is None


def test_solve_conic__without_clarabel_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "clarabel", None)
    drawn = draw(1, 6, 2, intersected=False)
    with refused("package-missing", "Clarabel", "protodask[robust]"):
        solve_conic(drawn.terms, with_both_labels(drawn.y), 1.0)
