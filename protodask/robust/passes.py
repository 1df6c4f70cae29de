"""What one pass over the samples tells of a plane: the risk, minorants of it and its curvature.

    R(w, b) = sum_i C_i max(0, 1 + y_i b + B_i(w))

With weights `0 <= alpha_i <= C_i` and any box of points `c_i - k_i <= z <= c_i + k_i` inside the set of sample `i`,

    R(w, b) >= sum_i alpha_i (1 + y_i b - y_i c_i.w + k_i.|w|)          for all w and b

whatever the weights and boxes were made from: such a cut is a bound on its own. The box of a sample is what is left to
its features once the ball of the spread is shared out among them as at the plane evaluated, so that the cut is exact
there and keeps the kinks at `w_j = 0`. The weights are those of the hinge and of hinges smoothed over bands of several
widths, `alpha_i = C_i clip(u_i / band + 1/2, 0, 1)`: where few samples decide they are given one by one instead.

`N` samples, `D` features, `M` cuts, `m` near samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce

import numpy as np

from protodask.engine import Block, Reduction, identity
from protodask.robust.brackets import Extremes, extremes
from protodask.robust.terms import Floats, Terms

TILE_ROWS = 4096
"""Samples worked on at once: about ten arrays of so many rows, whatever the block."""

BLUNT = 1e-3
"""In units of the margin: norms below this are charged as if they were as long.

