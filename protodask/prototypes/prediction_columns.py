"""What predictions are called: their arrays, the columns of their tables, and the columns that these may keep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from protodask.data.format.schema import GROUP, Label
from protodask.data.tables.kept_columns import KEPT, unpack
from protodask.data.tables.table_files import is_table, label_column
from protodask.engine import Arrays
from protodask.errors import InputError, named_twice

PROBABILITY = "probability"
FAMILIARITY = "familiarity"
PREDICTED = "predicted"
ROW = "row"


def check_kept(names: Sequence[str], where: str, others: Sequence[str] = ()) -> None:
    """Refuse columns to keep that cannot be written to a place, or are called like those of predictions or `others`."""
    if names and not is_table(where):
        raise InputError(
            "unsupported",
            "Columns of any type are to be kept, and a Zarr store of predictions has numbers alone.",
            "Write Parquet or CSV: give a place that ends in .parquet or .csv, or keep no columns.",
        )
    check_kept_names(names, others)


def check_kept_names(names: Sequence[str], others: Sequence[str] = ()) -> None:
    """Refuse to keep columns that are called like those of predictions or `others`."""
    for name in names:
        if name in (ROW, PREDICTED, FAMILIARITY, *others) or name.startswith(f"{PROBABILITY}_"):
            raise InputError(
                "named-twice",
                f"Column {name!r} is to be kept, and predictions have a column of that name.",
                "Give the column of the tables another name, or do not keep it.",
            )
    if twice := named_twice(names):
        raise InputError("named-twice", f"Column {twice[0]!r} is to be kept twice.", "Name it once.")


def prediction_columns(classes: Sequence[Label], start: int, arrays: Arrays) -> dict[str, Any]:
    """The columns of a table of predictions, those of rows from number `start`."""
    probability = arrays[PROBABILITY]
    kept = unpack(arrays[KEPT]) if KEPT in arrays else None
    return {
        ROW: np.arange(start, start + len(probability), dtype=np.int64),
        **({} if kept is None else dict(zip(kept.column_names, kept.columns, strict=True))),
        PREDICTED: label_column(classes, arrays[PREDICTED]),
        FAMILIARITY: arrays[FAMILIARITY],
        **({GROUP.name: arrays[GROUP.name]} if GROUP.name in arrays else {}),
        **{f"{PROBABILITY}_{label}": probability[:, position] for position, label in enumerate(classes)},
    }
