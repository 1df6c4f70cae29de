"""What the columns that an estimator is given become, as at an ingest.

Numbers stay what they are, text and pandas' categories are nominal columns, ordered categories ordinal ones. A missing
value counts as the mean of the others, or as no category, with a further feature that is 1 there (`Column.filled`).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protodask.data.arrays.rows import first_unusable
from protodask.data.arrays.values import COMPLEX_REMEDY, TIMES
from protodask.data.format.schema import Column, Label, feature_names, meant_otherwise
from protodask.data.tables.encoding import (
    MISSING,
    MatrixTable,
    Table,
    Values,
    check_categories,
    distinct_labels,
    encode_features,
    label_codes,
    label_of,
    numeric_values,
    settle_labels,
    table_rows,
)
from protodask.data.tables.frames import check_names
from protodask.errors import InputError, named_twice, some
from protodask.prototypes.model import PrototypeSet

UNKNOWN_CATEGORIES = "__UNKNOWN_CATEGORIES__"
"""What dask.dataframe has for the categories of a column as long as it has not looked for them."""

Floats = NDArray[np.floating[Any]]


def frame_in_memory(X: Any, model: PrototypeSet | None = None) -> Any:
    """The pandas data frame that it is, or says how it becomes; None if all columns are numbers, the model's too."""
    kind = type(X).__module__.partition(".")[0]
    if kind != "pandas" and not hasattr(X, "to_pandas"):
        return None
    frame = X if kind == "pandas" else X.to_pandas()
    if getattr(frame, "ndim", 0) != 2 or not len(frame):
        return None  # which scikit-learn has its words for
    if not frame.shape[1]:
        raise InputError("wrong-shape", "X has no columns.", "Give a column for each feature.")
    if model is None:
        check_names([str(name) for name in frame.columns], "X")
    numbers = model is None or all(column.kind == "numeric" for column in model.columns)
    from protodask.data.tables.ingest_frames import are_numbers

    dense = not any(hasattr(dtype, "fill_value") for dtype in frame.dtypes)
    return None if numbers and dense and are_numbers(frame.dtypes) else frame


def frame_table(frame: Any, columns: Sequence[Column] | None = None) -> Table:
    """The columns of a pandas frame: numbers with NaN, all else as objects with None where missing.

    They are called as `columns` are, in their order, where these are known.
    """
    from protodask.data.tables.ingest_frames import frame_columns

    names = check_frame(frame)
    if columns is not None:
        names = [column.name for column in columns]
    frame = frame.set_axis(names, axis=1)
    table = frame_columns(frame, names)
    if columns is not None:  # by which it is known which are numbers
        return table
    said = orders_of_frame(frame)
    return {name: values if name in said else _as_numbers(values, name) for name, values in table.items()}


def check_frame(frame: Any) -> list[str]:
    """The names of the columns of a data frame, lazy or not, if they are told apart and hold what can be used."""
    names = [str(name) for name in frame.columns]
    check_names(names, "X")
    for name, dtype in zip(names, frame.dtypes, strict=True):
        if getattr(dtype, "kind", "O") in TIMES:
            raise InputError(
                "wrong-type",
                f"Column {name!r} holds times.",
                "Turn it into numbers, such as the hour or the days since some date, or leave it out.",
            )
        if getattr(dtype, "kind", "O") == "c":
            raise InputError("wrong-type", f"Column {name!r} holds complex numbers.", COMPLEX_REMEDY)
    return names


def _as_numbers(values: Values, name: str) -> Values:
    """Objects that are all numbers as numbers, with NaN."""
    from protodask.data.tables.ingest_frames import hold_numbers

    if values.dtype.kind != "O" or not hold_numbers(values.tolist()):
        return values
    numbers, problem = numeric_values(values, name)
    if problem is not None:
        raise problem.error()
    return numbers


def orders_of_frame(frame: Any) -> dict[str, tuple[Label, ...] | None]:
    """Of the columns that pandas calls categories, their order, or None if they have none."""
    kinds = {str(name): dtype for name, dtype in frame.dtypes.items() if hasattr(dtype, "categories")}
    return {name: _order(name, dtype.categories) if dtype.ordered else None for name, dtype in kinds.items()}


