"""From what a user hands in to a table in partitions; files in their order, by the names of their columns."""

from __future__ import annotations

import itertools
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import zarr

from protodask.data.arrays.foreign_arrays import check_group_files
from protodask.data.arrays.row_arrays import RowArray, numpy_errors, row_array
from protodask.data.format.schema import FEATURES, TARGET
from protodask.data.places.locations import locate
from protodask.data.places.storage import DATASET
from protodask.data.tables.csv_files import csv_table
from protodask.data.tables.encoding import columns_besides
from protodask.data.tables.frames import column_labels, column_values, in_frame, in_pandas, out_of_xarray
from protodask.data.tables.ingest_frames import dask_table, frame_beside, pandas_table, values_array
from protodask.data.tables.kept_columns import NOTHING_KEPT, Kept
from protodask.data.tables.parquet_files import ParquetParts, parquet_parts, parquet_table
from protodask.data.tables.source_files import find_files, is_parquet_path, is_table_path
from protodask.data.tables.tables import Partitions, arrays_table, check_same_columns, join_tables, names_by_table
from protodask.data.tables.text_parts import TextParts, text_parts
from protodask.errors import InputError, StorageError, count, needed

FEATURE_NAMES = ("features", "X", "x", "data")
TARGET_NAMES = ("target", "y", "Y", "labels")

CSV_PARTITION_BYTES = 8 * 2**20
"""Text of a partition: small beside a block, because a block parses every partition it touches."""

PARQUET_PARTITION_BYTES = 32 * 2**20
"""Row groups are joined up to this size, not compressed; a larger row group is a partition of its own."""


def open_table(
    sources: Any,
    labels: Iterable[str],
    dropped: Iterable[str],
    target: str | None,
    features: Sequence[str] | None = None,
    others: Iterable[str | None] = (),
    kept: Kept = NOTHING_KEPT,
) -> Partitions:
    """The table behind one source or a list of several, in their order, whose columns may differ.

    `labels` are columns to be read as labels, `dropped` ones to be left out, `target` what the target of arrays is to
    be called, `features` what the columns of a matrix without labels are called (x0, x1, ... by default), `others`
    which arrays besides them are columns, and `kept` what is handed on.
    """
    several = list(sources) if isinstance(sources, list) else [sources]
    if not several:
        raise InputError("no-rows", "There is nothing to read.", "Give a file, a table or arrays.")
    left_out, called = list(dropped), target or TARGET.name
    besides = [name for name in (*others, *kept.names) if name is not None]
    tables: list[Partitions] = []
    for in_files, together in itertools.groupby(several, _is_file_path):
        if in_files:
            files = [path for source in together for path in find_files(os.fspath(source))]
            tables += file_tables(files, labels, left_out, kept)
            continue
        for source in together:
            found = _frame_or_arrays(source, called)
            if isinstance(found, Mapping):
                tables.append(_arrays(found, called, features, besides, left_out, kept))
            else:
                tables.append((dask_table if hasattr(found, "npartitions") else pandas_table)(found, left_out, kept))
    return join_tables(tables)


def _is_file_path(source: Any) -> bool:
    """Whether it is the path of tables, and neither of arrays nor something in memory."""
    if not isinstance(source, (str, os.PathLike)):
        return False
    path = os.fspath(source)
    if path.endswith((".npy", ".npz")) or path.rstrip("/").endswith(".zarr"):
        return False
    return is_table_path(path) or not os.path.exists(os.path.join(path, "zarr.json"))


def _frame_or_arrays(source: Any, target: str) -> Any:
    """The frame that a source is, or its arrays by their names; targets beside a frame are a column of that name."""
    if isinstance(source, (str, os.PathLike)):
        return _stored_arrays(os.fspath(source))
    if isinstance(source, zarr.Group):
        return dict(source.arrays())
    if isinstance(source, tuple):
        if len(source) != 2:
            raise InputError(
                "wrong-type",
                f"A tuple of {len(source)} is no source.",
                "Give pairs (X, y), and several sources as a list.",
            )
        return _pair(source[0], source[1], target)
    source = in_frame(source)
    if isinstance(source, Mapping) or _is_frame(source):
        return source
    if hasattr(source, "shape") and len(source.shape) == 2:
        return {FEATURES.name: source}
    raise InputError(
        "wrong-type", f"A {type(source).__name__} is no source of data.", "Give paths, data frames, or a pair (X, y)."
    )


def _is_frame(source: Any) -> bool:
    return hasattr(source, "columns") and hasattr(source, "dtypes")


