"""Tables from data frames of pandas and of Dask; partitions are read as NumPy arrays.

Both are optional and imported where they are used.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property, partial
from numbers import Real
from typing import Any

import numpy as np

from protodask.data.arrays.row_arrays import PARTITION_ROWS, check_beside, even_edges, refuse_futures, with_lengths
from protodask.data.tables.encoding import BOOLEANS, KeptTable, Table, Values, label_of
from protodask.data.tables.frames import check_names
from protodask.data.tables.kept_columns import NOTHING_KEPT, Kept, kept_of_frame
from protodask.data.tables.tables import Partitions
from protodask.engine.lazy import as_array, check_columns, in_one_order, is_lazy, lowered
from protodask.errors import InputError, ProtodaskError, StorageError


def pandas_table(frame: Any, dropped: Iterable[str], kept: Kept = NOTHING_KEPT) -> Partitions:
    """A pandas data frame in memory as a table."""
    frame, left_out = _named(frame, dropped)
    names = tuple(frame.columns)
    pieces = tuple(itertools.pairwise(even_edges(len(frame), PARTITION_ROWS)))
    read = partial(_read_rows, frame, names, kept)
    numbers, valueless = _plain_objects(frame)
    text = text_columns(frame) - numbers - valueless
    return Partitions(names, text, pieces, read, left_out, resident=True, valueless=valueless)


def _read_rows(frame: Any, names: Sequence[str], kept: Kept, rows: tuple[int, int]) -> Table:
    return partition_columns(frame.iloc[slice(*rows)], names, kept, untyped=False)


NUMBERS = (Real, Decimal, np.bool_)
"""Types of numbers and truth values; NumPy takes durations for such, too."""


def _plain_objects(frame: Any) -> tuple[frozenset[str], frozenset[str]]:
    """Columns of objects that are numbers or truth values, and those without any value.

    pandas has objects where some truth values are missing, and where decimals come from Arrow. From files they are read
    as numbers, too.
    """
    from pandas.api.types import is_object_dtype

    objects = [name for name, dtype in frame.dtypes.items() if is_object_dtype(dtype)]
    numbers = frozenset(name for name in objects if hold_numbers(frame[name].dropna().tolist()))
    return numbers, frozenset(name for name in objects if not frame[name].notna().any())


def hold_numbers(items: Sequence[Any]) -> bool:
    """Whether objects are numbers or truth values, decimals and fractions among them, but for what is missing."""
    kinds = set(map(type, items))
    others = {kind for kind in kinds if issubclass(kind, np.timedelta64) or not issubclass(kind, NUMBERS)}
    if any(label_of(item) is not None for item in items if type(item) in others):
        return False
    return any(label_of(item) is not None for item in items)


def dask_table(frame: Any, dropped: Iterable[str], kept: Kept = NOTHING_KEPT) -> Partitions:
    """A dask data frame as a table; it stays lazy."""
    frame, left_out = _named(frame, dropped)
    names, lazy = tuple(frame.columns), _lazy_frame(frame)
    # Dask may read several files as one partition: how many there are is known once it has worked out what to do.
    partitions = range(len(lazy.lowered[1]))
    return Partitions(names, text_columns(frame), partitions, partial(_read_computed, lazy, names, kept), left_out)


def _lazy_frame(frame: Any) -> _LazyFrame:
    """A dask data frame to be read partition by partition."""
    operands = (operand for expression in frame.expr.walk() for operand in expression.operands)
    refuse_futures(operand for operand in operands if isinstance(operand, dict))
    return _LazyFrame(frame)


def _read_computed(frame: _LazyFrame, names: Sequence[str], kept: Kept, partition: int) -> Table:
    from protodask.engine.graph import compute_key

    try:
        graph, keys = frame.lowered
        found = compute_key(graph, keys[partition])
    except ProtodaskError:
        raise
    except OSError as error:
        raise StorageError(
            "unreadable", f"A table could not be read ({error}).", "Check the files and repeat."
        ) from error
    except ValueError as error:
        raise InputError("unreadable", f"A table could not be read ({error}).", "Check the file.") from error
    check_columns(found, names)
    return partition_columns(found, names, kept, untyped=False)


def are_numbers(dtypes: Iterable[Any]) -> bool:
    """Whether the columns of a data frame with these types are all numbers or truth values."""
    return all(getattr(dtype, "kind", "O") in "biuf" and not hasattr(dtype, "categories") for dtype in dtypes)


def values_array(values: Any) -> Any:
    """Numbers or labels of pandas, in memory or of dask, as an array; anything else as it is."""
    if not hasattr(values, "to_numpy") and not hasattr(values, "to_dask_array"):
        return values
    matrix = values.ndim == 2
    kinds = list(values.dtypes) if matrix else [values.dtype]
    if not all(isinstance(kind, np.dtype) for kind in kinds) or len({kind.kind == "b" for kind in kinds}) > 1:
        # pandas' own types, or truth values beside numbers: a matrix of them becomes floats, missing ones NaN; labels
        # keep what they are.
        values = values.astype("float64" if matrix and are_numbers(kinds) else object)
    return as_array(values) if is_lazy(values) else values.to_numpy()


def frame_beside(frame: Any, names: Sequence[str], arrays: Mapping[str, Any]) -> Any:
    """A dask data frame whose columns get these names, with further columns: arrays of as many values, row by row."""
    import dask.array
    from pandas.api.types import is_object_dtype

    _lazy_frame(frame)  # none that was persisted on a cluster
    frame = in_one_order(frame)
    objects = [name for name, dtype in zip(names, frame.dtypes, strict=True) if is_object_dtype(dtype)]
    frame = frame.rename(columns=dict(zip(frame.columns, names, strict=True)))
    if objects:
        frame = frame.map_partitions(_refuse_objects, objects, meta=frame._meta)
    lengths = tuple(int(rows) for rows in frame.map_partitions(len).compute())
    for name, values in arrays.items():
        held = values if is_lazy(values) else dask.array.from_array(np.asarray(values), chunks=-1)
        beside = with_lengths(held)
        check_beside(f"array {name!r}", beside.shape, sum(lengths))
        with dask.config.set({"dataframe.convert-string": False}):  # numbers among objects would become text
            frame = frame.assign(**{name: beside.rechunk((lengths,))})
    return frame


def text_alone(rows: Any) -> Any:
    """Rows (N, D); objects of dask's are refused unless they are text, when they are read: numbers were categories."""
    if not is_lazy(rows) or rows.dtype.kind != "O":
        return rows
    names = [f"x{number}" for number in range(rows.shape[1])]

    def refused(block: Any) -> Any:
        from pandas import DataFrame

        _refuse_objects(DataFrame(block, columns=names), names)
        return block

    return rows.rechunk({1: -1}).map_blocks(refused, dtype=rows.dtype, meta=rows._meta)


