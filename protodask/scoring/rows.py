"""Rows as programs have them, turned into the features of a model as its training data were."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from protodask.data.arrays.values import refuse_times, unmasked
from protodask.data.format.schema import Column, feature_names
from protodask.data.tables.encoding import (
    MatrixTable,
    Table,
    Unseen,
    Values,
    columns_besides,
    encode_features,
    table_rows,
)
from protodask.data.tables.frames import STREAM, arrow_table, column_labels, decoded, out_of_xarray, refuse_lazy
from protodask.errors import InputError, count
from protodask.prototypes.fitted import FittedPrototypes

NUMBERS = "biuf"

RELATIONS = {"_duckdb", "duckdb"}
"""Packages whose relations have columns that are relations."""


class RowReader:
    """The features of rows: of a matrix of columns, or of features, of columns by name, or of records."""

    def __init__(self, model: FittedPrototypes) -> None:
        self._model = model
        self._of_features = tuple(Column(name) for name in model.feature_names)
        known = len(feature_names(model.columns)) == model.n_features
        self._columns = model.columns if known else self._of_features
        self._numbers = all(column.kind == "numeric" for column in self._columns)
        plain = self._numbers and not any(column.marked for column in self._columns)
        self._has_features = plain or len(self._columns) != model.n_features
        """Whether a matrix as wide as the features has these, and not columns."""

    def columns_of(self, names: Sequence[str], kept: Sequence[str] = ()) -> list[str]:
        """Which columns of a table with these it looks at; a warning says of others than the `kept` ones."""
        wanted = [column.name for column in self._columns]
        columns_besides(names, wanted, (self._model.target_name, *self._model.other_names, *kept))
        return wanted

    def features(self, rows: Any, unseen: Unseen = "error", first_row: int = 0) -> NDArray[Any]:
        """Of some rows (N, F), as the model reads them; a value that cannot be used is an error.

        With `unseen="zero"` categories that were not there in training are none of those that were, and missing values
        count as they would have. `first_row` is the number of the first, for messages.
        """
        if unseen not in get_args(Unseen):
            raise InputError("unknown-name", f"unseen is {unseen!r}.", 'Give "error" or "zero".')
        names = column_labels(rows)
        rows = out_of_xarray(rows) if names is None else rows.sel({rows.dims[1]: self.columns_of(names)}).data
        columns = by_name(rows)
        if columns is not None:
            self.columns_of(list(columns))
            return self._encode(_table(columns, self._columns), self._columns, unseen, first_row)
        matrix = _matrix(rows, mixed=not self._numbers)
        width = matrix.shape[1] if matrix.ndim == 2 else -1
        if width == self._model.n_features and self._has_features:
            if matrix.dtype.kind in NUMBERS:
                with np.errstate(over="ignore"):
                    features = matrix.astype(self._model.row_precision)
                if np.isfinite(features).all():
                    return features
            own = self._columns if width == len(self._columns) else self._of_features
            return self._encode(_positional(matrix, own), own, unseen)
        if width == len(self._columns):
            return self._encode(_positional(matrix, self._columns), self._columns, unseen)
        raise self._other_shape(matrix)

    def _encode(self, table: Table, columns: Sequence[Column], unseen: Unseen, first_row: int = 0) -> NDArray[Any]:
        of_features = columns is not self._columns
        if unseen == "zero" and not of_features:
            columns = self._model.forgiving_columns
        features = np.empty((table_rows(table), self._model.n_features), dtype=self._model.row_precision)
        problem = encode_features(table, columns, features, unseen)
        if problem is None:
            return features
        if of_features:
            problem = replace(problem, remedy="Give columns, in which values may be missing, in place of features.")
        raise problem.shifted(first_row).error()

    def _other_shape(self, matrix: NDArray[Any]) -> InputError:
        wanted = count(len(self._columns), "column")
        if self._model.n_features != len(self._columns):
            wanted += f", or {count(self._model.n_features, 'feature')}"
        return InputError(
            "wrong-shape",
            f"The rows have the shape {matrix.shape}, and the model is of {wanted}.",
            "Give a row for each case, with the columns of the training data in their order, or columns by name.",
        )


def by_name(rows: Any) -> Mapping[str, Any] | None:
    """Columns by name: of a mapping, a data frame of any library, a record, or several; None of what has no names."""
    one = _record(rows)
    if one is not None:
        return {str(name): value for name, value in one.items()}
    if getattr(getattr(rows, "dtype", None), "names", None):  # an array of records
        return {name: rows[name] for name in rows.dtype.names}
    refuse_lazy(rows)
    if hasattr(rows, "columns") or hasattr(rows, STREAM):
        return _of_frame(rows)
    if not isinstance(rows, Sequence) or isinstance(rows, str | bytes) or not rows:
        return None
    records = [_record(row) for row in rows]
    found: dict[str, list[Any]] = {}
    for number, record in enumerate(records):
        if record is None:
            return None
        for name, value in record.items():
            found.setdefault(str(name), [None] * len(records))[number] = value
    return found


def _record(row: Any) -> Mapping[Any, Any] | None:
    """A mapping, a named tuple or a row of a pandas frame, by its names; None of anything else."""
    if isinstance(row, Mapping):
        return row
    if isinstance(row, tuple) and hasattr(row, "_asdict"):
        named: dict[str, Any] = row._asdict()
        return named
    if hasattr(row, "to_dict") and getattr(row, "ndim", 0) == 1:
        entries: dict[Any, Any] = row.to_dict()
        return entries
    return None


def _of_frame(frame: Any) -> Mapping[str, Any]:
    """The columns of a data frame, or of what gives itself away as a stream of Arrow's."""
    if not hasattr(frame, "columns") or type(frame).__module__.partition(".")[0] in RELATIONS:
        frame = arrow_table(frame)
    names = getattr(frame, "column_names", None)  # of Arrow, whose `columns` are not names
    try:
        return {str(name): frame[name] for name in (frame.columns if names is None else names)}
    except KeyError as error:  # Arrow finds none that is there twice
        raise InputError("named-twice", "Several columns of a table have one name.", "Rename them.") from error
    except TypeError as error:
        raise InputError(
            "wrong-type",
            f"Rows of the type {type(frame).__name__} do not give their columns by name.",
            "Give a data frame that is in memory: collect it, or compute it.",
        ) from error


