"""Shapes of problems, of which the costs are known before there are data."""

from typing import Any

from protodask.engine import Layout
from protodask.prototypes.config import FitConfig
from protodask.prototypes.footprint import Shape


def make_shape(
    class_rows: tuple[int, ...],
    n_features: int,
    block_rows: int,
    feature_bytes: int = 4,
    row_features: int | None = None,
    weight_columns: int = 0,
    **settings: Any,
) -> Shape:
    """The shape of a fit by the source's recipe, with other settings where they are given."""
    config = FitConfig.of("source", **settings)
    return Shape(
        config=config,
        class_rows=class_rows,
        layout=Layout(sum(class_rows), block_rows),
        n_features=n_features,
        row_features=n_features if row_features is None else row_features,
        feature_bytes=feature_bytes,
        scored=config.n_batches > 1,
        weight_columns=weight_columns,
    )
