import math
from functools import reduce

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from protodask.engine import add_records
from protodask.evaluation.interval import Interval
from protodask.evaluation.row_moments import (
    effective_rows,
    mean_interval,
    mean_of_shares,
    moments,
    no_moments,
    rows_of_share,
    share_interval,
)


@given(st.lists(st.tuples(st.floats(-9, 9), st.floats(0.1, 5)), min_size=3, max_size=30), st.integers(0, 30))
def test_moments__merge_like_all_rows(rows: list[tuple[float, float]], edge: int) -> None:
    values, weight = np.array(rows)[:, :1], np.array(rows)[:, 1]
    found = add_records(moments(values[:edge], weight[:edge]), moments(values[edge:], weight[edge:]))
    mean = np.average(values[:, 0], weights=weight)
    assert found.mean[0] == pytest.approx(mean, abs=1e-12)
    square = weight**2
    assert found.deviation_squares[0] == pytest.approx(np.average((values[:, 0] - mean) ** 2, weights=square), abs=1e-9)
    assert found.weight_squares == pytest.approx(np.sum(weight**2))
    for merged in (add_records(found, no_moments(1)), add_records(no_moments(1), found)):
        assert merged == found


def test_mean_interval__without_weights_is_that_of_the_textbook() -> None:
    values = np.random.default_rng(0).exponential(size=200)
    found = mean_interval(moments(values[:, None], np.ones(200)), 0, 0.5)
    reach = 1.959963984540054 * values.std(ddof=1) / math.sqrt(200)
    assert found.value == pytest.approx(0.5 * values.mean())
    assert found.low == pytest.approx(0.5 * (values.mean() - reach))
    assert found.high == pytest.approx(0.5 * (values.mean() + reach))


def test_mean_interval__counts_squares_of_weights() -> None:
    values, weight = np.array([[1.0], [2.0], [4.0]]), np.array([1.0, 1.0, 2.0])
    found = mean_interval(moments(values, weight), 0)
    rows = 16 / 6
    variance = (1.75**2 + 0.75**2 + 4 * 1.25**2) / 6
    assert effective_rows(4, 6) == pytest.approx(rows)
    assert found.high == pytest.approx(2.75 + 1.959963984540054 * math.sqrt(variance / (rows - 1)))


def test_mean_interval__covers_the_mean_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    hits = 0
    for _ in range(1000):
        weight = rng.choice([0.5, 1.0, 2.0], 300)
        found = mean_interval(moments(rng.exponential(size=(300, 1)), weight), 0)
        hits += found.low <= 1 <= found.high
    assert 0.92 <= hits / 1000 <= 0.97


@pytest.mark.slow
@pytest.mark.parametrize(("likely", "rare"), [(1.0, 0.05), (0.05, 1.0), (0.01, 1.0)])
def test_intervals__cover_where_weights_go_with_what_is_averaged(likely: float, rare: float) -> None:
    """Rows of a rare kind lose more, and either kind was thinned out and weighs so much more."""
    rng, hits = np.random.default_rng(0), np.zeros(2)
    for _ in range(400):
        is_rare = rng.random(40_000) < 0.1
        rate = np.where(is_rare, rare, likely)
        kept = rng.random(40_000) < rate
        figures = np.column_stack([np.where(is_rare, 1.0, 0.1), ~is_rare])[kept]
        found = moments(figures, 1 / rate[kept])
        for position, (one, truth) in enumerate(
            [
                (mean_interval(found, 0), 0.19),
                (share_interval(float(found.mean[1]), rows_of_share(found, 1)), 0.9),
            ]
        ):
            hits[position] += one.low <= truth <= one.high
    assert (hits >= 0.92 * 400).all()
    assert (hits <= 0.98 * 400).all()


def test_moments__of_a_part_whose_weights_are_next_to_nothing_are_those_of_the_others() -> None:
    values = np.array([[1.0], [0.0]])
    found = add_records(moments(values, np.ones(2)), moments(values, np.full(2, 1e-170)))
    assert mean_interval(found, 0) == mean_interval(moments(values, np.ones(2)), 0)


@given(st.integers(0, 300))
def test_rows_of_share__where_all_are_alike_is_the_number_of_effective_rows(seed: int) -> None:
    weight = 1 / np.random.default_rng(seed).choice([0.1, 0.3, 0.7, 1.0], 200)
    parts = [moments(np.ones((50, 1)), weight[first : first + 50]) for first in range(0, 200, 50)]
    found = reduce(add_records, parts)
    assert rows_of_share(found, 0) == pytest.approx(effective_rows(weight.sum(), float(weight @ weight)))


def test_rows_of_share__without_weights_is_their_number() -> None:
    figures = np.array([[1.0, 1.0], [0.0, 1.0], [1.0, 1.0]])
    found = moments(figures, np.ones(3))
    assert rows_of_share(found, 0) == pytest.approx(3)
    assert rows_of_share(found, 1) == 3


@pytest.mark.parametrize(
    ("values", "weight"),
    [([[1.0]], [1.0]), ([[math.inf], [1.0]], [1.0, 1.0]), ([[1.0], [2.0]], [1e160, 1e160])],
)
def test_mean_interval__is_missing_where_there_is_none(values: list[list[float]], weight: list[float]) -> None:
    found = mean_interval(moments(np.array(values), np.array(weight)), 0)
    assert math.isnan(found.low)
    assert math.isnan(found.high)


@pytest.mark.parametrize(("hits", "rows"), [(0, 12), (12, 12), (3, 12), (500, 1000)])
def test_share_interval__is_that_of_scipy(hits: int, rows: int) -> None:
    found = share_interval(hits / rows, rows)
    expected = binomtest(hits, rows).proportion_ci(method="wilson")
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_mean_of_shares__of_one_is_its_own_interval_and_of_many_is_narrower() -> None:
    one = share_interval(0.75, 40)
    alone, four = mean_of_shares([one]), mean_of_shares([one] * 4)
    assert (alone.low, alone.high) == pytest.approx((one.low, one.high))
    assert 0.75 - four.low == pytest.approx((0.75 - alone.low) / 2)
    assert math.isnan(mean_of_shares([one, Interval(0.5, math.nan, math.nan)]).low)
    assert math.isnan(mean_of_shares([]).value)
