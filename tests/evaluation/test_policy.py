import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.stats import gamma, norm, poisson
from support.errors import refused

from protodask.engine import Block, add_records, array_source, thread_engine
from protodask.errors import Code, InputError
from protodask.evaluation import policy_value
from protodask.evaluation.interval import Interval
from protodask.evaluation.policy import (
    Estimator,
    PolicyQuestion,
    PolicySums,
    finish_policy,
    policy_sums,
)
from protodask.evaluation.rare_sums import Moments
from protodask.evaluation.ratio import NO_ROWS

Arrays = dict[str, Any]

Z = float(norm.ppf(0.975))


def example(rows: int, seed: int = 0) -> Arrays:
    """A log in which most rewards are zero, of which one in ten was kept."""
    random = np.random.default_rng(seed)
    reward = np.where(random.random(rows) < 0.3, random.normal(2.0, 1.0, rows), 0.0)
    return {
        "match": random.random(rows) < 0.4,
        "reward": reward,
        "propensity": random.choice([0.1, 0.25, 0.7, 1.0], rows),
        "inclusion": np.where(reward == 0, 0.1, 1.0),
    }


def naive(log: Arrays, estimator: str, dropped_zeros: int | None = None) -> tuple[float, float]:
    """Value and standard error, record by record as the formulas have them."""
    stands_for = [1.0 if dropped_zeros is not None else 1 / inclusion for inclusion in log["inclusion"].tolist()]
    rows = list(zip(log["match"].tolist(), log["reward"].tolist(), log["propensity"].tolist(), stands_for, strict=True))
    earned = [s * r * m / p for m, r, p, s in rows]
    if estimator == "snips":
        divisor = [s * m / p for m, r, p, s in rows]
    else:
        divisor = [s for m, r, p, s in rows] + [1.0] * (dropped_zeros or 0)
        earned += [0.0] * (dropped_zeros or 0)
    value = sum(earned) / sum(divisor)
    errors = [(top - value * below) ** 2 for top, below in zip(earned, divisor, strict=True) if below > 0]
    return value, math.sqrt(len(errors) / (len(errors) - 1) * sum(errors)) / sum(divisor)


def naive_ends(log: Arrays, estimator: str, dropped_zeros: int | None, confidence: float) -> tuple[float, float]:
    """Both ends, from the quantiles of two gamma distributions for what was won and for what was lost."""
    value, error = naive(log, estimator, dropped_zeros)
    records = 1 / (np.ones(len(log["reward"])) if dropped_zeros is not None else log["inclusion"])
    likelihood = log["match"] / log["propensity"]
    came = records * log["reward"] * likelihood
    divisor = np.sum(records) + (dropped_zeros or 0) if estimator == "ips" else np.sum(records * likelihood)
    share = (error * divisor) ** 2 / np.sum(came**2)
    matching = np.average(likelihood[log["match"]], weights=records[log["match"]])
    matching_squares = np.average(likelihood[log["match"]] ** 2, weights=records[log["match"]])
    down, up = 0.0, 0.0
    for sign in (1, -1):
        amounts = np.maximum(sign * came, 0)
        rewards = (sign * log["reward"] * records)[sign * log["reward"] > 0]
        if len(rewards) == 0:
            continue
        total, squares = np.sum(amounts), np.sum(amounts**2)
        one_more = max(0, 1 - (total**2 / squares if total > 0 else 0) / 60)
        unseen = squares + one_more * np.mean(rewards**2) * matching_squares
        unseen /= total + one_more * np.mean(rewards) * matching
        variance, part = share * squares, min(share, 1) * unseen if total > 0 else unseen
        scale = (variance + part**2) / (total + part)
        shapes = [((total + part) / scale, scale)] + ([(total**2 / variance, variance / total)] if total > 0 else [])

        def chance(amount: float, shapes: list[tuple[float, float]] = shapes) -> float:
            """Of no more than this amount; without any that came, half of it is at 0."""
            return 1 - 0.5 * sum(float(gamma.sf(amount, shape, scale=scale)) for shape, scale in shapes)

        most = total + 12 * np.sqrt(variance) + 12 * part
        low, high = (
            0.0 if chance(0.0) >= level else brentq(lambda amount, level=level: chance(amount) - level, 0.0, most)
            for level in ((1 - confidence) / 2, (1 + confidence) / 2)
        )
        down += (total - low if sign == 1 else high - total) ** 2
        up += (high - total if sign == 1 else total - low) ** 2
    ends = value - math.sqrt(down) / divisor, value + math.sqrt(up) / divisor
    if estimator == "snips":
        return max(ends[0], float(np.min(log["reward"]))), min(ends[1], float(np.max(log["reward"])))
    return ends


