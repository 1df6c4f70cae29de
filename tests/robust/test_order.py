"""What is known more can only help: the least objectives of all formulations on the same drawn samples."""

from itertools import permutations

import numpy as np
import pytest

from protodask.robust.brackets import bracket
from protodask.robust.conic import GAP, solve_conic
from protodask.robust.formulations import FORMULATIONS, SPREAD_TOLERANCE, make_terms, spread_multiple
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


TOLERANCE = 1e-6
"""Of the spreads of the brackets that are compared."""


def drawn_rows(rng: np.random.Generator, n_rows: int, n_features: int) -> tuple[UncertainRows, UncertainRows]:
    """Features in [-1, 1] with exact means, and the same with bounds around them; some second moments are natural."""
    shape = (n_rows, n_features)
    mean = rng.uniform(-1, 1, shape)
    variance = (1 - np.square(mean)) * rng.random(shape) ** rng.choice([0.0, 0.3, 1.0, 4.0], (n_rows, 1))
    width = 10 ** rng.uniform(-3, 0, (2, *shape)) * rng.choice([0.0, 1.0], (2, *shape))
    second = np.square(mean) + variance
    low, high = np.maximum(mean - width[0], -1.0), np.minimum(mean + width[1], 1.0)
    ends = (-np.ones(shape), np.ones(shape))
    return UncertainRows(*ends, mean, mean, second), UncertainRows(*ends, low, high, second)


def largest_differences(eps: float, n_features: int, n_rows: int) -> dict[tuple[str, str], float]:
    """The most by which the bracket of the first of any two exceeds that of the second, for weights that add to 1."""
    rng = np.random.default_rng([n_features, round(1000 * eps)])
    exact, bounded = drawn_rows(rng, n_rows, n_features)
    weights = np.full(n_features, 1 / n_features)
    against = np.full(n_rows, -1.0)
    values = {
        name: bracket(make_terms(bounded if name.startswith("SBM") else exact, name, eps, TOLERANCE), against, weights)[
            0
        ]
        for name in FORMULATIONS
    }
    return {(less, more): float(np.max(values[less] - values[more])) for less, more in permutations(FORMULATIONS, 2)}


def always_ordered() -> set[tuple[str, str]]:
    """The pairs of the module's docstring, and all that follow."""
    pairs = {*ALWAYS, *BUT_FOR_TOLERANCE, ("SVM", "M"), ("M", "SVM")}
    pairs |= {(name, other) for name in ("M", "SVM") for other in FORMULATIONS if other != name}
    while more := {(a, d) for a, b in pairs for c, d in pairs if b == c and a != d} - pairs:
        pairs |= more
    return pairs


def test_brackets__are_ordered_as_documented_and_not_otherwise() -> None:
    most: dict[tuple[str, str], float] = {}
    for eps, n_features, n_rows in ((0.1, 1, 4000), (0.5, 1, 4000), (0.63, 1, 40_000), (0.1, 40, 50), (0.01, 1, 1000)):
        for pair, difference in largest_differences(eps, n_features, n_rows).items():
            most[pair] = max(most.get(pair, 0.0), difference)
    assert {pair for pair, difference in most.items() if difference <= 5 * TOLERANCE} == always_ordered()


@pytest.mark.parametrize(("eps", "ordered"), [(0.28, False), (0.29, True), (0.5, True), (0.9, True)])
def test_brackets__chebyshev_asks_for_less_at_large_eps(eps: float, ordered: bool) -> None:
    assert (spread_multiple("MC", eps) <= spread_multiple("SMV", eps)) == ordered
    difference = largest_differences(eps, 1, 4000)["MC", "SMV"]
    assert (difference <= 5 * TOLERANCE) == ordered


def test_brackets__exact_moments_may_bind_more_than_bounds_within_the_support_too() -> None:
    def worst(name: str, low: float, high: float, second: float, eps: float) -> float:
        rows = UncertainRows([[-1.0]], [[1.0]], [[low]], [[high]], [[second]])
        return float(bracket(make_terms(rows, name, eps), np.array([-1.0]), np.array([1.0]))[0][0])

    # The spread of the exact mean is that of t < 0, against which the bounds leave slack.
    assert worst("SMV-I", 0.1441, 0.1441, 0.2053**2, 0.1) > 0.99
    assert worst("SBMV-I", -0.2053, 0.1475, 0.2053**2, 0.1) < 0.88


def test_solve_conic__what_is_known_more_never_costs_more() -> None:
    check_order(0)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("first", range(1, 200, 20))
def test_solve_conic__what_is_known_more_never_costs_more_of_100_problems(first: int) -> None:
    for seed in range(first, min(first + 20, 200), 2):
        check_order(seed)
