"""Calibration: among the rows that get a class with a probability near p, is its share near p, and how to make it so.

`K` classes; the probability of each class falls into fixed bins of equal width. For a class and a bin, over its rows,

    predicted = sum s p / sum s        observed = sum s [y = k] / sum s

and the band is Wilson's interval for the share `observed` of `n` draws: with `z` the normal quantile,

    (observed + z^2 / 2n -+ z sqrt(observed (1 - observed) / n + z^2 / 4n^2)) / (1 + z^2 / n).

`n` is the number of rows of equal weight with which the share would have the variance it has, where rows of the class
and others weigh unlike each other, as in a log of which one class was thinned:

    n = sum s / (m_k (1 - observed) + m_-k observed),    m_k = sum s^2 [y = k] / sum s [y = k]

with `m_-k` the same of the others; where a bin has none of either, `m` is that of all bins. Without weights `n` is the
number of rows.

What makes a model's probabilities such shares is a spline for each class (`control_points`), kept with the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from protodask.data.format.schema import TARGET, WEIGHT, Label
from protodask.engine import Arrays, Block, EngineLike, Reduction, Source, add_records, identity, open_engine
from protodask.engine.records import Floats, Integers
from protodask.errors import InputError
from protodask.evaluation.calibrator import Calibrator
from protodask.evaluation.control_points import MOST_BINS, ScoredRows, SplineSettings, class_rows, fit_splines
from protodask.evaluation.given_rows import check_rows, squared
from protodask.evaluation.interval import normal_quantile
from protodask.evaluation.metrics import log_loss
from protodask.evaluation.model_scores import model_outcomes
from protodask.evaluation.outcomes import PROBABILITY, Outcomes
from protodask.prototypes.model import PrototypeSet
from protodask.prototypes.splines import SplineCalibration


@dataclass(frozen=True)
class CalibrationSums:
    """Sums over rows by class and bin of the predicted probability (K, bins); merges as a monoid."""

    rows: Integers
    """Rows of positive weight."""
    weight: Floats
    """`sum s`."""
    squares: Floats
    """`sum s^2`."""
    predicted: Floats
    """`sum s p`."""
    outcome: Floats
    """`sum s [y = k]`."""
    outcome_squares: Floats
    """`sum s^2 [y = k]`."""


@dataclass(frozen=True)
class CalibrationCurve:
    """How often a class occurs among rows that get it with about the same probability; (K, bins), NaN where empty."""

    classes: tuple[Label, ...]
    edges: Floats
    """Of the bins, from 0 to 1 (bins + 1,); a probability on an edge belongs to the bin above it."""
    rows: Integers
    weight: Floats
    predicted: Floats
    """Mean predicted probability."""
    observed: Floats
    """Share of the weight that is of the class."""
    low: Floats
    high: Floats
    """Wilson's interval around `observed`."""
    confidence: float
    """Of the interval, for each bin by itself."""

    @property
    def error(self) -> Floats:
        """Expected calibration error of each class, `sum_b W_b |predicted_b - observed_b| / sum_b W_b` (K,)."""
        gap = np.where(self.weight > 0, np.abs(self.predicted - self.observed), 0.0)
        total = self.weight.sum(axis=1)
        error: Floats = np.divide(
            (self.weight * gap).sum(axis=1), total, out=np.full(len(total), np.nan), where=total > 0
        )
        return error


def calibration_sums(outcomes: Outcomes, n_bins: int) -> CalibrationSums:
    """The sums over some rows."""
    probability, weight = outcomes.probability, outcomes.weight
    n_classes = probability.shape[1]
    sums, edges = no_calibration(n_classes, n_bins), bin_edges(n_bins)
    for position in range(n_classes):  # a class at a time: temporaries of N numbers, not of N K
        predicted = probability[:, position].astype(np.float64)
        bins = np.minimum(np.searchsorted(edges, predicted, side="right") - 1, n_bins - 1)
        own = outcomes.target == position
        sums.rows[position] = np.bincount(bins, minlength=n_bins)
        sums.weight[position] = np.bincount(bins, weights=weight, minlength=n_bins)
        square = squared(weight)
        sums.squares[position] = np.bincount(bins, weights=square, minlength=n_bins)
        sums.predicted[position] = np.bincount(bins, weights=weight * predicted, minlength=n_bins)
        sums.outcome[position] = np.bincount(bins[own], weights=weight[own], minlength=n_bins)
        sums.outcome_squares[position] = np.bincount(bins[own], weights=square[own], minlength=n_bins)
    return sums


