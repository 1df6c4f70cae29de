"""Which sets are expanded, against all sets there are."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.errors import refused

from protodask.budget.bounds import agrees, spread_to_supersets, sums_of_sets
from protodask.budget.costs import CostCurves
from protodask.budget.expansions import Expand, Expansion, FeatureSet
from protodask.budget.lattice import MOST_FEATURES, MOST_VAIN_TRIES, Exploration, ExplorationProgress, explore
from protodask.budget.polynomials import evaluate

Floats = NDArray[np.float64]
Sets = NDArray[np.int64]
SEEDS = st.integers(0, 2**32 - 1)
ALPHAS = st.sampled_from([0.0, 0.01, 0.1, 0.25, 1.0])
ERRORS = st.sampled_from([0.0, 0.02, 0.1])
BROKEN = "It is broken."


def number_of(features: FeatureSet) -> int:
    return sum(1 << feature for feature in features)


def expand_from(accuracy: Floats, failing: NDArray[Any] | None = None) -> tuple[Expand, list[int]]:
    """Expands by looking up, and the numbers of the sets that it was asked for."""
    asked: list[int] = []

    def expand(sets: Sequence[FeatureSet], on_end: Callable[[Expansion], None]) -> None:
        for features in reversed(sets):
            number = number_of(features)
            asked.append(number)
            if failing is not None and failing[number]:
                on_end(Expansion(features, None, BROKEN))
            else:
                on_end(Expansion(features, float(accuracy[number])))

    return expand, asked


def draw_accuracy(n_features: int, seed: int, error: float = 0.0) -> Floats:
    """Monotone within an error: maxima over parts of draws, of few values or of many, of which most are 0 or none."""
    rng = np.random.default_rng(seed)
    values = rng.random(1 << n_features)
    if rng.random() < 0.5:
        values = np.round(values * 8) / 8
    values[rng.random(1 << n_features) < rng.choice([0.0, 0.5, 0.9])] = 0.0
    spread_to_supersets(values, np.maximum)
    return np.asarray(values + rng.uniform(-error / 2, error / 2, len(values)))


def best_parts(accuracy: Floats, expanded: Sets) -> Floats:
    """For every set the largest accuracy of an expanded part of it."""
    sets = np.arange(len(accuracy))
    inside = (expanded[:, None] & ~sets) == 0
    return np.asarray(np.where(inside, accuracy[expanded][:, None], -np.inf).max(axis=0, initial=-np.inf))


def expanded_sets(found: Exploration) -> Sets:
    return np.array([number_of(one.features) for one in found.expansions if one.accuracy is not None], dtype=np.int64)


def gaps_by_definition(accuracy: Floats, expanded: Sets, error: float) -> Floats:
    sets = np.arange(len(accuracy))
    around = (sets & ~expanded[:, None]) == 0
    high = np.where(around, accuracy[expanded][:, None] + error, np.inf).min(axis=0, initial=np.inf)
    return np.asarray(high - best_parts(accuracy, expanded))


def k_best(n_features: int, k: int, seed: int) -> Floats:
    """The study's workload: a set errs where all of its `k` best features err."""
    rng = np.random.default_rng(seed)
    helpful = rng.random(n_features) < 0.5
    alone = np.where(helpful, rng.uniform(0.7, 1.0, n_features), rng.uniform(0.5, 0.7, n_features))
    has = (np.arange(1 << n_features)[:, None] >> np.arange(n_features)) & 1
    return np.asarray(1 - np.prod(1 - np.sort(alone * has, axis=1)[:, -k:], axis=1))


@settings(max_examples=100)
@given(st.integers(1, 8), SEEDS, ALPHAS, ERRORS)
def test_explore__leaves_no_set_more_than_alpha_better_than_an_expanded_part(
    n_features: int, seed: int, alpha: float, error: float
) -> None:
    accuracy = draw_accuracy(n_features, seed, error)
    expand, asked = expand_from(accuracy)
    found = explore(n_features, expand, alpha=alpha, monotone_error=error)
    expanded = expanded_sets(found)
    assert len(asked) == len(set(asked)) == len(expanded)
    assert (best_parts(accuracy, expanded) >= accuracy - alpha - 1e-12).all()
    assert (best_parts(accuracy, expanded) >= accuracy - found.guarantee - 1e-12).all()
    assert found.guarantee <= alpha
    gaps = np.delete(gaps_by_definition(accuracy, expanded, error), expanded)
    assert found.guarantee == pytest.approx(np.max(gaps, initial=0.0), abs=1e-12)
    assert agrees(found.observed_error, found.monotone_error)
    assert found.observed_error == np.max(best_parts(accuracy, expanded)[expanded] - accuracy[expanded])