def _pair(left: Any, right: Any, target: str) -> Any:
    right = column_values(right)
    if column_labels(left) is None or not left.chunks:  # a lazy matrix stays one: the targets may be chunked otherwise
        left = in_pandas(left)
    if not _is_frame(left):
        return {FEATURES.name: left, TARGET.name: right}
    _check_free(target, left.columns)
    if hasattr(left, "npartitions"):
        return frame_beside(left, list(left.columns), {target: values_array(right)})
    values = right.to_numpy() if hasattr(right, "to_numpy") else np.asarray(right)
    if len(values) != len(left):
        raise InputError(
            "wrong-shape",
            f"{count(len(values), 'target is', 'targets are')} given for {count(len(left), 'row')} of features.",
            "Give one target for each row.",
        )
    return left.assign(**{target: values})


def _check_free(name: str, features: Iterable[str]) -> None:
    if name in features:
        raise InputError(
            "named-twice", f"The features have a column {name!r} themselves.", "Call one of the two something else."
        )


def _stored_arrays(path: str) -> Mapping[str, Any]:
    if path.endswith(".npy"):
        return {FEATURES.name: path}
    if path.endswith(".npz"):
        with numpy_errors(path, ".npz", "numpy.savez"), np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    where = locate(path)
    check_group_files(where)
    try:
        node = zarr.open(where, mode="r")
    except FileNotFoundError as error:
        raise StorageError("not-found", f"There is nothing at {where}.", "Check the path.") from error
    except (ValueError, TypeError, KeyError) as error:
        raise InputError("unreadable", f"{where} is not readable by Zarr ({error}).", "Check the path.") from error
    own = str(node.attrs.get("format", ""))
    if own.startswith("protodask-"):
        what, remedy = own.removeprefix("protodask-").replace("-", " "), "Give tables or arrays."
        if own == DATASET.format:
            remedy = "Use it as it is; with `new`, ingest takes the rows of datasets as well."
        raise InputError("wrong-kind", f"{where} is a protodask {what}, and no table or array.", remedy)
    return {FEATURES.name: node} if isinstance(node, zarr.Array) else dict(node.arrays())


def _arrays(
    arrays: Mapping[str, Any],
    target: str,
    features: Sequence[str] | None,
    besides: Iterable[str],
    dropped: Collection[str],
    kept: Kept,
) -> Partitions:
    matrix = next((arrays[name] for name in FEATURE_NAMES if name in arrays), None)
    if matrix is None:
        raise InputError(
            "column-missing",
            f"Among the arrays {sorted(arrays)} are no features.",
            f"Call them {' or '.join(FEATURE_NAMES[:2])}.",
        )
    rows = _rows(matrix)
    others: dict[str, RowArray] = {}
    label = next((arrays[name] for name in TARGET_NAMES if name in arrays), None)
    if label is not None:
        others[target] = _rows(label)
    for name in besides:
        if name in arrays and name not in others:
            others[name] = _rows(arrays[name])
    width = rows.shape[1] if len(rows.shape) == 2 else 0
    labels = column_labels(matrix)
    known = features if labels is None else labels
    names = tuple(f"x{number}" for number in range(width)) if known is None else tuple(known)
    if len(rows.shape) == 2 and len(names) != width:
        raise InputError(
            "wrong-shape",
            f"The features have {count(width, 'column')}.",
            f"Give the {count(len(names), 'column')} of the ingest.",
        )
    for name in others:
        _check_free(name, names)
    table = arrays_table(names, rows, others, kept)
    left_out = frozenset(dropped).intersection(table.names)
    return replace(table, names=tuple(name for name in table.names if name not in left_out), left_out=left_out)


def _rows(array: Any) -> RowArray:
    return row_array(out_of_xarray(array))


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
    opened: list[TextParts | ParquetParts] = [
        parquet_parts(path, PARQUET_PARTITION_BYTES) if is_parquet_path(path) else text_parts(path, CSV_PARTITION_BYTES)
        for path in paths
    ]
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
    """The table in some files, one after the other; messages name the file also where there is only one.

    Where it is known which columns are `expected`, others are left out with a warning, whichever files they are in;
    else all files must have the same ones.
    """
    known, left_out = frozenset(labels), frozenset(dropped)
    tables = file_tables(paths, known, left_out)
    joined = replace(join_tables(tables), parts=tuple(tables))
    if not expected:
        check_same_columns(joined)
    elif besides := columns_besides(names_by_table(joined), expected, ()):
        return tables_by_file(paths, known, left_out.union(besides), expected)
    return joined
