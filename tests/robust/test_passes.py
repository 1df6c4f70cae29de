from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.robust_problems import Floats, Problem, drawn_problem, naive_objective, samples_of

from protodask.engine import Engine, thread_engine
from protodask.robust import passes
from protodask.robust.brackets import bracket, extremes
from protodask.robust.passes import EVALUATE, SURVEY, Answer, Question
from protodask.robust.terms import Terms

BANDS = np.array([2.0, 0.1])
SOFT = 0.5


def ask(
    problem: Problem,
    weights: Floats,
    intercept: float,
    *,
    origin: Floats | None = None,
    block_rows: int | None = None,
    n_near: int = 7,
    engine: Engine | None = None,
) -> Answer:
    question = Question(weights, intercept, BANDS, n_near, SOFT)
    origin = np.zeros(len(weights)) if origin is None else origin
    engine = Engine() if engine is None else engine
    return engine.reduce(problem.source(block_rows), EVALUATE, samples_of, origin, question)


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.integers(2, 40), st.integers(1, 6))
def test_risk__is_that_of_the_formula(seed: int, n_rows: int, n_features: int) -> None:
    problem = drawn_problem(seed, n_rows, n_features)
    weights = np.random.default_rng(seed).normal(size=n_features)
    answer = ask(problem, weights, 0.3)
    assert answer.risk + weights @ weights / 2 == pytest.approx(naive_objective(problem, weights, 0.3), rel=1e-12)


@pytest.mark.parametrize("intersected", [False, True])
@pytest.mark.parametrize("still", [False, True])
def test_curvature_of_many_features__is_the_diagonal(
    intersected: bool, still: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = drawn_problem(2, 60, 5, intersected=intersected)
    weights = np.random.default_rng(3).normal(size=5) * (not still)
    whole = ask(problem, weights, 0.3, block_rows=16)
    monkeypatch.setattr(passes, "MOST_CURVED", 4)
    answer = ask(problem, weights, 0.3, block_rows=16)
    assert whole.across.any()
    np.testing.assert_allclose(answer.across, np.diag(whole.across), rtol=1e-12)
    np.testing.assert_allclose(answer.within, np.diag(whole.within), rtol=1e-10, atol=1e-13)
    assert answer.risk == whole.risk


def test_tile__of_many_features_has_fewer_rows() -> None:
    for n_columns in (1, 300, 301, 1000, 5000):
        rows = passes.tile_rows(n_columns)
        assert rows == 4096 if n_columns <= 300 else rows * n_columns <= passes.TILE_NUMBERS
    assert passes.tile_rows(10**9) == 1


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.booleans(), st.floats(-3, 3))
def test_cuts__are_nowhere_above_the_risk(seed: int, intersected: bool, shift: float) -> None:
    problem = drawn_problem(seed, 30, 4, intersected=intersected)
    random = np.random.default_rng(seed)
    weights = random.normal(size=4)
    weights[random.random(4) < 0.3] = 0.0
    answer = ask(problem, weights, shift)
    for _ in range(20):
        other, intercept = random.normal(size=4) * random.choice([0.1, 1, 10]), float(random.normal() * 3)
        values, _ = bracket(problem.terms, problem.y, other)
        hinges = np.maximum(1 + problem.y * intercept + values, 0.0)
        risk = float(problem.cost @ hinges)
        assert answer.cuts.at(other, intercept).max() <= risk + 1e-11 * (1 + risk)
        # The near samples one by one, too.
        near = answer.near
        rows = near.row.astype(int)
        assert (near.cuts.at(other, intercept) <= 1 + problem.y[rows] * intercept + values[rows] + 1e-11).all()


def test_first_cut__is_exact_at_its_plane() -> None:
    problem = drawn_problem(3, 50, 5, intersected=True)
    weights = np.array([1.0, -0.5, 0.0, 2.0, 0.1])
    answer = ask(problem, weights, -0.2)
    assert answer.cuts.at(weights, -0.2)[0] == pytest.approx(answer.risk, rel=1e-13)


@pytest.mark.parametrize("block_rows", [None, 8])
def test_rest__with_the_near_samples_is_the_first_cut(block_rows: int | None) -> None:
    problem = drawn_problem(3, 50, 5, intersected=True)
    answer = ask(problem, np.array([1.0, -0.5, 0.0, 2.0, 0.1]), -0.2, block_rows=block_rows)
    near, rest = answer.near, answer.rest
    own = np.where(near.hinge > 0, near.cost, 0.0)
    np.testing.assert_allclose(rest.value + own.sum(), answer.cuts.value[:1])
    np.testing.assert_allclose(rest.center[0] + own @ near.cuts.center, answer.cuts.center[0])
    np.testing.assert_allclose(rest.width[0] + own @ near.cuts.width, answer.cuts.width[0])
    np.testing.assert_allclose(rest.slope + own @ near.cuts.slope, answer.cuts.slope[:1])


def test_rest__of_nobody_is_0_without_rounding() -> None:
    problem = drawn_problem(3, 50, 5)
    problem.cost[:] *= 1e9
    rest = ask(problem, np.ones(5), -0.2, block_rows=8, n_near=50).rest
    assert not np.concatenate([rest.value, rest.slope, rest.center[0], rest.width[0]]).any()


