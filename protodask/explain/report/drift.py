"""How other rows differ from those a model was trained on: feature by feature, in the classes, in familiarity.

`D` features, `K` classes. Means, ranges and class shares are of all rows; distributions are compared by samples keyed
by row number (see `profile`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from protodask.data.format.schema import Label
from protodask.evaluation.row_sample import spread
from protodask.evaluation.shifts import holm
from protodask.explain.report.profile import Profile
from protodask.prototypes.model import PrototypeSet, familiarity

Floats = NDArray[np.float64]

Alarm = Literal["strong", "some", "none"]

SIGNIFICANT = 0.01
"""Holm-adjusted p-value above which a difference may be chance."""

STRONG_DISTANCE, SOME_DISTANCE = 0.2, 0.1
STRONG_STEP, SOME_STEP = 0.5, 0.2
"""Standardised mean differences: medium and small effects by Cohen's convention."""

STRONG_OUTSIDE, SOME_OUTSIDE = 0.05, 0.005
RARE_QUANTILE = 0.01

MOST_PATHS = 10_000
"""Product of two numbers of rows up to which the exact p-value of their distance is computed, in about a millisecond.
The asymptotic one is 0 for a row beside two that are both larger, where it should be 2/3; here it is good enough: 0.048
for 0.050 of 10 and 1,000 rows, 0.43 for 0.47 of 100 and 100."""

MOST_COUNTED = 10_000
"""Rows up to which those outside a range are counted as draws; with more, their share has next to no spread."""


@dataclass(frozen=True)
class FeatureDrift:
    """One feature in the rows compared with (`before`) and in those looked at (`after`)."""

    name: str
    used: bool
    """Whether the model looks at it, with the batches that are used."""
    mean_before: float
    mean_after: float
    step: float
    """Standardised mean difference `(mean_after - mean_before) / sqrt((var_before + var_after) / 2)`."""
    distance: float
    """Kolmogorov-Smirnov distance: largest difference between the two cumulative distributions."""
    p_value: float
    """That of the distance, adjusted by Holm's method for the number of features."""
    outside: float
    """Share of the rows looked at whose value lies outside the range of the others."""
    alarm: Alarm


@dataclass(frozen=True)
class ClassDrift:
    """Shares of one class; None where the class is not known there."""

    label: Label
    before: float | None
    after: float | None


@dataclass(frozen=True)
class FamiliarityDrift:
    """Familiarity before and after, in samples."""

    before: Floats
    after: Floats
    distance: float
    p_value: float
    rare: float
    """Share of the rows looked at that are less familiar than 99 per cent of the others."""


@dataclass(frozen=True)
class Drift:
    """Everything that was compared."""

    features: tuple[FeatureDrift, ...]
    """The most alarming first."""
    classes: tuple[ClassDrift, ...]
    """Empty where the rows looked at have no classes, or where there are no rows."""
    familiarity: FamiliarityDrift
    sample_before: int
    sample_after: int
    """Rows of the samples that distributions were compared by."""
    rows_before: int
    rows_after: int

    @property
    def alarming(self) -> int:
        """Features with a strong alarm."""
        return sum(feature.alarm == "strong" for feature in self.features)

    @property
    def new_classes(self) -> tuple[Label, ...]:
        return tuple(entry.label for entry in self.classes if not entry.before and entry.after)

    @property
    def vanished_classes(self) -> tuple[Label, ...]:
        return tuple(entry.label for entry in self.classes if entry.before and not entry.after)


def measure_drift(
    model: PrototypeSet,
    n_batches: int,
    before: Profile,
    after: Profile,
    before_classes: Sequence[Label],
    after_classes: Sequence[Label] | None,
) -> Drift:
    """Compare two profiles; the share outside is that which `after` was profiled with. No pass over any rows."""
    first, second = spread(before.sample), spread(after.sample)
    old, new = before.sample.features[first], after.sample.features[second]
    distances = [distance(old[:, column], new[:, column]) for column in range(model.n_features)]
    adjusted = holm([p_value for _, p_value in distances])
    steps = standardized_steps(before, after)
    active = {index for batch in model.batches[:n_batches] for index in batch.looked_at.tolist()}
    outside = after.outside_share
    # Of shares too small for any alarm nobody asks whether they are chance; a p-value of 1 keeps Holm's bound.
    beyond = holm(
        [
            outside_p_value(before.effective_rows, after.effective_rows, share) if share >= SOME_OUTSIDE else 1.0
            for share in outside.tolist()
        ]
    )
    features = [
        FeatureDrift(
            name,
            column in active,
            float(before.summary.mean[column]),
            float(after.summary.mean[column]),
            float(steps[column]),
            distances[column][0],
            adjusted[column],
            float(outside[column]),
            judge(
                float(steps[column]),
                distances[column][0],
                adjusted[column],
                float(outside[column]) if beyond[column] < SIGNIFICANT else 0.0,
            ),
        )
        for column, name in enumerate(model.feature_names)
    ]
    features.sort(key=_severity, reverse=True)
    return Drift(
        tuple(features),
        _classes(before, after, before_classes, after_classes)
        if after_classes is not None and before.summary.weight > 0 and after.summary.weight > 0
        else (),
        _familiarity(
            sample_familiarity(model, n_batches, before)[first], sample_familiarity(model, n_batches, after)[second]
        ),
        len(first),
        len(second),
        before.summary.rows,
        after.summary.rows,
    )


