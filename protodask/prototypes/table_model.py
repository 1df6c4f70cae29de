"""What models of any kind say of the table they were trained on, and how they are recorded, written and found."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, get_args

from numpy.typing import NDArray

from protodask.data.arrays.model_arrays import write_array
from protodask.data.format.schema import Column, Label, feature_names
from protodask.data.places.locations import locate, open_store
from protodask.data.places.records import Fields, RecordKind, describe_columns, recognize, unseal
from protodask.data.places.references import follow
from protodask.data.places.storage import find_group, published, read_stable
from protodask.errors import FormatError
from protodask.prototypes.tiles import Precision

FIT_AGAIN = "Fit the model again, or restore it from a copy."

Model = TypeVar("Model")

PRECISIONS: tuple[Precision, ...] = get_args(Precision)

FITS = "fits"
"""Where the provenance of a model keeps an entry for each fit that its batches come from."""


def fits_of(provenance: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The entries of the fits that a model comes from, as far as there are such: its provenance may hold anything."""
    found = provenance.get(FITS)
    return [entry for entry in found if isinstance(entry, Mapping)] if isinstance(found, list) else []


class TableModel(Protocol):
    """A model of any kind, as far as the table it was trained on is concerned."""

    @property
    def classes(self) -> tuple[Label, ...]: ...

    @property
    def n_classes(self) -> int: ...

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Of the numbers that the columns become."""
        ...

    @property
    def columns(self) -> tuple[Column, ...]: ...

    @property
    def target_name(self) -> str: ...

    @property
    def other_names(self) -> tuple[str, ...]:
        """Columns that tables may have besides."""
        ...

    @property
    def precision(self) -> Precision: ...

    @property
    def row_precision(self) -> Precision:
        """In which its features are read."""
        ...

    @property
    def provenance(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True)
class TableRecord:
    """What the record of a model says of its table."""

    classes: tuple[Label, ...]
    columns: tuple[Column, ...]
    target_name: str
    other_names: tuple[str, ...]
    precision: Precision
    provenance: Mapping[str, Any]

    @property
    def feature_names(self) -> tuple[str, ...]:
        return feature_names(self.columns)


def table_fields(model: TableModel) -> dict[str, Any]:
    """The fields of a model's record that `read_table` reads."""
    return {
        "classes": list(model.classes),
        "columns": describe_columns(model.columns),
        "target_name": model.target_name,
        "other_names": list(model.other_names),
        "precision": model.precision,
        "provenance": dict(model.provenance),
    }


def read_table(fields: Fields) -> TableRecord:
    """What a record says of the table; what makes no sense is damage."""
    classes = fields.labels("classes")
    if len(classes) < 2:
        fields.damaged("there are fewer than two classes")
    precision = read_precision(fields, "precision")
    provenance = fields.record.get("provenance")
    if not isinstance(provenance, dict):
        fields.damaged("the provenance is not an object")
    return TableRecord(
        classes, fields.columns(), fields.text("target_name"), fields.texts("other_names"), precision, provenance
    )


def read_precision(fields: Fields, name: str) -> Precision:
    """The precision in a field."""
    found = next((known for known in PRECISIONS if known == fields.text(name)), None)
    if found is None:
        fields.damaged("the precision is unknown")
    return found


def write_model(
    path: str | os.PathLike[str],
    overwrite: bool,
    kind: RecordKind,
    record: Mapping[str, Any],
    arrays: Iterable[tuple[str, NDArray[Any], str]],
) -> None:
    """Write the record of a model and its arrays, by name, values and type, whole or not at all."""
    import zarr

    sealed = kind.sealed(record)
    with published(locate(path), overwrite, kind) as place:
        group = zarr.open_group(open_store(place), mode="w", zarr_format=3)
        for array in arrays:
            write_array(group, *array)
        group.attrs.put(sealed)


def find_model(
    path: str | os.PathLike[str], kind: RecordKind, parse: Callable[[Fields], Model], digest: Callable[[Model], str]
) -> Model:
    """What `parse` makes of the model at a path or a reference, if its arrays have the digest of the record."""

    def read(where: str) -> Model:
        place, attributes = find_group(where)
        fields = unseal(recognize(attributes, kind, place))
        model = parse(fields)
        if digest(model) != fields.record.get("digest"):
            raise FormatError(
                "damaged", f"The arrays of the {kind.name} {where} are not those that were saved.", kind.remedy
            )
        return model

    def stable(path: str) -> Model:
        where = locate(path)
        return read_stable(where, lambda: read(where))

    return follow(os.fspath(path), stable)
