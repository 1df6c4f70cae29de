"""Zarr arrays in the one form this package writes, checked before their rows are read.

Chunks hold the plain bytes and a CRC-32C. Zarr itself would follow whatever an array's metadata asks for: codecs that
unpack a kilobyte to gigabytes, shards, chunks elsewhere. Here another form than the expected one is refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from protodask.data.places.bounded import read_json

if TYPE_CHECKING:
    import zarr

    from protodask.engine import Layout

CHECKSUM_BYTES = 4
"""What the CRC-32C adds to a chunk."""

MAX_CHUNK_BYTES = 8 * 2**20
"""A chunk is what a read needs beyond its block, so it is smaller than one; 8 MiB still reads at full speed."""

CODECS = [
    {"name": "bytes", "configuration": {"endian": "little"}},
    {"name": "crc32c", "configuration": {}},
]
CHUNK_KEYS = {"name": "default", "configuration": {"separator": "/"}}

OPTIONAL_KEYS = {"attributes", "dimension_names", "storage_transformers"}
MOST_ROWS = 2**62
"""Beyond this, sums of row numbers would overflow."""

KEYS = OPTIONAL_KEYS | {
    "zarr_format",
    "node_type",
    "shape",
    "data_type",
    "chunk_grid",
    "chunk_key_encoding",
    "fill_value",
    "codecs",
}


def make_array(
    group: zarr.Group, array: PlainArray, dims: tuple[str, ...] | None = None, config: Any = None
) -> zarr.Array[Any]:
    """An empty array of this form, in a group.

    Chunks are stored as they are with a checksum: measured faster than any compression, and a flipped bit does not go
    unnoticed.
    """
    from zarr.codecs import BytesCodec, Crc32cCodec

    return group.create_array(
        array.name,
        shape=array.shape,
        chunks=array.chunks,
        dtype=array.dtype,
        serializer=BytesCodec(endian="little"),
        compressors=Crc32cCodec(),
        filters=None,
        fill_value=array.fill,
        dimension_names=dims,
        config=config,
    )


@dataclass(frozen=True)
class PlainArray:
    """The array `name` of the store `root`, as it should be."""

    root: str
    name: str
    dtype: str
    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    """Of some rows, each whole."""
    fill: float
    growing: bool = False
    """Whether there may be more rows than `shape` says: of an append of an earlier version, which was killed."""

    def check_form(self) -> None:
        """Refuse an array that is not as it should be: a `ValueError` says what it is instead."""
        if reason := self._misfit(read_json(self.root, f"{self.name}/zarr.json")):
            raise ValueError(reason)

    @property
    def chunk_bytes(self) -> int:
        return np.dtype(self.dtype).itemsize * math.prod(self.chunks) + CHECKSUM_BYTES

    def key(self, number: int) -> str:
        """Of the chunk that is the `number`-th by rows."""
        return "/".join((self.name, "c", str(number), *("0" for _ in self.shape[1:])))

    def _misfit(self, record: Any) -> str | None:
        if not isinstance(record, Mapping) or not KEYS >= record.keys() >= KEYS - OPTIONAL_KEYS:
            return "its metadata are not those of an array of this package"
        shape = record["shape"]
        if not self._fits(shape):
            return f"it has the shape {shortened(shape)} where {list(self.shape)} was expected"
        fill = "NaN" if math.isnan(self.fill) else self.fill
        grid = {"name": "regular", "configuration": {"chunk_shape": list(self.chunks)}}
        codecs = record["codecs"]
        if isinstance(codecs, list):  # Zarr leaves an empty configuration out, and other writers need not
            codecs = [{"configuration": {}, **codec} if isinstance(codec, Mapping) else codec for codec in codecs]
        for name, found, expected in (
            ("zarr_format", record["zarr_format"], 3),
            ("node_type", record["node_type"], "array"),
            ("data_type", record["data_type"], self.dtype),
            ("chunk_grid", record["chunk_grid"], grid),
            ("chunk_key_encoding", record["chunk_key_encoding"], CHUNK_KEYS),
            ("codecs", codecs, CODECS),
            ("fill_value", record["fill_value"], fill),
            ("storage_transformers", record.get("storage_transformers", []), []),
        ):
            if not _same(found, expected):
                return f"for {name} it says {shortened(record.get(name))}, which is not how this package stores arrays"
        return None

    def _fits(self, shape: Any) -> bool:
        if not isinstance(shape, list) or any(type(length) is not int for length in shape):
            return False
        if self.growing and shape and self.shape[0] <= shape[0] <= MOST_ROWS:
            return shape[1:] == list(self.shape[1:])
        return shape == list(self.shape)


@dataclass(frozen=True)
class ArraySpec:
    """Name, type and columns of an array (N,) or, with `width`, (N, width)."""

    name: str
    dtype: str
    width: int | None = None

    def shape(self, rows: int) -> tuple[int, ...]:
        return (rows,) if self.width is None else (rows, self.width)

    @property
    def row_bytes(self) -> int:
        return np.dtype(self.dtype).itemsize * math.prod(self.shape(1))

    def chunk_rows(self, block_rows: int) -> int:
        """Rows of a chunk: a block's, halved until a chunk has at most 8 MiB."""
        rows = block_rows
        while rows > 1 and rows * self.row_bytes > MAX_CHUNK_BYTES:
            rows //= 2
        return rows

    def form(self, root: str, layout: Layout) -> PlainArray:
        """The array as it is in the store at `root`, of rows in such blocks.

        What a missing chunk reads as is never a legal value, so that damage shows.
        """
        fill = np.nan if np.dtype(self.dtype).kind == "f" else -1
        chunks = self.shape(self.chunk_rows(layout.block_rows))
        return PlainArray(root, self.name, self.dtype, self.shape(layout.n_rows), chunks, fill)


def _same(found: Any, expected: Any) -> bool:
    """Equal, with types: True is not 1. Numbers may be written with a decimal point or without."""
    if type(found) in (int, float) and type(expected) in (int, float):
        return bool(found == expected)
    if type(found) is not type(expected):
        return False
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(_same(found[key], value) for key, value in expected.items())
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(_same, found, expected))
    return bool(found == expected)


def shortened(value: object) -> str:
    """What a value looks like, or its beginning."""
    text = repr(value)
    return text if len(text) <= 200 else text[:200] + "..."
