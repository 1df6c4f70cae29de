"""Made-up models."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from protodask.data.format.schema import Column, Label
from protodask.prototypes.batches import Batch
from protodask.prototypes.kernel import Differences, Knots, Line
from protodask.prototypes.model import PrototypeSet


def make_model(
    seed: int = 0,
    *,
    prototypes: Sequence[int] = (6, 7),
    n_features: int = 4,
    n_active: int | None = None,
    n_classes: int = 3,
    classes: Sequence[Label] | None = None,
    feature_names: Sequence[str] | None = None,
    **others: Any,
) -> PrototypeSet:
    """A model whose batches have so many prototypes, each with `n_active` of the features, by default all but one.

    A batch of no prototypes looks at no feature either. `classes` and `feature_names` stand in place of their numbers,
    `others` are further fields of the model.
    """
    rng = np.random.default_rng(seed)
    labels = tuple(classes or (f"class {position}" for position in range(n_classes)))
    names = tuple(feature_names or (f"x{position}" for position in range(n_features)))

    def batch(length: int) -> Batch:
        width = 0 if length == 0 else len(names) - 1 if n_active is None else n_active
        return Batch(
            feature_index=np.sort(rng.choice(len(names), width, replace=False)).astype(np.int64),
            feature_weight=rng.uniform(0.1, 2, width),
            center=rng.normal(size=width),
            scale=rng.uniform(0.5, 2, width),
            prototypes=rng.normal(size=(length, width)),
            prototype_class=np.sort(rng.integers(0, len(labels), length)),
            prototype_weight=rng.uniform(0.1, 2, length),
            row=np.sort(rng.choice(1000, length, replace=False)),
        )

    model = PrototypeSet(
        marginals=rng.dirichlet(np.ones(len(labels))),
        classes=labels,
        feature_names=names,
        columns=tuple(Column(name) for name in names),
        batches=tuple(batch(length) for length in prototypes),
        precision="float64",
    )
    return replace(model, **others)


def looking_at_scores(model: PrototypeSet, levels: bool = True) -> PrototypeSet:
    """The first batch looks at its first feature as it is, as its normal score, and as its level."""
    batch = model.batches[0]
    lines = [
        Line(np.array([-1.0, 0.25, 3.0]), np.array([-3.0, 0.5, 2.0])),
        Line(np.array([-1.0, -0.9, 0.5, 0.51]), np.array([-0.75, -0.25, -0.25, 1.0]), is_level=True),
    ][: 2 if levels else 1]
    forms = np.array([0] * len(lines) + list(range(batch.n_features)))
    center, scale = batch.center[forms], batch.scale[forms]
    center[1 : 1 + len(lines)], scale[1 : 1 + len(lines)] = 0.0, 1.0
    changed = replace(
        batch,
        feature_index=batch.feature_index[forms],
        feature_weight=batch.feature_weight[forms],
        center=center,
        scale=scale,
        prototypes=batch.prototypes[:, forms],
        knots=Knots.of([None, *lines, *[None] * (batch.n_features - 1)], 5),
    )
    return replace(model, batches=(changed, *model.batches[1:]))


def looking_at_differences(model: PrototypeSet, pairs: Sequence[tuple[int, int, float]]) -> PrototypeSet:
    """The last batch looks at `x_i - f x_j` besides, for each `(i, j, f)`, ascending, of which `i` is before `j`."""
    batch = model.batches[-1]
    rng = np.random.default_rng(len(pairs))
    alone, more = batch.n_features, len(pairs)
    changed = replace(
        batch,
        feature_index=np.append(batch.feature_index, [pair[0] for pair in pairs]).astype(np.int64),
        feature_weight=np.append(batch.feature_weight, rng.uniform(0.1, 2, more)),
        center=np.append(batch.center, rng.normal(size=more)),
        scale=np.append(batch.scale, rng.uniform(0.5, 2, more)),
        prototypes=np.column_stack([batch.prototypes, rng.normal(size=(batch.n_prototypes, more))]),
        knots=None if batch.knots is None else batch.knots.select(np.append(np.arange(alone), [0] * more)),
        differences=Differences(
            np.array([-1] * alone + [pair[1] for pair in pairs]),
            np.array([0.0] * alone + [pair[2] for pair in pairs]),
        ),
        compared=rng.normal(size=(batch.n_prototypes, more)),
    )
    return replace(model, batches=(*model.batches[:-1], changed))
