"""The model of the risk in the driver, its best plane, and what no plane can be below.

The model is the largest of its minorants: cuts, and for a few planes a cut of most samples with the hinges of the
others one by one,

    1/2 |w|^2 + max( cut_k(w, b),  rest_d(w, b) + sum_i C_i max(0, hinge_di(w, b)) )

A quadratic program, which Clarabel solves. Nothing it says is taken for true: its plane is only a place to evaluate
next, and its multipliers, made feasible here, give the bound of weak duality in closed form, each entry of

    sum value - 1/2 |max(|center| - width, 0)|^2 - box |slope|

being that of the combination of minorants they stand for, and `box` a bound of the best intercept.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import sparse

from protodask.robust.clarabel_library import load_clarabel
from protodask.robust.passes import Answer, Cuts
from protodask.robust.terms import Floats

ROUNDING = 1e-13
"""Of the sum of the sizes of its parts, by which a lower bound is lowered: some hundred units of the last place."""


@dataclass(frozen=True, eq=False)
class Detail:
    """A minorant in two parts: the cut of most samples, and the hinges of some."""

    rest: Cuts
    """One cut."""
    cost: Floats
    """(m,)."""
    hinges: Cuts
    """(m,), without their costs."""

    def at(self, weights: Floats, intercept: float) -> float:
        """Its value at a plane."""
        hinges = np.maximum(self.hinges.at(weights, intercept), 0.0)
        return float(self.rest.at(weights, intercept)[0] + self.cost @ hinges)


def detail_of(answer: Answer) -> Detail:
    """The near samples of an answer, and the cut of the hinge itself without them."""
    near = answer.near
    own = np.where(near.hinge > 0, near.cost, 0.0)
    whole, hinges = answer.cuts.take(slice(0, 1)), near.cuts
    rest = Cuts(
        whole.value - own.sum(),
        whole.center - own @ hinges.center,
        # Rounding must not make a width negative.
        np.maximum(whole.width - own @ hinges.width, 0.0),
        whole.slope - own @ hinges.slope,
    )
    return Detail(rest, near.cost, hinges)


@dataclass(frozen=True, eq=False)
class Model:
    """Minorants of the risk."""

    cuts: Cuts
    details: tuple[Detail, ...] = ()

    def at(self, weights: Floats, intercept: float) -> float:
        """A lower bound of the objective at a plane."""
        values = [float(self.cuts.at(weights, intercept).max())]
        values += [detail.at(weights, intercept) for detail in self.details]
        return float(weights @ weights) / 2 + max(values)


@dataclass(frozen=True, eq=False)
class Center:
    """Where a step starts from and what it is charged: `1/2 (z - center)^T metric (z - center)`, `z = (w, b)`."""

    plane: Floats
    """(D + 1,)."""
    metric: Floats
    """(D + 1, D + 1), positive semidefinite."""


@dataclass(frozen=True, eq=False)
class Multipliers:
    """What a solution gives each minorant; any numbers make a bound."""

    cuts: Floats
    """(M,)."""
    details: Floats
    """(number of details,)."""
    hinges: tuple[Floats, ...] = field(default=())
    """Of the hinges of each detail, with the costs in them."""


@dataclass(frozen=True, eq=False)
class Step:
    """A plane that the model proposes."""

    plane: Floats
    """`(w, b)`, (D + 1,); not finite where the solver failed."""
    multipliers: Multipliers
    status: str


def minimize_model(model: Model, scale: float, center: Center | None = None) -> Step:
    """The plane where the model, with what the step from a center is charged, is lowest.

    `scale` is a size of the values, in whose units the program is solved.
    """
    clarabel = load_clarabel()
    n_features = model.cuts.center.shape[1]
    kinks = np.flatnonzero(
        model.cuts.width.any(axis=0)
        | np.any([d.rest.width.any(axis=0) | d.hinges.width.any(axis=0) for d in model.details], axis=0)
    )
    sizes = [len(detail.cost) for detail in model.details]
    # The variables: w, b, |w| where it matters, the model's value, the hinges of the details.
    n_planes = n_features + 1
    value = n_planes + len(kinks)
    n_variables = value + 1 + sum(sizes)

    def rows_of(cuts: Cuts) -> Any:
        return np.column_stack([cuts.center, cuts.slope, cuts.width[:, kinks]])

    parts: list[Any] = []
    limits: list[Floats] = []
    lowered = -np.ones((len(model.cuts), 1))
    tail = sparse.csc_matrix((len(model.cuts), sum(sizes)))
    parts.append(_beside(rows_of(model.cuts) / scale, lowered, tail))
    limits.append(-model.cuts.value / scale)
    before = 0
    for detail, size in zip(model.details, sizes, strict=True):
        after = sum(sizes) - before - size
        # Hinges are counted with their costs in units of the scale: u_i C_i / scale <= xi_i.
        priced = np.concatenate([np.zeros(before), np.ones(size), np.zeros(after)])[None, :]
        parts.append(sparse.csc_matrix(np.hstack([rows_of(detail.rest) / scale, [[-1.0]], priced])))
        limits.append(-detail.rest.value / scale)
        price = detail.cost / scale
        own = [sparse.csc_matrix((size, before)), -sparse.eye_array(size), sparse.csc_matrix((size, after))]
        parts.append(_beside(rows_of(detail.hinges) * price[:, None], np.zeros((size, 1)), *own))
        limits.append(-detail.hinges.value * price)
        parts.append(_beside(sparse.csc_matrix((size, value + 1)), *own))
        limits.append(np.zeros(size))
        before += size
    for sign in (1.0, -1.0):
        rows = np.zeros((len(kinks), n_variables))
        rows[np.arange(len(kinks)), kinks] = sign
        rows[np.arange(len(kinks)), n_planes + np.arange(len(kinks))] = -1.0
        parts.append(sparse.csc_matrix(rows))
        limits.append(np.zeros(len(kinks)))
    quadratic = np.zeros((n_planes, n_planes))
    quadratic[np.arange(n_features), np.arange(n_features)] = 1.0 / scale
    linear = np.zeros(n_variables)
    linear[value] = 1.0
    if center is not None:
        quadratic += center.metric / scale
        linear[:n_planes] = -(center.metric @ center.plane) / scale
    whole = sparse.block_diag([np.triu(quadratic), sparse.csc_matrix((n_variables - n_planes,) * 2)], format="csc")
    constraints = sparse.csc_matrix(sparse.vstack(parts))
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.max_threads = 1
    cone = clarabel.NonnegativeConeT(constraints.shape[0])
    solution = clarabel.DefaultSolver(whole, linear, constraints, np.concatenate(limits), [cone], settings).solve()
    found, dual = np.array(solution.x), np.array(solution.z)
    return Step(found[:n_planes], _multipliers(model, dual), str(solution.status))


def _beside(*parts: Any) -> Any:
    return sparse.hstack([sparse.csc_matrix(part) for part in parts])


def _multipliers(model: Model, dual: Floats) -> Multipliers:
    place = len(model.cuts)
    details, hinges = [], []
    for detail in model.details:
        size = len(detail.cost)
        details.append(dual[place])
        hinges.append(dual[place + 1 : place + 1 + size] * detail.cost)
        place += 1 + 2 * size
    return Multipliers(dual[: len(model.cuts)], np.array(details), tuple(hinges))


def lower_bound(model: Model, multipliers: Multipliers, box: float) -> tuple[float, Floats]:
    """What no plane has less than, if its intercept is at most `box` in size; and the shares of the cuts, (M,)."""
    shares = _positive(multipliers.cuts)
    details = _positive(multipliers.details)
    total = shares.sum() + details.sum()
    if not total > 0:
        return -np.inf, shares
    shares, details = shares / total, details / total
    parts = [_weighted(model.cuts, shares)]
    for detail, share, hinge in zip(model.details, details, multipliers.hinges, strict=True):
        parts.append(_weighted(detail.rest, np.array([share])))
        parts.append(_weighted(detail.hinges, np.minimum(_positive(hinge) / total, share * detail.cost)))
    value, center, width, slope = (sum(entries) for entries in zip(*parts, strict=True))
    # A free intercept wants no slope; the steepest cut of the other sign takes away what the solver left.
    steepest = int(np.argmin(model.cuts.slope) if slope > 0 else np.argmax(model.cuts.slope))
    against = float(model.cuts.slope[steepest])
    if slope * against < 0:
        share = slope / (slope - against)
        value = value * (1 - share) + share * model.cuts.value[steepest]
        center = center * (1 - share) + share * model.cuts.center[steepest]
        width = width * (1 - share) + share * model.cuts.width[steepest]
        slope = slope * (1 - share) + share * against
        shares = shares * (1 - share)
        shares[steepest] += share
    free = np.maximum(np.abs(center) - width, 0.0)
    square = float(free @ free) / 2
    bound = float(value) - square - box * abs(float(slope))
    return bound - ROUNDING * (abs(float(value)) + square + float(np.abs(center) @ free)), shares


def _positive(values: Floats) -> Floats:
    return np.where(np.isfinite(values), np.maximum(values, 0.0), 0.0)


def _weighted(cuts: Cuts, weights: Floats) -> tuple[Any, Any, Any, Any]:
    return weights @ cuts.value, weights @ cuts.center, weights @ cuts.width, weights @ cuts.slope