@pytest.mark.parametrize(("estimator", "dropped_zeros"), [("ips", None), ("snips", None), ("ips", 0), ("ips", 1234)])
@pytest.mark.parametrize("rows", [12, 500])
def test_policy_value__is_the_formula(estimator: Estimator, dropped_zeros: int | None, rows: int) -> None:
    log = example(rows, 5)
    value, _ = naive(log, estimator, dropped_zeros)
    found = policy_value(**log, estimator=estimator, dropped_zeros=dropped_zeros)
    assert found.value == pytest.approx(value, rel=1e-12)
    wanted = naive_ends(log, estimator, dropped_zeros, 0.95)
    assert (found.low, found.high) == pytest.approx(wanted, rel=1e-5, abs=1e-5 * found.high)


def test_policy_value__of_many_rewards_is_nearly_normal() -> None:
    log = example(200_000)
    value, error = naive(log, "ips")
    found = policy_value(**log)
    assert (found.low, found.high) == pytest.approx((value - Z * error, value + Z * error), rel=1e-3)


@pytest.mark.parametrize("count", [0, 1, 3, 50])
def test_policy_value__of_rare_equal_rewards_has_the_mid_p_interval_of_a_count(count: int) -> None:
    rows = 1_000_000
    reward = np.zeros(rows)
    reward[: count + 4] = 3.0
    match = np.ones(rows, dtype=bool)
    match[count : count + 4] = False
    found = policy_value(match, reward, np.ones(rows))
    low, high = found.low * rows / 3, found.high * rows / 3

    def beyond(mean: float) -> float:
        return float(poisson.sf(count, mean) + poisson.pmf(count, mean) / 2)

    assert beyond(high) == pytest.approx(0.975, abs=1e-3)
    assert low == 0 if count == 0 else beyond(low) == pytest.approx(0.025, abs=1e-3)


def test_policy_value__by_hand() -> None:
    match, reward, propensity = [1, 1, 0, 1], [1.0, 0.0, 5.0, 2.0], [0.5, 0.25, 0.5, 1.0]
    # Each row earns 2, 0, 0 and 2; where the policy takes the action, it would have come 2, 4 and 1 times.
    assert policy_value(match, reward, propensity).value == 1.0
    assert policy_value(match, reward, propensity, estimator="snips").value == pytest.approx(4 / 7)
    # Rows that stand for 1, 4, 2 and 1 records.
    inclusion = [1.0, 0.25, 0.5, 1.0]
    assert policy_value(match, reward, propensity, inclusion).value == 0.5
    assert policy_value(match, reward, propensity, inclusion, "snips").value == pytest.approx(4 / (2 + 16 + 1))


def test_policy_value__more_confidence_is_a_wider_interval() -> None:
    log = example(200)
    narrow, wide = (policy_value(**log, confidence=confidence) for confidence in (0.8, 0.99))
    assert narrow.value == wide.value
    assert wide.low < narrow.low < narrow.value < narrow.high < wide.high
    assert (wide.high - wide.low) / (narrow.high - narrow.low) == pytest.approx(
        norm.ppf(0.995) / norm.ppf(0.9), rel=0.05
    )


@given(st.integers(0, 1000), st.integers(1, 60))
def test_policy_value__zeros_that_were_dropped_and_counted_change_nothing(seed: int, rows: int) -> None:
    log = example(rows, seed)
    full = policy_value(log["match"], log["reward"], log["propensity"])
    random = np.random.default_rng(seed + 1)
    kept = (log["reward"] != 0) | (random.random(rows) < random.random())
    if not kept.any():
        kept[0] = True
    left = {name: values[kept] for name, values in log.items()}
    dropped = rows - int(kept.sum())
    # Not near: the same.
    assert policy_value(**left, dropped_zeros=dropped).value == full.value
    without = policy_value(left["match"], left["reward"], left["propensity"], dropped_zeros=dropped)
    assert without.value == full.value


def test_policy_value__zeros_that_were_dropped_do_not_change_how_sure_many_rewards_are() -> None:
    log = example(4_000)
    full = policy_value(log["match"], log["reward"], log["propensity"])
    kept = log["reward"] != 0
    left = [log[name][kept] for name in ("match", "reward", "propensity")]
    without = policy_value(*left, dropped_zeros=int((~kept).sum()))
    assert (without.low, without.high) == pytest.approx((full.low, full.high), rel=1e-6)


