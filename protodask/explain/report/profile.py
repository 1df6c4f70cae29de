"""What the report has to know of the rows of a dataset, whatever a model says of them; `N` rows, `D` features.

The sample has bounded size whatever the number of rows: the rows of smallest priority, which depends on the row's
number alone, so it is the same however the rows are cut into blocks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protodask.data.keyed import keyed_draws, smallest, stream_key
from protodask.data.schema import FEATURES, TARGET, row_weights
from protodask.data.summary import Summary, empty_summary, merge_summaries, summarize_rows
from protodask.engine import Block, Engine, Reduction, Source, identity
from protodask.explain.report.intervals import effective_rows

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

SAMPLE_ROWS = 10_000
"""Two samples of this size tell distributions apart that differ by 0.02 anywhere."""

SAMPLE_BYTES = 32 * 2**20
"""What the features of a sample may take: with more than some hundred features, it has fewer rows."""

FEWEST_SAMPLE_ROWS = 200

SAMPLE_STREAM = 0x7265706F
"""What tells the draw here from all others, which are keyed by row number as well."""


@dataclass(frozen=True)
class RowSample:
    """Rows in the order of their priority, `n` of them."""

    priority: NDArray[np.uint64]
    rows: Integers
    weight: Floats
    features: NDArray[np.floating]


@dataclass(frozen=True)
class Profile:
    """Moments and counts of all rows of positive weight, and a sample of them; merges as a monoid."""

    summary: Summary
    weight_squares: float
    """`sum s^2`."""
    outside: Floats
    """`sum s` over the rows whose value lies outside the range it was compared with (D,)."""
    sample: RowSample

    @property
    def effective_rows(self) -> float:
        """`(sum s)^2 / sum s^2`."""
        return effective_rows(self.summary.weight, self.weight_squares)

    @property
    def outside_share(self) -> Floats:
        """Share of the weight outside the range (D,)."""
        return self.outside / self.summary.weight if self.summary.weight > 0 else np.zeros_like(self.outside)


@dataclass(frozen=True)
class Range:
    """Smallest and largest value of every feature (D,); `-inf` and `inf` where there is none to compare with."""

    minimum: Floats
    maximum: Floats


def no_range(n_features: int) -> Range:
    """A range that holds everything."""
    return Range(np.full(n_features, -np.inf), np.full(n_features, np.inf))


def sample_size(n_features: int) -> int:
    """Rows of a sample: 10,000, or as many as fit into 32 MiB, but at least 200."""
    return max(FEWEST_SAMPLE_ROWS, min(SAMPLE_ROWS, SAMPLE_BYTES // (8 * max(n_features, 1))))


def profile_block(block: Block, n_classes: int, within: Range, most: int) -> Profile:
    """The profile of a block; without a target, every row counts as one of class 0."""
    features = block[FEATURES.name]
    target = block[TARGET.name] if TARGET.name in block else np.zeros(len(features), dtype=np.int32)
    weight, rows = row_weights(block), block.rows
    if weight is not None and not (weight > 0).all():
        kept = weight > 0
        features, target, rows, weight = features[kept], target[kept], rows[kept], weight[kept]
    counted = np.ones(len(rows)) if weight is None else weight
    summary = summarize_rows(features, target, weight, n_classes)
    found = keyed_draws(stream_key(0, SAMPLE_STREAM), rows)
    chosen = smallest(found, most)
    sample = RowSample(found[chosen], rows[chosen], counted[chosen], features[chosen])
    return Profile(summary, float(counted @ counted), _outside(features, counted, summary, within), sample)


def _outside(features: NDArray[np.floating], weight: Floats, summary: Summary, within: Range) -> Floats:
    outside = np.zeros(features.shape[1])
    # Hardly any feature leaves its range in a block, and the block's own range tells which.
    for column in np.flatnonzero((summary.minimum < within.minimum) | (summary.maximum > within.maximum)):
        values = features[:, column].astype(np.float64)
        outside[column] = weight[(values < within.minimum[column]) | (values > within.maximum[column])].sum()
    return outside


def merge_profiles(most: int, left: Profile, right: Profile) -> Profile:
    """The profile of the rows of both."""
    first, second = left.sample, right.sample
    joined = np.concatenate([first.priority, second.priority])
    chosen = smallest(joined, most)
    sample = RowSample(
        joined[chosen],
        np.concatenate([first.rows, second.rows])[chosen],
        np.concatenate([first.weight, second.weight])[chosen],
        np.concatenate([first.features, second.features])[chosen],
    )
    return Profile(
        merge_summaries(left.summary, right.summary),
        left.weight_squares + right.weight_squares,
        left.outside + right.outside,
        sample,
    )


def no_profile(n_features: int, n_classes: int) -> Profile:
    """The profile of no rows: the identity of merging."""
    sample = RowSample(
        np.zeros(0, dtype=np.uint64), np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros((0, n_features))
    )
    return Profile(empty_summary(n_features, n_classes), 0.0, np.zeros(n_features), sample)


@dataclass(frozen=True)
class _MergeProfiles:
    most: int

    def __call__(self, left: Profile, right: Profile) -> Profile:
        return merge_profiles(self.most, left, right)


def profiling(most: int) -> Reduction[Profile, Profile]:
    """The reduction that makes a profile with a sample of up to `most` rows."""
    return Reduction(profile_block, _MergeProfiles(most), identity)


def profile(engine: Engine, source: Source, n_classes: int, within: Range) -> Profile:
    """One pass over a source of features, without any model."""
    most = sample_size(len(within.minimum))
    if source.layout.n_rows == 0:
        return no_profile(len(within.minimum), n_classes)
    found = engine.reduce(source, profiling(most), n_classes, within, most, label="profile")
    engine.forget(source)
    return found


def spread(sample: RowSample) -> Integers:
    """Positions in a sample, so that each row of it occurs in proportion to its weight: `n_eff` of them.

    Rows of equal weight occur once each. Otherwise the positions are where `(i + 1/2) / n_eff` falls in the running sum
    of the weights; the order of the rows is random already.
    """
    if len(sample.weight) == 0 or (sample.weight == sample.weight[0]).all():
        return np.arange(len(sample.weight))
    total = np.cumsum(sample.weight)
    count = max(1, round(float(total[-1]) ** 2 / float(sample.weight @ sample.weight)))
    found: Integers = np.searchsorted(total, (np.arange(count) + 0.5) / count * total[-1])
    return found
