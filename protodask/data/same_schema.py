"""Whether rows are encoded alike."""

from __future__ import annotations

from protodask.data.metadata import Metadata
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
            raise InputError(
                "columns-differ",
                f"The {what} of the rows to append are {_shorten(after)}, those of the dataset {_shorten(before)}.",
                "Append rows encoded like the dataset, or write another dataset.",
            )


def _shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else text[:200] + "..."
