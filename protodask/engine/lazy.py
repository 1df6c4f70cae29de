"""Dask collections from the outside: recognise them, and map rows of them without computing anything."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import dask
import numpy as np
from numpy.typing import NDArray

from protodask.engine.blas import one_blas_thread
from protodask.errors import refusing

RowFunction = Callable[[Any], NDArray[Any]]


def _on_one_thread(function: RowFunction, rows: Any) -> NDArray[Any]:
    with one_blas_thread():
        return function(rows)


def is_lazy(value: object) -> bool:
    """Whether a value is a Dask collection."""
    return hasattr(value, "__dask_graph__")


_ordering = threading.RLock()


@contextmanager
def same_order() -> Iterator[None]:
    """Where Dask works out how a data frame is computed: its rows have one order whenever they are read.

    What Dask shuffles by disk, or between workers, comes in another order each time, so that rows and labels that are
    read one after the other would not go together.
    """
    with _ordering, dask.config.set({"dataframe.shuffle.method": "tasks"}):
        yield


def as_array(values: Any) -> Any:
    """A dask data frame or series as an array with a chunk for each partition, of a length that is not known yet.

    Anything else is as it is.
    """
    if not hasattr(values, "to_dask_array"):
        return values
    with same_order():
        return values.to_dask_array()


def computed(value: Any) -> Any:
    """What a dask collection is, with the rows of a data frame in that order; anything else as it is."""
    if hasattr(value, "to_dask_array"):
        with same_order():
            value = value.optimize()
    return value.compute() if is_lazy(value) else value


def map_rows(collection: Any, function: RowFunction, n_columns: int, dtype: Any) -> Any:
    """`function` on the rows of a dask array or dataframe, lazily: (N, D) -> (N, n_columns).

    It is given arrays or pandas frames. The result is a dask array with the chunks of the rows; chunk lengths that are
    not known stay unknown.
    """
    rows, called = collection, partial(_on_one_thread, function)
    meta = np.empty((0, n_columns), dtype=dtype)
    if hasattr(rows, "to_dask_array"):
        with same_order():
            return rows.map_partitions(called, meta=meta)
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