def bin_edges(n_bins: int) -> Floats:
    """The edges `i / n_bins` of the bins (bins + 1,), each the number nearest to it: 0.35 is on one of twenty bins."""
    return np.arange(n_bins + 1) / n_bins


def no_calibration(n_classes: int, n_bins: int) -> CalibrationSums:
    """The sums over no rows: the identity of merging."""
    shape = (n_classes, n_bins)
    return CalibrationSums(np.zeros(shape, dtype=np.int64), *np.zeros((5, *shape)))


def finish_calibration(sums: CalibrationSums, classes: Sequence[Label], confidence: float = 0.95) -> CalibrationCurve:
    """The curve that the sums amount to."""
    n_bins = sums.weight.shape[1]
    present = sums.weight > 0
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        predicted = np.where(present, sums.predicted / sums.weight, np.nan)
        observed = np.where(present, np.minimum(sums.outcome / sums.weight, 1.0), np.nan)
        own = _weighs(sums.outcome, sums.outcome_squares, sums)
        others = _weighs(sums.weight - sums.outcome, sums.squares - sums.outcome_squares, sums)
        rows = np.where(present, sums.weight / (own * (1 - observed) + others * observed), np.nan)
    low, high = wilson_interval(observed, rows, confidence)
    return CalibrationCurve(
        classes=tuple(classes),
        edges=bin_edges(n_bins),
        rows=sums.rows,
        weight=sums.weight,
        predicted=predicted,
        observed=observed,
        low=low,
        high=high,
        confidence=confidence,
    )


def _weighs(weight: Floats, squares: Floats, sums: CalibrationSums) -> Floats:
    """`m` of some of the rows by class and bin: of all bins where a bin has none, of all rows where there are none."""
    of_any, total = sums.squares.sum(axis=1) / sums.weight.sum(axis=1), weight.sum(axis=1)
    of_bins = np.where(total > 0, squares.sum(axis=1) / total, of_any)
    return np.where(weight > 0, squares / weight, of_bins[:, None])


def wilson_interval(share: Floats, count: Floats, confidence: float = 0.95) -> tuple[Floats, Floats]:
    """Low and high end of Wilson's interval for shares of `count` draws each; NaN where either is."""
    z = normal_quantile(confidence)
    middle = share + z**2 / (2 * count)
    half = z * np.sqrt(share * (1 - share) / count + z**2 / (4 * count**2))
    scale = 1 + z**2 / count
    return np.maximum((middle - half) / scale, 0.0), np.minimum((middle + half) / scale, 1.0)


def calibration_curve(
    model: PrototypeSet,
    source: Source,
    codes: NDArray[np.int64],
    engine: EngineLike = None,
    n_bins: int = 20,
    *,
    n_batches: int | None = None,
    confidence: float = 0.95,
) -> CalibrationCurve:
    """Calibration of a model on a source of features and targets, in one pass.

    `codes` are the model's classes of the source's target codes.
    """
    if n_bins not in range(1, MOST_BINS + 1):
        raise InputError("bad-setting", f"n_bins is {n_bins!r}.", f"Give a whole number from 1 to {MOST_BINS}.")
    (count,) = model.batch_counts(n_batches)
    check_rows(source)
    with open_engine(engine) as opened:
        sums = opened.reduce(source, CALIBRATION, opened.share(model), codes, count, int(n_bins), label="calibration")
    return finish_calibration(sums, model.classes, confidence)


def _sum_block(
    block: Block, model: PrototypeSet, codes: NDArray[np.int64], n_batches: int, n_bins: int
) -> CalibrationSums:
    return calibration_sums(model_outcomes(block, model, codes, n_batches), n_bins)


CALIBRATION: Reduction[CalibrationSums, CalibrationSums] = Reduction(_sum_block, add_records, identity)