def _refuse_objects(frame: Any, names: Sequence[str]) -> Any:
    for name in names:
        known = frame[name].dropna()
        if not all(isinstance(value, str) for value in known):
            raise InputError(
                "wrong-type",
                f"Column {name!r} holds objects that are not all text.",
                "Say what they are before: .astype(float), .astype(str) or .astype('category').",
            )
    return frame


def _named(frame: Any, dropped: Iterable[str]) -> tuple[Any, frozenset[str]]:
    """A frame with text for names and without some columns, and those of these that it had."""
    names = [str(name) for name in frame.columns]
    check_names(names, "a data frame")
    if names != list(frame.columns):
        frame = frame.rename(columns=dict(zip(frame.columns, names, strict=True)))
    left_out = frozenset(dropped).intersection(names)
    return frame[[name for name in names if name not in left_out]], left_out


def text_columns(frame: Any) -> frozenset[str]:
    """Columns of a data frame that are neither numbers nor truth values."""
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    return frozenset(
        name for name, dtype in frame.dtypes.items() if not (is_numeric_dtype(dtype) or is_bool_dtype(dtype))
    )


def partition_columns(
    frame: Any, names: Sequence[str], kept: Kept, untyped: bool, flags: frozenset[str] = frozenset()
) -> Table:
    """The columns of a pandas frame, with those that are handed on. Text in `flags` is read as truth values."""
    used = [name for name in names if name not in kept.alone] if kept.names else names
    found = frame_columns(frame, used)
    for name in flags.intersection(used):
        if found[name].dtype.kind == "O":  # read as text, since there is a value in some column that belies its type
            values = [BOOLEANS.get(text.lower(), text) if isinstance(text, str) else text for text in found[name]]
            found[name] = np.array(values, dtype=object)
    return KeptTable(found, kept_of_frame(frame, kept, untyped)) if kept.names else found


def frame_columns(frame: Any, names: Sequence[str]) -> dict[str, Values]:
    """The columns of a pandas frame: numbers as numbers with NaN, all else as objects with None where missing.

    So are truth values, and numbers that NaN would round, where some are missing.
    """
    return {name: _column_values(frame[name]) for name in names}


def _column_values(series: Any) -> Values:
    dtype = series.dtype
    if isinstance(dtype, np.dtype) and dtype.kind in "biuf":
        return np.asarray(series.to_numpy())
    if getattr(dtype, "kind", "O") in "biuf" and hasattr(dtype, "na_value") and not hasattr(dtype, "categories"):
        if not series.hasnans:
            return np.asarray(series.to_numpy(dtype=np.dtype(getattr(dtype, "numpy_dtype", "float64"))))
        numbers = np.asarray(series.to_numpy(dtype="float64", na_value=np.nan))
        # Categories may be truth values, or whole numbers of which rounding would make one.
        if dtype.kind == "f" or (dtype.kind != "b" and not (np.abs(numbers) >= 2**53).any()):
            return numbers
    objects = series.astype(object)
    return np.asarray(objects.where(objects.notna(), None).to_numpy(dtype=object))


@dataclass(frozen=True)
class _LazyFrame:
    """A dask data frame; each process that reads partitions of it makes their graph once, and has it no longer than
    the frame, of which the data may be in it.
    """

    frame: Any

    def __reduce__(self) -> tuple[Any, ...]:
        return _LazyFrame, (self.frame,)

    @property
    def lowered(self) -> tuple[dict[Any, Any], list[Any]]:
        """The graph, and the keys of the partitions."""
        with _lowering:  # once, however many threads wait for it
            return self._lowered

    @cached_property
    def _lowered(self) -> tuple[dict[Any, Any], list[Any]]:
        return lowered(self.frame)


_lowering = threading.Lock()
