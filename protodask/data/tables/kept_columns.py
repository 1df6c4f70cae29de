"""Columns of raw tables that are handed on as they are: ids, times and the like, of any type.

They travel with the blocks of their rows as the bytes of an Arrow stream, which keeps every type and is as small as the
values are. pyarrow is optional and imported where it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protodask.engine import Arrays
from protodask.errors import InputError, named_twice, needed, some

KEPT = "kept"
"""The array of a block that holds the stream (bytes,), whatever the number of rows."""

KEPT_COPIES = 2
"""How often the values of a block that are handed on are in memory at a time: blocks are the smaller for it."""


@dataclass(frozen=True)
class Kept:
    """Which columns are handed on."""

    names: tuple[str, ...]
    numbers: frozenset[str] = frozenset()
    """Those that are numeric features, too: in CSV files, which know no types, they are numbers, all others text."""
    alone: frozenset[str] = frozenset()
    """Those that are nothing else, so that nothing else need be made of them."""

    @property
    def texts(self) -> tuple[str, ...]:
        """Those that are read as text from CSV files."""
        return tuple(name for name in self.names if name not in self.numbers)


NOTHING_KEPT = Kept(())


def require_pyarrow() -> None:
    """Refuse to hand columns on where that cannot work, before any work is done."""
    with needed("Keeping columns needs pyarrow, which is not installed.", "Install protodask[tabular], or keep none."):
        import pyarrow  # noqa: F401 - asked for before any work is done


def check_kept_names(names: Sequence[str], is_own: Callable[[str], bool], what: str) -> None:
    """Refuse to keep a column twice, or under a name that is one of their own to `what` is written."""
    for name in names:
        if is_own(name):
            raise InputError(
                "named-twice",
                f"Column {name!r} is to be kept, and {what} have a column of that name.",
                "Give the column of the tables another name, or do not keep it.",
            )
    if twice := named_twice(names):
        raise InputError("named-twice", f"Column {twice[0]!r} is to be kept twice.", "Name it once.")


def check_kept_there(kept: Sequence[str], present: Sequence[str], table: str = "The table") -> None:
    """Refuse a table of these columns that lacks one to keep."""
    for name in kept:
        if name not in present:
            raise InputError(
                "column-missing", f"{table} lacks {name!r}, a column to keep.", f"Its columns are {some(present)}."
            )


def kept_of_frame(frame: Any, kept: Kept, untyped: bool) -> Any:
    """The columns of a pandas frame that are handed on, as an Arrow table; `untyped` ones are text or numbers."""
    import pyarrow

    check_kept_there(kept.names, list(frame.columns))
    columns: dict[str, Any] = {}
    for name in kept.names:
        values, wanted = frame[name], None
        if untyped:
            wanted = pyarrow.float64() if name in kept.numbers else pyarrow.string()
            values = values.astype("float64") if name in kept.numbers else values
        columns[name] = _column(values, name, wanted)  # text of pandas' own type stays large where it was
    return pyarrow.table(columns)


def kept_of_arrays(arrays: Mapping[str, NDArray[Any]]) -> Any:
    """Arrays (n,) as an Arrow table."""
    import pyarrow

    return pyarrow.table({name: _column(values, name, None) for name, values in arrays.items()})


def _column(values: Any, name: str, wanted: Any) -> Any:
    """Values as they are handed on: parts of a table are to be of one type, however they were read."""
    import pyarrow

    try:
        found = pyarrow.array(values, type=wanted, from_pandas=True)
    except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError, pyarrow.ArrowNotImplementedError) as error:
        raise InputError(
            "wrong-type",
            f"Column {name!r} cannot be kept: its values are of no one type ({str(error).splitlines()[0]}).",
            "Give it values of one type, or keep another column.",
        ) from error
    plain = pyarrow.chunked_array([found]) if isinstance(found, pyarrow.Array) else found
    return plain.cast(kept_type(plain.type))


def kept_type(given: Any) -> Any:
    """The Arrow type in which values are handed on: of categories that of their values, for all text one."""
    from pyarrow import string, types

    found = given.value_type if types.is_dictionary(given) else given
    return string() if types.is_null(found) or types.is_large_string(found) else found


def pack(tables: Sequence[Any]) -> NDArray[np.uint8]:
    """Arrow tables, one after the other, as bytes (n,)."""
    import pyarrow

    for table in tables[1:]:
        for ours, theirs in zip(tables[0].schema, table.schema, strict=True):
            if ours.type != theirs.type:
                raise different_types(ours.name, ours.type, theirs.type)
    joined = pyarrow.concat_tables(tables)
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, joined.schema) as stream:
        stream.write_table(joined)
    return np.frombuffer(sink.getvalue(), dtype=np.uint8)


def unpack(packed: NDArray[np.uint8]) -> Any:
    """The Arrow table that was packed."""
    import pyarrow

    return pyarrow.ipc.open_stream(pyarrow.py_buffer(packed)).read_all()


def kept_of_block(arrays: Arrays) -> dict[str, Any]:
    """The columns that travel with a block, by name; none if it has none."""
    if KEPT not in arrays:
        return {}
    table = unpack(arrays[KEPT])
    return dict(zip(table.column_names, table.columns, strict=True))


def different_types(name: str, one: object, other: object) -> InputError:
    """The error of a column to be kept that has two types."""
    return InputError(
        "wrong-type",
        f"Column {name!r}, which is to be kept, holds values of type {one} in one table and {other} in another.",
        "Give tables whose columns are of the same types, or take them one by one.",
    )
