"""A profile: what rows looked like to a model, as a sealed record of bounded size that later rows are compared with.

`D` features, `K` classes of the model. Everything in it is a sum over rows, but the quantiles.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from protodask.data.format.schema import Label
from protodask.data.places.records import Fields, RecordKind, recognize, unseal
from protodask.engine.records import Floats
from protodask.evaluation.row_moments import BinSums, effective_rows
from protodask.evaluation.stream import (
    CALIBRATION_BINS,
    FAMILIARITY_LEVELS,
    LOSS,
    MOST_VALUES,
    RESIDUAL,
    Bins,
    StreamSums,
    Watch,
    weighted_quantiles,
)

RECORD = RecordKind(
    "profile",
    "protodask-profile",
    2,
    "Make one with `protodask monitor`.",
    "Make it again, or restore it from a copy.",
)

QUANTILES = {"p01": 0.01, "p05": 0.05, "p25": 0.25, "p50": 0.5, "p75": 0.75, "p95": 0.95, "p99": 0.99}
"""Levels of familiarity by their names, which hold no dots."""


@dataclass(frozen=True)
class FeatureProfile:
    """One feature: its moments, and the rows in each of its bins."""

    name: str
    bins: Bins
    counts: BinSums
    mean: float
    deviation: float
    outside: float = 0.0
    """Share of the rows beyond the range of those that they were watched with; no part of a record."""


@dataclass(frozen=True)
class OutcomeProfile:
    """How right a model was on labelled rows."""

    labels: BinSums
    """By class: those of the model (K,), then those that it does not know."""
    mean: Floats
    """Of the figures of a row: loss, whether it is right, `[k = y] - p_k` of each class (2 + K,)."""
    variance: Floats
    """`sum s^2 (x - mean)^2 / sum s^2`."""
    calibration: Floats
    """Weight, sum of `s^2`, predicted probability, outcomes and their sum of `s^2`, by class and bin of the probability
    (5, K, 10)."""


@dataclass(frozen=True)
class StreamProfile:
    """What some rows looked like to a model."""

    model: str
    """Its fingerprint."""
    n_batches: int
    classes: tuple[Label, ...]
    """Of the model (K,)."""
    unknown: tuple[Label, ...]
    """Classes that the rows may have and the model does not know."""
    rows: int
    weight: float
    effective_rows: float
    features: tuple[FeatureProfile, ...]
    familiarity: Bins
    familiarity_counts: BinSums
    quantiles: Mapping[str, float]
    """Of the familiarity, by the names of `QUANTILES`."""
    predicted: BinSums
    """By predicted class (K,)."""
    probability: Floats
    """Mean predicted probability of each class (K,)."""
    outcomes: OutcomeProfile | None
    """None where the rows had no classes."""

    @property
    def log_loss(self) -> float | None:
        """Mean loss, bounded as `paired` says."""
        return None if self.outcomes is None else float(self.outcomes.mean[LOSS])


def make_profile(found: StreamSums, watch: Watch, fingerprint: str) -> StreamProfile:
    """The profile that the sums of some rows amount to; `fingerprint` is that of the model."""
    summary, sample = found.summary, found.sample
    quantiles = weighted_quantiles(sample.values, sample.weight, list(QUANTILES.values()))
    outcomes = None
    if watch.codes is not None:
        calibration = found.calibration
        outcomes = OutcomeProfile(
            found.labels,
            found.figures.mean,
            found.figures.deviation_squares,
            np.stack(
                [
                    calibration.weight,
                    calibration.squares,
                    calibration.predicted,
                    calibration.outcome,
                    calibration.outcome_squares,
                ]
            ),
        )
    features = zip(watch.model.feature_names, watch.features, summary.deviation.tolist(), strict=True)
    return StreamProfile(
        fingerprint,
        watch.n_batches,
        watch.model.classes,
        watch.unknown,
        summary.rows,
        summary.weight,
        effective_rows(summary.weight, found.weight_squares),
        tuple(
            FeatureProfile(
                name,
                bins,
                BinSums(found.counts.weight[column, : bins.count], found.counts.squares[column, : bins.count]),
                float(summary.mean[column]),
                deviation,
                float(found.outside[column] / summary.weight),
            )
            for column, (name, bins, deviation) in enumerate(features)
        ),
        watch.familiarity,
        found.familiarity,
        dict(zip(QUANTILES, quantiles, strict=True)),
        found.predicted,
        found.probability / summary.weight,
        outcomes,
    )


def profile_record(profile: StreamProfile) -> dict[str, Any]:
    """The profile as a sealed JSON object."""
    outcomes = profile.outcomes
    record = {
        "model": profile.model,
        "batches": profile.n_batches,
        "classes": list(profile.classes),
        "unknown_classes": list(profile.unknown),
        "rows": profile.rows,
        "weight": profile.weight,
        "effective_rows": profile.effective_rows,
        "features": [
            {
                "name": feature.name,
                "mean": feature.mean,
                "deviation": feature.deviation,
                "by_value": feature.bins.by_value,
                "points": feature.bins.points.tolist(),
                "counts": feature.counts.weight.tolist(),
                "squares": feature.counts.squares.tolist(),
            }
            for feature in profile.features
        ],
        "familiarity_points": profile.familiarity.points.tolist(),
        "familiarity_counts": profile.familiarity_counts.weight.tolist(),
        "familiarity_squares": profile.familiarity_counts.squares.tolist(),
        "familiarity_quantiles": list(profile.quantiles.values()),
        "predicted": profile.predicted.weight.tolist(),
        "predicted_squares": profile.predicted.squares.tolist(),
        "probability": profile.probability.tolist(),
        "outcomes": None
        if outcomes is None
        else {
            "labels": outcomes.labels.weight.tolist(),
            "label_squares": outcomes.labels.squares.tolist(),
            "mean": outcomes.mean.tolist(),
            "variance": outcomes.variance.tolist(),
            "calibration": outcomes.calibration.reshape(-1).tolist(),
        },
    }
    return RECORD.sealed(record)


def read_profile(content: object, where: str) -> StreamProfile:
    """The profile in what a file of `protodask monitor` holds, checked."""
    fields = unseal(recognize(content.get("profile") if isinstance(content, Mapping) else None, RECORD, where))
    classes, unknown = fields.labels("classes"), fields.labels("unknown_classes")
    if len(classes) < 2:
        fields.damaged("there are fewer than two classes")
    weight, effective = (float(fields.floats(name, None)[0]) for name in ("weight", "effective_rows"))
    if not (weight > 0 and effective > 0):
        fields.damaged("it is of no rows")
    familiarity = Bins(_points(fields, "familiarity_points", len(FAMILIARITY_LEVELS)), by_value=False)
    quantiles = fields.floats("familiarity_quantiles", len(QUANTILES)).tolist()
    # In records of version 1 rows of all bins weigh alike, as far as is known.
    alike = weight / effective if fields.integer("version", 1) == 1 else None
    return StreamProfile(
        fields.text("model"),
        fields.integer("batches", 0),
        classes,
        unknown,
        fields.integer("rows", 1),
        weight,
        effective,
        tuple(_feature(record, fields, alike) for record in fields.objects("features")),
        familiarity,
        _sums(fields, "familiarity_counts", "familiarity_squares", familiarity.count, alike),
        dict(zip(QUANTILES, quantiles, strict=True)),
        _sums(fields, "predicted", "predicted_squares", len(classes), alike),
        _counts(fields, "probability", len(classes)),
        _outcomes(fields, len(classes), len(unknown), alike),
    )


def _feature(record: Mapping[str, Any], above: Fields, alike: float | None) -> FeatureProfile:
    fields = replace(above, record=record)
    by_value = record.get("by_value")
    if not isinstance(by_value, bool):
        fields.damaged("by_value is no truth value")
    bins = Bins(_points(fields, "points", MOST_VALUES), by_value)
    return FeatureProfile(
        fields.text("name"),
        bins,
        _sums(fields, "counts", "squares", bins.count, alike),
        float(fields.floats("mean", None)[0]),
        float(fields.floats("deviation", None)[0]),
    )


def _outcomes(above: Fields, n_classes: int, n_unknown: int, alike: float | None) -> OutcomeProfile | None:
    record = above.record.get("outcomes")
    if record is None:
        return None
    if not isinstance(record, Mapping):
        above.damaged("the outcomes are no object")
    fields = replace(above, record=record)
    kept = 5 if alike is None else 4
    calibration = _counts(fields, "calibration", kept * n_classes * CALIBRATION_BINS)
    calibration = calibration.reshape(kept, n_classes, CALIBRATION_BINS)
    if alike is not None:
        calibration = np.concatenate([calibration, calibration[3:] * alike])
    return OutcomeProfile(
        _sums(fields, "labels", "label_squares", n_classes + n_unknown, alike),
        fields.floats("mean", RESIDUAL + n_classes),
        _counts(fields, "variance", RESIDUAL + n_classes),
        calibration,
    )


def _points(fields: Fields, name: str, most: int) -> Floats:
    values = fields.record.get(name)
    length = len(values) if isinstance(values, list) else 0
    found = fields.floats(name, length)
    if not 1 <= length <= most or (np.diff(found) <= 0).any():
        fields.damaged(f"{name} are no bins")
    return found


def _sums(fields: Fields, weight: str, squares: str, length: int, alike: float | None) -> BinSums:
    found = _counts(fields, weight, length)
    return BinSums(found, _counts(fields, squares, length) if alike is None else alike * found)


def _counts(fields: Fields, name: str, length: int) -> Floats:
    found = fields.floats(name, length)
    if (found < 0).any() or not math.isfinite(found.sum()):
        fields.damaged(f"{name} holds something else than sums of weights")
    return found
