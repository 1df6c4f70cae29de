"""Making a report: one pass over the rows, one over each of the others that drift is measured with, and the page."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from protodask.data.format.dataset import Dataset
from protodask.data.format.schema import Label
from protodask.engine import Engine, Source
from protodask.errors import needed
from protodask.evaluation.calibration import finish_calibration
from protodask.evaluation.row_sample import spread
from protodask.evaluation.stream import Bins, Watch, learn_bins, watch_stream
from protodask.explain.contributions import explain_rows
from protodask.explain.familiarity import familiarity_reference
from protodask.explain.report.content import Content
from protodask.explain.report.drift import Drift, Side, measure_drift
from protodask.explain.report.statistics import RowStatistics, assess, row_statistics
from protodask.prototypes.model import PrototypeSet
from protodask.prototypes.persistence import model_fingerprint
from protodask.selection.results import read_search

LISTED_PROTOTYPES = 8
"""Strongest prototypes that the explanation of an error lists; the others are summed up."""


@dataclass(frozen=True)
class Rows:
    """Rows of a report and what to call them."""

    source: Source
    name: str
    classes: tuple[Label, ...] | None
    """The classes of its target codes; None where it has no target."""


def make_content(
    model: PrototypeSet,
    model_name: str,
    rows: Rows,
    codes: NDArray[np.int64],
    engine: Engine,
    *,
    n_batches: int | None = None,
    training: Rows | None = None,
    other: Rows | None = None,
    title: str | None = None,
) -> Content:
    """All that a page says of a model on `rows`; `codes` are the model's classes of their target codes.

    Drift is that of `other` against `training`; of `rows` against `training` without `other`, and of `other` against
    `rows` without `training`.
    """
    require_plots()
    (count,) = model.batch_counts(n_batches)
    plain = Watch(model, count, (), Bins(np.zeros(0), by_value=False), codes)
    found, drift = _statistics_and_drift(engine, plain, rows, training, other)
    sample = found.stream.sample
    chosen = spread(sample)
    drawn = replace(sample, rows=sample.rows[chosen], values=sample.values[chosen])
    explanations = explain_rows(model, found.errors.features, n_batches=n_batches, most=LISTED_PROTOTYPES)
    return Content(
        title=(title or "").strip() or "Model report",
        model=model,
        model_name=model_name,
        model_key=model_fingerprint(model),
        data_name=rows.name,
        data_key=rows.source.key if isinstance(rows.source, Dataset) else None,
        n_batches=count,
        quality=assess(found, model.marginals),
        calibration=finish_calibration(found.calibration, model.classes),
        reference=familiarity_reference(drawn, count),
        errors=found.errors,
        explanations=tuple(explanations),
        search=read_search(model),
        drift=drift,
        training_key=training.source.key if training is not None and isinstance(training.source, Dataset) else None,
    )


def require_plots() -> None:
    """Refuse, before any work is done, where figures cannot be drawn."""
    with needed("Reports need matplotlib, which is not installed.", "Install protodask[report], and repeat."):
        import matplotlib  # noqa: F401 - asked for before any work is done


def _statistics_and_drift(
    engine: Engine, plain: Watch, rows: Rows, training: Rows | None, other: Rows | None
) -> tuple[RowStatistics, Drift | None]:
    """A pass over each source, and one before over that which is compared with, for the bins of its features."""
    if training is None and other is None:
        return row_statistics(engine, rows.source, plain), None
    first, second = training or rows, other or rows
    if not (first.source.layout.n_rows and second.source.layout.n_rows):
        return row_statistics(engine, rows.source, plain), Drift(first.name, second.name)
    features, familiarity = learn_bins(engine, first.source, plain.model, plain.n_batches)
    watch = replace(plain, features=features, familiarity=familiarity)
    if training is None:
        found = row_statistics(engine, rows.source, watch)
        before = Side(rows.name, watch, found.stream)
    else:
        before = _seen(engine, training, watch)
    watch = replace(watch, within=before.sums.summary)
    after = None if other is None else _seen(engine, other, watch)
    if training is not None:
        found = row_statistics(engine, rows.source, watch)
    return found, measure_drift(before, after or Side(rows.name, watch, found.stream))


def _seen(engine: Engine, rows: Rows, watch: Watch) -> Side:
    own = watch.labelled(rows.classes)
    found = Side(rows.name, own, watch_stream(engine, rows.source, own))
    engine.forget(rows.source)
    return found
