"""What one pass over the samples tells of a plane: the risk, minorants of it and its curvature.

    R(w, b) = sum_i C_i max(0, 1 + y_i b + B_i(w))

With weights `0 <= alpha_i <= C_i` and any box of points `c_i - k_i <= z <= c_i + k_i` inside the set of sample `i`,

    R(w, b) >= sum_i alpha_i (1 + y_i b - y_i c_i.w + k_i.|w|)          for all w and b

whatever the weights and boxes were made from: such a cut is a bound on its own. The box of a sample is what is left to
its features once the ball of the spread is shared out among them as at the plane evaluated, so that the cut is exact
there and keeps the kinks at `w_j = 0`. The weights are those of the hinge and of hinges smoothed over bands of several
widths, `alpha_i = C_i clip(u_i / band + 1/2, 0, 1)`: where few samples decide they are given one by one instead.

Where what is unknown outweighs what is known the best weights are 0 or nearly so, and there the norms of the brackets
have their kink, which no few boxes describe. Two things are for that:

- Round cuts keep a norm: with `c_i - k_i <= z <= c_i + k_i` the bounds of the means, and `s_i <= r_i` the semi-axes of
  an ellipsoid beside them that is in the support, too, by Minkowski's inequality

      R(w, b) >= sum_i alpha_i (1 + y_i b - y_i c_i.w + k_i.|w|) + |diag(sum_i alpha_i s_i) w|

- The boxes of the smoothed hinges, and the curvature, are of softened norms `sqrt(|diag(r_i) w|^2 + soft^2)`, whose
  points are in the samples' sets: they do not turn about as weights pass by 0, and the curvature stays bounded.

`N` samples, `D` features, `M` cuts, `m` near samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

import numpy as np

from protodask.engine import Block, Reduction, add_records, identity
from protodask.engine.records import Floats, joined, merged_by, taken
from protodask.robust.brackets import Extremes, extremes
from protodask.robust.terms import Terms

MOST_CURVED = 300
"""Features up to which curvature is a matrix; beyond, its diagonal, which takes a few passes more.

Two matrices of a thousand features are 16 MB in each partial of a pass, and the driver's programs are as dense.
"""

TILE_ROWS, TILE_NUMBERS = 4096, 2**19
"""Samples worked on at once, and of more than `MOST_CURVED` features samples times features: up to 18 arrays of so many
numbers, whatever the block."""


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
    round: Floats
    """`sum C_i s_i` with `s` the semi-axes of round cuts, (2, D)."""
    reach: Floats = field(metadata=merged_by(np.maximum))
    """The largest size of each feature in any sample, spread included, (D,)."""

    @property
    def origin(self) -> Floats:
        """Where features are counted from: midway between the means of the labels, for the intercept has no price."""
        cost = self.cost[:, None]
        means = np.divide(self.center, cost, where=cost > 0, out=np.zeros_like(self.center))
        return np.asarray(means.mean(axis=0))


def tile_rows(n_columns: int) -> int:
    """Rows of a tile with so many columns."""
    return TILE_ROWS if n_columns <= MOST_CURVED else max(1, min(TILE_ROWS, TILE_NUMBERS // n_columns))


def tiles(block: Block) -> Iterator[Block]:
    """A block in parts of a tile's rows."""
    step = tile_rows(max(array.shape[1] if array.ndim > 1 else 1 for array in block.arrays.values()))
    for first in range(0, block.n_rows, step):
        rows = slice(first, first + step)
        yield Block(block.number, block.start + first, {name: array[rows] for name, array in block.arrays.items()})


def _survey_block(block: Block, samples_of: SamplesOfBlock) -> Survey:
    return reduce(add_records, (_survey_tile(samples_of(tile)) for tile in tiles(block)))


def _survey_tile(samples: Samples) -> Survey:
    terms = samples.terms
    sides = np.stack([np.where(samples.y < 0, samples.cost, 0.0), np.where(samples.y > 0, samples.cost, 0.0)])
    reach = np.max(np.maximum(np.abs(terms.mean_low), np.abs(terms.mean_high)) + terms.spread, axis=0, initial=0.0)
    return Survey(sides.sum(axis=1), sides @ terms.middle, sides @ terms.half, sides @ _inner_axes(terms), reach)


