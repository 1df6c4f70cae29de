"""What the sections of a report are made from: results only, no rows and no engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from protodask.evaluation.calibration import CalibrationCurve
from protodask.explain.contributions import Explanation
from protodask.explain.familiarity import FamiliarityReference
from protodask.explain.report.drift import Drift
from protodask.explain.report.statistics import Quality, WorstErrors
from protodask.prototypes.model import PrototypeSet
from protodask.selection.results import SearchResult


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
    before_name: str = ""
    """The rows that drift is measured from."""
    after_name: str = ""
    training_key: str | None = None
    """Fingerprint of the training dataset that was given, if one was."""

    @property
    def fits(self) -> list[Mapping[str, Any]]:
        """What the model says of the fits it comes from; provenance may hold anything."""
        found = self.model.provenance.get("fits")
        return [entry for entry in found if isinstance(entry, Mapping)] if isinstance(found, list) else []

    @property
    def is_other_training(self) -> bool:
        """Whether the training dataset that was given is none of those the model says it was trained on."""
        known = [fit["dataset"] for fit in self.fits if "dataset" in fit]
        return self.training_key is not None and bool(known) and self.training_key not in known

    @property
    def batch_records(self) -> list[Mapping[str, Any]]:
        """A record for each batch of the model, as far as they are known."""
        return [record for fit in self.fits for record in listed(fit.get("batches")) if isinstance(record, Mapping)]


def listed(value: object) -> Sequence[Any]:
    """A list as it is, anything else as an empty one."""
    return value if isinstance(value, list | tuple) else []


def mapped(value: object) -> Mapping[str, Any]:
    """A mapping as it is, anything else as an empty one."""
    return value if isinstance(value, Mapping) else {}


def figure(value: object) -> float | None:
    """A number as it is, None instead of anything else."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