@pytest.mark.parametrize("estimator", ["ips", "snips"])
@settings(max_examples=25)
@given(seed=st.integers(0, 1000), block_rows=st.sampled_from([1, 2, 8, 64]))
def test_policy_value__order_and_blocks_do_not_matter(estimator: Estimator, seed: int, block_rows: int) -> None:
    log = example(50, seed)
    log["match"][0] = True
    order = np.random.default_rng(seed).permutation(50)
    whole = policy_value(**log, estimator=estimator)
    shuffled = array_source({name: values[order] for name, values in log.items()}, block_rows)
    with thread_engine(2) as engine:
        found = policy_value(shuffled, estimator=estimator, engine=engine)
    assert found.value == whole.value
    assert (found.low, found.high) == pytest.approx((whole.low, whole.high), rel=1e-9)


@pytest.mark.parametrize("estimator", ["ips", "snips"])
def test_policy_value__scales_with_the_rewards(estimator: Estimator) -> None:
    log = example(100)
    scaled = log | {"reward": -3.5 * log["reward"]}
    found, wanted = policy_value(**scaled, estimator=estimator), policy_value(**log, estimator=estimator)
    ends = (-3.5 * wanted.value, -3.5 * wanted.high, -3.5 * wanted.low)
    assert (found.value, found.low, found.high) == pytest.approx(ends, rel=1e-12)


def test_policy_value__self_normalised_shifts_with_the_rewards() -> None:
    log = example(100)
    shifted = log | {"reward": log["reward"] + 7}
    assert policy_value(**shifted, estimator="snips").value == pytest.approx(
        policy_value(**log, estimator="snips").value + 7, rel=1e-12
    )


def test_policy_value__self_normalised_of_rewards_that_are_all_alike_is_not_certain() -> None:
    widths = []
    for rows in (4, 400):
        found = policy_value(np.arange(rows) % 2, np.full(rows, 3.0), np.full(rows, 0.5), estimator="snips")
        assert found.low < found.value == 3.0 < found.high
        widths.append(found.high - found.low)
    assert widths[1] < widths[0] / 50


def test_policy_value__of_the_policy_that_was_logged_is_its_mean_reward() -> None:
    reward = np.random.default_rng(0).normal(size=100)
    found = policy_value(np.ones(100), reward, np.ones(100))
    assert found.value == pytest.approx(reward.mean(), rel=1e-13)


def test_policy_value__of_a_policy_that_draws_its_actions() -> None:
    log = example(300) | {"match": np.random.default_rng(1).random(300)}
    for estimator in ("ips", "snips"):
        assert policy_value(**log, estimator=estimator).value == pytest.approx(naive(log, estimator)[0], rel=1e-12)


