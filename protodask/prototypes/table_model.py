"""What models of any kind say of the table they were trained on, and how that stands in their records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from protodask.data.format.schema import Column, Label, feature_names
from protodask.data.places.records import Fields, describe_columns
from protodask.prototypes.tiles import Precision


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
    def precision(self) -> Precision:
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
    precision: Precision
    match fields.text("precision"):
        case "float32":
            precision = "float32"
        case "float64":
            precision = "float64"
        case _:
            fields.damaged("the precision is unknown")
    provenance = fields.record.get("provenance")
    if not isinstance(provenance, dict):
        fields.damaged("the provenance is not an object")
    return TableRecord(
        classes, fields.columns(), fields.text("target_name"), fields.texts("other_names"), precision, provenance
    )
