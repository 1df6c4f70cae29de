"""Whether rows are encoded alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from protodask.data.metadata import Metadata
from protodask.data.schema import Column
from protodask.errors import InputError


def check_same_schema(old: Metadata, new: Metadata) -> None:
    """Refuse to append what is encoded otherwise than the dataset."""
    for what, before, after in (
        ("columns", old.columns, new.columns),
        ("classes", old.classes, new.classes),
        ("target", old.target_name, new.target_name),
        ("weight", old.weight_name, new.weight_name),
        ("inclusion", old.inclusion_name, new.inclusion_name),
        ("group", old.group_name, new.group_name),
    ):
        if before != after:
            if what == "columns":
                _name_column(old.columns, new.columns)
            raise InputError(
                "columns-differ",
                f"The {what} of the rows to append are {_shorten(after)}, those of the dataset {_shorten(before)}.",
                "Append rows encoded like the dataset, or write another dataset.",
            )


def _name_column(before: Sequence[Column], after: Sequence[Column]) -> None:
    """Say of a column that differs in what a missing value counts as alone that it does."""
    for old, new in zip(before, after, strict=False):
        if old != new and replace(new, filled=old.filled, marked=old.marked) == old:
            raise InputError(
                "columns-differ",
                f"A missing value of column {old.name!r} counts as {old.filled} in the dataset, and as {new.filled} in "
                "the rows to append; None is not missing in any row.",
                "Append the tables that the rows are from: they are encoded like the dataset then.",
            )


def _shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else text[:200] + "..."
