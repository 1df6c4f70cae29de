"""Tables and arrays of other libraries, in memory.

Polars, Arrow, DuckDB and others hand their tables over as streams of Arrow's, by a protocol that asks for none of them
to be installed here. What is not in memory yet, as a lazy frame, is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protodask.data.arrays.values import refuse_masked
from protodask.data.format.schema import Label
from protodask.errors import InputError, ProtodaskError, count, named_twice, needed, refusing

STREAM = "__arrow_c_stream__"

PANDAS = b"pandas"


def in_pandas(rows: Any) -> Any:
    """A table of another library as a pandas frame; anything else, pandas frames among it, as it is.

    Of arrays and data sets of xarray, what they hold, see `out_of_xarray`.
    """
    rows = out_of_xarray(rows)
    refuse_lazy(rows)
    if not gives_table(rows) or library_of(rows) == "pandas":
        return rows
    table = arrow_table(rows)
    check_names(table.column_names, f"a {type(rows).__name__}")
    with needs_arrow(rows):
        plain = table.replace_schema_metadata(pandas_metadata(table.schema.metadata))
        for place, name in enumerate(table.column_names):
            if str(plain.column(place).type) == "null":  # of no value, so of numbers as well as of text
                plain = plain.set_column(place, name, plain.column(place).cast("float64"))
        return plain.to_pandas(types_mapper=exact_type)


def check_names(names: Sequence[str], table: str) -> None:
    """Refuse a table of which several columns have one name."""
    if named_twice(names):
        raise InputError("named-twice", f"Several columns of {table} have one name.", "Rename them.")


def exact_type(kind: Any) -> Any:
    """The type of pandas for one of Arrow's whose values would be rounded where some are missing; None for others."""
    return import_module("pandas").ArrowDtype(kind) if str(kind) in ("int64", "uint64") else None


def pandas_metadata(metadata: Mapping[bytes, bytes] | None, **replaced: Any) -> dict[bytes, bytes]:
    """What a table of Arrow's says of its columns to pandas, such as that numbers are categories.

    Left out are names of types that pandas does not read back: lists and dictionaries of Arrow's, say.
    """
    found = dict(metadata or {})
    if PANDAS in found:
        told = json.loads(found[PANDAS])
        columns = [
            column if _is_known(column.get("numpy_type")) else {**column, "numpy_type": "object"}
            for column in told.get("columns", ())
        ]
        found[PANDAS] = json.dumps({**told, "columns": columns, **replaced}).encode()
    return found


def _is_known(name: object) -> bool:
    """Whether pandas knows a type by its name."""
    try:
        import_module("pandas").api.types.pandas_dtype(name)
    except (TypeError, ValueError, NotImplementedError):
        return False
    return True


def in_frame(source: Any) -> Any:
    """A frame of a table of any library, and of a matrix of xarray whose columns have labels; else what it is."""
    names = column_labels(source)
    if names is None or not source.chunks:
        return in_pandas(source)
    with needed("Reading a matrix with labels needs dask's data frames.", "Install protodask[tabular], or give .data."):
        from dask.dataframe import from_dask_array
    return from_dask_array(source.data.rechunk({1: -1}), columns=names)


def gives_table(rows: object) -> bool:
    """Whether it gives a table as a stream of Arrow's: a column does so, too, but has a length and no columns."""
    return hasattr(rows, STREAM) and (
        any(hasattr(rows, name) for name in ("columns", "schema")) or not hasattr(rows, "__len__")
    )


def refuse_lazy(rows: Any) -> None:
    """Refuse a lazy frame."""
    if hasattr(rows, "collect_schema") and hasattr(rows, "collect"):
        raise InputError(
            "wrong-type",
            f"A {type(rows).__name__} has not been computed yet.",
            "Collect it before; where it is larger than memory, write it to Parquet files, and ingest these.",
        )


def library_of(value: object) -> str:
    """The package that the type of a value is of; pandas of those derived from a type of pandas, too."""
    packages = [kind.__module__.partition(".")[0] for kind in type(value).__mro__]
    return "pandas" if "pandas" in packages else packages[0]


def is_of_xarray(rows: object) -> bool:
    """Whether it is an array or a data set of xarray."""
    return library_of(rows) == "xarray" and hasattr(rows, "sizes")


def column_labels(rows: Any) -> list[str] | None:
    """The names of the columns of a matrix of xarray: the labels of its second dimension, if they are text."""
    is_array = is_of_xarray(rows) and not hasattr(rows, "data_vars")
    if not is_array or rows.ndim != 2 or rows.dims[1] not in rows.coords:
        return None
    labels: list[Any] = rows.coords[rows.dims[1]].values.tolist()
    if not all(isinstance(label, str) for label in labels):
        return None
    if named_twice(labels):
        raise InputError("named-twice", "Several columns of an array of xarray have one label.", "Rename them.")
    return labels


def out_of_xarray(rows: Any) -> Any:
    """What xarray holds: a frame of a data set, and of a matrix in memory whose columns have names; else what is behind
    an array, in memory or of dask.

    Anything that is not of xarray is as it is.
    """
    if not is_of_xarray(rows):
        return rows
    if not hasattr(rows, "data_vars"):
        names = None if rows.chunks else column_labels(rows)
        return rows.data if names is None else import_module("pandas").DataFrame(rows.data, columns=names)
    if any(variable.dims != tuple(rows.sizes) for variable in rows.data_vars.values()) or len(rows.sizes) != 1:
        raise InputError(
            "wrong-shape",
            f"The variables of a data set are along the dimensions {', '.join(map(str, rows.sizes))}.",
            "Give a table: variables along one dimension, such as those of .stack(row=[...]).",
        )
    if rows.chunks:
        raise InputError(
            "wrong-type", "A data set has not been computed yet.", "Give .to_dask_dataframe(), or compute it before."
        )
    return rows.reset_coords(drop=True).to_dataframe()


