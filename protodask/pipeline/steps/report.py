"""The step `report`: one HTML file on a model and the rows it is tried on."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from protodask.errors import InputError, count
from protodask.pipeline.steps.base import Argument, Option, Overwrite, Panel, Read, Step, Written
from protodask.pipeline.steps.rows import Batches, KnownRows, Model
from protodask.pipeline.telling.events import Listener, nobody
from protodask.pipeline.telling.result import Result, shorten, size
from protodask.places import mask

if TYPE_CHECKING:
    from protodask.engine import Engine, Source
    from protodask.explain.report import Rows


@dataclass(frozen=True)
class ReportWritten(Result):
    """A report lies at `path`."""

    path: str
    size: int
    """Bytes of the file."""
    rows: int
    n_batches: int
    quality: dict[str, float]
    """Its figures of quality by name, nan where one was left out."""
    alarming: int | None
    """Features that drifted strongly; None if no drift was measured."""
    raw: bool = False
    """Whether the model has a calibration, which the report leaves aside."""

    @property
    def notes(self) -> tuple[str, ...]:
        return ("It is of raw probabilities: the model's calibration is left aside.",) if self.raw else ()

    def describe(self) -> dict[str, Any]:
        return {
            "kind": "report",
            "path": mask(self.path),
            "bytes": self.size,
            "rows": self.rows,
            "batches": self.n_batches,
            **{name.lower().replace("-", "_").replace(" ", "_"): value for name, value in self.quality.items()},
            "drifted_features": self.alarming,
        }

    def summary(self) -> str:
        drifted = "" if self.alarming is None else f" {count(self.alarming, 'feature')} drifted strongly."
        return (
            f"The report {shorten(self.path)} on {count(self.rows, 'row')} has {size(self.size)}; open it in a browser."
            f"{drifted}"
        )


@dataclass(frozen=True)
class ReportStep(KnownRows, Step):
    """Write a report for people: quality, errors explained, features, prototypes, calibration, drift and costs.

    One HTML file that loads nothing from anywhere and opens from disk.
    """

    command = "report"
    panel = Panel.USE
    about = "{model} on {data} into {out}"
    writes_files = True

    model: Model
    data: Annotated[
        Read, Argument("Rows of known classes, best held-out ones: a dataset, or raw tables or arrays.", "DATA")
    ]
    out: Annotated[Written, Option("Where to write the report.", "FILE.html")]
    training: Annotated[Read | None, Option("The dataset of the training, to measure drift from.", "TRAIN")] = None
    drift: Annotated[
        Read | None,
        Option(
            "Rows whose drift is measured, from those of the training if they are given, else from those of the "
            "report. By default, the latter.",
            "OTHER",
        ),
    ] = None
    title: Annotated[str | None, Option("Headline of the report.", "TEXT")] = None
    batches: Batches = None
    overwrite: Overwrite = False

    def perform(self, engine: Engine, listen: Listener = nobody) -> ReportWritten:
        from protodask.data.places.whole_files import check_file_free, replace_file
        from protodask.explain.report import make_content, render, require_plots
        from protodask.prototypes.model import load_model
        from protodask.prototypes.rows_to_score import is_dataset, rows_to_predict

        require_plots()
        check_file_free(self.out, self.overwrite)
        model = load_model(self.model)
        (n_batches,) = model.batch_counts(self.batches)
        source, codes = self.known_rows(self.data, model, engine)
        training = other = None
        if self.training is not None:
            if not is_dataset(self.training):
                raise InputError(
                    "wrong-kind",
                    f"{self.training} is no dataset.",
                    "Give the dataset the model was trained on, or leave out `training`.",
                )
            # Any features will do to be scored, but these must be the model's; rows_to_predict sees to that.
            training = _named(rows_to_predict(model, self.training, engine=engine), self.training)
        if self.drift is not None:
            # It may have the columns that are more than features in the other rows.
            known = [name for name in (self.target, self.weight, self.inclusion) if name is not None]
            found = rows_to_predict(model, self.drift, engine=engine, unseen=self.unseen, drop=(*self.drop, *known))
            other = _named(found, self.drift)
        content = make_content(
            model,
            short_name(self.model),
            _named(source, self.data),
            codes,
            engine,
            n_batches=self.batches,
            training=training,
            other=other,
            title=self.title,
        )
        page = render(content)
        check_file_free(self.out, self.overwrite)
        replace_file(self.out, page)
        return ReportWritten(
            self.out,
            len(page.encode()),
            content.quality.rows,
            n_batches,
            content.quality.describe(),
            None if content.drift is None else content.drift.alarming,
            content.is_raw,
        )


def _named(source: Source, path: str) -> Rows:
    """Rows as a report calls them; without classes where those of the rows are not read."""
    from protodask.data import Dataset
    from protodask.data.tables.tables import TableSource
    from protodask.explain.report import Rows

    classes = source.classes if isinstance(source, Dataset | TableSource) else ()
    return Rows(source, short_name(path), classes or None)


def short_name(path: str) -> str:
    """What a report calls a place: its last part, so that it does not tell where files lie on a machine."""
    from protodask.data.places.locations import locate

    where = mask(path) if "://" in path else locate(path)
    return os.path.basename(where.rstrip("/")) or where