def _order(name: str, categories: Any) -> tuple[Label, ...]:
    labels = [label_of(category) for category in categories.tolist()]
    if labels == [UNKNOWN_CATEGORIES]:
        raise InputError(
            "setting-missing",
            f"Dask does not know the categories of column {name!r}, which have an order.",
            f"Have it look for them before: X.categorize([{name!r}]).",
        )
    order = settle_order(label for label in labels if label is not None)
    if len(order) < len(labels) or len(order) < 2:
        raise InputError(
            "bad-setting",
            f"The ordered categories of column {name!r} are too few, or not told apart: {some([*map(repr, labels)])}.",
            "Give two or more, each once and in words or whole numbers.",
        )
    return order


def settle_order(labels: Iterable[Label]) -> tuple[Label, ...]:
    """Labels in their order, those of one text once, of one type."""
    found = list({str(label): label for label in labels}.values())
    return tuple(found) if len({type(label) for label in found}) == 1 else tuple(map(str, found))


def learn_columns(
    table: Table, orders: Mapping[str, tuple[Label, ...] | None], weight: NDArray[np.float64] | None = None
) -> tuple[Column, ...]:
    """What the columns of a table in memory become; those with an entry in `orders` are said to be categories.

    What missing values count as is learnt from rows of positive `weight`.
    """
    counted = None if weight is None else weight > 0
    if isinstance(table, MatrixTable):
        absent = np.isnan(table.matrix).sum(axis=0).tolist()
        pairs = zip(table.names, table.matrix.T, absent, strict=True)
        columns = tuple(_with_missing(Column(name), values, gone, counted) for name, values, gone in pairs)
    else:
        columns = tuple(_learn(name, values, orders, counted) for name, values in table.items())
    if twice := sorted(named_twice(feature_names(columns))):
        raise InputError("named-twice", f"Several features would have one name: {some(twice)}.", "Rename the columns.")
    return columns


def _with_missing(column: Column, values: Values, missing: int, counted: NDArray[np.bool_] | None) -> Column:
    """The column with the mean of the values of rows that are `counted`, all by default, where so many are missing.

    Infinite ones are refused elsewhere.
    """
    if not missing:
        return column
    known = np.isfinite(values) if counted is None else np.isfinite(values) & counted
    with np.errstate(over="ignore"):
        total = float(np.where(known, values, 0).sum(dtype=np.float64))
    return column.with_missing(int(known.sum()), missing, total)


def _learn(
    name: str,
    values: Values,
    orders: Mapping[str, tuple[Label, ...] | None],
    counted: NDArray[np.bool_] | None,
) -> Column:
    if values.dtype.kind in "biuf":
        return _with_missing(Column(name), values, int(np.isnan(values).sum()), counted)
    order = orders.get(name)
    labels = settle_labels(distinct_labels(values, name), untyped=False) if order is None else order
    if name not in orders:
        check_categories(name, labels, len(values))
        if meant := meant_otherwise(labels):
            warnings.warn(f"The categories of {name!r} are {meant[0]}. {meant[1]}", stacklevel=2)
    column = Column(name, "nominal" if order is None else "ordinal", labels)
    codes = label_codes(values, labels)
    positions = np.where(codes < 0, np.nan, 0 if order is None else codes)
    return _with_missing(column, positions, int((codes == MISSING).sum()), counted)


def encoded(table: Table, columns: Sequence[Column], dtype: Any, first_row: int = 0, among: str = "") -> Floats:
    """The features (N, D) of rows in memory; of a category that was not there at `fit`, all are 0."""
    numbers = all(column.kind == "numeric" and not column.marked for column in columns)
    if isinstance(table, MatrixTable) and table.matrix.dtype.kind == "f" and numbers:
        matrix: Floats = table.matrix
        if first_unusable(matrix) is None:
            return matrix
    features: Floats = np.empty((table_rows(table), sum(len(column.feature_names) for column in columns)), dtype=dtype)
    problem = encode_features(table, columns, features, "zero")
    if problem is not None:
        raise problem.shifted(first_row).error(among)
    return features


def matrix_table(matrix: Values, columns: Sequence[Column]) -> MatrixTable:
    """A matrix whose columns have the names of these."""
    return MatrixTable(tuple(column.name for column in columns), matrix, {})
