"""Arrays by row in a Zarr group, written and read block by block: scores between batches, and predictions."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar

import zarr

from protodask.data.arrays.plain_arrays import ArraySpec, PlainArray, make_array
from protodask.data.arrays.plain_rows import DamagedArrayError, read_rows
from protodask.data.places.locations import open_store, storage_errors
from protodask.data.places.storage import writing_into
from protodask.engine import Arrays, Block, Layout
from protodask.errors import FormatError


@dataclass(frozen=True)
class ArrayStore:
    """Both a sink and a source; it names its place, so that tasks anywhere can use it."""

    resident: ClassVar = False
    path: str = field(repr=False)  # tasks are logged with their arguments, and a URL may hold a secret
    layout: Layout
    arrays: tuple[ArraySpec, ...]
    key: str
    """Another one for each writing: what one path holds over time is told apart by it."""
    remedy: str = "Compute it again."
    """What to do where it is damaged."""

    def create(self, attributes: Mapping[str, Any] | None = None) -> zarr.Group:
        """Make the group and its arrays, empty."""
        store = open_store(self.path)
        group = zarr.open_group(store, mode="w", zarr_format=3, attributes=dict(attributes or {}))
        for form in self._forms():
            make_array(group, form)
        return group

    def write(self, number: int, start: int, arrays: Arrays) -> None:
        """Store the rows of one block."""
        write_rows(self.path, self.key, {form.name: form.chunks[0] for form in self._forms()}, start, arrays)

    def read(self, number: int) -> Block:
        start, stop = self.layout.bounds(number)
        with storage_errors(self.path, "reading"):
            try:
                values = read_rows(self._forms(), start, stop)
            except DamagedArrayError as error:
                raise FormatError(
                    "damaged",
                    f"The array {error.name!r} in {self.path} is damaged or incomplete in block {number}.",
                    self.remedy,
                ) from error
        return Block(number, start, {spec.name: array for spec, array in zip(self.arrays, values, strict=True)})

    def _forms(self) -> list[PlainArray]:
        return [spec.form(self.path, self.layout) for spec in self.arrays]


def write_rows(path: str, key: str, steps: Mapping[str, int], start: int, arrays: Arrays) -> None:
    """Store rows in arrays of the group at a path, chunks of so many rows at a time; `key` tells what the path held."""
    with storage_errors(path, "writing"), writing_into(path):
        stored = _open_writable(path, key, tuple(steps))
        for name, step in steps.items():
            values = arrays[name]
            for first in range(0, len(values), step):
                part = values[first : first + step]
                stored[name][start + first : start + first + len(part)] = part


@lru_cache(maxsize=64)  # more than there are fits with stored scores in one pass; opening takes a millisecond
def _open_writable(path: str, key: str, names: tuple[str, ...]) -> Mapping[str, Any]:
    store = open_store(path)
    return {name: zarr.open_array(store, path=name, mode="r+", zarr_format=3) for name in names}


def store_key() -> str:
    """A key that no other store has."""
    return os.urandom(8).hex()
