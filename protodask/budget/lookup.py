"""Looking up items, many at once or one: two binary searches, of the size and of the budget."""

from __future__ import annotations

import math
import sys
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from protodask.budget.candidates import Candidates
from protodask.budget.costs import CostCurves
from protodask.budget.expansions import Choice, FeatureSet
from protodask.budget.polynomials import Floats, Integers, evaluate, horner, plain_rows
from protodask.budget.skyline import MARGIN, TINY, Listing
from protodask.errors import InputError

CHUNK_ITEMS = 8192
"""Items looked up at once: the dozen arrays of one value each take less than a megabyte."""

LARGEST = sys.float_info.max
"""No budget pays for a cost that is beyond all floats."""

Look = Callable[[Floats, Floats], Integers]


def in_chunks(look: Look, sizes: Floats, budgets: Floats) -> Integers:
    """(Q,) numbers of candidates for sizes and budgets (Q,), of which each may also be a single value, (1,)."""
    length = len(sizes) if len(budgets) == 1 else len(budgets)
    found = np.empty(length, dtype=np.int64)
    for begin in range(0, length, CHUNK_ITEMS):
        part = slice(begin, begin + CHUNK_ITEMS)
        n, budget = (values if len(values) < length else values[part] for values in (sizes, budgets))
        found[part] = look(*np.broadcast_arrays(n, np.minimum(budget, LARGEST)))
    return found


def check_items(curves: CostCurves, sizes: Floats, budgets: Floats) -> None:
    """Refuse sizes that are out of range, and budgets that are none, naming the first."""
    wrong = ~((sizes >= curves.low) & (sizes <= curves.high) & np.isfinite(sizes))
    if wrong.any():
        raise InputError(
            "bad-value",
            f"The size of an item is {float(sizes[wrong].flat[0])!r}.",
            f"Give sizes from {curves.low:g} to {curves.high:g}, for which the index was built"
            + (", and finite ones." if math.isinf(curves.high) else "."),
        )
    wrong = ~(budgets >= 0)
    if wrong.any():
        raise InputError("bad-setting", f"A budget is {float(budgets[wrong].flat[0])!r}.", "Give budgets of 0 or more.")


def as_item(curves: CostCurves, size: float, budget: float) -> tuple[float, float]:
    """A size and a budget, checked."""
    try:
        size, budget = float(size), float(budget)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(
            "wrong-type", f"A size or a budget is no number ({error}).", "Give a number for each."
        ) from error
    if not (curves.low <= size <= curves.high and size <= LARGEST and budget >= 0):
        check_items(curves, np.array([size]), np.array([budget]))
    return size, budget


def as_items(curves: CostCurves, sizes: ArrayLike, budgets: ArrayLike) -> tuple[Floats, Floats, tuple[int, ...]]:
    """Sizes and budgets as `in_chunks` takes them, checked, and the shape of what is looked up."""
    n, budget = _as_floats("sizes", sizes), _as_floats("budgets", budgets)
    check_items(curves, n, budget)
    try:
        shape = np.broadcast_shapes(n.shape, budget.shape)
    except ValueError as error:
        raise InputError(
            "wrong-shape",
            f"The sizes have the shape {n.shape}, the budgets {budget.shape}.",
            "Give a budget for each size, or one.",
        ) from error
    flat = [
        values.reshape(1) if values.size == 1 else np.broadcast_to(values, shape).reshape(-1) for values in (n, budget)
    ]
    return flat[0], flat[1], shape


def choose_many(look: Look, curves: CostCurves, sizes: ArrayLike, budgets: ArrayLike) -> Any:
    """The numbers that `look` finds for items in memory, in the shape that sizes and budgets have together."""
    n, budget, shape = as_items(curves, sizes, budgets)
    return in_chunks(look, n, budget).reshape(shape)


def _as_floats(name: str, values: ArrayLike) -> Floats:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(
            "wrong-type", f"The {name} are no numbers ({error}).", "Give a number for each item."
        ) from error


def slack_of(costs: Floats) -> Floats:
    """`8 MARGIN max_s c_s^-` as coefficients, (d + 1,): 0 where no term of a cost is subtracted."""
    return np.asarray(8 * MARGIN * np.maximum(-costs, 0).max(axis=0))


def _one_slack(costs: Floats) -> tuple[float, ...]:
    """The factor of the budget in the limit of `look_up`, and the coefficients of the rest, the highest power first."""
    rest = slack_of(costs)
    rest[0] += 2 * TINY
    rest = np.trim_zeros(rest, "b")
    return (1 + 4 * MARGIN, *rest[::-1].tolist())


