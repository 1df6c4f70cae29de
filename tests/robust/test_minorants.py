from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.robust_problems import Problem, drawn_problem, naive_objective, samples_of

from protodask.engine import Engine
from protodask.engine.records import Floats
from protodask.robust.master import Multipliers
from protodask.robust.minorants import KEPT, MOST_CUTS, MOST_DETAILS, MOST_HINGES, Minorants, first_cuts
from protodask.robust.passes import EVALUATE, SURVEY, Answer, Question

N_NEAR = 10


def answer_at(problem: Problem, plane: Floats) -> Answer:
    question = Question(plane[:-1], float(plane[-1]), np.array([1.0, 0.2]), N_NEAR, 0.1)
    return Engine().reduce(problem.source(16), EVALUATE, samples_of, np.zeros(len(plane) - 1), question)


def started(problem: Problem) -> Minorants:
    n_features = problem.terms.mean_low.shape[1]
    return Minorants(
        first_cuts(Engine().reduce(problem.source(), SURVEY, samples_of), np.zeros(n_features)), n_near=N_NEAR
    )


def unused(minorants: Minorants) -> tuple[Floats, Multipliers]:
    model = minorants.model
    shares = np.zeros(len(model.cuts))
    lines = np.zeros(len(model.hinges.lines))
    return shares, Multipliers(shares, np.zeros(len(model.rests)), lines, np.zeros_like(model.cuts.round))


@settings(max_examples=8)
@given(st.integers(0, 10**6))
def test_model__is_exact_at_the_center_and_nowhere_above_the_objective(seed: int) -> None:
    problem, random = drawn_problem(seed, 40, 3), np.random.default_rng(seed)
    minorants = started(problem)
    center = random.normal(size=4)
    minorants.add(answer_at(problem, center), 1, is_center=True)
    for number in range(2, 7):
        minorants.add(answer_at(problem, random.normal(size=4)), number, is_center=False)
        _, multipliers = unused(minorants)
        some = random.random(len(multipliers.lines)) * (random.random(len(multipliers.lines)) < 0.3)
        minorants.thin_out(random.random(len(multipliers.cuts)), replace(multipliers, lines=some), number)
        exact = naive_objective(problem, center[:-1], center[-1])
        assert minorants.model.at(center[:-1], center[-1]) == pytest.approx(exact, rel=1e-12)
        for _ in range(5):
            plane = random.normal(size=4) * random.choice([0.1, 1.0, 10.0])
            exact = naive_objective(problem, plane[:-1], plane[-1])
            assert minorants.model.at(plane[:-1], plane[-1]) <= exact * (1 + 1e-12)


def test_model__of_two_passes_has_more_than_the_better_of_them() -> None:
    # Each sample's hinge is the larger of its lines, whichever pass they are of.
    problem, random = drawn_problem(1, 10, 2), np.random.default_rng(0)
    minorants = started(problem)
    alone = []
    planes = random.normal(size=(2, 3))
    for number, plane in enumerate(planes, 1):
        single = started(problem)
        for each in (minorants, single):
            each.add(answer_at(problem, plane), number, is_center=each is single)
        alone.append(single.model)
    between = planes.mean(axis=0)
    together = minorants.model.at(between[:-1], between[-1])
    assert together > max(model.at(between[:-1], between[-1]) for model in alone) + 1e-6
    assert together <= naive_objective(problem, between[:-1], between[-1])


def test_minorants__stay_few_however_many_passes() -> None:
    problem, random = drawn_problem(2, 300, 3), np.random.default_rng(0)
    minorants = started(problem)
    answers = [answer_at(problem, random.normal(size=4)) for _ in range(7)]
    for number in range(1, 130):
        minorants.add(answers[number % 7], number, is_center=number == 1)
        minorants.thin_out(*unused(minorants), number)
        model = minorants.model
        assert len(model.cuts) <= MOST_CUTS
        assert 2 - (number == 1) <= len(model.rests) <= MOST_DETAILS
        assert len(model.hinges.cost) <= MOST_HINGES * N_NEAR
        assert len(model.hinges.lines) <= (1 + KEPT) * N_NEAR
        # No hinge without a line: it would say nothing.
        assert set(model.hinges.sample) == set(range(len(model.hinges.cost))) or number > KEPT


def test_lines_that_took_part__stay() -> None:
    problem, random = drawn_problem(3, 30, 3), np.random.default_rng(0)
    minorants = started(problem)
    for number in range(1, 3):
        minorants.add(answer_at(problem, random.normal(size=4)), number, is_center=number == 1)
    before = minorants.model.hinges.lines.center[N_NEAR:]
    for number in range(3, 9):
        minorants.add(answer_at(problem, random.normal(size=4)), number, is_center=False)
        lines = minorants.model.hinges.lines.center
        used = (lines[:, None] == before).all(axis=2).any(axis=1).astype(np.float64)
        shares, multipliers = unused(minorants)
        details = np.ones(len(multipliers.details))
        minorants.thin_out(shares, replace(multipliers, details=details, lines=used), number)
        assert used.sum() > 0
