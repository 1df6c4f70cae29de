"""The prototype set classifier as its formulas read: float64, plain loops, for tiny data only.

`N` rows, `D` features, `J` candidates or prototypes, `K` classes; `s` the weight of a row.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reference.candidates import (
    allocate,
    bins,
    draw_candidates,
    minimum_count,
    mix,
    priority,
)
from reference.objective import (
    Penalty,
    class_weights,
    dense_objective,
    finite_difference,
    gradient,
    kernel,
    loss_weights,
    objective,
    penalty_value,
)

__all__ = [
    "Batch",
    "Model",
    "Penalty",
    "allocate",
    "batch_mass",
    "bins",
    "class_weights",
    "dense_objective",
    "draw_candidates",
    "familiarity",
    "finite_difference",
    "gradient",
    "kernel",
    "loss_weights",
    "merge_prototypes",
    "minimum_count",
    "mix",
    "moments",
    "normalized",
    "objective",
    "penalty_value",
    "priority",
    "probabilities",
    "projected",
    "unscaled",
]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Batch:
    """Prototypes sorted by class, then by row; all features, also those of weight zero."""

    feature_weight: Floats
    """`v` (D,), for features that are centred and scaled."""
    prototypes: Floats
    """Centred and scaled features (J, D)."""
    prototype_class: Integers
    prototype_weight: Floats
    row: Integers

    @property
    def feature_index(self) -> Integers:
        """The features with `v > 0`."""
        return np.array([d for d, v in enumerate(self.feature_weight) if v > 0], dtype=np.int64)


@dataclass(frozen=True)
class Model:
    """`x` enters the kernels as `(x - center) / scale`."""

    marginals: Floats
    center: Floats
    scale: Floats
    batches: tuple[Batch, ...]


def batch_mass(batch: Batch, standardized: Floats, n_classes: int) -> Floats:
    """What one batch adds to the unscaled probabilities, `sum_{j: y_j = k} w_j K_v(x - x_j)` (N, K)."""
    mass = np.zeros((len(standardized), n_classes))
    for n, x in enumerate(standardized):
        for j, prototype in enumerate(batch.prototypes):
            mass[n, batch.prototype_class[j]] += batch.prototype_weight[j] * kernel(batch.feature_weight, x - prototype)
    return mass


def unscaled(model: Model, x: Floats, n_batches: int | None = None) -> Floats:
    """`q_c[k](x)` (N, K) of the first `n_batches` batches, of all when None."""
    standardized = (x - model.center) / model.scale
    q = np.tile(model.marginals, (len(x), 1))
    for batch in model.batches[:n_batches]:
        q = q + batch_mass(batch, standardized, len(model.marginals))
    return q


def probabilities(model: Model, x: Floats, n_batches: int | None = None) -> Floats:
    """`p_c[k](x) = q_c[k](x) / sum_l q_c[l](x)` (N, K)."""
    return normalized(unscaled(model, x, n_batches))


def normalized(q: Floats) -> Floats:
    """Rows divided by their sums."""
    p = np.empty_like(q)
    for n in range(len(q)):
        total = sum(float(value) for value in q[n])
        for k in range(q.shape[1]):
            p[n, k] = float(q[n, k]) / total
    return p


def familiarity(model: Model, x: Floats, n_batches: int | None = None) -> Floats:
    """`sum_k q[k](x) - 1` (N,)."""
    return np.array([sum(float(value) for value in row) - 1.0 for row in unscaled(model, x, n_batches)])


def merge_prototypes(
    v: Floats, w: Floats, prototypes: Floats, classes: Integers, rows: Integers, tolerance: float = 1e-6
) -> Batch:
    """The batch left when weights of zero are dropped and equivalent prototypes become one.

    Equivalent: same class, and `max_d |v_d (x_id - x_jd)| <= tolerance`; groups are connected components.
    """
    kept = sorted((j for j in range(len(w)) if w[j] > 0), key=lambda j: (classes[j], rows[j]))
    waiting = list(kept)
    chosen: list[int] = []
    summed: list[float] = []
    while waiting:
        group = [waiting.pop(0)]
        for member in group:
            for other in list(waiting):
                if classes[other] == classes[member] and all(
                    abs(v[d] * prototypes[other, d] - v[d] * prototypes[member, d]) <= tolerance
                    for d in range(len(v))
                    if v[d] > 0
                ):
                    waiting.remove(other)
                    group.append(other)
        chosen.append(min(group, key=lambda j: int(rows[j])))
        summed.append(sum(float(w[j]) for j in sorted(group, key=lambda j: int(rows[j]))))
    return Batch(
        feature_weight=v.copy(),
        prototypes=prototypes[chosen].reshape(len(chosen), len(v)),
        prototype_class=classes[chosen].astype(np.int64),
        prototype_weight=np.array(summed),
        row=rows[chosen].astype(np.int64),
    )


def projected(theta: Floats, gradient: Floats) -> Floats:
    """How far one step against the gradient leads in the set `theta >= 0`: zero exactly where KKT's conditions hold."""
    step = np.zeros(len(theta))
    for i in range(len(theta)):
        step[i] = max(float(theta[i]) - float(gradient[i]), 0.0) - float(theta[i])
    return step


def moments(features: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Weighted mean and population standard deviation of each feature (D,); 1 for constant features."""
    center, scale = np.zeros(features.shape[1]), np.ones(features.shape[1])
    total = float(sum(weights))
    for d in range(features.shape[1]):
        center[d] = sum(float(s) * float(x) for s, x in zip(weights, features[:, d], strict=True)) / total
        squares = sum(float(s) * (float(x) - center[d]) ** 2 for s, x in zip(weights, features[:, d], strict=True))
        if len({float(x) for s, x in zip(weights, features[:, d], strict=True) if s > 0}) > 1:
            scale[d] = math.sqrt(squares / total)
    return center, scale
