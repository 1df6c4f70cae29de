"""Scores of whole sources: the model as functions of a block."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protodask.data.schema import FEATURES
from protodask.engine import Arrays, Block
from protodask.prototypes.candidates import SCORES
from protodask.prototypes.model import Batch, PrototypeSet, familiarity, probabilities


def score_block(block: Block, model: PrototypeSet) -> Arrays:
    """Unscaled probabilities with all batches, for the training of the next."""
    return {SCORES: model.scores(block[FEATURES.name], [model.n_batches])[0]}


def add_batch_block(block: Block, batch: Batch, model: PrototypeSet) -> Arrays:
    """Unscaled probabilities of the earlier batches plus those of `batch`."""
    scores = np.array(block[SCORES])
    batch.kernel(model.n_classes, model.precision).add(block[FEATURES.name], scores)
    return {SCORES: scores}


def predict_features(
    features: NDArray[Any], model: PrototypeSet, n_batches: Sequence[int]
) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Probabilities (N, K) and familiarity (N,) of some rows for each number of batches."""
    return [(probabilities(scores), familiarity(scores)) for scores in model.scores(features, n_batches)]


PROBABILITY = "probability"
FAMILIARITY = "familiarity"
PREDICTED = "predicted"


def predict_block(block: Block, model: PrototypeSet, n_batches: int) -> Arrays:
    """Probabilities, familiarity and index of the most probable class (the first, if several are) of a block."""
    ((probability, evidence),) = predict_features(block[FEATURES.name], model, [n_batches])
    return {PROBABILITY: probability, FAMILIARITY: evidence, PREDICTED: probability.argmax(axis=1).astype(np.int32)}
