"""Rows as programs have them, turned into the features of a model as its training data were."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protodask.data.encoding import MatrixTable, Table, Unseen, Values, columns_besides, encode_features, table_rows
from protodask.data.schema import Column, feature_names
from protodask.errors import InputError
from protodask.prototypes.model import PrototypeSet

NUMBERS = "biuf"

STREAM = "__arrow_c_stream__"
RELATIONS = {"_duckdb", "duckdb"}
"""Packages whose relations have columns that are relations."""


class RowReader:
    """The features of rows: of a matrix of columns, or of features, of columns by name, or of records."""

    def __init__(self, model: PrototypeSet) -> None:
        self._model = model
        self._of_features = tuple(Column(name) for name in model.feature_names)
        known = len(feature_names(model.columns)) == model.n_features
        self._columns = model.columns if known else self._of_features
        self._numbers = all(column.kind == "numeric" for column in self._columns)
        plain = self._numbers and not any(column.marked for column in self._columns)
        self._as_they_are = plain or len(self._columns) != model.n_features
        """Whether a matrix as wide as the features has the features."""

    def features(self, rows: Any, unseen: Unseen = "error") -> NDArray[Any]:
        """Of some rows (N, F), as the model reads them; a value that cannot be used is an error.

        With `unseen="zero"` categories that were not there in training are none of those that were, and missing values
        count as they would have.
        """
        columns = _by_name(rows)
        if columns is not None:
            names = [column.name for column in self._columns]
            columns_besides(list(columns), names, (self._model.target_name, *self._model.other_names))
            return self._encode(_table(columns, names), self._columns, unseen)
        matrix = _matrix(rows, mixed=not self._numbers)
        width = matrix.shape[1] if matrix.ndim == 2 else -1
        if width == self._model.n_features and self._as_they_are:
            if matrix.dtype.kind in NUMBERS:
                with np.errstate(over="ignore"):
                    features = matrix.astype(self._model.precision)
                if np.isfinite(features).all():
                    return features
            own = self._columns if width == len(self._columns) else self._of_features
            return self._encode(_positional(matrix, own), own, unseen)
        if width == len(self._columns):
            return self._encode(_positional(matrix, self._columns), self._columns, unseen)
        raise self._other_shape(matrix)

    def _encode(self, table: Table, columns: Sequence[Column], unseen: Unseen) -> NDArray[Any]:
        if unseen == "zero":
            forgiving = self._model.forgiving_columns
            columns = forgiving if len(forgiving) == len(columns) else columns
        features = np.empty((table_rows(table), self._model.n_features), dtype=self._model.precision)
        problem = encode_features(table, columns, features, unseen)
        if problem is not None:
            raise problem.error()
        return features

    def _other_shape(self, matrix: NDArray[Any]) -> InputError:
        wanted = f"{len(self._columns)} columns"
        if self._model.n_features != len(self._columns):
            wanted += f", or {self._model.n_features} features"
        return InputError(
            "wrong-shape",
            f"The rows have the shape {matrix.shape}, and the model is of {wanted}.",
            "Give a row for each case, with the columns of the training data in their order, or columns by name.",
        )


def _by_name(rows: Any) -> Mapping[str, Any] | None:
    """Columns by name: of a mapping, a data frame of any library, a record, or several; None of what has no names."""
    if hasattr(rows, "to_dict") and getattr(rows, "ndim", 0) == 1:  # a row of a pandas frame
        rows = rows.to_dict()
    if isinstance(rows, Mapping):
        return {str(name): rows[name] for name in rows}
    if hasattr(rows, "columns") or hasattr(rows, STREAM):
        return _of_frame(rows)
    if isinstance(rows, Sequence) and rows and all(isinstance(row, Mapping) for row in rows):
        found: dict[str, list[Any]] = {}
        for number, row in enumerate(rows):
            for name in row:
                found.setdefault(str(name), [None] * len(rows))[number] = row[name]
        return found
    return None


def _of_frame(frame: Any) -> Mapping[str, Any]:
    """The columns of a data frame, or of what gives itself away as a stream of Arrow's."""
    if not hasattr(frame, "columns") or type(frame).__module__.partition(".")[0] in RELATIONS:
        import pyarrow

        frame = pyarrow.table(frame)
    names = getattr(frame, "column_names", None)  # of Arrow, whose `columns` are not names
    try:
        return {str(name): frame[name] for name in (frame.columns if names is None else names)}
    except TypeError as error:
        raise InputError(
            "wrong-type",
            f"Rows of the type {type(frame).__name__} do not give their columns by name.",
            "Give a data frame that is in memory: collect it, or compute it.",
        ) from error


def _table(columns: Mapping[str, Any], names: Sequence[str]) -> Table:
    table = {name: _values(columns[name]) for name in names}
    if len({len(values) for values in table.values()}) > 1:
        raise InputError("wrong-shape", "The columns are of different lengths.", "Give a value for each row in each.")
    return table


def _values(column: Any) -> Values:
    """The values of a column, or the single one of a record: numbers, or objects."""
    if isinstance(column, str | bytes) or column is None:
        column = [column]
    found = np.atleast_1d(np.asarray(column))
    if found.dtype.kind in NUMBERS:
        return found
    return found if found.dtype.kind == "O" else np.atleast_1d(np.asarray(column, dtype=object))


def _matrix(rows: Any, mixed: bool) -> NDArray[Any]:
    """Rows as an array; a single one may come alone. Of `mixed` values none becomes another one's kind."""
    found = rows if isinstance(rows, np.ndarray) else np.asarray(rows, dtype=object if mixed else None)
    if found.dtype.kind not in NUMBERS + "O":
        found = np.asarray(rows, dtype=object)
    return found.reshape(1, -1) if found.ndim == 1 else found


def _positional(matrix: NDArray[Any], columns: Sequence[Column]) -> Table:
    names = tuple(column.name for column in columns)
    if matrix.dtype.kind in NUMBERS:
        return MatrixTable(names, matrix, {})
    return {name: _plain(matrix[:, place]) for place, name in enumerate(names)}


def _plain(values: NDArray[Any]) -> Values:
    """Objects that are all numbers as such."""
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values.tolist()):
        return values.astype(np.float64)
    return values
