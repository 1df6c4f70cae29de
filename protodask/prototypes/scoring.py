"""Scores of whole sources: the model as functions of a block."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protodask.data.format.schema import FEATURES, GROUP, MARKED
from protodask.data.tables.kept_columns import KEPT
from protodask.engine import Arrays, Block
from protodask.prototypes.candidates import SCORES
from protodask.prototypes.fitted import familiarity, probabilities
from protodask.prototypes.model import PrototypeSet
from protodask.prototypes.prediction_columns import FAMILIARITY, PREDICTED, PROBABILITY


def score_block(block: Block, model: PrototypeSet) -> Arrays:
    """Unscaled probabilities with all batches, for the training of the next round."""
    return {SCORES: model.scores(block[FEATURES.name], [model.n_batches])[0]}


def add_round_block(block: Block, model: PrototypeSet) -> Arrays:
    """Unscaled probabilities of the earlier rounds plus those of the last."""
    scores = np.array(block[SCORES])
    for batch in model.last_round:
        batch.kernel(model.n_classes, model.precision).add(block[FEATURES.name], scores)
    return {SCORES: scores}


def predict_features(
    features: NDArray[Any], model: PrototypeSet, n_batches: Sequence[int], calibrated: bool = False
) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Probabilities (N, K) and familiarity (N,) of some rows for each number of batches.

    Where they are to be `calibrated`, the numbers have to be `model.calibrated_batches()`.
    """
    found = [(probabilities(scores), familiarity(scores)) for scores in model.scores(features, n_batches)]
    if not calibrated:
        return found
    calibration = model.calibration
    if calibration is None or any(count != calibration.n_batches for count in n_batches):
        raise ValueError(f"the model has no calibration with {n_batches} batches")
    return [(calibration.apply(probability), evidence) for probability, evidence in found]


def predict_block(block: Block, model: PrototypeSet, n_batches: int, calibrated: bool = False) -> Arrays:
    """Probabilities, familiarity and index of the most probable class (the first, if several are) of a block.

    Where the block says what groups its rows belong to, or has columns to be handed on, so do its predictions. Rows
    that it marks have no prediction: NaN, and -1 for the class.
    """
    ((probability, evidence),) = predict_features(block[FEATURES.name], model, [n_batches], calibrated)
    besides = {name: block[name] for name in (GROUP.name, KEPT) if name in block}
    predicted = probability.argmax(axis=1).astype(np.int32)
    if MARKED in block:
        marked = block[MARKED]
        probability[marked], evidence[marked], predicted[marked] = np.nan, np.nan, -1
    return {PROBABILITY: probability, FAMILIARITY: evidence, PREDICTED: predicted, **besides}
