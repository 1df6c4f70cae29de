"""Control points of a calibration spline: a quantile reduction over rows, then one point for each bin of equal weight.

The distinct scores of all rows, ascending, have weights `w_1 .. w_m` (of a row `s = weight / inclusion`), `W` in all.
Of `J` bins a score falls into the one that the middle of its weight lies in,

    bin(i) = floor(J (w_1 + .. + w_{i-1} + w_i / 2) / W),

so that rows of one score are never parted: a score of more than a bin's weight takes the bins that it covers as one,
and those around it keep theirs. The control point of a bin that has rows is

    (sum s x / sum s, sum s y / sum s),

and `(min x, min y)` and `(max x, max y)` come before and after them, unless the first or the last bin is a single
score: what rows of that very score came to is known then.

No row is sorted, and none is kept: weights, and sums of `s x` and `s y`, are gathered by narrow bins of the score
(`score_bins`), and those that reach over an edge between two of the `J` bins are cut finer in further passes, until
they are single scores or have at most `STRADDLING_SHARE` of the weight.
"""

from __future__ import annotations

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
"""Share of the weight below which a narrow bin that reaches over an edge falls as a whole to one side of it: rows of
at least that share each are told apart to the last one."""

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


def fit_splines(
    engine: Engine, source: Source, read: ReadRows, *args: Any, n_bins: int, monotone: bool, bounded: bool
) -> FittedSplines:
    """A spline for each of the scores that `read(block, *args)` gives; see `Calibrator` for the settings."""
    bins, ranges = engine.reduce(source, _FIRST_PASS, read, *args, label="calibrate")
    _check_ranges(ranges)
    while True:
        cuts = [_cuts_of_straddling(own, n_bins) for own in bins]
        if all(len(own.key) == 0 for own in cuts):
            break
        finer = bin_source(engine, source, _sums_of_block, read, *args, cuts=cuts, label="calibrate")
        bins = tuple(map(refine_bins, bins, cuts, finer))
    splines = tuple(
        make_spline(own, outcomes, n_bins, monotone=monotone, bounded=bounded)
        for own, outcomes in zip(bins, ranges, strict=True)
    )
    return FittedSplines(splines, ranges[0].rows, ranges[0].weight)


def make_spline(
    bins: ScoreBins, outcomes: OutcomeRange, n_bins: int, *, monotone: bool = False, bounded: bool = True
) -> Spline:
    """The spline through the control points of narrow bins that lie within the `n_bins` bins, or are told to one."""
    first, _ = _first_and_last(bins, n_bins)
    starts = np.flatnonzero(np.concatenate([[True], first[1:] != first[:-1]]))
    sums = np.add.reduceat(bins.sums, starts, axis=0)
    weight = sums[:, WEIGHT]
    low, high = bins.lowest[starts], bins.highest[np.append(starts[1:], len(first)) - 1]
    # Rounding must not carry a mean out of what it is the mean of: points stay in order, and shares within 0 and 1.
    score = np.clip(sums[:, SCORE] / weight, low, high)
    outcome = np.clip(sums[:, OUTCOME] / weight, outcomes.lowest, outcomes.highest)
    if monotone:
        from sklearn.isotonic import isotonic_regression

        outcome = np.asarray(isotonic_regression(outcome, sample_weight=weight), dtype=np.float64)
    if low[0] < score[0]:
        score, outcome = np.insert(score, 0, low[0]), np.insert(outcome, 0, outcomes.lowest)
    if high[-1] > score[-1]:
        score, outcome = np.append(score, high[-1]), np.append(outcome, outcomes.highest)
    if bounded and outcomes.two_valued:
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


def _first_and_last(bins: ScoreBins, n_bins: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The bin that each narrow bin falls into by the middle of its weight, and whether its rows might reach others.

    The second is the highest bin that a row of it can be in, less the lowest: 0 where it reaches over no edge.
    """
    above = np.cumsum(bins.sums[:, WEIGHT])
    below = np.concatenate([[0.0], above[:-1]])
    total = above[-1]
    middle = np.floor(n_bins * ((below + above) / 2) / total)
    lowest = np.floor(n_bins * below / total)
    highest = np.ceil(n_bins * above / total) - 1
    reach = np.maximum(highest - lowest, 0).astype(np.int64)
    return np.clip(middle, 0, n_bins - 1).astype(np.int64), reach


def _cuts_of_straddling(bins: ScoreBins, n_bins: int) -> Cuts:
    _, reach = _first_and_last(bins, n_bins)
    weight = bins.sums[:, WEIGHT]
    gain = np.where((reach > 0) & (weight > STRADDLING_SHARE * weight.sum()), weight, 0.0)
    cuts = choose_cuts(bins, gain, most=n_bins)  # no more than n_bins - 1 narrow bins reach over an edge
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