@settings(max_examples=40)
@given(st.integers(1, 7), SEEDS, ALPHAS, ERRORS)
def test_explore__expands_no_set_that_was_settled(n_features: int, seed: int, alpha: float, error: float) -> None:
    accuracy = draw_accuracy(n_features, seed, error)
    found = expanded_sets(explore(n_features, expand_from(accuracy)[0], alpha=alpha, monotone_error=error))
    for position in range(2, len(found)):
        # Those of its own layer, which were asked for together, neither contain it nor are contained in it.
        assert gaps_by_definition(accuracy, found[:position], error)[found[position]] > alpha


@settings(max_examples=60)
@given(st.integers(1, 6), SEEDS, ALPHAS, ERRORS)
def test_explore__answers_every_budget_as_all_sets_would(
    n_features: int, seed: int, alpha: float, error: float
) -> None:
    accuracy = draw_accuracy(n_features, seed, error)
    rng = np.random.default_rng(seed)
    costs = rng.integers(0, 5, n_features) @ ((np.arange(1 << n_features) >> np.arange(n_features)[:, None]) & 1)
    expanded = expanded_sets(explore(n_features, expand_from(accuracy)[0], alpha=alpha, monotone_error=error))
    for budget in np.unique(costs):
        best = accuracy[costs <= budget].max()
        assert accuracy[expanded][costs[expanded] <= budget].max() >= best - alpha - 1e-12


@settings(max_examples=60)
@given(st.integers(1, 7), SEEDS, ALPHAS, ERRORS, st.sampled_from([0.1, 0.5, 0.9]))
def test_explore__goes_on_where_expansions_fail(
    n_features: int, seed: int, alpha: float, error: float, share: float
) -> None:
    accuracy = draw_accuracy(n_features, seed, error)
    failing = np.random.default_rng(seed).random(len(accuracy)) < share
    expand, asked = expand_from(accuracy, failing)
    found = explore(n_features, expand, alpha=alpha, monotone_error=error)
    assert sorted(asked) == sorted(set(asked)) == sorted(number_of(one.features) for one in found.expansions)
    failed = [number_of(one.features) for one in found.expansions if one.accuracy is None]
    assert failing[failed].all()
    assert all(one.failure == BROKEN for one in found.expansions if one.accuracy is None)
    fit = ~failing
    assert (best_parts(accuracy, expanded_sets(found))[fit] >= accuracy[fit] - alpha - 1e-12).all()
    assert found.guarantee <= alpha


@settings(max_examples=60)
@given(st.integers(1, 8), SEEDS, ALPHAS, ERRORS, st.integers(1, 60), st.sampled_from([0.0, 0.2]))
def test_explore__within_a_budget_of_fits_reaches_what_it_says(
    n_features: int, seed: int, alpha: float, error: float, most_fits: int, share: float
) -> None:
    accuracy = draw_accuracy(n_features, seed, error)
    failing = np.random.default_rng(seed).random(len(accuracy)) < share
    found = explore(
        n_features, expand_from(accuracy, failing)[0], alpha=alpha, monotone_error=error, most_fits=most_fits
    )
    assert len(found.expansions) <= most_fits
    expanded, fit = expanded_sets(found), ~failing
    assert (best_parts(accuracy, expanded)[fit] >= accuracy[fit] - found.guarantee - 1e-12).all()
    tried = [number_of(one.features) for one in found.expansions]
    left = np.delete(gaps_by_definition(accuracy, expanded, error), tried)
    assert found.guarantee == pytest.approx(np.max(left, initial=0.0), abs=1e-12)
    assert found.guarantee <= alpha or len(found.expansions) == most_fits, "it stopped early, with fits to spare"


