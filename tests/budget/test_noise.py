"""What is promised of accuracies that are estimates: by definition, by simulation with a known truth, in real folds."""

import json
import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import t as student
from sklearn.model_selection import StratifiedKFold
from sklearn.naive_bayes import GaussianNB
from support.errors import refused

from protodask.budget import BudgetIndex, Estimate, MonotonicityWarning, build_index, load_index, save_index
from protodask.budget.bounds import margins
from protodask.budget.expansions import Expansion, FeatureSet, describe_expansion, parse_expansion
from protodask.budget.matrix_models import MatrixModels
from protodask.budget.noise import PARTS, Noise
from protodask.data.arrays.keyed import dealt
from protodask.engine import thread_engine

Flags = NDArray[np.bool_]
Floats = NDArray[np.float64]


def sets_of(n_features: int) -> list[FeatureSet]:
    return [frozenset(f for f in range(n_features) if mask >> f & 1) for mask in range(1 << n_features)]


def margin_of_pair(first: Flags, second: Flags, **settings: Any) -> float:
    """`m` of the first set against the second, with a probability of 0.05 for this pair alone."""
    found = [Estimate.of_rows(right, **settings) for right in (first, second)]
    expansions = [Expansion(frozenset({place}), one.accuracy, noise=one.noise) for place, one in enumerate(found)]
    result = margins(expansions, [frozenset({1})], 0, guarantee=1.0, error=2.0)
    assert result is not None
    return float(result[0])


def test_estimate__is_the_share_of_the_weight_that_is_right() -> None:
    rng = np.random.default_rng(0)
    right, weight = rng.random(5000) < 0.8, rng.integers(1, 9, 5000) / 4
    found = Estimate.of_rows(right, weight)
    assert found.accuracy == pytest.approx(np.average(right, weights=weight), rel=1e-14)
    assert found.noise.rows == pytest.approx(weight.sum() / weight.max(), rel=1e-14)
    assert math.fsum(found.noise.parts) == pytest.approx(0.0, abs=1e-15)
    assert Estimate.of_rows(right).accuracy == right.sum() / 5000


def test_estimate__standard_error_is_that_of_independent_rows() -> None:
    right = np.random.default_rng(1).random(20_000) < 0.8
    p = right.mean()
    # Of 256 parts, the standard deviation of a variance is a tenth.
    assert Estimate.of_rows(right).noise.standard_error == pytest.approx(math.sqrt(p * (1 - p) / 20_000), rel=0.15)


def test_estimate__rows_of_a_group_count_as_one() -> None:
    right = np.random.default_rng(2).random(3000) < 0.7
    groups = np.repeat(np.arange(3000), 5)
    alone, together = Estimate.of_rows(right), Estimate.of_rows(np.repeat(right, 5), groups=groups)
    assert together.noise.standard_error == pytest.approx(alone.noise.standard_error, rel=1e-12)
    assert Estimate.of_rows(np.repeat(right, 5)).noise.standard_error < 0.6 * alone.noise.standard_error
    assert together.noise.rows == pytest.approx(alone.noise.rows, rel=1e-12)


@pytest.mark.parametrize("n_groups", [6, 100, 5000])
def test_noise__of_parts_alone_tells_how_many_groups_there_are(n_groups: int) -> None:
    weight = np.bincount(dealt(np.arange(n_groups), PARTS), minlength=PARTS) * 20.0
    found = Noise.of(np.stack([weight / 2, weight]), heaviest=1.0, grouped=True)
    # Of 256 parts, the standard deviation of a variance is a tenth.
    assert found.rows == pytest.approx(n_groups, rel=0.25)
    alone = 20.0 * n_groups * np.eye(PARTS)[3]
    single = Noise.of(np.stack([alone / 2, alone]), heaviest=1.0, grouped=True)
    assert single.rows == pytest.approx(1.0)
    assert single.freedom == 1.0


