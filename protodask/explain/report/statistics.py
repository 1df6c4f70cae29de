"""All that the report says of the rows a model is tried on, in one pass over them.

`N` rows, `D` features, `K` classes; `s` the weight of a row, `p0` the class shares of the training data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protodask.engine import Block, Engine, Reduction, Source, add_records, identity
from protodask.engine.records import Floats, Integers, joined, taken
from protodask.evaluation.auc_interval import area_interval
from protodask.evaluation.calibration import CalibrationSums, calibration_sums
from protodask.evaluation.given_rows import check_rows, check_weight
from protodask.evaluation.interval import CONFIDENCE, UNKNOWN, Interval
from protodask.evaluation.metrics import EvaluationPartial, evaluation_partial
from protodask.evaluation.outcomes import OutcomeSums
from protodask.evaluation.roc import curve_bytes, finish_areas
from protodask.evaluation.row_moments import (
    Moments,
    effective_rows,
    mean_interval,
    mean_of_shares,
    moments,
    rows_of_share,
    share_interval,
)
from protodask.evaluation.stream import StreamSums, Watch, see_rows, sum_seen

WORST_ERRORS = 10
CALIBRATION_BINS = 20
LOSS, SQUARES, RIGHT = 0, 1, 2
"""Figures of a row whose moments are kept: `-log p_y`, `sum_k (p_k - [k = y])^2`, and whether it is predicted right."""


@dataclass(frozen=True)
class WorstErrors:
    """Rows that are predicted wrong, by the probability of their own class, smallest first; at most ten."""

    own: Floats
    rows: Integers
    target: Integers
    features: NDArray[np.floating]

    def __add__(self, other: WorstErrors) -> WorstErrors:
        """Those of the rows of both."""
        both = joined(self, other)
        return taken(both, _lowest(both.own, both.rows, WORST_ERRORS))


@dataclass(frozen=True)
class RowStatistics:
    """What some rows contribute to the report; merges as a monoid."""

    evaluation: EvaluationPartial
    moments: Moments
    calibration: CalibrationSums
    errors: WorstErrors
    stream: StreamSums

    @property
    def sums(self) -> OutcomeSums:
        return self.evaluation.sums


def rows_statistics(block: Block, watch: Watch, roc_auc: bool) -> RowStatistics:
    """The statistics of a block of rows whose classes the model knows."""
    seen = see_rows(block, watch)
    outcomes = seen.outcomes
    own = outcomes.probability[np.arange(len(seen.rows)), outcomes.target].astype(np.float64)
    square = np.square(outcomes.probability).sum(axis=1) + 1 - 2 * own
    with np.errstate(divide="ignore"):
        right = outcomes.probability.argmax(axis=1) == outcomes.target
        figures = np.column_stack([-np.log(own), square, right])
    wrong = np.flatnonzero(~right)
    worst = wrong[_lowest(own[wrong], seen.rows[wrong], WORST_ERRORS)]
    return RowStatistics(
        evaluation_partial(outcomes, roc_auc),
        moments(figures, outcomes.weight),
        calibration_sums(outcomes, CALIBRATION_BINS),
        WorstErrors(own[worst], seen.rows[worst], outcomes.target[worst].astype(np.int64), seen.features[worst]),
        sum_seen(seen, watch),
    )


def _lowest(own: Floats, rows: Integers, most: int) -> Integers:
    if len(own) > most:
        # All that tie with the last one, so that the row numbers decide.
        candidates = np.flatnonzero(own <= np.partition(own, most - 1)[most - 1])
        return candidates[np.lexsort((rows[candidates], own[candidates]))[:most]]
    return np.lexsort((rows, own))


STATISTICS: Reduction[RowStatistics, RowStatistics] = Reduction(rows_statistics, add_records, identity)


def row_statistics(engine: Engine, source: Source, watch: Watch) -> RowStatistics:
    """One pass of the model over a source of features and targets. The ROC AUC is left out where it may not fit."""
    roc_auc = curve_bytes(source.layout.n_rows, watch.model.n_classes) <= engine.scheduler.memory_bytes
    found = engine.reduce(check_rows(source), STATISTICS, engine.share(watch), roc_auc, label="statistics")
    engine.forget(source)
    check_weight(found.sums.weight, found.moments.weight_squares)
    return found


@dataclass(frozen=True)
class Metric:
    """A figure of quality, and what predicting the class shares of the training data would have."""

    name: str
    estimate: Interval
    baseline: float | None
    higher_is_better: bool
    method: str
    """Where the interval comes from, or why there is none."""

    @property
    def title(self) -> str:
        return self.name[0].upper() + self.name[1:]

    @property
    def is_share(self) -> bool:
        return self.name.endswith("accuracy")

    @property
    def has_interval(self) -> bool:
        return not math.isnan(self.estimate.low)


@dataclass(frozen=True)
class Quality:
    """How good a model is on some rows."""

    metrics: tuple[Metric, ...]
    confusion: Floats
    """Weight by true class and predicted class (K, K)."""
    recall: tuple[Interval | None, ...]
    """Share of each class that is predicted right; None for classes that do not occur."""
    rows: int
    weight: float
    effective_rows: float

    @property
    def confusion_shares(self) -> Floats:
        """The confusion as shares of the true class (K, K), 0 where it does not occur."""
        totals = self.confusion.sum(axis=1, keepdims=True)
        shares: Floats = np.divide(self.confusion, totals, out=np.zeros_like(self.confusion), where=totals > 0)
        return shares

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
        Metric(
            "accuracy",
            share_interval(sums.accuracy, rows_of_share(found.moments, RIGHT)),
            float(shares[guess]),
            True,
            "Wilson's interval",
        ),
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
        return Metric(name, UNKNOWN, None, True, reason)
    areas = finish_areas(curves, classes)
    if math.isnan(areas.macro):
        return Metric(name, UNKNOWN, None, True, "not defined: the rows are all of one class")
    if len(classes.rows) > 2:
        method = "mean over classes against the rest; no interval, as the classes share their rows"
        return Metric(name, Interval(areas.macro, math.nan, math.nan), 0.5, True, method)
    ends = area_interval(areas.macro, areas.spread, classes, areas.error_bound, CONFIDENCE)
    method = "interval of DeLong" if areas.spread is not None else "a bound on the deviation"
    return Metric(name, ends, 0.5, True, method)
