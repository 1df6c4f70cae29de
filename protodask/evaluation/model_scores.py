"""How good a model is on some rows: probabilities and metrics in one pass, nothing stored in between."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protodask.data import Label
from protodask.data.format.schema import FEATURES
from protodask.engine import Block, Engine, Reduction, Source, add_records
from protodask.evaluation.metrics import (
    EvaluationPartial,
    Scores,
    evaluation_partial,
    finish_evaluation,
)
from protodask.evaluation.outcomes import Outcomes, predicted_outcomes
from protodask.evaluation.roc import curve_bins
from protodask.prototypes.model import PrototypeSet
from protodask.prototypes.scoring import predict_features


@dataclass(frozen=True)
class ModelScores:
    """The metrics of a model on some rows, and what they are to be compared with. `K` classes."""

    scores: Scores
    classes: tuple[Label, ...]
    """The classes of the rows and columns of the confusion matrix."""
    n_batches: int
    marginal_log_loss: float
    """`-sum_n s_n log p0[y_n] / sum_n s_n`: the log-loss of predicting the class shares of the training data."""
    calibrated: bool = False

    def describe(self) -> dict[str, Any]:
        """Plain values, for files."""
        return {
            **self.scores.as_dict(),
            "marginal_log_loss": self.marginal_log_loss,
            "classes": list(self.classes),
            "batches": self.n_batches,
            "calibrated": self.calibrated,
        }


def model_outcomes(
    block: Block, model: PrototypeSet, codes: NDArray[np.int64], n_batches: int, calibrated: bool = False
) -> Outcomes:
    """What the first batches of a model make of a block of features and targets, whose classes are `codes`."""
    ((probability, _),) = predict_features(block[FEATURES.name], model, [n_batches], calibrated)
    return predicted_outcomes(block, probability, codes)


def _evaluate_rows(
    block: Block,
    model: PrototypeSet,
    codes: NDArray[np.int64],
    n_batches: int,
    roc_auc: bool,
    most_bins: int | None,
    calibrated: bool,
) -> EvaluationPartial:
    return evaluation_partial(model_outcomes(block, model, codes, n_batches, calibrated), roc_auc, most_bins=most_bins)


MODEL_SCORES: Reduction[EvaluationPartial, Scores] = Reduction(_evaluate_rows, add_records, finish_evaluation)


def evaluate_model(
    model: PrototypeSet,
    source: Source,
    codes: NDArray[np.int64],
    engine: Engine,
    *,
    n_batches: int | None = None,
    roc_auc: bool = True,
    calibrated: bool = False,
) -> ModelScores:
    """Every metric of a model on a source of features and targets; `codes` are the model's classes of the targets'.

    The ROC AUC needs memory for each row; where that may not fit it is known up to an error whose bound is among the
    scores (see `protodask.evaluation.evaluate`).
    """
    count = model.scored_batches(n_batches, calibrated)
    bins = curve_bins(engine, source, model.n_classes)
    scores = engine.reduce(
        source, MODEL_SCORES, engine.share(model), codes, count, roc_auc, bins, calibrated, label="metrics"
    )
    engine.forget(source)
    return ModelScores(scores, model.classes, count, _marginal_log_loss(model, scores), calibrated)


def _marginal_log_loss(model: PrototypeSet, scores: Scores) -> float:
    present = scores.confusion.sum(axis=1)
    losses = [
        weight * -math.log(share) if share > 0 else math.inf
        for weight, share in zip(present.tolist(), model.marginals.tolist(), strict=True)
        if weight > 0
    ]
    return math.fsum(losses) / scores.weight