def _table(given: Mapping[str, Any], columns: Sequence[Column]) -> Table:
    table = {column.name: _values(given[column.name], column) for column in columns}
    if len({len(values) for values in table.values()}) > 1:
        raise InputError("wrong-shape", "The columns are of different lengths.", "Give a value for each row in each.")
    return table


def _values(given: Any, column: Column) -> Values:
    """The values of a column, or the single one of a record: numbers, or objects."""
    # As objects, so that no category becomes another one on its way into an array.
    alone = isinstance(given, str | bytes) or given is None
    found = np.atleast_1d(_array([given] if alone else given, column.kind != "numeric"))
    if found.ndim == 2 and found.shape[1] == 1:
        found = found[:, 0]
    if found.ndim > 1 or _is_nested(found):
        raise InputError(
            "wrong-shape",
            f"The column {column.name!r} has the shape {found.shape}, or values that are lists.",
            "Give a single value for each row.",
        )
    return found


def _matrix(rows: Any, mixed: bool) -> NDArray[Any]:
    """Rows as an array; a single one may come alone."""
    found = _array(rows, mixed)
    if found.ndim == 1 and _is_nested(found):
        raise InputError("wrong-shape", "The rows are of different lengths.", "Give as many values in each row.")
    return found.reshape(1, -1) if found.ndim == 1 else found


def _array(given: Any, mixed: bool) -> NDArray[Any]:
    """Numbers, NaN where masked, or objects, None where masked: of lists of `mixed` values none becomes another one."""
    kind = object if mixed and not isinstance(given, np.ndarray) else None
    try:
        found = np.asarray(unmasked(decoded(given) if kind is None else _listed(decoded(given))), dtype=kind)
    except InputError:
        raise
    except ValueError as error:
        raise InputError("wrong-shape", f"The rows are no matrix ({error}).", "Give as many values in each.") from error
    refuse_times(found.dtype)
    return found if found.dtype.kind in NUMBERS + "O" else np.asarray(given, dtype=object)


def _listed(column: Any) -> Any:
    """Whole numbers of a frame's column as a list: its array may have them rounded if others are missing."""
    kind = getattr(column, "type", getattr(column, "dtype", ""))
    kind = getattr(getattr(kind, "categories", None), "dtype", kind)  # of pandas' categories
    if str(kind).lower() not in ("int64", "uint64"):
        return column
    listed = getattr(column, "to_pylist", None) or getattr(column, "to_list", None)
    return column if listed is None else listed()


def _is_nested(values: NDArray[Any]) -> bool:
    return values.dtype.kind == "O" and any(isinstance(value, list | tuple | np.ndarray) for value in values.tolist())


def _positional(matrix: NDArray[Any], columns: Sequence[Column]) -> Table:
    names = tuple(column.name for column in columns)
    if matrix.dtype.kind in NUMBERS:
        return MatrixTable(names, matrix, {})
    return {name: matrix[:, place] for place, name in enumerate(names)}
