"""The robust classifier of few samples as one cone program, solved by Clarabel and judged apart from it.

    min 1/2 |w|^2 + sum_i C_i xi_i    over w, b, xi >= 0   with   1 - xi_i + y_i b + B_i(w) <= 0

What is reported is not what the solver says. The objective is computed from `w` alone, with the brackets in closed form
and the best `b` for the weights; its lower bound comes from weak duality (`weak_duality.py`), from the solver's
multipliers moved to where they bound it, whatever their quality. Programs that the solver finds hard are given to it
again in other units and with other settings.

`N` samples, `D` features.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from protodask.engine.records import Floats, taken, with_arrays
from protodask.errors import InputError, count
from protodask.robust.brackets import bracket
from protodask.robust.bundle import PlaneFit
from protodask.robust.cone_program import MOST_ENTRIES, SETUPS, entries_of, solve_program
from protodask.robust.terms import Terms
from protodask.robust.weak_duality import DualBound, Plane, dual_bound, plane_of, relative_gap

CEILINGS = (1e3, 1e6)
"""What costs are cut to at first, where features are of size 1.

Labels that can be told apart with a margin of 0.05, or 0.001, have no multiplier above these.
"""

GAP = 1e-6
"""Gap relative to the objective that a solution must have; the solver usually leaves 1e-8."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Solution(PlaneFit):
    """The plane that the cone program gives, its passes being the solver's iterations in all attempts.

    The status is what the solver said of the last attempt, or why it was not asked: `one class`, `no cost`.
    """

    slack: Floats
    """`xi`, the hinge of the brackets at this plane, (N,)."""
    attempts: int

    @property
    def gap(self) -> float:
        return self.objective - self.dual_objective


def solve_conic(
    terms: Terms, y: NDArray[np.generic], cost: ArrayLike, *, gap: float = GAP, most_entries: int = MOST_ENTRIES
) -> Solution:
    """The best plane for `y` (N,) of -1 and 1 and a cost of slack, one for all samples or one each.

    Samples of cost 0 ask for nothing. Raises an InputError if the program would have more than `most_entries` numbers
    in its matrix, or if no attempt comes within the relative gap.
    """
    sign = np.asarray(y, dtype=np.float64)
    costs = np.asarray(cost, dtype=np.float64)
    if sign.shape != terms.mean_low.shape[:1] or costs.shape not in {(), sign.shape}:
        raise InputError(
            "wrong-shape",
            f"The labels of {count(len(terms.mean_low), 'sample')} are of shape {sign.shape}, and the costs of "
            f"shape {costs.shape}.",
            "Give one label a sample, and one cost for all samples or one each.",
        )
    costs = np.full(sign.shape, costs)
    _check(sign, costs)
    counted = np.flatnonzero(costs)
    kept, kept_sign, kept_costs = taken(terms, counted), sign[counted], costs[counted]
    if not (np.any(kept_sign > 0) and np.any(kept_sign < 0)):
        return _without_margin(terms, sign, kept_sign)
    entries = entries_of(kept)
    if entries > most_entries:
        raise InputError(
            "over-limit",
            f"The cone program of {len(kept_sign):,} samples would have {entries:,} numbers in its matrix, more than"
            f" {most_entries:,}.",
            "Use the bundle solver, which takes any number of samples.",
        )
    middle = kept.middle
    # The intercept has no price, so moving the features costs nothing, and spares digits.
    centre = (middle[kept_sign > 0].mean(axis=0) + middle[kept_sign < 0].mean(axis=0)) / 2
    found = _attempts(_moved(kept, centre, 1.0), kept_sign, kept_costs, gap)
    plane, least = found.plane, found.bound.value
    if not found.ends(gap):
        raise InputError(
            "no-convergence",
            f"The cone solver came no closer than a relative gap of {relative_gap(plane.objective, least):.1e} in"
            f" {found.attempts} attempts, the last of which it called {found.status}; {gap:.1e} was asked for.",
            "Bring the features to scales near 1, ask for a wider gap, or use the bundle solver.",
        )
    values, _ = bracket(_moved(terms, centre, 1.0), sign, plane.weights)
    return Solution(
        plane.weights,
        plane.intercept + float(plane.weights @ centre),
        plane.objective,
        least,
        found.status,
        found.iterations,
        slack=np.maximum(1.0 + values + sign * plane.intercept, 0.0),
        attempts=found.attempts,
    )


def _check(sign: Floats, costs: Floats) -> None:
    wrong = np.flatnonzero(np.abs(sign) != 1)
    if len(wrong):
        raise InputError(
            "bad-value", f"The label of sample {wrong[0]} is {sign[wrong[0]]}.", "Give labels of -1 and 1."
        )
    wrong = np.flatnonzero(~((costs >= 0) & np.isfinite(costs)))
    if len(wrong):
        raise InputError(
            "bad-value",
            f"The cost of sample {wrong[0]} is {costs[wrong[0]]}.",
            "Give costs that are 0 or more, and finite.",
        )


