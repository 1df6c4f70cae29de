from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from support.robust_problems import Floats, drawn_problem, naive_objective, samples_of

from protodask.engine import Engine
from protodask.engine.records import taken
from protodask.robust import passes
from protodask.robust.master import Center, Hinges, Model, Multipliers, lower_bound, minimize_model
from protodask.robust.minorants import Minorants, first_cuts
from protodask.robust.passes import EVALUATE, SURVEY, Cuts, Question

REACH = np.full(3, 10.0)


def drawn_model(seed: int, n_features: int = 3) -> Model:
    """The minorants of a few planes of a drawn problem."""
    problem = drawn_problem(seed, 25, n_features)
    random = np.random.default_rng(seed)
    # Without cuts of either slope the intercept could run away.
    sides = first_cuts(Engine().reduce(problem.source(), SURVEY, samples_of), np.zeros(n_features))
    minorants = Minorants(sides, n_near=10)
    for number in range(1, 5):
        question = Question(random.normal(size=n_features), float(random.normal()), np.array([1.0, 0.2]), 10, 0.1)
        answer = Engine().reduce(problem.source(), EVALUATE, samples_of, np.zeros(n_features), question)
        minorants.add(answer, number, is_center=number == 1)
    return minorants.model


@settings(max_examples=10)
@given(st.integers(0, 10**6))
def test_model__is_nowhere_above_the_objective(seed: int) -> None:
    model, problem = drawn_model(seed), drawn_problem(seed, 25, 3)
    random = np.random.default_rng(seed + 1)
    for _ in range(10):
        weights, intercept = random.normal(size=3) * random.choice([0.1, 1, 10]), float(random.normal() * 3)
        exact = naive_objective(problem, weights, intercept)
        assert model.at(weights, intercept) <= exact * (1 + 1e-12) + 1e-12


@settings(max_examples=10)
@given(st.integers(0, 10**6), st.booleans())
def test_step__with_a_diagonal_is_that_with_its_matrix(seed: int, small: bool) -> None:
    model, random = drawn_model(seed), np.random.default_rng(seed)
    plane, diagonal = random.normal(size=4), random.random(4)
    # Whether the solver has zeros of the matrix makes no difference but rounding.
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(passes, "MOST_CURVED", 3 if small else 0)
        step = minimize_model(model, 1.0, Center(plane, diagonal))
    expected = minimize_model(model, 1.0, Center(plane, np.diag(diagonal)))
    np.testing.assert_allclose(step.plane, expected.plane, rtol=1e-5, atol=1e-6)


@settings(max_examples=10)
@given(st.integers(0, 10**6))
def test_lower_bound__meets_the_model_at_its_lowest_plane(seed: int) -> None:
    model = drawn_model(seed)
    step = minimize_model(model, 1.0)
    bound, shares = lower_bound(model, step.multipliers, REACH, box=100.0)
    lowest = model.at(step.plane[:-1], float(step.plane[-1]))
    assert bound == pytest.approx(lowest, rel=1e-6, abs=1e-8)
    assert bound <= lowest + 1e-9 * abs(lowest)
    assert (shares >= 0).all()


@settings(max_examples=30)
@given(st.integers(0, 10**6))
def test_lower_bound__holds_for_any_multipliers(seed: int) -> None:
    model = drawn_model(seed)
    random = np.random.default_rng(seed)
    wild = Multipliers(
        random.normal(size=len(model.cuts)),
        random.normal(size=len(model.rests)),
        random.normal(size=len(model.hinges.lines)) * 5,
        random.normal(size=model.cuts.round.shape) * 5,
    )
    bound, _ = lower_bound(model, wild, REACH, box=4.0)
    _, alone = lower_bound(model, replace(wild, details=np.zeros(len(model.rests))), REACH, box=4.0)
    assert (alone >= 0).all()
    assert alone.sum() == pytest.approx(1 if wild.cuts.max() > 0 else 0), "without details the cuts are all there is"
    for _ in range(20):
        weights, intercept = random.normal(size=3) * random.choice([0.01, 1, 5]), float(random.uniform(-4, 4))
        assert bound <= model.at(weights, intercept) + 1e-12


def test_lower_bound__of_numbers_that_are_not_finite_says_nothing() -> None:
    model = drawn_model(1)
    broken = Multipliers(
        np.full(len(model.cuts), np.nan),
        np.full(len(model.rests), np.inf),
        np.zeros(len(model.hinges.lines)),
        np.full(model.cuts.round.shape, np.nan),
    )
    assert lower_bound(model, broken, REACH, box=4.0)[0] == -np.inf


def test_minimize_model__with_a_center__agrees_with_a_search() -> None:
    model = drawn_model(5, n_features=2)
    center = Center(np.array([0.5, -0.2, 0.3]), np.diag([3.0, 1.0, 2.0]))

    def charged(plane: Floats) -> float:
        off = plane - center.plane
        return model.at(plane[:-1], float(plane[-1])) + float(off @ center.metric @ off) / 2

    found = minimize_model(model, 1.0, center).plane
    searched = minimize(charged, center.plane, method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-10})
    assert charged(found) <= searched.fun + 1e-6


def of_cuts(cuts: Cuts) -> Model:
    """A model without samples of its own."""
    none = taken(cuts, slice(0, 0))
    return Model(cuts, none, np.zeros((0, 0), dtype=bool), Hinges(np.zeros(0), none, np.zeros(0, dtype=np.intp)))


def test_cut_without_kinks__has_the_bound_of_its_formula() -> None:
    # 3 + 2 w: the least of 1/2 w^2 + 3 + 2 w is 1, at w = -2.
    cuts = Cuts.boxes(np.array([3.0]), np.array([[2.0]]), np.array([[0.0]]), np.array([0.0]))
    step = minimize_model(of_cuts(cuts), 1.0)
    assert step.plane[0] == pytest.approx(-2.0)
    assert lower_bound(of_cuts(cuts), step.multipliers, np.array([3.0]), 1.0)[0] == pytest.approx(1.0)
    # With 2 |w| beside it the weight is not worth its kink.
    kinked = Cuts.boxes(cuts.value, cuts.center, np.array([[2.0]]), cuts.slope)
    assert lower_bound(of_cuts(kinked), minimize_model(of_cuts(kinked), 1.0).multipliers, np.array([3.0]), 1.0)[
        0
    ] == pytest.approx(3.0)


def test_cut_with_a_norm__counts_a_pull_no_further_than_its_share() -> None:
    # 3 + 2 w + |w|: the least of 1/2 w^2 + that is 2.5, at w = -1; a pull of 2 against the center would make it 3.
    cuts = Cuts(np.array([3.0]), np.array([[2.0]]), np.array([[0.0]]), np.array([0.0]), np.array([[1.0]]))
    none = np.zeros(0)
    for pull, most in ((0.0, 1.0), (-1.0, 2.5), (-2.0, 2.5), (-5.0, 2.5)):
        multipliers = Multipliers(np.ones(1), none, none, np.array([[pull]]))
        assert lower_bound(of_cuts(cuts), multipliers, np.array([3.0]), 1.0)[0] == pytest.approx(most)