@settings(max_examples=48)
@given(st.integers(1, 7), SEEDS, ALPHAS, st.sampled_from([0.0, 0.02]), st.sampled_from([None, 5, 30]))
def test_explore__with_diminishing_returns_keeps_the_guarantee(
    n_features: int, seed: int, alpha: float, error: float, most_fits: int | None
) -> None:
    rng = np.random.default_rng(seed)
    weights = rng.exponential(size=n_features) ** 2
    has = (np.arange(1 << n_features)[:, None] >> np.arange(n_features)) & 1
    # Concave in a sum, or in the largest of several: diminishing returns; then off by a quarter of the error each.
    accuracy = 1 - np.exp(-has @ weights) if rng.random() < 0.5 else k_best(n_features, int(rng.integers(1, 4)), seed)
    accuracy = accuracy + rng.uniform(-error, error, len(accuracy)) / 4
    expand = expand_from(accuracy)[0]
    settings: dict[str, Any] = {"alpha": alpha, "monotone_error": error, "most_fits": most_fits}
    found = explore(n_features, expand, diminishing_returns=True, **settings)
    assert (best_parts(accuracy, expanded_sets(found)) >= accuracy - found.guarantee - 1e-12).all()
    assert found.guarantee <= alpha or len(found.expansions) == most_fits
    assert agrees(found.observed_error, found.monotone_error)


@settings(max_examples=80)
@given(
    st.integers(1, 7),
    SEEDS,
    ALPHAS,
    ERRORS,
    st.integers(0, 3),
    st.sampled_from([(0, np.inf), (0, 5), (1, 100), (2, 2), (3, np.inf)]),
    st.sampled_from([None, 5, 30]),
    st.sampled_from([0.0, 0.2]),
)
def test_explore__with_costs_always_has_a_set_that_costs_no_more(
    n_features: int,
    seed: int,
    alpha: float,
    error: float,
    degree: int,
    sizes: tuple[float, float],
    most_fits: int | None,
    share: float,
) -> None:
    accuracy, rng = draw_accuracy(n_features, seed, error), np.random.default_rng(seed)
    failing = rng.random(len(accuracy)) < share
    costs = rng.exponential(size=(n_features, degree + 1))
    curves = CostCurves.of(np.round(costs * 4) / 10 if rng.random() < 0.5 else costs, sizes)
    expand, asked = expand_from(accuracy, failing)
    found = explore(n_features, expand, costs=curves, alpha=alpha, monotone_error=error, most_fits=most_fits)
    assert len(asked) == len(set(asked)) == len(found.expansions)
    assert found.guarantee <= alpha or len(asked) == most_fits
    assert agrees(found.observed_error, found.monotone_error)
    expanded, sums = expanded_sets(found), sums_of_sets(curves.coefficients)
    for size in (sizes[0], min(sizes[1], 1e4), *rng.uniform(sizes[0], min(sizes[1], 30), 5)):
        at_size = evaluate(sums, size)
        affordable = at_size[expanded][:, None] <= at_size
        best = np.where(affordable, accuracy[expanded][:, None], -np.inf).max(axis=0, initial=-np.inf)
        assert (best >= accuracy - found.guarantee - 1e-12)[~failing].all()


def test_explore__with_costs_and_diminishing_returns_keeps_the_guarantee() -> None:
    for seed in range(30):
        rng = np.random.default_rng(seed)
        accuracy, curves = k_best(8, 1 + seed % 3, seed), CostCurves.of(rng.random((8, 2)), (1, 9))
        found = explore(8, expand_from(accuracy)[0], costs=curves, diminishing_returns=True, alpha=0.02)
        expanded, sums = expanded_sets(found), sums_of_sets(curves.coefficients)
        for size in (1, 3, 9):
            at_size = evaluate(sums, size)
            affordable = at_size[expanded][:, None] <= at_size
            best = np.where(affordable, accuracy[expanded][:, None], -np.inf).max(axis=0)
            assert (best >= accuracy - 0.02 - 1e-12).all()
        assert agrees(found.observed_error, found.monotone_error)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_explore__with_costs_expands_less(k: int) -> None:
    counts = []
    for seed in range(10):
        curves = CostCurves.of(np.random.default_rng(seed).random((10, 3)), (1, 10))
        expand = expand_from(k_best(10, k, seed))[0]
        counts.append([len(explore(10, expand, costs=by, alpha=0.01).expansions) for by in (None, curves)])
    without, with_costs = np.sum(counts, axis=0)
    assert with_costs < 0.75 * without


