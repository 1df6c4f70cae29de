"""Tables from CSV and Parquet files and from data frames, through dask.dataframe; partitions are read as NumPy arrays.

pandas, pyarrow and dask.dataframe are optional and imported where they are used.
"""

from __future__ import annotations

import io
import math
import os
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from protodask.data.arrays.row_arrays import PARTITION_ROWS, even_edges, refuse_futures
from protodask.data.tables.encoding import BOOLEANS, KeptTable, Table, Values, columns_besides
from protodask.data.tables.kept_columns import NOTHING_KEPT, Kept, kept_of_frame
from protodask.data.tables.packed_text import PackedText, open_text, packed_text, text_errors
from protodask.data.tables.source_files import PARQUET_ENDINGS, SourceFile, natural_order, open_file
from protodask.data.tables.tables import Partitions, check_same_columns, join_tables, names_by_table
from protodask.engine.graph import compute_key, graph_of
from protodask.errors import InputError, ProtodaskError, StorageError
from protodask.places import mask

PACKED = (".gz", ".bz2", ".xz")

CSV_PARTITION_BYTES = 8 * 2**20
"""Text of a partition: small beside a block, because a block parses every partition it touches."""

PARQUET_PARTITION_BYTES = "32MiB"
"""Row groups are joined up to this size; a larger row group is a partition of its own."""


def dask_frames() -> Any:
    """The module dask.dataframe."""
    try:
        import dask.dataframe
    except ImportError as error:
        raise InputError(
            "package-missing",
            f"Reading tables needs pandas, pyarrow and dask.dataframe ({error}).",
            "Install them with `pip install 'protodask[tabular]'`.",
        ) from error
    return dask.dataframe


def file_tables(
    paths: Sequence[str], labels: Iterable[str], dropped: Iterable[str], kept: Kept = NOTHING_KEPT
) -> list[Partitions]:
    """The tables in some files, in their order. `labels` are columns to read as labels rather than numbers."""
    known, left_out = frozenset((*labels, *kept.texts)), frozenset(dropped)
    return [_file_table(together, known, left_out, kept) for together in _alike(paths)]


def tables_by_file(
    files: Sequence[SourceFile], labels: Iterable[str], dropped: Iterable[str], expected: Sequence[str] = ()
) -> tuple[Partitions, tuple[int, ...]]:
    """The table in some files, one after the other, and how many partitions each of them has.

    Where it is known which columns are `expected`, others are left out with a warning, whichever files they are in;
    else all files must have the same ones. Files of one partition are read together where that is the same: a table for
    each of thousands would be slow.
    """
    known, left_out = frozenset(labels), frozenset(dropped)
    tables: list[Partitions] = []
    counts: list[int] = []
    large = {file.path for file in files if file.size > CSV_PARTITION_BYTES}
    for paths in _alike([file.path for file in files], large):
        found: list[Partitions] = [_file_table(paths, known, left_out)]
        if len(paths) > 1 and found[0].n_partitions != len(paths):
            found = [_file_table([path], known, left_out) for path in paths]
        tables += found
        counts += [1] * len(paths) if len(found) == 1 < len(paths) else [table.n_partitions for table in found]
    joined = join_tables(tables)
    if not expected:
        check_same_columns(joined)
    elif besides := columns_besides(names_by_table(joined), expected, ()):
        return tables_by_file(files, known, left_out.union(besides), expected)
    return joined, tuple(counts)


def _file_table(
    paths: Sequence[str], labels: frozenset[str], dropped: frozenset[str], kept: Kept = NOTHING_KEPT
) -> Partitions:
    parquet = _is_parquet(paths[0])
    table = _parquet_table(paths, dropped, kept) if parquet else _csv_table(paths, labels, dropped, kept)
    if not isinstance(table, FrameTable):
        return table
    named = [mask(path) for path in paths]
    each = len(named) == table.n_partitions
    return replace(table, places=tuple(named) if each or len(named) == 1 else (f"{named[0]} to {named[-1]}",))


