"""The prototype set classifier: kernel, objective, candidates, training, model and its persistence."""

from protodask.prototypes.config import FitConfig
from protodask.prototypes.fitting import FitRun, fit
from protodask.prototypes.history import BatchDone, BatchRecord, BatchStarted, FitEvent, IterationDone
from protodask.prototypes.model import Batch, PrototypeSet
from protodask.prototypes.persistence import load_model
from protodask.prototypes.prediction import predict
from protodask.prototypes.training import ConvergenceWarning, LargeWeightWarning

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
