"""Control points of a calibration spline: a quantile reduction over rows, then one point for each bin of equal weight.

The distinct scores of all rows, ascending, have weights `w_1 .. w_m` (of a row `s = weight / inclusion`), `W` in all.
Of `J` bins a score falls into the one that the middle of its weight lies in,

    bin(i) = floor(J (w_1 + .. + w_{i-1} + w_i / 2) / W),

so that rows of one score are never parted: a score of more than a bin's weight takes the bins that it covers as one,
and those around it keep theirs. Where every outcome is 0 or 1 the bins can be balanced: for their edges, and only for
them, the rows of outcome 1 then have half of the weight in all and those of outcome 0 the other half. Bins of equal
weight as such are blind where one outcome is rare: among the scores that matter most there are few bins or one, and the
more so if the common outcome was subsampled and its rows weigh much. The control point of a bin that has rows is

    (sum s x / sum s, sum s y / sum s),

and `(min x, min y)` and `(max x, max y)` come before and after them, unless the first or the last bin is a single
score: what rows of that very score came to is known then.

No row is sorted, and none is kept: weights, and sums of `s x` and `s y`, are gathered by narrow bins of the score
(`score_bins`), and those that reach over an edge between two of the `J` bins are cut finer in further passes, until
they are single scores or have at most `STRADDLING_SHARE` of the weight.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protodask.engine import Block, Engine, Reduction, Source, identity
from protodask.errors import InputError
from protodask.evaluation.score_bins import (
    Cuts,
    ScoreBins,
    Scored,
    bin_scores,
    bin_source,
    choose_cuts,
    merge_bins,
    refine_bins,
)
from protodask.prototypes.splines import Floats, Spline

STRADDLING_SHARE = 1e-6
"""Share of the (balanced) weight below which a narrow bin that reaches over an edge falls as a whole to one side of
it: rows of at least that share each are told apart to the last one."""

MOST_BINS = 1000
"""Beyond this no bin would say anything."""

Integers = NDArray[np.int64]

WEIGHT, SCORE, OUTCOME = range(3)
"""Columns of the sums: `s`, `s x` and `s y`."""


@dataclass(frozen=True)
class ScoredRows:
    """Raw scores and outcomes of some rows (N,), one of each for every spline, and weights; all positive."""

    scores: tuple[NDArray[np.floating[Any]], ...]
    outcomes: tuple[Floats, ...]
    weight: Floats


ReadRows = Callable[..., ScoredRows]
"""From a block, and further arguments, to its rows; at module level, as workers import it."""


@dataclass(frozen=True)
class OutcomeRange:
    """What rows have come to; merges as a monoid."""

    rows: int
    weight: float
    lowest: float
    highest: float
    two_valued: bool
    """Whether every outcome is 0 or 1."""
    ones: int
    """Rows of outcome 1."""
    weight_of_ones: float


@dataclass(frozen=True)
class FittedSplines:
    """Splines, and the rows they come from."""

    splines: tuple[Spline, ...]
    rows: int
    weight: float


@dataclass(frozen=True)
class SplineSettings:
    """How splines are fitted; `Calibrator` says what the settings mean."""

    n_bins: int = 20
    monotone: bool = False
    balanced: bool = True
    bounded: bool = True

    def __post_init__(self) -> None:
        count: Any = self.n_bins
        if isinstance(count, bool) or not isinstance(count, int | np.integer) or not 1 <= count <= MOST_BINS:
            raise InputError(f"The number of bins is {count!r}.", f"Give a whole number from 1 to {MOST_BINS}.")


def fit_splines(engine: Engine, source: Source, settings: SplineSettings, read: ReadRows, *args: Any) -> FittedSplines:
    """A spline for each of the scores that `read(block, *args)` gives."""
    bins, ranges = engine.reduce(source, _FIRST_PASS, read, *args, label="calibrate")
    _check_ranges(ranges)
    while True:
        cuts = [_cuts_of_straddling(*each, settings) for each in zip(bins, ranges, strict=True)]
        if all(len(own.key) == 0 for own in cuts):
            break
        finer = bin_source(engine, source, _sums_of_block, read, *args, cuts=cuts, label="calibrate")
        bins = tuple(map(refine_bins, bins, cuts, finer))
    splines = tuple(make_spline(*each, settings) for each in zip(bins, ranges, strict=True))
    return FittedSplines(splines, ranges[0].rows, ranges[0].weight)


def make_spline(bins: ScoreBins, outcomes: OutcomeRange, settings: SplineSettings) -> Spline:
    """The spline through the control points of narrow bins, each of which falls into one of the bins as a whole."""
    own, _ = _places(bins, outcomes, settings)
    starts = np.flatnonzero(np.concatenate([[True], own[1:] != own[:-1]]))
    sums = np.add.reduceat(bins.sums, starts, axis=0)
    weight = sums[:, WEIGHT]
    low, high = bins.lowest[starts], bins.highest[np.append(starts[1:], len(own)) - 1]
    # Rounding must not carry a mean out of what it is the mean of: points stay in order, and shares within 0 and 1.
    score = np.clip(sums[:, SCORE] / weight, low, high)
    outcome = np.clip(sums[:, OUTCOME] / weight, outcomes.lowest, outcomes.highest)
    if settings.monotone:
        from sklearn.isotonic import isotonic_regression

        outcome = np.asarray(isotonic_regression(outcome, sample_weight=weight), dtype=np.float64)
    if low[0] < score[0]:
        score, outcome = np.insert(score, 0, low[0]), np.insert(outcome, 0, outcomes.lowest)
    if high[-1] > score[-1]:
        score, outcome = np.append(score, high[-1]), np.append(outcome, outcomes.highest)
    if settings.bounded and outcomes.two_valued:
        outcome = np.clip(outcome, *_supported(outcomes, float(weight[0]), float(weight[-1])))
    return Spline(score, outcome)


def _supported(outcomes: OutcomeRange, first_weight: float, last_weight: float) -> tuple[float, float]:
    """The lowest and the highest share that bins of these weights can support.

    With `m_0` and `m_1` the mean weight of a row of outcome 0 and of outcome 1, a bin of weight `W` all of one outcome
    that had half a row of each besides would have the share

        (m_1 / 2) / (W + (m_0 + m_1) / 2)   or   1 - (m_0 / 2) / (W + (m_0 + m_1) / 2):

    of `n` rows of weight 1 that is `1 / (2 (n + 1))`. Where an outcome does not occur, all rows give its weight.
    """
    zeros = outcomes.rows - outcomes.ones
    mean = outcomes.weight / outcomes.rows
    one = outcomes.weight_of_ones / outcomes.ones if outcomes.ones else mean
    zero = (outcomes.weight - outcomes.weight_of_ones) / zeros if zeros else mean
    both = (one + zero) / 2
    return one / 2 / (first_weight + both), 1 - zero / 2 / (last_weight + both)


def _places(bins: ScoreBins, outcomes: OutcomeRange, settings: SplineSettings) -> tuple[Integers, Floats]:
    """The bin that each narrow bin falls into by the middle of its weight; and its weight, if it reaches over an edge.

    That is a share of the whole, 0 where all scores in the narrow bin would fall into one bin.
    """
    mass = _mass(bins, outcomes) if settings.balanced else bins.sums[:, WEIGHT]
    n_bins = settings.n_bins
    above = np.cumsum(mass)
    below = np.concatenate([[0.0], above[:-1]])
    total = above[-1]
    own = np.clip(np.floor(n_bins * ((below + above) / 2) / total), 0, n_bins - 1).astype(np.int64)
    reaches = np.floor(n_bins * below / total) < np.ceil(n_bins * above / total) - 1
    return own, np.where(reaches, mass / total, 0.0)


def _mass(bins: ScoreBins, outcomes: OutcomeRange) -> Floats:
    """The weights of narrow bins, balanced where that makes sense: `W_0 sum s y + W_1 sum s (1 - y)`, up to a factor.

    The factor is a power of two: whole weights stay whole, so that edges lie the same however rows are added up.
    """
    weight, ones = bins.sums[:, WEIGHT], bins.sums[:, OUTCOME]
    weight_of_zeros = outcomes.weight - outcomes.weight_of_ones
    if not outcomes.two_valued or weight_of_zeros <= 0 or outcomes.weight_of_ones <= 0:
        return weight
    _, exponent = math.frexp(outcomes.weight)
    zeros = np.maximum(weight - ones, 0.0)
    mass: Floats = ones * math.ldexp(weight_of_zeros, -exponent) + zeros * math.ldexp(
        outcomes.weight_of_ones, -exponent
    )
    return mass


def _cuts_of_straddling(bins: ScoreBins, outcomes: OutcomeRange, settings: SplineSettings) -> Cuts:
    _, reaching = _places(bins, outcomes, settings)
    gain = np.where(reaching > STRADDLING_SHARE, reaching, 0.0)
    cuts = choose_cuts(bins, gain, most=settings.n_bins)  # no more than n_bins - 1 reach over an edge
    if cuts is None:
        return Cuts(np.zeros(0, dtype=np.uint64), np.zeros(0, dtype=np.uint8), np.zeros(0, dtype=np.uint8))
    return cuts


def outcome_range(outcome: Floats, weight: Floats) -> OutcomeRange:
    """What some rows have come to."""
    ones = outcome == 1
    return OutcomeRange(
        rows=len(outcome),
        weight=float(weight.sum()),
        lowest=float(outcome.min(initial=np.inf)),
        highest=float(outcome.max(initial=-np.inf)),
        two_valued=bool((ones | (outcome == 0)).all()),
        ones=int(ones.sum()),
        weight_of_ones=float(weight[ones].sum()),
    )


def merge_ranges(left: OutcomeRange, right: OutcomeRange) -> OutcomeRange:
    """What the rows of both have come to."""
    return OutcomeRange(
        rows=left.rows + right.rows,
        weight=left.weight + right.weight,
        lowest=min(left.lowest, right.lowest),
        highest=max(left.highest, right.highest),
        two_valued=left.two_valued and right.two_valued,
        ones=left.ones + right.ones,
        weight_of_ones=left.weight_of_ones + right.weight_of_ones,
    )


def _check_ranges(ranges: tuple[OutcomeRange, ...]) -> None:
    weight = ranges[0].weight
    if not 0 < weight < np.inf:
        raise InputError(
            f"There is nothing to calibrate with: the weights of the rows add up to {weight:g}.",
            "Give at least one row of positive weight.",
        )
    if all(own.lowest == own.highest for own in ranges):
        raise InputError(
            "All rows have the same outcome, so that every score would be calibrated to it.",
            "Give rows of at least two outcomes, or of two classes.",
        )


Partial = tuple[tuple[ScoreBins, ...], tuple[OutcomeRange, ...]]


def _first_pass_of_block(block: Block, read: ReadRows, *args: Any) -> Partial:
    rows = read(block, *args)
    bins = tuple(bin_scores(score, columns) for score, columns in _sums_of_rows(rows))
    return bins, tuple(outcome_range(outcome, rows.weight) for outcome in rows.outcomes)


def _merge_first_pass(left: Partial, right: Partial) -> Partial:
    return tuple(map(merge_bins, left[0], right[0])), tuple(map(merge_ranges, left[1], right[1]))


def _sums_of_block(block: Block, read: ReadRows, *args: Any) -> list[Scored]:
    return _sums_of_rows(read(block, *args))


def _sums_of_rows(rows: ScoredRows) -> list[Scored]:
    s = rows.weight
    return [(x, np.column_stack([s, s * x, s * y])) for x, y in zip(rows.scores, rows.outcomes, strict=True)]


_FIRST_PASS: Reduction[Partial, Partial] = Reduction(_first_pass_of_block, _merge_first_pass, identity)
