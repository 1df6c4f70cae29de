"""Metrics of predictions: exact, global, weighted, one pass each; of the ROC AUC of very many rows, a bound.

Every metric takes arrays of NumPy, dask or Zarr, or a source whose blocks hold `probability` (N, K), `target` (N,) and,
if rows are weighted, `weight` or `inclusion` (N,): the weight of a row is then `s = weight / inclusion`. A row of
weight 2 counts as the same row twice, a row of weight 0 not at all. The squared error is of predicted numbers, which a
source calls `prediction` (N,).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import zarr
from numpy.typing import ArrayLike

from protodask.data.format.schema import TARGET, WEIGHT
from protodask.engine import Block, EngineLike, Reduction, Source, add_records, open_engine
from protodask.engine.lazy import as_array, is_lazy
from protodask.engine.records import Floats
from protodask.errors import InputError, count
from protodask.evaluation.auc_interval import ClassTotals, area_interval
from protodask.evaluation.given_rows import (
    check_rows,
    check_weight,
    reading,
    require,
    row_numbers,
    source_of,
    usable_weights,
)
from protodask.evaluation.interval import CONFIDENCE, is_real
from protodask.evaluation.outcomes import (
    PROBABILITY,
    Outcomes,
    OutcomeSums,
    check_outcomes,
    check_table,
    read_outcomes,
    sum_outcomes,
)
from protodask.evaluation.roc import Areas, Curves, collect_curves, curve_bins, finish_areas

Average = Literal["macro", "weighted"]


@dataclass(frozen=True)
class Scores:
    """Every metric of one set of predictions. `K` classes."""

    rows: int
    """Rows of positive weight."""
    weight: float
    """Sum of the weights."""
    log_loss: float
    accuracy: float
    balanced_accuracy: float
    brier_score: float
    roc_auc: float | None
    """Binary, or the plain mean over classes against the rest; nan if one class only occurs, None if left out."""
    roc_auc_weighted: float | None
    """The same, each class weighted by its prevalence."""
    roc_auc_error: float | None
    """How far either may be from the exact one: 0 unless there were too many scores to keep them all."""
    roc_auc_interval: tuple[float, float] | None
    """Low and high end of its 95 per cent interval (`auc_interval`); of two classes that both occur."""
    confusion: Floats
    """Weight by true class and predicted class (K, K)."""

    def as_dict(self) -> dict[str, Any]:
        """The metrics by name, as plain numbers and lists, without those that were left out."""
        values = asdict(self) | {"confusion": self.confusion.tolist()}
        if self.roc_auc_interval is not None:
            values["roc_auc_interval"] = list(self.roc_auc_interval)
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True)
class EvaluationPartial:
    """What some rows contribute to every metric."""

    sums: OutcomeSums
    curves: Curves | None


def evaluation_partial(
    outcomes: Outcomes, roc_auc: bool = True, clip: float = 0.0, most_bins: int | None = None
) -> EvaluationPartial:
    """The contribution of some rows; for a reduction that makes its probabilities itself.

    `most_bins` are those of a curve, see `roc.curve_bins`; None for exact curves.
    """
    return EvaluationPartial(sum_outcomes(outcomes, clip), collect_curves(outcomes, most_bins) if roc_auc else None)


def finish_evaluation(partial: EvaluationPartial) -> Scores:
    """The metrics of all rows."""
    sums = check_outcomes(partial.sums)
    areas = None if partial.curves is None else finish_areas(partial.curves, sums.classes)
    return Scores(
        rows=sums.rows,
        weight=sums.weight,
        log_loss=sums.log_loss,
        accuracy=sums.accuracy,
        balanced_accuracy=sums.balanced_accuracy,
        brier_score=sums.brier_score,
        roc_auc=None if areas is None else areas.macro,
        roc_auc_weighted=None if areas is None else areas.weighted,
        roc_auc_error=None if areas is None else areas.error_bound,
        roc_auc_interval=None if areas is None else _interval(areas, sums.classes),
        confusion=sums.confusion,
    )


def _interval(areas: Areas, classes: ClassTotals) -> tuple[float, float] | None:
    if len(classes.rows) != 2 or not classes.rows.all():
        return None
    interval = area_interval(areas.macro, areas.spread, classes, areas.error_bound, CONFIDENCE)
    return interval.low, interval.high


def _evaluate_block(
    block: Block, n_classes: int, roc_auc: bool, clip: float, most_bins: int | None
) -> EvaluationPartial:
    found = block[PROBABILITY].shape[1]
    if found != n_classes:
        raise InputError(
            "wrong-shape",
            f"{count(found, 'column')} of probabilities for {count(n_classes, 'class', 'classes')}.",
            "Give one column for each class, in the order of the classes.",
        )
    return evaluation_partial(read_outcomes(block), roc_auc, clip, most_bins)


def _sum_block(block: Block, clip: float) -> OutcomeSums:
    return sum_outcomes(read_outcomes(block), clip)


def _curve_block(block: Block, most_bins: int | None) -> Curves:
    return collect_curves(read_outcomes(block), most_bins)


EVALUATION: Reduction[EvaluationPartial, Scores] = Reduction(_evaluate_block, add_records, finish_evaluation)
OUTCOMES: Reduction[OutcomeSums, OutcomeSums] = Reduction(_sum_block, add_records, check_outcomes)
AREAS: Reduction[Curves, Areas] = Reduction(_curve_block, add_records, finish_areas)


def evaluate(
    source: Source, n_classes: int, engine: EngineLike = None, *, roc_auc: bool = True, clip: float = 0.0
) -> Scores:
    """Every metric of a source of probabilities and targets, in one pass.

    The ROC AUC is exact and keeps every distinct score in memory, 24 bytes for each and, beyond two classes, for each
    class. Where that may not fit (as shapes and the memory limit say), it is that of narrow bins of scores, which take
    up to a fifth of the limit, and `roc_auc_error` bounds its error; `auc` makes that smaller in further passes.
    `roc_auc=False` leaves it out. `clip`: see `log_loss`.
    """
    with open_engine(engine) as opened:
        check_rows(source)
        bins = curve_bins(opened, source, n_classes)
        return opened.reduce(source, EVALUATION, n_classes, roc_auc, _check_clip(clip), bins, label="evaluate")


def log_loss(
    probability: ArrayLike | Source,
    target: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    engine: EngineLike = None,
    *,
    clip: float = 0.0,
) -> float:
    """`-sum_n s_n log p[n, y_n] / sum_n s_n`, in nats.

    Infinite if a row's own class has probability 0; with `clip`, the loss of `max(p, clip)`.
    """
    return _outcomes(probability, target, weight, engine, clip).log_loss


def accuracy(
    probability: ArrayLike | Source,
    target: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    engine: EngineLike = None,
) -> float:
    """Share of the weight whose most probable class is the true one; of equally probable classes the first counts."""
    return _outcomes(probability, target, weight, engine).accuracy


def balanced_accuracy(
    probability: ArrayLike | Source,
    target: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    engine: EngineLike = None,
) -> float:
    """The accuracy within each class, averaged over the classes that occur."""
    return _outcomes(probability, target, weight, engine).balanced_accuracy


def confusion_matrix(
    probability: ArrayLike | Source,
    target: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    engine: EngineLike = None,
) -> Floats:
    """Weight by true class (row) and most probable class (column), the first of several; (K, K)."""
    return _outcomes(probability, target, weight, engine).confusion


def brier_score(
    probability: ArrayLike | Source,
    target: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    engine: EngineLike = None,
) -> float:
    """`sum_n s_n sum_k (p[n, k] - [k = y_n])^2 / sum_n s_n`; half of that for two classes, `(p[n, 1] - y_n)^2`."""
    return _outcomes(probability, target, weight, engine).brier_score


def roc_auc(
    probability: ArrayLike | Source,
    target: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    engine: EngineLike = None,
    *,
    average: Average = "macro",
) -> float:
    """Probability that a row of the class has a higher score than a row of another class, plus half that of a tie.

    For two classes the score is the probability of class 1. For more, each class against the rest by its own
    probability, then the mean over the classes that occur: plain ("macro") or by their weight ("weighted"). It is nan
    where only one class occurs, since there is no pair to compare. Memory, and what happens where it does not suffice:
    as `evaluate` says, which also says how exact it is then.
    """
    if average not in {"macro", "weighted"}:
        raise InputError("unknown-name", f"average is {average!r}.", 'Give "macro" or "weighted".')
    source = _as_source(probability, target, weight)
    with reading(source, probability, engine) as opened:
        n_classes = opened.take(source, np.array([0]), (PROBABILITY,), label="columns")[PROBABILITY].shape[1]
        areas = opened.reduce(source, AREAS, curve_bins(opened, source, n_classes), label="roc auc")
    return areas.macro if average == "macro" else areas.weighted


def _outcomes(
    probability: ArrayLike | Source,
    target: ArrayLike | None,
    weight: ArrayLike | None,
    engine: EngineLike,
    clip: float = 0.0,
) -> OutcomeSums:
    source = _as_source(probability, target, weight)
    with reading(source, probability, engine) as opened:
        return opened.reduce(source, OUTCOMES, _check_clip(clip), label="evaluate")


def _check_clip(clip: float) -> float:
    if not (is_real(clip) and 0 <= clip < 1):
        raise InputError(
            "bad-setting", f"clip is {clip!r}.", "Give a probability from 0 (no clipping) to below 1, such as 1e-15."
        )
    return clip


def _as_source(probability: ArrayLike | Source, target: ArrayLike | None, weight: ArrayLike | None) -> Source:
    given: dict[str, Any] = {PROBABILITY: probability, TARGET.name: target, WEIGHT.name: weight}
    if not isinstance(probability, Source):
        given = {name: None if array is None else _as_array(array) for name, array in given.items()}
        _check_types(given[PROBABILITY], given[TARGET.name])
    needed = {TARGET.name: "Give the true class of each row as target."}
    return check_rows(source_of(given, needed, tables=[PROBABILITY]))


def _as_array(values: Any) -> Any:
    """What has a shape and a type: a dask or Zarr array as it is."""
    values = as_array(values)
    return values if is_lazy(values) or isinstance(values, zarr.Array) else np.asanyarray(values)


def _check_types(probability: Any, target: Any) -> None:
    check_table(probability)
    if target is not None and target.dtype.kind not in "iub":
        raise InputError(
            "wrong-type",
            f"The targets are of type {target.dtype}.",
            "Give each target as the index of its class, an integer from 0.",
        )


PREDICTION = "prediction"
"""Name of the array (N,) that holds a model's predictions."""


