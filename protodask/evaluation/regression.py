"""How far predicted numbers are from what came: the weighted squared error."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from protodask.data.format.schema import TARGET, WEIGHT
from protodask.engine import Block, EngineLike, Reduction, Source, add_records, open_engine
from protodask.evaluation.given_rows import check_rows, check_weight, require, row_numbers, source_of, usable_weights

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
    given = {PREDICTION: prediction, TARGET.name: target, WEIGHT.name: weight}
    source = check_rows(source_of(given, {TARGET.name: "Give the true value of each row as target."}))
    with open_engine(engine) as opened:
        error = opened.reduce(source, SQUARED_ERROR, label="squared error")
        if source is not prediction:
            opened.forget(source)
    return error


def error_sums(block: Block) -> ErrorSums:
    """The sums over the rows of a block."""
    predicted, true = (row_numbers(block, name) for name in (PREDICTION, TARGET.name))
    weights = usable_weights(block)
    if weights is not None:
        kept = weights > 0
        predicted, true = np.where(kept, predicted, 0.0), np.where(kept, true, 0.0)
    for name, values in ((PREDICTION, predicted), (TARGET.name, true)):
        seen = f"The {name} of row {{row}} is missing or infinite."
        require(block, np.isfinite(values), seen, "Give a finite number for every row.")
    with np.errstate(over="ignore"):
        squares = np.square(true - predicted)
        if weights is None:
            return ErrorSums(float(block.n_rows), float(squares.sum()))
        return ErrorSums(float(weights.sum()), float(np.sum(weights * squares)))


def finish_error(sums: ErrorSums) -> float:
    """The mean squared error that the sums amount to; infinite where it is too large for a float64."""
    check_weight(sums.weight)
    return sums.squares / sums.weight


SQUARED_ERROR: Reduction[ErrorSums, float] = Reduction(error_sums, add_records, finish_error)