def _is_parquet(path: str) -> bool:
    return path.lower().endswith(PARQUET_ENDINGS)


def _alike(paths: Sequence[str], alone: Container[str] = ()) -> list[list[str]]:
    """Runs of files that can be read as one table, those with other columns, or columns of other types, by themselves.

    dask.dataframe takes the columns of the first file for all of them: those of others would be misread without a word.
    """
    runs: list[list[str]] = []
    before: object = None
    for path in paths:
        form = (_schema if _is_parquet(path) else _header)(path)
        form = None if path in alone else form
        # Of Parquet files dask.dataframe makes an order of its own.
        behind = not _is_parquet(path) or (bool(runs) and natural_order(runs[-1][-1]) < natural_order(path))
        if form is not None and form == before and behind:
            runs[-1].append(path)
        else:
            runs.append([path])
        before = form
    return runs


def _header(path: str) -> object:
    """What CSV files that are read together have in common; None if there is nothing in it but the header, which tells
    nothing of the types of the columns.
    """
    line, more = _first_line(path)
    ending = next((ending for ending in (*PACKED, ".tsv") if path.lower().endswith(ending)), "")
    return (line, ending, _protocol(path)) if more else None


def _schema(path: str) -> object:
    """What Parquet files that are read together have in common; None if there are no rows in it."""
    from pyarrow.lib import ArrowException
    from pyarrow.parquet import ParquetFile

    try:
        with open_file(path) as file, ParquetFile(file) as opened:
            columns = tuple((field.name, field.type) for field in opened.schema_arrow)
            return (columns, os.path.dirname(path)) if opened.metadata.num_rows else None
    except (OSError, ValueError, ArrowException):
        return None  # who reads it says what is wrong


@dataclass(frozen=True)
class FrameTable:
    """The partitions of a dask data frame; small to pickle where the frame names files."""

    frame: Any
    names: tuple[str, ...]
    text: frozenset[str]
    untyped: bool = False
    as_text: Any = None
    """The same rows with every column as text, for when a value is not what its column was taken for."""
    flags: frozenset[str] = frozenset()
    """Columns of truth values, where these may come as text."""
    kept: Kept = NOTHING_KEPT
    resident: bool = False
    key: str = field(default_factory=lambda: uuid4().hex)
    places: tuple[str, ...] = ()
    """The files of all partitions, or the file of each."""

    @property
    def n_partitions(self) -> int:
        return int(self.frame.npartitions)

    def place(self, partition: int) -> str:
        return self.places[partition if len(self.places) > 1 else 0] if self.places else ""

    def read(self, partition: int) -> Table:
        what = self.place(partition) or "A table"
        try:
            return self._columns(_compute_partition(self.frame, partition))
        except ProtodaskError:
            raise
        except OSError as error:
            raise StorageError(
                "unreadable", f"{what} could not be read ({error}).", "Check the files and repeat."
            ) from error
        except ValueError as error:
            if self.as_text is None:
                raise InputError("unreadable", f"{what} could not be read ({error}).", "Check the file.") from error
        try:
            return self._columns(_compute_partition(self.as_text, partition))
        except ProtodaskError:
            raise
        except ValueError as error:
            raise InputError(
                "unreadable",
                f"{self.place(partition) or 'A CSV file'} could not be read ({error}).",
                "Check that all its lines have the columns of its first.",
            ) from error

    def _columns(self, frame: Any) -> Table:
        return partition_columns(frame, self.names, self.kept, self.untyped, self.flags)


@dataclass(frozen=True)
class PandasTable:
    """A pandas data frame in memory."""

    frame: Any
    names: tuple[str, ...]
    text: frozenset[str]
    untyped: bool = False
    kept: Kept = NOTHING_KEPT
    resident: bool = True
    key: str = field(default_factory=lambda: uuid4().hex)

    def place(self, partition: int) -> str:
        return ""

    @property
    def n_partitions(self) -> int:
        return len(even_edges(len(self.frame), PARTITION_ROWS)) - 1

    def read(self, partition: int) -> Table:
        first = partition * PARTITION_ROWS
        return partition_columns(self.frame.iloc[first : first + PARTITION_ROWS], self.names, self.kept, self.untyped)


