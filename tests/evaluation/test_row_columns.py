"""Arrays of every kind as one source."""

from pathlib import Path
from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import zarr

from protodask.engine import ArraySource
from protodask.engine.sources import Source
from protodask.errors import InputError
from protodask.evaluation.row_columns import column_source

A = np.arange(5000.0)
B = np.arange(10_000).reshape(5000, 2)


def whole(source: Source) -> dict[str, Any]:
    blocks = [source.read(number) for number in range(source.layout.n_blocks)]
    return {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0].arrays}


def test_column_source__in_memory_is_an_array_source() -> None:
    assert isinstance(column_source({"a": A, "b": B.tolist(), "c": None}), ArraySource)


@pytest.mark.parametrize("kind", ["dask", "unknown chunks", "zarr", "npy", "series", "dask series"])
def test_column_source__has_the_rows_of_all_its_arrays(kind: str, tmp_path: Path) -> None:
    array: Any
    match kind:
        case "dask":
            array = da.from_array(A, chunks=700)
        case "unknown chunks":
            lazy = da.from_array(A, chunks=700)
            array = lazy[lazy >= 0]
        case "zarr":
            array = zarr.create_array(tmp_path / "a.zarr", data=A, chunks=(512,))
        case "npy":
            np.save(tmp_path / "a.npy", A)
            array = np.load(tmp_path / "a.npy", mmap_mode="r")
        case "series":
            array = pd.Series(A)
        case "dask series":
            array = dd.from_pandas(pd.Series(A), npartitions=3)
    source = column_source({"a": array, "b": B})
    assert source.layout.n_blocks > 1
    found = whole(source)
    np.testing.assert_array_equal(found["a"], A)
    np.testing.assert_array_equal(found["b"], B)


def test_column_source__refuses_arrays_that_do_not_fit() -> None:
    with pytest.raises(InputError, match="5000 of a, 9 of b. Give a value of each for every row"):
        column_source({"a": da.from_array(A), "b": B[:9]})
    with pytest.raises(InputError, match="Give one a for each row"):
        column_source({"a": 0.5})