def test_margins__of_few_groups_are_those_of_so_few_numbers() -> None:
    rng = np.random.default_rng(7)
    groups = np.repeat(np.arange(8), 500)
    first, second = (rng.random(4000) < np.repeat(rng.uniform(0.7, 0.9, 8), 500) for _ in range(2))
    differences = (first.astype(float) - second).reshape(8, 500).mean(axis=1)
    expected = student.isf(0.05, 7) * differences.std(ddof=1) / math.sqrt(8) + math.log(20) / 8
    assert margin_of_pair(first, second, groups=groups) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("right", "weight", "code"),
    [
        ([0.5, 1.0], None, "wrong-shape"),
        ([[True]], None, "wrong-shape"),
        ([True, False], [1.0], "wrong-shape"),
        ([True, False], [0.0, 0.0], "bad-value"),
        ([True, False], [1.0, math.nan], "bad-value"),
        ([True, False], [2.0, -1.0], "bad-value"),
        ([True, False], [math.inf, -math.inf], "bad-value"),
        ([True, False], [1e308, 1e308], "overflow"),
        ([True, False], ["heavy", "light"], "wrong-type"),
        ([True, False], [None, {}], "wrong-type"),
        ([True, False], np.ma.masked_array([1.0, 1.0], [False, True]), "bad-value"),
        (np.ma.masked_array([True, False], [False, True]), None, "wrong-shape"),
    ],
)
def test_estimate__refuses_what_makes_no_sense(right: Any, weight: Any, code: Any) -> None:
    with refused(code):
        Estimate.of_rows(right, weight)


def test_estimate__refuses_groups_of_other_rows() -> None:
    with refused("wrong-shape", "(3,)", "one group for each"):
        Estimate.of_rows([True, False], groups=[1, 2, 3])


