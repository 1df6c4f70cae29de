"""Tables of drawn uncertain features, as columns and as rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from protodask.data import Dataset
from protodask.data.tables.ingest import ingest
from protodask.robust.uncertain_rows import UncertainRows

Columns = dict[str, NDArray[np.float64]]


def drawn_columns(
    n_rows: int, n_features: int, n_classes: int = 2, seed: int = 0
) -> tuple[Columns, NDArray[np.intp], UncertainRows]:
    """Bounds of every kind that go together, one feature known exactly, the classes, and the same as rows.

    The numbers are those of float32, so that a dataset holds them as they are.
    """
    random = np.random.default_rng(seed)
    y = random.integers(0, n_classes, n_rows)

    def single(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return values.astype(np.float32).astype(np.float64)

    middle = random.normal(size=(n_rows, n_features)) + 2 * np.eye(n_features)[y % n_features]
    half = 0.3 * random.random((n_rows, n_features))
    lower, upper = single(middle - half), single(middle + half)
    mean_low, mean_high = single(middle - 0.2 * half), single(middle + 0.2 * half)
    second = single(np.square(np.abs(middle) + 0.2 * half) + 0.2 * half**2)
    columns: Columns = {}
    for feature in range(1, n_features):
        columns[f"x{feature}.low"] = lower[:, feature]
        columns[f"x{feature}.high"] = upper[:, feature]
        columns[f"x{feature}.mean_low"] = mean_low[:, feature]
        columns[f"x{feature}.mean_high"] = mean_high[:, feature]
        columns[f"x{feature}.second"] = second[:, feature]
    exact = lower[:, 0]
    columns["x0"] = exact
    order = [*range(1, n_features), 0]
    for bounds in (lower, upper, mean_low, mean_high):
        bounds[:, 0] = exact
    # Of what is known exactly no column says anything of the second moment.
    second[:, 0] = np.inf
    rows = UncertainRows(
        *(bounds[:, order].astype(np.float32) for bounds in (lower, upper, mean_low, mean_high, second))
    )
    return columns, y, rows


def dataset_of(
    columns: Columns, y: NDArray[np.intp], place: Path, weight: NDArray[np.float64] | None = None
) -> Dataset:
    """A dataset of such columns in blocks of 64 rows."""
    return ingest(
        {"features": np.column_stack(list(columns.values())), "target": y}
        | ({} if weight is None else {"weight": weight}),
        place,
        target="target",
        weight=None if weight is None else "weight",
        feature_names=list(columns),
        block_rows=64,
    )
