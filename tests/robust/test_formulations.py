import sys
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from reference.uncertain_sets import largest, two_points
from scipy import optimize, stats
from support.errors import refused
from support.robust_terms import sample_of

from protodask.robust import formulations
from protodask.robust.brackets import bracket
from protodask.robust.formulations import (
    FORMULATIONS,
    SPREAD_TOLERANCE,
    largest_deviation,
    make_terms,
    named,
    spread_multiple,
    unit_terms,
)
from protodask.robust.spread import nu
from protodask.robust.terms import Terms
from protodask.robust.uncertain_rows import UncertainRows

Floats = NDArray[np.float64]

SAFE = [name for name in FORMULATIONS if name not in ("SVM", "M")]


def some_rows(rng: np.random.Generator, shape: tuple[int, int], *, exact: bool) -> UncertainRows:
    """Rows with all that can be known; some points, some means at an end, far from 0 or not."""
    center = rng.normal(size=shape) * rng.choice([0.0, 1.0, 30.0])
    half = rng.exponential(size=shape) * (rng.uniform(size=shape) > 0.1)
    means = np.sort(np.clip(rng.uniform(-1.2, 1.2, size=(2, *shape)), -1, 1), axis=0)
    if exact:
        means[1] = means[0]
    least = np.square(np.clip(0.0, *means))
    square = least + (1.1 - least) * rng.uniform(size=shape) ** 2
    low, high = center + half * means[0], center + half * means[1]
    return UncertainRows(
        center - half, center + half, low, np.maximum(low, high), np.square(half) * square + 1e-12, origin=center
    )


@pytest.mark.parametrize("name", FORMULATIONS)
def test_named__every_formulation_with_and_without_prefix(name: str) -> None:
    assert named(name) == named(f"MM-{name}") == name


@pytest.mark.parametrize("name", ["", "MM-", "sbmv", "SV", "SVM-I", "MM-MM-S"])
def test_named__unknown(name: str) -> None:
    with refused("unknown-name", repr(name), *FORMULATIONS):
        named(name)


@pytest.mark.parametrize("eps", [0.0, 5e-324, 1.0, -0.1, np.nan])
def test_make_terms__no_probability(eps: float) -> None:
    with refused("bad-setting", f"eps is {eps}", 0, 1):
        make_terms(UncertainRows.point([[1.0]]), "S", eps)


@pytest.mark.parametrize("name", FORMULATIONS)
def test_make_terms__known_points_have_no_spread(name: str) -> None:
    values = np.array([[1.0, -2.5], [0.1, 1e6]])
    for rows in (UncertainRows.point(values), UncertainRows(values, values, values, values, np.square(values))):
        terms = make_terms(rows, name, 0.1)
        np.testing.assert_array_equal(terms.mean_low, values)
        np.testing.assert_array_equal(terms.mean_high, values)
        np.testing.assert_array_equal(terms.spread, 0.0)
        assert terms.intersected == name.endswith("-I")


def test_make_terms__by_hand() -> None:
    rows = UncertainRows([[0.0]], [[4.0]], [[3.0]], [[3.0]], [[10.0]])
    kappa = np.sqrt(2 * np.log(10))

    def parts(name: str) -> tuple[object, object, object]:
        terms = make_terms(rows, name, 0.1)
        return float(terms.mean_low[0, 0]), float(terms.mean_high[0, 0]), float(terms.spread[0, 0])

    assert parts("SVM") == parts("M") == (3, 3, 0)
    assert parts("S") == (0, 4, 0)
    assert parts("MC") == (3, 3, pytest.approx(3 * np.sqrt(10 - 9)))
    # Normalised the mean is 0.5 and the second moment (10 - 12 + 4) / 4 = 0.5, the variance 0.25.
    assert parts("SMV") == parts("SBMV") == (3, 3, pytest.approx(2 * kappa * float(nu(0.5, 0.5, np.sqrt(0.5)))))
    assert parts("SM") == parts("SBM") == (3, 3, pytest.approx(2 * kappa * float(nu(0.5, 0.5, 1.0))))
    terms = make_terms(rows, "SMV-I", 0.1)
    assert terms.lower is not None
    assert terms.upper is not None
    assert (terms.lower[0, 0], terms.upper[0, 0]) == (0, 4)