def sample_familiarity(model: PrototypeSet, n_batches: int, profile: Profile) -> Floats:
    """Familiarity of the rows of a sample, in its order."""
    return familiarity(model.scores(profile.sample.features, [n_batches])[0])


def distance(before: NDArray[np.floating], after: NDArray[np.floating]) -> tuple[float, float]:
    """Kolmogorov-Smirnov distance of two samples, and its p-value; 0 and 1 where one is empty.

    Ties make the p-value too large rather than too small.
    """
    from scipy.stats import ks_2samp

    if len(before) == 0 or len(after) == 0:
        return 0.0, 1.0
    found = ks_2samp(before, after, method="exact" if len(before) * len(after) <= MOST_PATHS else "asymp")
    return float(found.statistic), float(found.pvalue)


def outside_p_value(rows_before: float, rows_after: float, share: float) -> float:
    """Probability that at least so large a share of rows lies outside the range of others of the same distribution.

    Of `m` rows, the number outside the range of `n` others is beta-binomial, `BetaBinomial(m, 2, n - 1)`, whatever
    their continuous distribution; the share itself is `Beta(2, n - 1)` for large `m`. Ties make it too large.
    """
    from scipy.stats import beta, betabinom

    if share <= 0 or rows_before < 2:
        return 1.0
    if rows_after > MOST_COUNTED:
        return float(beta.sf(share, 2, rows_before - 1))
    rows = max(1, round(rows_after))
    return float(betabinom.sf(round(share * rows) - 1, rows, 2, rows_before - 1))


def standardized_steps(before: Profile, after: Profile) -> Floats:
    """`(mean_after - mean_before) / sqrt((var_before + var_after) / 2)` (D,), 0 without any difference."""
    step = after.summary.mean - before.summary.mean
    pooled = np.sqrt((np.square(before.summary.deviation) + np.square(after.summary.deviation)) / 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(step == 0, 0.0, step / pooled)


def judge(step: float, gap: float, p_value: float, outside: float) -> Alarm:
    """How alarming a feature is: large enough and no chance, or beyond what the model has seen."""
    large, size = p_value < SIGNIFICANT, abs(step)
    if (large and (gap >= STRONG_DISTANCE or size >= STRONG_STEP)) or outside >= STRONG_OUTSIDE:
        return "strong"
    if (large and (gap >= SOME_DISTANCE or size >= SOME_STEP)) or outside >= SOME_OUTSIDE:
        return "some"
    return "none"


def _severity(feature: FeatureDrift) -> tuple[int, bool, float, float]:
    order: dict[Alarm, int] = {"strong": 2, "some": 1, "none": 0}
    size = abs(feature.step) if math.isfinite(feature.step) else math.inf
    return order[feature.alarm], feature.used, max(feature.distance, feature.outside), size


def _classes(
    before: Profile, after: Profile, before_classes: Sequence[Label], after_classes: Sequence[Label]
) -> tuple[ClassDrift, ...]:
    # True is no 1 here.
    old = {(type(label), label): share for label, share in zip(before_classes, _shares(before), strict=True)}
    new = {(type(label), label): share for label, share in zip(after_classes, _shares(after), strict=True)}
    found = [ClassDrift(key[1], old.get(key), new.get(key)) for key in (*old, *(key for key in new if key not in old))]
    return tuple(sorted(found, key=lambda entry: -abs((entry.after or 0.0) - (entry.before or 0.0))))


def _shares(profile: Profile) -> list[float]:
    shares: list[float] = (profile.summary.class_weight / profile.summary.weight).tolist()
    return shares


def _familiarity(before: Floats, after: Floats) -> FamiliarityDrift:
    gap, p_value = distance(before, after)
    rare = float(np.mean(after < np.quantile(before, RARE_QUANTILE))) if len(before) and len(after) else 0.0
    return FamiliarityDrift(before, after, gap, p_value, rare)