def look_up(candidates: Candidates, listing: Listing, sizes: Floats, budgets: Floats) -> Integers:
    """The most accurate candidate that costs no more than the budget, for each of (Q,) items; -1 where there is none.

    Within a list, ascending in accuracy, a candidate costs no more than each `r` that follows, up to the margin with
    which it is listed: `c_s <= c_r + MARGIN (|c_s| + |c_r|) + TINY`, and `|c| <= c + 2 c^-` with `c^-` the sum of the
    terms that are subtracted. So where `r` is affordable, all before it cost at most `B + slack`,

        slack(n, B) = 4 MARGIN B + 8 MARGIN max_s c_s^-(n) + 2 TINY

    and halving the list ends at the last affordable candidate or after it. From there steps back lead to it: over
    candidates that cost more than `B`, and by no more than a few margins.
    """
    costs, entries = candidates.costs, listing.entries
    at = np.searchsorted(listing.starts, sizes, side="right") - 1
    first, last = listing.offsets[at], listing.offsets[at + 1]
    slack = slack_of(costs)
    with np.errstate(over="ignore"):
        limit = budgets * (1 + 4 * MARGIN) + 2 * TINY
        if slack.any():
            limit = limit + evaluate(slack, sizes)
    place = first - 1
    lengths = last - first
    step = 1 << (int(lengths.max(initial=1)).bit_length() - 1)
    while step:
        ahead = place + step
        inside = ahead < last
        # Beyond the list its last entry is looked at, and not taken. `take` is faster than an index in brackets.
        entry = entries.take(np.minimum(ahead, last - 1))
        cost = evaluate(costs.take(entry, axis=0), sizes)
        place = np.where(inside & (cost <= limit), ahead, place)
        step >>= 1
    return _settle(candidates, listing, sizes, budgets, first, place)


def _settle(
    candidates: Candidates, listing: Listing, sizes: Floats, budgets: Floats, first: Integers, place: Integers
) -> Integers:
    costs, entries, accuracies = candidates.costs, listing.entries, candidates.accuracies
    found = np.where(place >= first, entries.take(np.maximum(place, 0)), -1).astype(np.int64)
    cost = evaluate(costs.take(found, axis=0), sizes)
    left = np.flatnonzero((found >= 0) & (cost > budgets))
    while len(left):
        place[left] -= 1
        ended = place[left] < first[left]
        found[left[ended]] = -1
        left = left[~ended]
        found[left] = entries[place[left]]
        left = left[evaluate(costs[found[left]], sizes[left]) > budgets[left]]
    if not (np.diff(accuracies) == 0).any():
        return found
    # Of equally accurate ones the cheapest, and of those that cost the same the last.
    cost = evaluate(costs[found], sizes)
    left, accuracy = np.flatnonzero(found > 0), accuracies[found]
    while len(left):
        place[left] -= 1
        left = left[place[left] >= first[left]]
        other = entries[place[left]]
        equal = accuracies[other] == accuracy[left]
        left, other = left[equal], other[equal]
        price = evaluate(costs[other], sizes[left])
        cheaper = price < cost[left]
        found[left[cheaper]], cost[left[cheaper]] = other[cheaper], price[cheaper]
    return found


@dataclass(frozen=True, eq=False)
class Table:
    """The index as plain lists: for a single item Python's own numbers are faster than arrays, and give the same."""

    sets: tuple[FeatureSet, ...]
    accuracies: list[float]
    costs: list[tuple[float, ...]]
    """The highest power first."""
    slack: tuple[float, ...]
    starts: list[float]
    offsets: list[int]
    entries: list[int]

    @staticmethod
    def of(candidates: Candidates, listing: Listing) -> Table:
        return Table(
            candidates.sets,
            candidates.accuracies.tolist(),
            plain_rows(candidates.costs),
            _one_slack(candidates.costs),
            listing.starts.tolist(),
            listing.offsets.tolist(),
            listing.entries.tolist(),
        )

    def best(self, curves: CostCurves, size: float, budget: float) -> Choice:
        """The most accurate affordable set for one item."""
        size, budget = as_item(curves, size, budget)
        found = self._find(size, min(budget, LARGEST))
        if found is None:
            least = min(horner(cost, size) for cost in self.costs)
            raise InputError(
                "over-limit",
                f"No set of features costs as little as {budget!r} on an item of size {size!r}.",
                f"Give a budget of {least!r} or more." if least <= LARGEST else "Give a smaller size.",
            )
        number, cost = found
        return Choice(self.sets[number], self.accuracies[number], cost)

    def _find(self, size: float, budget: float) -> tuple[int, float] | None:
        """The number of the best candidate and its cost, as `look_up` finds it."""
        costs, entries, accuracies = self.costs, self.entries, self.accuracies
        at = bisect_right(self.starts, size) - 1
        first, last = self.offsets[at], self.offsets[at + 1]
        limit = budget * self.slack[0] + horner(self.slack[1:], size)
        begin = first
        while begin < last:
            middle = (begin + last) >> 1
            if horner(costs[entries[middle]], size) <= limit:
                begin = middle + 1
            else:
                last = middle
        place = begin - 1
        while place >= first and horner(costs[entries[place]], size) > budget:
            place -= 1
        if place < first:
            return None
        number = entries[place]
        cost = horner(costs[number], size)
        while place > first and accuracies[entries[place - 1]] == accuracies[number]:
            place -= 1
            other = horner(costs[entries[place]], size)
            if other < cost:
                number, cost = entries[place], other
        return number, cost