def pandas_table(frame: Any, dropped: Iterable[str], kept: Kept = NOTHING_KEPT) -> PandasTable:
    """A pandas data frame as a table."""
    frame = _named(frame, dropped)
    return PandasTable(frame, tuple(frame.columns), _text_columns(frame) - _number_objects(frame), kept=kept)


NUMBERS = ("boolean", "decimal", "integer", "floating", "mixed-integer-float")
"""What pandas calls objects that are numbers or truth values."""


def _number_objects(frame: Any) -> frozenset[str]:
    """Columns of objects that are numbers or truth values.

    pandas has objects where some truth values are missing, and where decimals come from Arrow. From files they are read
    as numbers, too.
    """
    from pandas.api.types import infer_dtype, is_object_dtype

    objects = [name for name, dtype in frame.dtypes.items() if is_object_dtype(dtype)]
    return frozenset(name for name in objects if infer_dtype(frame[name], skipna=True) in NUMBERS)


def dask_table(frame: Any, dropped: Iterable[str], kept: Kept = NOTHING_KEPT) -> FrameTable:
    """A dask data frame as a table; it stays lazy."""
    operands = (operand for expression in frame.expr.walk() for operand in expression.operands)
    refuse_futures(operand for operand in operands if isinstance(operand, dict))
    frame = _named(frame, dropped)
    return FrameTable(frame, tuple(frame.columns), _text_columns(frame), kept=kept)


def are_numbers(dtypes: Iterable[Any]) -> bool:
    """Whether the columns of a data frame with these types are all numbers or truth values."""
    return all(getattr(dtype, "kind", "O") in "biuf" and not hasattr(dtype, "categories") for dtype in dtypes)


def frame_beside(frame: Any, names: Sequence[str], arrays: Mapping[str, Any]) -> Any:
    """A dask data frame whose columns get these names, with further columns: arrays of as many values, row by row."""
    import dask.array
    from pandas.api.types import is_object_dtype

    objects = [name for name, dtype in zip(names, frame.dtypes, strict=True) if is_object_dtype(dtype)]
    frame = frame.rename(columns=dict(zip(frame.columns, names, strict=True)))
    if objects:
        frame = frame.map_partitions(_refuse_objects, objects, meta=frame._meta)
    lengths = tuple(int(rows) for rows in frame.map_partitions(len).compute())
    for name, values in arrays.items():
        beside = values if hasattr(values, "dask") else dask.array.from_array(np.asarray(values), chunks=-1)
        if any(math.isnan(length) for length in beside.shape):
            beside = beside.compute_chunk_sizes()
        if beside.shape != (sum(lengths),):
            raise InputError(
                "wrong-shape",
                f"The array {name!r} has the shape {beside.shape}, and there are {sum(lengths)} rows of features.",
                "Give one value for each row.",
            )
        frame = frame.assign(**{name: beside.rechunk((lengths,))})
    return frame


def _refuse_objects(frame: Any, names: Sequence[str]) -> Any:
    for name in names:
        known = frame[name].dropna()
        if not all(isinstance(value, str) for value in known):
            raise InputError(
                "wrong-type",
                f"Column {name!r} holds objects that are not all text.",
                "Say what they are before: .astype(float), .astype(str) or .astype('category').",
            )
    return frame


def _named(frame: Any, dropped: Iterable[str]) -> Any:
    left_out = frozenset(dropped)
    names = [str(name) for name in frame.columns]
    if len(set(names)) != len(names):
        raise InputError("named-twice", "Several columns of a data frame have one name.", "Rename them.")
    if names != list(frame.columns):
        frame = frame.rename(columns=dict(zip(frame.columns, names, strict=True)))
    return frame[[name for name in names if name not in left_out]]


