"""The tables in CSV and Parquet files, in the order of the files, by the names of their columns."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from protodask.data.tables.csv_files import csv_table
from protodask.data.tables.encoding import columns_besides
from protodask.data.tables.kept_columns import NOTHING_KEPT, Kept
from protodask.data.tables.parquet_files import ParquetParts, parquet_parts, parquet_table
from protodask.data.tables.source_files import is_parquet_path
from protodask.data.tables.tables import Partitions, check_same_columns, join_tables, names_by_table
from protodask.data.tables.text_parts import TextParts, text_parts
from protodask.errors import needed

CSV_PARTITION_BYTES = 8 * 2**20
"""Text of a partition: small beside a block, because a block parses every partition it touches."""

PARQUET_PARTITION_BYTES = 32 * 2**20
"""Row groups are joined up to this size, not compressed; a larger row group is a partition of its own."""


def file_tables(
    paths: Sequence[str], labels: Iterable[str], dropped: Iterable[str], kept: Kept = NOTHING_KEPT
) -> list[Partitions]:
    """The tables in some files, in their order. `labels` are columns to read as labels rather than numbers.

    Files that follow each other are one table where they are of one form: a table for each of thousands would be slow.
    """
    with needed("Reading tables needs pandas and pyarrow.", "Install them with `pip install 'protodask[tabular]'`."):
        import pandas  # noqa: F401 - asked for before any work is done
        import pyarrow  # noqa: F401
    known, left_out = frozenset((*labels, *kept.texts)), frozenset(dropped)
    opened = [_opened(path) for path in paths]
    tables: list[Partitions] = []
    for _, together in itertools.groupby(enumerate(opened), lambda pair: pair[1].form or pair[0]):
        alike = [file for _, file in together]
        texts = [file for file in alike if isinstance(file, TextParts)]
        stored = [file for file in alike if isinstance(file, ParquetParts)]
        tables.append(csv_table(texts, known, left_out, kept) if texts else parquet_table(stored, left_out, kept))
    return tables


def tables_by_file(
    paths: Sequence[str], labels: Iterable[str], dropped: Iterable[str], expected: Sequence[str] = ()
) -> Partitions:
    """The table in some files, one after the other.

    Where it is known which columns are `expected`, others are left out with a warning, whichever files they are in;
    else all files must have the same ones.
    """
    known, left_out = frozenset(labels), frozenset(dropped)
    joined = join_tables(file_tables(paths, known, left_out))
    if not expected:
        check_same_columns(joined)
    elif besides := columns_besides(names_by_table(joined), expected, ()):
        return tables_by_file(paths, known, left_out.union(besides), expected)
    return joined


def _opened(path: str) -> TextParts | ParquetParts:
    if is_parquet_path(path):
        return parquet_parts(path, PARQUET_PARTITION_BYTES)
    return text_parts(path, CSV_PARTITION_BYTES)
