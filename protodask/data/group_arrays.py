"""The Zarr group of a dataset and its arrays, while they are empty."""

from __future__ import annotations

import zarr
from zarr.codecs import BytesCodec, Crc32cCodec

from protodask.data.locations import open_store
from protodask.data.metadata import Metadata, unfinished_attributes
from protodask.data.schema import Variable


def make_group(path: str) -> zarr.Group:
    """A new, empty group that says it is an unfinished dataset."""
    return zarr.open_group(open_store(path), mode="w", zarr_format=3, attributes=unfinished_attributes())


def make_array(group: zarr.Group, variable: Variable, metadata: Metadata) -> None:
    """An empty array. Chunks are stored as they are with a checksum: measured faster than any compression, and a
    flipped bit does not go unnoticed.
    """
    group.create_array(
        variable.name,
        shape=metadata.shape_of(variable, metadata.n_rows),
        chunks=metadata.shape_of(variable, metadata.chunk_rows(variable)),
        dtype=metadata.dtype_of(variable),
        serializer=BytesCodec(endian="little"),
        compressors=Crc32cCodec(),
        filters=None,
        fill_value=variable.fill,
        dimension_names=variable.dims,
    )
