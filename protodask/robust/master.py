"""The model of the risk in the driver, its best plane, and what no plane can be below.

The model is the largest of its minorants: cuts `k`, and for a few planes `e` a cut of most samples with the hinges of
the others one by one,

    1/2 |w|^2 + max( cut_k(w, b),  rest_e(w, b) + sum of C_i xi_i over near_e ),     xi_i = max( 0, line_l(w, b) )

with the lines `l` of sample `i` from any pass. A quadratic program, with a cone for each cut that has a norm, which
Clarabel solves. Nothing it says is taken for true: its plane is only a place to evaluate next, and its multipliers,
made feasible here, give the bound of weak duality in closed form. With shares `lambda_k` and `delta_e` that add up to 1
and `mu_l >= 0`, those of a sample adding up to at most `C_i` times the `delta_e` of the planes it is near at,

    sum lambda_k cut_k + sum delta_e rest_e + sum mu_l line_l

is a minorant `value + center.w + width.|w| + slope b` of the risk, whose least sum with `1/2 |w|^2` is

    value - 1/2 |max(|center| - width, 0)|^2 - box |slope|,

`box` being a bound of the best intercept. For the norm of a cut, times its share, stands the linear
`(round_k * q_k).w <= lambda_k |diag(round_k) w|` of any `|q_k| <= lambda_k`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from protodask.engine.records import Floats
from protodask.robust.cone_program import GatheredMatrix, load_clarabel
from protodask.robust.passes import Cuts, curvature_shape

ULP = float(np.finfo(np.float64).eps)

ROUNDING = 64 * ULP
"""Of what sums are made of, by which they may be off: pairwise sums of all samples, then of all minorants."""


@dataclass(frozen=True, eq=False)
class Hinges:
    """The hinges of some samples, each the largest of 0 and of its lines."""

    cost: Floats
    """(H,)."""
    lines: Cuts
    """(L,), without the costs."""
    sample: NDArray[np.intp]
    """Whose hinge a line is of, (L,)."""

    def at(self, weights: Floats, intercept: float) -> Floats:
        """Lower bounds of the hinges at a plane, without the costs, (H,)."""
        found = np.zeros(len(self.cost))
        np.maximum.at(found, self.sample, self.lines.at(weights, intercept))
        return found


@dataclass(frozen=True, eq=False)
class Model:
    """Minorants of the risk."""

    cuts: Cuts
    rests: Cuts
    """Of the minorants that have samples one by one, the details, (E,)."""
    near: NDArray[np.bool_]
    """Whose hinges it has besides its rest, (E, H)."""
    hinges: Hinges

    def at(self, weights: Floats, intercept: float) -> float:
        """A lower bound of the objective at a plane."""
        hinges = self.near @ (self.hinges.cost * self.hinges.at(weights, intercept))
        values = [float(self.cuts.at(weights, intercept).max())]
        values += list(self.rests.at(weights, intercept) + hinges)
        return float(weights @ weights) / 2 + max(values)


@dataclass(frozen=True, eq=False)
class Center:
    """Where a step starts from and what it is charged: `1/2 (z - center)^T metric (z - center)`, `z = (w, b)`."""

    plane: Floats
    """(D + 1,)."""
    metric: Floats
    """(D + 1, D + 1), positive semidefinite, or the diagonal of such a matrix, (D + 1,)."""


@dataclass(frozen=True, eq=False)
class Multipliers:
    """What a solution gives each minorant; any numbers make a bound."""

    cuts: Floats
    """(M,)."""
    details: Floats
    """(E,)."""
    lines: Floats
    """With the costs in them, (L,)."""
    pulls: Floats
    """`q` of each cut, (M, D)."""


@dataclass(frozen=True, eq=False)
class Step:
    """A plane that the model proposes."""

    plane: Floats
    """`(w, b)`, (D + 1,); not finite where the solver failed."""
    multipliers: Multipliers


def minimize_model(model: Model, scale: float, center: Center | None = None) -> Step:
    """The plane where the model, with what the step from a center is charged, is lowest.

    `scale` is a size of the values, in whose units the program is solved.
    """
    clarabel = load_clarabel()
    rows = _constraints(model, scale)
    n_features = model.cuts.center.shape[1]
    n_planes, n_variables = n_features + 1, rows.matrix.shape[1]
    own_price = np.append(np.full(n_features, 1.0 / scale), 0.0)
    linear = np.zeros(n_variables)
    linear[rows.value] = 1.0
    # A small matrix with its zeros: the order in which the solver eliminates, and so its last digits, depend on them.
    small = len(curvature_shape(n_features, n_planes)) == 2
    quadratic: Any = np.diag(own_price) if small else _diagonal(own_price)
    if center is not None:
        metric = center.metric / scale
        if metric.ndim == 2:
            quadratic, pull = np.triu(quadratic + metric), center.metric @ center.plane
        else:
            quadratic, pull = _diagonal(own_price + metric), center.metric * center.plane
        linear[:n_planes] = -pull / scale
    whole = sparse.block_diag([quadratic, sparse.csc_matrix((n_variables - n_planes,) * 2)], format="csc")
    cones = [clarabel.NonnegativeConeT(rows.flat), *map(clarabel.SecondOrderConeT, rows.cones)]
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.max_threads = 1
    # Chosen by itself it is `faer` where programs are large, which takes twice as long.
    settings.direct_solve_method = "qdldl"
    solution = clarabel.DefaultSolver(whole, linear, rows.matrix, rows.limits, cones, settings).solve()
    found, dual = np.array(solution.x), np.array(solution.z)
    return Step(found[:n_planes], _multipliers(model, dual))


@dataclass(frozen=True, eq=False)
class _Constraints:
    """`limits - matrix x` is in the cones, for the variables w, b, |w| where it matters, the model's value, the hinges
    and the norms in units of the scale.
    """

    matrix: Any
    limits: Floats
    flat: int
    """Rows that are to be at least 0, the first ones."""
    cones: list[int]
    """Lengths of the second-order cones after them."""
    value: int
    """The column of the model's value."""


