"""Tables from Parquet files, in runs of row groups.

pandas and pyarrow are optional and imported where they are used.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import unquote

from protodask.data.tables.encoding import Table
from protodask.data.tables.frames import exact_type, pandas_metadata
from protodask.data.tables.ingest_frames import partition_columns, text_columns
from protodask.data.tables.kept_columns import Kept
from protodask.data.tables.source_files import changed_meanwhile, open_file, table_errors
from protodask.data.tables.tables import Partitions
from protodask.errors import InputError, named_twice
from protodask.places import mask

MISSING_FOLDER = "__HIVE_DEFAULT_PARTITION__"
"""The value of a folder of rows whose value is missing."""

WHOLE_NUMBER = re.compile(r"-?[0-9]{1,18}")


@dataclass(frozen=True)
class ParquetParts:
    """A file, and what its footer says."""

    path: str = field(repr=False)  # a URL may hold a secret
    schema: Any
    """Of Arrow, without what pandas had for an index."""
    groups: tuple[tuple[int, ...], ...]
    """Row groups of each part; one part of none where the file has none."""
    rows: int

    @property
    def form(self) -> object:
        """What files have in common that are read as one table; None of one without rows, by itself."""
        columns = [(column.name, column.type) for column in self.schema]
        return (columns, list(folder_columns(self.path))) if self.rows else None


def parquet_parts(path: str, part_bytes: int) -> ParquetParts:
    """A file whose row groups are joined to parts of up to so many bytes; a larger group is a part of its own."""
    from pyarrow.parquet import ParquetFile

    with table_errors(path), open_file(path) as file, ParquetFile(file) as opened:
        footer, columns = opened.metadata, stored_columns(opened.schema_arrow, path)
    groups: list[tuple[int, ...]] = []
    room = 0
    for number in range(footer.num_row_groups):
        size = footer.row_group(number).total_byte_size
        if groups and size <= room:
            groups[-1] += (number,)
        else:
            groups.append((number,))
            room = part_bytes
        room -= size
    return ParquetParts(path, columns, tuple(groups) or ((),), footer.num_rows)


def stored_columns(schema: Any, path: str) -> Any:
    """The columns of a file, but for those that pandas had for an index."""
    import pyarrow

    described = schema.pandas_metadata or {}
    index = [name for name in described.get("index_columns", ()) if isinstance(name, str)]
    columns = [column for column in schema if column.name not in index]
    if twice := named_twice(column.name for column in columns):
        raise InputError("named-twice", f"{mask(path)} has several columns called {twice[0]!r}.", "Rename them.")
    return pyarrow.schema(columns, pandas_metadata(schema.metadata, index_columns=[]))


def folder_columns(path: str) -> dict[str, str | int | None]:
    """Columns of one value in a file, by the folders that it lies in: "year=2024"."""
    pairs = [folder.partition("=") for folder in path.split("/")[:-1]]
    return {unquote(name): _folder_value(unquote(value)) for name, equals, value in pairs if name and equals}


def _folder_value(text: str) -> str | int | None:
    if text == MISSING_FOLDER:
        return None
    return int(text) if WHOLE_NUMBER.fullmatch(text) else text


def parquet_table(files: Sequence[ParquetParts], dropped: frozenset[str], kept: Kept) -> Partitions:
    """The table in files of one form, in their order."""
    names, text = parquet_names(files[0].schema, files[0].path, dropped, kept)
    pieces = [(file.path, file.rows, groups) for file in files for groups in file.groups]
    return Partitions(
        names,
        text,
        pieces,
        partial(_read_groups, names, kept),
        dropped.intersection((*files[0].schema.names, *folder_columns(files[0].path))),
        tuple(mask(path) for path, _, _ in pieces),
        tuple(len(file.groups) for file in files),
    )


def _read_groups(names: Sequence[str], kept: Kept, piece: tuple[str, int, Sequence[int]]) -> Table:
    """Row groups of a file, of which it is known how many rows all of it has."""
    from pyarrow.parquet import ParquetFile

    path, rows, groups = piece
    with table_errors(path), open_file(path) as file, ParquetFile(file) as opened:
        if opened.metadata.num_rows != rows:
            raise changed_meanwhile(path)
        return parquet_columns(opened, path, groups, names, kept)


def parquet_names(
    schema: Any, path: str, dropped: frozenset[str], kept: Kept
) -> tuple[tuple[str, ...], frozenset[str]]:
    """The columns of a file with such stored ones, and which of them are text; one without any value is not."""
    import pyarrow

    names = tuple(name for name in dict.fromkeys((*schema.names, *folder_columns(path))) if name not in dropped)
    with table_errors(path):
        frame = _frame(schema.empty_table().select([name for name in names if name in schema.names]), path, kept)
    empty = {column.name for column in schema if pyarrow.types.is_null(column.type)}
    return names, text_columns(frame[list(names)]) - empty


def parquet_columns(opened: Any, path: str, groups: Sequence[int], names: Sequence[str], kept: Kept) -> Table:
    """Columns of some row groups of a file that pyarrow has open."""
    stored = [name for name in dict.fromkeys((*names, *kept.names)) if name in opened.schema_arrow.names]
    if groups:  # several threads read at a time already
        table = opened.read_row_groups(list(groups), columns=stored, use_threads=False)
    else:
        table = opened.schema_arrow.empty_table().select(stored)
    return partition_columns(_frame(table, path, kept), names, kept, untyped=False)


def _frame(table: Any, path: str, kept: Kept) -> Any:
    """An Arrow table as a pandas frame, with the columns of the file's folders."""
    import pandas
    import pyarrow

    def exact(kind: Any) -> Any:
        # As pandas has them, integers with missing values are floats, times lose their types, and decimals are objects.
        # Categories that are times would be whole numbers so.
        times = pyarrow.types.is_dictionary(kind) and pyarrow.types.is_temporal(kind.value_type)
        arrow = (kept.names and not times) or pyarrow.types.is_decimal(kind)
        return pandas.ArrowDtype(kind) if arrow else exact_type(kind)

    plain = table.replace_schema_metadata(pandas_metadata(table.schema.metadata, index_columns=[]))
    described = (plain.schema.pandas_metadata or {}).get("columns", ())
    # Of categories Parquet itself keeps text alone as such.
    categories = {column["field_name"] for column in described if column["pandas_type"] == "categorical"}
    for place, name in enumerate(table.column_names):
        if name in categories and name not in kept.names:
            plain = plain.set_column(place, name, plain.column(place).dictionary_encode())
    frame = plain.to_pandas(types_mapper=exact, use_threads=False)
    frame.columns = table.column_names  # which are text, also where they were no text
    beside = {name: value for name, value in folder_columns(path).items() if name not in frame.columns}
    return frame.assign(**{name: pandas.Series(value, frame.index, dtype=object) for name, value in beside.items()})
