"""Rows as the robust classifier is given them, in memory or not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from protodask.data.arrays.model_arrays import digest_arrays
from protodask.data.format.schema import TARGET, WEIGHT
from protodask.data.tables.frames import column_values
from protodask.engine import Block, array_source
from protodask.engine.records import Floats
from protodask.errors import InputError, count, refusing, some
from protodask.robust.kept_terms import UncertainSource
from protodask.robust.model import RobustModel
from protodask.robust.uncertain_columns import uncertain_columns
from protodask.robust.uncertain_rows import BOUNDS, UncertainRows


def as_uncertain(rows: Any) -> UncertainRows:
    """`UncertainRows` as they are, tables by the names of their columns, anything else as points known exactly."""
    if isinstance(rows, UncertainRows):
        return rows
    names = column_names(rows)
    return UncertainRows.point(rows) if names is None else uncertain_columns(names).rows(_table_values(rows))


def column_names(rows: Any) -> tuple[str, ...] | None:
    """The names of the columns of a table, None for anything else."""
    return tuple(str(name) for name in rows.columns) if hasattr(rows, "columns") else None


def _table_values(table: Any) -> NDArray[Any]:
    wrong = [str(name) for name, kind in table.dtypes.items() if getattr(kind, "kind", "O") not in "fiub"]
    if wrong:
        raise InputError("wrong-type", f"The columns {some(wrong)} are not numbers.", "Encode them, or leave them out.")
    values = np.asarray(table)
    # Truth values beside numbers, and numbers that may be missing, come as objects.
    return values if values.dtype.kind in "fiub" else table.to_numpy(dtype=np.float64, na_value=np.nan)


def names_of(rows: Any, model: RobustModel) -> tuple[str, ...]:
    """The names of the columns of a collection; points without names are those of the features."""
    names = column_names(rows)
    if names is not None:
        return names
    if len(rows.shape) != 2 or rows.shape[1] != model.n_features:
        raise InputError(
            "columns-differ",
            f"The rows are of shape {rows.shape}; the classifier was trained on {count(model.n_features, 'feature')}.",
            "Give the features it was trained on.",
        )
    return model.features


def source_of(
    known: UncertainRows, classes: tuple[Any, ...], codes: NDArray[np.intp], weights: Floats
) -> UncertainSource:
    """Rows in memory as a source."""
    names = known.feature_names or tuple(f"x{feature}" for feature in range(known.n_features))
    source = array_source(_arrays_of(known, codes, weights))
    return UncertainSource(source, RowsOfArrays(known.feature_names, known.rounding), names, classes)


def _arrays_of(known: UncertainRows, codes: NDArray[np.intp], weights: Floats) -> dict[str, NDArray[Any]]:
    """What `RowsOfArrays` reads, with the class and the weight of each row."""
    given = {name: getattr(known, name) for name in BOUNDS if getattr(known, name) is not None}
    return given | {TARGET.name: codes.astype(np.int32), WEIGHT.name: weights}


@dataclass(frozen=True)
class RowsOfArrays:
    """Rows of a block that has an array for each of their bounds: a `RowsOfBlock`."""

    feature_names: tuple[str, ...] | None
    rounding: float | None = None

    def __call__(self, block: Block) -> UncertainRows:
        bounds: Any = {name: block.arrays.get(name) for name in BOUNDS}
        return UncertainRows(**bounds, first_row=block.start, feature_names=self.feature_names, rounding=self.rounding)


def check_alone(y: Any, sample_weight: Any) -> None:
    """Refuse labels and weights beside a dataset."""
    if y is not None or sample_weight is not None:
        raise InputError(
            "settings-conflict",
            "A dataset was given together with labels or weights.",
            "Leave them out: it has its own.",
        )


def checked_weights(sample_weight: ArrayLike | None, n_rows: int) -> Floats:
    """Finite weights of 0 or more (N,), 1 where none are given."""
    if sample_weight is None:
        return np.ones(n_rows)
    kinds, remedy = (TypeError, ValueError), "Give a number of 0 or more for each sample."
    with refusing(kinds, "wrong-type", "The weights are no numbers", remedy):
        weights = np.asarray(column_values(sample_weight), dtype=np.float64)
    if weights.shape != (n_rows,):
        raise InputError(
            "wrong-shape",
            f"There are weights of shape {weights.shape} for {count(n_rows, 'sample')}.",
            "Give one weight each.",
        )
    if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.any()):
        raise InputError("bad-value", "Weights are negative, not finite, or all 0.", "Give weights of 0 or more.")
    return weights


def fingerprint_of(known: UncertainRows, codes: NDArray[np.intp], weights: Floats) -> str:
    """Tells rows with their labels and weights from others."""
    arrays = _arrays_of(known, codes, weights)
    return digest_arrays((name, values, values.dtype.str) for name, values in arrays.items())