def test_explore__with_costs_looks_at_what_bounds_all_that_wait() -> None:
    """Where the best feature is dear only small sets without it wait: all but that feature tells of each of them."""
    for seed in range(10):
        curves = CostCurves.of(np.random.default_rng(1000 + seed).random((12, 3)))
        found = explore(12, expand_from(k_best(12, 1, seed))[0], costs=curves)
        assert len(found.expansions) <= 24


def test_explore__refuses_costs_of_other_features() -> None:
    with refused("wrong-shape", 3, 4):
        explore(3, expand_from(np.zeros(8))[0], costs=CostCurves.of(np.ones((4, 1))))


def test_explore__with_diminishing_returns_expands_less() -> None:
    saved = []
    for seed in range(5):
        weights = np.random.default_rng(seed).exponential(size=10) ** 2
        accuracy = 1 - 0.5 * np.exp(-((np.arange(1024)[:, None] >> np.arange(10)) & 1) @ weights)
        expand = expand_from(accuracy)[0]
        counts = [len(explore(10, expand, alpha=0.01, diminishing_returns=by).expansions) for by in (False, True)]
        saved.append(counts[0] / counts[1])
    assert min(saved) > 1.5


def test_explore__does_not_take_a_cover_for_a_sandwich() -> None:
    """Features that are useless alone and good together.

    One might think that sets around `s`, none of them better than `s`, that together have all features of `t`, show
    that nothing between `s` and `t` is worth its cost. Here they hide the best set that costs less than all.
    """
    accuracy = np.array([0.5, 0.5, 0.5, 1.0, 0.5, 0.5, 0.5, 1.0])
    start, around, together = 0b000, [0b001, 0b010, 0b100], 0b011
    assert all(accuracy[one] <= accuracy[start] for one in around)
    assert np.bitwise_or.reduce(around) == 0b111
    assert best_parts(accuracy, np.array([start, *around, 0b111]))[together] == 0.5, "all but what is between"
    for alpha in (0.0, 0.05):
        assert together in expanded_sets(explore(3, expand_from(accuracy)[0], alpha=alpha))


def test_explore__tells_that_returns_do_not_diminish() -> None:
    accuracy = np.array([0.5, 0.5, 0.5, 1.0, 0.5, 0.5, 0.5, 1.0])
    found = explore(3, expand_from(accuracy)[0], diminishing_returns=True)
    assert not agrees(found.observed_error, found.monotone_error)
    assert found.observed_error == pytest.approx(0.5)


def test_explore__with_a_larger_alpha_may_expand_what_a_smaller_one_does_not() -> None:
    accuracy = np.array([1, 1, 7, 7, 5, 5, 7, 7, 4, 4, 7, 8, 5, 5, 7, 8]) / 8
    fine, coarse = (set(expanded_sets(explore(4, expand_from(accuracy)[0], alpha=alpha / 8))) for alpha in (1, 3))
    assert coarse - fine == {0b1001}


def test_explore__within_a_budget_of_fits_tries_nothing_twice_as_alpha_falls() -> None:
    expand, asked = expand_from(k_best(10, 2, 0))
    found = explore(10, expand, most_fits=1024)
    assert found.guarantee == 0
    assert len(asked) == len(set(asked)) < 200


def test_explore__with_more_fits_knows_more() -> None:
    guarantees = [
        np.mean([explore(8, expand_from(k_best(8, 2, seed))[0], most_fits=fits).guarantee for seed in range(5)])
        for fits in (1, 2, 12, 24, 48, 96)
    ]
    assert guarantees[0] == np.inf
    assert all(later < sooner for sooner, later in pairwise(guarantees))
    assert guarantees[-1] == 0


def test_explore__within_a_budget_of_fits_comes_closer_than_by_aiming_at_the_end() -> None:
    """Aimed at 0 at once, 160 fits of such accuracies reach 0.7 in the mean."""
    reached = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        accuracy = np.where(rng.random(1024) < 0.3, rng.random(1024) ** 0.5, 0.0)
        spread_to_supersets(accuracy, np.maximum)
        reached.append(explore(10, expand_from(accuracy)[0], most_fits=160).guarantee)
    assert np.mean(reached) < 0.3