def _without_margin(terms: Terms, sign: Floats, kept_sign: Floats) -> Solution:
    """What costs nothing: no weights, and all samples that count on one side."""
    side = float(kept_sign[0]) if len(kept_sign) else 0.0
    slack = np.maximum(1.0 - sign * side, 0.0)
    weights = np.zeros(terms.mean_low.shape[1])
    status = "one class" if side else "no cost"
    return Solution(weights, -side, 0.0, 0.0, status, 0, slack=slack, attempts=0)


def _moved(terms: Terms, centre: Floats, unit: float) -> Terms:
    """Features as `(x - centre) / unit`."""
    return replace(with_arrays(lambda array: (array - centre) / unit, terms), spread=terms.spread / unit)


def _units(terms: Terms) -> list[float]:
    """Units of the features in which the program may be solved, the most promising first."""
    size = np.abs(terms.middle) + terms.half
    whole = np.linalg.norm(size + terms.spread, axis=1)
    units: list[float] = []
    for unit in (float(np.median(whole)), float(np.median(np.linalg.norm(size, axis=1))), float(whole.max())):
        if unit > 0 and all(abs(np.log(unit / other)) > 0.5 for other in units):
            units.append(unit)
    return units or [1.0]


@dataclass(frozen=True, eq=False)
class _Found:
    """The best of some attempts."""

    plane: Plane
    bound: DualBound
    status: str = "not asked"
    iterations: int = 0
    attempts: int = 0

    def ends(self, gap: float) -> bool:
        """Whether the two meet."""
        return self.plane.objective - self.bound.value <= gap * self.plane.objective


def _attempts(terms: Terms, sign: Floats, costs: Floats, gap: float) -> _Found:
    """The best plane and the best bound of all attempts, which end as soon as the two meet.

    High costs are cut at first: a plane and a bound that meet are what they are whatever costs they were found with.
    Features have their own units, so have costs: with weights `unit w` objective and costs are `unit^2` times as large.
    """
    plane = _first_plane(terms, sign, costs)
    found = _Found(plane, DualBound(0.0, np.zeros_like(plane.weights)))
    units = _units(terms)
    highest = float(costs.max()) * units[0] ** 2
    for most in (*(ceiling for ceiling in CEILINGS if ceiling < highest), np.inf):
        for unit, setup in itertools.product(units, SETUPS):
            cut = np.minimum(costs, most / unit**2)
            # Objectives near 1 suit the solver's tolerances.
            objective = _objective(found.plane, cut) * unit**2
            answer = solve_program(_moved(terms, np.zeros(1), unit), sign, cut * unit**2, objective, setup)
            if answer is None:
                found = replace(found, status="failed", attempts=found.attempts + 1)
                continue
            raw = plane_of(terms, sign, costs, answer.weights / unit, answer.intercept)
            plane = _clear(terms, sign, costs, raw)
            bound = dual_bound(terms, sign, cut, answer.multipliers / unit**2, answer.points / unit)
            found = _Found(
                min(found.plane, plane, key=lambda candidate: candidate.objective),
                max(found.bound, bound, key=lambda candidate: candidate.value),
                answer.status,
                found.iterations + answer.iterations,
                found.attempts + 1,
            )
            if found.ends(gap):
                return found
            least = min(_objective(raw, cut), _objective(plane, cut))
            if least - bound.value <= gap * least:  # the problem is solved at the costs it was given
                break
    return found


def _objective(plane: Plane, costs: Floats) -> float:
    return float(plane.weights @ plane.weights) / 2 + float(costs @ plane.slack)


def _clear(terms: Terms, sign: Floats, costs: Floats, plane: Plane) -> Plane:
    """The plane made steeper until it leaves no slack, if it then costs less: solvers leave some everywhere."""
    most = float(plane.slack.max())
    if not 0 < most < 0.5:
        return plane
    # A little more, or rounding leaves some.
    steeper = (1.0 + 1e-14) / (1.0 - most)
    clear = plane_of(terms, sign, costs, plane.weights * steeper, plane.intercept * steeper)
    return min(plane, clear, key=lambda candidate: candidate.objective)


def _first_plane(terms: Terms, sign: Floats, costs: Floats) -> Plane:
    """The best of some multiples of the difference between the labels' means, none among them."""
    middle = terms.middle
    towards = middle[sign > 0].mean(axis=0) - middle[sign < 0].mean(axis=0)
    square = float(towards @ towards)
    plane = plane_of(terms, sign, costs, np.zeros(len(towards)), 0.0)
    if not square > 0:
        return plane
    # 2 / |difference|^2 puts the labels' means at the margins.
    planes = (plane_of(terms, sign, costs, towards * (2 / square * 4.0**power), 0.0) for power in range(-8, 5))
    return min(plane, *planes, key=lambda candidate: candidate.objective)