@pytest.mark.parametrize("name", ["SM", "SM-I", "SMV", "SMV-I"])
def test_make_terms__exact_means_are_not_known(name: str) -> None:
    rows = UncertainRows(
        np.zeros((3, 2)),
        np.ones((3, 2)),
        np.full((3, 2), 0.5),
        [[0.5, 0.5], [0.5, 0.75], [0.5, 0.5]],
        first_row=40,
        feature_names=("width", "height"),
    )
    bounds = name.replace("SM", "SBM")
    with refused("unsupported", name, "sample 41", "feature height", "0.5 and 0.75", bounds):
        make_terms(rows, name, 0.1)
    assert make_terms(rows.exact_means(), name, 0.1).mean_low[1, 1] == 0.625


@pytest.mark.parametrize("name", FORMULATIONS)
def test_unit_terms__times_the_multiple(name: str) -> None:
    rows = some_rows(np.random.default_rng(1), (4, 3), exact=True)
    terms, unit = make_terms(rows, name, 0.05), unit_terms(rows, name)
    np.testing.assert_array_equal(terms.spread, unit.spread * spread_multiple(name, 0.05))
    np.testing.assert_array_equal(terms.mean_low, unit.mean_low)


@pytest.mark.parametrize("name", ["SBMV-I", "MC"])
def test_unit_terms__tile_by_tile(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = some_rows(np.random.default_rng(2), (23, 3), exact=False)
    whole = unit_terms(rows, name)
    monkeypatch.setattr(formulations, "TILE", 12)
    np.testing.assert_array_equal(unit_terms(rows, name).spread, whole.spread)


def test_spread_multiple__by_hand() -> None:
    assert spread_multiple("MC", 0.1) == pytest.approx(3.0)
    assert spread_multiple("SBM-I", np.exp(-2)) == pytest.approx(2.0)
    assert np.isfinite(spread_multiple("MC", sys.float_info.min))


@given(st.integers(0, 2**32))
def test_largest_deviation__fine_grid_of_means(seed: int) -> None:
    rows = some_rows(np.random.default_rng(seed), (1, 3), exact=False)
    found = largest_deviation(rows)[0]
    for j in range(3):
        low, high, lower, upper = (float(a[0, j]) for a in (rows.mean_low, rows.mean_high, rows.lower, rows.upper))
        assert rows.second_moment is not None
        assert rows.origin is not None
        second, origin = float(rows.second_moment[0, j]), float(rows.origin[0, j])

        means = np.linspace(low, high, 2001)
        best = np.minimum((upper - means) * (means - lower), second - np.square(means - origin)).max()
        assert np.sqrt(max(best, 0.0)) <= found[j] + 1e-5
        assert found[j] <= np.sqrt(max(best, 0.0) + 1e-3 * (upper - lower) ** 2)


def test_largest_deviation__where_what_the_support_and_the_second_moment_allow_meet() -> None:
    # min(1 - m^2, 1 - (m - 1/2)^2) is 3/4 at m = 0 and at m = 1/2, and 15/16 between them.
    rows = UncertainRows([[-1.0]], [[1.0]], second_moment=[[1.0]], origin=0.5)
    assert largest_deviation(rows)[0, 0] == pytest.approx(np.sqrt(15 / 16))


@given(st.integers(0, 2**32), st.floats(-2, 2))
def test_largest_deviation__of_a_second_moment_about_any_point(seed: int, origin: float) -> None:
    rng = np.random.default_rng(seed)
    means = np.sort(rng.uniform(-1, 1, size=(2, 1, 4)), axis=0)
    least = np.square(np.clip(origin, *means) - origin)
    second = least + rng.uniform(size=(1, 4)) * ((1 + abs(origin)) ** 2 - least)
    ones = np.ones((1, 4))
    rows = UncertainRows(-ones, ones, means[0], means[1], second, origin=origin)
    found = largest_deviation(rows)[0]
    tried = np.linspace(rows.mean_low[0], rows.mean_high[0], 2001)
    best = np.maximum(np.minimum(1 - np.square(tried), second - np.square(tried - origin)).max(axis=0), 0.0)
    assert (np.sqrt(best) <= found + 1e-5).all()
    assert (np.square(found) <= best + 5e-3).all()


def values_of(rows: UncertainRows, eps: float, direction: Floats) -> dict[str, float]:
    return {name: largest(sample_of(make_terms(rows, name, eps), 0), direction) for name in FORMULATIONS}


@settings(max_examples=60)
@given(st.integers(0, 2**32), st.integers(1, 6), st.sampled_from([0.5, 0.1, 0.01, 1e-3]))
def test_brackets__more_knowledge_never_asks_for_more(seed: int, n_features: int, eps: float) -> None:
    rng = np.random.default_rng(seed)
    rows = some_rows(rng, (1, n_features), exact=True)
    direction = rng.normal(size=n_features)
    found = values_of(rows, eps, direction)
    # The tolerance of the spread, and sums of numbers around 30.
    slack = (SPREAD_TOLERANCE * spread_multiple("S", eps) + 1e-12) * float(
        np.abs(direction) @ (rows.half_width[0] + np.abs(rows.center[0]))
    )
    order = [("S", "SM-I"), ("SM-I", "SMV-I"), ("S", "SBM-I"), ("SBM-I", "SBMV-I"), ("SM", "SMV"), ("SBM", "SBMV")]
    order += [(name, f"{name}-I") for name in ("SM", "SMV", "SBM", "SBMV")]
    order += [(name, "M") for name in SAFE]
    for more, less in order:
        assert found[less] <= found[more] + slack, (more, less)


def test_brackets__without_the_support_one_feature_asks_for_more_than_the_support() -> None:
    # Of a feature with mean 0 in [-1, 1] nothing but the support keeps Bernstein's bound within it.
    rows = UncertainRows([[-1.0]], [[1.0]], [[0.0]], [[0.0]])
    found = values_of(rows, 0.1, np.ones(1))
    assert found["SM"] == pytest.approx(np.sqrt(2 * np.log(10)), rel=2 * SPREAD_TOLERANCE)
    assert found["S"] == found["SM-I"] == 1


def test_brackets__many_features_ask_for_less_than_the_support() -> None:
    rows = UncertainRows(-np.ones((1, 50)), np.ones((1, 50)), np.zeros((1, 50)), np.zeros((1, 50)))
    found = values_of(rows, 0.1, np.ones(50))
    assert found["SM"] == pytest.approx(np.sqrt(50 * 2 * np.log(10)), rel=2 * SPREAD_TOLERANCE)
    assert found["S"] == 50


Draw = Callable[[np.random.Generator, int], Floats]


def uniform() -> tuple[Draw, float, float]:
    return (lambda rng, n: rng.uniform(-0.6, 1.0, size=n)), 0.2, 1.6**2 / 12 + 0.04


def beta() -> tuple[Draw, float, float]:
    mean, variance = (float(value) for value in stats.beta.stats(0.5, 2.0))
    return (lambda rng, n: 2 * rng.beta(0.5, 2.0, size=n) - 1), 2 * mean - 1, 4 * variance + (2 * mean - 1) ** 2


def truncated_normal() -> tuple[Draw, float, float]:
    shape = stats.truncnorm(-2.5, 1.5, loc=0.25, scale=0.5)
    mean, variance = (float(value) for value in shape.stats())
    # By the inverse distribution function: scipy's own draws are slow.
    return (lambda rng, n: np.asarray(shape.ppf(rng.uniform(size=n)))), mean, variance + mean**2


def extremal(mean: float, second: float, *, upper_end: bool) -> Callable[[], tuple[Draw, float, float]]:
    points, probabilities = two_points(mean, second, upper_end=upper_end)

    def made() -> tuple[Draw, float, float]:
        return (lambda rng, n: rng.choice(points, size=n, p=probabilities)), mean, second

    return made


DISTRIBUTIONS: dict[str, Callable[[], tuple[Draw, float, float]]] = {
    "uniform": uniform,
    "beta": beta,
    "truncated normal": truncated_normal,
    "rarely 1": extremal(-0.9, 0.83, upper_end=True),
    "often 1": extremal(0.3, 0.5, upper_end=True),
    "rarely -1": extremal(0.5, 0.3, upper_end=False),
}


def check_safety(kind: str, n_draws: int, n_points: int) -> None:
    """The share of draws beyond the bracket is at most eps, but for what chance allows once in a million."""
    draw, mean, second = DISTRIBUTIONS[kind]()
    rng = np.random.default_rng(20)
    for point in range(n_points):
        n_features = (1, 2, 5, 20)[point % 4]
        center, half = rng.normal(size=(1, n_features)), rng.exponential(size=(1, n_features)) + 0.1
        slack = rng.choice([0.0, 0.05, 0.3]) * rng.uniform(size=(2, 1, n_features))
        low, high = np.maximum(mean - slack[0], -1), np.minimum(mean + slack[1], 1)
        bounds = UncertainRows(
            center - half, center + half, center + half * low, center + half * high, second * half**2, origin=center
        )
        exact = UncertainRows(
            center - half, center + half, center + half * mean, center + half * mean, second * half**2, origin=center
        )
        direction = rng.normal(size=n_features)
        if point % 2:
            direction = np.abs(direction) * (1 if "rarely -1" not in kind else -1)
        draws = np.empty((n_draws, n_features))
        for j in range(n_features):
            draws[:, j] = center[0, j] + half[0, j] * draw(rng, n_draws)
        reached = draws @ direction
        for name in SAFE:
            rows = exact if name.startswith("SM") else bounds
            for eps in (0.1, 0.05, 0.01):
                bracket = largest(sample_of(make_terms(rows, name, eps), 0), direction)
                # A bracket that is attained counts as beyond it: the constraint leaves the margin 1 - xi to it.
                beyond = int(np.sum(reached > bracket + 1e-9))
                assert stats.binom.sf(beyond - 1, n_draws, eps) > 1e-6, (name, eps, n_features, beyond / n_draws)


@pytest.mark.parametrize("kind", DISTRIBUTIONS)
def test_brackets__safe(kind: str) -> None:
    check_safety(kind, 4000, 4)


@pytest.mark.slow
@pytest.mark.parametrize("kind", DISTRIBUTIONS)
def test_brackets__safe_at_a_hundred_thousand_draws(kind: str) -> None:
    check_safety(kind, 100_000, 6)


def test_brackets__chebyshev_is_attained() -> None:
    # The two points that Cantelli's inequality cannot tell from the worst: a smaller bracket would not be safe.
    eps, mean = 0.1, -0.8
    gap = 1 - mean
    second = mean**2 + gap**2 * eps / (1 - eps)
    points, probabilities = two_points(mean, second, upper_end=True)
    rows = UncertainRows([[-1.0]], [[1.0]], [[mean]], [[mean]], [[second]])
    assert probabilities[1] == pytest.approx(eps)
    assert largest(sample_of(make_terms(rows, "MC", eps), 0), np.ones(1)) == pytest.approx(points[1])


@settings(max_examples=25)
@given(st.integers(0, 2**32))
def test_brackets__intersected_is_the_best_split(seed: int) -> None:
    # The reference of these tests against the infimal convolution that defines the bracket.
    rng = np.random.default_rng(seed)
    n_features = int(rng.integers(1, 4))
    rows = some_rows(rng, (1, n_features), exact=False)
    terms: Terms = make_terms(rows, "SBMV-I", 0.1)
    direction = rng.normal(size=n_features)

    def split(a: Floats) -> float:
        rest = direction - a
        return float(
            np.maximum(rows.lower[0] * rest, rows.upper[0] * rest).sum()
            + np.maximum(rows.mean_low[0] * a, rows.mean_high[0] * a).sum()
            + np.linalg.norm(terms.spread[0] * a)
        )

    found = largest(sample_of(terms, 0), direction)
    size = float(np.abs(direction) @ (rows.half_width[0] + np.abs(rows.center[0]))) + 1e-12
    starts = [direction, np.zeros(n_features), direction * rng.uniform(size=n_features)]
    best = min(float(optimize.minimize(split, start, method="Nelder-Mead").fun) for start in starts)
    assert found <= best + 1e-9 * size
    assert best <= found + 2e-2 * size


@pytest.mark.parametrize("mean", [-0.9, -0.5, 0.0])
def test_make_terms__an_exact_mean_may_bind_more_than_bounds_around_it(mean: float) -> None:
    def worst(name: str, low: float, high: float) -> float:
        rows = UncertainRows([[-1.0]], [[1.0]], [[low]], [[high]])
        return float(bracket(make_terms(rows, name, eps=0.1), np.array([1.0]), np.array([1.0]))[0][0])

    # The spread falls as the bounds widen: nu(-0.901, 0.891, 1) is well below nu(0, 0, 1) = 1.
    assert worst("SM", mean, mean) > worst("SBM", -0.901, 0.891)
