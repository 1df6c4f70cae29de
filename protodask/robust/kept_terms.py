"""The brackets of a source's samples, computed once and kept, in memory or in a store: a pass reads them alone.

The spread takes far longer to find than a pass over the terms does. What is kept is that of one unit, so that it serves
any `eps`, in the precision of the data and rounded outward: a bracket may grow by rounding and never shrinks. A single
number for the mean is rounded to the nearest, which only changes the middles of SVM and M: an exact mean is a number of
the data. Arrays that a formulation has no use for are not there.

`N` samples, `D` features.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protodask.data.arrays.array_store import ArrayStore, store_key
from protodask.data.arrays.plain_arrays import ArraySpec
from protodask.data.format.schema import TARGET, WEIGHT, Label
from protodask.data.places.locations import is_url, locate, storage_errors
from protodask.data.places.records import RecordKind, recognize, unseal
from protodask.data.places.storage import find_group, published
from protodask.engine import Arrays, Block, Engine, Source, array_source
from protodask.engine.records import Floats
from protodask.errors import InputError, StorageError
from protodask.evaluation.given_rows import usable_weights
from protodask.places import mask
from protodask.robust.formulations import SPREAD_TOLERANCE, unit_terms
from protodask.robust.passes import Samples, tiles
from protodask.robust.terms import Terms
from protodask.robust.uncertain_rows import UncertainRows

TERMS = RecordKind(
    "store of the terms of a robust fit",
    "protodask-robust-terms",
    1,
    "Choose another place, or remove what is there.",
    "Remove the whole store: the fit computes it again.",
)

RowsOfBlock = Callable[[Block], UncertainRows]
"""What a block's arrays say of its samples. Picklable: it travels to the workers."""

MEAN, MEAN_LOW, MEAN_HIGH, SPREAD, LOWER, UPPER = "mean", "mean_low", "mean_high", "spread", "lower", "upper"


@dataclass(frozen=True)
class TermsForm:
    """Which arrays hold the brackets of a formulation, and how."""

    formulation: str
    n_features: int
    dtype: str = "float64"

    @property
    def names(self) -> tuple[str, ...]:
        """The arrays (N, D)."""
        means = (MEAN,) if self.formulation in ("SVM", "M", "SMV", "SMV-I", "SM", "SM-I") else (MEAN_LOW, MEAN_HIGH)
        spread = () if self.formulation in ("SVM", "M", "S") else (SPREAD,)
        support = (LOWER, UPPER) if self.formulation.endswith("-I") else ()
        return (*means, *spread, *support)

    @property
    def specs(self) -> tuple[ArraySpec, ...]:
        """All arrays that are kept, with the class and the weight of each sample."""
        return (
            *(ArraySpec(name, self.dtype, self.n_features) for name in self.names),
            ArraySpec(TARGET.name, "int32"),
            ArraySpec(WEIGHT.name, "float64"),
        )

    @property
    def row_bytes(self) -> int:
        """Of a sample, as it is kept."""
        return len(self.names) * self.n_features * np.dtype(self.dtype).itemsize + 4 + 8

    def pack(self, terms: Terms) -> dict[str, NDArray[Any]]:
        """Terms of one unit of spread as they are kept."""
        dtype = np.dtype(self.dtype)

        def packed(name: str) -> NDArray[Any]:
            if name == MEAN:
                return terms.mean_low.astype(dtype)
            outward = rounded_down if name in (MEAN_LOW, LOWER) else rounded_up
            return outward(getattr(terms, name), dtype)

        return {name: packed(name) for name in self.names}

    def unpack(self, arrays: Arrays, multiple: float) -> Terms:
        """The terms with so many units of spread."""

        def floats(name: str) -> Floats:
            return np.asarray(arrays[name], dtype=np.float64)

        low = floats(MEAN if MEAN in self.names else MEAN_LOW)
        high = low if MEAN in self.names else floats(MEAN_HIGH)
        spread = floats(SPREAD) * multiple if SPREAD in self.names else np.zeros_like(low)
        support = map(floats, (LOWER, UPPER)) if LOWER in self.names else ()
        return Terms(low, high, spread, *support)


def rounded_down(values: Floats, dtype: np.dtype[Any]) -> NDArray[Any]:
    """The largest numbers of a type that are not above the values."""
    rounded = values.astype(dtype)
    return np.where(rounded > values, np.nextafter(rounded, np.asarray(-np.inf, dtype)), rounded)


def rounded_up(values: Floats, dtype: np.dtype[Any]) -> NDArray[Any]:
    """The smallest numbers of a type that are not below the values."""
    return -rounded_down(-values, dtype)


def pack_block(block: Block, rows_of: RowsOfBlock, form: TermsForm) -> Arrays:
    """The arrays of a block of samples as they are kept; the weight is 1 where the block has none."""
    specs = form.specs
    kept = {spec.name: np.empty(spec.shape(block.n_rows), dtype=spec.dtype) for spec in specs}
    for tile in tiles(block):
        rows = slice(tile.start - block.start, tile.stop - block.start)
        packed = form.pack(unit_terms(rows_of(tile), form.formulation))
        weight = usable_weights(tile)
        packed[TARGET.name] = tile[TARGET.name]
        packed[WEIGHT.name] = np.ones(tile.n_rows) if weight is None else weight
        for spec in specs:
            kept[spec.name][rows] = packed[spec.name]
    return kept


@dataclass(frozen=True)
class ClassAgainstRest:
    """What the kept arrays of a block ask of the plane of one class: a `SamplesOfBlock`."""

    form: TermsForm
    multiple: float
    """Units of spread."""
    positive: int
    """Code of the class that is 1."""
    cost: float
    """`C`, of a sample of weight 1."""

    def __call__(self, block: Block) -> Samples:
        sign = np.where(block[TARGET.name] == self.positive, 1.0, -1.0)
        return Samples(self.form.unpack(block.arrays, self.multiple), sign, self.cost * block[WEIGHT.name])


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
        group, key = found
        return ArrayStore(group, layout, form.specs, key, TERMS.remedy)
    _require_space(where, form.row_bytes * layout.n_rows)
    key = store_key()
    with published(where, False, TERMS) as aside:
        store = ArrayStore(aside, layout, form.specs, key)
        with storage_errors(where, "writing"):
            store.create(TERMS.sealed({**wanted, "rows": layout.n_rows, "key": key}))
        engine.map(data.source, pack_block, data.rows_of, form, sink=store, label="terms")
    engine.forget(data.source)
    # At a URL they lie in a generation below it.
    return ArrayStore(find_group(where)[0], layout, form.specs, key, TERMS.remedy)


def _stored_place(where: str, wanted: dict[str, Any]) -> tuple[str, str] | None:
    """Place and key of the terms that are there, None if there is nothing; others than those wanted are refused."""
    if not is_url(where) and not os.path.exists(where):
        return None
    place, attributes = find_group(where)
    if attributes is None and is_url(where):
        return None
    fields = unseal(recognize(attributes, TERMS, where))
    differing = [name for name, value in wanted.items() if fields.record.get(name) != value]
    if differing:
        raise InputError(
            "other-run",
            f"The terms at {mask(where)} are of another fit: they differ in {', '.join(differing)}.",
            "Choose another place for the terms, or remove these.",
        )
    return place, fields.text("key")


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
