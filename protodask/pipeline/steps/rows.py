"""Settings that say how rows are read for a model."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from protodask.pipeline.steps.base import Argument, Option, Read

if TYPE_CHECKING:
    from collections.abc import Sequence

    from protodask.data import Label
    from protodask.engine import Engine, Source
    from protodask.prototypes.rows_to_score import Codes
    from protodask.prototypes.table_model import TableModel

_of_tables = partial(Option, panel="For raw tables")

Model = Annotated[Read, Argument("A model.", "MODEL")]
Rows = Annotated[Read, Argument("A dataset, or raw tables or arrays: files, a glob or a folder.", "DATA")]
Batches = Annotated[
    int | None,
    Option("Use so many batches of the model, those trained together counted as one; by default, all.", least=0),
]
Calibrated = Annotated[bool, Option("Calibrated probabilities, of a model made by `protodask calibrate`.")]
Unseen = Annotated[
    Literal["error", "zero"],
    Option(
        "Categories in raw tables that were not there at ingest: an error, or all zero; prototype sets then also take "
        "what is missing, where nothing was, for the mean."
    ),
]
Inclusion = Annotated[str | None, _of_tables("Column of the probabilities with which rows were kept.", "COL")]
Drop = Annotated[tuple[str, ...], Option("Column of raw tables to leave out. Repeatable.", "COL")]


@dataclass(frozen=True, kw_only=True)
class GivenRows:
    """How raw tables are read for a model: what it does not know, categories and missing values, and columns to leave
    out.
    """

    unseen: Unseen = "error"
    drop: Drop = ()


@dataclass(frozen=True, kw_only=True)
class KnownRows(GivenRows):
    """How raw tables are read in which more is known of rows than their features: the columns with it."""

    target: Annotated[
        str | None, _of_tables("Column of the classes; by default, the one of the training data.", "COL")
    ] = None
    weight: Annotated[str | None, _of_tables("Column of row weights.", "COL")] = None
    inclusion: Inclusion = None

    def known_rows(self, data: str, model: TableModel, engine: Engine) -> tuple[Source, Codes]:
        """Rows of known classes at a place, and the model's class of each target code."""
        from protodask.prototypes.rows_to_score import rows_to_evaluate

        return rows_to_evaluate(model, data, engine=engine, **self._how_read())

    def any_rows(
        self, data: str, model: TableModel, classes: Sequence[Label], engine: Engine
    ) -> tuple[Source, tuple[Label, ...] | None]:
        """Rows at a place, raw tables with any of `classes`, and the class of each target code, if there are any."""
        from protodask.prototypes.rows_to_score import rows_of_any_class

        return rows_of_any_class(model, data, classes=classes, engine=engine, **self._how_read())

    def _how_read(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(KnownRows)}