def _text_columns(frame: Any) -> frozenset[str]:
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    return frozenset(
        name for name, dtype in frame.dtypes.items() if not (is_numeric_dtype(dtype) or is_bool_dtype(dtype))
    )


def partition_columns(
    frame: Any, names: Sequence[str], kept: Kept, untyped: bool, flags: frozenset[str] = frozenset()
) -> Table:
    """The columns of a pandas frame, with those that are handed on. Text in `flags` is read as truth values."""
    used = [name for name in names if name not in kept.alone] if kept.names else names
    found = frame_columns(frame, used)
    for name in flags.intersection(used):
        if found[name].dtype.kind == "O":  # read as text, since there is a value in some column that belies its type
            values = [BOOLEANS.get(text.lower(), text) if isinstance(text, str) else text for text in found[name]]
            found[name] = np.array(values, dtype=object)
    return KeptTable(found, kept_of_frame(frame, kept, untyped)) if kept.names else found


def frame_columns(frame: Any, names: Sequence[str]) -> dict[str, Values]:
    """The columns of a pandas frame: numbers as numbers with NaN, all else as objects with None where missing."""
    return {name: _column_values(frame[name]) for name in names}


def _column_values(series: Any) -> Values:
    dtype = series.dtype
    if isinstance(dtype, np.dtype) and dtype.kind in "biuf":
        values: NDArray[Any] = series.to_numpy()
        return values
    if getattr(dtype, "kind", "O") in "biuf" and hasattr(dtype, "na_value") and not hasattr(dtype, "categories"):
        if not series.hasnans:
            plain: NDArray[Any] = series.to_numpy(dtype=np.dtype(getattr(dtype, "numpy_dtype", "float64")))
            return plain
        floats: NDArray[Any] = series.to_numpy(dtype="float64", na_value=np.nan)
        return floats
    objects = series.astype(object)
    found: NDArray[Any] = objects.where(objects.notna(), None).to_numpy(dtype=object)
    return found


class _Graphs:
    """The task of each partition of the frames used last, so that a frame is lowered once in a process."""

    def __init__(self, kept: int) -> None:
        self._kept = kept
        self._lock = threading.Lock()
        self._graphs: OrderedDict[str, tuple[dict[Any, Any], list[Any]]] = OrderedDict()

    def of(self, frame: Any) -> tuple[dict[Any, Any], list[Any]]:
        name = str(frame._name)
        with self._lock:
            found = self._graphs.get(name)
            if found is None:
                lowered = frame.optimize(fuse=True)
                found = (graph_of(lowered), list(lowered.__dask_keys__()))
                self._graphs[name] = found
                while len(self._graphs) > self._kept:
                    self._graphs.popitem(last=False)
        return found


@lru_cache(maxsize=1)
def _graphs() -> _Graphs:
    return _Graphs(64)


def _compute_partition(frame: Any, partition: int) -> Any:
    graph, keys = _graphs().of(frame)
    return compute_key(graph, keys[partition])


def _parquet_table(paths: Sequence[str], dropped: frozenset[str], handed_on: Kept) -> FrameTable:
    frames = dask_frames()
    try:
        from pyarrow.lib import ArrowInvalid

        kept, exact = None, exact_patterns(paths)
        if dropped:
            kept = [name for name in frames.read_parquet(exact).columns if name not in dropped]
        frame = frames.read_parquet(
            exact,
            columns=kept,
            split_row_groups="adaptive",
            blocksize=PARQUET_PARTITION_BYTES,
            # As pandas has them, integers with missing values are floats, and times lose their types.
            **({"dtype_backend": "pyarrow"} if handed_on.names else {}),
        )
    except FileNotFoundError as error:
        raise StorageError("not-found", f"A Parquet file is missing ({error}).", "Check the path.") from error
    except (ValueError, OSError, ArrowInvalid) as error:
        raise InputError("unreadable", f"The Parquet files cannot be read ({error}).", "Check the files.") from error
    return dask_table(frame, dropped, handed_on)


