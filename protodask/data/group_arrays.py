"""The arrays of a dataset, while they are empty."""

from __future__ import annotations

import zarr
from zarr.codecs import BytesCodec, Crc32cCodec

from protodask.data.metadata import Metadata
from protodask.data.schema import Variable


def make_array(group: zarr.Group, variable: Variable, metadata: Metadata, rows: int) -> None:
    """An empty array for some rows. Chunks are stored as they are with a checksum: measured faster than any
    compression, and a flipped bit does not go unnoticed.
    """
    group.create_array(
        variable.name,
        shape=metadata.shape_of(variable, rows),
        chunks=metadata.shape_of(variable, metadata.chunk_rows(variable)),
        dtype=metadata.dtype_of(variable),
        serializer=BytesCodec(endian="little"),
        compressors=Crc32cCodec(),
        filters=None,
        fill_value=variable.fill,
        dimension_names=variable.dims,
    )
