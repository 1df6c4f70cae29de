"""Control points of a calibration spline: a quantile reduction over rows, then one point for each bin of equal weight.

The distinct scores of all rows, ascending, have weights `w_1 .. w_m` (of a row `s = weight / inclusion`), `W` in all.
Of `J` bins a score falls into the one that the middle of its weight lies in,

    bin(i) = floor(J (w_1 + .. + w_{i-1} + w_i / 2) / W),

so that rows of one score are never parted: a score of more than a bin's weight takes the bins that it covers as one,
and those around it keep theirs. The control point of a bin that has rows is

    (sum s x / sum s, sum s y / sum s),

and `(min x, min y)` and `(max x, max y)` come before and after them, unless the first or the last bin is a single
score: what rows of that very score came to is known then.

Those ends promise the lowest and the highest outcome, whatever the rows near them came to. Where scores crowd together
at an end, as those of a model that knows no more do, half of the last bin gets values between that and the truth.
Supported ends are instead where the line through the two nearest control points comes to at the outermost scores, level
if it would turn back, and within the outcomes that there are; shares of ones within what the rows support.

No row is sorted, and none is kept: weights, and sums of `s x` and `s y`, are gathered by narrow bins of the score
(`score_bins`), and those that reach over an edge between two of the `J` bins are cut finer in further passes, until
they are single scores or have at most `STRADDLING_SHARE` of the weight.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from operator import and_
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protodask.engine import Block, Engine, Reduction, Source, add_records, identity
from protodask.engine.records import Floats, Integers, merged_by
from protodask.errors import InputError
from protodask.evaluation.given_rows import too_heavy
from protodask.evaluation.outcomes import Outcomes
from protodask.evaluation.score_bins import (
    BoundedBins,
    Cuts,
    ScoreBins,
    Scored,
    bin_scores,
    bin_source,
    choose_cuts,
    coarsen,
    refine_bins,
)
from protodask.prototypes.setting_checks import unwrap_numbers
from protodask.prototypes.splines import Spline

STRADDLING_SHARE = 1e-6
"""Share of the weight below which a narrow bin that reaches over an edge falls as a whole to one side of
it: rows of at least that share each are told apart to the last one."""

NARROW_BINS = 2**17
"""Narrow bins of a pass, of all splines together: 7 MiB. Fewer would cost passes, no accuracy; as many as the memory of
a machine allows would make the last bits of a spline depend on that."""

LEAST_WEIGHT = 1e-280
"""Below this products of weights and scores lose digits."""

MOST_BINS = 1000
"""Beyond this no bin would say anything, and a curve of many classes would need memory to speak of."""


WEIGHT, SCORE, OUTCOME = range(3)
"""Columns of the sums: `s`, `s x` and `s y`."""


@dataclass(frozen=True)
class ScoredRows:
    """Raw scores and outcomes of some rows (N,), one of each for every spline, and weights; all positive."""

    scores: tuple[NDArray[np.floating[Any]], ...]
    outcomes: tuple[Floats, ...]
    weight: Floats


def class_rows(outcomes: Outcomes) -> ScoredRows:
    """Probabilities against whether a row is of the class: class 1 of two, else each."""
    n_classes = outcomes.probability.shape[1]
    classes = (1,) if n_classes == 2 else range(n_classes)
    return ScoredRows(
        tuple(outcomes.probability[:, k] for k in classes),
        tuple((outcomes.target == k).astype(np.float64) for k in classes),
        outcomes.weight,
    )


ReadRows = Callable[..., ScoredRows]
"""From a block, and further arguments, to its rows; at module level, as workers import it."""


@dataclass(frozen=True)
class OutcomeRange:
    """What rows have come to; merges as a monoid."""

    rows: int
    weight: float
    lowest: float = field(metadata=merged_by(min))
    highest: float = field(metadata=merged_by(max))
    two_valued: bool = field(metadata=merged_by(and_))
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
    supported_ends: bool | None = None

    def __post_init__(self) -> None:
        unwrap_numbers(self)
        count: Any = self.n_bins
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MOST_BINS:
            raise InputError(
                "bad-setting", f"The number of bins is {count!r}.", f"Give a whole number from 1 to {MOST_BINS}."
            )


def fit_splines(engine: Engine, source: Source, settings: SplineSettings, read: ReadRows, *args: Any) -> FittedSplines:
    """A spline for each of the scores that `read(block, *args)` gives."""
    first = engine.reduce(source, _FIRST_PASS, settings.n_bins, read, *args, label="calibrate")
    bins, ranges = tuple(own.bins for own in first.bins), first.ranges
    _check_ranges(ranges)
    _check_sums(bins)
    finer_by = min(8, (first.bins[0].most // settings.n_bins).bit_length() - 1)
    while True:
        cuts = [_cuts_of_straddling(own, settings.n_bins, finer_by) for own in bins]
        if all(len(own.key) == 0 for own in cuts):
            break
        finer = bin_source(engine, source, _sums_of_block, read, *args, cuts=cuts, label="calibrate")
        bins = tuple(map(refine_bins, bins, cuts, finer))
    splines = tuple(make_spline(*each, settings) for each in zip(bins, ranges, strict=True))
    return FittedSplines(splines, ranges[0].rows, ranges[0].weight)


def make_spline(bins: ScoreBins, outcomes: OutcomeRange, settings: SplineSettings) -> Spline:
    """The spline through the control points of narrow bins, each of which falls into one of the bins as a whole."""
    own, _ = _places(bins, settings.n_bins)
    starts = np.flatnonzero(np.concatenate([[True], own[1:] != own[:-1]]))
    sums = np.add.reduceat(bins.sums, starts, axis=0)
    weight = sums[:, WEIGHT]
    low, high = bins.lowest[starts], bins.highest[np.append(starts[1:], len(own)) - 1]
    # Rounding must not carry a mean out of what it is the mean of: points stay in order, and shares within 0 and 1.
    score = np.clip(sums[:, SCORE] / weight, low, high)
    outcome = np.clip(sums[:, OUTCOME] / weight, outcomes.lowest, outcomes.highest)
    supported = outcomes.two_valued if settings.supported_ends is None else settings.supported_ends
    bounds = outcomes.lowest, outcomes.highest
    if supported and outcomes.two_valued:
        bounds = _supported_shares(weight, outcome, outcomes)
    if settings.monotone:
        from sklearn.isotonic import isotonic_regression

        outcome = np.asarray(isotonic_regression(outcome, sample_weight=weight), dtype=np.float64)
    first, last = bounds
    if supported:
        first, last = _continued(score, outcome, low[0]), -_continued(-score[::-1], -outcome[::-1], -high[-1])
    if low[0] < score[0]:
        score, outcome = np.insert(score, 0, low[0]), np.insert(outcome, 0, first)
    if high[-1] > score[-1]:
        score, outcome = np.append(score, high[-1]), np.append(outcome, last)
    return Spline(score, np.clip(outcome, *bounds))


def _continued(score: Floats, outcome: Floats, lowest: float) -> float:
    """Where the line through the first two control points comes to at the lowest score, if it rises; else the first."""
    if len(score) == 1 or outcome[1] <= outcome[0]:
        return float(outcome[0])
    with np.errstate(over="ignore"):
        return float(outcome[0] - (outcome[1] - outcome[0]) * ((score[0] - lowest) / (score[1] - score[0])))


def _supported_shares(weight: Floats, outcome: Floats, outcomes: OutcomeRange) -> tuple[float, float]:
    """The lowest and the highest share that bins of these weights and outcomes (0 or 1 in each row) can support.

    With `m_0` and `m_1` the mean weight of a row of outcome 0 and of outcome 1, and `W_0` the weight of the first bins
    up to one in which there is a 1, the first in any case; `W_1` that of the last bins back to one in which there is a
    0: had they half a row of each outcome besides, shares of 0 and 1 would be

        (m_1 / 2) / (W_0 + (m_0 + m_1) / 2)   and   1 - (m_0 / 2) / (W_1 + (m_0 + m_1) / 2).

    Of `n` rows of weight 1 that is `1 / (2 (n + 1))`. Where an outcome does not occur, all rows give its weight.
    """
    zeros = outcomes.rows - outcomes.ones
    mean = outcomes.weight / outcomes.rows
    one = outcomes.weight_of_ones / outcomes.ones if outcomes.ones else mean
    zero = (outcomes.weight - outcomes.weight_of_ones) / zeros if zeros else mean
    both = (one + zero) / 2
    first = weight[: max(_leading(outcome == 0), 1)].sum()
    last = weight[::-1][: max(_leading(outcome[::-1] == 1), 1)].sum()
    return one / 2 / (first + both), 1 - zero / 2 / (last + both)


def _leading(true: NDArray[np.bool_]) -> int:
    """How many are true before the first that is not."""
    return len(true) if true.all() else int(np.argmin(true))


def _places(bins: ScoreBins, n_bins: int) -> tuple[Integers, Floats]:
    """The bin that each narrow bin falls into by the middle of its weight; and its weight, if it reaches over an edge.

    That is a share of the whole, 0 where all scores in the narrow bin would fall into one bin.
    """
    weight = bins.sums[:, WEIGHT]
    above = np.cumsum(weight)
    below = np.concatenate([[0.0], above[:-1]])
    total = above[-1]
    own = np.clip(np.floor(n_bins * ((below + above) / 2) / total), 0, n_bins - 1).astype(np.int64)
    reaches = np.floor(n_bins * below / total) < np.ceil(n_bins * above / total) - 1
    return own, np.where(reaches, weight / total, 0.0)


def _cuts_of_straddling(bins: ScoreBins, n_bins: int, finer_by: int) -> Cuts:
    _, reaching = _places(bins, n_bins)
    gain = np.where(reaching > STRADDLING_SHARE, reaching, 0.0)
    return choose_cuts(bins, gain, most=n_bins, finer_by=finer_by)  # no more than n_bins - 1 reach over an edge


def outcome_range(outcome: Floats, weight: Floats) -> OutcomeRange:
    """What some rows have come to."""
    ones = outcome == 1
    with np.errstate(over="ignore"):  # an infinite sum is refused once all rows are added up
        total, total_of_ones = float(weight.sum()), float(weight[ones].sum())
    return OutcomeRange(
        rows=len(outcome),
        weight=total,
        lowest=float(outcome.min(initial=np.inf)),
        highest=float(outcome.max(initial=-np.inf)),
        two_valued=bool((ones | (outcome == 0)).all()),
        ones=int(ones.sum()),
        weight_of_ones=total_of_ones,
    )


def _check_ranges(ranges: tuple[OutcomeRange, ...]) -> None:
    weight = ranges[0].weight
    if weight == np.inf:
        raise too_heavy()
    if 0 < weight < LEAST_WEIGHT:
        raise InputError(
            "bad-value",
            f"The weights of the rows add up to {weight:g}, too little to be multiplied with scores.",
            "Multiply all weights by one number.",
        )
    if not weight > 0:
        raise InputError(
            "no-rows",
            f"There is nothing to calibrate with: the weights of the rows add up to {weight:g}.",
            "Give at least one row of positive weight.",
        )
    if all(own.lowest == own.highest for own in ranges):
        raise InputError(
            "one-class",
            "All rows have the same outcome, so that every score would be calibrated to it.",
            "Give rows of at least two outcomes, or of two classes.",
        )


def _check_sums(bins: tuple[ScoreBins, ...]) -> None:
    for own in bins:
        with np.errstate(over="ignore"):
            width, total = own.highest[-1] - own.lowest[0], np.abs(own.sums).sum()
        if not np.isfinite(width + total):
            raise InputError(
                "overflow",
                f"Scores from {own.lowest[0]:g} to {own.highest[-1]:g}, or their outcomes, are too large to add up.",
                "Scale them down.",
            )


@dataclass(frozen=True)
class FirstPass:
    """Narrow bins and outcomes of some rows, for each spline; merges as a monoid."""

    bins: tuple[BoundedBins, ...]
    ranges: tuple[OutcomeRange, ...]


def _first_pass_of_block(block: Block, n_bins: int, read: ReadRows, *args: Any) -> FirstPass:
    rows = read(block, *args)
    most = max(NARROW_BINS // len(rows.scores), 4 * n_bins)
    return FirstPass(
        tuple(BoundedBins(coarsen(bin_scores(score, columns), most), most) for score, columns in _sums_of_rows(rows)),
        tuple(outcome_range(outcome, rows.weight) for outcome in rows.outcomes),
    )


def _sums_of_block(block: Block, read: ReadRows, *args: Any) -> list[Scored]:
    return _sums_of_rows(read(block, *args))


def _sums_of_rows(rows: ScoredRows) -> list[Scored]:
    s = rows.weight
    with np.errstate(over="ignore"):  # looked at once all rows are added up
        return [(x, np.column_stack([s, s * x, s * y])) for x, y in zip(rows.scores, rows.outcomes, strict=True)]


_FIRST_PASS: Reduction[FirstPass, FirstPass] = Reduction(_first_pass_of_block, add_records, identity)
