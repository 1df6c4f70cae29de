"""The solver: what it says of its end is checked against the function itself."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from protodask.engine import Engine
from protodask.prototypes.batch_kernel import Candidates
from protodask.prototypes.config import FitConfig
from protodask.prototypes.convergence import ConvergenceWarning
from protodask.prototypes.kernel import Standardization
from protodask.prototypes.objective import Objective, Penalty, make_problem
from protodask.prototypes.scores import MemoryScores
from protodask.prototypes.solver import (
    GRADIENT_TOLERANCE,
    TO_THE_END,
    WINDOW,
    Evaluation,
    Function,
    Iteration,
    Patience,
    Solution,
    projected_norm,
    solve,
    solver_scale,
)
from protodask.prototypes.training import Training

Floats = NDArray[np.float64]


def quadratic(center: Floats, curvature: Floats) -> Function:
    def evaluate(theta: Floats) -> Evaluation:
        step = theta - center
        return Evaluation(float(0.5 * curvature @ step**2), curvature * step)

    return evaluate


@settings(max_examples=20)
@given(st.integers(0, 2**20), st.integers(1, 12))
def test_solve__of_a_quadratic_ends_at_its_projected_centre(seed: int, length: int) -> None:
    rng = np.random.default_rng(seed)
    center, curvature = rng.normal(size=length), rng.uniform(0.5, 5, length)
    scale = rng.uniform(0.3, 3, length)
    found = solve(quadratic(center, curvature), np.ones(length), scale, 1e-15, 500)
    np.testing.assert_allclose(found.theta, np.maximum(center, 0), atol=1e-4)
    assert found.status in ("converged", "stationary")
    assert (found.theta[center < 0] == 0).all()


def batch_objective(engine: Engine, make_rows: Callable[..., Any], training_data: Callable[..., Any]) -> Objective:
    arrays = make_rows(300, 1)
    data = training_data(arrays, block_rows=512)
    rows = np.arange(0, 300, 10)
    rows = rows[np.argsort(arrays["target"][rows], kind="stable")]
    standardization = Standardization(data.summary.mean, data.summary.scale)
    problem = make_problem(
        Candidates(standardization.apply(arrays["features"][rows]), arrays["target"][rows].astype(np.int64), rows),
        np.ones(len(rows)),
        data.summary.class_weight,
        standardization,
        "float64",
    )
    return Objective(engine, data.source, problem, problem, Penalty(1e-3, 0.95), Penalty(1e-3, 0.95))


@pytest.fixture
def objective(engine: Engine, make_rows: Callable[..., Any], training_data: Callable[..., Any]) -> Objective:
    return batch_objective(engine, make_rows, training_data)


def starting_theta() -> Floats:
    return np.concatenate([np.full(3, 10 / 3), np.ones(30)])


SCALE = np.concatenate([np.full(3, 4.0), np.ones(30)])


def run(objective: Function, tolerance: float = FitConfig.tolerance, most: int = 1000, **others: Any) -> Solution:
    return solve(objective, starting_theta(), SCALE, tolerance, most, **others)


@pytest.mark.parametrize("tolerance", [FitConfig.tolerance, 0.0])
def test_solve__says_of_its_end_what_the_function_says(objective: Objective, tolerance: float) -> None:
    found = run(objective, tolerance)
    value, gradient, _ = objective(found.theta)
    assert found.value == value
    np.testing.assert_allclose(found.gradient, gradient, rtol=1e-12, atol=1e-15)
    # The projected gradient: at the bound only a slope that leads into the feasible set counts.
    inside = found.theta > 0
    slope = np.where(inside, np.minimum(gradient, found.theta), np.minimum(gradient, 0))
    assert found.gradient_norm == pytest.approx(np.abs(slope).max(), rel=1e-9)
    assert (found.theta >= 0).all()
    start = starting_theta()
    at_start = projected_norm(start * SCALE, objective(start).gradient / SCALE)
    share = projected_norm(found.theta * SCALE, gradient / SCALE) / at_start
    assert found.status in ("converged", "stationary")
    assert share <= (1e-6 if tolerance == 0.0 else 1e-2)
    assert (found.status == "stationary") == (share <= GRADIENT_TOLERANCE)


@pytest.mark.parametrize("size", [1e-6, 1e-2, 1e4])
def test_solve__ends_at_the_same_place_whatever_the_size_of_the_function(objective: Objective, size: float) -> None:
    def resized(theta: Floats) -> Evaluation:
        found = objective(theta)
        return Evaluation(size * found.value, size * found.gradient)

    found, plain = run(resized), run(objective)
    best = run(objective, 0.0).value
    assert found.status == plain.status == "converged"
    for value in (found.value / size, plain.value):
        assert best <= value <= 1.001 * best


@pytest.mark.parametrize("tolerance", [1e-2, 1e-4, FitConfig.tolerance])
def test_solve__ends_at_the_first_iteration_up_to_which_the_last_ones_gained_too_little(
    objective: Objective, tolerance: float
) -> None:
    states: list[Iteration] = []
    found = run(objective, tolerance, on_iteration=states.append)
    values = np.array([state.value for state in states])
    gains = (values[:-WINDOW] - values[WINDOW:]) / values[WINDOW:] / WINDOW
    assert found.status == "converged"
    assert (gains[:-1] > tolerance).all()
    assert gains[-1] <= tolerance


def test_solve__counts_its_evaluations_and_reports_its_iterations(objective: Objective) -> None:
    calls: list[Floats] = []
    states: list[Iteration] = []

    def counted(theta: Floats) -> Evaluation:
        calls.append(theta.copy())
        return objective(theta)

    found = run(counted, on_iteration=states.append)
    assert found.evaluations == len(calls)
    assert [state.iteration for state in states] == list(range(1, found.iterations + 1))
    values = [state.value for state in states]
    assert values == sorted(values, reverse=True)
    assert values[-1] == found.value
    for state in states[:: max(1, len(states) // 5)]:
        value, gradient, _ = objective(state.theta)
        assert state.value == value
        assert state.gradient_norm == pytest.approx(projected_norm(state.theta, gradient), rel=1e-12)


def test_solve__reports_do_not_change_the_path(objective: Objective) -> None:
    assert run(objective, on_iteration=lambda state: None).theta.tobytes() == run(objective).theta.tobytes()


def test_solve__at_its_iteration_limit_says_so(objective: Objective) -> None:
    found = run(objective, most=3)
    assert (found.status, found.iterations) == ("iteration limit", 3)
    assert found.value == objective(found.theta)[0]


def test_solve__of_a_function_that_contradicts_its_gradient_says_the_line_search_failed() -> None:
    def uphill(theta: Floats) -> Evaluation:
        found = quadratic(np.array([3.0, 4.0]), np.ones(2))(theta)
        return found._replace(gradient=-found.gradient)

    assert solve(uphill, np.full(2, 1.0), np.ones(2), 1e-9, 100).status == "line search failed"


def judged(function: Function, losses: Callable[[int], float], seen: list[Floats]) -> Function:
    """A function whose n-th evaluation has such a loss of held-out rows."""

    def evaluate(theta: Floats) -> Evaluation:
        seen.append(theta.copy())
        return function(theta)._replace(held_out=losses(len(seen) - 1))

    return evaluate


@pytest.mark.parametrize(
    ("patience", "waits"), [(TO_THE_END, 3), (Patience(share=1.0), 6), (Patience(share=1.0, most=4), 4)]
)
def test_solve__keeps_the_iterate_at_which_held_out_rows_lose_least(
    objective: Objective, patience: Patience, waits: int
) -> None:
    seen: list[Floats] = []
    states: list[Iteration] = []
    losing = judged(objective, lambda step: abs(step - 6.0), seen)
    found = run(losing, 0.0, on_iteration=states.append, patience=patience)
    best = min(states, key=lambda state: state.held_out)
    assert found.status == "held out"
    assert found.theta.tobytes() == best.theta.tobytes()
    assert (found.value, found.held_out) == (best.value, best.held_out)
    assert found.gradient.tobytes() == objective(found.theta).gradient.tobytes()
    assert found.iterations - best.iteration == waits
    assert found.evaluations == len(seen)
    # Up to where it stops, the path is that of the same function without such rows.
    paths = [state.theta.tobytes() for state in states]
    plain: list[Iteration] = []
    run(objective, 0.0, most=found.iterations, on_iteration=plain.append)
    assert paths == [state.theta.tobytes() for state in plain]
    assert all(np.isnan(state.held_out) for state in plain)


def test_solve__of_held_out_rows_that_lose_ever_less_ends_as_it_would(objective: Objective) -> None:
    found, plain = run(judged(objective, lambda step: -float(step), [])), run(objective)
    assert found.theta.tobytes() == plain.theta.tobytes()
    assert (found.status, found.iterations) == (plain.status, plain.iterations)
    assert np.isnan(plain.held_out)


PATIENT = Patience(first=9)
"""With 20 the function has no further to go."""


def test_solve__does_not_go_on_for_gains_of_next_to_nothing(objective: Objective) -> None:
    states: list[Iteration] = []
    lossy = judged(objective, lambda step: 1 - 1e-5 * step, [])
    found = run(lossy, 0.0, on_iteration=states.append, patience=PATIENT)
    assert (found.status, found.iterations) == ("held out", 1 + 9)
    assert found.theta.tobytes() == states[-1].theta.tobytes(), "the last is still the best"


def test_solve__has_learnt_nothing_before_held_out_rows_lose_less_than_without_prototypes(objective: Objective) -> None:
    """A start that is worse than no prototypes is soon left, and that is not what there is to learn."""

    def losing() -> Function:
        return judged(objective, lambda step: 2.0 if step < 2 else 1.0, [])

    assert run(losing(), 0.0, baseline=1.0, patience=PATIENT).iterations == 2 + 9
    assert run(losing(), 0.0, baseline=1.5, patience=PATIENT).iterations == 2 + 3
    assert run(losing(), 0.0, patience=PATIENT).iterations == 2 + 3


def test_projected_norm__is_zero_exactly_at_a_kkt_point() -> None:
    assert projected_norm(np.array([0.0, 2.0]), np.array([5.0, 0.0])) == 0
    assert projected_norm(np.array([0.0, 2.0]), np.array([-5.0, 0.0])) == 5
    assert projected_norm(np.array([0.0, 2.0]), np.array([0.0, 7.0])) == 2
    assert projected_norm(np.zeros(0), np.zeros(0)) == 0


def test_solver_scale__makes_the_start_of_one_norm_whatever_the_number_of_features() -> None:
    for n_features in (1, 4, 300):
        variables = solver_scale(n_features, 7)[:n_features] * (10 / n_features)
        assert np.linalg.norm(variables) == pytest.approx(24)
        assert (solver_scale(n_features, 7)[n_features:] == 0.05).all()
        np.testing.assert_allclose(3 * solver_scale(n_features, 7, 1, 3.0)[:n_features], variables * n_features / 10)


def test_training__at_its_iteration_limit_warns_and_records_it(
    engine: Engine, make_rows: Callable[..., Any], training_data: Callable[..., Any]
) -> None:
    config = FitConfig.of("source", n_candidates=40, max_iterations=2, n_batches=2)
    training = Training(training_data(make_rows(300), block_rows=512), config, engine, MemoryScores())
    with pytest.warns(ConvergenceWarning, match="iteration limit.*raise `max_iterations` or `tolerance`") as caught:
        model, history = training.run()
    assert len(caught) == 2
    assert [(record.status, record.iterations) for record in history] == [("iteration limit", 2)] * 2
    assert model.n_batches == 2


def test_training__that_converges_does_not_warn(
    engine: Engine, make_rows: Callable[..., Any], training_data: Callable[..., Any]
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, history = Training(
            training_data(make_rows(300), block_rows=512),
            FitConfig.of("source", n_candidates=40, lambda_w=1e-3),
            engine,
            MemoryScores(),
        ).run()
    assert history[0].status in ("converged", "stationary")
    assert history[0].gradient_norm < 1e-2


def test_solve__from_where_nothing_is_gained_stays_there_if_it_may(objective: Objective) -> None:
    """Small steps may have led to where rows held out lose least already."""
    rising = judged(objective, lambda step: 0.5 + 0.01 * step, [])
    found = run(rising, 0.0, patience=Patience(least=3, most=3, first=3, from_start=True))
    np.testing.assert_allclose(found.theta, starting_theta())
    assert (found.status, found.held_out, found.iterations) == ("held out", 0.5, 3)
    left = run(judged(objective, lambda step: 0.5 + 0.01 * step, []), 0.0, patience=Patience(least=3, most=3, first=3))
    assert left.held_out > 0.5


def test_solve__does_not_take_the_end_of_a_callbacks_iterator_for_its_own() -> None:
    def report(_: Iteration) -> None:
        next(iter(()))

    with pytest.raises(RuntimeError, match="StopIteration"):
        solve(quadratic(np.ones(3), np.arange(1.0, 4.0)), np.zeros(3), np.ones(3), 1e-15, 50, report)
