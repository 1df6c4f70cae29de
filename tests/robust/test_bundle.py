from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from sklearn.svm import SVC
from support.robust_problems import Floats, Problem, drawn_problem, naive_objective, samples_of

from protodask.engine import Engine, thread_engine
from protodask.robust.bundle import FEWEST_TIMES, PlaneFit, best_multiple, solve_bundle
from protodask.robust.conic import solve_conic
from protodask.robust.formulations import make_terms
from protodask.robust.passes import EVALUATE, Question
from protodask.robust.terms import Terms
from protodask.robust.uncertain_rows import UncertainRows


def solve(problem: Problem, gap: float = 1e-5, block_rows: int | None = None) -> PlaneFit:
    return solve_bundle(problem.source(block_rows), samples_of, Engine(), gap=gap)


@settings(max_examples=10)
@given(
    st.integers(0, 10**6),
    st.integers(2, 60),
    st.integers(1, 12),
    st.booleans(),
    st.sampled_from([1e-3, 0.1, 1.0, 30.0]),
    st.sampled_from([0.0, 1.0, 4.0]),
)
def test_bundle__agrees_with_the_cone_program(
    seed: int, n_rows: int, n_features: int, intersected: bool, cost: float, distance: float
) -> None:
    problem = drawn_problem(seed, n_rows, n_features, intersected=intersected, cost=cost, distance=distance)
    found = solve(problem)
    exact = solve_conic(problem.terms, problem.y, problem.cost, gap=1e-4)
    assert found.status == "converged"
    assert found.objective == pytest.approx(exact.objective, rel=1.2e-4)
    assert found.dual_objective <= exact.objective * (1 + 1e-12)
    assert exact.dual_objective <= found.objective * (1 + 1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("intersected", [False, True])
@pytest.mark.parametrize("cost", [1e-3, 0.1, 10.0])
def test_bundle__agrees_with_the_cone_program__many_features(intersected: bool, cost: float) -> None:
    for seed in range(3):
        problem = drawn_problem(seed, 70, 50, intersected=intersected, cost=cost, distance=0.3 * seed)
        found, exact = solve(problem), solve_conic(problem.terms, problem.y, problem.cost, gap=1e-4)
        assert found.objective == pytest.approx(exact.objective, rel=1.2e-4)
        assert found.dual_objective <= exact.objective * (1 + 1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_bundle__agrees_with_a_search_of_the_formula(seed: int) -> None:
    problem = drawn_problem(seed, 12, 2, cost=0.7)
    found = solve(problem, gap=1e-7)
    plane = np.append(found.weights, found.intercept)
    assert naive_objective(problem, plane[:2], plane[2]) == pytest.approx(found.objective, rel=1e-10)

    def objective(plane: Floats) -> float:
        return naive_objective(problem, plane[:2], float(plane[2]))

    searched = minimize(objective, plane + 0.1, method="Nelder-Mead", options={"xatol": 1e-9})
    assert found.dual_objective <= searched.fun


@pytest.mark.parametrize("cost", [1e-3, 1.0, 100.0])
def test_points__have_the_objective_of_a_support_vector_machine(cost: float) -> None:
    problem = drawn_problem(9, 400, 6, points=True, cost=cost)
    found = solve(problem, gap=1e-6)
    machine = SVC(kernel="linear", C=1.0, tol=1e-6).fit(problem.terms.mean_low, problem.y, sample_weight=problem.cost)
    weights, intercept = machine.coef_[0], -float(machine.intercept_[0])
    assert found.objective == pytest.approx(naive_objective(problem, weights, intercept), rel=1e-5)
    assert found.dual_objective <= found.objective


@settings(max_examples=10)
@given(st.integers(0, 10**6), st.booleans())
def test_dual_objective__is_a_bound_wherever_the_run_stops(seed: int, points: bool) -> None:
    problem = drawn_problem(seed, 40, 4, points=points)
    bounds: list[float] = []
    found = solve_bundle(
        problem.source(), samples_of, Engine(), gap=1e-9, max_passes=5, on_pass=lambda done: bounds.append(done.lower)
    )
    random = np.random.default_rng(seed)
    for scale in (0.01, 0.1, 1.0):
        weights, intercept = found.weights + scale * random.normal(size=4), found.intercept + scale * random.normal()
        assert max(bounds) <= naive_objective(problem, weights, float(intercept)) * (1 + 1e-12)
    assert bounds == sorted(bounds)


def test_threads__change_no_bit() -> None:
    problem = drawn_problem(11, 1000, 4, intersected=True)
    source = problem.source(64)
    alone = solve_bundle(source, samples_of, Engine(), gap=1e-3)
    for threads in (1, 3):
        with thread_engine(threads) as engine:
            found = solve_bundle(source, samples_of, engine, gap=1e-3)
        np.testing.assert_array_equal(found.weights, alone.weights)
        assert (found.intercept, found.objective, found.dual_objective) == (
            alone.intercept,
            alone.objective,
            alone.dual_objective,
        )


def test_many_samples__need_few_passes() -> None:
    # Plain cutting planes take hundreds.
    for points in (True, False):
        found = solve(drawn_problem(12, 6000, 10, points=points), gap=1e-3)
        assert found.status == "converged"
        assert found.passes <= 15


def test_features_far_from_zero__lose_no_digits() -> None:
    problem = drawn_problem(13, 300, 3)
    terms, shift = problem.terms, np.array([1e6, -1e6, 0.0])
    moved = Problem(Terms(terms.mean_low + shift, terms.mean_high + shift, terms.spread), problem.y, problem.cost)
    here, there = solve(problem, gap=1e-6), solve(moved, gap=1e-6)
    assert there.objective == pytest.approx(here.objective, rel=1e-5)
    assert there.status == "converged"


@pytest.mark.parametrize("scale", [1e-4, 1e4])
def test_units_of_the_features__are_no_trouble(scale: float) -> None:
    problem = drawn_problem(14, 300, 4)
    terms = problem.terms
    scaled = Problem(
        Terms(terms.mean_low * scale, terms.mean_high * scale, terms.spread * scale), problem.y, problem.cost
    )
    found = solve(scaled, gap=1e-4)
    assert found.status == "converged"


@settings(max_examples=15)
@given(
    st.integers(0, 10**6), st.integers(5, 300), st.sampled_from([0.3, 3.0, 6.0]), st.sampled_from([0.01, 1.0, 100.0])
)
def test_best_multiple__has_the_objective_it_is_said_to_have(
    seed: int, n_rows: int, distance: float, cost: float
) -> None:
    problem = drawn_problem(seed, n_rows, 3, distance=distance, cost=cost)
    random = np.random.default_rng(seed)
    plane = np.append(random.exponential(size=3), 0.3 * random.normal())
    question = Question(plane[:-1], float(plane[-1]), np.array([1.0]), 40, 0.0)
    answer = Engine().reduce(problem.source(64), EVALUATE, samples_of, np.zeros(3), question)
    times, objective = best_multiple(answer, plane)
    assert naive_objective(problem, times * plane[:-1], times * plane[-1]) == pytest.approx(objective, rel=1e-9)
    # Next to it, and where it may look, none is better.
    reach = np.inf if n_rows <= 40 else float(np.abs(answer.near.hinge).max())
    for other in np.linspace(
        max(FEWEST_TIMES, 1 / (1 + reach)), min(1 / FEWEST_TIMES, 1 / max(1 - reach, FEWEST_TIMES)), 30
    ):
        assert objective <= naive_objective(problem, other * plane[:-1], other * plane[-1]) * (1 + 1e-9)


def test_one_class__costs_nothing() -> None:
    problem = drawn_problem(15, 20, 3)
    one = Problem(problem.terms, np.ones(20), problem.cost)
    found = solve(one)
    assert (found.status, found.objective, found.intercept) == ("one class", 0.0, -1.0)
    assert naive_objective(one, found.weights, found.intercept) == 0.0


def test_no_cost__asks_for_nothing() -> None:
    problem = drawn_problem(15, 20, 3)
    found = solve(Problem(problem.terms, problem.y, np.zeros(20)))
    assert (found.status, found.objective) == ("no cost", 0.0)


def test_samples_all_alike__have_no_weights() -> None:
    same = np.full((30, 2), 3.0)
    y = np.where(np.arange(30) < 10, 1.0, -1.0)
    found = solve(Problem(Terms(same, same, np.zeros((30, 2))), y, np.ones(30)))
    assert found.objective == pytest.approx(20.0)  # ten samples of the rarer label, 2 each
    np.testing.assert_allclose(found.weights, 0.0, atol=1e-9)


def test_separable_points__have_the_margin_between_them() -> None:
    x = np.array([[0.0, 0.0], [2.0, 0.0]])
    found = solve(Problem(Terms(x, x, np.zeros((2, 2))), np.array([-1.0, 1.0]), np.full(2, 1e6)))
    np.testing.assert_allclose(found.weights, [1.0, 0.0], atol=1e-4)
    assert found.intercept == pytest.approx(1.0, abs=1e-4)
    assert found.objective == pytest.approx(0.5, rel=1e-4)


def test_a_pass_limit__is_said() -> None:
    found = solve_bundle(drawn_problem(16, 500, 8).source(), samples_of, Engine(), gap=1e-9, max_passes=2)
    assert (found.status, found.passes) == ("pass limit", 2)
    assert found.relative_gap > 1e-9


def check_noise_that_outweighs(formulation: str, signal: float) -> None:
    """Best is no weight or little of it, at the kink of the norms, which takes boxes hundreds of passes to describe."""
    random = np.random.default_rng(0)
    y = random.choice([-1.0, 1.0], 500)
    mean = random.normal(size=(500, 20)) + signal * y[:, None] / np.sqrt(20)
    half = random.uniform(0.1, 1.0, size=mean.shape)
    second = np.square(np.abs(mean) + 0.1 * half) + 0.1 * half**2
    rows = UncertainRows(mean - half, mean + half, mean - 0.1 * half, mean + 0.1 * half, second)
    found = solve(Problem(make_terms(rows, formulation, 0.1), y, np.ones(500)), gap=1e-3)
    assert found.status == "converged"
    assert found.passes <= 15


@pytest.mark.slow
@pytest.mark.parametrize(("formulation", "signal"), [("SBMV", 1.4), ("SBMV-I", 3.0), ("MC", 1.7), ("S", 0.5)])
def test_noise_that_outweighs_the_classes__takes_few_passes(formulation: str, signal: float) -> None:
    check_noise_that_outweighs(formulation, signal)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("formulation", "signal"),
    [("SBMV", 0.5), ("SBMV", 1.7), ("SBMV-I", 1.4), ("SBMV-I", 1.7), ("MC", 1.4), ("MC", 3.0), ("S", 1.4), ("S", 3.0)],
)
def test_noise_that_outweighs_the_classes__takes_few_passes_by_any_formulation(formulation: str, signal: float) -> None:
    check_noise_that_outweighs(formulation, signal)