SURVEY: Reduction[Survey, Survey] = Reduction(_survey_block, add_records, identity)
"""Arguments: a `SamplesOfBlock`."""


@dataclass(frozen=True, eq=False)
class Cuts:
    """Minorants `value + center.w + width.|w| + |diag(round) w| + slope b` of the risk."""

    value: Floats
    """(M,)."""
    center: Floats
    """(M, D)."""
    width: Floats
    """(M, D), at least 0."""
    slope: Floats
    """(M,)."""
    round: Floats
    """(M, D), at least 0; 0 for all but round cuts."""

    @classmethod
    def boxes(cls, value: Floats, center: Floats, width: Floats, slope: Floats) -> Cuts:
        """Those without a norm."""
        return cls(value, center, width, slope, np.zeros_like(center))

    @property
    def rounded(self) -> np.typing.NDArray[np.intp]:
        """Which of them have a norm."""
        return np.flatnonzero(self.round.any(axis=1))

    def __len__(self) -> int:
        return len(self.value)

    def weighted(self, weights: Floats) -> tuple[Any, Any, Any, Any]:
        """Sums of values, centers, widths and slopes."""
        return weights @ self.value, weights @ self.center, weights @ self.width, weights @ self.slope

    def at(self, weights: Floats, intercept: float) -> Floats:
        """Their values at a plane, (M,)."""
        norms = np.linalg.norm(self.round * weights, axis=1)
        linear = self.value + self.center @ weights + self.slope * intercept
        return np.asarray(linear + self.width @ np.abs(weights) + norms)


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
    soft: float
    """What the norms of brackets are softened by, in units of the margin."""


@dataclass(frozen=True, eq=False)
class Answer:
    """The risk at a plane; merges as a monoid."""

    risk: float
    cuts: Cuts
    """Of the hinge itself, then of the smoothed ones; then round ones of the same."""
    rest: Cuts
    """Of the hinges of the samples that are not near, one cut; no difference, which at high costs is but rounding."""
    across: Floats
    """Second derivatives in `(w, b)` of the hinges smoothed over the first band, brackets as planes, (D + 1, D + 1); of
    more than `MOST_CURVED` features the diagonal, (D + 1,)."""
    within: Floats
    """Second derivatives in `w` of the softened brackets whose hinges are above 0, times their costs, (D, D) or
    (D,), likewise."""
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
    softened = extremes(terms, sign, weights, question.soft)
    center, width = _boxes(terms, sign, origin, found.spent if weights.any() else _shared_out(terms))
    counted = np.flatnonzero(cost > 0)
    near = counted[np.argsort(np.abs(hinge[counted]), kind="stable")[: question.n_near]]
    kept = np.where(hinge > 0, cost, 0.0)
    rest = kept.copy()
    rest[near] = 0.0
    smoothed = [cost * np.clip(hinge / band + 0.5, 0.0, 1.0) for band in question.bands]
    alpha = np.stack([kept, *smoothed])
    cuts = _combined(alpha[:1], sign, center, width)
    cuts = joined(cuts, _combined(alpha[1:], sign, *_boxes(terms, sign, origin, softened.spent)))
    means = _boxes(terms, sign, origin, np.zeros_like(points))
    cuts = joined(cuts, replace(_combined(alpha, sign, *means), round=alpha @ _inner_axes(terms)))
    band = float(question.bands[0])
    inside = np.flatnonzero((np.abs(hinge) < band / 2) & (cost > 0))
    gradient = np.column_stack([points[inside] * -sign[inside, None], sign[inside]])
    wrong = np.flatnonzero(kept)
    return Answer(
        float(kept @ hinge),
        cuts,
        _combined(rest[None, :], sign, center, width),
        hinge_curvature(gradient, hinge[inside], cost[inside], band),
        spread_curvature(*_curved(terms, softened, wrong), kept[wrong], weights, question.soft),
        Near(
            hinge[near],
            (first_row + near).astype(np.float64),
            cost[near],
            Cuts.boxes(np.ones(len(near)), center[near], width[near], sign[near]),
            *_curved(terms, softened, near),
            question.n_near,
        ),
    )


