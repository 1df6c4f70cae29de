"""The prototype set classifier as its formulas read: float64, plain loops, for tiny data only.

`N` rows, `D` features, `J` candidates or prototypes, `K` classes; `s` the weight of a row.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from reference.candidates import (
    allocate,
    bins,
    check_counts,
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
    "FitRecord",
    "Model",
    "Penalty",
    "allocate",
    "batch_mass",
    "bins",
    "check_counts",
    "class_weights",
    "dense_objective",
    "draw_candidates",
    "familiarity",
    "finite_difference",
    "fit",
    "fit_batch",
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


@dataclass(frozen=True)
class FitRecord:
    """What the solver did for one batch; `v`, `w` and their gradients are in the objective's own variables."""

    candidates: Integers
    """Row numbers, sorted by class, then by row (J,)."""
    v: Floats
    w: Floats
    value: float
    gradient_v: Floats
    gradient_w: Floats
    start_value: float
    iterations: int
    evaluations: int
    message: str


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


def fit(
    features: NDArray[Any],
    target: NDArray[Any],
    weights: NDArray[Any] | None = None,
    *,
    n_batches: int = 1,
    n_candidates: int = 1000,
    max_fraction: float = 0.5,
    lambda_v: float = 1e-3,
    lambda_w: float = 1e-8,
    alpha_v: float = 0.95,
    alpha_w: float = 0.95,
    seed: int = 0,
    standardize: bool = True,
    tolerance: float = 1e7 * 2.0**-52,
    max_iterations: int = 15000,
    v_scale: float | None = None,
    merge_tolerance: float = 1e-6,
) -> tuple[Model, tuple[FitRecord, ...]]:
    """Train `n_batches` batches; the solver sees `v_scale * v` in place of `v`, by default `3 D / 10 * v`."""
    features, target = np.asarray(features, dtype=np.float64), np.asarray(target, dtype=np.int64)
    s = np.ones(len(target)) if weights is None else np.asarray(weights, dtype=np.float64)
    n_classes, width = int(target.max()) + 1, features.shape[1]
    check_counts(target, s, n_classes, max_fraction)
    stretch = 3 * width / 10 if v_scale is None else v_scale
    penalty = Penalty(lambda_v, lambda_w, alpha_v, alpha_w)
    center, scale = moments(features, s) if standardize else (np.zeros(width), np.ones(width))
    x = (features - center) / scale
    marginals = class_weights(target, s, n_classes) / float(sum(s))
    model = Model(marginals, center, scale, ())
    q = np.tile(marginals, (len(x), 1))
    records: list[FitRecord] = []
    for number in range(1, n_batches + 1):
        candidates = draw_candidates(q, target, s, n_candidates, max_fraction, seed, number)
        record = fit_batch(x, target, s, candidates, q, penalty, stretch, tolerance, max_iterations)
        batch = merge_prototypes(record.v, record.w, x[candidates], target[candidates], candidates, merge_tolerance)
        q = q + batch_mass(batch, x, n_classes)
        model = Model(marginals, center, scale, (*model.batches, batch))
        records.append(record)
    return model, tuple(records)


def fit_batch(
    x: Floats,
    target: Integers,
    weights: Floats,
    candidates: Integers,
    q_previous: Floats,
    penalty: Penalty,
    v_scale: float,
    tolerance: float,
    max_iterations: int,
) -> FitRecord:
    """Minimise the objective of one batch from `v_d = 10 / D`, `w_j = 1` under `v >= 0`, `w >= 0`."""
    width = x.shape[1]
    evaluate = dense_objective(x, target, weights, candidates, q_previous, penalty)

    def scaled(theta: Floats) -> tuple[float, Floats]:
        value, by_v, by_w = evaluate(theta[:width] / v_scale, theta[width:])
        return value, np.concatenate([by_v / v_scale, by_w])

    start = np.concatenate([np.full(width, 10 / width * v_scale), np.ones(len(candidates))])
    found = minimize(
        scaled,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=[(0, None)] * len(start),
        options={
            "maxcor": 10,
            "ftol": tolerance,
            "gtol": 1e-5,
            "maxfun": max_iterations,
            "maxiter": max_iterations,
            "maxls": 20,
        },
    )
    v, w = found.x[:width] / v_scale, found.x[width:]
    value, gradient_v, gradient_w = evaluate(v, w)
    return FitRecord(
        candidates=candidates,
        v=v,
        w=w,
        value=value,
        gradient_v=gradient_v,
        gradient_w=gradient_w,
        start_value=scaled(start)[0],
        iterations=int(found.nit),
        evaluations=int(found.nfev),
        message=str(found.message),
    )
