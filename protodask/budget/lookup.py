"""Looking up items, many at once or one: two binary searches, of the list that is an item's own, and of its budget."""

from __future__ import annotations

import math
import sys
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from protodask.budget.candidates import Candidates
from protodask.budget.costs import CostCurves
from protodask.budget.expansions import Choice, FeatureSet
from protodask.budget.polynomials import Flags, evaluate, horner, plain_rows
from protodask.budget.skyline import MARGIN, TINY, Listing
from protodask.data.arrays.values import unmasked
from protodask.engine.lazy import is_lazy, map_values
from protodask.engine.records import Floats, Integers
from protodask.errors import InputError, refusing

CHUNK_ITEMS = 8192
"""Items looked up at once: the dozen arrays of one value each take less than a megabyte."""

SLACK = 1 + 1e-9
"""Times a budget: costs that come to it exactly are within it, however their sum is rounded. Who asks says so; look-ups
compare costs as they are computed.
"""

LARGEST = sys.float_info.max
"""No budget pays for a cost that is beyond all floats."""


def check_items(curves: CostCurves, sizes: Floats, budgets: Floats, first: int | None = None) -> None:
    """Refuse sizes that are out of range, and budgets that are none, naming the first one.

    Those of a table that is read in parts begin with its row `first`.
    """

    def whose(wrong: Flags) -> str:
        return "An item" if first is None else f"Row {first + int(wrong.argmax())} (counted from 0)"

    wrong = ~((sizes >= curves.low) & (sizes <= curves.high) & np.isfinite(sizes))
    if wrong.any():
        raise InputError(
            "bad-value",
            f"{whose(wrong)} has the size {float(sizes[wrong].flat[0])!r}.",
            f"Give sizes from {curves.low:.15g} to {curves.high:.15g}, for which the index was built"
            + (", and finite ones." if math.isinf(curves.high) else "."),
        )
    wrong = ~(budgets >= 0)
    if wrong.any():
        raise InputError(
            "bad-setting" if first is None else "bad-value",
            f"{whose(wrong)} has the budget {float(budgets[wrong].flat[0])!r}.",
            "Give budgets of 0 or more.",
        )


def as_item(curves: CostCurves, size: float, budget: float, slack: float = 1.0) -> tuple[float, float]:
    """A size and a budget, checked, and that times the slack."""
    try:
        size, budget = float(size), float(budget)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(
            "wrong-type", f"A size or a budget is no number ({error}).", "Give a number for each."
        ) from error
    if not (curves.low <= size <= curves.high and size <= LARGEST and budget >= 0):
        check_items(curves, np.array([size]), np.array([budget]))
    return size, budget * slack


def as_items(curves: CostCurves, sizes: ArrayLike, budgets: ArrayLike) -> tuple[Floats, Floats]:
    """Sizes and budgets of many items, checked, and broadcast against each other."""
    n, budget = _as_floats("sizes", sizes), _as_floats("budgets", budgets)
    check_items(curves, n, budget)
    seen = f"The sizes have the shape {n.shape}, the budgets {budget.shape}"
    with refusing(ValueError, "wrong-shape", seen, "Give a budget for each size, or one."):
        n, budget = np.broadcast_arrays(n, budget)
    return n, budget


