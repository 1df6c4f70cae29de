"""Both solvers on the same drawn problems, one set of samples as every formulation sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from support.robust_problems import drawn_by_formulation, samples_of

from protodask.engine import Engine
from protodask.robust import passes
from protodask.robust.bundle import solve_bundle
from protodask.robust.conic import solve_conic
from protodask.robust.formulations import FORMULATIONS, Formulation

ROUNDING = 1e-12
"""Relative to an objective, by which a bound of it may be above it."""


def check_agreement(formulation: Formulation, seeds: Iterable[int], record: Callable[[str, object], None]) -> None:
    worst, most = (0.0, -1), (0, -1)
    for seed in seeds:
        problem = drawn_by_formulation(seed, formulation)
        exact = solve_conic(problem.terms, problem.y, problem.cost)
        found = solve_bundle(problem.source(), samples_of, Engine(), gap=1e-5)
        assert found.status == "converged", seed
        assert found.objective == pytest.approx(exact.objective, rel=1e-4), seed
        assert found.dual_objective <= exact.objective * (1 + ROUNDING), seed
        assert exact.dual_objective <= found.objective * (1 + ROUNDING), seed
        worst = max(worst, (abs(found.objective / exact.objective - 1), seed))
        most = max(most, (found.passes, seed))
    record("worst relative difference, seed", worst)
    record("most passes, seed", most)


@pytest.mark.parametrize("formulation", FORMULATIONS)
def test_bundle_and_cone_program__agree(
    formulation: Formulation, record_property: Callable[[str, object], None]
) -> None:
    # Small ones, separable and not.
    check_agreement(formulation, (3, 30, 57), record_property)


@pytest.mark.parametrize("formulation", ["M", "SBMV", "SBMV-I"])
def test_bundle_with_the_diagonal_of_the_curvature__agrees_too(
    formulation: Formulation, record_property: Callable[[str, object], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passes, "MOST_CURVED", 0)
    check_agreement(formulation, (3, 30, 57), record_property)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("first", range(0, 200, 40))
@pytest.mark.parametrize("formulation", FORMULATIONS)
def test_bundle_and_cone_program__agree_on_200_problems(
    formulation: Formulation, first: int, record_property: Callable[[str, object], None]
) -> None:
    # The even problems or the odd ones, which alternate by pairs of formulations: each is solved by half of them.
    check_agreement(
        formulation, range(first + FORMULATIONS.index(formulation) // 2 % 2, first + 40, 2), record_property
    )
