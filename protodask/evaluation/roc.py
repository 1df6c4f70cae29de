"""The exact area under the ROC curve of a whole dataset, in one pass.

`AUC = P(score of a positive > score of a negative) + P(equal) / 2`, each pair counting the product of its weights. It
is a property of the joint order of all rows, so a partial keeps every distinct score with the weight at it: exact and
global, at the price of `RUN_BYTES` bytes for each distinct score.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protodask.errors import InputError
from protodask.evaluation.outcomes import Floats, Outcomes

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

    @property
    def macro(self) -> float:
        """Plain mean over the classes that have an area."""
        return self._mean(np.ones_like(self.by_class))

    @property
    def weighted(self) -> float:
        """Mean over the classes that have an area, weighted by their prevalence."""
        return self._mean(self.prevalence)

    def _mean(self, weight: Floats) -> float:
        defined = ~np.isnan(self.by_class)
        if not defined.any():
            return float("nan")
        return float(np.sum(weight[defined] * self.by_class[defined]) / weight[defined].sum())


def collect_runs(outcomes: Outcomes) -> tuple[Runs, ...]:
    """One curve for each class against the rest; for two classes one curve only, by the probability of class 1."""
    n_classes = outcomes.probability.shape[1]
    classes = (1,) if n_classes == 2 else range(n_classes)
    return tuple(_class_runs(outcomes, index) for index in classes)


def _class_runs(outcomes: Outcomes, index: int) -> Runs:
    is_positive = outcomes.target == index
    return _compress(
        outcomes.probability[:, index],
        np.where(is_positive, outcomes.weight, 0.0),
        np.where(is_positive, 0.0, outcomes.weight),
    )


def merge_runs(left: tuple[Runs, ...], right: tuple[Runs, ...]) -> tuple[Runs, ...]:
    """The curves of the rows of both."""
    return tuple(_merge_pair(first, second) for first, second in zip(left, right, strict=True))


def _merge_pair(left: Runs, right: Runs) -> Runs:
    if len(left.score) == 0:
        return right
    if len(right.score) == 0:
        return left
    return _compress(
        np.concatenate([left.score, right.score]),
        np.concatenate([left.positive, right.positive]),
        np.concatenate([left.negative, right.negative]),
    )


def _compress(score: NDArray[np.floating[Any]], positive: Floats, negative: Floats) -> Runs:
    if len(score) == 0:
        return Runs(score, positive, negative)
    # The stable sort keeps the order of addition fixed, and merges two sorted halves in linear time.
    order = np.argsort(score, kind="stable")
    ordered = score[order]
    first = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    return Runs(ordered[first], np.add.reduceat(positive[order], first), np.add.reduceat(negative[order], first))


def area(runs: Runs) -> float:
    """`sum_i pos_i (neg_below_i + neg_i / 2) / (sum pos * sum neg)`; nan without positives or without negatives."""
    positive, negative = runs.positive.sum(), runs.negative.sum()
    if positive == 0 or negative == 0:
        return float("nan")
    below = np.cumsum(runs.negative) - 0.5 * runs.negative
    return float(np.sum(runs.positive * below) / positive / negative)


def finish_areas(curves: tuple[Runs, ...]) -> Areas:
    """The areas under merged curves."""
    return Areas(
        by_class=np.array([area(runs) for runs in curves]),
        prevalence=np.array([runs.positive.sum() for runs in curves]),
    )


def curve_bytes(n_rows: int, n_classes: int) -> int:
    """Memory the last merge takes when all scores differ.

    What the tasks returned, the two halves merged from it and their union are alive at the same time, and one curve's
    working space.
    """
    curves = 1 if n_classes == 2 else n_classes
    return n_rows * (3 * RUN_BYTES * curves + MERGE_BYTES)


def check_curves_fit(n_rows: int, n_classes: int, memory_bytes: int) -> None:
    """Refuse curves that may not fit into memory."""
    needed = curve_bytes(n_rows, n_classes)
    if needed > memory_bytes:
        raise InputError(
            f"The exact ROC AUC of {n_rows} rows and {n_classes} classes may need {needed / 2**20:.0f} MiB of memory, "
            f"and the limit is {memory_bytes / 2**20:.0f} MiB.",
            "Leave out the ROC AUC, raise the memory limit, or evaluate fewer rows.",
        )
