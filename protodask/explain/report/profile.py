"""What the report has to know of the rows of a dataset, whatever a model says of them; `N` rows, `D` features.

The sample has bounded size whatever the number of rows: the rows of smallest priority, which depends on the row's
number alone, so it is the same however the rows are cut into blocks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protodask.data.format.schema import FEATURES, TARGET, row_weights
from protodask.data.format.summary import Summary, empty_summary, merge_summaries, summarize_rows
from protodask.engine import Block, Engine, Reduction, Source, identity
from protodask.evaluation.row_moments import effective_rows
from protodask.evaluation.row_sample import RowSample, merge_samples, no_sample, sample_rows, sample_size

Floats = NDArray[np.float64]


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
    sample = sample_rows(rows, counted, features, most)
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
    return Profile(
        merge_summaries(left.summary, right.summary),
        left.weight_squares + right.weight_squares,
        left.outside + right.outside,
        merge_samples(most, left.sample, right.sample),
    )


def no_profile(n_features: int, n_classes: int) -> Profile:
    """The profile of no rows: the identity of merging."""
    return Profile(empty_summary(n_features, n_classes), 0.0, np.zeros(n_features), no_sample(n_features))


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
