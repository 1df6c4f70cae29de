"""Where the brackets of all samples are kept: in memory, or in a store that the workers can reach."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from typing import Any

from protodask.data.arrays.array_store import ArrayStore, store_key
from protodask.data.format.schema import Label
from protodask.data.places.records import RecordKind, recognize, seal, unseal
from protodask.data.places.storage import Kind, find_group, is_url, locate, published, storage_errors
from protodask.engine import Engine, Source, array_source
from protodask.errors import InputError, StorageError
from protodask.places import mask
from protodask.robust.formulations import SPREAD_TOLERANCE
from protodask.robust.stored_terms import RowsOfBlock, TermsForm, pack_block

TERMS = Kind("terms", "protodask-robust-terms")
TERMS_VERSION = 1

RECORD = RecordKind(
    "store of the terms of a robust fit",
    TERMS.format,
    TERMS_VERSION,
    "Choose another place, or remove what is there.",
    "Remove the whole store: the fit computes it again.",
)


@dataclass(frozen=True)
class UncertainSource:
    """Samples block by block, and what their arrays mean; `target` (N,) and optionally weights are among them."""

    source: Source
    rows_of: RowsOfBlock
    features: tuple[str, ...]
    """Names of the uncertain features."""
    classes: tuple[Label, ...]
    dtype: str = "float64"


def keep_terms(data: UncertainSource, form: TermsForm, engine: Engine, folder: str) -> Source:
    """The brackets of all samples, in memory where they are few, else in a store inside `folder`."""
    size = form.row_bytes * data.source.layout.n_rows
    if data.source.resident or size <= engine.scheduler.processes().resident_bytes:
        arrays = engine.collect(data.source, pack_block, data.rows_of, form, label="terms")
        engine.forget(data.source)
        return array_source(arrays, data.source.layout.block_rows)
    return store_terms(data, form, engine, os.path.join(folder, "terms.zarr"))


def store_terms(data: UncertainSource, form: TermsForm, engine: Engine, place: str | os.PathLike[str]) -> ArrayStore:
    """The brackets of all samples in a store at `place`: those that are there, if they are of the same samples.

    They appear whole or not at all, so that a fit that was interrupted begins them again or has them all.
    """
    where = locate(place)
    wanted = {
        "data": data.source.key,
        "formulation": form.formulation,
        "features": form.n_features,
        "dtype": form.dtype,
        "tolerance": SPREAD_TOLERANCE,
    }
    layout = data.source.layout
    found = _stored_place(where, wanted)
    if found is not None:
        return ArrayStore(found.place, layout, form.specs, found.key, RECORD.remedy)
    _require_space(where, form.row_bytes * layout.n_rows)
    key = store_key()
    record = {"format": TERMS.format, "version": TERMS_VERSION, **wanted, "rows": layout.n_rows, "key": key}
    with published(where, False, TERMS) as aside:
        store = ArrayStore(aside, layout, form.specs, key)
        with storage_errors(where, "writing"):
            store.create(seal(record, RECORD.name))
        engine.map(data.source, pack_block, data.rows_of, form, sink=store, label="terms")
    engine.forget(data.source)
    # At a URL they lie in a generation below it.
    return ArrayStore(find_group(where)[0], layout, form.specs, key, RECORD.remedy)


@dataclass(frozen=True)
class _Stored:
    place: str
    key: str


def _stored_place(where: str, wanted: dict[str, Any]) -> _Stored | None:
    """The group of the terms at a place, None if there is nothing; others than those wanted are refused."""
    if not is_url(where) and not os.path.exists(where):
        return None
    place, attributes = find_group(where)
    if attributes is None and is_url(where):
        return None
    fields = recognize(attributes, RECORD, where)
    unseal(fields)
    differing = [name for name, value in wanted.items() if fields.record.get(name) != value]
    if differing:
        raise InputError(
            "other-run",
            f"The terms at {mask(where)} are of another fit: they differ in {', '.join(differing)}.",
            "Choose another place for the terms, or remove these.",
        )
    return _Stored(place, fields.text("key"))


def _require_space(where: str, size: int) -> None:
    if is_url(where):
        return
    above = os.path.realpath(where)
    while not os.path.isdir(above):
        above = os.path.dirname(above)
    free = shutil.disk_usage(above).free
    if size > free:
        raise StorageError(
            "disk-full",
            f"The terms of the fit take {size / 1e9:.3g} GB, and {above} has {free / 1e9:.3g} GB left.",
            "Free some space, or have them elsewhere: name a place for them or a run directory on another disk.",
        )
