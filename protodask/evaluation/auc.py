"""The area under the ROC curve of scores, with a bound on its error and its interval.

`AUC = P(score of a positive > score of a negative) + P(equal) / 2`, each pair counting the product of its weights
`s = weight / inclusion`; dropping rows of a class at a constant rate does not change it. Exact where the sorted scores
fit into memory (`roc`), else from cells of neighbouring scores, cut finer in further passes (`rank_cells`). The
intervals are those of `auc_interval`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from protodask.data.format.schema import INCLUSION, WEIGHT
from protodask.engine import Block, Engine, EngineLike, Reduction, Source, add_records, identity
from protodask.engine.records import Floats, taken
from protodask.errors import InputError
from protodask.evaluation.auc_interval import (
    ClassTotals,
    area_interval,
    class_totals,
    delong_spread,
    half_width,
    widened,
)
from protodask.evaluation.given_rows import check_rows, reading, require, source_of, too_heavy, usable_weights
from protodask.evaluation.interval import Interval, check_confidence, is_share
from protodask.evaluation.rank_cells import (
    SUM_BYTES,
    Cells,
    Grid,
    GridSums,
    cells_of_bins,
    cut_cells,
    refine_cells,
    sum_rows,
)
from protodask.evaluation.roc import Curve, Runs, area_and_error, curve_bytes, make_curve
from protodask.evaluation.score_bins import BIN_BYTES, affordable_bins

SCORE = "score"
LABEL = "label"

MOST_ERROR = 1e-6
"""Bound on the error that is aimed at where the AUC is not exact: sampling has it err by as much with 10^12 rows."""

MOST_PASSES = 6
"""Over rows that do not fit: each further one has as many cells more as fit, and makes the bound smaller by as much."""

FIRST_BINS = 2**16
"""Of the first pass at most: they only show where the scores are."""


@dataclass(frozen=True)
class AucResult(Interval):
    """The area under the ROC curve; `low` and `high` are the ends of DeLong's interval, or where there is none of the
    deviation interval (see `auc_interval`), within 0 and 1.

    Where one class only occurs there is no pair to compare: these and `half_width` are nan.
    """

    error_bound: float
    """How far `value` may be from the exact area of these rows; 0 where it is exact (but for rounding, about 1e-15)."""
    half_width: float
    """Of the deviation interval, before it is widened by `error_bound` and cut off at 0 and 1."""
    positives: int
    negatives: int
    """Rows of positive weight."""
    passes: int
    """Over the rows."""

    @property
    def deviation(self) -> Interval:
        """The interval that holds whatever the distribution."""
        return widened(self.value, self.half_width, self.error_bound)


@dataclass(frozen=True)
class Labelled:
    """Scores, labels and weights of some rows, checked; rows of weight 0 are left out."""

    score: NDArray[np.floating[Any]]
    positive: NDArray[np.bool_]
    weight: Floats | None
    """None where every row counts once."""


@dataclass(frozen=True)
class LabelledPart:
    """What some rows contribute to the area."""

    totals: ClassTotals
    curve: Curve


def auc(
    score: ArrayLike | Source,
    label: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    *,
    inclusion: ArrayLike | None = None,
    most_error: float = MOST_ERROR,
    confidence: float = 0.95,
    engine: EngineLike = None,
) -> AucResult:
    """Probability that a positive has a higher score than a negative, plus half that of a tie, with its interval.

    `label` is 1 for positives and 0 for negatives (or true and false); a score is any number, infinite ones included.
    They are arrays of NumPy, dask or Zarr, or one source whose blocks hold "score", "label" and, if there are any,
    "weight" and "inclusion". A row of weight 0 does not count.

    Where the sorted scores may not fit into the engine's memory limit, 136 bytes for each row, the rows are passed over
    up to 6 times until the area is known to `most_error`; how well it is known then says `error_bound`. That takes a
    fifth of the limit at most: how many cells fit into it, and so the value within its bound, depends on the limit and
    on the number of threads.

    The interval from `low` to `high` covers the area of the distribution that the rows are drawn from with about the
    probability `confidence`, `deviation` with at least that; where weights vary within a class, both are that of the
    deviation, which then needs many rows (see `auc_interval`).
    """
    if not (most_error == 0 or is_share(most_error)):
        raise InputError(
            "bad-setting", f"most_error is {most_error!r}.", "Give a number from 0 to below 1, such as 1e-6."
        )
    check_confidence(confidence)
    given = {SCORE: score, LABEL: label, WEIGHT.name: weight, INCLUSION.name: inclusion}
    source = check_rows(source_of(given, {LABEL: "Give 1 for each positive and 0 for each negative."}))
    with reading(source, score, engine) as opened:
        fits = curve_bytes(source.layout.n_rows, 2) <= opened.scheduler.memory_bytes
        first_bins = None if fits else min(FIRST_BINS, affordable_bins(opened, source, BIN_BYTES + 2 * 8))
        part = opened.reduce(source, FIRST_PASS, first_bins, label="auc")
        totals = _check_totals(part.totals)
        ordered: Runs | Cells
        if isinstance(part.curve, Runs):
            ordered, passes = part.curve, 1
        else:
            ordered, passes = _cells_in_passes(opened, source, cells_of_bins(part.curve.bins), most_error)
    value, error = area_and_error(ordered)
    negatives, positives = totals.rows.tolist()
    spread = delong_spread(value, ordered.positive, ordered.negative, totals)
    interval = area_interval(value, spread, totals, error, confidence)
    return AucResult(
        value=value,
        low=interval.low,
        high=interval.high,
        error_bound=error,
        half_width=half_width(totals, confidence),
        positives=positives,
        negatives=negatives,
        passes=passes,
    )


def _check_totals(totals: ClassTotals) -> ClassTotals:
    """The totals, if there is any weight, and no more than can be divided by."""
    if not totals.rows.any():
        raise InputError(
            "no-rows", "There is nothing to evaluate: no row has a positive weight.", "Give at least one that has."
        )
    if not np.isfinite(totals.weight).all():
        raise too_heavy()
    return totals


def _cells_in_passes(engine: Engine, source: Source, cells: Cells, most_error: float) -> tuple[Cells, int]:
    """Cells of neighbouring scores, cut finer in further passes, and the number of all passes."""
    passes, most = 1, affordable_bins(engine, source, SUM_BYTES)
    while passes < MOST_PASSES and (grid := cut_cells(cells, most_error, most, MOST_PASSES - passes)) is not None:
        sums = engine.reduce(source, GRID_SUMS, engine.share(grid), label="auc")
        cells, passes = refine_cells(cells, grid, sums), passes + 1
    return cells, passes


def read_labelled(block: Block) -> Labelled:
    """What a block says of its rows, or an error that names the first row that cannot be used."""
    if SCORE not in block or LABEL not in block:
        found = ", ".join(sorted(block.arrays))
        raise InputError(
            "column-missing", f"The source has the arrays {found}.", 'Give one whose blocks hold "score" and "label".'
        )
    score, label = block[SCORE], block[LABEL]
    if score.dtype.kind not in "fiub" or score.ndim != 1:
        raise InputError(
            "wrong-shape" if score.ndim != 1 else "wrong-type",
            f"The scores are of type {score.dtype} and {score.ndim} dimensions.",
            "Give one number for each row.",
        )
    if score.dtype.kind != "f" or score.dtype.itemsize > 8:
        given, score = score, score.astype(np.float64)
        if given.dtype.kind in "iu":
            distance = np.maximum(np.spacing(np.abs(score)), 1).astype(given.dtype)
            require(
                block,
                given % distance == 0,
                "The score of row {row} is a whole number that is rounded to another one.",
                "Subtract one number from all scores, so that they lie between -2^53 and 2^53.",
            )
    require(block, ~np.isnan(score), "The score of row {row} is missing.", "Give a number for each row.")
    if label.dtype.kind not in "fiub":
        raise InputError(
            "wrong-type", f"The labels are of type {label.dtype}.", "Give 1 for each positive and 0 for each negative."
        )
    positive = np.asarray(label == 1)
    require(
        block,
        positive | np.asarray(label == 0),
        "The label of row {row} is neither 0 nor 1.",
        "Give 1 for each positive and 0 for each negative.",
    )
    weight = usable_weights(block)
    if weight is None:
        return Labelled(score, positive, None)
    kept, every = weight > 0, Labelled(score, positive, weight)
    return every if kept.all() else taken(every, kept)


def _first_part(block: Block, most_bins: int | None) -> LabelledPart:
    rows = read_labelled(block)
    curve = make_curve(rows.score, rows.positive, rows.weight, most_bins)
    return LabelledPart(class_totals(rows.positive, rows.weight), curve)


def _sum_block(block: Block, grid: Grid) -> GridSums:
    rows = read_labelled(block)
    return sum_rows(grid, rows.score, rows.positive, rows.weight)


FIRST_PASS: Reduction[LabelledPart, LabelledPart] = Reduction(_first_part, add_records, identity)
GRID_SUMS: Reduction[GridSums, GridSums] = Reduction(_sum_block, add_records, identity)
