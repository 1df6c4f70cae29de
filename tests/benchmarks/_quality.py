"""What the benchmarks of model quality share: how a method is judged, and the size of a model of proset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import accuracy_score, log_loss

if TYPE_CHECKING:
    from benchmarks import _datasets as datasets
else:
    import _datasets as datasets

OURS, PROSET, XGBOOST = "protodask", "proset", "xgboost"


@dataclass(frozen=True)
class Score:
    """How good probabilities are on the test rows."""

    log_loss: float
    """In nats; scikit-learn takes a probability of zero as 2e-16, which costs 36."""
    accuracy: float


def score(split: datasets.Split, probability: NDArray[np.floating]) -> Score:
    """Judge the probabilities (N, K) of the test rows."""
    labels = np.unique(split.train_target)
    return Score(
        log_loss=float(log_loss(split.test_target, probability, labels=labels)),
        accuracy=float(accuracy_score(split.test_target, labels[probability.argmax(axis=1)])),
    )


def size_of_proset(model: Any) -> tuple[int, int]:
    """Features that any batch of a proset model looks at, and prototypes of all batches."""
    batches = [batch for batch in model.set_manager_.get_batches() if batch is not None]
    features = {int(feature) for batch in batches for feature in batch["active_features"]}
    return len(features), sum(len(batch["target"]) for batch in batches)


def mean_known(values: Sequence[float | None]) -> float | None:
    """The mean of what is known, None if nothing is."""
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None
