"""What training needs to know of a dataset as a whole: counts by class, and moments and range of every feature.

`N` rows, `D` features, `K` classes; `s` the weight of a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import add

import numpy as np
from numpy.typing import NDArray

from protodask.data.format.schema import FEATURES, TARGET, row_weights
from protodask.engine import Block, Engine, Reduction, Source, identity
from protodask.engine.records import Floats

ROUNDING = 1e-9
"""Of sums of squares, relative to them."""

MEAN_ROUNDING = 100 * float(np.finfo(np.float64).eps)
"""Of a mean, relative to the largest value."""


@dataclass(frozen=True)
class Summary:
    """Weighted counts and moments; merges as a monoid, so blocks, files and appends can be added in any grouping."""

    rows: int
    class_rows: NDArray[np.int64]
    """Rows of positive weight in each class (K,)."""
    class_weight: Floats
    """Sum of `s` in each class (K,)."""
    weight: float
    """Sum of `s`."""
    mean: Floats
    """`sum s x / sum s` (D,)."""
    squares: Floats
    """`sum s (x - mean)^2` (D,)."""
    minimum: Floats
    maximum: Floats
    largest_weight: float | None = None
    """The largest `s`; None where it is not known, as of a dataset written before it was kept."""

    def __add__(self, other: Summary) -> Summary:
        """Summary of both: `mean = (W_l mean_l + W_r mean_r) / W`, squares gain `(mean_r - mean_l)^2 W_l W_r / W`."""
        if self.weight == 0:
            return other
        if other.weight == 0:
            return self
        largest = None
        if self.largest_weight is not None and other.largest_weight is not None:
            largest = max(self.largest_weight, other.largest_weight)
        with np.errstate(over="ignore", invalid="ignore"):
            weight, step = self.weight + other.weight, other.mean - self.mean
            return Summary(
                rows=self.rows + other.rows,
                class_rows=self.class_rows + other.class_rows,
                class_weight=self.class_weight + other.class_weight,
                weight=weight,
                mean=self.mean + step * (other.weight / weight),
                squares=self.squares + other.squares + np.square(step) * (self.weight * other.weight / weight),
                minimum=np.minimum(self.minimum, other.minimum),
                maximum=np.maximum(self.maximum, other.maximum),
                largest_weight=largest,
            )

    @property
    def deviation(self) -> Floats:
        """Standard deviation `sqrt(squares / weight)` (D,), of the population."""
        return np.sqrt(self.squares / self.weight) if self.weight > 0 else np.zeros_like(self.squares)

    @property
    def constant(self) -> NDArray[np.bool_]:
        """Features with one value only (D,)."""
        constant: NDArray[np.bool_] = self.minimum == self.maximum
        return constant

    @property
    def two_valued(self) -> NDArray[np.bool_]:
        """Features with two values (D,): no others are spread as far as their ends `a < b` let them be,

            sum_n s_n (x_n - mean)^2 / W = (b - mean) (mean - a)

        up to the rounding of both.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            most = (self.maximum - self.mean) * (self.mean - self.minimum)
            largest = np.maximum(np.abs(self.minimum), np.abs(self.maximum))
            least = (1 - ROUNDING) * most - MEAN_ROUNDING * largest * (self.maximum - self.minimum)
            return ~self.constant & (self.deviation**2 >= least) & np.isfinite(most)

    @property
    def scale(self) -> Floats:
        """The standard deviation, 1 for constant features (D,)."""
        deviation = self.deviation
        return np.where(self.constant | (deviation == 0), 1.0, deviation)


def summarize_block(block: Block, n_classes: int) -> Summary:
    """Summary of one block; sums that overflow are infinite or NaN, and whoever uses them has to look."""
    with np.errstate(over="ignore", invalid="ignore"):
        return summarize_rows(block[FEATURES.name], block[TARGET.name], row_weights(block), n_classes)


def summarize_rows(
    features: NDArray[np.floating], target: NDArray[np.integer], weights: Floats | None, n_classes: int
) -> Summary:
    """Summary of some rows, in two passes over them: means first, then deviations from the means."""
    if weights is not None:
        kept = weights > 0
        if not kept.all():
            features, target, weights = features[kept], target[kept], weights[kept]
    rows, width = features.shape
    if rows == 0:
        return empty_summary(width, n_classes)
    counts = np.bincount(target, minlength=n_classes)
    # A slab at a time, so that no float64 copy of a block is made; the slabs merge like blocks.
    if rows > SLAB_ROWS:
        parts = (
            summarize_rows(
                features[first : first + SLAB_ROWS],
                target[first : first + SLAB_ROWS],
                None if weights is None else weights[first : first + SLAB_ROWS],
                n_classes,
            )
            for first in range(0, rows, SLAB_ROWS)
        )
        return reduce(add, parts)
    values = features.astype(np.float64)
    minimum, maximum = values.min(axis=0), values.max(axis=0)
    if weights is None:
        weight, largest = float(rows), 1.0
        mean = values.mean(axis=0)
        squares = np.square(values - mean).sum(axis=0)
        class_weight = counts.astype(np.float64)
    else:
        weight, largest = float(weights.sum()), float(weights.max())
        mean = weights @ values / weight
        squares = weights @ np.square(values - mean)
        class_weight = np.asarray(np.bincount(target, weights=weights, minlength=n_classes), dtype=np.float64)
    return Summary(rows, counts.astype(np.int64), class_weight, weight, mean, squares, minimum, maximum, largest)


SLAB_ROWS = 8192


def empty_summary(n_features: int, n_classes: int) -> Summary:
    """The summary of no rows: the identity of merging."""
    zeros = np.zeros(n_features)
    return Summary(
        0,
        np.zeros(n_classes, dtype=np.int64),
        np.zeros(n_classes),
        0.0,
        zeros,
        zeros,
        np.full(n_features, np.inf),
        np.full(n_features, -np.inf),
        0.0,
    )


SUMMARY: Reduction[Summary, Summary] = Reduction(summarize_block, add, identity)


def summarize(engine: Engine, source: Source, n_classes: int) -> Summary:
    """One pass over a source of features and targets."""
    return engine.reduce(source, SUMMARY, n_classes, label="summary")
