"""What the sections of a report are made from: results only, no rows and no engine."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from protodask.data.format.schema import Label
from protodask.evaluation.calibration import CalibrationCurve
from protodask.evaluation.interval import Interval
from protodask.explain.explanation import Explanation
from protodask.explain.familiarity import FamiliarityReference
from protodask.explain.report.drift import ALARMS, Drift, FeatureDrift, alarm
from protodask.explain.report.statistics import Quality, WorstErrors
from protodask.prototypes.batches import Batch
from protodask.prototypes.model import PrototypeSet
from protodask.prototypes.table_model import fits_of
from protodask.selection.results import SearchResult

MOST_CLASSES = 40
"""Classes of a confusion matrix that people still read; beyond, the most frequent confusions are listed."""

DENSE_CLASSES = 12
"""Classes from which the matrix is set in smaller letters, its column heads upright."""

MOST_CONFUSIONS = 20
MOST_PROTOTYPES = 4
MOST_FEATURES = 12
MOST_PROBABILITIES = 5


class ClassLine(NamedTuple):
    """One class of a model."""

    label: Label
    in_training: float
    """Its share."""
    in_rows: float
    recall: Interval | None
    """Share of its rows that is predicted right; None where it does not occur."""
    prototypes: int


@dataclass(frozen=True)
class Content:
    """Everything a page shows."""

    title: str
    model: PrototypeSet
    model_name: str
    model_key: str
    data_name: str
    data_key: str | None
    n_batches: int
    quality: Quality
    calibration: CalibrationCurve
    reference: FamiliarityReference
    """Familiarity of a sample of the rows, each in proportion to its weight."""
    errors: WorstErrors
    explanations: tuple[Explanation, ...]
    """Of the errors."""
    search: SearchResult | None = None
    drift: Drift | None = None
    training_key: str | None = None
    """Fingerprint of the training dataset that was given, if one was."""

    @property
    def fits(self) -> list[Mapping[str, Any]]:
        """What the model says of the fits it comes from."""
        return fits_of(self.model.provenance)

    @property
    def is_raw(self) -> bool:
        """Whether the model has a calibration, which is left aside."""
        return self.model.calibration is not None

    @property
    def is_other_training(self) -> bool:
        """Whether the training dataset that was given is none of those the model says it was trained on."""
        known = [fit["dataset"] for fit in self.fits if "dataset" in fit]
        return self.training_key is not None and bool(known) and self.training_key not in known

    @property
    def is_training(self) -> bool:
        """Whether the rows are those that the model was trained on."""
        return self.data_key is not None and any(fit.get("dataset") == self.data_key for fit in self.fits)

    @property
    def batches(self) -> tuple[Batch, ...]:
        """Those that are used."""
        return self.model.batches[: self.n_batches]

    @property
    def n_prototypes(self) -> int:
        return sum(batch.n_prototypes for batch in self.batches)

    @property
    def looked_at(self) -> frozenset[int]:
        """Positions of the features that the model looks at."""
        return frozenset(index for batch in self.batches for index in batch.looked_at.tolist())

    @property
    def drifts(self) -> list[FeatureDrift]:
        """Features by how they changed: the most alarming first, of equally alarming ones those that are used."""
        changed = () if self.drift is None or self.drift.changes is None else self.drift.changes.features
        used = {self.model.feature_names[index] for index in self.looked_at}
        lines = [FeatureDrift(change, change.name in used, alarm(change)) for change in changed]
        return sorted(lines, key=lambda one: (-ALARMS.index(one.alarm), not one.used, -one.change.index))

    @property
    def class_lines(self) -> list[ClassLine]:
        """What is known of each class."""
        codes = np.concatenate([np.zeros(0, dtype=np.int64), *(batch.prototype_class for batch in self.batches)])
        occurring = self.quality.confusion.sum(axis=1) / self.quality.weight
        counts = np.bincount(codes, minlength=self.model.n_classes)
        columns = self.model.marginals.tolist(), occurring.tolist(), self.quality.recall, counts.tolist()
        return [ClassLine(*line) for line in zip(self.model.classes, *columns, strict=True)]

    @property
    def worst_calibration(self) -> float | None:
        """Expected calibration error of the class with the largest one."""
        return max((error for error in self.calibration.error.tolist() if error == error), default=None)

    @property
    def training_seconds(self) -> float:
        return math.fsum(value for record in self.round_records if (value := figure(record.get("seconds"))) is not None)

    @property
    def round_records(self) -> list[Mapping[str, Any]]:
        """A record for each round of each draw that the model comes from, as far as they are known."""
        return [record for fit in self.fits for record in listed(fit.get("batches")) if isinstance(record, Mapping)]

    @property
    def left_out(self) -> list[object]:
        """Numbers of the rounds that are not in the model."""
        records = enumerate(self.round_records, start=1)
        return [record.get("batch", number) for number, record in records if record.get("kept") is False]


class Confusion(NamedTuple):
    """Rows of a class that are predicted to be of another."""

    true: Label
    predicted: Label
    weight: float
    share: float
    """Of the true class."""


def confusions(content: Content) -> list[Confusion]:
    """The most frequent confusions, the largest first."""
    classes, shares = content.model.classes, content.quality.confusion_shares
    wrong = content.quality.confusion.copy()
    np.fill_diagonal(wrong, 0.0)
    order = np.argsort(-wrong, axis=None, kind="stable")[:MOST_CONFUSIONS]
    places = zip(*(places.tolist() for places in np.unravel_index(order, wrong.shape)), strict=True)
    return [
        Confusion(classes[true], classes[predicted], float(wrong[true, predicted]), float(shares[true, predicted]))
        for true, predicted in places
        if wrong[true, predicted] > 0
    ]


def likely_classes(explanation: Explanation) -> list[tuple[Label, float]]:
    """The most probable classes."""
    order = np.argsort(-explanation.probability, kind="stable")[:MOST_PROBABILITIES].tolist()
    return [(explanation.classes[index], float(explanation.probability[index])) for index in order]


def listed(value: object) -> Sequence[Any]:
    """A list as it is, anything else as an empty one."""
    return value if isinstance(value, list | tuple) else []


def mapped(value: object) -> Mapping[str, Any]:
    """A mapping as it is, anything else as an empty one."""
    return value if isinstance(value, Mapping) else {}


def figure(value: object) -> float | None:
    """A number as it is, None instead of anything else."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
