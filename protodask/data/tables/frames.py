"""Data frames of other libraries, in memory.

Polars, Arrow, DuckDB and others hand their tables over as streams of Arrow's, by a protocol that asks for none of them
to be installed here. What is not in memory yet, as a lazy frame, is refused.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from protodask.errors import InputError, needed

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
    table = arrow_table(rows)
    with _libraries(rows):
        return table.to_pandas()


def without_labels(array: Any) -> Any:
    """The array behind one of xarray, be it in memory or of dask; anything else as it is."""
    is_labelled = type(array).__module__.partition(".")[0] == "xarray" and hasattr(array, "dims")
    return array.data if is_labelled and hasattr(array, "data") else array


def arrow_table(rows: Any) -> Any:
    """A table that gives itself away as a stream of Arrow's, as an Arrow table."""
    with _libraries(rows):
        import pyarrow

        return pyarrow.table(rows)


def _libraries(rows: Any) -> AbstractContextManager[None]:
    return needed(
        f"Reading a {type(rows).__name__} needs pyarrow and pandas.",
        "Install protodask[tabular], or give the columns as arrays.",
    )
