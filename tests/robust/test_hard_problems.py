"""Problems that break solvers: scales, offsets and costs over many decades, and samples that say next to nothing."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from support.robust_problems import Floats, Problem, drawn_problem, samples_of

from protodask.engine import Engine
from protodask.robust.bundle import solve_bundle
from protodask.robust.conic import solve_conic
from protodask.robust.terms import Terms
from protodask.robust.weak_duality import plane_of


def changed(problem: Problem, scale: Floats | float = 1.0, offset: Floats | float = 0.0) -> Problem:
    terms = problem.terms

    def moved(array: Floats | None) -> Floats | None:
        return None if array is None else array * scale + offset

    low, high = terms.mean_low * scale + offset, terms.mean_high * scale + offset
    return Problem(
        Terms(low, high, terms.spread * scale, moved(terms.lower), moved(terms.upper)), problem.y, problem.cost
    )


def of_rows(problem: Problem, places: NDArray[np.intp]) -> Problem:
    terms = problem.terms
    lower = None if terms.lower is None else terms.lower[places]
    upper = None if terms.upper is None else terms.upper[places]
    kept = Terms(terms.mean_low[places], terms.mean_high[places], terms.spread[places], lower, upper)
    return Problem(kept, problem.y, problem.cost)


def costing(problem: Problem, cost: Floats | float) -> Problem:
    return Problem(problem.terms, problem.y, problem.cost * cost)


def one_of_a_label(problem: Problem) -> Problem:
    return Problem(problem.terms, np.where(np.arange(len(problem.y)) == 3, 1.0, -1.0), problem.cost)


def half_for_nothing(problem: Problem) -> Problem:
    return costing(problem, np.where(np.arange(len(problem.y)) % 4 < 2, 1.0, 0.0))


def no_width(problem: Problem) -> Problem:
    middle = (problem.terms.mean_low + problem.terms.mean_high) / 2
    ends = () if problem.terms.lower is None else (middle, middle)
    return Problem(Terms(middle, middle, problem.terms.spread, *ends), problem.y, problem.cost)


def decades(n: int, most: float) -> Floats:
    return 10.0 ** np.random.default_rng(n).uniform(-most, most, n)


HARD: dict[str, Callable[[bool], Problem]] = {
    "features from 1e-6 to 1e6": lambda i: changed(drawn_problem(1, 40, 12, intersected=i), decades(12, 6.0)),
    "offsets of 1e6": lambda i: changed(drawn_problem(1, 40, 12, intersected=i), offset=1e6 * np.linspace(-1, 1, 12)),
    "costs from 1e-6 to 1e6": lambda i: costing(drawn_problem(1, 40, 12, intersected=i), decades(40, 6.0)),
    "C of 1e-6": lambda i: costing(drawn_problem(1, 40, 12, intersected=i), 1e-6),
    "C of 1e6": lambda i: costing(drawn_problem(1, 40, 12, intersected=i), 1e6),
    "C of 1e-6, separable": lambda i: costing(drawn_problem(2, 40, 12, intersected=i, distance=6.0), 1e-6),
    "C of 1e6, separable": lambda i: costing(drawn_problem(2, 40, 12, intersected=i, distance=6.0), 1e6),
    "half at no cost": lambda i: half_for_nothing(drawn_problem(1, 40, 12, intersected=i)),
    "one sample of a label": lambda i: one_of_a_label(drawn_problem(1, 40, 12, intersected=i, cost=100.0)),
    "two samples": lambda i: drawn_problem(3, 2, 7, intersected=i, cost=1e3),
    "two samples of 50 features": lambda i: drawn_problem(3, 2, 50, intersected=i),
    "all samples identical": lambda i: of_rows(drawn_problem(1, 40, 12, intersected=i), np.zeros(40, dtype=np.intp)),
    "duplicates of one feature": lambda i: of_rows(drawn_problem(4, 60, 1, intersected=i), np.arange(60) // 10),
    "support of no width": lambda i: no_width(drawn_problem(5, 50, 8, intersected=i)),
    "nothing but zeros": lambda i: changed(drawn_problem(1, 40, 12, intersected=i), 0.0),
}


@pytest.mark.parametrize("intersected", [False, True])
@pytest.mark.parametrize("name", HARD)
def test_hard_problem__converges_and_its_bounds_are_true(name: str, intersected: bool) -> None:
    problem = HARD[name](intersected)
    found = solve_bundle(problem.source(), samples_of, Engine(), gap=1e-5, max_passes=60)
    assert found.status == "converged"
    assert found.objective - found.dual_objective <= 1e-5 * found.objective
    # The plane costs what it is said to: no more than it does with the best intercept.
    best = plane_of(problem.terms, problem.y, problem.cost, found.weights, found.intercept)
    assert best.objective <= found.objective * (1 + 1e-8)
    assert found.dual_objective <= best.objective * (1 + 1e-12)
    if name == "features from 1e-6 to 1e6":
        return  # scales that are beyond the cone solver, which takes long to find that out
    exact = solve_conic(problem.terms, problem.y, problem.cost)
    assert found.objective == pytest.approx(exact.objective, rel=2e-5)
    assert found.dual_objective <= exact.objective * (1 + 1e-12)
    assert exact.dual_objective <= found.objective * (1 + 1e-12)


def test_costs_beyond_all_digits__are_said_to_be() -> None:
    # Slack of a unit in the last place costs more than the margin itself.
    problem = costing(drawn_problem(2, 40, 12, distance=6.0), 1e17)
    found = solve_bundle(problem.source(), samples_of, Engine(), gap=1e-9, max_passes=8)
    exact = solve_conic(problem.terms, problem.y, np.full(40, 1.0))
    assert found.dual_objective <= exact.objective * (1 + 1e-12)
    assert (found.status == "converged") == (found.relative_gap <= 1e-9)