def _constraints(model: Model, scale: float) -> _Constraints:
    hinges, rounded = model.hinges, model.cuts.rounded
    n_hinges, n_features = len(hinges.cost), model.cuts.center.shape[1]
    widths = (model.cuts.width, model.rests.width, hinges.lines.width)
    kinks = np.flatnonzero(np.any([width.any(axis=0) for width in widths], axis=0))
    value = n_features + 1 + len(kinks)
    own, norms = value + 1 + np.arange(n_hinges), value + 1 + n_hinges + np.arange(len(rounded))

    def planes_of(cuts: Cuts) -> Floats:
        return np.column_stack([cuts.center, cuts.slope, cuts.width[:, kinks]])

    sizes = (len(model.cuts), len(model.rests), len(hinges.lines), n_hinges, len(kinks), len(kinks))
    cuts, rests, lines, positive, above, _ = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    price = hinges.cost[hinges.sample] / scale
    matrix = GatheredMatrix()
    matrix.put(cuts[:, None], np.arange(value), planes_of(model.cuts) / scale)
    matrix.put(cuts, value, -1.0)
    matrix.put(cuts[rounded], norms, 1.0)
    matrix.put(rests[:, None], np.arange(value), planes_of(model.rests) / scale)
    matrix.put(rests, value, -1.0)
    matrix.put(rests[:, None], own, model.near)
    # u_i C_i / scale <= xi_i
    matrix.put(lines[:, None], np.arange(value), planes_of(hinges.lines) * price[:, None])
    matrix.put(lines, own[hinges.sample], -1.0)
    matrix.put(positive, own, -1.0)
    matrix.put_absolute(above, n_features + 1 + np.arange(len(kinks)), [(kinks, 1.0)])
    # |round * w| / scale is at most the norm.
    flat, length, features = sum(sizes), 1 + n_features, np.arange(n_features)
    tops = flat + length * np.arange(len(rounded))
    matrix.put(tops, norms, -1.0)
    matrix.put(tops[:, None] + 1 + features, features, -model.cuts.round[rounded] / scale)
    limits = np.zeros(flat + length * len(rounded))
    limits[cuts] = -model.cuts.value / scale
    limits[rests] = -model.rests.value / scale
    limits[lines] = -hinges.lines.value * price
    whole = matrix.finished(len(limits), value + 1 + n_hinges + len(rounded))
    return _Constraints(whole, limits, flat, [length] * len(rounded), value)


def _diagonal(values: Floats) -> Any:
    """A matrix of nothing else, without what is 0."""
    places = np.flatnonzero(values)
    return sparse.csc_matrix((values[places], (places, places)), (len(values),) * 2)


def _multipliers(model: Model, dual: Floats) -> Multipliers:
    details, lines = len(model.cuts), len(model.cuts) + len(model.rests)
    priced = dual[lines : lines + len(model.hinges.lines)] * model.hinges.cost[model.hinges.sample]
    pulls, rounded = np.zeros_like(model.cuts.round), model.cuts.rounded
    if len(rounded):
        size = 1 + pulls.shape[1]
        pulls[rounded] = -dual[-len(rounded) * size :].reshape(-1, size)[:, 1:]
    return Multipliers(dual[:details], dual[details:lines], priced, pulls)


def lower_bound(model: Model, multipliers: Multipliers, reach: Floats, box: float) -> tuple[float, Floats]:
    """What no plane has less than, if its intercept is at most `box` in size; and the shares of the cuts, (M,).

    No sample has a feature of a size above `reach` (D,). With weights `alpha_i` of the samples the combination of
    minorants has the value `sum alpha_i` and the center `-sum alpha_i y_i c_i`, whose rounding errors are shares of
    `sum alpha_i` and `reach sum alpha_i`, however much of them cancels; and the bound changes by `|free|` times that.
    """
    shares, details, hinges = _positive(multipliers.cuts), _positive(multipliers.details), model.hinges
    total = shares.sum() + details.sum()
    if not total > 0:
        return -np.inf, shares
    shares, details, lines = shares / total, details / total, _positive(multipliers.lines) / total
    # The lines of a hinge together count at most as often as the details that have it.
    most = hinges.cost * (details @ model.near)
    asked = np.bincount(hinges.sample, lines, minlength=len(most))
    lines = lines * np.divide(most, asked, out=np.ones(len(most)), where=asked > most)[hinges.sample]
    parts = [model.cuts.weighted(shares), model.rests.weighted(details), hinges.lines.weighted(lines)]
    value, center, width, slope = (sum(entries) for entries in zip(*parts, strict=True))
    center = center + np.einsum("md,md->d", model.cuts.round, _within(multipliers.pulls / total, shares))
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
    return bound - ROUNDING * float(value) * (1.0 + float(reach @ free)) - 8 * ULP * square, shares


def _within(pulls: Floats, lengths: Floats) -> Floats:
    """Vectors (M, D) no longer than so much each, (M,)."""
    sound = np.where(np.isfinite(pulls), pulls, 0.0)
    found = np.linalg.norm(sound, axis=1)
    return np.asarray(sound * np.divide(lengths, found, out=np.ones(len(found)), where=found > lengths)[:, None])


def _positive(values: Floats) -> Floats:
    return np.where(np.isfinite(values), np.maximum(values, 0.0), 0.0)
