"""Plain arrays in stores as a source: training and prediction without an ingest."""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protodask.data.arrays.row_arrays import RowArray, check_beside, row_array, zarr_rows
from protodask.data.arrays.rows import ReadByRanges, check_finite
from protodask.data.format.schema import FEATURES, TARGET
from protodask.data.places.locations import locate
from protodask.engine import Arrays, Layout, choose_block_rows
from protodask.errors import FormatError, InputError, ProtodaskError


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

    @classmethod
    def open(
        cls,
        features: str | os.PathLike[str],
        target: str | os.PathLike[str] | None = None,
        *,
        block_rows: int | None = None,
    ) -> ZarrArraysSource:
        """Open Zarr arrays by their paths; shapes are checked, rows are not read."""
        return cls.of(
            zarr_rows(locate(features)),
            None if target is None else zarr_rows(locate(target)),
            block_rows=block_rows,
        )

    @classmethod
    def of(
        cls, features: Any, target: Any = None, *, block_rows: int | None = None, checked: bool = True
    ) -> ZarrArraysSource:
        """The same for opened arrays: of Zarr, or whatever else is read by ranges of rows."""
        matrix = row_array(features)
        labels = None if target is None else row_array(target)
        if len(matrix.shape) != 2 or matrix.dtype.kind not in "biuf" or 0 in matrix.shape:
            raise InputError(
                "wrong-shape",
                f"The features have the shape {matrix.shape} and the type {matrix.dtype}.",
                "Give numbers, rows by features.",
            )
        if labels is not None:
            check_beside("target", labels.shape, matrix.shape[0])
        row_bytes = matrix.shape[1] * (8 if matrix.dtype == np.float64 else 4)
        rows = choose_block_rows(matrix.shape[0], row_bytes) if block_rows is None else block_rows
        return cls(matrix, labels, Layout(matrix.shape[0], rows), os.urandom(8).hex(), checked)

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

    @property
    def dtype(self) -> np.dtype[np.floating]:
        """Type of the features in blocks."""
        return np.dtype(np.float64 if self.features.dtype == np.float64 else np.float32)

    def rows(self, start: int, stop: int) -> Arrays:
        """Any range of rows, read by chunks."""
        arrays: dict[str, NDArray[Any]] = {}
        try:
            arrays[FEATURES.name] = np.empty((stop - start, self.n_features), dtype=self.dtype)
            for first, last in pairwise(self.features.edges):
                low, high = max(first, start), min(last, stop)
                if low < high:
                    arrays[FEATURES.name][low - start : high - start] = self.features.slice(low, high)
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
