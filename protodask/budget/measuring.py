"""What features cost in seconds: extractors are timed on items of several sizes, and polynomials laid over the timings.

For each feature the coefficients `c_k >= 0` minimise the pinball loss of quantile `q`

    sum_i  q max(t_i - c(n_i), 0) + (1 - q) max(c(n_i) - t_i, 0)          c(n) = sum_k c_k n^k

a linear programme. At `q = 1` that is the curve of the smallest sum above all timings: the worst case. Coefficients
that are not negative make costs grow with the size, also beyond the sizes that were timed.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linprog
from scipy.sparse import csr_array, eye_array, hstack

from protodask.budget.polynomials import Floats, evaluate
from protodask.engine import one_blas_thread
from protodask.errors import InputError

Extractor = Callable[[Any], Any]
Clock = Callable[[], float]

PARTS = 5
"""Into which items are dealt for the coverage of timings held out."""

ROUNDING = 1e-9

COLLECT_EVERY = 100
"""Items between collections of garbage."""

MOST_AT_ONCE = 2000
"""Values of a linear programme: a tenth of a second; the time grows with their square."""

UPWARD = 1 + 1e-9
"""Curves are raised by so much that what lies on them, within the rounding of the solver, counts as below."""


@dataclass(frozen=True, eq=False)
class MeasuredCosts:
    """Timings, and the curves laid over them."""

    feature_names: tuple[str, ...]
    costs: Floats
    """Coefficients in seconds, constants first, (features, degree + 1); headroom included."""
    sizes: Floats
    """Of the items that were timed, (items,)."""
    seconds: Floats
    """What each extractor took for each item each time, (features, items, repeats)."""
    quantile: float
    headroom: float
    coverage: Floats
    """For each feature the share of its timings at or below its curve."""
    held_out_coverage: Floats
    """The same for timings that the curve did not see: of each fifth of the items under a curve for the others."""


def item_size(item: Any) -> float:
    """How large an item is unless somebody says otherwise: the elements of an array, else its length, else 1."""
    if isinstance(item, np.ndarray) or hasattr(item, "shape"):
        return float(np.size(item))
    try:
        return float(len(item))
    except TypeError:
        return 1.0


def measure_costs(
    extractors: Mapping[str, Extractor],
    items: Sequence[Any],
    *,
    size: Callable[[Any], float] = item_size,
    repeats: int = 3,
    quantile: float = 1.0,
    degree: int = 2,
    headroom: float = 1.0,
    clock: Clock = time.perf_counter,
) -> MeasuredCosts:
    """Time every extractor on every item `repeats` times, and lay curves of the quantile over the timings.

    Items should be of the sizes to come. Each extractor runs once on the first item before anything counts; then all
    items are gone through `repeats` times, so that an item is as unfamiliar to the caches as it will be. The garbage
    collector is kept out and BLAS to one thread. The curves are multiplied by `headroom`.

    At quantile 1 one pause of the machine, of however few timings, raises a whole curve, and with it what every
    prediction is said to cost: on a machine that others use 0.99 says more, with a `headroom` such as 1.2.
    """
    if not extractors or len(items) == 0:
        raise InputError(
            f"There are {len(extractors)} extractors and {len(items)} items.", "Give at least one of each to time."
        )
    if repeats < 1:
        raise InputError(f"repeats is {repeats}.", "Time each item at least once.")
    sizes = sizes_of(items, size)
    seconds = np.empty((len(extractors), len(items), repeats))
    with undisturbed():
        for function in extractors.values():
            function(next(iter(items)))
        for repeat in range(repeats):
            for number, item in enumerate(items):
                for row, function in enumerate(extractors.values()):
                    start = clock()
                    function(item)
                    seconds[row, number, repeat] = clock() - start
                collect_between(number)
    return costs_of(tuple(extractors), sizes, seconds, quantile=quantile, degree=degree, headroom=headroom)


def costs_of(
    feature_names: Sequence[str],
    sizes: ArrayLike,
    seconds: ArrayLike,
    *,
    quantile: float = 1.0,
    degree: int = 2,
    headroom: float = 1.0,
) -> MeasuredCosts:
    """Curves over timings that are there already: of items of `sizes` (items,), (features, items, repeats)."""
    if not headroom >= 1 or math.isinf(headroom):
        raise InputError(f"headroom is {headroom}.", "Give a factor of 1 or more, such as 1.2 for a fifth on top.")
    n, taken = np.asarray(sizes, dtype=np.float64), np.asarray(seconds, dtype=np.float64)
    costs = headroom * np.stack([fit_quantile(n, own, quantile, degree) for own in taken])
    covered = taken <= evaluate(costs[:, None, :], n)[:, :, None]
    return MeasuredCosts(
        feature_names=tuple(feature_names),
        costs=costs,
        sizes=n,
        seconds=taken,
        quantile=quantile,
        headroom=headroom,
        coverage=covered.mean(axis=(1, 2)),
        held_out_coverage=_held_out_coverage(n, taken, quantile, degree, headroom),
    )


def _held_out_coverage(sizes: Floats, seconds: Floats, quantile: float, degree: int, headroom: float) -> Floats:
    n_items = len(sizes)
    if n_items < 2:
        return np.full(len(seconds), np.nan)
    # Dealt in the order of their sizes, so that every part has small items and large ones.
    part = np.empty(n_items, dtype=np.int64)
    part[np.argsort(sizes, kind="stable")] = np.arange(n_items) % PARTS
    covered = np.zeros(len(seconds))
    for held_out in np.unique(part):
        out = part == held_out
        for row, own in enumerate(seconds):
            curve = headroom * fit_quantile(sizes[~out], own[~out], quantile, degree)
            covered[row] += (own[out] <= evaluate(curve, sizes[out])[:, None]).sum()
    return np.asarray(covered / seconds[0].size)


def fit_quantile(sizes: ArrayLike, values: ArrayLike, quantile: float, degree: int) -> Floats:
    """Coefficients `c_k >= 0`, constant first, of the curve of a quantile of values (items, ...) at sizes (items,).

    At least the share `quantile` of the values lies at or below the curve, and all of them at quantile 1.
    """
    if not 0 < quantile <= 1:
        raise InputError(f"The quantile is {quantile}.", "Give a share above 0, and 1 for the worst case.")
    if not 0 <= degree <= 10:
        raise InputError(f"The degree is {degree}.", "Give a degree from 0 to 10; 1 to 3 suit most extractors.")
    taken = np.asarray(values, dtype=np.float64).reshape(len(np.asarray(values)), -1)
    n = np.repeat(np.asarray(sizes, dtype=np.float64), taken.shape[1])
    t = taken.ravel()
    if not (np.isfinite(t).all() and np.isfinite(n).all() and (t >= 0).all() and (n >= 0).all()):
        raise InputError("A size or a timing is negative or no finite number.", "Time items of sizes of 0 or more.")
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
    return _checked(linprog(target, A_ub=-powers[kept], b_ub=-values[kept], bounds=(0, None), method="highs"))


def _between(powers: Floats, values: Floats, quantile: float) -> Floats:
    """`min sum_i q u_i + (1 - q) v_i` where `u_i - v_i = t_i - c(n_i)`, exactly, for many values.

    A programme of values near the curve is solved, with the others counted on the side where a sample puts them: there
    their loss is linear, and no less than that on the other side. So the solution is that of all values as soon as it
    leaves each of those on its side; until then those that change sides join the values near the curve.
    """
    n_values = len(values)
    near = np.ones(n_values, dtype=bool)
    above = np.zeros(n_values, dtype=bool)
    if n_values > MOST_AT_ONCE:
        some = np.random.default_rng(0).choice(n_values, MOST_AT_ONCE, replace=False)
        curve = powers @ _between(powers[some], values[some], quantile)
        distance = np.abs(values - curve) / np.maximum(curve, np.finfo(float).tiny)
        near = distance <= np.partition(distance, MOST_AT_ONCE - 1)[MOST_AT_ONCE - 1]
        above = ~near & (values > curve)
    while True:
        found = _solve_near(powers, values, quantile, near, above)
        if found is None:  # so few are near that the curve could go anywhere
            near = np.ones(n_values, dtype=bool)
            above = ~near
            continue
        gap = values - powers @ found
        wrong = ~near & np.where(above, gap < -ROUNDING, gap > ROUNDING)
        if not wrong.any():
            return found
        near |= wrong
        above &= ~wrong


def _solve_near(
    powers: Floats, values: Floats, quantile: float, near: NDArray[np.bool_], above: NDArray[np.bool_]
) -> Floats | None:
    """With `v_i = u_i - t_i + c(n_i)`: `min sum_i u_i + (1 - q) c(n_i)`, `u_i >= t_i - c(n_i)`; None if unbounded.

    Of values that are not near, `u_i` is `t_i - c(n_i)` above and 0 below.
    """
    n_near = int(near.sum())
    linear = (1 - quantile) * powers.sum(axis=0) - powers[above].sum(axis=0)
    target = np.r_[linear, np.ones(n_near)] / len(values)
    sides = hstack([csr_array(-powers[near]), -eye_array(n_near)], format="csr")
    found = linprog(target, A_ub=sides, b_ub=-values[near], bounds=(0, None), method="highs")
    if found.status in {2, 3, 4} and n_near < len(values):
        return None
    return _checked(found)[: powers.shape[1]]


def _checked(found: Any) -> Floats:
    if found.status != 0:
        raise InputError(
            f"No cost curve could be laid over the timings ({found.message}).", "Time more items, or lower the degree."
        )
    return np.asarray(found.x, dtype=np.float64)


def sizes_of(items: Sequence[Any], size: Callable[[Any], float]) -> Floats:
    """The sizes of items, checked."""
    sizes = np.empty(len(items))
    for number, item in enumerate(items):
        sizes[number] = checked_size(item, size, f"Item {number}")
    return sizes


def checked_size(item: Any, size: Callable[[Any], float], which: str) -> float:
    """The size of an item: a finite number of 0 or more."""
    try:
        found = float(size(item))
    except Exception as error:
        raise InputError(
            f"The size of an item cannot be told ({which}: {type(error).__name__}: {error}).",
            "Give a function `size` that makes a number of every item.",
        ) from error
    if not 0 <= found < math.inf:
        raise InputError(f"{which} has the size {found}.", "Give a `size` that answers with a number of 0 or more.")
    return found


@contextmanager
def undisturbed() -> Iterator[None]:
    """One BLAS thread, and no garbage collection."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        with one_blas_thread():
            yield
    finally:
        if collecting:
            gc.enable()