The curvature of a norm grows without bound towards its tip, which is a kink that lines describe; charged in full it
holds weights of 1e-14 where they are. Of drawn problems that took 20 to 130 passes most then take 4 to 6, with this or
anything between 1e-4 and 1e-2.
"""


@dataclass(frozen=True, eq=False)
class Samples:
    """What a block asks of a plane."""

    terms: Terms
    y: Floats
    """-1 or 1, (N,)."""
    cost: Floats
    """`C_i`, 0 or more, (N,)."""


SamplesOfBlock = Callable[[Block], Samples]
"""Called with a block a tile of rows at a time. Picklable: it travels to the workers."""


@dataclass(frozen=True, eq=False)
class Survey:
    """The samples as a whole; of a label each array has the entry 0 for -1 and 1 for 1."""

    cost: Floats
    """`sum C_i` of each label, (2,)."""
    center: Floats
    """`sum C_i c_i` with `c` the middle of the bounds of the mean, (2, D)."""
    width: Floats
    """`sum C_i k_i` with `k` half their distance, (2, D)."""
    reach: Floats
    """The largest size of each feature in any sample, spread included, (D,)."""

    @property
    def origin(self) -> Floats:
        """Where features are counted from: midway between the means of the labels, for the intercept has no price."""
        cost = self.cost[:, None]
        means = np.divide(self.center, cost, where=cost > 0, out=np.zeros_like(self.center))
        return np.asarray(means.mean(axis=0))


def tiles(block: Block) -> Iterator[Block]:
    """A block in parts of `TILE_ROWS` rows."""
    for first in range(0, block.n_rows, TILE_ROWS):
        rows = slice(first, first + TILE_ROWS)
        yield Block(block.number, block.start + first, {name: array[rows] for name, array in block.arrays.items()})


def _survey_block(block: Block, samples_of: SamplesOfBlock) -> Survey:
    return reduce(_merge_surveys, (_survey_tile(samples_of(tile)) for tile in tiles(block)))


def _survey_tile(samples: Samples) -> Survey:
    terms = samples.terms
    middle = terms.mean_low + (terms.mean_high - terms.mean_low) / 2
    half = (terms.mean_high - terms.mean_low) / 2
    sides = np.stack([np.where(samples.y < 0, samples.cost, 0.0), np.where(samples.y > 0, samples.cost, 0.0)])
    reach = np.max(np.maximum(np.abs(terms.mean_low), np.abs(terms.mean_high)) + terms.spread, axis=0, initial=0.0)
    return Survey(sides.sum(axis=1), sides @ middle, sides @ half, reach)


def _merge_surveys(left: Survey, right: Survey) -> Survey:
    return Survey(
        left.cost + right.cost,
        left.center + right.center,
        left.width + right.width,
        np.maximum(left.reach, right.reach),
    )


SURVEY: Reduction[Survey, Survey] = Reduction(_survey_block, _merge_surveys, identity)
"""Arguments: a `SamplesOfBlock`."""


@dataclass(frozen=True, eq=False)
class Cuts:
    """Minorants `value + center.w + width.|w| + slope b` of the risk."""

    value: Floats
    """(M,)."""
    center: Floats
    """(M, D)."""
    width: Floats
    """(M, D), at least 0."""
    slope: Floats
    """(M,)."""

    def __len__(self) -> int:
        return len(self.value)

    def joined(self, other: Cuts) -> Cuts:
        return Cuts(
            np.concatenate([self.value, other.value]),
            np.concatenate([self.center, other.center]),
            np.concatenate([self.width, other.width]),
            np.concatenate([self.slope, other.slope]),
        )

    def take(self, rows: np.typing.NDArray[np.intp] | slice) -> Cuts:
        return Cuts(self.value[rows], self.center[rows], self.width[rows], self.slope[rows])

    def at(self, weights: Floats, intercept: float) -> Floats:
        """Their values at a plane, (M,)."""
        return np.asarray(self.value + self.center @ weights + self.width @ np.abs(weights) + self.slope * intercept)


@dataclass(frozen=True, eq=False)
class Near:
    """The samples whose hinges are nearest to their kinks, ordered by that and by their numbers.

    Each is a cut of its own hinge without its cost: `max(0, value + ...)` with value 1 and slope `y`.
    """

    hinge: Floats
    """`u_i`, (m,)."""
    row: Floats
    """Numbers of the samples, (m,)."""
    cost: Floats
    """(m,)."""
    cuts: Cuts
    spread: Floats
    """`r`, 0 where the support stops the feature, (m, D)."""
    spent: Floats
    """How far each such feature is beyond the bounds of its mean, (m, D)."""
    most: int
    """As many are kept."""

    def take(self, rows: np.typing.NDArray[np.intp]) -> Near:
        return Near(
            self.hinge[rows],
            self.row[rows],
            self.cost[rows],
            self.cuts.take(rows),
            self.spread[rows],
            self.spent[rows],
            self.most,
        )


@dataclass(frozen=True, eq=False)
class Question:
    """The plane to evaluate and what else to tell of it."""

    weights: Floats
    """`w`, (D,)."""
    intercept: float
    """`b` where features are counted from the origin."""
    bands: Floats
    """Widths of the bands of the smoothed hinges, (M - 1,); the first is the one the curvature is of."""
    n_near: int
    """Samples to give one by one, at most."""


@dataclass(frozen=True, eq=False)
class Answer:
    """The risk at a plane; merges as a monoid."""

    risk: float
    cuts: Cuts
    """Of the hinge itself, then of the smoothed ones."""
    rest: Cuts
    """Of the hinges of the samples that are not near, one cut; no difference, which at high costs is but rounding."""
    across: Floats
    """Second derivatives in `(w, b)` of the hinges smoothed over the first band, brackets as planes, (D + 1, D + 1)."""
    within: Floats
    """Second derivatives in `w` of the brackets whose hinges are above 0, times their costs, (D, D)."""
    near: Near


def _evaluate_block(block: Block, samples_of: SamplesOfBlock, origin: Floats, question: Question) -> Answer:
    answers = (_evaluate_tile(samples_of(tile), tile.start, origin, question) for tile in tiles(block))
    return reduce(merge_answers, answers)


def _evaluate_tile(samples: Samples, first_row: int, origin: Floats, question: Question) -> Answer:
    terms, sign, cost = samples.terms, samples.y, samples.cost
    weights = question.weights
    found = extremes(terms, sign, weights)
    points = found.points
    points -= origin
    hinge = 1.0 + sign * question.intercept - sign * (points @ weights)
    center, width = _boxes(terms, sign, origin, found.spent if weights.any() else _shared_out(terms))
    near = _nearest(np.abs(hinge), np.arange(len(hinge)), np.flatnonzero(cost > 0), question.n_near)
    kept = np.where(hinge > 0, cost, 0.0)
    rest = kept.copy()
    rest[near] = 0.0
    alpha = np.stack([rest, kept, *(cost * np.clip(hinge / band + 0.5, 0.0, 1.0) for band in question.bands)])
    cuts = Cuts(alpha.sum(axis=1), alpha @ center, alpha @ width, alpha @ sign)
    band = float(question.bands[0])
    inside = np.flatnonzero((np.abs(hinge) < band / 2) & (cost > 0))
    gradient = np.column_stack([points[inside] * -sign[inside, None], sign[inside]])
    wrong = np.flatnonzero(kept)
    return Answer(
        float(kept @ hinge),
        cuts.take(slice(1, None)),
        cuts.take(slice(0, 1)),
        hinge_curvature(gradient, hinge[inside], cost[inside], band),
        spread_curvature(*_curved(terms, found, wrong), kept[wrong], weights),
        Near(
            hinge[near],
            (first_row + near).astype(np.float64),
            cost[near],
            Cuts(np.ones(len(near)), center[near], width[near], sign[near]),
            *_curved(terms, found, near),
            question.n_near,
        ),
    )


def _boxes(terms: Terms, sign: Floats, origin: Floats, spent: Floats) -> tuple[Floats, Floats]:
    """`-y_i (c_i - origin)` and `k_i` of the boxes of the samples, each (N, D)."""
    low, high = terms.mean_low - spent, terms.mean_high + spent
    if terms.lower is not None and terms.upper is not None:
        # Where a mean is past the end of the support by rounding, the mean counts.
        np.maximum(low, np.minimum(terms.lower, terms.mean_low), out=low)
        np.minimum(high, np.maximum(terms.upper, terms.mean_high), out=high)
    high -= low
    high /= 2
    low += high
    low -= origin
    low *= -sign[:, None]
    return low, high


def _shared_out(terms: Terms) -> Floats:
    """The spread with the ball shared out evenly, what stands for it where there are no weights to share it by."""
    count = np.count_nonzero(terms.spread, axis=1)
    return np.asarray(terms.spread / np.sqrt(np.maximum(count, 1))[:, None])


def _curved(terms: Terms, found: Extremes, rows: np.typing.NDArray[np.intp]) -> tuple[Floats, Floats]:
    """Spread of some samples and what is spent of it, 0 where a feature is stopped by the support."""
    spread, spent = terms.spread[rows], found.spent[rows]
    if found.free is not None:
        stopped = ~found.free[rows]
        spread[stopped] = 0.0
        spent[stopped] = 0.0
    return spread, spent


def _nearest(
    distance: Floats, row: np.typing.NDArray[np.generic], among: np.typing.NDArray[np.intp], most: int
) -> np.typing.NDArray[np.intp]:
    order = np.lexsort((row[among], distance[among]))
    return among[order[:most]]


def hinge_curvature(gradient: Floats, hinge: Floats, cost: Floats, band: float) -> Floats:
    """`sum C_i / band g_i g_i^T` over the samples inside the band, `g` the gradient of a hinge, (D + 1, D + 1)."""
    inside = np.flatnonzero((np.abs(hinge) < band / 2) & (cost > 0))
    rows = gradient[inside] * np.sqrt(cost[inside] / band)[:, None]
    return np.asarray(rows.T @ rows)


def spread_curvature(spread: Floats, spent: Floats, alpha: Floats, weights: Floats) -> Floats:
    """`sum alpha_i` times the second derivatives of the norms, of the features short of the support, (D, D).

    With `g_j = r_j |w_j|` of those, and the share of the ball that is theirs, `e = spent.|w| / |g|`, it is
    `e / |g|^2 (diag(r^2) - spent spent^T |g|^2 / e^2)` with the signs of `w`; less where `e` is below `BLUNT`, in
    proportion.
    """
    size = np.abs(weights)
    square, value = np.square(spread) @ np.square(size), spent @ size
    sound = (square > 0) & (value > 0)
    square, value = np.where(sound, square, 1.0), np.where(sound, value, 1.0)
    alpha = alpha * np.minimum(1.0, value / BLUNT)
    share = np.where(sound, alpha * value / square, 0.0)
    across = np.where(sound, alpha / value, 0.0)
    # Of multipliers that are taken away, too.
    signed = spent * np.sign(weights)
    return np.asarray(np.diag(share @ np.square(spread)) - (signed * across[:, None]).T @ signed)


def merge_answers(left: Answer, right: Answer) -> Answer:
    """The answer of two sets of samples together."""
    near, others = _merge_near(left.near, right.near)
    return Answer(
        left.risk + right.risk,
        _sum(left.cuts, right.cuts),
        _sum(_sum(left.rest, right.rest), _cut_of(others)),
        left.across + right.across,
        left.within + right.within,
        near,
    )


def _sum(left: Cuts, right: Cuts) -> Cuts:
    return Cuts(
        left.value + right.value, left.center + right.center, left.width + right.width, left.slope + right.slope
    )


def _cut_of(near: Near) -> Cuts:
    """The cut of the hinges of some samples together."""
    own = np.where(near.hinge > 0, near.cost, 0.0)[None, :]
    cuts = near.cuts
    return Cuts(own @ cuts.value, own @ cuts.center, own @ cuts.width, own @ cuts.slope)


def _merge_near(left: Near, right: Near) -> tuple[Near, Near]:
    """Those that stay near, and the others."""
    both = Near(
        np.concatenate([left.hinge, right.hinge]),
        np.concatenate([left.row, right.row]),
        np.concatenate([left.cost, right.cost]),
        left.cuts.joined(right.cuts),
        np.concatenate([left.spread, right.spread]),
        np.concatenate([left.spent, right.spent]),
        left.most,
    )
    order = np.lexsort((both.row, np.abs(both.hinge)))
    return both.take(order[: both.most]), both.take(order[both.most :])


EVALUATE: Reduction[Answer, Answer] = Reduction(_evaluate_block, merge_answers, identity)
"""Arguments: a `SamplesOfBlock`, the origin, a `Question`."""
