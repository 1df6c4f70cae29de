"""Files of raw tables that are small: read whole from bytes that are in memory, and encoded at once.

What comes of the values is the same as of larger ones, which are read in parts.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from protodask.data.format.schema import Column
from protodask.data.tables.csv_files import csv_columns, csv_text_table
from protodask.data.tables.encoding import BadRows, KeptTable, Table, columns_besides, table_rows
from protodask.data.tables.ingest_scan import kept_columns
from protodask.data.tables.ingest_sources import CSV_PARTITION_BYTES
from protodask.data.tables.kept_columns import KEPT, Kept, pack
from protodask.data.tables.parquet_files import (
    folder_columns,
    parquet_columns,
    parquet_names,
    stored_columns,
)
from protodask.data.tables.source_files import is_packed, is_parquet_path, table_errors
from protodask.data.tables.tables import Encoder
from protodask.data.tables.text_parts import check_header, header_of
from protodask.engine import Arrays
from protodask.errors import InputError

SMALL_BYTES = CSV_PARTITION_BYTES
SMALL_COMPRESSED_BYTES = 2**20
"""Text shrinks to a tenth or so, and Parquet files of few values to less."""
SMALL_VALUES = SMALL_BYTES
"""Values in a Parquet file, each of which takes 8 bytes in memory, or more."""


class NotSmallError(Exception):
    """A compressed file has so much in it that it is to be read in parts."""


def is_small(path: str, size: int) -> bool:
    """Whether a file of so many bytes is to be read here, unless it turns out to have more in it than most."""
    dense = is_packed(path) or is_parquet_path(path)
    return size <= (SMALL_COMPRESSED_BYTES if dense else SMALL_BYTES)


def encode_file(
    content: bytes,
    path: str,
    columns: Sequence[Column],
    *,
    target_name: str,
    keep: Sequence[str],
    dropped: Sequence[str],
    unseen: Any,
    dtype: str,
    bad_rows: BadRows = "error",
) -> Arrays:
    """The features in the content of a file, and the columns to keep, as `table_source` makes them of larger ones.

    A `NotSmallError` where there is too much in it for that.
    """
    kept = kept_columns(columns, [target_name], keep)
    known = [*(column.name for column in columns), *kept.names]
    # That a model does not know the folders is no news of each of thousands of files.
    folders = folder_columns(path).keys() - set(known) if is_parquet_path(path) else set()
    left_out = (frozenset(dropped) - set(keep)).union(folders)
    labels = frozenset((*(column.name for column in columns if column.kind != "numeric"), target_name, *kept.texts))
    names, found = _table(content, path, labels, left_out, kept)
    if besides := columns_besides(names, known, [target_name, *left_out]):
        names, found = _table(content, path, labels, left_out.union(besides), kept)
    rows = table_rows(found)
    if rows == 0:
        raise InputError("no-rows", "There are no rows.", "Give a table with rows.")
    encoder = Encoder(tuple(columns), (), None, dtype=dtype, unseen=unseen, kept=kept.names, bad_rows=bad_rows)
    arrays = encoder.empty(rows)
    problem = encoder.encode(found, arrays)
    if problem is not None:
        raise problem.error()
    return {**arrays, KEPT: pack([found.kept])} if isinstance(found, KeptTable) else arrays


def _table(
    content: bytes, path: str, labels: frozenset[str], dropped: frozenset[str], kept: Kept
) -> tuple[tuple[str, ...], Table]:
    if not is_parquet_path(path):
        text = _decompressed(content, path)
        check_header(header_of(io.BytesIO(text), path) or text, path)
        columns = csv_columns(path, labels, dropped, lambda: io.BytesIO(text))
        return columns.names, csv_text_table(text, path, columns, kept)
    from pyarrow.parquet import ParquetFile

    with table_errors(path), ParquetFile(io.BytesIO(content)) as stored:
        if stored.metadata.num_rows * stored.metadata.num_columns > SMALL_VALUES:
            raise NotSmallError(path)
        names, _ = parquet_names(stored_columns(stored.schema_arrow, path), path, dropped, kept)
        return names, parquet_columns(stored, path, range(stored.num_row_groups), names, kept)


def _decompressed(content: bytes, path: str) -> bytes:
    if not is_packed(path):
        return content
    import fsspec

    unpacked = fsspec.compression.compr[fsspec.utils.infer_compression(path)]
    with table_errors(path), unpacked(io.BytesIO(content)) as file:
        text: bytes = file.read(SMALL_BYTES + 1)
    if len(text) > SMALL_BYTES:
        raise NotSmallError(path)
    return text
