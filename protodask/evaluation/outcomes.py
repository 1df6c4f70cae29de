"""Sums over rows from which the metrics of single predictions follow: log-loss, Brier score and the confusion matrix.

`N` rows, `K` classes; `p` probabilities (N, K), `y` target codes (N,), `s` the weight of a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protodask.data.format.schema import INCLUSION, TARGET, WEIGHT
from protodask.engine import Block
from protodask.engine.records import Floats, taken
from protodask.errors import InputError
from protodask.evaluation.auc_interval import ClassTotals
from protodask.evaluation.given_rows import check_weight, require, usable_weights

PROBABILITY = "probability"
"""Name of the array (N, K) that holds a model's probabilities."""

SUM_TOLERANCE = 1e-3
"""How far the probabilities of a row may be from adding up to one: half precision rounds by 5e-4."""


@dataclass(frozen=True)
class Outcomes:
    """Probabilities, targets and weights of some rows, checked; rows of weight 0 are left out."""

    probability: NDArray[np.floating[Any]]
    target: NDArray[np.intp]
    weight: Floats


@dataclass(frozen=True)
class OutcomeSums:
    """Weighted sums over rows; merges as a monoid, divided once in the properties."""

    rows: int
    """Rows of positive weight."""
    weight: float
    """`sum s`."""
    loss: float
    """`sum s -log p_y`."""
    squares: float
    """`sum s sum_k (p_k - [k = y])^2`."""
    confusion: Floats
    """`sum s` by true class and predicted class (K, K)."""
    classes: ClassTotals
    """Of the true classes."""

    @property
    def log_loss(self) -> float:
        """`-sum s log p_y / sum s`."""
        return self.loss / self.weight

    @property
    def brier_score(self) -> float:
        """`sum s sum_k (p_k - [k = y])^2 / sum s`, half of that for two classes, where it is `(p_1 - y)^2`."""
        share = 0.5 if len(self.confusion) == 2 else 1.0
        return share * self.squares / self.weight

    @property
    def accuracy(self) -> float:
        """Share of the weight that is predicted right."""
        return float(np.trace(self.confusion)) / self.weight

    @property
    def balanced_accuracy(self) -> float:
        """Mean share predicted right, over the classes that occur."""
        occurring = self.confusion.sum(axis=1)
        present = occurring > 0
        return float(np.mean(np.diagonal(self.confusion)[present] / occurring[present]))


def check_table(probability: Any, other: str = "") -> None:
    """Refuse what is no table of probabilities (N, K) of two classes or more; `other` is what may be given instead."""
    if probability.ndim != 2 or probability.shape[1] < 2 or probability.dtype.kind != "f":
        raise InputError(
            "wrong-shape" if probability.dtype.kind == "f" else "wrong-type",
            f"The probabilities are an array of shape {probability.shape} and type {probability.dtype}.",
            f"Give floating-point numbers in one row for each sample and one column for each class{other}.",
        )


def read_outcomes(block: Block) -> Outcomes:
    """What a block says of its rows, or an error that names the first row that cannot be evaluated."""
    probability, target = block[PROBABILITY], block[TARGET.name]
    weights = usable_weights(block)
    n_classes = probability.shape[1]
    # `initial` covers blocks without rows; NaN makes either comparison false.
    if not (probability.min(initial=np.inf) >= 0 and probability.max(initial=0.0) < np.inf):
        row = block.start + int(np.argwhere(~((probability >= 0) & (probability < np.inf)))[0, 0])
        raise InputError(
            "bad-value",
            f"The probabilities of row {row} have a missing, infinite or negative value.",
            "Give the probabilities that predict_proba returns.",
        )
    total: Floats = probability.sum(axis=1, dtype=np.float64)
    require(
        block,
        np.asarray(np.abs(total - 1) <= SUM_TOLERANCE),
        "The probabilities of row {row} do not add up to one.",
        "Give one column for each class, scaled so that every row adds up to one.",
    )
    require(
        block,
        (target >= 0) & (target < n_classes),
        f"The target of row {{row}} is not among the codes 0 to {n_classes - 1}.",
        "Give each target as the index of its class, and one column of probabilities for each class.",
    )
    codes = target.astype(np.intp, copy=False)
    if weights is None:
        return Outcomes(probability, codes, np.ones(block.n_rows))
    kept, every = weights > 0, Outcomes(probability, codes, weights)
    return every if kept.all() else taken(every, kept)


def predicted_outcomes(block: Block, probability: NDArray[np.floating[Any]], codes: NDArray[np.int64]) -> Outcomes:
    """The same for a block of features and targets and what a model makes of it, whose classes of the targets are
    `codes`.
    """
    arrays = {name: block[name] for name in (WEIGHT.name, INCLUSION.name) if name in block}
    arrays |= {PROBABILITY: probability, TARGET.name: codes[block[TARGET.name]]}
    return read_outcomes(Block(block.number, block.start, arrays))


def sum_outcomes(outcomes: Outcomes, clip: float = 0.0) -> OutcomeSums:
    """Sums over some rows.

    The loss of a row whose own class has probability 0 is infinite, and so is the log-loss then; `clip > 0` computes
    the loss of `max(p_y, clip)` instead. The predicted class is the most probable one, the first of several.
    """
    probability, target, weight = outcomes.probability, outcomes.target, outcomes.weight
    n_rows, n_classes = probability.shape
    own = probability[np.arange(n_rows), target].astype(np.float64)
    with np.errstate(divide="ignore"):
        loss = -np.log(np.maximum(own, clip))
    residual = probability.astype(np.float64)
    residual[np.arange(n_rows), target] -= 1
    squares = np.einsum("nk,nk->n", residual, residual)
    cell = target * n_classes + probability.argmax(axis=1)
    with np.errstate(over="ignore"):  # an infinite sum is refused once all rows are added up
        square, total = np.square(weight), float(weight.sum())
        loss, squares = weight * loss, weight * squares
        summed_loss, summed_squares = float(np.sum(loss)), float(np.sum(squares))
    confusion = np.asarray(np.bincount(cell, weights=weight, minlength=n_classes * n_classes), dtype=np.float64)
    return OutcomeSums(
        rows=n_rows,
        weight=total,
        loss=summed_loss,
        squares=summed_squares,
        confusion=confusion.reshape(n_classes, n_classes),
        classes=ClassTotals(
            np.bincount(target, minlength=n_classes).astype(np.int64),
            np.bincount(target, weights=weight, minlength=n_classes).astype(np.float64),
            np.bincount(target, weights=square, minlength=n_classes).astype(np.float64),
        ),
    )


def check_outcomes(sums: OutcomeSums) -> OutcomeSums:
    """The sums, if there is any weight to divide them by."""
    check_weight(sums.weight)
    return sums
