"""What predictions are called: their arrays, the columns of their tables, and the columns that these may keep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from protodask.data.format.schema import GROUP, Label
from protodask.data.tables import kept_columns
from protodask.data.tables.table_files import is_table, label_column
from protodask.engine import Arrays
from protodask.errors import InputError

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
    own = (ROW, PREDICTED, FAMILIARITY, *others)
    kept_columns.check_kept_names(names, lambda name: name in own or name.startswith(f"{PROBABILITY}_"), "predictions")


def prediction_columns(classes: Sequence[Label], start: int, arrays: Arrays) -> dict[str, Any]:
    """The columns of a table of predictions, those of rows from number `start`."""
    probability = arrays[PROBABILITY]
    return {
        ROW: np.arange(start, start + len(probability), dtype=np.int64),
        **kept_columns.kept_of_block(arrays),
        PREDICTED: label_column(classes, arrays[PREDICTED]),
        FAMILIARITY: arrays[FAMILIARITY],
        **({GROUP.name: arrays[GROUP.name]} if GROUP.name in arrays else {}),
        **{f"{PROBABILITY}_{label}": probability[:, position] for position, label in enumerate(classes)},
    }
