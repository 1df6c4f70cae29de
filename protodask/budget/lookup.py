"""Looking up many items at once: two binary searches for each, over arrays that stay in the processor's cache."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable

import numpy as np

from protodask.budget.candidates import Candidates
from protodask.budget.costs import CostCurves
from protodask.budget.polynomials import Floats, Integers, evaluate
from protodask.budget.skyline import MARGIN, TINY, Listing
from protodask.errors import InputError

CHUNK_ITEMS = 8192
"""Items looked up at once: the dozen arrays of one value each take less than a megabyte."""

LARGEST = sys.float_info.max
"""No budget pays for a cost that is beyond all floats."""

Look = Callable[[Floats, Floats], Integers]


def in_chunks(look: Look, sizes: Floats, budgets: Floats) -> Integers:
    """(Q,) numbers of candidates for sizes and budgets (Q,), of which each may also be a single value, (1,)."""
    length = max(len(sizes), len(budgets))
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
            f"The size of an item is {float(sizes[wrong].flat[0])!r}.",
            f"Give sizes from {curves.low:g} to {curves.high:g}, for which the index was built"
            + (", and finite ones." if math.isinf(curves.high) else "."),
        )
    wrong = ~(budgets >= 0)
    if wrong.any():
        raise InputError(f"A budget is {float(budgets[wrong].flat[0])!r}.", "Give budgets of 0 or more.")


def slack_of(costs: Floats) -> Floats:
    """`8 MARGIN max_s c_s^-` as coefficients, (d + 1,): 0 where no term of a cost is subtracted."""
    return np.asarray(8 * MARGIN * np.maximum(-costs, 0).max(axis=0))


def one_slack(costs: Floats) -> tuple[float, ...]:
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
        # Beyond the list its last entry is looked at, and not taken.
        cost = evaluate(costs[entries[np.where(inside, ahead, last - 1)]], sizes)
        place = np.where(inside & (cost <= limit), ahead, place)
        step >>= 1
    return _settle(candidates, listing, sizes, budgets, first, place)


def _settle(
    candidates: Candidates, listing: Listing, sizes: Floats, budgets: Floats, first: Integers, place: Integers
) -> Integers:
    costs, entries, accuracies = candidates.costs, listing.entries, candidates.accuracies
    found = np.where(place >= first, entries[np.maximum(place, 0)], -1).astype(np.int64)
    cost = evaluate(costs[found], sizes)
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
