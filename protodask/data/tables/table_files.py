"""Tables of what was found of rows, written block by block: a folder of Parquet files, with a record beside them, or
one CSV file.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protodask.data.arrays.array_store import ArrayStore, store_key
from protodask.data.arrays.plain_arrays import ArraySpec
from protodask.data.format.schema import Label
from protodask.data.places.bounded import PIECE_BYTES
from protodask.data.places.local_files import place_aside, remove
from protodask.data.places.locations import gone, is_url, storage_errors
from protodask.data.places.locks import writing_alone
from protodask.data.places.records import Kind, RecordKind
from protodask.data.places.storage import check_free, published, read_marker, write_marker
from protodask.data.places.whole_files import check_file_free, write_whole
from protodask.engine import Arrays, Layout, Sink
from protodask.errors import InputError, needed
from protodask.places import mask

OTHER_ENDINGS = (".txt", ".tsv", ".xlsx", ".xls", ".json", ".feather", ".arrow", ".pq", ".parq", ".gz", ".zip")
"""Of files of other kinds: what is written at such a place is no such file."""

Columns = Callable[[int, Arrays], Mapping[str, Any]]
"""Makes the columns of a table of what is found of a block: of the number of its first row, and its arrays."""


def is_parquet(place: str) -> bool:
    """Whether what is written there becomes such a folder."""
    return place.endswith(".parquet")


def is_csv(place: str) -> bool:
    """Whether what is written there becomes one CSV file."""
    return place.endswith(".csv")


def is_table(place: str) -> bool:
    """Whether what is written there has columns of any type: Parquet or CSV."""
    return is_parquet(place) or is_csv(place)


def check_parquet(where: str, what: str) -> None:
    """Refuse to write `what` there as Parquet where that cannot work, before any work is done."""
    if is_url(where):
        raise InputError(
            "not-local",
            f"{what} as Parquet are written to local folders only.",
            "Write a Zarr store there, or use a local path.",
        )
    require_arrow("Parquet")


def require_arrow(form: str) -> None:
    """Refuse to write such tables without what writes them, before any work is done."""
    with needed(
        f"Writing {form} needs pyarrow, which is not installed.",
        "Install protodask[tabular], or write a Zarr store by another suffix.",
    ):
        import pyarrow.parquet  # noqa: F401


def check_rows_free(where: str, overwrite: bool, kind: Kind) -> None:
    """Refuse a place that is taken for what `published_rows` writes, unless it may be overwritten."""
    if is_csv(where):
        check_file_free(where, overwrite)
    else:
        check_free(where, overwrite, kind)


@contextmanager
def published_rows(
    where: str,
    overwrite: bool,
    kind: RecordKind,
    record: Mapping[str, Any],
    layout: Layout,
    arrays: Sequence[ArraySpec],
    columns: Columns,
    finish: Callable[[str], None] | None = None,
) -> Iterator[Sink]:
    """Hand out a sink for what is found of each block, which is at `where` once the body is done, whole or not at all.

    By the ending of the place it is a table with these `columns`, in a folder of Parquet files or in one CSV file, or
    else a Zarr group with these `arrays`. A folder and a group have the `record`, with an `identity` of its own, and
    what `finish` puts there after the blocks.
    """
    sealed = kind.sealed({**record, "identity": store_key()})
    if is_csv(where):
        with _csv_file(where, overwrite, layout.n_blocks, columns) as lines:
            yield lines
        return
    if is_parquet(where):
        check_parquet(where, kind.name.capitalize())
    elif where.lower().endswith(OTHER_ENDINGS):
        warnings.warn(
            f"{mask(where)} becomes a folder of a Zarr store; tables are places that end in .parquet or .csv.",
            stacklevel=2,
        )
    with published(where, overwrite, kind) as place:
        if is_parquet(where):
            create_folder(place, sealed)
            yield FolderSink(place, sealed["identity"], columns)
        else:
            store = ArrayStore(place, layout, tuple(arrays), store_key())
            store.create(sealed)
            yield store
        if finish is not None:
            finish(place)


@dataclass(frozen=True)
class FolderSink:
    """Writes what is found of each block as a Parquet file of a folder."""

    folder: str
    identity: str
    """Part of the names of files: who lists the folder of one writing finds none of the files of another."""
    columns: Columns

    def write(self, number: int, start: int, arrays: Arrays) -> None:
        with storage_errors(self.folder, "writing"):
            if read_marker(self.folder) is None:
                raise gone(self.folder)
        path = os.path.join(self.folder, f"part-{number:06d}-{self.identity}.parquet")
        write_table(path, self.columns(start, arrays))


def create_folder(place: str, record: Mapping[str, Any]) -> None:
    """Make the folder, with its record."""
    with storage_errors(place, "writing"):
        os.makedirs(place)
        write_marker(place, record)


def write_table(path: str, columns: Mapping[str, Any]) -> None:
    """Write one file."""
    import pyarrow
    import pyarrow.parquet

    with storage_errors(path, "writing"):
        pyarrow.parquet.write_table(pyarrow.table(dict(columns)), path, write_page_checksum=True)


def label_column(labels: Sequence[Label], codes: NDArray[np.integer]) -> Any:
    """A column of the labels that codes stand for: of one type, text as soon as no other has them all; null for -1."""
    import pyarrow

    numbers = [label for label in labels if type(label) is int]
    large = max(numbers, default=0) >= 2**63  # what 64 bits hold without a sign alone
    mixed = len({type(label) for label in labels}) > 1 or (large and min(numbers) < 0)
    known = [str(label) for label in labels] if mixed else list(labels)
    column = pyarrow.array(known, pyarrow.uint64() if large and not mixed else None)
    none = codes < 0
    return column.take(pyarrow.array(codes, mask=none if none.any() else None))


@dataclass(frozen=True)
class _LinesSink:
    """Writes the lines of each block as a file; those of the first begin with the names of the columns."""

    folder: str
    columns: Columns

    def path(self, number: int) -> str:
        return os.path.join(self.folder, f"{number:08d}")

    def write(self, number: int, start: int, arrays: Arrays) -> None:
        import pyarrow
        from pyarrow import csv

        table = pyarrow.table(dict(self.columns(start, arrays)))
        for field in table.schema:
            if pyarrow.types.is_nested(field.type) or pyarrow.types.is_binary(field.type):
                raise InputError(
                    "unsupported",
                    f"Column {field.name!r} holds values of type {field.type}, which CSV has no form for.",
                    "Write Parquet: give a place that ends in .parquet, or do not keep the column.",
                )
        with storage_errors(self.folder, "writing"):
            # A task that was lost and repeated may still be writing when the parts are put together.
            aside = place_aside(self.path(number))
            csv.write_csv(table, aside, csv.WriteOptions(include_header=number == 0))
            os.replace(aside, self.path(number))


@contextmanager
def _csv_file(where: str, overwrite: bool, n_blocks: int, columns: Columns) -> Iterator[_LinesSink]:
    check_file_free(where, overwrite)
    require_arrow("CSV")
    with writing_alone(where) as place:
        lines = _LinesSink(place_aside(place), columns)
        os.mkdir(lines.folder)
        try:
            yield lines
            check_file_free(where, overwrite)
            write_whole(place, place_aside(place), _joined(lines, n_blocks))
        finally:
            remove(lines.folder)


def _joined(lines: _LinesSink, n_blocks: int) -> Iterator[bytes]:
    for number in range(n_blocks):
        with open(lines.path(number), "rb") as file:
            while piece := file.read(PIECE_BYTES):
                yield piece