def collect_between(number: int) -> None:
    """Called after each item where garbage is not collected by itself: now and then what is young is, untimed."""
    if number % COLLECT_EVERY == COLLECT_EVERY - 1:
        gc.collect(1)


def as_coefficients(costs: MeasuredCosts | Mapping[str, ArrayLike] | ArrayLike, names: Sequence[str]) -> NDArray[Any]:
    """Costs in the order of the features they are of: measured ones, coefficients by name, or an array."""
    if isinstance(costs, MeasuredCosts):
        costs = dict(zip(costs.feature_names, costs.costs, strict=True))
    if not isinstance(costs, Mapping):
        found = _as_floats(costs)
        if found.ndim != 2 or len(found) != len(names):
            raise InputError(
                f"The costs have the shape {found.shape}, and there are {len(names)} features.",
                "Give a row of coefficients for each feature, constant first.",
            )
        return found
    if missing := [name for name in names if name not in costs]:
        raise InputError(f"There are no costs for {missing[0]!r}.", "Give the costs of every feature, by its name.")
    rows = [np.atleast_1d(_as_floats(costs[name])) for name in names]
    if wrong := [name for name, row in zip(names, rows, strict=True) if row.ndim > 1]:
        raise InputError(f"The costs of {wrong[0]!r} are a table.", "Give a list of coefficients, constant first.")
    table = np.zeros((len(rows), max(len(row) for row in rows)))
    for number, row in enumerate(rows):
        table[number, : len(row)] = row
    return table


def _as_floats(costs: ArrayLike) -> Floats:
    try:
        return np.asarray(costs, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"The costs are no numbers ({error}).", "Give coefficients, constant first.") from error
