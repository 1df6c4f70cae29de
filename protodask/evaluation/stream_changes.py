"""What changed between two profiles of rows, by figures that already allow for noise.

A figure is the size of a change where the change is significant, and 0 where it may be chance: a limit for it then
needs no allowance for the number of rows. Each of the six families of tests (features, classes, predictions,
familiarity, calibration, loss) errs with a probability of at most `significance`, adjusted by Holm's method within the
family. The default, 5e-5, lets 20 runs of all six pass without a false alarm with a probability of `1 - 120 * 5e-5 =
0.994`, and sees changes of four standard errors. Rows that come in clusters need a smaller one; see `shifts` for that
and for the tests.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from protodask.data.format.schema import Label, label_numbers, numbers_of
from protodask.evaluation.interval import normal_quantile
from protodask.evaluation.row_moments import BinSums
from protodask.evaluation.shifts import (
    holm,
    mean_difference,
    outside_p_value,
    share_at_least,
    shift_p_value,
    stability_index,
)
from protodask.evaluation.stream import LOSS, RESIDUAL
from protodask.evaluation.stream_profile import OutcomeProfile, StreamProfile

SIGNIFICANCE = 5e-5

FEWEST_CASES = 20.0
"""Rows of a class, the mean of what is expected and seen, below which its mean is too far from normal for a test."""


@dataclass(frozen=True)
class FeatureChange:
    """One feature in the rows of the reference (`before`) and in those looked at (`after`)."""

    name: str
    index: float
    """Population stability index."""
    p_value: float
    """Adjusted for the number of features."""
    mean_before: float
    mean_after: float
    deviation_before: float
    deviation_after: float
    significant: bool
    outside: float
    """Share of the rows beyond the range of those before; 0 where it was not counted."""
    beyond: bool
    """Whether so large a share is significant."""

    @property
    def step(self) -> float:
        """Standardised mean difference `(mean_after - mean_before) / sqrt((var_before + var_after) / 2)`."""
        step = self.mean_after - self.mean_before
        pooled = math.hypot(self.deviation_before, self.deviation_after) / math.sqrt(2)
        return step / pooled if pooled else math.copysign(math.inf, step) if step else 0.0


@dataclass(frozen=True)
class ShareChange:
    """Shares of classes before and after."""

    labels: tuple[Label, ...]
    before: tuple[float, ...]
    after: tuple[float, ...]
    index: float
    p_value: float
    shift: float
    """Largest difference of a share if it is significant, else 0."""


@dataclass(frozen=True)
class FamiliarityChange:
    """How familiar rows are to the model, before and after."""

    index: float
    p_value: float
    shift: float
    """The index if it is significant, else 0."""
    below_1_percent: float
    """Share of the rows that are less familiar than 99 per cent of those before."""
    below_5_percent: float
    rare: float
    """Lower bound of the first: of more than this share that is so with a probability of `1 - significance`."""


@dataclass(frozen=True)
class OutcomeChange:
    """How right the model is, before and after."""

    residual_before: tuple[float, ...]
    """Mean of `[k = y] - p_k` of each class: how much more often it occurs than predicted (K,)."""
    residual_after: tuple[float, ...]
    p_values: tuple[float, ...]
    """Of their differences, adjusted for the number of classes."""
    calibration_shift: float
    """Largest significant difference of them, else 0."""
    loss_difference: float
    loss_standard_error: float | None
    loss_p_value: float
    """One-sided."""
    loss_increase: float
    """The difference if it is significant, else 0."""


@dataclass(frozen=True)
class StreamChanges:
    """Everything that was compared."""

    significance: float
    features: tuple[FeatureChange, ...]
    """The largest significant index first."""
    labels: ShareChange | None
    predictions: ShareChange
    familiarity: FamiliarityChange
    outcomes: OutcomeChange | None

    noticeable: float
    """Smallest change of a share of one half that would be significant, `z sqrt((1 / n + 1 / m) / 4)`; at most 1."""

    @property
    def drifted(self) -> tuple[FeatureChange, ...]:
        """The features whose change is significant."""
        return tuple(feature for feature in self.features if feature.significant)


def compare_profiles(before: StreamProfile, after: StreamProfile, significance: float = SIGNIFICANCE) -> StreamChanges:
    """Compare two profiles over the same bins, of the same model."""
    outcomes, labels = None, None
    if before.outcomes is not None and after.outcomes is not None:
        outcomes = _outcomes(before, after, before.outcomes, after.outcomes, significance)
        labels = _labels(before, after, before.outcomes, after.outcomes, significance)
    return StreamChanges(
        significance,
        _features(before, after, significance),
        labels,
        _shares(before.classes, before.predicted, after.predicted, significance),
        _familiarity(before, after, significance),
        outcomes,
        min(
            1.0,
            normal_quantile(1 - significance) * math.sqrt((1 / before.effective_rows + 1 / after.effective_rows) / 4),
        ),
    )


def _features(before: StreamProfile, after: StreamProfile, significance: float) -> tuple[FeatureChange, ...]:
    pairs = [(old.counts, new.counts) for old, new in zip(before.features, after.features, strict=True)]
    adjusted = holm([shift_p_value(*pair) for pair in pairs])
    chances = holm(
        [outside_p_value(before.effective_rows, after.effective_rows, new.outside) for new in after.features]
    )
    found = [
        FeatureChange(
            old.name,
            stability_index(*pair),
            p_value,
            old.mean,
            new.mean,
            old.deviation,
            new.deviation,
            p_value < significance,
            new.outside,
            chance < significance,
        )
        for old, new, pair, p_value, chance in zip(
            before.features, after.features, pairs, adjusted, chances, strict=True
        )
    ]
    return tuple(sorted(found, key=lambda feature: (not feature.significant, -feature.index)))


def _shares(labels: Sequence[Label], old: BinSums, new: BinSums, significance: float) -> ShareChange:
    p_value = shift_p_value(old, new)
    return ShareChange(
        tuple(labels),
        tuple(old.shares.tolist()),
        tuple(new.shares.tolist()),
        stability_index(old, new),
        p_value,
        float(np.abs(new.shares - old.shares).max()) if p_value < significance else 0.0,
    )


def _labels(
    before: StreamProfile, after: StreamProfile, old: OutcomeProfile, new: OutcomeProfile, significance: float
) -> ShareChange:
    """Classes by label: either may have some that the model does not know."""
    known = label_numbers(before.classes, before.unknown, after.unknown)

    def of_known(profile: StreamProfile, labels: BinSums) -> BinSums:
        sums = np.zeros((2, len(known)))
        np.add.at(
            sums.T,
            numbers_of((*profile.classes, *profile.unknown), known),
            np.transpose([labels.weight, labels.squares]),
        )
        return BinSums(*sums)

    return _shares(
        [label for _, label in known], of_known(before, old.labels), of_known(after, new.labels), significance
    )


def _familiarity(before: StreamProfile, after: StreamProfile, significance: float) -> FamiliarityChange:
    old, new = before.familiarity_counts, after.familiarity_counts
    index, p_value = stability_index(old, new), shift_p_value(old, new)
    # The first bins end at 1 and 5 per cent; of a model that hardly tells rows apart some of these levels are one.
    share, rows = np.cumsum(new.shares), float(new.rows_of_shares(new.shares, old)[0])
    below = [float(share[place]) if place < len(share) - 1 else 0.0 for place in (0, 1)]
    return FamiliarityChange(
        index,
        p_value,
        index if p_value < significance else 0.0,
        below[0],
        below[1],
        share_at_least(below[0] * rows, rows, significance),
    )


def _outcomes(
    before: StreamProfile, after: StreamProfile, old: OutcomeProfile, new: OutcomeProfile, significance: float
) -> OutcomeChange:
    def moments(profile: StreamProfile, found: OutcomeProfile, figure: int) -> tuple[float, float, float]:
        return float(found.mean[figure]), float(found.variance[figure]), profile.effective_rows

    n_classes = len(before.classes)
    differences, p_values = [], []
    for position in range(n_classes):
        figure = RESIDUAL + position
        difference, _, z = mean_difference(moments(before, old, figure), moments(after, new, figure))
        tested = all(_cases(profile, found, position) for profile, found in ((before, old), (after, new)))
        differences.append(difference)
        p_values.append(math.erfc(abs(z) / math.sqrt(2)) if tested else 1.0)
    # Of two classes, the second says the same as the first.
    adjusted = p_values if n_classes == 2 else holm(p_values)
    significant = [abs(found) for found, p in zip(differences, adjusted, strict=True) if p < significance]
    gap, error, z = mean_difference(moments(before, old, LOSS), moments(after, new, LOSS))
    loss_p_value = math.erfc(z / math.sqrt(2)) / 2
    return OutcomeChange(
        tuple(old.mean[RESIDUAL:].tolist()),
        tuple(new.mean[RESIDUAL:].tolist()),
        tuple(adjusted),
        max(significant, default=0.0),
        gap,
        None if math.isnan(error) else error,
        loss_p_value,
        gap if loss_p_value < significance else 0.0,
    )


def _cases(profile: StreamProfile, found: OutcomeProfile, position: int) -> bool:
    """Whether a class, and the others, have rows enough for the mean to be about normal."""
    shares = np.zeros_like(found.labels.shares)
    shares[: len(profile.probability)] = profile.probability
    shares = (shares + found.labels.shares) / 2
    share, rows = float(shares[position]), float(found.labels.rows_of_shares(shares)[position])
    return min(share, 1 - share) * rows >= FEWEST_CASES


@dataclass(frozen=True)
class CalibrationError:
    """Expected calibration error of a model on some rows."""

    value: float
    """Mean over classes of `sum_b W_b |predicted_b - observed_b| / W`, 10 bins `b` of the probability."""
    standard_error: float
    """`sqrt(sum_n s_n^2 ([k = y_n] - observed_b)^2) / W`, `b` the bin of a row, as if each difference kept its sign."""


def calibration_error(found: OutcomeProfile) -> CalibrationError:
    """Its size even for a perfect model is about that of its standard error times the root of the number of bins."""
    weight, squares, predicted, outcome, own = found.calibration
    observed = np.minimum(np.divide(outcome, weight, out=np.zeros_like(weight), where=weight > 0), 1.0)
    variance = own * np.square(1 - observed) + np.maximum(squares - own, 0.0) * np.square(observed)
    total = float(weight.sum(axis=1).max())
    errors = np.abs(predicted - outcome).sum(axis=1) / total
    spread = np.sqrt(variance.sum(axis=1)) / total
    return CalibrationError(float(errors.mean()), float(np.sqrt(np.square(spread).mean())))


def calibration_table(found: OutcomeProfile, classes: Sequence[Label]) -> list[dict[str, Any]]:
    """Predicted and observed share by class and bin, without empty bins, as plain values."""
    rows = []
    weight, _, predicted, outcome, _ = found.calibration
    for position, label in enumerate(classes):
        bins = [
            {
                "share_of_rows": float(weight[position, b] / weight[position].sum()),
                "predicted": float(predicted[position, b] / weight[position, b]),
                "observed": float(outcome[position, b] / weight[position, b]),
            }
            for b in np.flatnonzero(weight[position] > 0)
        ]
        rows.append({"label": label, "bins": bins})
    return rows
