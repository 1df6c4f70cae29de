"""Features of items and what they cost in seconds: extractors, functions that make a number or a vector of an item.

They are timed on items of several sizes, and curves are laid over the timings. The coefficients `c_k >= 0` of a curve
minimise the pinball loss of quantile `q`

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

from protodask.budget.costs import padded
from protodask.budget.polynomials import evaluate
from protodask.engine import one_blas_thread
from protodask.engine.records import Floats
from protodask.errors import InputError, count, refusing
from protodask.evaluation.interval import is_real

Extractor = Callable[[Any], Any]
Clock = Callable[[], float]

COLLECT_EVERY = 100
"""Items between collections of garbage."""

PARTS = 5
"""Into which items are dealt for the coverage of timings held out."""

ROUNDING = 1e-9

UPWARD = 1 + 1e-9
"""Curves are raised by so much that what lies on them, within the rounding of the solver, counts as below."""


@dataclass(frozen=True)
class Extracted:
    """What extractors made of items, and how long that took."""

    matrix: Floats
    """(items, columns): the columns of a feature beside each other, features in order."""
    widths: tuple[int, ...]
    """Columns of each feature."""
    seconds: Floats
    """(features, items, repeats)."""


def check_extractors(extractors: object) -> None:
    """Refuse what cannot be run."""
    if not isinstance(extractors, Mapping) or not extractors:
        raise InputError(
            "bad-setting",
            f"extractors is {type(extractors).__name__ if extractors else 'empty'}.",
            "Give a mapping from the name of each feature to a function of an item.",
        )
    for name, function in extractors.items():
        if not isinstance(name, str) or not callable(function):
            raise InputError(
                "wrong-type",
                f"The extractor {name!r} is a {type(function).__name__}.",
                "Give functions of an item, by text names.",
            )


def extract(extractors: Mapping[str, Extractor], items: Sequence[Any], repeats: int, clock: Clock) -> Extracted:
    """Run every extractor on every item, `repeats` times; values are those of the last time.

    Each runs once on the first item before it is timed, and all items are gone through before any is repeated.
    """
    with undisturbed():
        first = [_value(function, next(iter(items)), name, 0) for name, function in extractors.items()]
        widths = tuple(len(value) for value in first)
        ends = np.cumsum(widths)
        matrix = np.empty((len(items), int(ends[-1])))
        seconds = np.empty((len(widths), len(items), repeats))
        for repeat in range(repeats):
            for number, item in enumerate(items):
                for row, (name, function) in enumerate(extractors.items()):
                    start = clock()
                    value = _value(function, item, name, number)
                    seconds[row, number, repeat] = clock() - start
                    if len(value) != widths[row]:
                        raise InputError(
                            "user-code",
                            f"The extractor {name!r} gave {count(len(value), 'number')} for item {number}, and "
                            f"{widths[row]} for item 0.",
                            "Have it give as many for every item.",
                        )
                    matrix[number, ends[row] - widths[row] : ends[row]] = value
                if number % COLLECT_EVERY == COLLECT_EVERY - 1:
                    gc.collect(1)  # what is young: garbage is not collected by itself, and not while anything is timed
    return Extracted(matrix, widths, seconds)


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


def _value(function: Extractor, item: Any, name: str, number: int) -> Floats:
    try:
        found = function(item)
    except Exception as error:
        raise InputError(
            "user-code",
            f"The extractor {name!r} failed on item {number} ({type(error).__name__}: {error}).",
            "Mend it, or leave that item out.",
        ) from error
    try:
        return vector(found)
    except ValueError as error:
        raise InputError(
            "user-code",
            f"The extractor {name!r} gave {error} for item {number}.",
            "Have it give a finite number, or a one-dimensional array of a fixed number of them.",
        ) from error


def vector(value: Any) -> Floats:
    """A feature as its columns; a ValueError says what it is where it is not one."""
    try:
        found = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"a {type(value).__name__} that is no number") from None
    if found.ndim == 0:
        found = found[None]
    if found.ndim != 1 or not len(found):
        raise ValueError(f"an array of shape {found.shape}")
    if not np.isfinite(found).all():
        raise ValueError("a number that is not finite")
    return found


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
    collector is kept out and BLAS to one thread. The curves, of `fit_quantile`, are multiplied by `headroom`.

    At quantile 1 one pause of the machine, of however few timings, raises a whole curve, and with it what every
    prediction is said to cost: on a machine that others use 0.99 says more, with a `headroom` such as 1.2.
    """
    if not extractors or len(items) == 0:
        raise InputError(
            "no-rows",
            f"{count(len(extractors), 'extractor')} and {count(len(items), 'item')} are given.",
            "Give at least one of each to time.",
        )
    check_measuring(repeats, quantile, degree, headroom)
    sizes = sizes_of(items, size)
    seconds = extract(extractors, items, repeats, clock).seconds
    return costs_of(tuple(extractors), sizes, seconds, quantile=quantile, degree=degree, headroom=headroom)


