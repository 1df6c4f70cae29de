"""What the columns that an estimator is given become, as at an ingest.

Numbers stay what they are, text and pandas' categories are nominal columns, ordered categories ordinal ones. A missing
value counts as the mean of the others, or as no category, with a further feature that is 1 there (`Column.filled`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protodask.data.encoding import (
    MISSING,
    MatrixTable,
    Table,
    Values,
    distinct_labels,
    encode_features,
    label_codes,
    settle_labels,
    table_rows,
)
from protodask.data.rows import first_unusable
from protodask.data.schema import Column, Label
from protodask.errors import InputError

Floats = NDArray[np.floating[Any]]

MOST_CATEGORIES = 1000
"""Of a column of text, which would be a feature each; columns that pandas calls categories may have more."""

FEW_CATEGORIES = 20
"""Up to so many, a column of text may have another value in nearly every row."""


def frame_in_memory(X: Any) -> Any:
    """The pandas data frame that it is, or says how it becomes, if not all its columns are numbers; else None."""
    kind = type(X).__module__.partition(".")[0]
    if kind != "pandas" and not hasattr(X, "to_pandas"):
        return None
    frame = X if kind == "pandas" else X.to_pandas()
    if getattr(frame, "ndim", 0) != 2:
        return None
    frame = frame.infer_objects()
    return None if all(_is_number(dtype) for dtype in frame.dtypes) else frame


def _is_number(dtype: Any) -> bool:
    return getattr(dtype, "kind", "O") in "biuf" and not hasattr(dtype, "categories")


def frame_table(frame: Any) -> Table:
    """The columns of a pandas frame: numbers with NaN, all else as objects with None where missing."""
    from protodask.data.ingest_frames import frame_columns

    names = [str(name) for name in frame.columns]
    if len(set(names)) != len(names):
        raise InputError("named-twice", "Several columns of X have one name.", "Rename them.")
    for name, dtype in zip(names, frame.dtypes, strict=True):
        if getattr(dtype, "kind", "O") in "mM":
            raise InputError(
                "wrong-type",
                f"Column {name!r} holds times.",
                "Turn it into numbers, such as the hour or the days since some date, or leave it out.",
            )
    return frame_columns(frame.set_axis(names, axis=1), names)


def orders_of_frame(frame: Any) -> dict[str, tuple[Label, ...] | None]:
    """Of the columns that pandas calls categories, their order, or None if they have none."""
    kinds = {str(name): dtype for name, dtype in frame.dtypes.items() if hasattr(dtype, "categories")}
    return {name: tuple(dtype.categories.tolist()) if dtype.ordered else None for name, dtype in kinds.items()}


def learn_columns(table: Table, orders: Mapping[str, tuple[Label, ...] | None]) -> tuple[Column, ...]:
    """What the columns of a table in memory become; those with an entry in `orders` are said to be categories."""
    if isinstance(table, MatrixTable):
        return tuple(_number(name, values) for name, values in zip(table.names, table.matrix.T, strict=True))
    return tuple(_learn(name, values, orders) for name, values in table.items())


def _number(name: str, values: Values) -> Column:
    absent = np.isnan(values)
    missing = int(absent.sum())
    return Column(name).with_missing(len(values), missing, float(np.nansum(values, dtype=np.float64)) if missing else 0)


def _learn(name: str, values: Values, orders: Mapping[str, tuple[Label, ...] | None]) -> Column:
    if values.dtype.kind in "biuf":
        return _number(name, values)
    order = orders.get(name)
    labels = settle_labels(distinct_labels(values), untyped=False) if order is None else order
    if (
        name not in orders
        and len(labels) > FEW_CATEGORIES
        and (len(labels) > MOST_CATEGORIES or 2 * len(labels) > len(values))
    ):
        raise InputError(
            "over-limit",
            f"Column {name!r} has {len(labels):,} different texts in {len(values):,} rows, like an identifier.",
            "Leave it out, make it coarser, or say that these are categories with .astype('category').",
        )
    column = Column(name, "nominal" if order is None else "ordinal", labels)
    codes = label_codes(values, labels)
    known = codes[codes >= 0]
    return column.with_missing(len(values), int((codes == MISSING).sum()), 0.0 if order is None else float(known.sum()))


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
