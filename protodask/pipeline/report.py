"""The step that writes a report: which rows it is on, and the file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from protodask.data import Dataset
from protodask.data.storage import check_file_free, locate, replace_file
from protodask.data.tables import TableSource
from protodask.engine import Engine, Source
from protodask.errors import InputError
from protodask.pipeline.results import ReportWritten
from protodask.pipeline.scoring_data import is_dataset, rows_of_step, rows_to_predict
from protodask.pipeline.steps import ReportStep
from protodask.places import mask
from protodask.prototypes.persistence import load_model

if TYPE_CHECKING:
    from protodask.explain.report import Rows


def write_report(step: ReportStep, engine: Engine) -> ReportWritten:
    """Make the report and write the file, whole or not at all."""
    from protodask.explain.report import make_content, render, require_plots

    require_plots()
    check_file_free(step.out, step.overwrite)
    model = load_model(step.model)
    (count,) = model.batch_counts(step.batches)
    source, codes = rows_of_step(model, step, engine)
    training = other = None
    if step.training is not None:
        if not is_dataset(step.training):
            raise InputError(
                "wrong-kind",
                f"{step.training} is no dataset.",
                "Give the dataset the model was trained on, or leave out --training.",
            )
        # Any features will do to be scored, but these must be the model's; rows_to_predict sees to that.
        training = _rows(rows_to_predict(model, step.training, engine=engine), step.training)
    if step.drift is not None:
        # It may have the columns that are more than features in the other rows.
        known = [name for name in (step.target, step.weight, step.inclusion) if name is not None]
        found = rows_to_predict(model, step.drift, engine=engine, unseen=step.unseen, drop=(*step.drop, *known))
        other = _rows(found, step.drift)
    content = make_content(
        model,
        short_name(step.model),
        _rows(source, step.data),
        codes,
        engine,
        n_batches=step.batches,
        training=training,
        other=other,
        title=step.title,
    )
    page = render(content)
    check_file_free(step.out, step.overwrite)
    replace_file(step.out, page)
    return ReportWritten(
        step.out,
        len(page.encode()),
        content.quality.rows,
        count,
        content.quality.describe(),
        None if content.drift is None else content.drift.alarming,
    )


def _rows(source: Source, path: str) -> Rows:
    """Rows as a report calls them; without classes where those of the rows are not read."""
    from protodask.explain.report import Rows

    classes = source.classes if isinstance(source, Dataset | TableSource) else ()
    return Rows(source, short_name(path), classes or None)


def short_name(path: str) -> str:
    """What a report calls a place: its last part, so that it does not tell where files lie on a machine."""
    where = mask(path) if "://" in path else locate(path)
    return os.path.basename(where.rstrip("/")) or where
