"""Linear splines from raw scores to calibrated ones: the record of a calibration, and how it is applied.

A spline has control points `(x_j, y_j)` with ascending `x_j`. Between two of them it is the line that joins them, and
beyond the first and the last it stays at their values:

    psi(x) = y_j + (y_{j+1} - y_j) (x - x_j) / (x_{j+1} - x_j)   for x_j <= x <= x_{j+1}

Control points are fitted by `protodask.evaluation.Calibrator`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from protodask.engine.records import Floats

if TYPE_CHECKING:
    from protodask.data.format.schema import Label


@dataclass(frozen=True)
class Spline:
    """Control points `P >= 1` of a linear spline."""

    score: Floats
    """Raw scores (P,), strictly ascending."""
    outcome: Floats
    """Calibrated scores (P,)."""

    def apply(self, score: NDArray[Any]) -> Floats:
        """`psi` of each score, in whatever shape; monotone wherever the control points are."""
        if len(self.score) == 1:
            return np.full(np.shape(score), self.outcome[0])
        x = np.clip(np.asarray(score, dtype=np.float64), self.score[0], self.score[-1])
        right = np.clip(np.searchsorted(self.score, x, side="right"), 1, len(self.score) - 1)
        left = right - 1
        share = (x - self.score[left]) / (self.score[right] - self.score[left])
        first, last = self.outcome[left], self.outcome[right]
        # Rounding must not carry a value past the control point it comes to, nor keep it from the last one.
        between = np.clip(first + share * (last - first), np.minimum(first, last), np.maximum(first, last))
        return np.where(share == 1, last, between)


@dataclass(frozen=True)
class SplineCalibration:
    """What calibrates the probabilities of a model: a spline of class 1 for two classes, else one for each class."""

    splines: tuple[Spline, ...]
    n_batches: int
    """Of the model whose probabilities these were: those with more or fewer batches are others."""
    n_bins: int
    monotone: bool
    rows: int
    """Of positive weight that it was fitted on."""
    weight: float
    """Sum of their weights."""

    def apply(self, probability: NDArray[Any]) -> Floats:
        """Calibrated probabilities (N, K) of raw ones."""
        return apply_splines(self.splines, probability)

    def describe(self, classes: Sequence[Label]) -> dict[str, Any]:
        """What it is of, and its control points; of two classes, those of the second."""
        of_splines = classes[-len(self.splines) :]
        return {
            "batches": self.n_batches,
            "bins": self.n_bins,
            "monotone": self.monotone,
            "rows": self.rows,
            "weight": self.weight,
            "splines": [
                {"class": label, "raw": spline.score.tolist(), "calibrated": spline.outcome.tolist()}
                for label, spline in zip(of_splines, self.splines, strict=True)
            ],
        }


def apply_splines(splines: Sequence[Spline], probability: NDArray[Any]) -> Floats:
    """Calibrated probabilities (N, K): of two classes `psi(p_1)` and `1 - psi(p_1)`, else `psi_k(p_k)` over their sum.

    A row whose calibrated values are all 0 keeps its raw probabilities: there is nothing to scale.
    """
    if len(splines) == 1:
        second = splines[0].apply(probability[:, 1])
        return np.column_stack([1 - second, second])
    calibrated = np.column_stack([spline.apply(probability[:, k]) for k, spline in enumerate(splines)])
    total = calibrated.sum(axis=1)
    nothing = total <= 0
    if nothing.any():
        calibrated[nothing] = probability[nothing]
        total[nothing] = calibrated[nothing].sum(axis=1)
    calibrated /= total[:, None]
    return calibrated
