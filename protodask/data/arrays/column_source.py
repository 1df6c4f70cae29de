"""Arrays of one value for each row, whatever they are kept in, as one source."""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from protodask.data.arrays.row_arrays import RowArray, row_array
from protodask.data.arrays.rows import ReadByRanges
from protodask.engine import Arrays, Layout, Source, array_source, choose_block_rows
from protodask.errors import InputError

MOST_ROWS = 2**22
"""Rows that a block is widened to, to hold a whole chunk of a dask array: of four columns, 128 MiB."""


@dataclass(frozen=True)
class ColumnSource(ReadByRanges):
    """Arrays (N,), or (N, K), that are read by ranges of rows, side by side."""

    resident: ClassVar = False
    columns: Mapping[str, RowArray]
    layout: Layout
    key: str

    def rows(self, start: int, stop: int) -> Arrays:
        """Any range of rows."""
        return {name: column.slice(start, stop) for name, column in self.columns.items()}


def column_source(columns: Mapping[str, Any], block_rows: int | None = None, *, tables: Collection[str] = ()) -> Source:
    """Named arrays (N,) as a source: of NumPy, dask or Zarr, columns of data frames, or paths of .npy or Zarr arrays.

    What is not in memory is read block by block. Arrays named in `tables` are (N, K).
    """
    for name, column in columns.items():
        if np.ma.is_masked(column):
            raise InputError(
                "bad-value", f"Some values of the {name} are masked.", "Fill them in, or leave those rows out."
            )
    found = {name: row_array(_as_array(column)) for name, column in columns.items()}
    first, *others = found
    if len(found[first].shape) != (2 if first in tables else 1):
        values = "a row of values" if first in tables else "one value"
        raise InputError(
            "wrong-shape", f"The {first} has the shape {found[first].shape}.", f"Give {values} for each row."
        )
    for name in others:
        expected = found[first].shape[:1]
        if found[name].shape[: 1 if name in tables else None] != expected:
            raise InputError(
                "wrong-shape",
                f"The {name} has the shape {found[name].shape}, and the {first} {found[first].shape}.",
                "Give one value of each for each row.",
            )
    if all(column.resident for column in found.values()):
        return array_source({name: column.slice(0, column.shape[0]) for name, column in found.items()}, block_rows)
    layout = Layout(found[first].shape[0], _block_rows(found) if block_rows is None else block_rows)
    return ColumnSource(found, layout, os.urandom(8).hex())


def _as_array(column: Any) -> Any:
    return column.to_dask_array(lengths=True) if hasattr(column, "to_dask_array") else column


def _block_rows(columns: Mapping[str, RowArray]) -> int:
    """Blocks as large as a chunk, within limits: a slice of a dask array may compute all of the chunks it touches."""
    row_bytes = sum(column.dtype.itemsize * math.prod(column.shape[1:]) for column in columns.values())
    rows = choose_block_rows(next(iter(columns.values())).shape[0], row_bytes)
    chunk = max((last - first for column in columns.values() for first, last in pairwise(column.edges)), default=1)
    return max(rows, min(1 << (max(chunk, 1) - 1).bit_length(), MOST_ROWS))
