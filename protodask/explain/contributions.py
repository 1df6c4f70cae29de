"""Why a model says what it says of a row: the prototypes it goes by, in the order of their impact.

    q[k] = p0[k] + sum of w_j K_j over prototypes j of class k         Q = sum_k q[k]         p[k] = q[k] / Q

The impact of a prototype is `w_j K_j`, weight times similarity; divided by `Q` it is its share of the probability of
its class. `N` rows, `D` features of the model, `J` prototypes, `K` classes. All of this is float64, whatever the
precision of the model's kernel, and from differences `x - x_j` themselves rather than from products: what `predict`
says differs by the rounding of its kernel (about 1e-5 of each impact in float32, 1e-12 in float64), and so two classes
that are as close as that may change places.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protodask.data.arrays.rows import check_finite
from protodask.engine.records import Floats, Integers
from protodask.errors import InputError, count
from protodask.explain.dominance import decided
from protodask.explain.explanation import Contribution, Explanation, FeatureMatch
from protodask.prototypes.batches import Batch
from protodask.prototypes.kernel import FARTHEST
from protodask.prototypes.model import PrototypeSet
from protodask.prototypes.setting_checks import check_count

TILE_ENTRIES = 2**16
"""Numbers of a tile of differences (prototypes x features): half a megabyte, so that its passes stay in the cache."""


def explain_rows(
    model: PrototypeSet, features: NDArray[Any], *, n_batches: int | None = None, most: int = 20
) -> list[Explanation]:
    """Explain the probabilities of rows with all features of the model (N, D), in raw units.

    At most `most` contributions are listed for each; the others are summed up by class.
    """
    return list(explanations(model, features, n_batches=n_batches, most=most))


def explanations(
    model: PrototypeSet, features: NDArray[Any], *, n_batches: int | None = None, most: int = 20
) -> Iterator[Explanation]:
    """What `explain_rows` gives, row by row: for more rows than their explanations fit into memory."""
    (count,) = model.batch_counts(None if n_batches is None else [n_batches])
    check_count("most", most, 0)
    rows = _checked(model, features)
    explainer = _Explainer(model, count, most)
    return (explainer.explain(row) for row in rows)


def _checked(model: PrototypeSet, features: NDArray[Any]) -> Floats:
    rows = np.asarray(features)
    if rows.ndim != 2:
        raise InputError(
            "wrong-shape",
            f"The features have the shape {rows.shape}.",
            "Give a matrix of rows by features; one row is x[None, :].",
        )
    if rows.shape[1] != model.n_features:
        raise InputError(
            "wrong-shape",
            f"The rows have {count(rows.shape[1], 'feature')}, and the model has {model.n_features}.",
            "Give all features of the model, in the order of its feature_names.",
        )
    check_finite(rows, model.feature_names, 0)
    return rows.astype(np.float64)


class _Explainer:
    """A model laid out for explaining one row after the other."""

    def __init__(self, model: PrototypeSet, n_batches: int, most: int) -> None:
        self._model = model
        self._most = most
        self._sides = [_BatchSide(batch) for batch in model.batches[:n_batches]]
        counts = [batch.n_prototypes for batch in model.batches[:n_batches]]
        self._starts = np.cumsum([0, *counts])
        none = np.zeros(0, dtype=np.int64)
        self._classes = np.concatenate([none, *(side.batch.prototype_class for side in self._sides)])

    def explain(self, row: Floats) -> Explanation:
        model = self._model
        similarities = np.concatenate([np.zeros(0), *(side.similarities(row) for side in self._sides)])
        weights = np.concatenate([np.zeros(0), *(side.batch.prototype_weight for side in self._sides)])
        impacts = weights * similarities
        mass = np.bincount(self._classes, weights=impacts, minlength=model.n_classes)
        unscaled = model.marginals + mass
        total = float(unscaled.sum())

        order = np.argsort(-impacts, kind="stable")  # by batch and position where equal, as they are laid out
        order = order[: int(np.count_nonzero(impacts))]
        ordered, classes = impacts[order], self._classes[order]
        winner, size = decided(model.marginals, ordered, classes)
        listed, rest = order[: self._most], slice(self._most, None)
        return Explanation(
            classes=model.classes,
            probability=unscaled / total,
            predicted=model.classes[winner],
            familiarity=float(impacts.sum()),
            marginal_share=float(model.marginals.sum()) / total,
            marginal=model.marginals / total,
            contributions=self._listed(row, listed, similarities[listed], total, size),
            others=np.bincount(classes[rest], weights=ordered[rest], minlength=model.n_classes) / total,
            dominant_size=size,
        )

    def _listed(
        self, row: Floats, chosen: Integers, similarities: Floats, total: float, size: int
    ) -> tuple[Contribution, ...]:
        """The contributions at `chosen` positions among all, of which the first `size` are dominant."""
        number = np.searchsorted(self._starts, chosen, side="right") - 1
        position = chosen - self._starts[number]
        found: dict[int, Contribution] = {}
        for batch_number in np.unique(number).tolist():
            side, ranks = self._sides[batch_number], np.flatnonzero(number == batch_number)
            matches = side.matches(row, position[ranks], self._model.names_in(side.batch))
            for rank, features in zip(ranks.tolist(), matches, strict=True):
                place = int(position[rank])
                weight, similarity = float(side.batch.prototype_weight[place]), float(similarities[rank])
                found[rank] = Contribution(
                    batch=batch_number + 1,
                    position=place,
                    row=int(side.batch.row[place]),
                    label=self._model.classes[side.batch.prototype_class[place]],
                    weight=weight,
                    similarity=similarity,
                    impact=weight * similarity,
                    share=weight * similarity / total,
                    dominant=rank < size,
                    features=features,
                )
        return tuple(found[rank] for rank in range(len(chosen)))


@dataclass(frozen=True)
class _BatchSide:
    batch: Batch

    @cached_property
    def _weight_per_unit(self) -> Floats:
        return self.batch.feature_weight / self.batch.scale

    def _near(self, row: Floats) -> Floats:
        """The features of the batch as it measures them, cut off where the kernel cuts them off."""
        reach = FARTHEST * self.batch.scale
        measured = self.batch.measured(self.batch.values(row))
        return np.clip(measured, self.batch.center - reach, self.batch.center + reach)

    def similarities(self, row: Floats) -> Floats:
        """`K_v(x - x_j)` (J,), a tile of prototypes at a time."""
        batch = self.batch
        near = self._near(row)
        squares = np.empty(batch.n_prototypes)
        step = max(1, TILE_ENTRIES // max(batch.n_features, 1))
        tile = np.empty((min(step, batch.n_prototypes), batch.n_features))
        for first in range(0, batch.n_prototypes, step):
            prototypes = batch.measured(batch.prototypes[first : first + step])
            scaled = np.subtract(near, prototypes, out=tile[: len(prototypes)])
            scaled *= self._weight_per_unit
            np.einsum("jd,jd->j", scaled, scaled, out=squares[first : first + step])
        return np.exp(-0.5 * squares)

    def matches(self, row: Floats, positions: Integers, names: tuple[str, ...]) -> list[tuple[FeatureMatch, ...]]:
        """The comparison with some prototypes, feature by feature; `names` are those of the batch."""
        batch = self.batch
        prototypes = batch.prototypes[positions]
        differences = self._near(row) - batch.measured(prototypes)
        similarities = np.exp(-0.5 * np.square(differences * self._weight_per_unit))
        values, weights = batch.values(row).tolist(), batch.feature_weight.tolist()
        return [
            tuple(map(FeatureMatch._make, zip(names, values, prototype, weights, similarity, strict=True)))
            for prototype, similarity in zip(prototypes.tolist(), similarities.tolist(), strict=True)
        ]