def fit_calibration(
    model: PrototypeSet,
    source: Source,
    codes: NDArray[np.int64],
    engine: EngineLike = None,
    *,
    n_batches: int | None = None,
    n_bins: int = SplineSettings.n_bins,
    monotone: bool = SplineSettings.monotone,
) -> SplineCalibration:
    """A calibration of the first `n_batches` batches of a model, fitted to rows that it was not trained on.

    `source` has features, targets and, if rows are weighted, `weight` or `inclusion`; `codes` are the model's classes
    of its target codes. `n_bins` and `monotone` are those of `Calibrator`. A few passes of bounded memory: nothing is
    stored in between, so the model is computed in each. A calibration that the model has plays no part.
    """
    settings = SplineSettings(n_bins, monotone)
    (count,) = model.batch_counts(n_batches)
    if source.layout.n_rows == 0:
        raise InputError("no-rows", "There are no rows to calibrate with.", "Give rows of at least two classes.")
    raw = replace(model, calibration=None)
    with open_engine(engine) as opened:
        fitted = fit_splines(opened, source, settings, _read_model_rows, opened.share(raw), codes, count)
        opened.forget(source)
    return SplineCalibration(
        splines=fitted.splines,
        n_batches=count,
        n_bins=int(n_bins),
        monotone=bool(monotone),
        rows=fitted.rows,
        weight=fitted.weight,
    )


def calibrate_model(
    model: PrototypeSet,
    source: Source,
    codes: NDArray[np.int64],
    engine: EngineLike = None,
    *,
    n_batches: int | None = None,
    n_bins: int = SplineSettings.n_bins,
    monotone: bool = SplineSettings.monotone,
) -> PrototypeSet:
    """The model with the calibration of `fit_calibration`, in place of one that it may have had."""
    calibration = fit_calibration(model, source, codes, engine, n_batches=n_batches, n_bins=n_bins, monotone=monotone)
    return replace(model, calibration=calibration)


FOLDS = 5
JUDGED_ROWS = 50_000
"""Up to so many rows a calibration is tried on rows left out: of more than these, twenty points are no overfitting."""


@dataclass(frozen=True)
class LeftOutLoss:
    """Log-loss on each fifth of some rows: of the model, and with a calibration fitted to the other four fifths."""

    raw: float
    calibrated: float


def left_out_loss(
    calibration: SplineCalibration,
    model: PrototypeSet,
    source: Source,
    codes: NDArray[np.int64],
    engine: EngineLike = None,
) -> LeftOutLoss | None:
    """What such a calibration of the model does to rows that it was not fitted to; the arguments of `fit_calibration`.

    None for more than `JUDGED_ROWS` rows, and where four fifths of them are too few to fit to.
    """
    if source.layout.n_rows > JUDGED_ROWS:
        return None
    raw = replace(model, calibration=None)
    with open_engine(engine) as opened:
        rows = opened.collect(source, _own_rows, opened.share(raw), codes, calibration.n_batches, label="rows left out")
        opened.forget(source)
    probability, target, weight = rows[PROBABILITY], rows[TARGET.name], rows[WEIGHT.name]
    fold = np.random.default_rng(0).permutation(len(target)) % FOLDS
    calibrated = np.empty_like(probability)
    for number in range(FOLDS):
        own, others = fold == number, fold != number
        try:
            fitted = Calibrator(calibration.n_bins, calibration.monotone).fit(
                probability[others], target[others], weight[others]
            )
        except InputError:  # of one class alone, say
            return None
        calibrated[own] = fitted.transform(probability[own])
    losses = [log_loss(values, target, weight) for values in (probability, calibrated)]
    return LeftOutLoss(*losses)


def _own_rows(block: Block, model: PrototypeSet, codes: NDArray[np.int64], n_batches: int) -> Arrays:
    found = model_outcomes(block, model, codes, n_batches)
    return {PROBABILITY: found.probability, TARGET.name: found.target, WEIGHT.name: found.weight}


def _read_model_rows(block: Block, model: PrototypeSet, codes: NDArray[np.int64], n_batches: int) -> ScoredRows:
    return class_rows(model_outcomes(block, model, codes, n_batches))
