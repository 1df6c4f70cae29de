"""How far predicted numbers are from what came: the weighted squared error."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from protodask.data.column_source import column_source
from protodask.data.schema import TARGET, WEIGHT, row_weights
from protodask.engine import Block, EngineLike, Reduction, Source, open_engine
from protodask.errors import InputError

PREDICTION = "prediction"
"""Name of the array (N,) that holds a model's predictions."""


@dataclass(frozen=True)
class ErrorSums:
    """Weighted sums over rows; merges as a monoid."""

    weight: float
    """`sum s`."""
    squares: float
    """`sum s (r - f)^2`."""


def squared_error(
    prediction: ArrayLike | Source,
    target: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    engine: EngineLike = None,
) -> float:
    """`sum_n s_n (r_n - f_n)^2 / sum_n s_n`, in the square of the target's unit.

    `f` are predictions, `r` targets, `s` weights: arrays of NumPy, dask or Zarr, or a source whose blocks hold
    "prediction", "target" and, if rows are weighted, "weight" or "inclusion"; then `s = weight / inclusion`. A row of
    weight 0 does not count, whatever its numbers are.
    """
    source = _as_source(prediction, target, weight)
    with open_engine(engine) as opened:
        error = opened.reduce(source, SQUARED_ERROR, label="squared error")
        if source is not prediction:
            opened.forget(source)
    return error


def _as_source(prediction: ArrayLike | Source, target: ArrayLike | None, weight: ArrayLike | None) -> Source:
    if isinstance(prediction, Source):
        if target is not None or weight is not None:
            raise InputError(
                "A source was given together with targets or weights.", "Let the source hold them, or give arrays only."
            )
        source: Source = prediction
    elif target is None:
        raise InputError("Predictions were given without targets.", "Give the true value of each row as target.")
    else:
        arrays: dict[str, Any] = {PREDICTION: prediction, TARGET.name: target}
        source = column_source(arrays if weight is None else arrays | {WEIGHT.name: weight})
    if source.layout.n_rows == 0:
        raise InputError("There are no rows to evaluate.", "Give at least one row.")
    return source


def error_sums(block: Block) -> ErrorSums:
    """The sums over the rows of a block."""
    predicted, true = (_numbers(block, name) for name in (PREDICTION, TARGET.name))
    with np.errstate(divide="ignore", invalid="ignore"):
        weights = row_weights(block)
    if weights is not None:
        usable = (weights >= 0) & (weights < np.inf)
        _require(block, usable, "weight", "Give weights of zero or more, and inclusion probabilities above zero.")
        kept = weights > 0
        predicted, true = np.where(kept, predicted, 0.0), np.where(kept, true, 0.0)
    _require(block, np.isfinite(predicted), PREDICTION, "Give a finite number for every row.")
    _require(block, np.isfinite(true), TARGET.name, "Give a finite number for every row.")
    with np.errstate(over="ignore"):
        squares = np.square(true - predicted)
        if weights is None:
            return ErrorSums(float(block.n_rows), float(squares.sum()))
        return ErrorSums(float(weights.sum()), float(np.sum(weights * squares)))


def _numbers(block: Block, name: str) -> NDArray[np.float64]:
    values = block[name]
    if values.ndim != 1 or values.dtype.kind not in "biuf":
        raise InputError(
            f"The {name} has the shape {values.shape} and the type {values.dtype}.", "Give numbers, one for each row."
        )
    return values.astype(np.float64, copy=False)


def _require(block: Block, fits: NDArray[np.bool_], name: str, remedy: str) -> None:
    if not fits.all():
        row = block.start + int(np.argmin(fits))
        raise InputError(f"The {name} of row {row} (counted from 0) is missing, infinite or out of range.", remedy)


def merge_errors(left: ErrorSums, right: ErrorSums) -> ErrorSums:
    """The sums over the rows of both."""
    return ErrorSums(left.weight + right.weight, left.squares + right.squares)


def finish_error(sums: ErrorSums) -> float:
    """The mean squared error that the sums amount to; infinite where it is too large for a float64."""
    if sums.weight > 0 and math.isfinite(sums.weight):
        return sums.squares / sums.weight
    if sums.weight > 0:
        raise InputError("The weights add up to more than can be counted.", "Divide all weights by one number.")
    raise InputError(
        f"There is nothing to evaluate: the weights of the rows add up to {sums.weight:g}.",
        "Give at least one row of positive weight.",
    )


SQUARED_ERROR: Reduction[ErrorSums, float] = Reduction(error_sums, merge_errors, finish_error)
