"""The robust classifier of any number of samples: a bundle of minorants, block by block, with a certified gap.

    min F(w, b) = 1/2 |w|^2 + R(w, b),     R(w, b) = sum_i C_i max(0, 1 + y_i b + B_i(w))

A pass evaluates one plane and brings cuts, the samples nearest to their kinks, and curvature (`passes.py`). The next
plane `z = (w, b)` minimises the model (`minorants.py`, `master.py`) with Newton's charge for a step from the center,
the best plane so far,

    model(z) + 1/2 (z - center)^T H (z - center),     H = charge A + max(charge, 1) W + max(charge - 1, 0) I

`W = sum_i alpha_i B_i''(w)` curves as the norms of the brackets do, at the multipliers `alpha_i` of the model's lowest
plane for the samples that it has one by one, at `C_i` or 0 for all others: with few samples this is the step of
sequential quadratic programming. `A` stands for the kinks of hinges that the model does not know: the curvature of
hinges smoothed over a band, of the others only, which is Newton's step where many samples decide. Charges grow with
failed steps and fall with good ones; only `A` is a matter of taste and may count for less.

Each pass raises the lower bound, that of the model without any charge, and the run ends once the best plane is as close
to it as asked for. Steps are judged by the best multiple of their plane, see `best_multiple`.

`N` samples, `D` features.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from protodask.engine import Engine, Source, one_blas_thread
from protodask.engine.records import Floats
from protodask.robust.master import Center, Step, lower_bound, minimize_model
from protodask.robust.minorants import Minorants, first_cuts
from protodask.robust.passes import (
    EVALUATE,
    SURVEY,
    Answer,
    Question,
    SamplesOfBlock,
    Survey,
    hinge_curvature,
    spread_curvature,
)
from protodask.robust.weak_duality import relative_gap

LADDER = (1.0, 0.3, 0.1, 0.03, 0.01)
"""Widths of the smoothed hinges relative to the widest, whose curvature is taken."""

WIDEST, NARROWEST = 2.0, 1e-6
"""Widths of the widest band, in units of the margin."""

FIRST_BAND = 6.0
"""With no weights all hinges are 0 or 2 away from their kinks; this band has them all."""

MOST_CHARGED = 64.0
"""A step is charged at most so many times: then the model, not the length of the step, is what is wrong."""

FEWEST_TIMES, HALVINGS = 0.95, 60
"""Multiples of a plane that are looked at, and halvings of their range: down to rounding.

Far multiples mislead where little weight is best: twice a short plane may be better than it, whatever its direction.
"""

SOFTNESS, LEAST_SOFT = 0.25, 1e-3
"""What the norms of brackets are softened by, in units of the widest band, and at least, in units of the margin.

