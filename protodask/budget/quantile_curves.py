"""Polynomials laid over timings of items of several sizes.

The coefficients `c_k >= 0` minimise the pinball loss of quantile `q`

    sum_i  q max(t_i - c(n_i), 0) + (1 - q) max(c(n_i) - t_i, 0)          c(n) = sum_k c_k n^k

a linear programme. At `q = 1` that is the curve of the smallest sum above all timings: the worst case. Coefficients
that are not negative make costs grow with the size, also beyond the sizes that were timed.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import linprog

from protodask.budget.polynomials import Floats, evaluate
from protodask.errors import InputError
from protodask.evaluation.interval import is_real

ROUNDING = 1e-9

UPWARD = 1 + 1e-9
"""Curves are raised by so much that what lies on them, within the rounding of the solver, counts as below."""


def check_curve(quantile: object, degree: object) -> None:
    """Refuse what no curve can be laid with."""
    if not (is_real(quantile) and 0 < quantile <= 1):
        raise InputError(
            "bad-setting", f"The quantile is {quantile!r}.", "Give a share above 0, and 1 for the worst case."
        )
    if not (is_real(degree) and degree in range(11)):
        raise InputError(
            "bad-setting", f"The degree is {degree!r}.", "Give a degree from 0 to 10; 1 to 3 suit most extractors."
        )


def fit_quantile(sizes: ArrayLike, values: ArrayLike, quantile: float, degree: int) -> Floats:
    """Coefficients `c_k >= 0`, constant first, of the curve of a quantile of values (items, ...) at sizes (items,).

    At least the share `quantile` of the values lies at or below the curve, and all of them at quantile 1.
    """
    check_curve(quantile, degree)
    taken = np.asarray(values, dtype=np.float64).reshape(len(np.asarray(values)), -1)
    n = np.repeat(np.asarray(sizes, dtype=np.float64), taken.shape[1])
    t = taken.ravel()
    if not (np.isfinite(t).all() and np.isfinite(n).all() and (t >= 0).all() and (n >= 0).all()):
        raise InputError(
            "bad-value", "A size or a timing is negative or no finite number.", "Time items of sizes of 0 or more."
        )
    largest, slowest = float(n.max(initial=0.0)) or 1.0, float(t.max(initial=0.0))
    if slowest == 0:
        return np.zeros(degree + 1)
    # Sizes and values within [0, 1]: the solver's tolerances are absolute.
    powers = (n / largest)[:, None] ** np.arange(degree + 1)
    scaled = _above(powers, t / slowest) if quantile == 1 else _between(powers, t / slowest, quantile)
    curve = np.maximum(scaled, 0.0) * slowest / largest ** np.arange(degree + 1)
    # The solver's tolerances may leave values that should lie on the curve above it, by a hair.
    order = min(math.ceil(quantile * len(t) - ROUNDING), len(t)) - 1
    for _ in range(2):
        curve[0] += max(0.0, float(np.partition(t - evaluate(curve, n), order)[order]))
    return np.asarray(curve * UPWARD)


def _above(powers: Floats, values: Floats) -> Floats:
    """`min sum_i c(n_i)` above all values: of each size only the largest value matters."""
    order = np.lexsort((-values, powers[:, -1], powers[:, min(1, powers.shape[1] - 1)]))
    kept = order[np.r_[True, np.diff(powers[order, min(1, powers.shape[1] - 1)]) > 0]]
    target = powers.sum(axis=0) / len(powers)
    found = linprog(target, A_ub=-powers[kept], b_ub=-values[kept], bounds=(0, None), method="highs")
    return np.asarray(_checked(found).x, dtype=np.float64)


def _between(powers: Floats, values: Floats, quantile: float) -> Floats:
    """The coefficients are the multipliers of the dual programme, which has a row for each and not one for each value:

    `max sum_i a_i t_i` where `q - 1 <= a_i <= q` and `sum_i a_i n_i^k <= 0` for every power `k`.
    """
    bounds = (quantile - 1, quantile)
    found = linprog(-values, A_ub=powers.T, b_ub=np.zeros(powers.shape[1]), bounds=bounds, method="highs-ipm")
    return np.asarray(-_checked(found).ineqlin.marginals, dtype=np.float64)


def _checked(found: Any) -> Any:
    if found.status != 0:
        raise InputError(
            "no-convergence",
            f"No cost curve could be laid over the timings ({found.message}).",
            "Time more items, or lower the degree.",
        )
    return found