def _as_floats(name: str, values: ArrayLike) -> Floats:
    kinds = (TypeError, ValueError, OverflowError)
    with refusing(kinds, "wrong-type", f"The {name} are no numbers", "Give a number for each item."):
        return np.asarray(unmasked(values), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Lookup:
    """Lists of sets, each by rising accuracy and mostly by rising cost: an item has one of them, and is answered there.

    Of equally accurate sets the cheapest at the size of the item is meant, of those that cost the same the last. A cost
    that is beyond all floats is affordable with no budget, an infinite one included.
    """

    curves: CostCurves
    candidates: Candidates
    listing: Listing
    by_budget: bool = False
    """Whether it is the budget of an item that says which list is its own, and not its size."""

    @property
    def answers(self) -> tuple[FeatureSet, ...]:
        """The sets that some size and budget may be answered with."""
        return tuple(self.candidates.sets[number] for number in np.unique(self.listing.entries).tolist())

    @property
    def n_entries(self) -> int:
        """How long all lists are together."""
        return len(self.listing.entries)

    def best(self, size: float, budget: float) -> Choice:
        """The answer for one item; an `InputError` where there is none."""
        size, budget = as_item(self.curves, size, budget)
        found = self._find(size, min(budget, LARGEST))
        if found is None:
            raise InputError(
                "over-limit",
                f"No set of features costs as little as {float(budget)!r} on an item of size {size!r}.",
                "Give a larger budget." if self.by_budget else self._enough(size),
            )
        number, cost = found
        return Choice(self.candidates.sets[number], self._plain.accuracies[number], cost)

    def choose(self, sizes: Any, budgets: Any) -> Any:
        """The numbers of the answers for many items, -1 where there is none.

        Sizes and budgets are broadcast against each other; of dask arrays they give one, lazily.
        """
        if is_lazy(sizes) or is_lazy(budgets):
            return map_values(self.choose, sizes, budgets, dtype=np.int64)
        n, budget = as_items(self.curves, sizes, budgets)
        found = np.empty(n.shape, dtype=np.int64)
        for begin in range(0, found.size, CHUNK_ITEMS):
            part = slice(begin, begin + CHUNK_ITEMS)
            found.flat[part] = self._find_many(n.flat[part], np.minimum(budget.flat[part], LARGEST))
        return found

    def _enough(self, size: float) -> str:
        least = min(horner(cost, size) for cost in self._plain.costs)
        return f"Give a budget of {least!r} or more." if least <= LARGEST else "Give a smaller size."

    @cached_property
    def _slack(self) -> Floats:
        """`8 MARGIN max_s c_s^- + 2 TINY` as coefficients, to the highest power of which a cost has a negative one."""
        rest = np.asarray(8 * MARGIN * np.maximum(-self.candidates.costs, 0).max(axis=0, initial=0.0))
        rest[0] += 2 * TINY
        return np.trim_zeros(rest, "b")

    def _find_many(self, sizes: Floats, budgets: Floats) -> Integers:
        """The answers of (Q,) items; -1 where there is none.

        Within a list, ascending in accuracy, a candidate costs no more than each `r` that follows, up to the margin
        with which it is listed: `c_s <= c_r + MARGIN (|c_s| + |c_r|) + TINY`, and `|c| <= c + 2 c^-` with `c^-` the sum
        of the terms that are subtracted. So where `r` is affordable, all before it cost at most `B + slack`,

            slack(n, B) = 4 MARGIN B + 8 MARGIN max_s c_s^-(n) + 2 TINY

        and halving the list ends at the last affordable candidate or after it. From there steps back lead to it: over
        candidates that cost more than `B`, and by no more than a few margins.
        """
        costs, listing = self.candidates.costs, self.listing
        entries = listing.entries
        if not len(entries):
            return np.full(len(sizes), -1)
        at = np.searchsorted(listing.starts, budgets if self.by_budget else sizes, side="right") - 1
        first, last = listing.offsets[at], listing.offsets[at + 1]
        with np.errstate(over="ignore"):
            limit = budgets * (1 + 4 * MARGIN) + evaluate(self._slack, sizes)
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
        return self._settle(sizes, budgets, first, place)

    def _settle(self, sizes: Floats, budgets: Floats, first: Integers, place: Integers) -> Integers:
        costs, accuracies, entries = self.candidates.costs, self.candidates.accuracies, self.listing.entries
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

    @cached_property
    def _plain(self) -> _Plain:
        return _Plain(
            self.candidates.accuracies.tolist(),
            plain_rows(self.candidates.costs),
            plain_rows(self._slack[None])[0],
            self.listing.starts.tolist(),
            self.listing.offsets.tolist(),
            self.listing.entries.tolist(),
        )

    def _find(self, size: float, budget: float) -> tuple[int, float] | None:
        """The answer for one item and its cost, as `_find_many` finds it."""
        plain = self._plain
        costs, entries, accuracies = plain.costs, plain.entries, plain.accuracies
        at = bisect_right(plain.starts, budget if self.by_budget else size) - 1
        first, last = plain.offsets[at], plain.offsets[at + 1]
        limit = budget * (1 + 4 * MARGIN) + horner(plain.slack, size)
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


@dataclass(frozen=True, eq=False)
class _Plain:
    """A look-up as lists: for a single item Python's own numbers are faster than arrays, and give the same."""

    accuracies: list[float]
    costs: list[tuple[float, ...]]
    """The highest power first."""
    slack: tuple[float, ...]
    starts: list[float]
    offsets: list[int]
    entries: list[int]
