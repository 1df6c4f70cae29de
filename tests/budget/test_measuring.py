from __future__ import annotations

import gc
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.quantiles import pinball_loss
from scipy.optimize import linprog, minimize
from support.errors import refused

from protodask.budget import MeasuredCosts, measure_costs
from protodask.budget.costs import CostCurves
from protodask.budget.measuring import as_coefficients, costs_of, fit_quantile, item_size, sizes_of
from protodask.budget.polynomials import evaluate
from protodask.engine.records import Floats


class Clock:
    """Time that passes only when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_measure_costs__with_a_clock_of_its_own() -> None:
    clock = Clock()
    calls: list[tuple[str, int]] = []

    def slow(item: str) -> int:
        assert not gc.isenabled()
        calls.append(("slow", len(item)))
        clock.now += 2 + len(item)
        return 1

    def quick(item: str) -> int:
        calls.append(("quick", len(item)))
        clock.now += 0.5
        return 1

    items = ["a", "bbb", "cc", "dddddd"]
    found = measure_costs({"slow": slow, "quick": quick}, items, repeats=2, clock=clock)

    assert gc.isenabled()
    assert calls[:2] == [("slow", 1), ("quick", 1)]  # warmed up
    assert len(calls) == 2 + 2 * 4 * 2
    assert found.feature_names == ("slow", "quick")
    assert found.sizes.tolist() == [1, 3, 2, 6]
    assert found.seconds.tolist() == [[[3, 3], [5, 5], [4, 4], [8, 8]], [[0.5, 0.5]] * 4]
    np.testing.assert_allclose(found.costs, np.array([[2, 1, 0], [0.5, 0, 0]]), atol=1e-6)
    assert found.coverage.tolist() == [1, 1]
    assert found.held_out_coverage.min() >= 0.5  # an end of the range, held out, may stick out by a rounding


def test_measure_costs__garbage_does_not_pile_up() -> None:
    class Ring:
        alive = 0

        def __init__(self) -> None:
            self.own = self
            Ring.alive += 1

        def __del__(self) -> None:
            Ring.alive -= 1

    alive: list[int] = []

    def extractor(_: int) -> int:
        Ring()
        alive.append(Ring.alive)
        return 1

    measure_costs({"ring": extractor}, range(1000), repeats=1)
    assert max(alive) < 300


def test_costs_of__headroom_and_coverage() -> None:
    generator = np.random.default_rng(0)
    sizes = np.repeat([10.0, 100.0, 1000.0], 100)
    seconds = (1e-4 + 1e-6 * sizes)[None, :, None] * generator.exponential(1, (2, 300, 3))

    tight, loose = (costs_of(["a", "b"], sizes, seconds, quantile=0.9, headroom=factor) for factor in (1.0, 1.5))

    np.testing.assert_allclose(loose.costs, 1.5 * tight.costs)
    assert tight.coverage == pytest.approx([0.9, 0.9], abs=0.01)
    assert tight.held_out_coverage == pytest.approx([0.9, 0.9], abs=0.03)
    assert (loose.coverage > tight.coverage).all()
    assert (loose.held_out_coverage > tight.held_out_coverage).all()
    assert costs_of(["a", "b"], sizes, seconds).coverage.tolist() == [1, 1]
    assert costs_of(["a", "b"], sizes, seconds).held_out_coverage.min() > 0.98


def test_costs_of__coverage_held_out_is_of_curves_that_did_not_see_the_timings() -> None:
    # One timing of ten sticks out: the curve that covers all of them in sample misses it when it is held out.
    seconds = np.ones((1, 10, 1))
    seconds[0, 3] = 9.0
    found = costs_of(["a"], np.ones(10), seconds, degree=0)
    assert found.coverage.tolist() == [1.0]
    assert found.held_out_coverage.tolist() == [0.9]
    assert np.isnan(costs_of(["a"], [1.0], [[[1.0]]]).held_out_coverage).all()


def test_item_size__of_many_kinds() -> None:
    assert item_size(np.zeros((3, 4))) == 12
    assert item_size("abc") == 3
    assert item_size([1, 2]) == 2
    assert item_size(3.5) == 1
    assert item_size(np.float64(2)) == 1


def test_sizes_of__says_which_item_has_none() -> None:
    assert sizes_of(["a", "bb"], len).tolist() == [1, 2]
    with refused("user-code", "Item 1", "ValueError", "`size`"):
        sizes_of(["1", "x"], float)
    with refused("user-code", "Item 1", "-1.0", "`size`"):
        sizes_of([1, -1], float)
    with refused("user-code", "Item 0", "nan", "`size`"):
        sizes_of([np.nan], float)


def test_as_coefficients__by_name_in_order_and_measured() -> None:
    found = as_coefficients({"b": [1, 2], "a": 3.0}, ["a", "b"])
    assert found.tolist() == [[3, 0], [1, 2]]
    assert as_coefficients([[1], [2]], ["a", "b"]).tolist() == [[1], [2]]
    measured = MeasuredCosts(
        ("b", "a"), np.array([[1.0], [2.0]]), np.ones(1), np.ones((2, 1, 1)), 1.0, 1.0, np.ones(2), np.ones(2)
    )
    assert as_coefficients(measured, ["a", "b"]).tolist() == [[2], [1]]
    with refused("setting-missing", "'b'"):
        as_coefficients({"a": [1]}, ["a", "b"])
    with refused("wrong-shape", "(1, 2)", 2):
        as_coefficients([[1, 2]], ["a", "b"])


def test_measure_costs__refuses_what_makes_no_sense() -> None:
    with refused("no-rows", 0, 1):
        measure_costs({}, ["a"])
    with refused("no-rows", 1, 0):
        measure_costs({"a": len}, [])
    with refused("bad-setting", 0):
        measure_costs({"a": len}, ["a"], repeats=0)
    with refused("bad-setting", "quantile", "0.0"):
        measure_costs({"a": len}, ["a"], quantile=0.0)
    with refused("bad-setting", "degree", -1, 10):
        measure_costs({"a": len}, ["a"], degree=-1)
    with refused("bad-setting", "headroom", "0.5"):
        measure_costs({"a": len}, ["a"], headroom=0.5)


def test_fit_quantile__exact_curve() -> None:
    sizes = np.array([1.0, 2.0, 5.0, 9.0])
    for quantile in (0.3, 0.9, 1.0):
        found = fit_quantile(sizes, 3 + 2 * sizes + 0.5 * sizes**2, quantile, 2)
        np.testing.assert_allclose(found, [3, 2, 0.5], rtol=1e-6)


def test_fit_quantile__worst_case_by_hand() -> None:
    # Constants: the largest. Lines above (0, 1), (1, 3), (2, 3): through the first two 1 + 2 n is 9 in all; 2 + n,
    # through none of them but the second, and 3 + 0 n, through two, come to 9, too: any of the smallest sum is right.
    assert fit_quantile([0, 1, 2], [1, 3, 3], 1.0, 0) == pytest.approx([3])
    line = fit_quantile([0, 1, 2], [1, 3, 3], 1.0, 1)
    assert evaluate(line, [0.0, 1.0, 2.0]).sum() == pytest.approx(9)
    # Falling timings: no coefficient is negative, so the curve is level.
    assert fit_quantile([1, 2, 3], [9, 5, 1], 1.0, 2) == pytest.approx([9, 0, 0])


def test_fit_quantile__constant_is_the_order_statistic() -> None:
    values = np.array([5.0, 1.0, 4.0, 2.0, 3.0])
    assert fit_quantile(np.ones(5), values, 0.5, 0) == pytest.approx([3])
    assert fit_quantile(np.ones(5), values, 0.7, 0) == pytest.approx([4])
    assert fit_quantile(np.ones(1), [[1.0, 2.0, 3.0]], 0.5, 0) == pytest.approx([2])  # timings of one item


timings = st.lists(
    st.tuples(st.sampled_from([0.0, 1.0, 4.0, 64.0, 1024.0]), st.floats(0, 1e3)), min_size=1, max_size=30
)


@settings(max_examples=60)
@given(timings, st.sampled_from([0.1, 0.5, 0.75, 0.9, 1.0]), st.integers(0, 3), st.sampled_from([1e-9, 1.0, 1e6]))
def test_fit_quantile__covers_and_grows(
    points: list[tuple[float, float]], quantile: float, degree: int, unit: float
) -> None:
    sizes, values = (np.array(column) for column in zip(*points, strict=True))
    values = values * unit
    found = fit_quantile(sizes, values, quantile, degree)

    assert (found >= 0).all()
    assert found.shape == (degree + 1,)
    covered = (values <= evaluate(found, sizes)).mean()
    assert covered >= quantile - 1e-12
    CostCurves.of(found[None])  # may cost a feature, at any size
    ahead = evaluate(found, np.linspace(0, 1e5, 50))
    assert (np.diff(ahead) >= 0).all()


@settings(max_examples=30)
@given(timings, st.sampled_from([0.2, 0.5, 0.9]))
def test_fit_quantile__no_curve_of_a_grid_has_less_loss(points: list[tuple[float, float]], quantile: float) -> None:
    sizes, values = (np.array(column) for column in zip(*points, strict=True))
    found = fit_quantile(sizes, values, quantile, 1)
    least = pinball_loss(found.tolist(), sizes.tolist(), values.tolist(), quantile)
    # Optimal lines go through points, or through the origin, or are level: all of those, and a few more.
    pairs = product({*points, (0.0, 0.0)}, {*points, (0.0, 0.0)})
    lines = [(value, 0.0) for _, value in points]
    for (n1, t1), (n2, t2) in pairs:
        if n1 < n2:
            slope = (t2 - t1) / (n2 - n1)
            lines.append((t1 - slope * n1, slope))
    for constant, slope in lines:
        if constant >= 0 and slope >= 0:
            other = pinball_loss([constant, slope], sizes.tolist(), values.tolist(), quantile)
            assert least <= other + 1e-6 * (1 + values.sum())


def test_fit_quantile__worst_case_is_the_limit_of_quantiles() -> None:
    generator = np.random.default_rng(4)
    sizes = generator.choice([16.0, 64.0, 256.0, 1024.0], 200)
    values = 1e-5 + 1e-7 * sizes * generator.gamma(2, size=200)
    worst = fit_quantile(sizes, values, 1.0, 2)
    almost = fit_quantile(sizes, values, 1 - 1e-6, 2)
    np.testing.assert_allclose(evaluate(worst, sizes), evaluate(almost, sizes), rtol=1e-5)
    median = evaluate(fit_quantile(sizes, values, 0.5, 2), sizes).sum()
    tenth = evaluate(fit_quantile(sizes, values, 0.1, 2), sizes).sum()
    assert tenth < median < evaluate(worst, sizes).sum()


@pytest.mark.slow
def test_fit_quantile__agrees_with_a_general_solver() -> None:
    generator = np.random.default_rng(7)
    sizes = np.repeat([1.0, 2.0, 3.0, 4.0], 10)
    values = (1 + sizes + sizes**2) * generator.uniform(0.5, 1.5, 40)

    def loss(logarithms: Floats) -> float:
        return pinball_loss(np.exp(logarithms).tolist(), sizes.tolist(), values.tolist(), 0.8)

    found = fit_quantile(sizes, values, 0.8, 2)
    started = np.log(np.maximum(found, 1e-3))
    other = minimize(loss, started, method="Nelder-Mead", options={"maxiter": 4000, "xatol": 1e-9, "fatol": 1e-12})
    mine = pinball_loss(found.tolist(), sizes.tolist(), values.tolist(), 0.8)
    assert mine <= other.fun * (1 + 1e-6)


@pytest.mark.parametrize("quantile", [0.05, 0.5, 0.99])
def test_fit_quantile__many_values(quantile: float) -> None:
    generator = np.random.default_rng(1)
    sizes = generator.choice([1.0, 8.0, 64.0], 600)
    values = 1 + sizes * generator.gamma(2, size=600)
    found = fit_quantile(sizes, values, quantile, 2)
    # The programme as it stands: q u_i + (1 - q) v_i, where u_i - v_i = t_i - c(n_i).
    losses = np.r_[np.zeros(3), np.full(600, quantile), np.full(600, 1 - quantile)]
    equations = np.c_[sizes[:, None] ** np.arange(3), np.eye(600), -np.eye(600)]
    least = linprog(losses, A_eq=equations, b_eq=values, bounds=(0, None)).fun
    assert pinball_loss(found.tolist(), sizes.tolist(), values.tolist(), quantile) == pytest.approx(least, rel=1e-6)


def test_fit_quantile__refuses_negative_timings() -> None:
    with refused("bad-value"):
        fit_quantile([1.0], [-1.0], 1.0, 1)
