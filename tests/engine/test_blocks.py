import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protodask.engine import Block, Layout, choose_block_rows
from protodask.engine.blocks import SMALLEST_BLOCK_ROWS, TARGET_BLOCK_BYTES

powers = st.integers(0, 20).map(lambda exponent: 2**exponent)


@given(st.integers(0, 5000), powers)
def test_layout__covers_every_row_once_in_order(n_rows: int, block_rows: int) -> None:
    layout = Layout(n_rows, block_rows)
    bounds = [layout.bounds(number) for number in range(layout.n_blocks)]
    edges = [0, *(stop for _, stop in bounds)]
    assert [start for start, _ in bounds] == edges[:-1]
    assert edges[-1] == n_rows
    assert all(stop - start == block_rows for start, stop in bounds[:-1])
    assert all(0 < stop - start <= block_rows for start, stop in bounds)


@given(st.integers(1, 3000), powers)
def test_block_of__agrees_with_the_bounds(n_rows: int, block_rows: int) -> None:
    layout = Layout(n_rows, block_rows)
    rows = np.arange(n_rows)
    for row, number in zip(rows, layout.block_of(rows), strict=True):
        start, stop = layout.bounds(int(number))
        assert start <= row < stop


@pytest.mark.parametrize("block_rows", [0, -4, 3, 100])
def test_layout__refuses_a_length_that_is_no_power_of_two(block_rows: int) -> None:
    with pytest.raises(ValueError, match="power of two"):
        Layout(10, block_rows)


def test_layout__refuses_negative_rows() -> None:
    with pytest.raises(ValueError, match="-1 rows"):
        Layout(-1, 4)


@pytest.mark.parametrize("number", [-1, 3])
def test_bounds__refuses_a_block_that_is_not_there(number: int) -> None:
    with pytest.raises(IndexError, match="of 3"):
        Layout(9, 4).bounds(number)


@given(st.integers(0, 10**10), st.integers(0, 2**27))
def test_choose_block_rows__is_a_power_of_two_of_bounded_bytes(n_rows: int, row_bytes: int) -> None:
    rows = choose_block_rows(n_rows, row_bytes)
    assert rows & (rows - 1) == 0
    assert rows == 1 or rows * row_bytes <= TARGET_BLOCK_BYTES


@given(st.integers(0, 10**10), st.integers(1, 2**12))
def test_choose_block_rows__is_as_large_as_its_rules_allow(n_rows: int, row_bytes: int) -> None:
    rows = choose_block_rows(n_rows, row_bytes)
    fills_a_block = 2 * rows * row_bytes > TARGET_BLOCK_BYTES
    shares_fairly = rows >= SMALLEST_BLOCK_ROWS and 2 * rows * 64 > n_rows
    assert fills_a_block or shares_fairly
    # More rows never mean smaller blocks, wider rows never larger ones.
    assert choose_block_rows(2 * n_rows, row_bytes) >= rows >= choose_block_rows(n_rows, 2 * row_bytes)


def test_block__knows_its_rows() -> None:
    block = Block(3, 12, {"x": np.zeros((4, 2)), "y": np.zeros(4, dtype=np.int32)})
    assert (block.n_rows, block.stop, block.nbytes) == (4, 16, 4 * 2 * 8 + 4 * 4)
    assert block.rows.tolist() == [12, 13, 14, 15]
    assert "x" in block
    assert "z" not in block
