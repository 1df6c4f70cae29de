"""The area under the ROC curve of a whole dataset, in one pass.

`AUC = P(score of a positive > score of a negative) + P(equal) / 2`, each pair counting the product of its weights. It
is a property of the joint order of all rows, so a partial keeps every distinct score with the weight at it: exact and
global, at the price of `RUN_BYTES` bytes for each distinct score. Where these may not fit into memory, a partial keeps
the weights in narrow bins of scores, and the area has an error of which the bound is known (`rank_cells`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protodask.engine import Engine, Source
from protodask.engine.records import Floats
from protodask.evaluation.auc_interval import ClassTotals, Spread, delong_spread
from protodask.evaluation.given_rows import check_weight
from protodask.evaluation.outcomes import Outcomes
from protodask.evaluation.rank_cells import Cells, area_of_cells, bin_rows, cells_of_bins
from protodask.evaluation.score_bins import BIN_BYTES, FIRST_FREE, BoundedBins, affordable_bins

RUN_BYTES = 24
"""A score and two weights; 20 where the scores are float32."""

MERGE_BYTES = 64
"""What merging one curve needs beside its inputs and its result, for each score: the order and the sorted copies."""


@dataclass(frozen=True)
class Runs:
    """Distinct scores, ascending, and the weight of positive and of negative rows at each (all of one length)."""

    score: NDArray[np.floating[Any]]
    positive: Floats
    negative: Floats

    def __add__(self, other: Curve) -> Runs:
        """The curve of the rows of both."""
        if not isinstance(other, Runs):
            raise TypeError("exact curves do not merge with binned ones")
        if len(self.score) == 0:
            return other
        if len(other.score) == 0:
            return self
        return compress_runs(
            np.concatenate([self.score, other.score]),
            np.concatenate([self.positive, other.positive]),
            np.concatenate([self.negative, other.negative]),
        )


MOST_BINS = 2**18
"""Of a curve: with scores spread evenly from 0 to 1 the bound on the error is then about 2e-5."""

BINS_FREE = 36
"""Free bits of the bins (see `score_bins`): they are narrower than 1/65,536 of their scores, if they are few enough."""


Curve = Runs | BoundedBins
"""Exact, or known at the ends of bins alone, which have the weights of positives and of negatives."""

Curves = tuple[Curve, ...]
"""One for each class against the rest; for two classes one curve only, by the probability of class 1."""


@dataclass(frozen=True)
class Areas:
    """The area for each class against the rest, and their means; nan where there is none.

    A class has no area when no row is of it, or all rows are: the means leave it out, and are nan when no class is
    left.
    """

    by_class: Floats
    """For two classes one value, of class 1; else one for each class (K,)."""
    prevalence: Floats
    """Weight of the rows of each of these classes."""
    error: Floats
    """How far each area may be from the exact one."""
    spread: Spread | None = None
    """Of the area of two classes by DeLong."""

    @property
    def macro(self) -> float:
        """Plain mean over the classes that have an area."""
        return self._mean(self.by_class, np.ones_like(self.by_class))

    @property
    def weighted(self) -> float:
        """Mean over the classes that have an area, weighted by their prevalence."""
        return self._mean(self.by_class, self.prevalence)

    @property
    def error_bound(self) -> float:
        """How far either mean may be from the exact one: 0 where the curves are exact."""
        means = [self._mean(self.error, weight) for weight in (np.ones_like(self.prevalence), self.prevalence)]
        return 0.0 if math.isnan(means[0]) else max(means)

    def _mean(self, value: Floats, weight: Floats) -> float:
        defined = ~np.isnan(self.by_class)
        if not defined.any():
            return float("nan")
        return float(np.sum(weight[defined] * value[defined]) / weight[defined].sum())


def collect_curves(outcomes: Outcomes, most_bins: int | None = None) -> Curves:
    """One curve for each class against the rest; for two classes one curve only, by the probability of class 1.

    Exact, or in so many bins at most.
    """
    n_classes = outcomes.probability.shape[1]
    classes = (1,) if n_classes == 2 else range(n_classes)
    return tuple(
        make_curve(outcomes.probability[:, index], outcomes.target == index, outcomes.weight, most_bins, BINS_FREE)
        for index in classes
    )


def make_curve(
    score: NDArray[np.floating[Any]],
    positive: NDArray[np.bool_],
    weight: Floats | None,
    most_bins: int | None = None,
    free: int = FIRST_FREE,
) -> Curve:
    """The curve of some rows, exact or in so many bins at most, of at first so many free bits (see `score_bins`)."""
    if most_bins is not None:
        return BoundedBins(bin_rows(score, positive, weight, most_bins, free), most_bins)
    counted = np.ones(len(score)) if weight is None else weight
    return compress_runs(score, np.where(positive, counted, 0.0), np.where(positive, 0.0, counted))


def compress_runs(score: NDArray[np.floating[Any]], positive: Floats, negative: Floats) -> Runs:
    """The exact curve of rows with these scores, and weights as positives and as negatives."""
    if len(score) == 0:
        return Runs(score, positive, negative)
    # The stable sort keeps the order of addition fixed, and merges two sorted halves in linear time.
    order = np.argsort(score, kind="stable")
    ordered = score[order]
    first = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    with np.errstate(over="ignore"):  # infinite sums are known where they are used
        return Runs(ordered[first], np.add.reduceat(positive[order], first), np.add.reduceat(negative[order], first))


def area(runs: Runs) -> float:
    """`sum_i pos_i (neg_below_i + neg_i / 2) / (sum pos * sum neg)`; nan without positives or without negatives."""
    positive, negative = runs.positive.sum(), runs.negative.sum()
    if positive == 0 or negative == 0:
        return float("nan")
    weight, rest = _scaled(runs.positive, positive), _scaled(runs.negative, negative)
    below = np.cumsum(rest) - 0.5 * rest
    return min(float(np.sum(weight * below) / weight.sum() / rest.sum()), 1.0)  # rounding may be upwards


def area_and_error(ordered: Runs | Cells) -> tuple[float, float]:
    """The area, and how far it may be from the exact one."""
    return (area(ordered), 0.0) if isinstance(ordered, Runs) else area_of_cells(ordered)


def _scaled(weight: Floats, total: float) -> Floats:
    """The weights times the power of two that brings their total to about 1: the product of two of them is a number."""
    return np.ldexp(weight, -math.frexp(total)[1]) if math.isfinite(total) else weight


def finish_areas(curves: Curves, classes: ClassTotals | None = None) -> Areas:
    """The areas under merged curves; for their deviation, the totals of the classes (K,)."""
    ordered = [cells_of_bins(curve.bins) if isinstance(curve, BoundedBins) else curve for curve in curves]
    with np.errstate(over="ignore"):
        check_weight(float(ordered[0].positive.sum() + ordered[0].negative.sum()))
    value, error = np.array([area_and_error(one) for one in ordered]).T
    spread = None
    if len(ordered) == 1 and classes is not None:
        spread = delong_spread(value[0], ordered[0].positive, ordered[0].negative, classes)
    return Areas(value, np.array([one.positive.sum() for one in ordered]), error, spread)


def curve_bytes(n_rows: int, n_classes: int) -> int:
    """Memory the last merge takes when all scores differ.

    What the tasks returned, the two halves merged from it and their union are alive at the same time, and one curve's
    working space.
    """
    curves = 1 if n_classes == 2 else n_classes
    return n_rows * (3 * RUN_BYTES * curves + MERGE_BYTES)


def curve_bins(engine: Engine, source: Source, n_classes: int) -> int | None:
    """Bins that a curve of the source may have in the memory of an engine; None where it may be exact."""
    if curve_bytes(source.layout.n_rows, n_classes) <= engine.scheduler.memory_bytes:
        return None
    curves = 1 if n_classes == 2 else n_classes
    return min(MOST_BINS, affordable_bins(engine, source, (BIN_BYTES + 2 * 8) * curves))
