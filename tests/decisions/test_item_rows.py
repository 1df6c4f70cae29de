import dask.array as da
import numpy as np
from support.errors import refused

from protodask.decisions import Cut
from protodask.decisions.item_rows import ItemRows, is_outside_memory, select_items
from protodask.engine import array_source


def test_item_rows__any_range_over_chunks() -> None:
    values = np.linspace(0, 1, 40, dtype=np.float32)
    rows = ItemRows.of(da.from_array(values, chunks=((7, 1, 20, 12),)))
    assert not rows.resident
    np.testing.assert_array_equal(rows.slice(0, 40), values)
    np.testing.assert_array_equal(rows.slice(5, 23), values[5:23])
    assert rows.slice(4, 4).shape == (0,)
    assert rows.read(0)["probability"].dtype == np.float32


def test_item_rows__chunks_of_unknown_length() -> None:
    values = da.from_array(np.array([0.1, 0.9, 0.5, 0.7]), chunks=2)
    np.testing.assert_array_equal(ItemRows.of(values[values > 0.3]).slice(0, 3), [0.9, 0.5, 0.7])


def test_item_rows__refuse_shapes() -> None:
    with refused("wrong-shape", "(4, 3)", "decide_sets", "decide_rows"):
        ItemRows.of(da.zeros((4, 3)))


def test_is_outside_memory__not_for_arrays_and_lists() -> None:
    assert is_outside_memory(da.zeros(3))
    assert not is_outside_memory(np.zeros(3))
    assert not is_outside_memory([0.5])


def test_select_items__takes_the_first_of_the_tied_over_all_blocks() -> None:
    probability = np.array([0.5, 0.2, 0.5, 0.9, 0.5, 0.5, 0.1, 0.5])
    source = array_source({"probability": probability}, block_rows=2)
    selected = select_items(source, Cut(0.5, tied=5, taken=3))
    np.testing.assert_array_equal(np.flatnonzero(selected), [0, 2, 3, 4])
