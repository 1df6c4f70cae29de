"""Decisions in a store: a flag for each row, and what was decided in the record, whole or not at all."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protodask.data.arrays.array_store import ArraySpec, ArrayStore, store_key
from protodask.data.places.locations import inside
from protodask.data.places.records import RecordKind, recognize, seal, unseal
from protodask.data.places.storage import Kind
from protodask.data.tables.table_files import create_folder, write_part, write_table
from protodask.decisions.group_tables import COLUMNS, GROUP, PROBABILITY, GroupDecisions
from protodask.engine import Arrays, Layout, Sink
from protodask.places import mask

DECISIONS = Kind("decisions", "protodask-decisions")

RECORD = RecordKind(
    "decisions", DECISIONS.format, 1, "Make them with `protodask decide`.", "Decide again, or restore them from a copy."
)

SELECTED = "selected"
EXPECTED_LOSS = "expected_loss"

GROUPS = "groups"
"""Where the table of groups lies: the Zarr group of this name, or the file `_groups.parquet`."""


@dataclass(frozen=True)
class Form:
    """What is written for each row."""

    names: tuple[str, ...] = ()
    """Of the classes of which some are selected; none where the row is selected or not."""
    has_group: bool = False

    @property
    def per_row(self) -> bool:
        return bool(self.names)


def create_store(place: str, parquet: bool, layout: Layout, form: Form, record: Mapping[str, Any]) -> Sink:
    """A place for the blocks of decisions; `record` says what was decided."""
    identity = store_key()
    sealed = seal(
        {"format": DECISIONS.format, "version": RECORD.version, **record, "identity": identity}, DECISIONS.name
    )
    if parquet:
        create_folder(place, sealed)
        return DecisionFiles(place, form.names, identity)
    if form.per_row:
        arrays = (ArraySpec(SELECTED, "int8", len(form.names)), ArraySpec(EXPECTED_LOSS, "float64"))
    else:
        arrays = (ArraySpec(SELECTED, "int8"), ArraySpec(PROBABILITY, "float64"))
    store = ArrayStore(place, layout, arrays, identity)
    store.create(sealed)
    return store


@dataclass(frozen=True)
class DecisionFiles:
    """Writes each block as a Parquet file of its own."""

    folder: str
    names: tuple[str, ...]
    identity: str

    def write(self, number: int, start: int, arrays: Arrays) -> None:
        selected = arrays[SELECTED] != 0
        columns: dict[str, Any] = {"row": np.arange(start, start + len(selected), dtype=np.int64)}
        if GROUP in arrays:
            columns[GROUP] = arrays[GROUP]
        if self.names:
            for position, name in enumerate(self.names):
                columns[f"{SELECTED}_{name}"] = np.ascontiguousarray(selected[:, position])
            columns[EXPECTED_LOSS] = arrays[EXPECTED_LOSS]
        else:
            columns |= {SELECTED: selected, PROBABILITY: arrays[PROBABILITY]}
        write_part(self.folder, number, self.identity, columns)


def write_groups(place: str, parquet: bool, table: GroupDecisions) -> None:
    """Write a row for each group; into Zarr its label only where labels are int64, and always its first row."""
    columns: dict[str, NDArray[Any]] = {name: getattr(table, name) for name in COLUMNS}
    if parquet:
        write_table(os.path.join(place, f"_{GROUPS}.parquet"), columns)
        return
    if table.group.dtype.kind not in "iu" or table.group.max(initial=0) > np.iinfo(np.int64).max:
        del columns["group"]
    columns = {name: values.astype(_stored_type(values)) for name, values in columns.items()}
    specs = tuple(ArraySpec(name, str(values.dtype)) for name, values in columns.items())
    block_rows = 1 << max(len(table) - 1, 0).bit_length()
    store = ArrayStore(inside(place, GROUPS), Layout(len(table), block_rows), specs, store_key())
    store.create({"rows": len(table)})
    store.write(0, 0, columns)


def _stored_type(values: NDArray[Any]) -> str:
    return "float64" if values.dtype.kind == "f" else "int64"


def describe_decisions(record: Mapping[str, Any], path: str) -> dict[str, Any]:
    """What a record of decisions says."""
    fields = recognize(record, RECORD, path)
    unseal(fields)
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
