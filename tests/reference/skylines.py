"""Best sets within a budget, naively: every set at every size, in exact arithmetic or as costs are computed."""

from __future__ import annotations

import heapq
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, pairwise

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Drawn:
    """Sets of features with accuracies and polynomial costs, and the range of sizes."""

    sets: list[frozenset[int]]
    accuracies: Floats
    costs: Floats
    low: float
    high: float


def horner(coefficients: Floats, size: float) -> float:
    """One cost at one size, the coefficients constant first."""
    value = float(coefficients[-1])
    for coefficient in coefficients[-2::-1].tolist():
        value = value * size + coefficient
    return value


def horner_all(costs: Floats, sizes: Floats) -> Floats:
    """The same of all sets (S, d + 1) at all sizes (Q,): (Q, S)."""
    value = np.broadcast_to(costs[:, -1], (len(sizes), len(costs)))
    with np.errstate(over="ignore", invalid="ignore"):
        for coefficient in costs.T[-2::-1]:
            value = value * sizes[:, None] + coefficient
    return value


def best_exact(drawn: Drawn, size: float, budget: float) -> tuple[float, Fraction, int] | None:
    """Accuracy, cost and number of features of the best set: costs as the real numbers they are.

    In whole numbers, `8 4^d` of them one: sizes and coefficients are multiples of a quarter, budgets of the costs of
    such, and of an eighth.
    """
    degree = drawn.costs.shape[1] - 1
    powers = np.array([int(4 * size) ** power * 4 ** (degree - power) for power in range(degree + 1)])
    eighths = (8 * drawn.costs).astype(np.int64)
    unit = 8 * 4**degree
    most = budget * unit
    assert (eighths == 8 * drawn.costs).all()
    assert (4 * size).is_integer()
    assert most.is_integer()
    costs = (eighths * powers).sum(axis=1)
    within = np.flatnonzero(costs <= int(most)).tolist()
    if not within:
        return None
    accuracy, cost, count = min((-float(drawn.accuracies[i]), int(costs[i]), len(drawn.sets[i])) for i in within)
    return -accuracy, Fraction(cost, unit), count


def best_numbers(
    sets: Sequence[frozenset[int]], accuracies: Floats, costs: Floats, sizes: Floats, budgets: Floats
) -> NDArray[np.int64]:
    """For items (Q,) the number of the best of all sets by their computed costs, -1 where none is affordable."""
    price = horner_all(costs, sizes)
    affordable = price <= np.minimum(budgets, sys.float_info.max)[:, None]
    order = sorted(range(len(sets)), key=lambda i: (len(sets[i]), sorted(sets[i])))
    accuracy = np.where(affordable, accuracies, -np.inf)[:, order]
    best = affordable[:, order] & (accuracy == accuracy.max(axis=1, keepdims=True))
    cheapest = np.where(best, price[:, order], np.inf)
    return np.where(affordable.any(axis=1), np.array(order)[cheapest.argmin(axis=1)], -1)


def skyline_changes(drawn: Drawn) -> int:
    """How often the skyline changes as the size grows, seen between all crossings of all pairs of curves."""
    crossings = [drawn.low, drawn.high]
    for one, other in combinations(drawn.costs, 2):
        roots = np.roots((one - other)[::-1])
        real = roots.real[np.abs(roots.imag) < 1e-9 * np.abs(roots)]
        crossings += real[(real > drawn.low) & (real < drawn.high)].tolist()
    cuts = np.sort(crossings)
    skylines = [_skyline(drawn, size) for size in (cuts[1:] + cuts[:-1]) / 2]
    return sum(one != other for one, other in pairwise(skylines))


def sweep(drawn: Drawn) -> list[float]:
    """Where the source's sweep stores a skyline: sizes at which neighbours in the order by cost change places.

    Of two that do, the one that becomes cheaper is more accurate than all that cost less; before, it was on the skyline
    together with the other, or it was not on it. For curves that neither touch nor meet more than one at a time.
    """
    order = sorted(range(len(drawn.sets)), key=lambda i: horner(drawn.costs[i], drawn.low))
    accuracies = drawn.accuracies.tolist()
    waiting: list[tuple[float, int, int]] = []
    stored = []

    def expect(below: int, above: int, size: float) -> None:
        roots = np.roots((drawn.costs[above] - drawn.costs[below])[::-1])
        real = roots.real[np.abs(roots.imag) < 1e-9 * np.abs(roots)]
        later = [root for root in real.tolist() if size * (1 + 1e-9) < root < drawn.high]
        if later:
            heapq.heappush(waiting, (min(later), below, above))

    for below, above in pairwise(order):
        expect(below, above, drawn.low)
    while waiting:
        size, below, above = heapq.heappop(waiting)
        place = order.index(below)
        if order[place + 1 : place + 2] != [above]:
            continue
        beneath = max((accuracies[i] for i in order[:place]), default=-np.inf)
        if accuracies[above] > max(accuracies[below], beneath) and accuracies[below] > beneath:
            stored.append(size)  # both were on it, and the dearer one was the more accurate
        elif beneath < accuracies[above] < accuracies[below]:
            stored.append(size)  # it was not on it, and all that is cheaper now is less accurate
        order[place : place + 2] = above, below
        for at in (place - 1, place, place + 1):
            if 0 <= at < len(order) - 1:
                expect(order[at], order[at + 1], size)
    return stored


def _skyline(drawn: Drawn, size: float) -> list[int]:
    """From the cheapest up, all that are more accurate than everything cheaper."""
    found: list[int] = []
    for number in sorted(range(len(drawn.sets)), key=lambda i: horner(drawn.costs[i], size)):
        if not found or drawn.accuracies[number] > drawn.accuracies[found[-1]]:
            found.append(number)
    return found


def draw(rng: np.random.Generator, kind: str) -> Drawn:
    """Curves up to degree 3 with whole (or dyadic) coefficients, or floats of very different scales.

    Of the whole ones `"plain"` have many crossings at whole sizes; `"tangent"` are made of one curve and multiples of
    `(n - x)^2` and `(n - x)^2 n`, and `"bundle"` of one curve and multiples of `n - x`, so that they touch, cross or
    coincide at one size.
    """
    count, degree = int(rng.integers(2, 12)), int(rng.integers(0, 4))
    low = float(rng.choice([0, 0, 1, 2]))
    high = float(rng.choice([np.inf, 16, 4, 2]))
    costs = np.zeros((count, degree + 1))
    if kind == "floats":
        costs[:] = rng.random((count, degree + 1)) * 10.0 ** rng.integers(-15, 3, degree + 1)
        costs[rng.random(costs.shape) < 0.1] = 0
        high = float(rng.choice([np.inf, 1e9, 10]))
    elif kind == "plain":
        costs[:] = rng.integers(0, 6, costs.shape) * rng.choice([1.0, 0.25])
    else:
        x, base = float(rng.choice([1, 2, 3, 0.5])), rng.integers(0, 4, degree + 1)
        factor = [-x, 1.0] if kind == "bundle" else [x * x, -2 * x, 1.0]
        costs[:] = base
        for shift in range(degree + 2 - len(factor)):
            costs[:, shift : shift + len(factor)] += rng.integers(0, 4, (count, 1)) * np.array(factor)
    accuracies = rng.integers(0, rng.choice([2, 6, 1000]), count) / 8
    sets = [frozenset(np.flatnonzero(rng.random(4) < 0.5).tolist()) | {4 + i} for i in range(count)]
    return Drawn(sets, accuracies, costs, low, high)
