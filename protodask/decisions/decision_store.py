"""Decisions in a store: a flag for each row, and what was decided in the record, whole or not at all."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protodask.data.arrays.array_store import ArrayStore, store_key
from protodask.data.arrays.plain_arrays import ArraySpec
from protodask.data.places.locations import inside
from protodask.data.places.records import RecordKind, recognize, unseal
from protodask.data.tables.kept_columns import check_kept_names, kept_of_block
from protodask.data.tables.table_files import is_parquet, published_rows, write_table
from protodask.decisions.group_tables import COLUMNS, GROUP, PROBABILITY, GroupDecisions
from protodask.engine import Arrays, Layout, Sink
from protodask.errors import InputError
from protodask.places import mask

DECISIONS = RecordKind(
    "decisions",
    "protodask-decisions",
    1,
    "Make them with `decide_stored()`.",
    "Decide again, or restore them from a copy.",
)

SELECTED = "selected"
EXPECTED_LOSS = "expected_loss"

ROW = "row"

GROUPS = "groups"
"""Where the table of groups lies: the Zarr group of this name, or the file `_groups.parquet`."""


def published_decisions(
    where: str,
    overwrite: bool,
    layout: Layout,
    names: tuple[str, ...],
    record: Mapping[str, Any],
    groups: GroupDecisions | None,
) -> AbstractContextManager[Sink]:
    """Hand out a place for the blocks of decisions, which is at `where` once the body is done, whole or not at all.

    `names` are those of the classes of which some are selected; none where a row is selected or not. `record` says what
    was decided, and `groups` on each group if there are groups.
    """
    if names:
        arrays = (ArraySpec(SELECTED, "int8", len(names)), ArraySpec(EXPECTED_LOSS, "float64"))
    else:
        arrays = (ArraySpec(SELECTED, "int8"), ArraySpec(PROBABILITY, "float64"))
    finish = None if groups is None else partial(_write_groups, is_parquet(where), groups)
    return published_rows(where, overwrite, DECISIONS, record, layout, arrays, partial(_columns, names), finish)


def is_own_column(name: str) -> bool:
    """Whether a table of decisions may have a column of its own of that name."""
    return name in (ROW, GROUP, PROBABILITY, SELECTED, EXPECTED_LOSS) or name.startswith(f"{SELECTED}_")


def check_kept(names: Sequence[str], where: str) -> None:
    """Refuse columns to keep that cannot be written to a place, or are called like those of decisions."""
    if names and not is_parquet(where):
        raise InputError(
            "unsupported",
            "Columns of any type are to be kept, and a Zarr store of decisions has numbers alone.",
            "Write Parquet: give a place that ends in .parquet, or keep no columns.",
        )
    check_kept_names(names, is_own_column, "decisions")


def _columns(names: tuple[str, ...], start: int, arrays: Arrays) -> dict[str, Any]:
    """The columns of a table of decisions, those of rows from number `start`."""
    selected = arrays[SELECTED] != 0
    columns = {ROW: np.arange(start, start + len(selected), dtype=np.int64), **kept_of_block(arrays)}
    if GROUP in arrays:
        columns[GROUP] = arrays[GROUP]
    if not names:
        return {**columns, SELECTED: selected, PROBABILITY: arrays[PROBABILITY]}
    for position, name in enumerate(names):
        columns[f"{SELECTED}_{name}"] = np.ascontiguousarray(selected[:, position])
    return {**columns, EXPECTED_LOSS: arrays[EXPECTED_LOSS]}


def _write_groups(parquet: bool, table: GroupDecisions, place: str) -> None:
    """Write a row for each group; into Zarr its label only where labels are int64, and always its first row."""
    columns: dict[str, NDArray[Any]] = {name: getattr(table, name) for name in COLUMNS}
    if parquet:
        write_table(os.path.join(place, f"_{GROUPS}.parquet"), columns)
        return
    if table.group.dtype.kind not in "iu" or table.group.max(initial=0) > np.iinfo(np.int64).max:
        del columns["group"]
    columns = {name: own.astype("float64" if own.dtype.kind == "f" else "int64") for name, own in columns.items()}
    specs = tuple(ArraySpec(name, str(values.dtype)) for name, values in columns.items())
    block_rows = 1 << max(len(table) - 1, 0).bit_length()
    store = ArrayStore(inside(place, GROUPS), Layout(len(table), block_rows), specs, store_key())
    store.create({"rows": len(table)})
    store.write(0, 0, columns)


def describe_decisions(record: Mapping[str, Any], path: str) -> dict[str, Any]:
    """What a record of decisions says."""
    fields = unseal(recognize(record, DECISIONS, path))
    own = {"format", "version", "identity", "checksum", "kind", "cut", "classes"}
    cut = record.get("cut")
    return {
        "kind": "decisions",
        "path": mask(path),
        "decided": fields.text("kind"),
        **{name: value for name, value in record.items() if name not in own and value is not None},
        **(cut if isinstance(cut, Mapping) else {}),
    }


def plain_number(value: float) -> float | None:
    """A number as records hold it; None for the threshold where nothing is selected."""
    return value if math.isfinite(value) else None