def exact_patterns(paths: Sequence[str]) -> list[str]:
    """What to tell dask.dataframe, to which all paths are globs, and a double colon in one a chain of places."""
    return [re.sub(r"[*?[]" if "://" in path else r"[*?[]|(?<=:):", r"[\g<0>]", path) for path in paths]


def _protocol(path: str) -> str:
    """Of a URL; nothing for a path. Files of several are not read together."""
    return path.partition("://")[0] if "://" in path else ""


def _first_line(path: str) -> tuple[bytes, bool]:
    """The header of a CSV file, and whether there is more than that in it."""
    with text_errors(path), open_text(path) as file:
        line, more = _read_line(file)
    if not line.strip():
        raise InputError(
            "unreadable", f"{path} has no header line.", "Put the names of the columns into its first line."
        )
    return line, more


MAX_HEADER_BYTES = 2**24

PIECE_BYTES = 2**16


def _read_line(file: Any) -> tuple[bytes, bool]:
    """The first line of a file, and whether more follows: files of object stores have a `readline` without a limit."""
    found = b""
    while b"\n" not in found and len(found) < MAX_HEADER_BYTES and (piece := file.read(PIECE_BYTES)):
        found += piece
    line, end, rest = found.partition(b"\n")
    return line + end, bool(rest or file.read(1))


@dataclass(frozen=True)
class CsvColumns:
    """The columns of a CSV file that are read, as which types of pandas, and what separates them."""

    types: Mapping[str, str]
    separator: str
    has_rows: bool

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.types)

    @property
    def text(self) -> frozenset[str]:
        # Without rows there is no text either.
        return frozenset(name for name, dtype in self.types.items() if dtype == "str" and self.has_rows)

    @property
    def flags(self) -> frozenset[str]:
        """Columns of truth values."""
        return frozenset(name for name, dtype in self.types.items() if dtype == "boolean")

    def options(self, kept: Kept, as_text: bool = False) -> dict[str, Any]:
        """What pandas and dask.dataframe are told."""
        types = dict.fromkeys(self.types, "str") if as_text else dict(self.types)
        return {
            "sep": self.separator,
            "usecols": list(self.names),
            "dtype": types,
            **_missing_values(self.names, kept),
        }


def is_compressed(path: str) -> bool:
    """Whether a CSV file is, by its ending."""
    return path.lower().endswith(PACKED)


def csv_columns(path: str, labels: frozenset[str], dropped: frozenset[str], opened: Callable[[], Any]) -> CsvColumns:
    """The columns of a CSV file, by its first rows; `opened` makes a file of its content, decompressed. Those among
    `labels` are text.
    """
    import pandas

    separator = "\t" if path.lower().endswith(".tsv") else ","
    try:
        with opened() as file:
            head = pandas.read_csv(file, sep=separator, nrows=HEAD_ROWS)
        with opened() as file:
            header = pandas.read_csv(file, sep=separator, nrows=1, header=None, dtype=str, keep_default_na=False)
    except ValueError as error:  # the parser's errors are of this kind
        raise InputError("unreadable", f"{path} cannot be read ({error}).", "Check that it is a CSV file.") from error
    except OSError as error:
        raise StorageError("unreadable", f"{path} cannot be read ({error}).", "Check the file.") from error
    given = [str(name) for name in header.iloc[0]]
    if twice := [name for name in given if name and given.count(name) > 1]:
        raise InputError("named-twice", f"{path} has several columns called {twice[0]!r}.", "Rename them.")
    names = [str(name) for name in head.columns if str(name) not in dropped]
    if not names:
        raise InputError("column-missing", f"All columns of {path} are dropped.", "Keep some.")
    types: dict[str, str] = {}
    for name in names:
        kind = head[name].dtype.kind if isinstance(head[name].dtype, np.dtype) else "O"
        if kind == "O" and pandas.api.types.infer_dtype(head[name], skipna=True) == "boolean":
            kind = "b"  # truth values with some missing
        # Integers are read as floats, so that a missing value further down is a missing value and no failure.
        types[name] = (
            "str"
            if name in labels
            else {"b": "boolean", "i": "float64", "u": "float64", "f": "float64"}.get(kind, "str")
        )
    return CsvColumns(types, separator, len(head) > 0)


