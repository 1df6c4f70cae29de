"""Forms of a feature: as it is, or as its normal score.

A kernel feels the scale of a feature: heavy tails and lumps cost it much. The normal score of a value is the quantile
of the standard normal distribution at the share of rows below it, half of those that equal it among them,

    g(x) = Phi^-1(F(x)),    F(x) = (share below x) + (share at x) / 2,

cut off at -3 and 3, and linear between at most `MOST_KNOTS` values: monotone, and of one column alone. The shares are
those of a sample of rows, which depends on their numbers only. A feature may enter a model in both forms, so that the
feature weights choose; what it is shown as is its raw value in any case.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protodask.data.schema import FEATURES, TARGET, Column, row_weights
from protodask.engine import Block, Engine, Reduction, Source, identity
from protodask.prototypes.candidates import MergeSamples, Sample, sample_of
from protodask.prototypes.config import FeatureForms
from protodask.prototypes.kernel import Knots, Standardization

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

MOST_KNOTS = 32
FARTHEST_SCORE = 3.0
NEARLY_LINEAR = 0.99
"""Correlation of a feature with its normal scores from which on the two are one."""

MOST_ROWS, FEWEST_ROWS = 20_000, 1_000
MOST_SAMPLED = 2**23
"""Numbers in the sample, where there are many features."""


@dataclass(frozen=True)
class Forms:
    """What a model is trained on: `D'` forms of `D` features."""

    columns: Integers
    """The feature that each is a form of, ascending (D',); of two, the feature as it is comes first."""
    knots: Knots | None = None
    """Of normal scores; None where all are as they are."""

    def standardization(self, center: Floats, scale: Floats) -> Standardization:
        """Of the forms, given centre and scale of each feature as it is (D,)."""
        center, scale = center[self.columns], scale[self.columns]
        if self.knots is not None:
            center[self.knots.places], scale[self.knots.places] = 0.0, 1.0
        return Standardization(center, scale, self.knots)


def as_they_are(n_features: int) -> Forms:
    """Every feature in the one form that it comes in."""
    return Forms(np.arange(n_features))


def expected_forms(columns: Sequence[Column], wanted: FeatureForms) -> Forms:
    """As many forms as there may be, before a row is seen: all that is a number has normal scores."""
    line = np.array([-FARTHEST_SCORE, FARTHEST_SCORE])
    return arranged([(line, line) if number else None for number in _numeric(columns)], wanted)


def sample_rows(n_features: int) -> int:
    """Rows from which forms of so many features are learned."""
    return max(FEWEST_ROWS, min(MOST_ROWS, MOST_SAMPLED // max(n_features, 1)))


def _sample_block(block: Block, seed: int, most: int) -> Sample:
    weights = row_weights(block)
    rows = block.rows if weights is None else block.rows[weights > 0]
    return sample_of(rows, np.zeros(len(rows), dtype=np.int64), 1, seed, 0, most)


def learn_forms(
    engine: Engine,
    source: Source,
    array_names: Sequence[str],
    columns: Sequence[Column],
    wanted: FeatureForms,
    seed: int,
) -> Forms:
    """The forms that are `wanted` of the features of a source; other than as they are, it takes two passes.

    Numbers alone have normal scores: categories stay as they are, ordered or not.
    """
    numeric = _numeric(columns)
    n_features = len(numeric)
    if wanted == "plain":
        return as_they_are(n_features)
    most = min(sample_rows(n_features), source.layout.n_rows)
    sampling: Reduction[Sample, Sample] = Reduction(_sample_block, MergeSamples(most), identity)
    sample = engine.reduce(source, sampling, seed, most, label="sample")
    names = [name for name in array_names if name != TARGET.name]
    taken = engine.take(source, np.sort(sample.rows), names, label="take")
    weights = row_weights(Block(0, 0, taken))
    features = taken[FEATURES.name]
    weight = np.ones(len(features)) if weights is None else weights
    scores = [
        normal_scores(column.astype(np.float64), weight) if number else None
        for column, number in zip(features.T, numeric, strict=True)
    ]
    return arranged(scores, wanted)


def _numeric(columns: Sequence[Column]) -> list[bool]:
    """Which features are numbers."""
    return [column.kind == "numeric" and name == column.name for column in columns for name in column.feature_names]


def arranged(scores: Sequence[tuple[Floats, Floats] | None], wanted: FeatureForms) -> Forms:
    """The forms that are `wanted`, given values and scores of each feature that has normal scores."""
    columns: list[int] = []
    knots: list[tuple[Floats, Floats] | None] = []
    for column, found in enumerate(scores):
        if wanted != "scores" or found is None:
            columns.append(column)
            knots.append(None)
        if wanted != "plain" and found is not None:
            columns.append(column)
            knots.append(found)
    return Forms(np.array(columns, dtype=np.int64), Knots.of(knots, MOST_KNOTS))


def normal_scores(values: Floats, weight: Floats) -> tuple[Floats, Floats] | None:
    """Values of a feature, ascending, and their normal scores; None where they would be no other feature."""
    from scipy.special import ndtri

    distinct, place = np.unique(values, return_inverse=True)
    if len(distinct) <= 2:
        return None
    mass = np.bincount(place, weights=weight).astype(np.float64)
    up_to = np.cumsum(mass)
    share = np.clip((up_to - mass / 2) / up_to[-1], 0.0, 1.0)
    score = np.clip(ndtri(share), -FARTHEST_SCORE, FARTHEST_SCORE)
    if _correlation(distinct, score, mass) > NEARLY_LINEAR:
        return None
    if len(distinct) > MOST_KNOTS:
        kept = _chosen(score)
        distinct, score = distinct[kept], score[kept]
    return distinct, score


def _chosen(score: Floats) -> Integers:
    """Positions of at most `MOST_KNOTS` of ascending scores: evenly spread, and either side of every wide jump."""
    levels, step = np.linspace(score[0], score[-1], MOST_KNOTS, retstep=True)
    kept = np.minimum(np.searchsorted(score, levels), len(score) - 1)
    kept[0] = np.searchsorted(score, score[0], side="right") - 1
    inner = np.unique(kept[1:])
    # Several levels fall into such a jump, and onto one position: there is room for the one before it.
    before = inner[score[inner] - score[inner - 1] > 2 * step] - 1
    return np.unique(np.concatenate([kept, before]))


def _correlation(first: Floats, second: Floats, weight: Floats) -> float:
    share = weight / weight.sum()
    with np.errstate(over="ignore", invalid="ignore"):
        left, right = first - share @ first, second - share @ second
        root = np.sqrt((share @ np.square(left)) * (share @ np.square(right)))
        correlation = float(share @ (left * right)) / root if root > 0 else 0.0
    return correlation if np.isfinite(correlation) else 0.0