def test_origin__moves_the_intercept_and_nothing_else() -> None:
    problem = drawn_problem(4, 50, 3)
    weights, origin = np.array([1.0, -0.5, 0.7]), np.array([3.0, -2.0, 1.0])
    here, there = ask(problem, weights, 0.4), ask(problem, weights, 0.4 - weights @ origin, origin=origin)
    assert there.risk == pytest.approx(here.risk, rel=1e-12)
    np.testing.assert_array_equal(there.near.row, here.near.row)


def test_near__are_those_of_the_smallest_hinges() -> None:
    problem = drawn_problem(5, 200, 3)
    weights = np.array([1.0, -0.5, 0.7])
    values, _ = bracket(problem.terms, problem.y, weights)
    hinges = np.abs(1 + 0.1 * problem.y + values)
    answer = ask(problem, weights, 0.1, block_rows=16, n_near=9)
    np.testing.assert_array_equal(answer.near.row, np.argsort(hinges, kind="stable")[:9])


def test_samples_of_no_cost__are_never_near() -> None:
    problem = drawn_problem(5, 20, 3)
    problem.cost[:15] = 0.0
    assert set(ask(problem, np.ones(3), 0.1, n_near=50).near.row) == {15, 16, 17, 18, 19}


def by_differences(gradient: Callable[[Floats], Floats], plane: Floats) -> Floats:
    step = 1e-6
    return np.stack(
        [(gradient(plane + step * unit) - gradient(plane - step * unit)) / (2 * step) for unit in np.eye(len(plane))]
    )


@pytest.mark.parametrize("intersected", [False, True])
def test_curvature_within__is_that_of_the_brackets_above_0(intersected: bool) -> None:
    problem = drawn_problem(6, 60, 3, intersected=intersected)
    plane = np.array([0.4, -0.3, 0.5, 0.1])
    values, _ = bracket(problem.terms, problem.y, plane[:3])
    costs = np.where(1 + problem.y * plane[3] + values > 0, problem.cost, 0.0)

    def gradient(weights: Floats) -> Floats:
        points = extremes(problem.terms, problem.y, weights, SOFT).points
        return np.asarray(costs @ (-problem.y[:, None] * points))

    expected = by_differences(gradient, plane[:3])
    found = ask(problem, plane[:3], plane[3]).within
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())
    assert np.linalg.eigvalsh(found).min() > -1e-12


def test_curvature_without_weights__is_that_of_the_softened_norm() -> None:
    problem = drawn_problem(6, 60, 3)
    costs = np.where(1 - 0.2 * problem.y > 0, problem.cost, 0.0)
    found = ask(problem, np.zeros(3), -0.2).within
    np.testing.assert_allclose(found, np.diag(costs @ np.square(problem.terms.spread)) / SOFT, rtol=1e-12)


def test_curvature_across__is_that_of_smoothed_hinges_of_planes() -> None:
    problem = drawn_problem(6, 60, 3)
    plane = np.array([0.4, -0.3, 0.5, 0.1])
    _, subgradients = bracket(problem.terms, problem.y, plane[:3])
    rows = np.column_stack([subgradients, problem.y])

    def gradient(plane: Floats) -> Floats:
        return np.asarray(problem.cost * np.clip((1 + rows @ plane) / BANDS[0] + 0.5, 0, 1) @ rows)

    expected = by_differences(gradient, plane)
    found = ask(problem, plane[:3], plane[3]).across
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


def test_cuts_without_weights__share_the_ball_out() -> None:
    # A ball of radius 2 in two features: at no weights nothing says where it is reached, yet its cut has a width.
    terms = Terms(np.zeros((2, 2)), np.zeros((2, 2)), np.full((2, 2), 2.0))
    answer = ask(Problem(terms, np.array([-1.0, 1.0]), np.ones(2)), np.zeros(2), 0.0)
    np.testing.assert_allclose(answer.cuts.width[0], 2 * 2 / np.sqrt(2))
    np.testing.assert_allclose(answer.near.cuts.width, 2 / np.sqrt(2))
    # The round ones have the ball itself, for the hinge and each band.
    np.testing.assert_allclose(answer.cuts.round[3], 4.0)
    assert list(answer.cuts.rounded) == [3, 4, 5]


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_answers__have_the_same_bits_for_any_threads(threads: int) -> None:
    problem = drawn_problem(7, 3000, 5, intersected=True)
    weights = np.linspace(-1, 1, 5)
    expected = ask(problem, weights, 0.1, block_rows=64)
    with thread_engine(threads) as engine:
        found = ask(problem, weights, 0.1, block_rows=64, engine=engine)
    assert found.risk == expected.risk
    np.testing.assert_array_equal(found.cuts.center, expected.cuts.center)
    np.testing.assert_array_equal(found.across, expected.across)
    np.testing.assert_array_equal(found.within, expected.within)
    np.testing.assert_array_equal(found.near.cuts.center, expected.near.cuts.center)


def test_survey__counts_costs_and_reach() -> None:
    problem = drawn_problem(8, 100, 3)
    survey = Engine().reduce(problem.source(16), SURVEY, samples_of)
    assert survey.cost[1] == pytest.approx(problem.cost[problem.y > 0].sum())
    middle = (problem.terms.mean_low + problem.terms.mean_high) / 2
    means = [np.average(middle[problem.y == y], axis=0, weights=problem.cost[problem.y == y]) for y in (-1, 1)]
    np.testing.assert_allclose(survey.origin, np.mean(means, axis=0))
    assert (survey.reach >= np.abs(problem.terms.mean_high).max(axis=0)).all()
