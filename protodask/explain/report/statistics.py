"""All that the report says of the rows a model is tried on, in one pass over them.

`N` rows, `D` features, `K` classes; `s` the weight of a row, `p0` the class shares of the training data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protodask.data.format.schema import FEATURES, INCLUSION, TARGET, WEIGHT, row_weights
from protodask.engine import Block, Engine, Reduction, Source, identity
from protodask.errors import InputError
from protodask.evaluation.auc_interval import area_interval
from protodask.evaluation.calibration import CalibrationSums, calibration_sums, merge_calibrations
from protodask.evaluation.metrics import CONFIDENCE, EvaluationPartial, evaluation_partial, merge_evaluations
from protodask.evaluation.outcomes import PROBABILITY, OutcomeSums, read_outcomes
from protodask.evaluation.roc import curve_bytes, finish_areas
from protodask.evaluation.row_moments import (
    Estimate,
    Moments,
    effective_rows,
    mean_interval,
    mean_of_shares,
    merge_moments,
    moments,
    share_interval,
)
from protodask.evaluation.row_sample import sample_size
from protodask.explain.report.profile import Profile, Range, merge_profiles, profile_block
from protodask.prototypes.model import PrototypeSet
from protodask.prototypes.scoring import predict_features

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

WORST_ERRORS = 10
CALIBRATION_BINS = 20
LOSS, SQUARES = 0, 1
"""Figures of a row whose moments are kept: `-log p_y`, and `sum_k (p_k - [k = y])^2`."""


@dataclass(frozen=True)
class WorstErrors:
    """Rows that are predicted wrong, by the probability of their own class, smallest first; at most ten."""

    own: Floats
    rows: Integers
    target: Integers
    features: NDArray[np.floating]


@dataclass(frozen=True)
class RowStatistics:
    """What some rows contribute to the report; merges as a monoid."""

    evaluation: EvaluationPartial
    moments: Moments
    calibration: CalibrationSums
    errors: WorstErrors
    profile: Profile

    @property
    def sums(self) -> OutcomeSums:
        return self.evaluation.sums


def rows_statistics(
    block: Block, model: PrototypeSet, codes: Integers, n_batches: int, roc_auc: bool, within: Range, most: int
) -> RowStatistics:
    """The statistics of a block; `codes` are the model's classes of the targets', `most` the rows of the sample."""
    features = block[FEATURES.name]
    ((probability, _),) = predict_features(features, model, [n_batches])
    arrays = {name: block[name] for name in (WEIGHT.name, INCLUSION.name) if name in block}
    coded = arrays | {TARGET.name: codes[block[TARGET.name]]}
    outcomes = read_outcomes(Block(block.number, block.start, coded | {PROBABILITY: probability}))
    weights = row_weights(block)
    kept = np.arange(block.n_rows) if weights is None else np.flatnonzero(weights > 0)
    own = outcomes.probability[np.arange(len(kept)), outcomes.target].astype(np.float64)
    square = np.square(outcomes.probability).sum(axis=1) + 1 - 2 * own
    with np.errstate(divide="ignore"):
        figures = np.column_stack([-np.log(own), square])
    wrong = np.flatnonzero(outcomes.probability.argmax(axis=1) != outcomes.target)
    worst = wrong[_lowest(own[wrong], kept[wrong], WORST_ERRORS)]
    return RowStatistics(
        evaluation_partial(outcomes, roc_auc),
        moments(figures, outcomes.weight),
        calibration_sums(outcomes, CALIBRATION_BINS),
        WorstErrors(
            own[worst], block.start + kept[worst], outcomes.target[worst].astype(np.int64), features[kept[worst]]
        ),
        profile_block(
            Block(block.number, block.start, coded | {FEATURES.name: features}), model.n_classes, within, most
        ),
    )


def _lowest(own: Floats, rows: Integers, most: int) -> Integers:
    if len(own) > most:
        # All that tie with the last one, so that the row numbers decide.
        candidates = np.flatnonzero(own <= np.partition(own, most - 1)[most - 1])
        return candidates[np.lexsort((rows[candidates], own[candidates]))[:most]]
    return np.lexsort((rows, own))


def _merge_errors(left: WorstErrors, right: WorstErrors) -> WorstErrors:
    own, rows = np.concatenate([left.own, right.own]), np.concatenate([left.rows, right.rows])
    chosen = _lowest(own, rows, WORST_ERRORS)
    return WorstErrors(
        own[chosen],
        rows[chosen],
        np.concatenate([left.target, right.target])[chosen],
        np.concatenate([left.features, right.features])[chosen],
    )


@dataclass(frozen=True)
class MergeStatistics:
    """Statistics of the rows of both, with samples of up to `most` rows."""

    most: int

    def __call__(self, left: RowStatistics, right: RowStatistics) -> RowStatistics:
        return RowStatistics(
            merge_evaluations(left.evaluation, right.evaluation),
            merge_moments(left.moments, right.moments),
            merge_calibrations(left.calibration, right.calibration),
            _merge_errors(left.errors, right.errors),
            merge_profiles(self.most, left.profile, right.profile),
        )


def row_statistics(
    engine: Engine, source: Source, model: PrototypeSet, codes: Integers, n_batches: int, within: Range
) -> RowStatistics:
    """One pass of the model over a source of features and targets. The ROC AUC is left out where it may not fit."""
    most = sample_size(model.n_features)
    roc_auc = curve_bytes(source.layout.n_rows, model.n_classes) <= engine.scheduler.memory_bytes
    reduction: Reduction[RowStatistics, RowStatistics] = Reduction(rows_statistics, MergeStatistics(most), identity)
    found = engine.reduce(
        source, reduction, engine.share(model), codes, n_batches, roc_auc, within, most, label="statistics"
    )
    engine.forget(source)
    if found.sums.weight > 0 and math.isfinite(found.sums.weight):
        return found
    raise InputError("no-rows", "No row has a positive weight.", "Report on rows of positive weight.")


@dataclass(frozen=True)
class Metric:
    """A figure of quality, and what predicting the class shares of the training data would have."""

    name: str
    estimate: Estimate
    baseline: float | None
    higher_is_better: bool
    method: str
    """Where the interval comes from, or why there is none."""


@dataclass(frozen=True)
class Quality:
    """How good a model is on some rows."""

    metrics: tuple[Metric, ...]
    confusion: Floats
    """Weight by true class and predicted class (K, K)."""
    recall: tuple[Estimate | None, ...]
    """Share of each class that is predicted right; None for classes that do not occur."""
    rows: int
    weight: float
    effective_rows: float

    @property
    def weighted(self) -> bool:
        """Whether rows count other than once each."""
        return abs(self.weight - self.rows) > 1e-9 * self.rows or self.effective_rows < self.rows * (1 - 1e-9)

    def describe(self) -> dict[str, float]:
        """The figures by name."""
        return {metric.name: metric.estimate.value for metric in self.metrics}


def assess(found: RowStatistics, marginals: Floats) -> Quality:
    """Quality with intervals, from the sums over all rows."""
    sums, class_weight = found.sums, found.sums.confusion.sum(axis=1)
    rows = effective_rows(found.moments.weight, found.moments.weight_squares)
    by_class = [
        share_interval(float(sums.confusion[k, k] / weight), effective_rows(weight, float(sums.classes.squares[k])))
        if weight > 0
        else None
        for k, weight in enumerate(class_weight.tolist())
    ]
    recall = [estimate for estimate in by_class if estimate is not None]
    half = 0.5 if len(marginals) == 2 else 1.0
    shares = class_weight / sums.weight
    with np.errstate(divide="ignore"):
        losses = np.where(shares > 0, -np.log(marginals), 0.0)
    guess = int(marginals.argmax())
    of_squares = "mean of all rows, normal approximation from the sum of squares"
    metrics = [
        Metric("log-loss", mean_interval(found.moments, LOSS), float(shares @ losses), False, of_squares),
        Metric("accuracy", share_interval(sums.accuracy, rows), float(shares[guess]), True, "Wilson's interval"),
        Metric(
            "balanced accuracy",
            mean_of_shares(recall),
            float(shares[guess] > 0) / len(recall),
            True,
            "Wilson's intervals of the classes, combined as independent",
        ),
        Metric(
            "Brier score",
            mean_interval(found.moments, SQUARES, half),
            half * float(marginals @ marginals + 1 - 2 * shares @ marginals),
            False,
            of_squares,
        ),
        _area(found),
    ]
    return Quality(tuple(metrics), sums.confusion, tuple(by_class), sums.rows, sums.weight, rows)


def _area(found: RowStatistics) -> Metric:
    name = "ROC AUC"
    classes, curves = found.sums.classes, found.evaluation.curves
    if curves is None:
        reason = "left out: keeping every score needs more memory than the limit allows"
        return Metric(name, Estimate(math.nan), None, True, reason)
    areas = finish_areas(curves, classes)
    if math.isnan(areas.macro):
        return Metric(name, Estimate(math.nan), None, True, "not defined: the rows are all of one class")
    if len(classes.rows) > 2:
        method = "mean over classes against the rest; no interval, as the classes share their rows"
        return Metric(name, Estimate(areas.macro), 0.5, True, method)
    ends = area_interval(areas.macro, areas.spread, classes, areas.error_bound, CONFIDENCE)
    method = "interval of DeLong" if areas.spread is not None else "a bound on the deviation"
    return Metric(name, Estimate(areas.macro, ends.low, ends.high), 0.5, True, method)