def check_measuring(repeats: object, quantile: object, degree: object, headroom: object) -> None:
    """Refuse settings that nothing can be measured with."""
    if not isinstance(repeats, int | np.integer) or repeats < 1:
        raise InputError(
            "bad-setting", f"Timings are to be repeated {repeats!r} times.", "Time each item at least once."
        )
    check_quantile("The quantile", quantile)
    if not (is_real(degree) and degree in range(11)):
        raise InputError(
            "bad-setting", f"The degree is {degree!r}.", "Give a degree from 0 to 10; 1 to 3 suit most extractors."
        )
    if not isinstance(headroom, int | float | np.integer | np.floating) or not 1 <= headroom < math.inf:
        raise InputError(
            "bad-setting", f"headroom is {headroom!r}.", "Give a factor of 1 or more, such as 1.2 for a fifth on top."
        )


def check_quantile(name: str, quantile: object) -> None:
    """Refuse what is no share above 0."""
    if not (is_real(quantile) and 0 < quantile <= 1):
        raise InputError("bad-setting", f"{name} is {quantile!r}.", "Give a share above 0, and 1 for the worst case.")


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


def sizes_of(items: Sequence[Any], size: Callable[[Any], float]) -> Floats:
    """The sizes of items, checked."""
    return np.array([checked_size(item, size, f"Item {number}") for number, item in enumerate(items)], dtype=np.float64)


def checked_size(item: Any, size: Callable[[Any], float], which: str) -> float:
    """The size of an item: a finite number of 0 or more."""
    try:
        found = float(size(item))
    except Exception as error:
        raise InputError(
            "user-code",
            f"The size of an item cannot be told ({which}: {type(error).__name__}: {error}).",
            "Give a function `size` that makes a number of every item.",
        ) from error
    if not 0 <= found < math.inf:
        raise InputError(
            "user-code", f"{which} has the size {found}.", "Give a `size` that answers with a number of 0 or more."
        )
    return found


def as_coefficients(costs: MeasuredCosts | Mapping[str, ArrayLike] | ArrayLike, names: Sequence[str]) -> NDArray[Any]:
    """Costs in the order of the features they are of: measured ones, coefficients by name, or an array."""
    if isinstance(costs, MeasuredCosts):
        costs = dict(zip(costs.feature_names, costs.costs, strict=True))
    if not isinstance(costs, Mapping):
        found = _as_floats(costs)
        if found.ndim != 2 or len(found) != len(names):
            raise InputError(
                "wrong-shape",
                f"The costs have the shape {found.shape}, for {count(len(names), 'feature')}.",
                "Give a row of coefficients for each feature, constant first.",
            )
        return found
    if missing := [name for name in names if name not in costs]:
        raise InputError(
            "setting-missing",
            f"There are no costs for {missing[0]!r}.",
            "Give the costs of every feature, by its name.",
        )
    rows = [np.atleast_1d(_as_floats(costs[name])) for name in names]
    if wrong := [name for name, row in zip(names, rows, strict=True) if row.ndim > 1]:
        raise InputError(
            "wrong-shape", f"The costs of {wrong[0]!r} are a table.", "Give a list of coefficients, constant first."
        )
    return padded(rows)


def _as_floats(costs: ArrayLike) -> Floats:
    kinds = (TypeError, ValueError)
    with refusing(kinds, "wrong-type", "The costs are no numbers", "Give coefficients, constant first."):
        return np.asarray(costs, dtype=np.float64)


def fit_quantile(sizes: ArrayLike, values: ArrayLike, quantile: float, degree: int) -> Floats:
    """Coefficients `c_k >= 0`, constant first, of the curve of a quantile of values (items, ...) at sizes (items,).

    At least the share `quantile` of the values lies at or below the curve, and all of them at quantile 1.
    """
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
