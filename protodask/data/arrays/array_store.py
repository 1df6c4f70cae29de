"""Arrays by row in a Zarr group, written and read block by block: scores between batches, and predictions."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

from protodask.data.arrays.plain_arrays import chunk_rows, make_array
from protodask.data.places.locations import open_store, storage_errors
from protodask.data.places.storage import writing_into
from protodask.engine import Arrays, Block, Layout
from protodask.errors import FormatError


@dataclass(frozen=True)
class ArraySpec:
    """Name, type and columns of an array (N,) or, with `width`, (N, width)."""

    name: str
    dtype: str
    width: int | None = None

    def shape(self, rows: int) -> tuple[int, ...]:
        return (rows,) if self.width is None else (rows, self.width)

    def chunk_rows(self, block_rows: int) -> int:
        """Rows of a chunk."""
        return chunk_rows(block_rows, np.dtype(self.dtype).itemsize * (self.width or 1))


@dataclass(frozen=True)
class ArrayStore:
    """Both a sink and a source; it names its place, so that tasks anywhere can use it."""

    path: str = field(repr=False)  # tasks are logged with their arguments, and a URL may hold a secret
    layout: Layout
    arrays: tuple[ArraySpec, ...]
    key: str
    """Another one for each writing: what one path holds over time is told apart by it."""
    remedy: str = "Compute it again."
    """What to do where it is damaged."""

    @property
    def resident(self) -> bool:
        return False

    def create(self, attributes: Mapping[str, Any] | None = None) -> zarr.Group:
        """Make the group and its arrays, empty."""
        store = open_store(self.path)
        group = zarr.open_group(store, mode="w", zarr_format=3, attributes=dict(attributes or {}))
        for spec in self.arrays:
            make_array(
                group,
                spec.name,
                spec.shape(self.layout.n_rows),
                spec.shape(spec.chunk_rows(self.layout.block_rows)),
                spec.dtype,
                np.nan if np.dtype(spec.dtype).kind == "f" else -1,
            )
        return group

    def write(self, number: int, start: int, arrays: Arrays) -> None:
        """Store the rows of one block."""
        with storage_errors(self.path, "writing"), writing_into(self.path):
            stored = _open(self.path, self.key, "r+")
            for spec in self.arrays:
                values = arrays[spec.name]
                step = spec.chunk_rows(self.layout.block_rows)
                for first in range(0, len(values), step):
                    part = values[first : first + step]
                    stored[spec.name][start + first : start + first + len(part)] = part

    def read(self, number: int) -> Block:
        start, stop = self.layout.bounds(number)
        stored = _open(self.path, self.key, "r")
        found: dict[str, NDArray[Any]] = {}
        for spec in self.arrays:
            with storage_errors(self.path, "reading"):
                try:
                    values = np.asarray(stored[spec.name][start:stop])
                except ValueError as error:  # a wrong checksum or length
                    raise self._damaged(spec, number) from error
            # A chunk that is missing is read as the fill value.
            step = spec.chunk_rows(self.layout.block_rows)
            firsts = values.reshape(len(values), -1)[np.union1d(0, np.arange(-start % step, len(values), step)), 0]
            if (np.isnan(firsts) if values.dtype.kind == "f" else firsts == -1).any():
                raise self._damaged(spec, number)
            found[spec.name] = values
        return Block(number, start, found)

    def _damaged(self, spec: ArraySpec, number: int) -> FormatError:
        return FormatError(
            "damaged",
            f"The array {spec.name!r} in {self.path} is damaged or incomplete in block {number}.",
            self.remedy,
        )


@lru_cache(maxsize=64)  # more than there are fits with stored scores in one pass; opening takes a millisecond
def _open(path: str, key: str, mode: Any) -> Mapping[str, Any]:
    return dict(zarr.open_group(open_store(path, mode == "r"), mode=mode, zarr_format=3).arrays())


def store_key() -> str:
    """A key that no other store has."""
    return os.urandom(8).hex()
