"""A sample of rows of bounded size, whatever their number: those of smallest priority, which depends on the row's
number alone, so it is the same however the rows are cut into blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import add
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protodask.data.arrays.keyed import keyed_draws, smallest, smallest_of_both, stream_key
from protodask.data.format.schema import FEATURES
from protodask.engine import Block, Engine, Reduction, Source, identity
from protodask.engine.records import Floats, Integers
from protodask.evaluation.given_rows import usable_weights

SAMPLE_ROWS = 10_000
"""Two samples of this size tell distributions apart that differ by 0.02 anywhere."""

SAMPLE_BYTES = 32 * 2**20
"""What the features of a sample may take: with more than some hundred features, it has fewer rows."""

FEWEST_SAMPLE_ROWS = 200

SAMPLE_STREAM = 0x7265706F
"""What tells the draw here from all others, which are keyed by row number as well."""


@dataclass(frozen=True)
class RowSample:
    """Rows in the order of their priority, `n` of them and at most `most`; merges as a monoid."""

    n_rows: int
    """Rows of positive weight that they are drawn from."""
    most: int
    priority: NDArray[np.uint64]
    rows: Integers
    weight: Floats
    values: NDArray[Any]
    """What is kept of each: its features (n, D), or its familiarity (n,)."""

    def __add__(self, other: RowSample) -> RowSample:
        """The sample of the rows of both."""
        parts = ((one.priority, one.rows, one.weight, one.values) for one in (self, other))
        return RowSample(self.n_rows + other.n_rows, self.most, *smallest_of_both(self.most, *parts))


def sample_size(n_features: int) -> int:
    """Rows of a sample: 10,000, or as many as fit into 32 MiB, but at least 200."""
    return max(FEWEST_SAMPLE_ROWS, min(SAMPLE_ROWS, SAMPLE_BYTES // (8 * max(n_features, 1))))


def sample_rows(
    rows: Integers,
    weight: Floats,
    values: NDArray[Any],
    most: int,
    priority: NDArray[np.uint64] | None = None,
) -> RowSample:
    """The sample of some rows, all of positive weight; by the draws of `SAMPLE_STREAM` where none are given."""
    found = keyed_draws(stream_key(0, SAMPLE_STREAM), rows) if priority is None else priority
    chosen = smallest(found, most)
    return RowSample(len(rows), most, found[chosen], rows[chosen], weight[chosen], values[chosen])


def spread(sample: RowSample) -> Integers:
    """Positions in a sample, so that each row of it occurs in proportion to its weight: `n_eff` of them.

    Rows of equal weight occur once each. Otherwise the positions are where `(i + 1/2) / n_eff` falls in the running sum
    of the weights; the order of the rows is random already.
    """
    if len(sample.weight) == 0 or (sample.weight == sample.weight[0]).all():
        return np.arange(len(sample.weight))
    share = sample.weight / sample.weight.max()
    total = np.cumsum(share)
    count = max(1, round(float(total[-1]) ** 2 / float(share @ share)))
    found: Integers = np.searchsorted(total, (np.arange(count) + 0.5) / count * total[-1])
    return found


def _sample_block(block: Block, most: int) -> RowSample:
    weight, features = usable_weights(block), block[FEATURES.name]
    if weight is None:
        return sample_rows(block.rows, np.ones(block.n_rows), features, most)
    kept = weight > 0
    return sample_rows(block.rows[kept], weight[kept], features[kept], most)


SAMPLE: Reduction[RowSample, RowSample] = Reduction(_sample_block, add, identity)


def draw_sample(engine: Engine, source: Source, most: int) -> RowSample:
    """One pass over a source of features."""
    return engine.reduce(source, SAMPLE, most, label="sample rows")