Half or twice as much does as well; but norms as sharp as narrow bands would hold short planes where they are.
"""

ROUNDED_ABOVE = 0.05
"""Share of the objective without weights below which cuts need no norms: the kink at no weights is far away, and cones
cost the digits that high costs leave."""

SMOOTHING = 0.3
"""Share of the gap that the smoothing of the widest band may take, or nearly so."""

BEYOND_NEAR = 2.0
"""The widest band is at least so many times as wide as the near samples reach, where there are more than those."""

MOST_NEAR_NUMBERS = 50_000
"""Samples given one by one times features: each has four arrays of so many numbers in an answer, and in the log."""

Status = Literal["converged", "pass limit", "one class", "no cost"]

Evaluate = Callable[[Question], Answer]


@dataclass(frozen=True)
class Pass:
    """The state after a pass."""

    number: int
    objective: float
    """At the plane evaluated."""
    best: float
    lower: float
    gap: float
    """`(best - lower) / best`."""


@dataclass(frozen=True, eq=False)
class PlaneFit:
    """What a solver says: a plane `w.x = b` with its objective and a lower bound of the least objective there is."""

    weights: Floats
    """(D,)."""
    intercept: float
    objective: float
    dual_objective: float
    status: str
    passes: int
    """Over the samples, or iterations of the cone solver."""
    history: tuple[Pass, ...] = ()

    @property
    def relative_gap(self) -> float:
        return relative_gap(self.objective, self.dual_objective)


def solve_bundle(
    source: Source,
    samples_of: SamplesOfBlock,
    engine: Engine,
    *,
    gap: float = 1e-4,
    max_passes: int = 300,
    recorded: Callable[[Evaluate, int], Evaluate] | None = None,
    on_pass: Callable[[Pass], None] | None = None,
) -> PlaneFit:
    """The best plane to a relative gap, for the samples that `samples_of` makes of the blocks of `source`.

    `recorded` may put a log between the evaluations and their answers, see `bundle_run.py`; the passes are a function
    of the answers alone, and those are the same for any engine.
    """
    survey = engine.reduce(source, SURVEY, samples_of, label="survey")
    n_features = len(survey.reach)
    origin = survey.origin
    if not survey.cost.all():
        # What costs nothing: no weights, and all samples that count on one side.
        side = float(np.sign(survey.cost[1] - survey.cost[0]))
        return PlaneFit(np.zeros(n_features), -side, 0.0, 0.0, "one class" if side else "no cost", 0)

    def evaluate(question: Question) -> Answer:
        return engine.reduce(source, EVALUATE, samples_of, origin, question, label="evaluate")

    asked = evaluate if recorded is None else recorded(evaluate, n_features)
    found = _Bundle(survey, origin).run(asked, gap, max_passes, on_pass)
    # The plane was found where features are counted from the origin.
    return replace(found, intercept=found.intercept + float(found.weights @ origin))


class _Bundle:
    """The minorants so far and the best plane: what changes from pass to pass."""

    def __init__(self, survey: Survey, origin: Floats) -> None:
        n_features = len(origin)
        self.cost = float(survey.cost.sum())
        self.still = 2.0 * float(survey.cost.min())
        """The least objective there is without weights."""
        self.best = self.still
        self.plane = np.append(np.zeros(n_features), 1.0 if survey.cost[0] >= survey.cost[1] else -1.0)
        # b is best at a kink: |b| <= 1 + |B_i(w)| <= 1 + |points| |w|, and 1/2 |w|^2 <= F at no weights.
        self.reach = survey.reach + np.abs(origin)
        self.box = 1.0 + float(np.linalg.norm(self.reach)) * float(np.sqrt(2 * self.best))
        self.lower = 0.0
        self.center: Answer | None = None
        self.center_plane, self.center_band = self.plane, FIRST_BAND
        self.shares: dict[float, float] = {}
        self.charge = 1.0
        self.charged = False
        """Whether a step to the plane asked for was charged: what comes of it says how good the charge is."""
        self.level = self.best
        """Objective of the best multiple of the center's plane: what steps are judged by."""
        self.steeper = self.plane
        """That multiple."""
        self.center_objective = self.best
        self.failed = 0
        """Passes since the center was found."""
        self.lowest = self.plane
        self.n_near = near_samples(n_features)
        self.minorants = Minorants(first_cuts(survey, origin), self.n_near)

    @property
    def gap(self) -> float:
        return relative_gap(self.best, self.lower)

    def run(self, evaluate: Evaluate, gap: float, max_passes: int, on_pass: Callable[[Pass], None] | None) -> PlaneFit:
        history: list[Pass] = []
        plane = self.plane
        band, expected = FIRST_BAND, 0.0
        status: Status = "pass limit"
        steeper = False
        for number in range(1, max_passes + 1):
            question = Question(plane[:-1], float(plane[-1]), band * np.array(LADDER), self.n_near, soft_of(band))
            answer = evaluate(question)
            # Sums must not depend on how many threads the driver's machine has.
            with one_blas_thread():
                objective = self.take(answer, plane, band, expected, number)
                self.raise_bound(number)
            history.append(Pass(number, objective, self.best, self.lower, self.gap))
            if on_pass is not None:
                on_pass(history[-1])
            if self.gap <= gap:
                status = "converged"
                break
            # A multiple is asked for where it ends the run, and once: else it would tell of little but itself.
            ends = number == max_passes - 1 or relative_gap(self.level, self.lower) <= gap
            steeper = ends and not steeper and self.level < self.best
            self.charged = not steeper
            with one_blas_thread():
                plane = self.steeper if steeper else self.next_plane()
                expected = self.minorants.model.at(plane[:-1], float(plane[-1]))
                band = self.next_band()
        weights, intercept = self.plane[:-1], float(self.plane[-1])
        return PlaneFit(weights, intercept, self.best, self.lower, status, len(history), tuple(history))

    def take(self, answer: Answer, plane: Floats, band: float, expected: float, number: int) -> float:
        """Add what a pass said of a plane; the model had `expected` its value there. Returns the objective."""
        objective = float(plane[:-1] @ plane[:-1]) / 2 + answer.risk
        multiple, level = best_multiple(answer, plane)
        # With no weights nothing tells where to go on: any other plane is a better center.
        if self.center is None or not self.center_plane[:-1].any() or level < self.level:
            if self.charged and self.level - level > 0.5 * (self.level - expected):
                self.charge = max(self.charge / (4 if self.charge > 1 else 2), 1e-3)
            self.center = answer
            self.center_plane, self.center_band, self.center_objective = plane, band, objective
            self.failed = 0
            self.level, self.steeper = level, plane * multiple
        else:
            if self.charged:
                self.charge = min(self.charge * 2, MOST_CHARGED)
            self.failed += 1
        if objective < self.best:
            self.best, self.plane = objective, plane
        rounded = self.best > ROUNDED_ABOVE * self.still
        self.minorants.add(answer, number, is_center=self.center is answer, rounded=rounded)
        return objective

    def raise_bound(self, number: int) -> None:
        model = self.minorants.model
        step = minimize_model(model, self.level)
        bound, shares = lower_bound(model, step.multipliers, self.reach, self.box)
        if np.isfinite(step.plane).all():
            self.lowest = step.plane
        self.lower = min(max(self.lower, bound), self.best)
        self.shares = self.shares_of(step)
        self.minorants.thin_out(shares, step.multipliers, number)

    def next_plane(self) -> Floats:
        """The plane that the model with the charge proposes."""
        assert self.center is not None
        weights, near = self.center_plane[:-1], self.center.near
        whole = np.where(near.hinge > 0, near.cost, 0.0)
        gradient = np.column_stack([near.cuts.center + near.cuts.width * np.sign(weights), near.cuts.slope])
        across = self.center.across - hinge_curvature(gradient, near.hinge, near.cost, self.center_band)
        alpha = np.array([self.shares.get(row, own) for row, own in zip(near.row, whole, strict=True)])
        within = self.center.within + spread_curvature(
            near.spread, near.spent, alpha - whole, weights, soft_of(self.center_band)
        )
        metric = self.charge * _without_negative(across)
        inner = metric[(slice(-1),) * metric.ndim]
        inner += max(self.charge, 1.0) * _without_negative(within)
        diagonal = np.einsum("ii->i", metric) if metric.ndim == 2 else metric
        # Something where the risk is flat.
        diagonal += 1e-12 * (float(diagonal.sum()) / len(diagonal) + self.best)
        diagonal[:-1] += max(self.charge - 1.0, 0.0)
        model = self.minorants.model
        step = minimize_model(model, self.level, Center(self.center_plane, metric))
        plane = step.plane
        if (
            self.failed % 3 == 2
            or not np.isfinite(plane).all()
            or model.at(plane[:-1], plane[-1]) > self.center_objective
        ):
            # What the solver or the charge got wrong: a plane between the best and the model's lowest mends the model.
            self.charged = False
            return np.asarray(self.center_plane + (self.lowest - self.center_plane) / 2 ** (1 + self.failed // 3 % 4))
        return plane

    def shares_of(self, step: Step) -> dict[float, float]:
        """The multipliers of the samples that the model has one by one, by their numbers."""
        multipliers = step.multipliers
        whole = float(multipliers.details.sum())
        if not whole > 0.01:
            return {}
        hinges = self.minorants.model.hinges
        shares = np.bincount(hinges.sample, np.maximum(multipliers.lines, 0.0), minlength=len(hinges.cost)) / whole
        return dict(zip(self.minorants.rows.tolist(), shares.tolist(), strict=True))

    def next_band(self) -> float:
        # Of samples that are spread evenly over the unit beside the kink, `band` are inside, and each is off by at
        # most band / 8: a fifth of all is taken to be near enough.
        allowed = SMOOTHING * (self.level - self.lower) / (self.cost / 5) * 8
        near = None if self.center is None else self.center.near
        if near is not None and len(near.row) == near.most:
            # The samples next to those that the model has one by one meet their kinks in the step, too.
            allowed = max(allowed, BEYOND_NEAR * float(np.abs(near.hinge).max()))
        return float(np.clip(allowed, NARROWEST, WIDEST))


def near_samples(n_features: int) -> int:
    """How many samples a pass gives one by one.

    Several times as many as there are kinks at the best plane, unless programs would then take longer than passes.
    """
    return min(4 * (n_features + 1) + 100, max(100, MOST_NEAR_NUMBERS // n_features))


def soft_of(band: float) -> float:
    """What norms are softened by where the widest band is so wide."""
    return max(SOFTNESS * band, LEAST_SOFT)


def _without_negative(matrix: Floats) -> Floats:
    """A matrix, or diagonal, that is positive semidefinite but for the rounding of what was taken away from it, made
    so.
    """
    if matrix.ndim == 1:
        return np.maximum(matrix, 0.0)
    values, vectors = np.linalg.eigh(matrix)
    half = vectors * np.sqrt(np.maximum(values, 0.0))
    return np.asarray(half @ half.T)


def best_multiple(answer: Answer, plane: Floats) -> tuple[float, float]:
    """The `t` for which `t (w, b)` has the least objective, and that objective.

    Brackets are homogeneous, so that the hinges at the multiple are `1 + t (u_i - 1)`: the objective is known there as
    far as only the near samples pass their kinks. Where costs are high against what the margin takes, planes differ by
    far more in the little slack that they leave than in their directions, and it is these that steps must be judged by.
    """
    near, square = answer.near, float(plane[:-1] @ plane[:-1])
    objective = square / 2 + answer.risk
    low, high = FEWEST_TIMES, 1 / FEWEST_TIMES
    if len(near.row) == near.most:
        reach = float(np.abs(near.hinge).max())
        low, high = max(low, 1 / (1 + reach)), min(high, 1 / (1 - reach) if reach < 1 else high)
    off = near.hinge - 1.0
    # The others: a constant and what grows with t.
    still = float(answer.rest.value[0])
    grows = float(answer.rest.at(plane[:-1], float(plane[-1]))[0]) - still

    def slope(times: float) -> float:
        return times * square + grows + float(near.cost @ np.where(1.0 + times * off > 0, off, 0.0))

    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) < 0 else (low, middle)
    # Beyond the kink that it may be, or rounding leaves some slack.
    times = high * (1.0 + 1e-14)
    found = times**2 * square / 2 + still + times * grows + float(near.cost @ np.maximum(1.0 + times * off, 0.0))
    return (times, found) if found < objective else (1.0, objective)
