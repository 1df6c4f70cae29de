"""Predictions in a store, or any Parquet files with probabilities, as rows to decide on.

Nobody vouches for such files: what is no probability, or missing, is refused when it is read.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from protodask.data.arrays.row_arrays import RowArray, zarr_rows
from protodask.data.arrays.rows import ReadByRanges, join_rows, spans
from protodask.data.format.schema import Label
from protodask.data.places.locations import file_system, is_url, locate, storage_errors
from protodask.data.places.records import Fields, recognize, unseal
from protodask.data.places.storage import find_group, read_marker, read_stable
from protodask.data.tables.kept_columns import KEPT, check_kept_there, different_types, kept_type, pack
from protodask.data.tables.source_files import (
    PARQUET_ENDINGS,
    SourceFile,
    bytes_digest,
    check_present,
    find_files,
    is_table_path,
    source_files,
)
from protodask.decisions.decision_store import is_own_column
from protodask.decisions.group_tables import GROUP, PROBABILITY
from protodask.decisions.probabilities import check_any
from protodask.engine import Arrays, Layout, choose_block_rows
from protodask.errors import FormatError, InputError, StorageError, named_twice, needed, refusing, some
from protodask.places import mask
from protodask.prototypes.prediction import KEPT_COLUMNS, PREDICTIONS

ROW_BYTES = 64
"""About what a row takes while it is worked on: its blocks are chosen by that."""

REPEAT = "Repeat once nobody writes to it."


@dataclass(frozen=True)
class PredictedRows(ReadByRanges):
    """A source of rows with probabilities; small to pickle."""

    resident: ClassVar = False
    reader: ZarrReader | ParquetReader
    """Reads ranges of rows: "probability" (rows,) or (rows, K), and "group" (rows,) if there are groups."""
    layout: Layout
    names: tuple[str, ...]
    """What the columns of probabilities are of: classes, or the names of columns."""
    key: str
    kept: tuple[str, ...] = ()
    """Further columns of Parquet files, to be handed on."""

    @property
    def n_rows(self) -> int:
        return self.layout.n_rows

    def rows(self, start: int, stop: int) -> Arrays:
        """Any range of rows."""
        return self.reader.rows(start, stop)

    def with_kept(self) -> PredictedRows:
        """The same rows, whose blocks have the columns to be handed on, too."""
        if not self.kept:
            return self
        assert isinstance(self.reader, ParquetReader)
        return replace(self, reader=replace(self.reader, kept=self.kept), key=f"{self.key}/{self.kept}")


def open_rows(
    path: str | os.PathLike[str],
    *,
    label: str | None = None,
    columns: Sequence[str] = (),
    group: str | None = None,
    every: bool = False,
    keep: Sequence[str] = (),
) -> PredictedRows:
    """Open predictions or Parquet files: the probability of one class, or with `every` those of all.

    `label` names the class (of two, the second by default); `columns` names columns of Parquet files in place of
    those that predictions have; `group` the array or column of groups; `keep` columns of Parquet files that are handed
    on, by default those that the predictions kept.
    """
    where = locate(path)
    check_present(where)
    if not _is_zarr(where):
        return _open_parquet(where, label, tuple(columns), group, every, tuple(keep))
    if keep:
        raise InputError(
            "settings-conflict",
            f"Columns are to be kept, and {mask(where)} is no Parquet files.",
            "Predict into a place that ends in .parquet, or keep none.",
        )
    if columns:
        raise InputError(
            "settings-conflict",
            "Columns of probabilities are named, and the predictions are no Parquet files.",
            "Leave `probability` out; `label` names a class.",
        )
    return read_stable(where, lambda: _open_zarr(where, label, group, every))


def _is_zarr(where: str) -> bool:
    if is_table_path(where):
        return False
    return is_url(where) or os.path.exists(os.path.join(where, "zarr.json")) or where.endswith(".zarr")


@dataclass(frozen=True)
class ZarrReader:
    """The arrays of predictions in a Zarr store."""

    path: str = field(repr=False)  # tasks are logged with their arguments, and a URL may hold a secret
    identity: str
    probability: RowArray
    position: int | None
    """Of the class; None for all."""
    group: RowArray | None

    def rows(self, start: int, stop: int) -> Arrays:
        values = self.probability.slice(start, stop)
        if np.isnan(values).any():  # what a missing chunk reads as
            raise self._damaged(PROBABILITY, start, stop)
        chosen = values if self.position is None else np.ascontiguousarray(values[:, self.position])
        found: dict[str, NDArray[Any]] = {PROBABILITY: chosen}
        if self.group is not None:
            found[GROUP] = self.group.slice(start, stop)
            if found[GROUP].min() < 0:
                raise self._damaged(GROUP, start, stop)
        return found

    def _damaged(self, name: str, start: int, stop: int) -> FormatError:
        return FormatError(
            "damaged",
            f"The array {name!r} of the predictions {mask(self.path)} is damaged or incomplete in rows {start} to "
            f"{stop}.",
            PREDICTIONS.remedy,
        )

    def check_unchanged(self) -> None:
        """Refuse what was read if it is of other rows by now than when it was opened."""
        attributes = find_group(self.path)[1]
        if not isinstance(attributes, dict) or attributes.get("identity") != self.identity:
            raise StorageError(
                "changed-meanwhile", f"The predictions {mask(self.path)} were replaced while they were read.", REPEAT
            )


def _open_zarr(where: str, label: str | None, group: str | None, every: bool) -> PredictedRows:
    place, attributes = find_group(where)
    if attributes is None or not isinstance(attributes, dict) or attributes.get("format") != PREDICTIONS.format:
        raise InputError(
            "wrong-kind",
            f"{mask(where)} is neither predictions nor Parquet files.",
            "Make predictions with `predict()`, or give Parquet files with a column of probabilities.",
        )
    fields, classes = _record(attributes, where)
    rows = fields.integer("rows", 0)
    probability = zarr_rows(place, PROBABILITY)
    if probability.shape != (rows, len(classes)) or probability.dtype.kind != "f":
        fields.damaged(f"the array {PROBABILITY!r} has the shape {probability.shape} and type {probability.dtype}")
    groups = None
    if group is not None:
        groups = _open_group(place, where, group, rows)
    position = None if every else _position(classes, label)
    reader = ZarrReader(where, fields.text("identity"), probability, position, groups)
    names = tuple(map(str, classes)) if position is None else (str(classes[position]),)
    return _source(reader, rows, names, probability.token, len(classes))


def _open_group(place: str, where: str, name: str, rows: int) -> RowArray:
    try:
        opened = zarr_rows(place, name)
    except StorageError:
        opened = None
    if opened is None or opened.shape != (rows,) or opened.dtype.kind not in "iu":
        raise InputError(
            "column-missing",
            f"The predictions {mask(where)} have no array {name!r} of groups.",
            f"Predict for a dataset that was ingested with `group`: its predictions have one, {GROUP!r}.",
        )
    return opened


def _record(attributes: object, where: str) -> tuple[Fields, tuple[Label, ...]]:
    fields = unseal(recognize(attributes, PREDICTIONS, mask(where)))
    return fields, fields.labels("classes")


def _position(names: Sequence[object], label: str | None) -> int:
    """Which column of probabilities is meant."""
    texts = [str(name) for name in names]
    if label is None:
        if len(texts) == 2:
            return 1
        raise InputError(
            "setting-missing",
            f"There are {len(texts)} classes: {some(texts)}.",
            "Say with `label` which of them is to be told from the others, or decide on each row with `per_row`.",
        )
    if str(label) not in texts:
        raise InputError("unknown-name", f"There is no class {label!r}.", f"Choose one of {some(texts)}.")
    return texts.index(str(label))


def _source(
    reader: ZarrReader | ParquetReader, rows: int, names: tuple[str, ...], key: str, width: int
) -> PredictedRows:
    check_any(rows)
    row_bytes = max(ROW_BYTES, 16 * width)  # all classes are read to have one
    return PredictedRows(reader, Layout(rows, choose_block_rows(rows, row_bytes)), names, key)


@dataclass(frozen=True)
class ParquetReader:
    """Columns of Parquet files, read by their row groups."""

    place: str = field(repr=False)
    """Where they were found."""
    files: tuple[str, ...] = field(repr=False)
    edges: tuple[int, ...]
    """First row of each row group, of all files in their order, and the number of all rows."""
    groups: tuple[tuple[int, int], ...]
    """File and number within it of each row group."""
    columns: tuple[str, ...]
    single: bool
    group: str | None
    key: str
    """Another one for other content: what is remembered of the files is told apart by it."""
    kept: tuple[str, ...] = ()

    def rows(self, start: int, stop: int) -> Arrays:
        parts: list[Arrays] = []
        tables: list[Any] = []
        for place, low, high in spans(self.edges, start, stop):
            first, last = self.edges[place : place + 2]
            whole = (low, high) == (first, last)
            arrays, table = (_read_row_group if whole else _read_recent_row_group)(self, *self.groups[place])
            if len(arrays[PROBABILITY]) != last - first:
                raise self._changed()
            if not whole:  # copies: who holds some of its rows does not hold all of a row group
                arrays = {name: values[low - first : high - first].copy() for name, values in arrays.items()}
            parts.append(arrays)
            tables.append(table.slice(low - first, high - low))
        found = join_rows(parts)
        return {**found, KEPT: pack(tables)} if self.kept else found

    def check_unchanged(self) -> None:
        """Refuse what was read if it is of other rows by now than when it was opened."""
        now = _version(file for file in source_files(self.place) if file.path in self.files)
        if now and now != self.key:
            raise self._changed()

    def _changed(self) -> StorageError:
        return StorageError("changed-meanwhile", "The Parquet files changed while they were read.", REPEAT)


def _version(files: Iterable[SourceFile]) -> str:
    """Another one whenever one of the files is changed or replaced; nothing where a store does not tell."""
    versions = [file.version for file in files]
    return bytes_digest("\n".join(versions).encode()) if all(versions) else ""


def _read_row_group(reader: ParquetReader, file: int, number: int) -> tuple[dict[str, NDArray[Any]], Any]:
    """The arrays of a row group, and the Arrow table of what is handed on."""
    import pyarrow
    import pyarrow.parquet

    path = reader.files[file]
    names = list(dict.fromkeys((*reader.columns, *([reader.group] if reader.group is not None else []), *reader.kept)))
    with storage_errors(path, "reading"):
        try:
            table = _parquet_file(path).read_row_group(number, columns=names)
        except (pyarrow.ArrowException, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise  # of the system, not of what is in the file
            raise FormatError("damaged", f"{mask(path)} could not be read ({error}).", "Write it again.") from error
    values = np.stack([_numbers(table.column(name), name) for name in reader.columns], axis=1)
    found: dict[str, NDArray[Any]] = {PROBABILITY: values[:, 0] if reader.single else values}
    if reader.group is not None:
        found[GROUP] = _groups(table.column(reader.group), reader.group)
    kept = table.select(reader.kept)
    return found, kept.cast(pyarrow.schema([(own.name, kept_type(own.type)) for own in kept.schema]))


# Of a row group longer than a block, the next blocks need the other rows.
_read_recent_row_group = lru_cache(maxsize=4)(_read_row_group)


def _parquet_file(path: str) -> Any:
    import pyarrow.parquet

    if not is_url(path):
        return pyarrow.parquet.ParquetFile(path, page_checksum_verification=True)
    files, name = file_system(path)
    return pyarrow.parquet.ParquetFile(name, filesystem=files, page_checksum_verification=True)


def _numbers(column: Any, name: str) -> NDArray[np.float64]:
    import pyarrow

    kind = column.type
    if not (pyarrow.types.is_floating(kind) or pyarrow.types.is_integer(kind)):
        raise InputError("wrong-type", f"The column {name!r} holds {kind}.", "Name a column of numbers from 0 to 1.")
    return np.asarray(column.to_numpy(), dtype=np.float64)


def _groups(column: Any, name: str) -> NDArray[Any]:
    import pyarrow

    if pyarrow.types.is_floating(column.type):  # where NaN is missing, and -0.0 is 0.0
        column = pyarrow.array(column.to_numpy() + 0.0, from_pandas=True)
    if column.null_count:
        raise InputError(
            "bad-value",
            f"The column {name!r} has a missing value.",
            "Fill in or remove such rows first; a row of its own needs a group of its own.",
        )
    if pyarrow.types.is_integer(column.type):
        return np.asarray(column.to_numpy())
    seen = f"The column {name!r} holds {column.type}, of which not all is text"
    with refusing(pyarrow.ArrowException, "wrong-type", seen, "Name a column of whole numbers or text."):
        return np.array(column.cast(pyarrow.string()).to_pylist(), dtype=object)


def _open_parquet(
    where: str, label: str | None, columns: tuple[str, ...], group: str | None, every: bool, keep: tuple[str, ...]
) -> PredictedRows:
    find_files(where)  # that there are any
    listed = source_files(where)
    files = tuple(file.path for file in listed)
    if others := [file for file in files if not file.lower().endswith(PARQUET_ENDINGS)]:
        raise InputError(
            "wrong-kind", f"{mask(others[0])} is no Parquet file.", "Give predictions, or Parquet files only."
        )
    edges, groups, schemas = _row_groups(files)
    present, record = [name for name, _ in schemas[0]], read_marker(where)
    chosen, names = _parquet_columns(where, record, present, label, columns, every)
    kept = keep or tuple(name for name in _kept_by(record, group) if name in present)
    check_kept_there(kept, present)
    twice = named_twice(present)
    for name in (*chosen, *([group] if group is not None else []), *kept):
        if name not in present:
            raise InputError("column-missing", f"There is no column {name!r}.", f"The columns are {some(present)}.")
        if name in twice:
            raise InputError(
                "named-twice", f"There are several columns {name!r}.", "Give each column a name of its own."
            )
    for file, own in zip(files, schemas, strict=True):
        _check_alike(file, schemas[0], own, group, kept)
    version = _version(listed) or os.urandom(8).hex()
    reader = ParquetReader(where, files, tuple(edges), tuple(groups), chosen, not every, group, version)
    key = f"parquet/{version}/{chosen}/{group}/{every}"
    return replace(_source(reader, edges[-1], names, key, len(chosen)), kept=kept)


def _kept_by(record: object, group: str | None) -> tuple[str, ...]:
    """The columns that predictions of such a record kept, without those that decisions have of their own."""
    kept = record.get(KEPT_COLUMNS) if isinstance(record, dict) else None
    if not isinstance(kept, list):
        return ()
    return tuple(name for name in kept if isinstance(name, str) and name != group and not is_own_column(name))


Types = list[tuple[str, Any]]
"""Names and Arrow types of the columns of a file."""


def _row_groups(files: Sequence[str]) -> tuple[list[int], list[tuple[int, int]], list[Types]]:
    """The edges of the row groups of files, the file and number of each, and the columns of the files."""
    with needed(
        "Reading Parquet needs pyarrow, which is not installed.",
        "Install protodask[tabular], or write the predictions into a Zarr store.",
    ):
        import pyarrow
    edges, groups = [0], list[tuple[int, int]]()
    schemas: list[Types] = []
    unreadable = (pyarrow.ArrowException, UnicodeDecodeError)
    for number, file in enumerate(files):
        seen, remedy = f"{mask(file)} is no readable Parquet file", "Write it again."
        with storage_errors(file, "reading"), refusing(unreadable, "wrong-kind", seen, remedy, FormatError):
            opened = _parquet_file(file)
            schemas.append([(field.name, field.type) for field in opened.schema_arrow])
        for row_group in range(opened.num_row_groups):
            edges.append(edges[-1] + opened.metadata.row_group(row_group).num_rows)
            groups.append((number, row_group))
    return edges, groups, schemas


def _check_alike(file: str, first: Types, own: Types, group: str | None, kept: Sequence[str]) -> None:
    """Refuse a file that lacks columns of the first one, or whose groups or columns to keep are of other types.

    Groups that are whole numbers here and text there would not be found to be one.
    """
    from pyarrow.types import is_integer, is_uint64

    if missing := {name for name, _ in first} - {name for name, _ in own}:
        raise InputError(
            "column-missing",
            f"{mask(file)} has no column {min(missing)!r}, which others have.",
            "Give files of one table.",
        )
    for name in (*([group] if group is not None else []), *kept):
        theirs, ours = (next(kind for column, kind in types if column == name) for types in (first, own))
        if name in kept and kept_type(theirs) != kept_type(ours):
            raise different_types(name, theirs, ours)
        if (is_integer(theirs), is_uint64(theirs)) != (is_integer(ours), is_uint64(ours)):
            raise InputError(
                "wrong-type",
                f"The column {group!r} holds {ours} in {mask(file)}, and {theirs} in others.",
                "Write the files with one type.",
            )


def _parquet_columns(
    where: str, record: object, present: Sequence[str], label: str | None, columns: tuple[str, ...], every: bool
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The columns of probabilities that are meant, and what they are of."""
    if columns:
        if label is not None:
            raise InputError(
                "settings-conflict", "Both a class and columns of probabilities are named.", "Name one of them."
            )
        if len(columns) > 1 and not every:
            raise InputError(
                "settings-conflict",
                f"{len(columns)} columns of probabilities are named.",
                "Name one, or decide on each row with `per_row`.",
            )
        if named_twice(columns):
            raise InputError("named-twice", "A column of probabilities is named twice.", "Name each column once.")
        return columns, columns
    if not isinstance(record, dict) or record.get("format") != PREDICTIONS.format:
        raise InputError(
            "setting-missing",
            f"{mask(where)} does not say which of its columns has the probabilities.",
            f"Name it with `probability`; the columns are {some(present)}.",
        )
    _, classes = _record(record, where)
    every_name = tuple(f"{PROBABILITY}_{name}" for name in classes)
    if every:
        return every_name, tuple(map(str, classes))
    position = _position(classes, label)
    return every_name[position : position + 1], (str(classes[position]),)
