"""The objective of a plane, exact, and lower bounds of the least objective from any multipliers.

For `0 <= alpha_i <= C_i` with `sum_i alpha_i y_i = 0` and points `z_i` of the samples' sets (see `brackets.py`), the
hinge of every sample is at least `alpha_i / C_i` of `1 + y_i b - y_i w.z_i`, so that the objective of every plane is at
least

    sum_i alpha_i + 1/2 |w|^2 - w.v   >=   sum_i alpha_i - 1/2 |v|^2,     v = sum_i alpha_i y_i z_i.

`N` samples, `D` features.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from protodask.engine.records import Floats
from protodask.robust.brackets import bracket
from protodask.robust.terms import Terms

NOISE = 1e-14
"""Share of its cost below which a multiplier counts as 0."""


def relative_gap(objective: float, bound: float) -> float:
    """By how much an objective may exceed the least there is, as a share of itself; 0 where the objective is 0."""
    return (objective - bound) / objective if objective > 0 else 0.0


@dataclass(frozen=True, eq=False)
class Plane:
    """A plane with its objective, the slack being the hinges."""

    weights: Floats
    """(D,)."""
    intercept: float
    slack: Floats
    """(N,)."""
    objective: float


def plane_of(terms: Terms, sign: Floats, costs: Floats, weights: Floats, near: float) -> Plane:
    """The plane of some weights with the best intercept, the one closest to `near` if several are."""
    values, _ = bracket(terms, sign, weights)
    intercept = best_intercept(1.0 + values, sign, costs, near)
    slack = np.maximum(1.0 + values + sign * intercept, 0.0)
    return Plane(weights, intercept, slack, float(weights @ weights) / 2 + float(costs @ slack))


def best_intercept(asked: Floats, sign: Floats, costs: Floats, near: float) -> float:
    """`b` that minimises `sum_i C_i max(0, asked_i + y_i b)`, the one closest to `near` if several do.

    Both labels must have samples of positive cost. The sum has kinks at `-y_i asked_i`; the slope grows by `C_i` there.
    """
    order = np.argsort(-sign * asked, kind="stable")
    kinks = (-sign * asked)[order]
    # Costs of the label -1 are charged below their kinks, those of the label 1 above.
    slope = np.cumsum(costs[order]) - float(costs[sign < 0].sum())
    rounding = 1e-14 * float(costs.sum())
    first = int(np.argmax(slope >= -rounding))
    last = int(np.argmax(slope > rounding))
    return float(np.clip(near, kinks[first], kinks[max(first, last)]))


@dataclass(frozen=True, eq=False)
class DualBound:
    """A lower bound of the objectives of all planes."""

    value: float
    weights: Floats
    """`v`, the weights that the multipliers stand for, (D,)."""


def dual_bound(terms: Terms, sign: Floats, costs: Floats, multipliers: Floats, points: Floats) -> DualBound:
    """The bound of multipliers (N,) and points `alpha_i z_i` (N, D) that need not be quite feasible.

    They are moved to where the bound holds, so that it is one whatever they are.
    """
    # Multipliers this far below their bounds are the solver's noise, and no point can be read from them.
    asked = np.where(multipliers > NOISE * costs, multipliers, 0.0)
    inside = _inside(terms, np.divide(points, asked[:, None], out=terms.mean_low.copy(), where=asked[:, None] > 0))
    alpha = np.minimum(asked, costs)
    below, above = float(alpha[sign < 0].sum()), float(alpha[sign > 0].sum())
    common = min(below, above)
    for side, total in ((sign < 0, below), (sign > 0, above)):
        if total > 0:
            alpha[side] *= common / total
    weights = (alpha * sign) @ inside
    return DualBound(float(alpha.sum()) - float(weights @ weights) / 2, weights)


def _inside(terms: Terms, points: Floats) -> Floats:
    """Points moved into the samples' sets: into the support, then towards the mean until within the spread."""
    if terms.lower is not None and terms.upper is not None:
        points = np.clip(points, terms.lower, terms.upper)
    mean = np.clip(points, terms.mean_low, terms.mean_high)
    deviation = points - mean
    shares = np.divide(deviation, terms.spread, out=np.zeros_like(deviation), where=terms.spread > 0)
    length = np.maximum(np.linalg.norm(shares, axis=1, keepdims=True), 1.0)
    return np.where(terms.spread > 0, mean + deviation / length, mean)
