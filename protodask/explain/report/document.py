"""Making a report: one pass over the rows, one over each of the others that drift is measured with, and the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protodask.data.format.dataset import Dataset
from protodask.data.format.schema import Label
from protodask.engine import Engine, Source
from protodask.errors import needed
from protodask.evaluation.calibration import finish_calibration
from protodask.evaluation.row_sample import spread
from protodask.explain.contributions import explain_rows
from protodask.explain.familiarity import FamiliarityReference
from protodask.explain.report.content import Content
from protodask.explain.report.drift import Drift, measure_drift, sample_familiarity
from protodask.explain.report.profile import Profile, Range, no_range, profile
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

    @property
    def range(self) -> Range | None:
        """Of every feature, where it is known without a pass."""
        if not isinstance(self.source, Dataset):
            return None
        return Range(self.source.summary.minimum, self.source.summary.maximum)


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
    of_rows = training is not None and other is None
    within = training.range if of_rows and training is not None else None
    # Of rows in tables the range is known after a pass, so theirs comes first where they are what is compared with.
    before = _profile(training, engine, model, None) if training is not None else None
    if of_rows and within is None and before is not None:
        within = Range(before.summary.minimum, before.summary.maximum)
    found = row_statistics(engine, rows.source, model, codes, count, within or no_range(model.n_features))
    drift = _drift(model, count, rows, found, training, before, other, engine)
    values = sample_familiarity(model, count, found.profile)
    chosen = spread(found.profile.sample)
    chosen = chosen[np.argsort(values[chosen], kind="stable")]
    reference = FamiliarityReference(
        values[chosen], found.profile.sample.rows[chosen], found.profile.summary.rows, count
    )
    explanations = (
        explain_rows(model, found.errors.features, n_batches=n_batches, most=LISTED_PROTOTYPES)
        if len(found.errors.rows)
        else []
    )
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
        reference=reference,
        errors=found.errors,
        explanations=tuple(explanations),
        search=read_search(model),
        drift=drift,
        before_name=rows.name if training is None else training.name,
        after_name=rows.name if other is None else other.name,
        training_key=training.source.key if training is not None and isinstance(training.source, Dataset) else None,
    )


def require_plots() -> None:
    """Refuse, before any work is done, where figures cannot be drawn."""
    with needed("Reports need matplotlib, which is not installed.", "Install protodask[report], and repeat."):
        import matplotlib  # noqa: F401 - asked for before any work is done


def _profile(rows: Rows, engine: Engine, model: PrototypeSet, within: Range | None) -> Profile:
    n_classes = 1 if rows.classes is None else len(rows.classes)
    return profile(engine, rows.source, n_classes, within or no_range(model.n_features))


def _drift(
    model: PrototypeSet,
    n_batches: int,
    rows: Rows,
    found: RowStatistics,
    training: Rows | None,
    before: Profile | None,
    other: Rows | None,
    engine: Engine,
) -> Drift | None:
    if training is None and other is None:
        return None
    # The statistics count the rows in the classes of the model.
    first, first_classes = (found.profile, model.classes) if before is None else (before, _classes(training))
    second: Profile
    second_classes: Sequence[Label] | None
    if other is None:
        second, second_classes = found.profile, model.classes
    else:
        second = _profile(other, engine, model, Range(first.summary.minimum, first.summary.maximum))
        second_classes = other.classes
    return measure_drift(model, n_batches, first, second, first_classes, second_classes)


def _classes(rows: Rows | None) -> tuple[Label, ...]:
    return () if rows is None or rows.classes is None else rows.classes
