"""The minorants of the passes so far, those that make the model of the next step.

A pass brings cuts of the whole risk and, for the samples nearest to their kinks, a line of each hinge on its own. A
hinge curves wherever the norm or the box of its bracket does, so that one line is not enough to place a kink; hence the
lines of the same sample in several passes bound one and the same hinge,

    xi_i >= max( 0, line_i at plane 1, line_i at plane 2, ... )

and all details share it: the part `rest_d` of a pass that its near samples leave, with their hinges, is a minorant
`rest_d(w, b) + sum over near_d of C_i xi_i`. Lines and details that took no part in the last bounds are left out again,
so that the quadratic program has a few times as many rows as there are near samples, however many the passes are.

`D` features, `L` lines.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from protodask.engine.records import Floats, joined, taken
from protodask.robust.master import Hinges, Model, Multipliers
from protodask.robust.passes import Answer, Cuts, Survey

MOST_CUTS = 300
"""More are thinned out to those that took part in bounds most recently."""

MOST_ROUNDED = 24
"""Round cuts, which are a cone of `D` numbers each, thinned out likewise."""

MOST_DETAILS = 8
"""The best plane's, the last one's, and the most recently used others."""

MOST_HINGES = 3
"""Samples with hinges of their own, in units of the near samples of a pass: where details have few in common there are
fewer details."""

KEPT = 2
"""Passes that a line stays in the model without taking part in a bound.

Twice as many make the program twice as slow, and save about one pass in twenty.
"""

TAKES_PART = 1e-6
"""Share of the largest multiplier above which one counts."""


def first_cuts(survey: Survey, origin: Floats) -> Cuts:
    """The risk is never negative; and the cuts of all samples of a label, at no weights."""
    signs = np.array([-1.0, 1.0])
    centers = -signs[:, None] * (survey.center - survey.cost[:, None] * origin)
    none = np.zeros((1, len(origin)))
    return Cuts(
        np.concatenate([[0.0], survey.cost]),
        np.concatenate([none, centers]),
        np.concatenate([none, survey.width]),
        np.concatenate([[0.0], signs * survey.cost]),
        np.concatenate([none, survey.round]),
    )


@dataclass(frozen=True, eq=False)
class _Lines:
    """Lines of single hinges, each array of length L."""

    row: Floats
    """Numbers of their samples."""
    cost: Floats
    cuts: Cuts
    number: NDArray[np.int64]
    """The pass they are of."""
    used: NDArray[np.int64]
    """The last pass in whose bound they took part, or the one they are of."""


@dataclass(frozen=True, eq=False)
class _Detail:
    """A minorant in two parts: the cut of most samples, and the hinges of some."""

    rest: Cuts
    rows: Floats
    number: int
    used: int


class Minorants:
    """What the passes so far have brought, and the model made of it."""

    model: Model
    rows: Floats
    """Numbers of the samples whose hinges the model has, in its order."""

    def __init__(self, cuts: Cuts, n_near: int) -> None:
        self._cuts = cuts
        self._used = np.zeros(len(cuts), dtype=np.int64)
        self._n_near = n_near
        self._details: list[_Detail] = []
        none = np.zeros(0, dtype=np.int64)
        self._lines = _Lines(np.zeros(0), np.zeros(0), taken(cuts, none), none, none)
        self._places = none
        """Of the model's lines among all."""
        self._center = 0

    def add(self, answer: Answer, number: int, *, is_center: bool, rounded: bool = True) -> None:
        """What a pass said; of the center, which is what steps start from, all lines stay.

        Unless `rounded`, the norms of cuts are left out for good, those of earlier passes too.
        """
        near = answer.near
        self._cuts = joined(self._cuts, answer.cuts)
        self._used = np.append(self._used, np.full(len(answer.cuts), number))
        if not rounded:
            self._cuts = replace(self._cuts, round=np.zeros_like(self._cuts.round))
        if is_center:
            self._center = number
        self._details.append(_Detail(answer.rest, near.row, number, number))
        when = np.full(len(near.row), number)
        self._lines = joined(self._lines, _Lines(near.row, near.cost, near.cuts, when, when))
        self._make_model()

    def thin_out(self, shares: Floats, multipliers: Multipliers, number: int) -> None:
        """Leave out what has taken no part in bounds, by the model's multipliers and the shares of the cuts."""
        self._used[shares > TAKES_PART] = number
        if len(self._cuts) > MOST_CUTS:
            kept = np.sort(np.argsort(-self._used, kind="stable")[: 2 * MOST_CUTS // 3])
            self._keep_cuts(kept)
        rounded = self._cuts.rounded
        if len(rounded) > MOST_ROUNDED:
            latest = np.argsort(-self._used[rounded], kind="stable")
            self._keep_cuts(np.setdiff1d(np.arange(len(self._cuts)), rounded[latest[2 * MOST_ROUNDED // 3 :]]))
        lines = self._lines
        used = lines.used.copy()
        used[self._places[_takes_part(multipliers.lines)]] = number
        kept = np.flatnonzero((used > number - KEPT) | (lines.number == self._center))
        self._lines = taken(replace(lines, used=used), kept)
        self._details = [
            replace(detail, used=number) if counts else detail
            for detail, counts in zip(self._details, _takes_part(multipliers.details), strict=True)
        ]
        self._make_model()

    def _keep_cuts(self, kept: NDArray[np.intp]) -> None:
        self._cuts, self._used = taken(self._cuts, kept), self._used[kept]

    def _make_model(self) -> None:
        last = self._details[-1].number
        kept: list[_Detail] = []
        rows = np.zeros(0)
        # The center and the last are always there.
        for detail in sorted(
            self._details, key=lambda one: (one.number != self._center, one.number != last, -one.used, -one.number)
        ):
            together = np.union1d(rows, detail.rows)
            if len(kept) < 2 or (len(kept) < MOST_DETAILS and len(together) <= MOST_HINGES * self._n_near):
                kept.append(detail)
                rows = together
        self._details = sorted(kept, key=lambda one: one.number)
        self.rows = rows
        self._places = np.flatnonzero(np.isin(self._lines.row, rows))
        lines = taken(self._lines, self._places)
        sample = np.searchsorted(rows, lines.row)
        cost = np.zeros(len(rows))
        cost[sample] = lines.cost
        rests = reduce(joined, (detail.rest for detail in self._details))
        near = np.stack([np.isin(rows, detail.rows) for detail in self._details])
        self.model = Model(self._cuts, rests, near, Hinges(cost, lines.cuts, sample))


def _takes_part(multipliers: Floats) -> NDArray[np.bool_]:
    return np.asarray(multipliers > TAKES_PART * np.max(multipliers, initial=0.0))