KINDS: dict[str, Callable[[NDArray[Any]], Any]] = {
    "dask": lambda values: da.from_array(values, chunks=(700,)),
    "pandas": pd.Series,
    "nullable": lambda values: pd.Series(values).convert_dtypes(),
    "list": lambda values: values.tolist(),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("estimator", ["ips", "snips"])
def test_policy_value__arrays_of_other_kinds(kind: str, estimator: Estimator) -> None:
    log = example(3000)
    found = policy_value(**{name: KINDS[kind](values) for name, values in log.items()}, estimator=estimator)
    wanted = policy_value(**log, estimator=estimator)
    assert found.value == wanted.value
    assert (found.low, found.high) == pytest.approx((wanted.low, wanted.high), rel=1e-12)


@given(st.lists(st.integers(0, 1000), min_size=3, max_size=3))
def test_merge_policies__is_a_monoid(seeds: list[int]) -> None:
    question = PolicyQuestion()
    one, two, three = (policy_sums(Block(0, 0, example(9, seed)), question) for seed in seeds)
    nothing = PolicySums(0, 0, 0.0, NO_ROWS, NO_ROWS, *(Moments(0.0, 0.0, 0.0),) * 6, np.inf, -np.inf)
    left = add_records(add_records(one, two), three)
    right = add_records(one, add_records(two, three))
    for first, second in (
        (left, right),
        (add_records(one, nothing), one),
        (add_records(nothing, one), one),
    ):
        assert_alike(first, second)
    whole = {name: np.concatenate([example(9, seed)[name] for seed in seeds]) for name in example(9)}
    assert_alike(left, policy_sums(Block(0, 0, whole), question))


def assert_alike(found: PolicySums, wanted: PolicySums) -> None:
    assert (found.rows, found.matched, found.ratio.total) == (wanted.rows, wanted.matched, wanted.ratio.total)
    assert found.records == pytest.approx(wanted.records)
    assert (found.ratio.centre, found.ratio.spread) == pytest.approx((wanted.ratio.centre, wanted.ratio.spread))


def test_finish_policy__says_what_it_rests_on() -> None:
    log = example(400)
    for dropped, records in ((None, (1 / log["inclusion"]).sum()), (600, 1000)):
        question = PolicyQuestion(dropped_zeros=dropped)
        found = finish_policy(policy_sums(Block(0, 0, log), question), question)
        assert (found.rows, found.matched) == (400, log["match"].sum())
        assert found.records == pytest.approx(records)


def test_policy_value__where_no_reward_was_seen() -> None:
    found = policy_value([0, 1], [3.0, 0.0], [0.5, 0.5])
    assert (found.value, found.low) == (0.0, 0.0)
    assert found.high == pytest.approx(6 * -math.log(0.05) / 2)  # of 3, at the likelihood of the matching row
    assert policy_value([0, 1], [-3.0, 0.0], [0.5, 0.5]).low == pytest.approx(-found.high)
    assert policy_value([0, 1, 1], [0.0, 0.0, 0.0], [0.5, 0.5, 1.0]) == Interval(0.0, -math.inf, math.inf)
    with refused("no-rows", "ips"):
        policy_value([0, 0], [3.0, 0.0], [0.5, 0.5], estimator="snips")


def test_policy_value__of_one_row_has_no_ends() -> None:
    assert policy_value([1], [3.0], [0.5]) == Interval(6.0, -math.inf, math.inf)
    assert policy_value([1, 0], [3.0, 1.0], [0.5, 0.5], estimator="snips") == Interval(3.0, -math.inf, math.inf)


@pytest.mark.parametrize(
    ("name", "value", "code", "facts"),
    [
        ("propensity", 0.0, "bad-value", ("above 0 and at most 1", "0.0")),
        ("propensity", 1.5, "bad-value", ("above 0 and at most 1",)),
        ("propensity", -0.1, "bad-value", ("above 0 and at most 1",)),
        ("propensity", math.nan, "bad-value", ("above 0 and at most 1",)),
        ("propensity", 1e-320, "bad-value", ("1e-320", "small")),
        ("inclusion", 0.0, "bad-value", ("above 0 and at most 1", "0.0")),
        ("inclusion", 1.01, "bad-value", ("above 0 and at most 1",)),
        ("inclusion", math.nan, "bad-value", ("above 0 and at most 1",)),
        ("inclusion", 1e-320, "bad-value", ("1e-320", "small")),
        ("reward", math.nan, "bad-value", ("finite",)),
        ("reward", math.inf, "bad-value", ("finite",)),
        ("match", math.nan, "bad-value", ("0 or 1", "probability")),
        ("match", 2.0, "bad-value", ("0 or 1", "probability")),
        ("match", -1.0, "bad-value", ("0 or 1", "probability")),
    ],
)
@pytest.mark.parametrize("estimator", ["ips", "snips"])
def test_policy_value__rows_that_cannot_be_used(
    name: str, value: float, code: Code, facts: tuple[object, ...], estimator: Estimator
) -> None:
    log: dict[str, Any] = {
        "match": np.ones(4), "reward": np.ones(4), "propensity": np.full(4, 0.5), "inclusion": np.ones(4),
    }  # fmt: skip
    log[name][2] = value
    with refused(code, name, "row 2", *facts):
        policy_value(**log, estimator=estimator)


def test_policy_value__errors_name_the_row_of_the_whole_log() -> None:
    log = example(100)
    log["propensity"][77] = 0
    with refused("bad-value", "propensity", "row 77"):
        policy_value(array_source(log, 8))


def test_policy_value__rewards_that_may_have_been_dropped_though_only_zeros_were_counted() -> None:
    with refused("bad-value", "inclusion", "row 0", "0.5", "dropped records"):
        policy_value([1, 1], [1.0, 0.0], [0.5, 0.5], [0.5, 0.5], dropped_zeros=3)
    assert policy_value([1, 1], [1.0, 0.0], [0.5, 0.5], [1.0, 0.5], dropped_zeros=2).value == 0.5


@pytest.mark.parametrize("dropped", [-1, 2.5, math.nan, True, "3"])
def test_policy_value__number_of_dropped_records_that_is_none(dropped: Any) -> None:
    with refused("bad-setting", "dropped records", repr(dropped)):
        policy_value([1, 1], [1.0, 0.0], [0.5, 0.5], dropped_zeros=dropped)


@pytest.mark.parametrize(
    ("arguments", "code", "facts"),
    [
        ({"estimator": "dm"}, "unknown-name", ("'dm'", '"ips"', '"snips"', '"dr"', "estimator")),
        ({"estimator": "snips", "dropped_zeros": 0}, "settings-conflict", ("dropped records", "ips")),
        ({"confidence": 95}, "bad-setting", ("between 0 and 1", "confidence", 95)),
        ({"reward": None}, "setting-missing", ("reward",)),
        ({"propensity": None}, "setting-missing", ("propensity",)),
        ({"reward": [1.0]}, "wrong-shape", ("(1,)", "(2,)", "reward", "match")),
        ({"reward": ["a", "b"]}, "wrong-type", ("(2,)", "<U1", "reward")),
        ({"reward": [None, 1.0]}, "bad-value", ("row 0", "reward", "finite")),
        ({"match": [], "reward": [], "propensity": []}, "no-rows", ()),
    ],
)
def test_policy_value__arguments_that_cannot_be_used(
    arguments: dict[str, Any], code: Code, facts: tuple[object, ...]
) -> None:
    fine: dict[str, Any] = {"match": [1, 0], "reward": [1.0, 0.0], "propensity": [0.5, 0.5]}
    with refused(code, *facts):
        policy_value(**fine | arguments)


def test_policy_value__sources_that_cannot_be_used() -> None:
    log = example(10)
    source = array_source(log)
    with refused("settings-conflict", "reward"):
        policy_value(source, reward=log["reward"])
    with refused("column-missing", '"match"', '"reward"', '"propensity"'):
        policy_value(array_source({"match": log["match"], "reward": log["reward"]}))
    with refused("unsupported", "weights", "inclusion probabilities"):
        policy_value(array_source(log | {"weight": np.ones(10)}))


@dataclass(frozen=True)
class World:
    """Contexts that come by chance, three actions, and how often which action earns a reward in which context."""

    context: NDArray[np.float64]
    propensity: NDArray[np.float64]
    """Of the policy that wrote the log (contexts, actions)."""
    chance: NDArray[np.float64]
    """Of a reward, evenly spread over 0.5 to 1.5 (contexts, actions)."""
    action: NDArray[np.int64]
    """What the policy does that is to be judged (contexts,)."""

    @property
    def value(self) -> float:
        return float(np.sum(self.context * self.chance[np.arange(len(self.context)), self.action]))

    def log(self, random: np.random.Generator, records: int, rate: float) -> tuple[Arrays, int]:
        """A log of so many records, of which those without a reward were kept at a rate; and how many were dropped."""
        taken = self.context[:, None] * self.propensity
        outcomes = [taken * self.chance, taken * (1 - self.chance) * rate, taken * (1 - self.chance) * (1 - rate)]
        chances = np.stack(outcomes)
        counts = random.multinomial(records, chances.ravel() / chances.sum()).reshape(chances.shape)
        outcome, context, action = (
            np.repeat(index, counts[:2].ravel()) for index in np.indices(counts[:2].shape).reshape(3, -1)
        )
        rewarded = outcome == 0
        log = {
            "match": self.action[context] == action,
            "reward": np.where(rewarded, random.uniform(0.5, 1.5, len(outcome)), 0.0),
            "propensity": self.propensity[context, action],
            "inclusion": np.where(rewarded, 1.0, rate),
        }
        return log, int(counts[2].sum())


WORLD = World(
    context=np.array([0.4, 0.3, 0.2, 0.1]),
    propensity=np.array([[0.5, 0.3, 0.2], [0.2, 0.5, 0.3], [0.1, 0.1, 0.8], [0.05, 0.25, 0.7]]),
    chance=np.array([[0.010, 0.020, 0.005], [0.015, 0.005, 0.010], [0.025, 0.010, 0.005], [0.020, 0.015, 0.005]]),
    action=np.array([1, 0, 0, 1]),
)

RECORDS = {1.0: 10_000, 0.1: 100_000, 0.01: 1_000_000}
"""A ratio of sums is biased by about a share of one in the number of rows in its divisor, which is nothing beside its
standard error for logs as large as are worth subsampling; these keep about 10,000 rows of reward zero."""


def simulate(rate: float, repetitions: int) -> dict[str, NDArray[np.float64]]:
    """Value, low and high end for each estimator and repetition."""
    random = np.random.default_rng(0)
    found: dict[str, list[tuple[float, float, float]]] = {"ips": [], "ips, counted": [], "snips": []}
    for _ in range(repetitions):
        log, dropped = WORLD.log(random, RECORDS[rate], rate)
        questions = (PolicyQuestion(), PolicyQuestion(dropped_zeros=dropped), PolicyQuestion("snips"))
        for name, question in zip(found, questions, strict=True):
            interval = finish_policy(policy_sums(Block(0, 0, log), question), question).interval
            found[name].append((interval.value, interval.low, interval.high))
    return {name: np.array(values) for name, values in found.items()}


def check_simulation(rate: float, repetitions: int, least: float, most: float) -> None:
    for name, (value, low, high) in ((name, values.T) for name, values in simulate(rate, repetitions).items()):
        bias, error = value.mean() - WORLD.value, value.std(ddof=1) / math.sqrt(repetitions)
        covered = float(np.mean((low <= WORLD.value) & (WORLD.value <= high)))
        assert abs(bias) <= 2 * error, f"{name}: bias {bias:.2e}, standard error {error:.2e}"
        assert least <= covered <= most, f"{name}: {covered:.1%} of the intervals cover the truth"


@pytest.mark.slow
def test_policy_value__is_unbiased_and_its_intervals_cover() -> None:
    check_simulation(0.01, 200, 0.91, 0.99)


@pytest.mark.slow
@pytest.mark.parametrize("rate", RECORDS)
def test_policy_value__is_unbiased_and_its_intervals_cover_in_2000_repetitions(rate: float) -> None:
    check_simulation(rate, 2000, 0.93, 0.97)


@pytest.mark.parametrize("estimator", ["ips", "snips"])
def test_policy_value__of_rewards_that_are_not_rare_is_as_sure_as_their_mean(estimator: Estimator) -> None:
    random = np.random.default_rng(0)
    for mean in (4.0, 1e6, -1e6):
        reward = mean + random.normal(size=400)
        propensity = np.full(400, 0.5 if estimator == "snips" else 1.0)
        found = policy_value(np.ones(400), reward, propensity, estimator=estimator)
        error = Z * reward.std(ddof=1) / 20
        assert (found.low, found.high) == pytest.approx(
            (reward.mean() - error, reward.mean() + error), abs=0.05 * error
        )


def test_policy_value__does_not_fear_what_the_policy_does_not_do() -> None:
    random = np.random.default_rng(0)
    match = random.random(5000) < 0.97
    reward, propensity = (random.random(5000) < 0.01).astype(float), np.where(match, 0.97, 0.01)
    found = policy_value(match, reward, propensity)
    match[0], reward[0], propensity[0] = False, 1.0, 1e-300
    again = policy_value(match, reward, propensity)
    assert again.high - again.low == pytest.approx(found.high - found.low, rel=0.05)
    log = {"match": match, "reward": reward, "propensity": propensity, "inclusion": np.ones(5000)}
    _, error = naive(log, "ips")
    assert found.high - found.low == pytest.approx(2 * Z * error, rel=0.05)


def test_policy_value__knows_how_large_a_reward_of_a_rare_action_is() -> None:
    """The policy takes what was hardly ever taken, and no such row has a reward."""
    match = np.arange(1000) < 30
    reward, propensity = np.where(np.arange(1000) >= 990, 1.0, 0.0), np.where(match, 0.01, 0.99)
    found = policy_value(match, reward, propensity)
    assert (found.value, found.low) == (0.0, 0.0)
    assert found.high == pytest.approx(100 * -math.log(0.05) / 1000, rel=0.01)


@pytest.mark.parametrize("scale", [1e-100, 1e-20, 1.0, 1e20, 1e140])
@pytest.mark.parametrize("estimator", ["ips", "snips"])
def test_policy_value__scales_with_its_rewards(scale: float, estimator: Estimator) -> None:
    log = example(60, 3)
    wanted = policy_value(**log, estimator=estimator)
    found = policy_value(**{**log, "reward": scale * log["reward"]}, estimator=estimator)
    ends = (scale * wanted.low, scale * wanted.high)
    assert (found.low, found.high) == pytest.approx(ends, rel=1e-6)


@given(
    st.lists(
        st.tuples(
            st.sampled_from([0.0, 1e-300, 1e-170, 0.5, 1.0]),
            st.sampled_from([0.0, 1e-200, 1e-40, 1.0, -1.0, -3e5, 1e100]),
            st.sampled_from([1e-100, 1e-6, 0.5, 1.0]),
        ),
        min_size=2,
        max_size=12,
    ),
    st.sampled_from([0.1, 0.95, 0.999]),
)
def test_policy_value__lies_between_its_ends(rows: list[tuple[float, float, float]], confidence: float) -> None:
    match, reward, propensity = (np.array(column) for column in zip(*rows, strict=True))
    try:
        found = policy_value(match, reward, propensity, confidence=confidence)
    except InputError:  # quotients and squares that are too large
        return
    assert found.low <= found.value <= found.high


def cover_few(expected: float, estimator: Estimator, repetitions: int) -> float:
    """The share of intervals that cover the truth where so many rewards of matching rows are expected."""
    random, rows = np.random.default_rng(int(expected)), max(1_000, round(10 * expected))
    chances, often = np.array([0.3, 0.2, 0.1, 0.05]), np.array([0.4, 0.3, 0.2, 0.1])
    rate = expected / (rows * float(often @ chances))
    covered = []
    for _ in range(repetitions):
        propensity = random.choice(chances, rows, p=often)
        rewarded = random.random(rows) < rate
        log = {
            "match": random.random(rows) < propensity,
            "reward": np.where(rewarded, random.uniform(0.5, 1.5, rows), 0.0),
            "propensity": propensity,
        }
        question = PolicyQuestion(estimator)
        found = finish_policy(policy_sums(Block(0, 0, log), question), question).interval
        assert found.low < found.high
        covered.append(found.low <= rate <= found.high)
    return float(np.mean(covered))


@pytest.mark.parametrize("estimator", ["ips", "snips"])
def test_policy_value__covers_where_few_rewards_are_expected(estimator: Estimator) -> None:
    assert cover_few(5, estimator, 300) >= 0.93


@pytest.mark.slow
@pytest.mark.parametrize("estimator", ["ips", "snips"])
@pytest.mark.parametrize("expected", [2, 5, 20, 200])
def test_policy_value__covers_where_few_rewards_are_expected_in_2000_repetitions(
    expected: float, estimator: Estimator
) -> None:
    covered = cover_few(expected, estimator, 2000)
    # Of two rewards that are expected hardly any number that comes, but none or six, could make an interval miss.
    assert 0.93 <= covered <= (0.99 if expected < 20 else 0.98), f"{covered:.1%}"


@dataclass(frozen=True)
class Visits:
    """A log of visits, whose rewards depend on what is seen of each (`x`), and the truth."""

    log: Arrays
    q: NDArray[np.float64]
    """What the policy's action earns in each row, in the mean."""
    value: float


def visits(rows: int, rate: float, seed: int) -> Visits:
    """The policy shows the second of two pages where `x` is above 1/2, and the log one by chance."""
    random = np.random.default_rng(seed)
    x = random.random(rows)
    wanted, p = x > 0.5, 0.2 + 0.5 * x
    shown = random.random(rows) < p
    q = rate * np.where(wanted, 2 * x, 1 - x)
    earns = random.random(rows) < rate * np.where(shown, 2 * x, 1 - x)
    value = rate * (1 - 0.25 + 0.5 - 0.125)  # the integrals of 2 x above 1/2 and of 1 - x below
    log = {"match": shown == wanted, "reward": earns.astype(float), "propensity": np.where(shown, p, 1 - p)}
    return Visits(log, q, value)


def test_policy_value__doubly_robust_is_the_formula() -> None:
    log, random = example(300, 7), np.random.default_rng(1)
    expected = random.normal(0.5, 0.5, 300)
    total = records = 0.0
    rows = zip(log["match"], log["reward"], log["propensity"], log["inclusion"], expected, strict=True)
    for match, reward, propensity, inclusion, q in rows:
        total += (q + (reward - q) * match / propensity) / inclusion
        records += 1 / inclusion
    found = policy_value(**log, estimator="dr", expected=expected)
    assert found.value == pytest.approx(total / records, rel=1e-12)
    nothing = policy_value(**log, estimator="dr", expected=np.zeros(300))
    plain = policy_value(**log)
    assert (nothing.value, nothing.low, nothing.high) == pytest.approx((plain.value, plain.low, plain.high), rel=1e-12)
    chunked = {name: da.from_array(values, chunks=37) for name, values in {**log, "expected": expected}.items()}
    again = policy_value(**chunked, estimator="dr")
    assert (again.value, again.low, again.high) == pytest.approx((found.value, found.low, found.high), rel=1e-9)


def test_policy_value__doubly_robust_of_many_rows_is_normal() -> None:
    seen = visits(200_000, 0.3, 3)
    log = seen.log
    each = seen.q + (log["reward"] - seen.q) * log["match"] / log["propensity"]
    found = policy_value(**log, estimator="dr", expected=seen.q)
    error = Z * each.std(ddof=1) / math.sqrt(len(each))
    assert (found.low, found.high) == pytest.approx((each.mean() - error, each.mean() + error), abs=0.03 * error)


def test_policy_value__is_robust_to_either() -> None:
    seen = visits(400_000, 0.3, 4)
    wrong = {**seen.log, "propensity": np.full(400_000, 0.45)}
    for log, expected in ((seen.log, np.full(400_000, 0.7)), (wrong, seen.q)):
        found = policy_value(**log, estimator="dr", expected=expected)
        assert found.low < seen.value < found.high
    plain = policy_value(**wrong)
    assert not plain.low < seen.value < plain.high, "so that it is a test"
    good, plain = policy_value(**seen.log, estimator="dr", expected=seen.q), policy_value(**seen.log)
    assert good.high - good.low < 0.95 * (plain.high - plain.low)


def cover_doubly_robust(rewards: float, repetitions: int) -> float:
    """Share of the intervals that have the value, where so many rewards of matching rows are expected."""
    rate = 0.05
    rows = round(rewards / (0.5 * rate * 1.125))
    covered = 0
    for seed in range(repetitions):
        seen = visits(rows, rate, seed)
        off = 0.5 + np.random.default_rng(seed).random()  # the model of rewards is not right
        found = policy_value(**seen.log, estimator="dr", expected=off * seen.q)
        covered += found.low <= seen.value <= found.high
    return covered / repetitions


def test_policy_value__doubly_robust_covers() -> None:
    assert 0.9 <= cover_doubly_robust(20, 200) <= 0.99


@pytest.mark.slow
@pytest.mark.parametrize("rewards", [2, 5, 20, 200])
def test_policy_value__doubly_robust_covers_in_2000_repetitions(rewards: float) -> None:
    covered = cover_doubly_robust(rewards, 2000)
    assert 0.93 <= covered <= (0.99 if rewards < 20 else 0.98), f"{covered:.1%}"


@pytest.mark.parametrize(
    ("code", "facts", "more"),
    [
        ("column-missing", ["expected"], {"estimator": "dr"}),
        ("settings-conflict", ["ips", "dr"], {"expected": [0.0, 0.0]}),
        ("bad-value", ["match", "row 1"], {"estimator": "dr", "expected": [0.0, 0.0], "match": [1.0, 0.5]}),
        ("bad-value", ["expected", "row 0"], {"estimator": "dr", "expected": [np.inf, 0.0]}),
        ("settings-conflict", ["dr", "dropped"], {"estimator": "dr", "expected": [0.0, 0.0], "dropped_zeros": 5}),
    ],
)
def test_policy_value__doubly_robust_refuses(code: Code, facts: list[str], more: Arrays) -> None:
    log: Arrays = {"match": [1, 0], "reward": [1.0, 0.0], "propensity": [0.5, 0.5], **more}
    with refused(code, *facts):
        policy_value(**log)


def test_policy_value__refuses_inclusions_that_cannot_be_divided_by() -> None:
    with refused("bad-value", "inclusion", "row 0", 5e-324):
        policy_value([1, 1], [0.0, 1.0], [0.5, 0.5], [5e-324, 1.0])


def test_policy_value__refuses_more_dropped_records_than_anyone_counts() -> None:
    assert policy_value([1, 0], [1.0, 1.0], [0.5, 0.5], dropped_zeros=10**30).value == pytest.approx(2e-30)
    with refused("bad-setting", "dropped records", "10^30"):
        policy_value([1, 0], [1.0, 1.0], [0.5, 0.5], dropped_zeros=10**400)
    with refused("bad-setting", "'x'", "between 0 and 1", "confidence"):
        policy_value([1, 0], [1.0, 1.0], [0.5, 0.5], confidence="x")  # type: ignore[arg-type]


def test_policy_value__refuses_probabilities_of_which_too_many_records_follow() -> None:
    with refused("overflow", "probability"):
        policy_value(np.ones(3), np.array([1.0, 0.0, 1.0]), np.ones(3), np.full(3, 1e-308))
