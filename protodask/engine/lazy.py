"""Dask collections from the outside: recognise them, and map rows of them without computing anything.

Light to import: who has a collection has imported Dask.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protodask.engine.blas import one_blas_thread
from protodask.errors import InputError, refusing, some

RowFunction = Callable[[Any], NDArray[Any]]


def _on_one_thread(function: RowFunction, rows: Any) -> NDArray[Any]:
    with one_blas_thread():
        return function(rows)


def is_lazy(value: object) -> bool:
    """Whether a value is a Dask collection."""
    return hasattr(value, "__dask_graph__")


_lowering = threading.RLock()


def lowered(frame: Any) -> tuple[dict[Any, Any], list[Any]]:
    """The graph of a dask data frame or series, and the keys of its partitions: rows have one order whenever they are
    read, and whichever columns are.

    What Dask shuffles by disk, or between workers, comes in another order each time, and where it reads several files
    as one partition depends on the columns that are used: rows and labels that are read one after the other would not
    go together.
    """
    from dask import config
    from dask._expr import optimize_until
    from dask.dataframe import DataFrame

    from protodask.engine.graph import graph_of

    for expression in frame.expr.walk():
        for name, operand in zip(expression._parameters, expression.operands, strict=False):
            if name in ("method", "shuffle_method") and operand in ("disk", "p2p"):
                raise InputError(
                    "unsupported",
                    f"A dask data frame is shuffled by {operand!r}, which has another order of rows at each reading.",
                    'Shuffle it by tasks (shuffle_method="tasks", or dataframe.shuffle.method in the configuration of '
                    "Dask), or write it to files and read these.",
                )
    with _lowering, config.set({"dataframe.shuffle.method": "tasks"}):
        found = optimize_until(frame.expr, "simplified-logical").lower_completely().fuse()
        collection = DataFrame(found)
        return graph_of(collection), list(collection.__dask_keys__())


def in_one_order(frame: Any) -> Any:
    """A dask data frame or series in these partitions, of which Dask works nothing out anew; as it is where its rows
    are results on a cluster.
    """
    from dask.dataframe import from_graph

    operands = (operand for expression in frame.expr.walk() for operand in expression.operands)
    parts = (part for operand in operands if isinstance(operand, dict) for part in operand.values())
    if not any(type(part).__module__.partition(".")[0] == "distributed" for part in parts):
        meta, (graph, keys) = frame._meta, lowered(frame)
        frame = from_graph(graph, meta, (None,) * (len(keys) + 1), keys, "rows")
    if frame.ndim == 1:
        return frame
    return frame.map_partitions(_with_columns, frame._meta.columns, meta=frame._meta, enforce_metadata=False)


def _with_columns(rows: Any, columns: Any) -> Any:
    """A partition with the columns of the frame in their order: Dask takes what files or functions give as it is."""
    if rows.columns.equals(columns):
        return rows
    check_columns(rows, columns)
    return rows[list(columns)] if columns.is_unique else rows


def check_columns(rows: Any, names: Iterable[Any]) -> None:
    """Refuse a partition without some columns that the frame has."""
    if lacking := [name for name in names if name not in rows.columns]:
        raise InputError(
            "columns-differ",
            f"A partition of a dask data frame lacks columns that the frame has: {some(lacking)}.",
            "Give all partitions the same columns.",
        )


def as_array(values: Any) -> Any:
    """A dask data frame or series as an array with a chunk for each partition, of a length that is not known yet.

    Anything else is as it is.
    """
    return in_one_order(values).to_dask_array() if hasattr(values, "to_dask_array") else values


def computed(value: Any) -> Any:
    """What a dask collection is, with the rows of a data frame in that order; anything else as it is."""
    found = in_one_order(value) if hasattr(value, "to_dask_array") else value
    return found.compute() if is_lazy(found) else found


def map_rows(collection: Any, function: RowFunction, n_columns: int, dtype: Any) -> Any:
    """`function` on the rows of a dask array or dataframe, lazily: (N, D) -> (N, n_columns).

    It is given arrays or pandas frames. The result is a dask array with the chunks of the rows; chunk lengths that are
    not known stay unknown.
    """
    rows, called = collection, partial(_on_one_thread, function)
    meta = np.empty((0, n_columns), dtype=dtype)
    if hasattr(rows, "to_dask_array"):
        return in_one_order(rows).map_partitions(called, meta=meta)
    if rows.ndim != 2:
        raise ValueError(f"expected a 2-dimensional array of rows and features, got {rows.ndim} dimensions")
    if rows.numblocks[1] > 1:
        rows = rows.rechunk({1: -1})
    return rows.map_blocks(called, dtype=dtype, chunks=(rows.chunks[0], (n_columns,)), meta=meta)


def map_values(function: Callable[..., NDArray[Any]], *arrays: Any, dtype: Any) -> Any:
    """`function` of the values of arrays that broadcast against each other, lazily; at least one is a collection."""
    from dask.array.core import elemwise

    values = list(map(as_array, arrays))
    remedy = "Give arrays of the same lengths; lengths that are not known yet have to be so in all of them."
    with refusing(ValueError, "wrong-shape", "The arrays do not go together", remedy):
        return elemwise(function, *values, dtype=dtype)
