"""Batches of weighted prototypes: the terms of a model.

A batch is a set of prototypes that look at features with the same weights; batches that were trained together are a
round.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protodask.engine.records import Floats, Integers
from protodask.prototypes.kernel import Differences, Knots, ScoreKernel, Standardization
from protodask.prototypes.tiles import Precision

NORMAL_SCORE, LEVEL = " (normal score)", " (level)"
FORM_NAMES = ("", NORMAL_SCORE, LEVEL)
"""What follows the name of a feature by the form in which a batch looks at it."""


@dataclass(frozen=True)
class Batch:
    """The prototypes of a batch (J) and the features they look at (D).

    `feature_weight` refers to `(x - center) / scale`, with `x` the normal score or level of a feature that has `knots`,
    whose centre is 0 and scale 1. A batch may look at a feature in several forms, which are features of it then; last
    are the `differences` of two. `prototypes` are in raw units, `row` are their row numbers in the training data. A
    batch may be empty.
    """

    feature_index: Integers
    feature_weight: Floats
    center: Floats
    scale: Floats
    prototypes: Floats
    prototype_class: Integers
    prototype_weight: Floats
    row: Integers
    knots: Knots | None = None
    differences: Differences | None = None
    compared: Floats | None = None
    """Raw values of the other feature of each difference in the prototypes (J, differences), to show them."""

    @property
    def n_features(self) -> int:
        return len(self.feature_index)

    @property
    def n_prototypes(self) -> int:
        return len(self.row)

    @property
    def standardization(self) -> Standardization:
        """What turns raw values of its features into those that the weights refer to."""
        return Standardization(self.center, self.scale, self.knots, self.differences)

    @property
    def looked_at(self) -> Integers:
        """Features of the model that it looks at, in whatever form, ascending."""
        others = [] if self.differences is None else self.differences.others[self.differences.places].tolist()
        return np.unique(np.concatenate([self.feature_index, np.array(others, dtype=np.int64)]))

    def values(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Of rows with all features of the model (..., all), those of its own (..., D), as the prototypes have them."""
        return self.standardization.values(rows, self.feature_index)

    @property
    def forms(self) -> list[tuple[int, float, int, int]]:
        """What tells its features apart: the other feature and the factor of differences, the feature, and the place of
        its form in `FORM_NAMES`.
        """
        alone = [(-1, 0.0)] * self.n_features
        pairs = alone if self.differences is None else [self.differences.of(place) for place in range(self.n_features)]
        kinds = self.scored.astype(np.int64)
        if self.knots is not None and self.knots.levels is not None:
            kinds += self.knots.levels
        own = zip(pairs, self.feature_index.tolist(), kinds.tolist(), strict=True)
        return [(*pair, feature, kind) for pair, feature, kind in own]

    def places_of(self, feature: int) -> Integers:
        """Where a feature of the model is among its own, alone, in whatever form."""
        alone = self.feature_index == feature
        if self.differences is not None:
            alone[self.differences.places] = False
        return np.flatnonzero(alone)

    def values_of(self, feature: int) -> Floats | None:
        """Values of a feature of the model in the prototypes (J,); None where the batch does not look at it."""
        for place in self.places_of(feature).tolist():
            return self.prototypes[:, place]
        if self.differences is None or self.compared is None:
            return None
        for other, place in enumerate(self.differences.places):
            if self.differences.others[place] == feature:
                return self.compared[:, other]
            if self.feature_index[place] == feature:
                first: Floats = self.prototypes[:, place] + self.differences.factor[place] * self.compared[:, other]
                return first
        return None

    def raw_values(self, position: int) -> dict[int, float]:
        """Values of a prototype, by feature of the model: of all that the batch looks at, alone or in differences."""
        differences = self.differences
        values, features = self.prototypes[position].tolist(), self.feature_index.tolist()
        pairs = set() if differences is None else set(differences.places)
        found = {features[place]: value for place, value in enumerate(values) if place not in pairs}
        if differences is not None and self.compared is not None:
            for place, second in zip(differences.places, self.compared[position].tolist(), strict=True):
                other, factor = differences.of(place)
                found.setdefault(other, second)
                found.setdefault(features[place], values[place] + factor * second)
        return found

    def measured(self, values: Floats) -> Floats:
        """What `values` gives (..., D) as it is, but for normal scores and levels: `v / scale` is their weight."""
        if self.knots is None:
            return values
        found = values.copy()
        for place in self.knots.places:
            found[..., place] = self.knots.score(place, values[..., place])
        return found

    @property
    def scored(self) -> NDArray[np.bool_]:
        """Which of its features are normal scores or levels (D,)."""
        found = np.zeros(self.n_features, dtype=np.bool_)
        found[self.standardization.scored] = True
        return found

    def kernel(self, n_classes: int, precision: Precision) -> ScoreKernel:
        """What computes this batch's part of the unscaled probabilities."""
        standardization = self.standardization
        return ScoreKernel(
            prototypes=standardization.apply(self.prototypes),
            prototype_class=self.prototype_class,
            prototype_weight=self.prototype_weight,
            feature_weight=self.feature_weight,
            feature_index=self.feature_index,
            standardization=standardization,
            n_classes=n_classes,
            precision=precision,
        )
