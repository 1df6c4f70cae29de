"""The number of rows to select: looked for everywhere coarsely, and ever finer around the best places.

A loss need not have a single valley. Its expectation is a smooth function of the rows selected and of the positives
expected among them, so places even in both, and close together near either end, meet every valley of some width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from protodask.decisions.ranked import Ranking

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

EVEN = 64
"""Places even in the rows, in the positives expected, and in their variance."""

NEAR_ENDS = 32
"""Places whose distances from an end grow geometrically."""

VALLEYS = 6
"""Places around which it is looked finer, each time."""

FINER = 8
"""Parts into which the distance between two places is cut."""

TIE = 1e-12
"""Relative to the largest: values that are closer differ by rounding."""


def best_number(ranking: Ranking, value: Callable[[Integers], Floats], also: Iterable[int] = ()) -> int:
    """The number of rows of least value, of several the smallest that was looked at; `also` are numbers to look at.

    `value` is asked for many numbers at a time.
    """
    found: dict[int, float] = {}
    wanted = np.unique(np.concatenate([_places(ranking), np.array(list(also), dtype=np.int64)]))
    while len(wanted):
        found |= dict(zip(wanted.tolist(), value(wanted).tolist(), strict=True))
        wanted = _between(found)
    bound = min(found.values()) + TIE * max(map(abs, found.values()))
    return min(k for k, least in found.items() if least <= bound)


def _places(ranking: Ranking) -> Integers:
    n, before = ranking.n, ranking.head.before
    places = [np.linspace(0, n, EVEN), np.geomspace(1, n, NEAR_ENDS), n - np.geomspace(1, n, NEAR_ENDS)]
    for column in (0, 1):
        sums = ranking.head.sums[:, column]
        places.append(np.interp(np.linspace(0, sums[-1], EVEN), sums, before))
    return np.clip(np.rint(np.concatenate(places)), 0, n).astype(np.int64)


def _between(found: dict[int, float]) -> Integers:
    """Places between the lowest ones and their neighbours that have not been looked at."""
    places = np.array(sorted(found), dtype=np.int64)
    values = np.array([found[k] for k in places.tolist()])
    left = np.concatenate([[np.inf], values[:-1]])
    right = np.concatenate([values[1:], [np.inf]])
    valleys = np.flatnonzero((values <= left) & (values <= right))
    valleys = valleys[np.argsort(values[valleys], kind="stable")[:VALLEYS]]
    parts = [
        np.linspace(places[first], places[first + 1], FINER + 1).astype(np.int64)
        for valley in valleys
        for first in (valley - 1, valley)
        if 0 <= first < len(places) - 1
    ]
    return np.setdiff1d(np.concatenate(parts), places) if parts else places[:0]