def data_set_like(rows: Any, values: Mapping[str, NDArray[Any]], classes: Sequence[Label]) -> Any:
    """A data set of xarray of what is said of rows of xarray, (N,) or (N, K), with the coordinates that they have."""
    dimension = next(iter(rows.sizes))
    said = {name: values for name, values in rows.coords.items() if values.dims == (dimension,)}
    if twice := [name for name in ("class", *values) if name in (dimension, *said)]:
        raise InputError(
            "named-twice",
            f"The rows have a coordinate {twice[0]!r}, and so have predictions.",
            f"Give it another name: rows.rename({{{twice[0]!r}: ...}}).",
        )
    named = {name: ((dimension, "class")[: found.ndim], found) for name, found in values.items()}
    return import_module("xarray").Dataset(named, said | {"class": list(classes)})


def column_values(values: Any) -> Any:
    """Labels, weights or groups: those of other libraries, or of a table with a single column, as they are in NumPy.

    So are those of pandas' own types, unless some are missing: scikit-learn would make floats of whole numbers, and one
    class of two beyond 2**53. Others of pandas, dask and NumPy stay as they are, and so do lists; masked ones are
    refused.
    """
    values = out_of_xarray(values)
    refuse_lazy(values)
    refuse_masked("labels, weights or groups", values)
    if library_of(values) == "pandas":
        kinds = getattr(values, "dtypes", None) if np.ndim(values) == 2 else [getattr(values, "dtype", None)]
        plain = kinds is None or all(isinstance(kind, np.dtype) for kind in kinds)
        return values if plain or np.any(values.isna()) else np.asarray(values)
    if not any(hasattr(values, name) for name in (STREAM, "__arrow_c_array__")):
        return values
    if gives_table(values):
        table = arrow_table(values)
        if table.num_columns != 1:
            raise InputError(
                "wrong-shape",
                f"A {type(values).__name__} of {count(table.num_columns, 'column')} is given for a value of each row.",
                "Give the column alone.",
            )
        values = table.column(0)
    return np.asarray(decoded(values))


def decoded(column: Any) -> Any:
    """A column of categories of Arrow's as one of what they are; anything else as it is.

    As an array, one in chunks would have its last category where one is missing.
    """
    kind: Any = getattr(column, "type", None)
    return column.cast(kind.value_type) if hasattr(kind, "index_type") else column


def array_of_names(values: Any) -> NDArray[Any]:
    """Some groups, or other names that rows have, as an array: whole numbers of a list as they are, also where NumPy
    would round them to float64.
    """
    found = np.asarray(values)
    if found.dtype.kind == "f" and not hasattr(values, "dtype"):
        listed = np.asarray(values, dtype=object)
        if all(isinstance(value, int | np.integer) for value in listed.flat):
            return listed
    return found


def refuse_ungrouped(groups: Any, row: str) -> None:
    """Refuse groups of rows, or of what is called otherwise here, of which one is missing."""
    if any_missing(groups):
        raise InputError(
            "bad-value", f"{row} has no group.", "Give each a group; one that belongs to no other needs its own."
        )


def any_missing(values: Any) -> bool:
    """Whether one of some groups, or of other names that rows have, is masked, None, NaN, or pandas' NA or NaT."""
    if np.ma.is_masked(values):
        return True
    # A list of text and NaN is looked at as it is: as an array it would be text.
    found = np.asarray(values, dtype=None if hasattr(values, "dtype") else object)
    if found.dtype.kind == "O":
        return any(map(_is_missing, found.flat))
    return found.dtype.kind in "fcmM" and bool((found != found).any())


def _is_missing(value: Any) -> bool:
    try:
        return value is None or bool(value != value)
    except TypeError:  # pandas.NA is neither equal to itself nor not
        return True


def arrow_table(rows: Any) -> Any:
    """A table that gives itself away as a stream of Arrow's, as an Arrow table."""
    reader = arrow_reader(rows)
    with stream_errors(type(rows).__name__):
        return reader.read_all()


def arrow_reader(rows: Any) -> Any:
    """A reader of the batches of a table that gives itself away as a stream of Arrow's."""
    with needs_arrow(rows):
        import pyarrow
    if isinstance(rows, pyarrow.RecordBatchReader):  # what comes from Python raises its own errors, such as Ctrl-C
        return rows
    name = type(rows).__name__
    no_table = f"A {name} is no table, or has columns that Arrow does not know"
    remedy = "Give a table, with columns of numbers or text."
    with stream_errors(name), refusing(pyarrow.ArrowInvalid, "wrong-type", no_table, remedy):
        return pyarrow.RecordBatchReader.from_stream(rows)


@contextmanager
def stream_errors(name: str) -> Iterator[None]:
    """Say of what a stream could not be read, whoever gives it and whatever Arrow makes of it."""
    try:
        yield
    except ProtodaskError:
        raise
    except Exception as error:
        raise InputError("unreadable", f"A {name} could not be read ({error}).", "Repeat its query.") from error


def needs_arrow(rows: Any) -> AbstractContextManager[None]:
    """Say what reading such a table needs, where that is not installed."""
    return needed(
        f"Reading a {type(rows).__name__} needs pyarrow and pandas.",
        "Install protodask[tabular], or give the columns as arrays.",
    )
