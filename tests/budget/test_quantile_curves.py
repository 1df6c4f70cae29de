from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.quantiles import pinball_loss
from scipy.optimize import linprog, minimize
from support.errors import refused

from protodask.budget.costs import CostCurves
from protodask.budget.polynomials import Floats, evaluate
from protodask.budget.quantile_curves import fit_quantile


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
