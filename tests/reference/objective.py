"""The objective of a round of batches and its gradient, as triple loops over the formulas.

`N` rows, `D` features, `J` candidates, `K` classes, `B` batches, of which candidate `j` is in `batch[j]`; `s` the
weight of a row, `W` the sum of all `s`, `W_k` the sum over class `k`, `W_ck` the sum over the candidates of class `k`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Penalty:
    """`lambda * (alpha / 2 * |.|_2^2 + (1 - alpha) * |.|_1)` for feature weights and prototype weights."""

    lambda_v: float
    lambda_w: float
    alpha_v: float
    alpha_w: float


def kernel(v: Floats, z: Floats) -> float:
    """`K_v(z) = exp(-1/2 sum_d (v_d z_d)^2)`."""
    exponent = 0.0
    for d in range(len(v)):
        exponent += (float(v[d]) * float(z[d])) ** 2
    return math.exp(-0.5 * exponent)


def class_weights(target: Integers, weights: Floats, n_classes: int) -> Floats:
    """`W_k` (K,)."""
    total = np.zeros(n_classes)
    for n in range(len(target)):
        total[target[n]] += weights[n]
    return total


def loss_weights(
    target: Integers, weights: Floats, candidate_rows: Integers, n_classes: int, leave_one_out: bool = False
) -> Floats:
    """`r_n = s_n * W_k / (W_k - W_ck) / W` for `k = y_n`, and 0 for candidates; `s_n / W` if one is left out (N,)."""
    total = class_weights(target, weights, n_classes)
    if leave_one_out:
        return np.array([float(s) / sum(total) for s in weights])
    drawn = class_weights(target[candidate_rows], weights[candidate_rows], n_classes)
    candidates = {int(row) for row in candidate_rows}
    r = np.zeros(len(target))
    for n in range(len(target)):
        if n not in candidates and weights[n] > 0:
            k = target[n]
            r[n] = weights[n] * total[k] / (total[k] - drawn[k]) / sum(total)
    return r


def penalty_value(v: Floats, w: Floats, penalty: Penalty) -> float:
    """Both elastic nets; the bounds make `|x|` plainly `x`."""
    ridge_v, lasso_v = sum(float(x) ** 2 for x in v), sum(float(x) for x in v)
    ridge_w, lasso_w = sum(float(x) ** 2 for x in w), sum(float(x) for x in w)
    return penalty.lambda_v * (penalty.alpha_v / 2 * ridge_v + (1 - penalty.alpha_v) * lasso_v) + penalty.lambda_w * (
        penalty.alpha_w / 2 * ridge_w + (1 - penalty.alpha_w) * lasso_w
    )


def objective(
    v: Floats,
    w: Floats,
    features: Floats,
    target: Integers,
    weights: Floats,
    candidate_rows: Integers,
    batch: Integers,
    q_previous: Floats,
    penalty: Penalty,
    leave_one_out: bool = False,
) -> float:
    """`l(v, w)` of a round, `v` being (B, D), given the unscaled probabilities `q_previous` (N, K) before it.

    With `leave_one_out` candidates count as well, each without what it says of itself.
    """
    r = loss_weights(target, weights, candidate_rows, q_previous.shape[1], leave_one_out)
    value = 0.0
    for n in range(len(features)):
        if r[n] == 0:
            continue
        q = [float(mass) for mass in q_previous[n]]
        for j, row in enumerate(candidate_rows):
            if row != n:
                q[target[row]] += float(w[j]) * kernel(v[batch[j]], features[n] - features[row])
        value -= float(r[n]) * math.log(q[target[n]] / sum(q))
    return value + penalty_value(v.ravel(), w, penalty)


def gradient(
    v: Floats,
    w: Floats,
    features: Floats,
    target: Integers,
    weights: Floats,
    candidate_rows: Integers,
    batch: Integers,
    q_previous: Floats,
    penalty: Penalty,
    leave_one_out: bool = False,
) -> tuple[Floats, Floats]:
    """`(dl/dv, dl/dw)`, a term for each row from the derivatives of `log p_k(x)`.

    `d log p_k / d v_bd = v_bd (sum_j w_j z_jd^2 K_j / Q - sum_j [y_j = k] w_j z_jd^2 K_j / q_k)` over the candidates of
    batch `b`, and `d log p_k / d w_j = [y_j = k] K_j / q_k - K_j / Q`, with `z_j = x - x_j`, `K_j = K_v(z_j)` for the
    `v` of its batch, 0 where `x` is the candidate itself, and `Q = sum_l q_l`.
    """
    r = loss_weights(target, weights, candidate_rows, q_previous.shape[1], leave_one_out)
    by_v = np.array([[penalty.lambda_v * (penalty.alpha_v * float(x) + 1 - penalty.alpha_v) for x in row] for row in v])
    by_w = np.array([penalty.lambda_w * (penalty.alpha_w * float(x) + 1 - penalty.alpha_w) for x in w])
    for n in range(len(features)):
        if r[n] == 0:
            continue
        k = target[n]
        values = [
            0.0 if row == n else kernel(v[batch[j]], features[n] - features[row])
            for j, row in enumerate(candidate_rows)
        ]
        q = [float(mass) for mass in q_previous[n]]
        for j, row in enumerate(candidate_rows):
            q[target[row]] += float(w[j]) * values[j]
        for b in range(len(v)):
            for d in range(v.shape[1]):
                all_classes, own_class = 0.0, 0.0
                for j, row in enumerate(candidate_rows):
                    if batch[j] != b:
                        continue
                    term = float(w[j]) * float(features[n, d] - features[row, d]) ** 2 * values[j]
                    all_classes += term
                    own_class += term if target[row] == k else 0.0
                by_v[b, d] -= r[n] * float(v[b, d]) * (all_classes / sum(q) - own_class / q[k])
        for j, row in enumerate(candidate_rows):
            own = values[j] / q[k] if target[row] == k else 0.0
            by_w[j] -= r[n] * (own - values[j] / sum(q))
    return by_v, by_w


def finite_difference(function: Callable[[Floats], float], point: Floats, step: float = 1e-5) -> Floats:
    """Central differences, one coordinate at a time."""
    slope = np.empty(len(point))
    for i in range(len(point)):
        shift = np.zeros(len(point))
        shift[i] = step
        slope[i] = (function(point + shift) - function(point - shift)) / (2 * step)
    return slope


DenseObjective = Callable[[Floats, Floats], tuple[float, Floats, Floats]]


def dense_objective(
    features: Floats,
    target: Integers,
    weights: Floats,
    candidate_rows: Integers,
    batch: Integers,
    q_previous: Floats,
    penalty: Penalty,
    leave_one_out: bool = False,
) -> DenseObjective:
    """`(v, w) -> (value, dl/dv, dl/dw)` by the same formulas over rows x candidates x features arrays."""
    r = loss_weights(target, weights, candidate_rows, q_previous.shape[1], leave_one_out)
    scored = np.flatnonzero(r)
    squares = (features[scored][:, None, :] - features[candidate_rows][None, :, :]) ** 2
    same = target[scored][:, None] == target[candidate_rows][None, :]
    member = np.eye(q_previous.shape[1])[target[candidate_rows]]
    others = scored[:, None] != candidate_rows[None, :]
    own = np.arange(len(scored)), target[scored]

    def evaluate(v: Floats, w: Floats) -> tuple[float, Floats, Floats]:
        values = others * np.exp(-0.5 * (squares * v[batch] ** 2).sum(axis=2))
        q = q_previous[scored] + (values * w) @ member
        total, mine = q.sum(axis=1), q[own]
        value = -float(r[scored] @ np.log(mine / total)) + penalty_value(v.ravel(), w, penalty)
        by_mass = values / total[:, None] - same * values / mine[:, None]
        by_v = penalty.lambda_v * (penalty.alpha_v * v + 1 - penalty.alpha_v)
        np.subtract.at(by_v, batch, v[batch] * np.einsum("n,nj,njd->jd", r[scored], w * by_mass, squares))
        by_w = r[scored] @ by_mass
        return value, by_v, by_w + penalty.lambda_w * (penalty.alpha_w * w + 1 - penalty.alpha_w)

    return evaluate
