import dask.array
import dask.dataframe
import numpy as np
import pandas
import pytest
from numpy.typing import NDArray
from support.errors import refused

from protodask.engine.lazy import as_array, computed, is_lazy, map_rows, map_values


def doubled_twice(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    # Needs whole rows: with the columns of a row in several chunks there would be too many.
    return np.repeat(rows.sum(axis=1, keepdims=True), 2, axis=1)


@pytest.mark.parametrize("chunks", [(7, 3), (4, 2), (20, 1)])
def test_map_rows__is_the_function_on_all_rows(chunks: tuple[int, int]) -> None:
    x = np.random.default_rng(0).normal(size=(20, 3))
    lazy = dask.array.from_array(x, chunks=chunks)
    mapped = map_rows(lazy, doubled_twice, 2, np.float64)
    assert is_lazy(mapped)
    assert mapped.shape == (20, 2)
    assert mapped.chunks[0] == lazy.chunks[0]
    np.testing.assert_array_equal(mapped.compute(), doubled_twice(x))


def test_map_rows__keeps_unknown_chunk_lengths() -> None:
    x = np.arange(12.0).reshape(6, 2)
    lazy = dask.array.from_array(x, chunks=(4, 2))
    chosen = lazy[lazy[:, 0] > 3]
    np.testing.assert_array_equal(map_rows(chosen, doubled_twice, 2, np.float64).compute(), doubled_twice(x[2:]))


def test_map_rows__computes_nothing_by_itself() -> None:
    def refuse(rows: NDArray[np.float64]) -> NDArray[np.float64]:
        raise AssertionError("computed")

    lazy = map_rows(dask.array.ones((10, 2), chunks=5), refuse, 1, np.float64)
    with pytest.raises(AssertionError, match="computed"):
        lazy.compute()


def test_map_rows__refuses_what_has_no_rows_of_features() -> None:
    with pytest.raises(ValueError, match="1 dimensions"):
        map_rows(dask.array.ones(10, chunks=5), doubled_twice, 2, np.float64)


def test_is_lazy__of_arrays_in_memory_is_false() -> None:
    assert not is_lazy(np.zeros(3))


def test_map_values__refuses_arrays_that_do_not_go_together() -> None:
    x = dask.array.ones(6, chunks=3)
    for other in (np.ones(5), dask.array.ones(5, chunks=3)):
        with refused("wrong-shape", "same lengths"):
            map_values(np.hypot, x, other, dtype=np.float64)
    with refused("wrong-shape", "not known yet"):
        map_values(np.hypot, x[x > 0], np.ones(6), dtype=np.float64)


def test_map_values__broadcasts_and_computes_nothing_by_itself() -> None:
    x, y = np.arange(12.0).reshape(6, 2), np.arange(2.0)
    lazy = dask.array.from_array(x, chunks=(4, 1))
    mapped = map_values(np.hypot, lazy, y, dtype=np.float64)
    assert is_lazy(mapped)
    assert mapped.chunks == lazy.chunks
    np.testing.assert_array_equal(mapped.compute(), np.hypot(x, y))

    def refuse(values: NDArray[np.float64], other: float) -> NDArray[np.float64]:
        raise AssertionError("computed")

    never = map_values(refuse, lazy, 3.0, dtype=np.int64)
    assert never.dtype == np.int64
    with pytest.raises(AssertionError, match="computed"):
        never.compute()


def test_as_array__of_a_shuffled_frame_has_one_order_of_rows() -> None:
    frame = pandas.DataFrame({"key": np.arange(400) % 7, "x": np.arange(400.0), "y": -np.arange(400.0)})
    lazy = dask.dataframe.from_pandas(frame, npartitions=6).shuffle("key")
    x, y, same = as_array(lazy["x"]), as_array(lazy["y"]), computed(lazy["y"])
    np.testing.assert_array_equal(x.compute(), -y.compute())
    np.testing.assert_array_equal(y.compute(), same)
    assert as_array(frame) is frame
    assert computed(3) == 3


def test_frames__whose_partitions_have_their_columns_in_other_orders() -> None:
    frame = pandas.DataFrame(np.random.default_rng(0).normal(size=(20, 3)), columns=list("abc"))
    parts = [frame[:8], frame[8:][["c", "a", "b"]]]
    lazy = dask.dataframe.from_map(lambda part: part, parts, meta=frame[:0])
    np.testing.assert_array_equal(as_array(lazy).compute(), frame)
    pandas.testing.assert_frame_equal(computed(lazy), frame)
    mapped = map_rows(lazy, lambda rows: rows.to_numpy()[:, :1], 1, np.float64)
    np.testing.assert_array_equal(mapped.compute()[:, 0], frame["a"])
    other = dask.dataframe.from_map(lambda part: part, [frame[:8], frame[["a", "b"]]], meta=frame[:0])
    with refused("columns-differ", "has: c.", "all partitions"):
        computed(other)
    twice = dask.dataframe.from_map(
        lambda part: part, [frame[["a", "b", "a"]], frame[["b", "a", "a"]]], meta=frame[["a", "b", "a"]]
    )
    assert map_rows(twice, lambda rows: rows.to_numpy(), 3, np.float64).compute().shape == (40, 3)