def _combined(alpha: Floats, sign: Floats, center: Floats, width: Floats) -> Cuts:
    """The cuts of boxes, one for each row of multipliers (M, N)."""
    return Cuts.boxes(alpha.sum(axis=1), alpha @ center, alpha @ width, alpha @ sign)


def _inner_axes(terms: Terms) -> Floats:
    """Semi-axes (N, D) of an ellipsoid which, added to the bounds of the means, is in the samples' sets."""
    room = terms.room
    return terms.spread if room is None else np.minimum(terms.spread, np.maximum(room, 0.0))


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


def curvature_shape(n_features: int, size: int) -> tuple[int, ...]:
    """Of a matrix (size, size) where that many features have one, or its diagonal."""
    return (size, size) if n_features <= MOST_CURVED else (size,)


def hinge_curvature(gradient: Floats, hinge: Floats, cost: Floats, band: float) -> Floats:
    """`sum C_i / band g_i g_i^T` over the samples inside the band, `g` the gradient of a hinge, (D + 1, D + 1) or its
    diagonal.
    """
    inside = np.flatnonzero((np.abs(hinge) < band / 2) & (cost > 0))
    rows = gradient[inside] * np.sqrt(cost[inside] / band)[:, None]
    return _squares(rows, rows, gradient.shape[1] - 1)


def _squares(left: Floats, right: Floats, n_features: int) -> Floats:
    """`left^T right`, or its diagonal where there are many features."""
    if n_features <= MOST_CURVED:
        return np.asarray(left.T @ right)
    return np.asarray(np.einsum("nd,nd->d", left, right))


def spread_curvature(spread: Floats, spent: Floats, alpha: Floats, weights: Floats, soft: float) -> Floats:
    """`sum alpha_i` times the second derivatives of the softened norms, of the features short of the support, (D, D) or
    its diagonal.

    With `g_j = r_j |w_j|` of those, `S^2 = |g|^2 + soft^2` and the share `e` of the ball that is theirs, so that
    `spent_j = e r_j^2 |w_j| / S`, it is `e / S (diag(r^2) - spent spent^T / e^2)` with the signs of `w`.
    """
    size = np.abs(weights)
    square, value = np.square(spread) @ np.square(size), spent @ size
    sound = (square > 0) & (value > 0)
    square, value = np.where(sound, square, 1.0), np.where(sound, value, 1.0)
    # e / S = value / |g|^2 and 1 / (e S) = |g|^2 / (value S^2); with no weights the ball is theirs, and S is soft.
    still = 1.0 / soft if soft > 0 else 0.0
    share = alpha * np.where(sound, value / square, still)
    across = np.where(sound, alpha * square / (value * (square + soft * soft)), 0.0)
    # Of multipliers that are taken away, too.
    signed = spent * np.sign(weights)
    diagonal, taken_off = share @ np.square(spread), _squares(signed * across[:, None], signed, len(weights))
    return np.asarray((np.diag(diagonal) if taken_off.ndim == 2 else diagonal) - taken_off)


def merge_answers(left: Answer, right: Answer) -> Answer:
    """The answer of two sets of samples together."""
    both = joined(left.near, right.near)
    order = np.lexsort((both.row, np.abs(both.hinge)))
    near, others = taken(both, order[: both.most]), taken(both, order[both.most :])
    # Those that do not stay near are one cut together.
    passed_on = Cuts.boxes(*others.cuts.weighted(np.where(others.hinge > 0, others.cost, 0.0)[None, :]))
    return Answer(
        left.risk + right.risk,
        add_records(left.cuts, right.cuts),
        add_records(add_records(left.rest, right.rest), passed_on),
        left.across + right.across,
        left.within + right.within,
        near,
    )


EVALUATE: Reduction[Answer, Answer] = Reduction(_evaluate_block, merge_answers, identity)
"""Arguments: a `SamplesOfBlock`, the origin, a `Question`."""
