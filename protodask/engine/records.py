"""Frozen dataclasses of numbers and arrays as a whole: some of their rows, several one after the other, their sums."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

Record = TypeVar("Record")

Table = TypeVar("Table", bound="DataclassInstance")
"""A record of arrays with a row for each sample or the like, of other such records, and of what they have in common."""


def merged_by(merge: Callable[[Any, Any], Any]) -> Mapping[str, Any]:
    """The metadata of a field that `add_records` merges by this instead of adding it up: the smallest, the last."""
    return {"merge": merge}


def add_records(left: Record, right: Record) -> Record:
    """The `merge` of dataclasses whose fields are sums: numbers, arrays, sets, and tuples, mappings, records of these.

    A record that has an addition of its own is added by that, a field that is `merged_by` something by that. What is
    None in either is None; what a mapping has that the other has not stays.
    """
    return cast("Record", _added(left, right))


def _added(left: Any, right: Any) -> Any:
    if left is None or right is None:
        return None
    if isinstance(left, tuple):
        return tuple(map(_added, left, right))
    if isinstance(left, frozenset):
        return left | right
    if isinstance(left, dict):
        return {**left, **right, **{name: _added(left[name], right[name]) for name in left.keys() & right.keys()}}
    if is_dataclass(left) and not hasattr(left, "__add__"):
        made: Any = type(left)
        merges = ((own.name, own.metadata.get("merge", _added)) for own in fields(left))
        return made(*(merge(getattr(left, name), getattr(right, name)) for name, merge in merges))
    return left + right


def taken(table: Table, rows: slice | NDArray[np.generic]) -> Table:
    """Some rows of a table."""
    return with_arrays(lambda values: values[rows], table)


def joined(first: Table, *others: Table) -> Table:
    """The rows of tables, one after the other; what they have in common is that of the first."""
    return with_arrays(lambda *parts: np.concatenate(parts), first, *others)


def with_arrays(made: Callable[..., Any], first: Table, *others: Table) -> Table:
    """The first table, with what is made of the arrays of one name of all these tables."""
    found: dict[str, Any] = {}
    for own in fields(first):
        values = [getattr(table, own.name) for table in (first, *others)]
        if isinstance(values[0], np.ndarray):
            found[own.name] = made(*values)
        elif is_dataclass(values[0]):
            found[own.name] = with_arrays(made, *values)
    return replace(first, **found)
