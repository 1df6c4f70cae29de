"""What a model says of a table, as a table of its kind.

Methods that are scikit-learn's give arrays of NumPy whatever the rows are, since its tools take columns of what they
get as those of arrays. Here a data frame of pandas or Polars and a table of Arrow become such a one, rows of xarray a
data set of it, and what else comes as a stream of Arrow's becomes a stream, which need not fit into memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protodask.data.format.schema import Label
from protodask.data.tables.frames import (
    STREAM,
    arrow_reader,
    column_labels,
    data_set_like,
    is_of_xarray,
    library_of,
    out_of_xarray,
    refuse_lazy,
)
from protodask.data.tables.kept_columns import check_kept_there
from protodask.engine.lazy import is_lazy, map_rows
from protodask.engine.records import Floats
from protodask.errors import InputError, named_twice
from protodask.prototypes.prediction_columns import (
    FAMILIARITY,
    PREDICTED,
    PROBABILITY,
    ROW,
    check_kept_names,
    prediction_columns,
)
from protodask.scoring.rows import by_name

BATCH_ROWS = 65_536
"""Rows of a stream that are scored at a time; larger batches are cut."""


@dataclass(frozen=True)
class TableScorer:
    """Makes tables of predictions of tables."""

    answers: Callable[[Any, int], tuple[Floats, Floats]]
    """Of rows, and the number of the first: probabilities (N, K) and familiarity (N,)."""
    wanted: Callable[[Sequence[str]], list[str]]
    """Of the columns that a table has, those that it is answered by."""
    classes: tuple[Label, ...]
    labels: NDArray[Any]
    """The classes as an array."""
    keep: tuple[str, ...]

    def score(self, rows: Any) -> Any:
        """The predictions of a table, of its kind."""
        check_kept_names(self.keep)
        refuse_lazy(rows)
        if is_of_xarray(rows):
            return self._of_xarray(rows)
        library = library_of(rows)
        if library in ("pandas", "polars") and hasattr(rows, "columns"):
            found = self._columns(rows, self._wanted([str(name) for name in rows.columns]), 0)
            if library == "polars":
                return type(rows)(found)
            import pandas

            return pandas.DataFrame({name: _plain(values) for name, values in found.items()}, rows.index)
        if not hasattr(rows, STREAM):
            raise InputError(
                "wrong-type",
                f"A {type(rows).__name__} is no table.",
                "Give a data frame in memory or an Arrow stream, or have predict_proba, which takes rows of any kind.",
            )
        scored = self._of_stream(rows)
        return scored.read_all() if hasattr(rows, "num_rows") else scored

    def _wanted(self, names: Sequence[str]) -> list[str]:
        """The columns of a table with these that the model looks at."""
        check_kept_there(self.keep, names)
        if twice := [name for name in named_twice(names) if name in self.keep]:
            raise InputError("named-twice", f"The table has several columns {twice[0]!r}, to be kept.", "Rename them.")
        return self.wanted(names)

    def _columns(self, table: Any, wanted: Sequence[str], first_row: int) -> dict[str, Any]:
        """The columns of `protodask.predict` of a table that gives its columns by name."""
        given = by_name(table) or {}
        probability, evidence = self.answers({name: given[name] for name in wanted}, first_row)
        codes = probability.argmax(axis=1)
        found = {PROBABILITY: probability, FAMILIARITY: evidence, PREDICTED: codes}
        columns = prediction_columns(self.classes, first_row, found)
        return {ROW: columns.pop(ROW), **{name: given[name] for name in self.keep}, **columns}

    def _of_stream(self, rows: Any) -> Any:
        reader = arrow_reader(rows)
        import pyarrow

        wanted = self._wanted(reader.schema.names)
        schema = pyarrow.table(self._columns(reader.schema.empty_table(), wanted, 0)).schema

        def batches() -> Iterator[Any]:
            start = 0
            for batch in reader:
                for first in range(0, batch.num_rows, BATCH_ROWS):
                    part = batch.slice(first, BATCH_ROWS)
                    yield pyarrow.record_batch(self._columns(part, wanted, start), schema=schema)
                    start += part.num_rows

        return pyarrow.RecordBatchReader.from_batches(schema, batches())

    def _of_xarray(self, rows: Any) -> Any:
        if self.keep:
            raise InputError(
                "settings-conflict",
                "Columns of rows of xarray are to be kept, which keep their coordinates.",
                "Leave keep out; make coordinates of further variables: rows.set_coords(...).",
            )
        names = column_labels(rows)
        values = out_of_xarray(rows) if names is None else rows.sel({rows.dims[1]: self._wanted(names)}).data
        if values.ndim != 2:
            raise InputError(
                "wrong-shape",
                f"An array of {values.ndim} dimensions is no table: {', '.join(map(str, rows.sizes)) or 'none'}.",
                "Give rows and columns: .stack(row=[...]) makes one dimension of several, .expand_dims a row of one.",
            )
        if is_lazy(values):
            joined = map_rows(values, partial(_joined, self.answers), len(self.classes) + 1, np.float64)
            probability, evidence = joined[:, :-1], joined[:, -1]
            predicted = probability.argmax(axis=1).map_blocks(self.labels.take, dtype=self.labels.dtype)
        else:
            probability, evidence = self.answers(values, 0)
            predicted = self.labels[probability.argmax(axis=1)]
        found = {PREDICTED: predicted, FAMILIARITY: evidence, PROBABILITY: probability}
        return data_set_like(rows, found, self.classes)


def _joined(answers: Callable[[Any, int], tuple[Floats, Floats]], rows: Any) -> Floats:
    return np.column_stack(answers(rows, 0))


def _plain(values: Any) -> Any:
    """A column of Arrow's or pandas' as pandas has it, without its index; any other as it is."""
    values = values.to_pandas() if library_of(values) == "pyarrow" else values
    return getattr(values, "array", values)