@pytest.mark.slow
def test_explore__out_of_fits_takes_the_widest_gaps_of_a_layer() -> None:
    cut = 0
    for seed in range(20):
        accuracy = k_best(6, 2, seed)
        whole = explore(6, expand_from(accuracy)[0], most_fits=64)
        for most_fits in range(3, len(whole.expansions)):
            layers: list[Sets] = []

            def expand(
                sets: Sequence[FeatureSet],
                on_end: Callable[[Expansion], None],
                layers: list[Sets] = layers,
                accuracy: Floats = accuracy,
            ) -> None:
                layers.append(np.array([number_of(features) for features in sets]))
                expand_from(accuracy)[0](sets, on_end)

            explore(6, expand, most_fits=most_fits)
            before, last = np.concatenate(layers[:-1]), layers[-1]
            gaps = gaps_by_definition(accuracy, before, 0.0)
            sizes = np.bitwise_count(np.arange(64))
            others = np.setdiff1d(np.flatnonzero(sizes == sizes[last[0]]), np.concatenate([before, last]))
            assert gaps[last].min() >= gaps[others].max(initial=-np.inf)
            cut += gaps[last].min() > gaps[others].max(initial=-np.inf) > 0
    assert cut > 10


def test_explore__within_a_budget_of_fits_goes_on_from_a_gap_that_is_off_by_rounding() -> None:
    alone = 0.25 - 5e-13
    accuracy = np.array([0, alone, alone, 0.9, alone, 0.9, 0.9, 1])
    found = explore(3, expand_from(accuracy)[0], most_fits=8)
    assert (len(found.expansions), found.guarantee) == (8, 0.0)


def test_explore__within_a_budget_of_fits_reaches_a_gap_that_is_hardly_more_than_rounding() -> None:
    accuracy = np.array([0, 0.5, 1 - 3e-12, 1])
    found = explore(2, expand_from(accuracy)[0], most_fits=5)
    assert (len(found.expansions), found.guarantee) == (4, 0.0)
    three = np.array([0, 0, 0, 2e-12, 0, 2e-12, 2e-12, 4e-12])
    found = explore(3, expand_from(three)[0], most_fits=8)
    assert (len(found.expansions), found.guarantee) == (8, 0.0)


def test_explore__of_the_workload_with_one_best_feature_takes_few_expansions() -> None:
    counts = [len(explore(10, expand_from(k_best(10, 1, seed))[0], alpha=0.01).expansions) for seed in range(200)]
    assert max(counts) <= 20, "twice as many as features, of 1,024 sets"


def test_explore__of_the_workload_with_two_best_features_takes_a_tenth() -> None:
    counts = [len(explore(10, expand_from(k_best(10, 2, seed))[0], alpha=0.01).expansions) for seed in range(50)]
    assert max(counts) <= 100
    assert np.median(counts) <= 85


def test_explore__asks_for_a_layer_at_once() -> None:
    accuracy = k_best(8, 3, 1)
    layers: list[list[int]] = []

    def expand(sets: Sequence[FeatureSet], on_end: Callable[[Expansion], None]) -> None:
        layers.append([len(features) for features in sets])
        expand_from(accuracy)[0](sets, on_end)

    found = explore(8, expand)
    assert layers[0] == [0, 8], "the two ends first"
    assert all(len(set(layer)) == 1 for layer in layers[1:])
    assert max(map(len, layers)) > 10
    assert [len(one.features) for one in found.expansions] == [size for layer in layers for size in layer]


def test_explore__of_one_feature() -> None:
    found = explore(1, expand_from(np.array([0.5, 0.75]))[0])
    assert found.expansions == (Expansion(frozenset(), 0.5), Expansion(frozenset({0}), 0.75))
    assert (found.guarantee, found.observed_error) == (0.0, 0.0)


def test_explore__takes_differences_that_are_equal_but_for_rounding() -> None:
    """0.91 - 0.9 is more than 0.01 in binary."""
    accuracy = np.array([0.9, 0.905, 0.905, 0.91])
    found = explore(2, expand_from(accuracy)[0], alpha=0.01)
    assert len(found.expansions) == 2
    assert found.guarantee == 0.01


