"""What is known more can only help: the least objectives of all formulations on the same drawn samples."""

import numpy as np
import pytest

from protodask.robust.conic import GAP, solve_conic
from protodask.robust.formulations import FORMULATIONS, SPREAD_TOLERANCE, make_terms
from protodask.robust.uncertain_rows import UncertainRows

ALWAYS = [
    ("SBMV-I", "SBMV"),
    ("SMV-I", "SMV"),
    ("SBM-I", "SBM"),
    ("SM-I", "SM"),
    ("SBMV-I", "S"),
    ("SBM-I", "S"),
    ("SMV-I", "S"),
    ("SM-I", "S"),
]
"""Pairs of which the first never costs more, whatever the spread."""

BUT_FOR_TOLERANCE = [
    ("SMV", "SM"),
    ("SMV-I", "SM-I"),
    ("SBMV", "SBM"),
    ("SBMV-I", "SBM-I"),
]
"""Pairs of which the first never costs more if the spread of both is the least there is.

Exact means against bounds around them are not among these: the spread falls as the bounds widen, and a set of possible
points may then be the smaller one; see the tests of the formulations.

It may be larger by its tolerance, and the objective then by a few times that share.
"""


def drawn_samples(seed: int) -> tuple[UncertainRows, UncertainRows, np.ndarray, float, float]:
    """Samples with exact means and the same with bounds around them, labels, eps and the cost."""
    rng = np.random.default_rng(seed)
    samples, features = int(rng.integers(2, 31)), int(rng.integers(1, 51))
    y = np.concatenate([[-1, 1], rng.choice([-1, 1], samples - 2)])
    centre = rng.normal(size=(samples, features)) + y[:, None] * rng.normal(size=features)
    half = rng.exponential(size=(samples, features)) * rng.choice([0.0, 0.1, 1.0], size=(samples, features))
    lower, upper = centre - half, centre + half
    at = np.where(rng.random((samples, features)) < 0.1, 0.0, rng.random((samples, features)))
    mean = np.clip(lower + at * (upper - lower), lower, upper)
    variance = rng.random((samples, features)) * (mean - lower) * (upper - mean)
    low = np.clip(mean - 0.2 * half * rng.random((samples, features)), lower, mean)
    high = np.clip(mean + 0.2 * half * rng.random((samples, features)), mean, upper)
    second = np.square(mean) + variance
    exact = UncertainRows(lower, upper, mean, mean, second_moment=second)
    bounded = UncertainRows(lower, upper, low, high, second_moment=second)
    return exact, bounded, y, float(rng.choice([0.5, 0.1, 0.05, 0.01])), float(10.0 ** rng.uniform(-2, 2))


def check_order(seed: int) -> None:
    exact, bounded, y, eps, cost = drawn_samples(seed)
    least: dict[str, float] = {}
    for name in FORMULATIONS:
        rows = bounded if name.startswith("SBM") else exact
        least[name] = solve_conic(make_terms(rows, name, eps), y, cost).objective
    for less, more in ALWAYS:
        assert least[less] <= least[more] * (1 + 2 * GAP), (less, more)
    for less, more in BUT_FOR_TOLERANCE:
        assert least[less] <= least[more] * (1 + 3 * SPREAD_TOLERANCE), (less, more)
    for more in ("S", "MC", "SBMV-I", "SMV-I", "SBM-I", "SM-I"):
        assert least["M"] <= least[more] * (1 + 2 * GAP), more
    assert least["SVM"] == least["M"]


def test_solve_conic__what_is_known_more_never_costs_more() -> None:
    check_order(0)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1, 200, 20))
def test_solve_conic__what_is_known_more_never_costs_more_of_200_problems(first: int) -> None:
    for seed in range(first, min(first + 20, 200)):
        check_order(seed)
