"""The prototype set classifier: kernel, objective, candidates, training, model and its persistence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protodask._lazy import lazy_names

if TYPE_CHECKING:
    from protodask.prototypes.batches import Batch
    from protodask.prototypes.config import FitConfig
    from protodask.prototypes.convergence import ConvergenceWarning
    from protodask.prototypes.fitting import FitRun, fit
    from protodask.prototypes.history import BatchDone, BatchRecord, BatchStarted, FitEvent, IterationDone
    from protodask.prototypes.model import PrototypeSet, load_model
    from protodask.prototypes.prediction import predict
    from protodask.prototypes.training import LargeWeightWarning

_HOMES = {
    "Batch": "protodask.prototypes.batches",
    "BatchDone": "protodask.prototypes.history",
    "BatchRecord": "protodask.prototypes.history",
    "BatchStarted": "protodask.prototypes.history",
    "ConvergenceWarning": "protodask.prototypes.convergence",
    "FitConfig": "protodask.prototypes.config",
    "FitEvent": "protodask.prototypes.history",
    "FitRun": "protodask.prototypes.fitting",
    "IterationDone": "protodask.prototypes.history",
    "LargeWeightWarning": "protodask.prototypes.training",
    "PrototypeSet": "protodask.prototypes.model",
    "fit": "protodask.prototypes.fitting",
    "load_model": "protodask.prototypes.model",
    "predict": "protodask.prototypes.prediction",
}

__all__ = [
    "Batch",
    "BatchDone",
    "BatchRecord",
    "BatchStarted",
    "ConvergenceWarning",
    "FitConfig",
    "FitEvent",
    "FitRun",
    "IterationDone",
    "LargeWeightWarning",
    "PrototypeSet",
    "fit",
    "load_model",
    "predict",
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