def test_explore__of_a_constant_expands_the_ends() -> None:
    assert len(explore(12, expand_from(np.full(4096, 0.5))[0]).expansions) == 2


@pytest.mark.parametrize("broken", [np.nan, np.inf, -np.inf])
def test_explore__takes_what_is_no_finite_number_as_failed(broken: float) -> None:
    accuracy = k_best(4, 2, 0)
    accuracy[[0b0000, 0b1111, 0b0100]] = broken
    found = explore(4, expand_from(accuracy)[0])
    failed = [one for one in found.expansions if one.accuracy is None]
    assert [number_of(one.features) for one in failed] == [0b0000, 0b1111, 0b0100]
    assert all(one.failure is not None and "not a finite number" in one.failure for one in failed)


def test_explore__tells_how_much_smaller_sets_were_better() -> None:
    accuracy = np.array([0.5, 0.8, 0.6, 0.75])
    found = explore(2, expand_from(accuracy)[0])
    assert found.observed_error == pytest.approx(0.05)
    assert not agrees(found.observed_error, found.monotone_error)
    relaxed = explore(2, expand_from(accuracy)[0], monotone_error=found.observed_error)
    assert agrees(relaxed.observed_error, relaxed.monotone_error)


def test_explore__tells_how_far_it_is() -> None:
    heard: list[ExplorationProgress] = []
    failing = np.zeros(64)
    failing[[0b1, 0b10]] = 1
    found = explore(6, expand_from(k_best(6, 2, 0), failing)[0], alpha=0.01, listen=heard.append)
    assert heard[0] == ExplorationProgress(0, 0, 2, np.inf)
    last = heard[-1]
    assert (last.expanded + last.failed, last.failed, last.waiting) == (len(found.expansions), 2, 0)
    for before, after in pairwise(heard):
        done = after.expanded + after.failed - before.expanded - before.failed
        assert done == (0 if before.waiting == 0 else 1)
        assert after.guarantee <= before.guarantee
    assert last.guarantee > 0.01


def test_explore__where_nothing_can_be_expanded() -> None:
    found = explore(3, expand_from(np.zeros(8), np.ones(8))[0])
    assert len(found.expansions) == 8
    assert not any(one.accuracy for one in found.expansions)


def test_explore__gives_up_where_everything_fails() -> None:
    expand, asked = expand_from(np.zeros(2**12), np.ones(2**12))
    with refused("user-code", 377, "It is broken."):
        explore(12, expand)
    assert MOST_VAIN_TRIES <= len(asked) < 2**12


def test_explore__does_not_accept_silence() -> None:
    with pytest.raises(ValueError, match="nothing was said of 2 of 2"):
        explore(2, lambda sets, on_end: None)


@pytest.mark.parametrize("features", [0, -1, True, 2.0, "3", None])
def test_explore__needs_features(features: Any) -> None:
    with refused("bad-setting"):
        explore(features, expand_from(np.zeros(8))[0])


def test_explore__refuses_more_features_than_it_can_hold() -> None:
    with refused("over-limit", 23, 22):
        explore(MOST_FEATURES + 1, expand_from(np.zeros(8))[0])


@pytest.mark.parametrize("name", ["alpha", "monotone_error"])
@pytest.mark.parametrize("value", [-0.1, np.nan, np.inf, "0.1", None, True, 10**400], ids=lambda value: str(value)[:9])
def test_explore__refuses_a_difference_that_is_none(name: str, value: Any) -> None:
    settings: dict[str, Any] = {name: value}
    with refused("bad-setting", name):
        explore(3, expand_from(np.zeros(8))[0], **settings)


@pytest.mark.parametrize("value", [0, -3, 2.5, np.nan, "5", True])
def test_explore__refuses_a_budget_of_fits_that_is_none(value: Any) -> None:
    with refused("bad-setting", "most_fits"):
        explore(3, expand_from(np.zeros(8))[0], most_fits=value)


def test_explore__takes_numbers_of_numpy() -> None:
    accuracy = k_best(4, 1, 0)
    settings: dict[str, Any] = {"alpha": np.float32(0), "monotone_error": 0, "most_fits": np.int32(16)}
    n_features: Any = np.int64(4)
    assert explore(n_features, expand_from(accuracy)[0], **settings).guarantee == 0
