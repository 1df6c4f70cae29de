"""Arrays as sources, whatever they are kept in: features and a target, without an ingest, or one value for each row."""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from protodask.data.arrays.row_arrays import RowArray, check_beside, row_array, zarr_rows
from protodask.data.arrays.rows import ReadByRanges, check_finite, spans
from protodask.data.arrays.values import refuse_masked
from protodask.data.format.schema import FEATURES, TARGET
from protodask.data.places.locations import locate
from protodask.engine import Arrays, Layout, Source, array_source, choose_block_rows
from protodask.engine.lazy import as_array
from protodask.errors import FormatError, InputError, ProtodaskError

FLOAT32: np.dtype[np.floating] = np.dtype(np.float32)

MOST_ROWS = 2**22
"""Rows that a block is widened to, to hold a whole chunk of a dask array: of four columns, 128 MiB."""


@dataclass(frozen=True)
class ZarrArraysSource(ReadByRanges):
    """Features (N, D) and optionally a target (N,) in Zarr arrays of any chunks; small to pickle.

    Blocks hold "features" as float32 (float64 stays) and "target" as it is stored. Nobody vouches for the content of
    such arrays, so each block is checked for missing values when it is read, if they are `checked`. `key` tells places
    apart, not contents: open arrays again that were written again.
    """

    features: RowArray
    target: RowArray | None
    layout: Layout
    key: str
    checked: bool = True
    """Whether a missing or infinite value is an error; else who reads has to look for them."""
    dtype: np.dtype[np.floating] = FLOAT32
    """Type of the features in blocks."""

    @classmethod
    def open(
        cls,
        features: str | os.PathLike[str],
        target: str | os.PathLike[str] | None = None,
        *,
        block_rows: int | None = None,
    ) -> ZarrArraysSource:
        """Open Zarr arrays by their paths; shapes are checked, rows are not read."""
        labels = None if target is None else zarr_rows(locate(target))
        return cls.of(zarr_rows(locate(features)), labels, block_rows=block_rows)

    @classmethod
    def of(
        cls,
        features: Any,
        target: Any = None,
        *,
        block_rows: int | None = None,
        checked: bool = True,
        dtype: str | None = None,
    ) -> ZarrArraysSource:
        """The same for opened arrays, of Zarr or whatever else is read by ranges of rows.

        `dtype` is that of the features in blocks, if it has to be another one: float32 rounds large integers.
        """
        matrix = row_array(features)
        labels = None if target is None else row_array(target)
        if len(matrix.shape) != 2 or matrix.dtype.kind not in "biuf" or 0 in matrix.shape:
            raise InputError(
                "wrong-shape",
                f"The features have the shape {matrix.shape} and the type {matrix.dtype}.",
                "Give numbers, rows by features, at least one of each.",
            )
        if labels is not None:
            check_beside("target", labels.shape, matrix.shape[0])
        floats = np.dtype(dtype or ("float64" if matrix.dtype.newbyteorder("=") == np.float64 else "float32"))
        row_bytes = matrix.shape[1] * floats.itemsize
        rows = choose_block_rows(matrix.shape[0], row_bytes) if block_rows is None else block_rows
        return cls(matrix, labels, Layout(matrix.shape[0], rows), os.urandom(8).hex(), checked, floats)

    @property
    def resident(self) -> bool:
        return self.features.resident

    @property
    def n_rows(self) -> int:
        return self.layout.n_rows

    @property
    def n_features(self) -> int:
        return self.features.shape[1]

    @property
    def feature_names(self) -> tuple[str, ...]:
        return tuple(f"x{number}" for number in range(self.n_features))

    def rows(self, start: int, stop: int) -> Arrays:
        """Any range of rows, read by chunks."""
        arrays: dict[str, NDArray[Any]] = {}
        try:
            arrays[FEATURES.name] = np.empty((stop - start, self.n_features), dtype=self.dtype)
            for _, first, last in spans(self.features.edges, start, stop):
                arrays[FEATURES.name][first - start : last - start] = self.features.slice(first, last)
            if self.target is not None:
                arrays[TARGET.name] = np.ascontiguousarray(self.target.slice(start, stop))
        except ProtodaskError:
            raise
        except (ValueError, TypeError, RuntimeError) as error:  # a wrong checksum or length
            raise FormatError(
                "damaged", f"Rows {start} to {stop} of an array could not be read ({error}).", "Write the array again."
            ) from error
        if self.checked:
            check_finite(arrays[FEATURES.name], self.feature_names, start)
        return arrays


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
        refuse_masked(name, column)
    found = {name: row_array(as_array(column)) for name, column in columns.items()}
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


def _block_rows(columns: Mapping[str, RowArray]) -> int:
    """Blocks as large as a chunk, within limits: a slice of a dask array may compute all of the chunks it touches."""
    row_bytes = sum(column.dtype.itemsize * math.prod(column.shape[1:]) for column in columns.values())
    rows = choose_block_rows(next(iter(columns.values())).shape[0], row_bytes)
    chunk = max((last - first for column in columns.values() for first, last in pairwise(column.edges)), default=1)
    return max(rows, min(1 << (max(chunk, 1) - 1).bit_length(), MOST_ROWS))
