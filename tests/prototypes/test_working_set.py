"""Candidates that sleep: the solver ends where it would without, and nobody sleeps who could help."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from protodask.prototypes import objective as objective_module
from protodask.prototypes.objective import AWAKE, LOOK_AGAIN, WorkingSet
from protodask.prototypes.solver import Evaluation, Function, solve

Floats = NDArray[np.float64]


class Coupled:
    """`1/2 (theta - c)' H (theta - c)` with an `H` that couples all variables; who sleeps has no gradient."""

    def __init__(self, seed: int, n_features: int, n_candidates: int) -> None:
        rng = np.random.default_rng(seed)
        length = n_features + n_candidates
        mixed = rng.normal(size=(length, length)) / length**0.5
        self.hessian = mixed @ mixed.T + 0.3 * np.eye(length)
        self.center = rng.normal(size=length)
        self.problem = SimpleNamespace(n_candidates=n_candidates)
        self.seen: list[tuple[Floats, NDArray[np.bool_]]] = []

    def plain(self, theta: Floats) -> Evaluation:
        slope = self.hessian @ (theta - self.center)
        return Evaluation(float(0.5 * (theta - self.center) @ slope), slope)

    def __call__(self, theta: Floats, asleep: NDArray[np.bool_]) -> Evaluation:
        self.seen.append((theta.copy(), asleep.copy()))
        found = self.plain(theta)
        gradient = found.gradient.copy()
        gradient[len(theta) - len(asleep) :][asleep] = 0
        return found._replace(gradient=gradient)


def watched(objective: Any) -> WorkingSet:
    return WorkingSet(objective, lambda function: function)


@settings(max_examples=30)
@given(seed=st.integers(0, 2**20), n_features=st.integers(0, 3), n_candidates=st.integers(1, 25))
def test_working_set__ends_where_all_candidates_end(seed: int, n_features: int, n_candidates: int) -> None:
    objective = Coupled(seed, n_features, n_candidates)
    start, scale = np.ones(n_features + n_candidates), np.ones(n_features + n_candidates)
    expected = solve(objective.plain, start, scale, 1e-14, 500)
    found = solve(watched(objective), start, scale, 1e-14, 500)
    again = solve(watched(objective), found.theta, scale, 1e-14, 500)  # whoever slept too long is looked at
    assert again.value == pytest.approx(expected.value, rel=1e-6, abs=1e-9)
    np.testing.assert_allclose(again.theta, expected.theta, atol=1e-3)


@settings(max_examples=30)
@given(seed=st.integers(0, 2**20))
def test_working_set__lets_none_sleep_that_has_weight_or_was_not_seen_to_be_useless(seed: int) -> None:
    objective = Coupled(seed, 2, 20)
    working = watched(objective)
    rng = np.random.default_rng(seed)
    last: Floats | None = None
    slept = 0
    for number in range(AWAKE + 4 * LOOK_AGAIN):
        theta = np.maximum(rng.normal(size=22), 0)
        if last is not None and rng.random() < 0.7:
            theta[2:][last[2:] == 0] = 0  # as the solver does
        found = working(theta)
        asleep = objective.seen[-1][1]
        slept += int(asleep.sum())
        assert found.value == objective.plain(theta).value
        assert not asleep[theta[2:] > 0].any()
        if number < AWAKE or number % LOOK_AGAIN == 0:
            assert not asleep.any()
        true = objective.plain(theta).gradient
        np.testing.assert_array_equal(found.gradient[:2], true[:2])
        np.testing.assert_array_equal(found.gradient[2:][~asleep], true[2:][~asleep])
        assert (found.gradient[2:][asleep] > 0).all()
        last = theta
    assert slept > 0


def test_working_set__goes_the_same_way_from_a_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objective_module, "AWAKE", 3)
    objective = Coupled(3, 2, 40)
    log: list[tuple[bytes, Evaluation]] = []
    start, scale = np.ones(42), np.ones(42)

    def writing(function: Function) -> Function:
        def evaluate(theta: Floats) -> Evaluation:
            log.append((theta.tobytes(), function(theta)))
            return log[-1][1]

        return evaluate

    whole = solve(WorkingSet(objective, writing), start, scale, 1e-14, 500)  # type: ignore[arg-type]
    asked = list(objective.seen)
    assert any(asleep.any() for _, asleep in asked)
    half = len(log) // 2

    def reading(function: Function) -> Function:
        past = iter(log[:half])

        def evaluate(theta: Floats) -> Evaluation:
            known = next(past, None)
            if known is None:
                return function(theta)
            assert known[0] == theta.tobytes()
            return known[1]

        return evaluate

    objective.seen.clear()
    repeated = solve(WorkingSet(objective, reading), start, scale, 1e-14, 500)  # type: ignore[arg-type]
    assert repeated.theta.tobytes() == whole.theta.tobytes()
    for (theta, asleep), (known_theta, known_asleep) in zip(objective.seen, asked[half:], strict=True):
        np.testing.assert_array_equal(theta, known_theta)
        np.testing.assert_array_equal(asleep, known_asleep)