@dataclass(frozen=True)
class ErrorSums:
    """Weighted sums over rows; merges as a monoid."""

    weight: float
    """`sum s`."""
    squares: float
    """`sum s (r - f)^2`."""


def squared_error(
    prediction: ArrayLike | Source,
    target: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    engine: EngineLike = None,
) -> float:
    """`sum_n s_n (r_n - f_n)^2 / sum_n s_n`, in the square of the target's unit.

    `f` are predictions, `r` targets, `s` weights: arrays of NumPy, dask or Zarr, or a source whose blocks hold
    "prediction", "target" and, if rows are weighted, "weight" or "inclusion"; then `s = weight / inclusion`. A row of
    weight 0 does not count, whatever its numbers are.
    """
    given = {PREDICTION: prediction, TARGET.name: target, WEIGHT.name: weight}
    source = check_rows(source_of(given, {TARGET.name: "Give the true value of each row as target."}))
    with reading(source, prediction, engine) as opened:
        return opened.reduce(source, SQUARED_ERROR, label="squared error")


def error_sums(block: Block) -> ErrorSums:
    """The sums over the rows of a block."""
    predicted, true = (row_numbers(block, name) for name in (PREDICTION, TARGET.name))
    weights = usable_weights(block)
    if weights is not None:
        kept = weights > 0
        predicted, true = np.where(kept, predicted, 0.0), np.where(kept, true, 0.0)
    for name, values in ((PREDICTION, predicted), (TARGET.name, true)):
        seen = f"The {name} of row {{row}} is missing or infinite."
        require(block, np.isfinite(values), seen, "Give a finite number for every row.")
    with np.errstate(over="ignore"):
        squares = np.square(true - predicted)
        if weights is None:
            return ErrorSums(float(block.n_rows), float(squares.sum()))
        return ErrorSums(float(weights.sum()), float(np.sum(weights * squares)))


def finish_error(sums: ErrorSums) -> float:
    """The mean squared error that the sums amount to; infinite where it is too large for a float64."""
    check_weight(sums.weight)
    return sums.squares / sums.weight


SQUARED_ERROR: Reduction[ErrorSums, float] = Reduction(error_sums, add_records, finish_error)
