"""Data frames of other libraries, in memory.

Polars, Arrow, DuckDB and others hand their tables over as streams of Arrow's, by a protocol that asks for none of them
to be installed here. What is not in memory yet, as a lazy frame, is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from protodask.errors import InputError

STREAM = "__arrow_c_stream__"


def in_pandas(rows: Any) -> Any:
    """A table of another library as a pandas frame; anything else, pandas frames among it, as it is.

    Of arrays of xarray, what they hold.
    """
    rows = without_labels(rows)
    if hasattr(rows, "collect_schema") and hasattr(rows, "collect"):
        raise InputError(
            "wrong-type",
            f"A {type(rows).__name__} has not been computed yet.",
            "Collect it before, or write it to Parquet files and give these, where it is larger than memory.",
        )
    is_table = any(hasattr(rows, name) for name in ("columns", "schema"))
    if not hasattr(rows, STREAM) or not is_table or type(rows).__module__.partition(".")[0] == "pandas":
        return rows
    return _with_libraries(rows, lambda: arrow_table(rows).to_pandas())


def without_labels(array: Any) -> Any:
    """The array behind one of xarray, be it in memory or of dask; anything else as it is."""
    is_labelled = type(array).__module__.partition(".")[0] == "xarray" and hasattr(array, "dims")
    return array.data if is_labelled and hasattr(array, "data") else array


def arrow_table(rows: Any) -> Any:
    """A table that gives itself away as a stream of Arrow's, as an Arrow table."""

    def made() -> Any:
        import pyarrow

        return pyarrow.table(rows)

    return _with_libraries(rows, made)


def _with_libraries(rows: Any, make: Callable[[], Any]) -> Any:
    try:
        return make()
    except ImportError as error:
        raise InputError(
            "package-missing",
            f"Reading a {type(rows).__name__} needs pyarrow and pandas ({error}).",
            "Install protodask[tabular], or give the columns as arrays.",
        ) from error