def test_estimate__groups_are_whole_numbers_that_float64_would_round() -> None:
    right, groups = np.arange(40) % 3 > 0, [2**63 + number // 2 for number in range(30)] + list(range(10))
    assert Estimate.of_rows(right, groups=groups) == Estimate.of_rows(right, groups=np.array(groups, dtype=object))


@pytest.mark.parametrize("missing", [math.nan, None])
def test_estimate__refuses_rows_without_a_group(missing: Any) -> None:
    with refused("bad-value", "A row has no group"):
        Estimate.of_rows([True, False, True], groups=[1, missing, missing])


def test_margins__are_those_of_paired_rows() -> None:
    """McNemar's variance, of rows on which one set is right and the other is not."""
    rng = np.random.default_rng(3)
    first = rng.random(40_000) < 0.9
    second = first ^ (rng.random(40_000) < 0.02)
    only_first, only_second = (first & ~second).sum(), (second & ~first).sum()
    variance = (only_first + only_second - (only_first - only_second) ** 2 / 40_000) / 40_000**2
    expected = student.isf(0.05, 255) * math.sqrt(variance) + math.log(20) / 40_000
    assert margin_of_pair(first, second) == pytest.approx(expected, rel=0.15)
    unpaired = 1.645 * math.sqrt(2 * 0.9 * 0.1 / 40_000)
    assert margin_of_pair(first, second) < 0.6 * unpaired


@pytest.mark.slow
def test_margins__hold_as_often_as_they_say() -> None:
    """Of a single pair, whose true difference is known: missed in one of twenty draws, and not much less often."""
    rng, n_rows, missed, draws = np.random.default_rng(4), 1500, 0, 1500
    for _ in range(draws):
        difficulty = rng.random(n_rows)
        first, second = difficulty < 0.85, np.where(rng.random(n_rows) < 0.8, difficulty, rng.random(n_rows)) < 0.82
        margin = margin_of_pair(first, second) - math.log(20) / n_rows  # without what is for unseen rows
        missed += first.mean() - second.mean() + margin < 0.85 - 0.82
    assert 0.035 * draws < missed < 0.065 * draws


WEIGHTS: dict[str, Callable[[np.random.Generator, int], Floats]] = {
    "pareto 1.2": lambda rng, n_rows: rng.pareto(1.2, n_rows) + 1,
    "pareto 1.5": lambda rng, n_rows: rng.pareto(1.5, n_rows) + 1,
    "lognormal": lambda rng, n_rows: rng.lognormal(0, 2, n_rows),
    "few of 100": lambda rng, n_rows: np.where(rng.random(n_rows) < 1 / 200, 100.0, 1.0),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WEIGHTS)
def test_margins__hold_where_few_rows_carry_much_of_the_weight(name: str) -> None:
    """Of a pair that differs on heavy rows the other way round: a true share that depends on few rows of the sample."""
    rng, draws, n_rows, missed, mean = np.random.default_rng(8), 500, 2000, 0, 0.0
    every = WEIGHTS[name](rng, 2_000_000)
    border = 20 * np.median(every)
    heavy = every[every > border].sum() / every.sum()
    truth = heavy * (0.85 - 0.4) + (1 - heavy) * (0.82 - 0.85)
    for _ in range(draws):
        weight = WEIGHTS[name](rng, n_rows)
        is_heavy, difficulty = weight > border, rng.random(n_rows)
        own = np.where(rng.random(n_rows) < 0.8, difficulty, rng.random(n_rows))
        first, second = difficulty < np.where(is_heavy, 0.85, 0.82), own < np.where(is_heavy, 0.4, 0.85)
        margin = margin_of_pair(first, second, weight=weight)
        mean += margin / draws
        missed += np.average(first, weights=weight) - np.average(second, weights=weight) + margin < truth
    assert missed <= 0.05 * draws
    assert mean < 0.5, "it promises next to nothing"


def test_margins__of_sets_that_were_never_seen_to_differ_allow_for_what_is_seldom() -> None:
    right = np.random.default_rng(5).random(400) < 0.9
    # A kind of row of this share is missed by 400 rows in one of twenty draws.
    assert margin_of_pair(right, right) == pytest.approx(1 - 0.05 ** (1 / 400), rel=0.01)


def test_margins__by_their_definition() -> None:
    rng = np.random.default_rng(6)
    sets = sets_of(3)
    estimates = [Estimate.of_rows(rng.random(300) < 0.5 + 0.05 * len(one)) for one in sets]
    expansions = [Expansion(one, found.accuracy, noise=found.noise) for one, found in zip(sets, estimates, strict=True)]
    quantile = student.isf(0.05 / 64, 255)
    for guarantee, error in ((0.0, 0.0), (0.02, 0.01), (0.3, 0.1), (math.inf, 0.2)):
        found = margins([Expansion(frozenset({7}), None, "no"), *expansions], sets[::2], 3, guarantee, error)
        assert found is not None
        promised, assumed = (0.0, 0.0) if math.isinf(guarantee) else (guarantee, error)
        for c, result in zip(range(0, 8, 2), found, strict=True):
            best = 0.0
            for t in range(8):
                ahead = estimates[t].accuracy - estimates[c].accuracy
                if ahead > promised:
                    continue
                squares = sum(
                    (one - other) ** 2
                    for one, other in zip(estimates[t].noise.parts, estimates[c].noise.parts, strict=True)
                )
                error_of_pair = quantile * math.sqrt(squares * 256 / 255) + math.log(64 / 0.05) / 300
                best = max(best, error_of_pair + min(0.0, ahead + assumed - promised))
            assert result == pytest.approx(best, rel=1e-9)


def test_margins__mind_a_rival_that_is_ahead_by_the_guarantee_but_for_rounding() -> None:
    sets = [frozenset({0}), frozenset({1})]
    estimates = [Estimate.of_rows(np.arange(100) < n_right) for n_right in (90, 91)]
    expansions = [Expansion(one, found.accuracy, noise=found.noise) for one, found in zip(sets, estimates, strict=True)]
    exact, above = (margins(expansions, sets[:1], 2, guarantee, 0.0) for guarantee in (0.01, 0.01 + 1e-9))
    assert estimates[1].accuracy - estimates[0].accuracy > 0.01
    assert exact == pytest.approx(above, abs=1e-8)


def test_margins__are_no_more_than_accuracies_differ_at_most() -> None:
    assert margin_of_pair(np.array([True, False]), np.array([False, True])) == 1.0


class World:
    """Sets of features whose true accuracies are known, and rows on which they are right or wrong together."""

    def __init__(self, n_features: int, seed: int, n_rows: int) -> None:
        rng = np.random.default_rng(seed)
        self.sets = sets_of(n_features)
        gains = rng.exponential(size=n_features) * 0.4
        has = np.array([[f in one for f in range(n_features)] for one in self.sets])
        self.truth = 0.55 + 0.4 * (1 - np.exp(-has.astype(float) @ gains))
        difficulty, own = rng.random(n_rows), rng.random((len(self.sets), n_rows))
        shared = rng.random((len(self.sets), n_rows)) < 0.8
        self.right = np.where(shared, difficulty, own) < self.truth[:, None]
        self.costs = rng.uniform(size=(n_features, 2)) * [1, 0.1]

    def accuracy(self, features: FeatureSet) -> Estimate:
        return Estimate.of_rows(self.right[self.sets.index(features)])

    def shortfalls(self, index: BudgetIndex) -> list[tuple[float, float]]:
        """Of every choice at some sizes: how much better the best set within its cost is in truth, and its margin."""
        assert index.margins is not None
        found = []
        for size in (0.0, 5.0, 50.0):
            costs = np.array([index.curves.at(one, size) for one in self.sets])
            skyline = index.skyline(size)
            for choice, dearer in zip(skyline, [*skyline[1:], None], strict=True):
                within = costs < (math.inf if dearer is None else dearer.cost)
                mine = self.truth[self.sets.index(choice.features)]
                margin = float(index.margins[index.sets.index(choice.features)])
                found.append((float(self.truth[within].max() - mine), margin))
        return found


@pytest.mark.slow
@pytest.mark.parametrize(("search", "n_rows"), [("all", 300), ("all", 3000), ("greedy", 300)])
def test_margin__holds_with_the_guarantee_where_the_truth_is_known(search: Any, n_rows: int) -> None:
    draws, missed, missed_without = 60, 0, 0
    for seed in range(draws):
        world = World(4, seed, n_rows)
        settings: dict[str, Any] = {"alpha": 0.01, "monotone_error": 0.02} if search == "all" else {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", MonotonicityWarning)
            index = build_index(world.costs, world.accuracy, sizes=(0, 50), search=search, **settings)
        promised = 0.0 if math.isinf(index.guarantee) else index.guarantee
        if math.isinf(index.guarantee):  # then it is of the sets that were tried
            tried = {one.features for one in index.expansions}
            world.truth = np.where([one in tried for one in world.sets], world.truth, -1.0)
        shortfalls = world.shortfalls(index)
        missed += any(short > promised + margin for short, margin in shortfalls)
        missed_without += any(short > promised for short, _ in shortfalls)
        assert index.margins is not None
        assert index.margin == index.margins.max()
        assert index.margins.max() < 6 * math.sqrt(0.5 / n_rows) + 10 / n_rows, "it promises next to nothing"
    assert missed <= 0.05 * draws
    assert missed_without > 0.2 * draws, "the estimates are so good that nothing was tested"


@pytest.mark.slow
def test_margin__holds_for_models_that_are_cross_validated() -> None:
    draws, missed = 25, 0
    shift = np.array([0.9, 0.5, 0.3])
    for seed in range(draws):
        rng = np.random.default_rng(seed)
        codes = rng.integers(0, 2, 240)
        rows = rng.standard_normal((240, 3)) + np.outer(codes, shift)
        new_codes = rng.integers(0, 2, 4000)
        new_rows = rng.standard_normal((4000, 3)) + np.outer(new_codes, shift)
        folds = tuple(StratifiedKFold(3, shuffle=True, random_state=seed).split(rows, codes))
        box = MatrixModels(GaussianNB(), rows, codes, (slice(0, 1), slice(1, 2), slice(2, 3)), folds)
        sets = sets_of(3)[1:]
        truth = {
            features: np.mean([
                GaussianNB().fit(box.columns(features)[train], codes[train]).score(
                    new_rows[:, sorted(features)], new_codes
                )
                for train, _ in folds
            ])
            for features in sets
        }  # fmt: skip
        estimates = {features: box.accuracy(features) for features in sets}
        expansions = [Expansion(one, found.accuracy, noise=found.noise) for one, found in estimates.items()]
        best = max(sets, key=lambda one: estimates[one].accuracy)
        found = margins(expansions, [best], 3, 0.0, 0.0)
        assert found is not None
        missed += max(truth.values()) - truth[best] > found[0]
    assert missed <= 1


def test_margin__is_unknown_where_accuracies_are_mere_numbers_or_returns_diminish() -> None:
    world = World(3, 0, 300)

    def some(features: FeatureSet) -> float | Estimate:
        found = world.accuracy(features)
        return found.accuracy if len(features) == 3 else found

    assert build_index(world.costs, world.accuracy, sizes=(0, 50), monotone_error=0.1).margin is not None
    assert build_index(world.costs, some, sizes=(0, 50), monotone_error=0.1).margin is None
    settings: dict[str, Any] = {"sizes": (0, 50), "monotone_error": 0.2, "diminishing_returns": True}
    assert build_index(world.costs, world.accuracy, **settings).margin is None


def test_margin__of_more_features_than_sets_can_be_compared_of_is_unknown() -> None:
    def accuracy(features: FeatureSet) -> Estimate:
        return Estimate.of_rows(np.arange(100) < 80 + min(len(features), 3))

    found = {n: build_index(np.ones((n, 1)), accuracy, search="greedy", most_fits=20).margin for n in (40, 600)}
    assert found[40] is not None
    assert found[600] is None


def test_margin__is_kept_in_the_file_of_the_index_and_in_a_record(tmp_path: Path) -> None:
    world = World(3, 1, 300)
    settings: dict[str, Any] = {"sizes": (0, 50), "monotone_error": 0.1, "record": tmp_path / "record"}
    index = build_index(world.costs, world.accuracy, **settings)
    save_index(index, tmp_path / "index.json")
    loaded = load_index(tmp_path / "index.json")
    assert index.margins is not None
    assert loaded.margins is not None
    assert loaded.margins.tobytes() == index.margins.tobytes()
    assert loaded.expansions == index.expansions

    def nobody(features: FeatureSet) -> float:
        raise AssertionError(features)

    again = build_index(world.costs, nobody, **settings)
    assert again.margins is not None
    assert again.margins.tobytes() == index.margins.tobytes()


def test_margin__is_the_same_on_threads() -> None:
    world = World(3, 2, 300)
    settings: dict[str, Any] = {"sizes": (0, 50), "monotone_error": 0.1}
    with thread_engine(2) as engine:
        found = build_index(world.costs, world.accuracy, engine=engine, **settings)
    assert found.margin == build_index(world.costs, world.accuracy, **settings).margin


@pytest.mark.parametrize(
    "change",
    [
        lambda noise: {**noise, "rows": -1.0},
        lambda noise: {**noise, "parts": [0.5]},
        lambda noise: {**noise, "parts": ["0.5"] * PARTS},
        lambda noise: [],
        lambda noise: None,
    ],
)
def test_parse_expansion__takes_noise_that_makes_no_sense_for_unknown(change: Callable[[Any], Any]) -> None:
    expansion = Expansion(frozenset({1}), 0.5, None, 0.0, Noise(4.0, (0.25, -0.25)))
    described = json.loads(json.dumps(describe_expansion(expansion)))
    assert parse_expansion(described) == expansion
    assert parse_expansion({**described, "noise": change(described["noise"])}) == replace(expansion, noise=None)
