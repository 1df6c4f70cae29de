"""The intervals of the AUC: their formulas, and how often they cover the truth."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import norm, rankdata
from support.errors import refused

from protodask.engine import add_records
from protodask.evaluation import auc
from protodask.evaluation.auc_interval import ClassTotals, class_totals, half_width, widened

Floats = NDArray[np.float64]
Sample = tuple[Floats, NDArray[np.bool_], Floats]
"""Scores, whether they are of positives, and inclusion probabilities."""


def test_half_width__is_that_of_the_theorem() -> None:
    totals = class_totals(np.arange(50) < 20, None)
    rho = 20 / 50
    assert half_width(totals, 0.99) == pytest.approx(math.sqrt(math.log(2 / 0.01) / (2 * rho * (1 - rho) * 50)))


@pytest.mark.parametrize("weight", [0.1, 1.0, 7.3])
def test_half_width__counts_rows_where_weights_are_constant_in_each_class(weight: float) -> None:
    positive = np.arange(50) < 20
    weighted = class_totals(positive, np.where(positive, weight, 1 / weight))
    assert half_width(weighted) == pytest.approx(half_width(class_totals(positive, None)), rel=1e-12)


def test_half_width__grows_with_the_variation_of_weights() -> None:
    positive = np.arange(100) < 50
    found = [half_width(class_totals(positive, np.where(np.arange(100) % 10, 1.0, heavy))) for heavy in (1, 1.01, 2, 9)]
    assert sorted(found) == found
    assert found[1] < 1.1 * found[0]  # no jump
    effective = (45 + 5 * 9) ** 2 / (45 + 5 * 81)  # of each class
    assert found[-1] == pytest.approx(math.sqrt(2 * math.log(2 / 0.05) * 2 / effective))


def test_half_width__needs_both_classes() -> None:
    assert math.isnan(half_width(class_totals(np.ones(3, dtype=bool), None)))
    assert math.isnan(half_width(class_totals(np.zeros(3, dtype=bool), np.ones(3))))


@pytest.mark.parametrize("confidence", [0.0, 1.0, math.nan])
def test_half_width__refuses_what_is_no_probability(confidence: float) -> None:
    with refused("bad-setting", "between 0 and 1", "confidence", confidence):
        half_width(class_totals(np.arange(3) < 1, None), confidence)


def test_add_records__are_those_of_all_rows() -> None:
    positive, weight = np.arange(9) % 3 == 0, np.arange(9) / 4
    whole = class_totals(positive, weight)
    none = ClassTotals(np.zeros(2, dtype=np.int64), np.zeros(2), np.zeros(2))
    merged = add_records(class_totals(positive[:4], weight[:4]), class_totals(positive[4:], weight[4:]))
    for found in (merged, add_records(whole, none), add_records(none, whole)):
        for name in ("rows", "weight", "squares"):
            np.testing.assert_array_equal(getattr(found, name), getattr(whole, name))


def test_widened__stays_within_0_and_1() -> None:
    assert widened(0.5, 0.25, 0.125) == widened(0.5, 0.375, 0.0)
    assert (widened(0.9, 0.2, 0.0).high, widened(0.1, 0.2, 0.0).low) == (1.0, 0.0)
    assert math.isnan(widened(math.nan, 0.1, 0.0).low)


def weighted_area(score: Floats, positive: NDArray[np.bool_], weight: Floats) -> float:
    """By sorted scores; equal ones count one half."""
    order = rankdata(score, "dense").astype(np.int64) - 1
    above = np.bincount(order[positive], weight[positive], minlength=order.max() + 1)
    below = np.bincount(order[~positive], weight[~positive], minlength=order.max() + 1)
    return float(above @ (np.cumsum(below) - below / 2) / (above.sum() * below.sum()))


def normal(rate: Callable[[np.random.Generator, Floats, NDArray[np.bool_]], Any]) -> Callable[..., Sample]:
    def draw(random: np.random.Generator) -> Sample:
        positive = random.random(2000) < 0.2
        score = random.normal(size=2000) + positive
        return score, positive, np.broadcast_to(rate(random, score, positive), score.shape)

    return draw


def losing(share: float, rate: float) -> Callable[..., Sample]:
    """Positives win against all negatives, but for some that lose against all and are rarely kept."""

    def draw(random: np.random.Generator) -> Sample:
        positive = random.random(20_000) < 0.5
        low = positive & (random.random(20_000) < share)
        return positive - 2.0 * low, positive, np.where(low, rate, 1.0)

    return draw


ONE_SIGMA = float(norm.cdf(1 / math.sqrt(2)))
"""AUC of two normal distributions whose means are a standard deviation apart."""

CASES: dict[str, tuple[Callable[..., Sample], float]] = {
    "all rows": (normal(lambda random, score, positive: 1.0), ONE_SIGMA),
    "a rate for each class": (normal(lambda random, score, positive: np.where(positive, 0.9, 0.05)), ONE_SIGMA),
    "rates by chance": (
        normal(lambda random, score, positive: np.where(random.random(2000) < 0.5, 1.0, 0.1)),
        ONE_SIGMA,
    ),
    "low scores rarely kept": (normal(lambda random, score, positive: np.where(score < 0, 0.05, 1.0)), ONE_SIGMA),
    "losers rarely kept": (losing(0.1, 0.01), 0.9),
    "losers hardly ever kept": (losing(0.3, 0.004), 0.7),
}


@cache
def deviations(case: str) -> list[tuple[float, ClassTotals]]:
    """Errors of the AUC of samples, and the totals of each sample."""
    draw, wanted = CASES[case]
    random = np.random.default_rng(3)
    found = []
    for _ in range(150):
        score, positive, rate = draw(random)
        kept = random.random(len(score)) < rate
        weight = 1 / rate[kept]
        error = abs(weighted_area(score[kept], positive[kept], weight) - wanted)
        found.append((error, class_totals(positive[kept], weight)))
    return found


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_half_width__covers_at_least_as_often_as_it_says(case: str, confidence: float) -> None:
    covered = [error <= half_width(totals, confidence) for error, totals in deviations(case)]
    assert np.mean(covered) >= confidence


def test_half_width__with_effective_numbers_alone_would_cover_too_little() -> None:
    covered = [
        error <= math.sqrt(math.log(2 / 0.05) / 2 * np.sum(totals.squares / np.square(totals.weight)))
        for error, totals in deviations("losers rarely kept")
    ]
    assert np.mean(covered) < 0.94


def test_half_width__does_not_know_where_squares_of_weights_vanish() -> None:
    positive = np.arange(50) < 20
    weight = np.where(np.arange(50) % 5 == 0, 1.0, 0.01)
    assert half_width(class_totals(positive, weight)) < half_width(class_totals(positive, weight * 1e-200)) == math.inf


@pytest.mark.slow
@pytest.mark.parametrize(("positives", "negatives", "shift"), [(12, 200, 1.0), (40, 40, 2.0), (300, 300, 0.5)])
def test_area_interval__covers_about_as_often_as_it_says(positives: int, negatives: int, shift: float) -> None:
    true = float(norm.cdf(shift / math.sqrt(2)))
    random = np.random.default_rng(positives)
    label = np.arange(positives + negatives) < positives
    covered, narrower = 0, []
    for _ in range(1000):
        found = auc(random.normal(size=len(label)) + shift * label, label)
        covered += found.low <= true <= found.high
        narrower.append(found.half_width / (found.high - found.low) * 2)
    assert 930 <= covered <= 975
    assert np.median(narrower) > 1.5


@pytest.mark.parametrize("inclusion", [None, 0.3, 0.07])
@pytest.mark.parametrize("rows", [20, 37, 100])
def test_area_interval__of_what_is_told_apart_is_that_of_the_deviation(rows: int, inclusion: float | None) -> None:
    """Also where rounding makes the area a little less than 1, or its variance a little more than 0."""
    label = np.arange(rows) >= rows // 2
    weights = {} if inclusion is None else {"inclusion": np.where(label, 1.0, inclusion)}
    found = auc(np.arange(float(rows)), label, **weights)  # type: ignore[arg-type]
    assert found.value == pytest.approx(1, abs=1e-12)
    assert (found.low, found.high) == (found.deviation.low, 1.0)
    assert 0 < found.low < 0.9
    tied = auc(np.zeros(rows), label, **weights)  # type: ignore[arg-type]
    assert tied.low < 0.5 - 0.1 < tied.value < 0.5 + 0.1 < tied.high


def test_area_interval__of_few_rows_of_a_class_is_that_of_the_deviation() -> None:
    score = np.random.default_rng(0).normal(size=209)
    found = [auc(score + (np.arange(209) < few), np.arange(209) < few) for few in (9, 10)]
    assert (found[0].low, found[0].high) == (found[0].deviation.low, found[0].deviation.high)
    assert found[1].low > found[1].deviation.low
