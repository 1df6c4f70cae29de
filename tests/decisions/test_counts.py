import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import poisson_binom

from protodask.decisions.counts import (
    NEGLIGIBLE,
    NO_ITEMS,
    CountTable,
    count_table,
    neighbouring_tables,
    prefix_tables,
)

Floats = NDArray[np.float64]


def full(table: CountTable, n: int) -> Floats:
    whole = np.zeros(n + 1)
    whole[table.start : table.start + len(table.probability)] = table.probability
    return whole


def test_count_table__of_two_items() -> None:
    table = count_table([0.25, 0.5])
    assert table.start == 0
    np.testing.assert_allclose(table.probability, [0.375, 0.5, 0.125], rtol=1e-15)
    np.testing.assert_array_equal(table.counts, [0, 1, 2])


def test_count_table__certain_items_leave_one_entry() -> None:
    table = count_table([1.0, 0.0, 1.0, 0.0, 1.0])
    assert table.start == 3
    np.testing.assert_array_equal(table.probability, [1.0])


@given(st.lists(st.floats(0, 1) | st.sampled_from([0.0, 1.0, 0.5, 1e-300]), max_size=12))
def test_count_table__equals_convolution(probability: list[float]) -> None:
    expected = np.ones(1)
    for eta in probability:
        expected = np.convolve(expected, [1 - eta, eta])
    np.testing.assert_allclose(full(count_table(probability), len(probability)), expected, rtol=1e-13, atol=1e-24)


@pytest.mark.parametrize("shape", [(0.5, 0.5), (1, 1), (0.5, 20), (0.01, 10), (30, 30)])
def test_count_table__equals_scipy(shape: tuple[float, float]) -> None:
    probability = np.random.default_rng(1).beta(*shape, size=500)
    expected = poisson_binom(probability).pmf(np.arange(501))
    np.testing.assert_allclose(full(count_table(probability), 500), expected, rtol=1e-11, atol=1e-15)


def test_count_table__drops_what_is_negligible_only() -> None:
    probability = np.random.default_rng(2).uniform(size=3000)
    table = count_table(probability)
    assert table.probability.min() >= NEGLIGIBLE
    assert len(table.probability) < 20 * np.sqrt(3000) / 2
    assert abs(table.probability.sum() - 1) < 1e-12
    mean = table.counts @ table.probability
    assert mean == pytest.approx(probability.sum(), rel=1e-12)
    variance = np.square(table.counts - mean) @ table.probability
    assert variance == pytest.approx(np.sum(probability * (1 - probability)), rel=1e-11)


def test_prefix_and_neighbouring_tables__are_those_of_first_and_last_items() -> None:
    probability = np.array([0.9, 0.6, 0.6, 0.1, 0.0])
    prefixes, neighbours = prefix_tables(probability), list(neighbouring_tables(probability))
    suffixes = [after for _, after in neighbours]
    assert len(prefixes) == len(suffixes) == 6
    assert prefixes[0] is NO_ITEMS
    assert suffixes[5] is NO_ITEMS
    for k in range(6):
        np.testing.assert_array_equal(neighbours[k][0].probability, prefixes[k].probability)
        np.testing.assert_allclose(full(prefixes[k], 5), full(count_table(probability[:k]), 5), rtol=1e-15)
        np.testing.assert_allclose(full(suffixes[k], 5), full(count_table(probability[k:]), 5), rtol=1e-14)