def _csv_table(paths: Sequence[str], labels: frozenset[str], dropped: frozenset[str], kept: Kept) -> Partitions:
    frames = dask_frames()
    if is_compressed(paths[0]):
        texts = [packed_text(path, CSV_PARTITION_BYTES) for path in paths]
        first = partial(io.BytesIO, texts[0].header + texts[0].read(0))
        columns = csv_columns(paths[0], labels, dropped, first)
        return join_tables([PackedTable(text, columns, kept) for text in texts])
    columns = csv_columns(paths[0], labels, dropped, partial(open_text, paths[0]))

    def lazily(as_text: bool) -> Any:
        return frames.read_csv(
            exact_patterns(paths),
            blocksize=CSV_PARTITION_BYTES,
            compression=None,
            sample=SAMPLE_BYTES,
            **columns.options(kept, as_text),
        )[list(columns.names)]

    try:
        frame, as_text = lazily(False), lazily(True)
    except ValueError:
        # A value in the sample already belies its column; reading everything as text finds out which.
        frame = as_text = lazily(True)
    return FrameTable(frame, columns.names, columns.text, untyped=True, as_text=as_text, flags=columns.flags, kept=kept)


@dataclass(frozen=True)
class PackedTable:
    """The table in a compressed CSV file, which is no more than a part of it in memory."""

    lines: PackedText
    columns: CsvColumns
    kept: Kept = NOTHING_KEPT
    untyped: bool = True
    resident: bool = False
    key: str = field(default_factory=lambda: uuid4().hex)

    @property
    def names(self) -> tuple[str, ...]:
        return self.columns.names

    @property
    def text(self) -> frozenset[str]:
        return self.columns.text

    @property
    def n_partitions(self) -> int:
        return len(self.lines.cuts) - 1

    def place(self, partition: int) -> str:
        return mask(self.lines.path)

    def read(self, partition: int) -> Table:
        text = self.lines.header + self.lines.read(partition)
        return csv_text_table(text, self.lines.path, self.columns, self.kept)


def csv_text_table(text: bytes, path: str, columns: CsvColumns, kept: Kept) -> Table:
    """The columns in the text of a CSV file that is in memory."""
    import pandas

    try:
        frame = pandas.read_csv(io.BytesIO(text), **columns.options(kept))
        return partition_columns(frame, columns.names, kept, untyped=True)
    except ValueError:
        pass  # a value belies its column: as text it will be found
    try:
        frame = pandas.read_csv(io.BytesIO(text), **columns.options(kept, as_text=True))
        return partition_columns(frame, columns.names, kept, untyped=True, flags=columns.flags)
    except InputError:
        raise
    except ValueError as error:
        raise InputError(
            "unreadable", f"{path} cannot be read ({error}).", "Check that all its lines have the columns of its first."
        ) from error


def _missing_values(names: Sequence[str], kept: Kept) -> dict[str, Any]:
    """What is a missing value in which column of a CSV file: in one that is merely handed on, nothing but no text."""
    if not kept.alone:
        return {}
    return {
        "keep_default_na": False,
        "na_values": {name: [""] if name in kept.alone else MISSING_TEXTS for name in names},
    }


MISSING_TEXTS = (
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA"),
    *("NULL", "NaN", "None", "n/a", "nan", "null"),
)
"""What pandas takes for a missing value by default."""


HEAD_ROWS = 1000
"""Rows that tell numbers from text. A column that turns out otherwise further down is an error that names the row."""

SAMPLE_BYTES = 2**20
"""What dask.dataframe reads beforehand: enough for the header and some rows of a wide table."""
