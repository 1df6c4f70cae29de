from functools import reduce
from itertools import pairwise
from operator import add

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protodask.data.arrays.keyed import keyed_draws, stream_key
from protodask.engine import array_source, thread_engine
from protodask.evaluation.row_sample import (
    SAMPLE_STREAM,
    RowSample,
    draw_sample,
    sample_rows,
    sample_size,
    spread,
)
from protodask.prototypes.candidates import priority


@settings(max_examples=50)
@given(st.integers(0, 60), st.lists(st.integers(0, 60), max_size=5), st.integers(1, 70))
def test_merge__is_that_of_all_rows_however_they_are_cut(n_rows: int, edges: list[int], most: int) -> None:
    features, rows = np.random.default_rng(0).normal(size=(n_rows, 2)), np.arange(n_rows)
    bounds = [0, *sorted(min(edge, n_rows) for edge in edges), n_rows]
    parts = [
        sample_rows(rows[first:last], np.ones(last - first), features[first:last], most)
        for first, last in pairwise(bounds)
    ]
    none = sample_rows(rows[:0], np.ones(0), features[:0], most)
    found = reduce(add, parts, none)
    wanted = sample_rows(rows, np.ones(n_rows), features, most)
    np.testing.assert_array_equal(found.rows, wanted.rows)
    np.testing.assert_array_equal(found.values, features[found.rows])
    chosen = np.argsort(keyed_draws(stream_key(0, SAMPLE_STREAM), rows))[:most]
    np.testing.assert_array_equal(found.rows, chosen)
    assert found.n_rows == n_rows


def test_draw_sample__leaves_out_rows_without_weight_and_does_not_mind_the_blocks() -> None:
    weight = np.random.default_rng(0).choice([0.0, 1.0], 2000)
    rows = {"features": np.arange(2000.0)[:, None], "weight": weight}
    with thread_engine(2) as engine:
        first, second = (draw_sample(engine, array_source(rows, block_rows), 100) for block_rows in (64, 2048))
    np.testing.assert_array_equal(first.rows, second.rows)
    assert (weight[first.rows] == 1).all()
    assert len(first.rows) == 100


@pytest.mark.parametrize("seed", [0, 0x5EED])
def test_sample_rows__draws_other_rows_than_training_with_any_seed(seed: int) -> None:
    most = 20
    found = sample_rows(np.arange(400), np.ones(400), np.zeros((400, 1)), most).rows
    for batch in range(4):
        candidates = np.argsort(priority(seed, batch, np.arange(400)))[:most]
        assert len(np.intersect1d(found, candidates)) < most / 2


@pytest.mark.parametrize(("n_features", "expected"), [(1, 10_000), (100, 10_000), (4_000, 1048), (10**6, 200)])
def test_sample_size__keeps_the_memory_of_a_sample_bounded(n_features: int, expected: int) -> None:
    assert sample_size(n_features) == expected


def test_spread__takes_rows_of_equal_weight_once_and_heavy_ones_in_proportion() -> None:
    def sample(weight: list[float]) -> RowSample:
        count = len(weight)
        return RowSample(
            count, 10, np.arange(count, dtype=np.uint64), np.arange(count), np.array(weight), np.zeros((count, 1))
        )

    assert spread(sample([2.0] * 5)).tolist() == [0, 1, 2, 3, 4]
    assert len(spread(sample([]))) == 0
    weight = np.random.default_rng(0).choice([1.0, 4.0], 4000)
    found = spread(sample(weight.tolist()))
    assert len(found) == round(weight.sum() ** 2 / np.sum(weight**2))
    assert np.mean(weight[found] == 4) == pytest.approx(weight[weight == 4].sum() / weight.sum(), abs=0.005)
