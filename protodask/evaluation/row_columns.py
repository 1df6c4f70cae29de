"""Arrays by row of every kind as one source: in memory, of dask, of Zarr or in .npy files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protodask.data.row_arrays import MemoryRows, RowArray, row_array
from protodask.engine import Arrays, Block, Layout, Source, array_source, choose_block_rows
from protodask.errors import InputError


@dataclass(frozen=True)
class ColumnSource:
    """Arrays by row that are read by ranges; small to pickle where they are in stores."""

    columns: Mapping[str, RowArray]
    layout: Layout
    key: str

    @property
    def resident(self) -> bool:
        return all(column.resident for column in self.columns.values())

    def read(self, number: int) -> Block:
        start, stop = self.layout.bounds(number)
        return Block(number, start, self.rows(start, stop))

    def rows(self, start: int, stop: int) -> Arrays:
        """Any range of rows."""
        found: dict[str, NDArray[Any]] = {
            name: np.ascontiguousarray(column.slice(start, stop)) for name, column in self.columns.items()
        }
        return found


def column_source(arrays: Mapping[str, Any]) -> Source:
    """Named arrays of one length, with a row for each row; dask arrays are computed block by block, never as a whole.

    Where such an array does not fit into the cache it is computed once for each pass over it.
    """
    columns = {name: _opened(array) for name, array in arrays.items() if array is not None}
    lengths = {name: column.shape[0] if column.shape else 0 for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        said = ", ".join(f"{length} of {name}" for name, length in lengths.items())
        raise InputError(f"The arrays have different numbers of rows: {said}.", "Give a value of each for every row.")
    held = {name: column.array for name, column in columns.items() if isinstance(column, MemoryRows)}
    if len(held) == len(columns):
        return array_source(held)
    n_rows = next(iter(lengths.values()))
    row_bytes = sum(column.dtype.itemsize * _width(column) for column in columns.values())
    return ColumnSource(columns, Layout(n_rows, choose_block_rows(n_rows, row_bytes)), os.urandom(8).hex())


def _opened(array: Any) -> RowArray:
    return row_array(array.to_dask_array() if hasattr(array, "to_dask_array") else array)


def _width(column: RowArray) -> int:
    return int(np.prod(column.shape[1:], dtype=np.int64))
