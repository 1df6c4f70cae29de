"""Prototype set classification on Dask and Zarr, for data larger than memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protodask._lazy import lazy_names
from protodask._version import __version__

if TYPE_CHECKING:
    from protodask.data.format.dataset import Dataset
    from protodask.data.tables.ingest import ingest
    from protodask.data.tables.synthetic import sample_data
    from protodask.engine import Engine, thread_engine
    from protodask.errors import InputError, ProtodaskError
    from protodask.evaluation.splitting import split
    from protodask.evaluation.subsampling import subsample
    from protodask.prototypes.config import FitConfig
    from protodask.prototypes.estimator import PrototypeSetClassifier
    from protodask.prototypes.fitting import fit
    from protodask.prototypes.model import PrototypeSet, load_model
    from protodask.prototypes.planning import Plan, plan
    from protodask.prototypes.prediction import predict
    from protodask.selection.config import SearchConfig
    from protodask.selection.estimator import PrototypeSetSearchCV
    from protodask.selection.tuning import tune

_HOMES = {
    "Dataset": "protodask.data.format.dataset",
    "Engine": "protodask.engine",
    "FitConfig": "protodask.prototypes.config",
    "InputError": "protodask.errors",
    "Plan": "protodask.prototypes.planning",
    "ProtodaskError": "protodask.errors",
    "PrototypeSet": "protodask.prototypes.model",
    "PrototypeSetClassifier": "protodask.prototypes.estimator",
    "PrototypeSetSearchCV": "protodask.selection.estimator",
    "SearchConfig": "protodask.selection.config",
    "fit": "protodask.prototypes.fitting",
    "ingest": "protodask.data.tables.ingest",
    "load_model": "protodask.prototypes.model",
    "plan": "protodask.prototypes.planning",
    "predict": "protodask.prototypes.prediction",
    "sample_data": "protodask.data.tables.synthetic",
    "split": "protodask.evaluation.splitting",
    "subsample": "protodask.evaluation.subsampling",
    "thread_engine": "protodask.engine",
    "tune": "protodask.selection.tuning",
}
"""Public names and their modules, imported on first use: the command line starts without scikit-learn and Zarr."""

__all__ = [
    "Dataset",
    "Engine",
    "FitConfig",
    "InputError",
    "Plan",
    "ProtodaskError",
    "PrototypeSet",
    "PrototypeSetClassifier",
    "PrototypeSetSearchCV",
    "SearchConfig",
    "__version__",
    "fit",
    "ingest",
    "load_model",
    "plan",
    "predict",
    "sample_data",
    "split",
    "subsample",
    "thread_engine",
    "tune",
]


__getattr__, __dir__ = lazy_names(__name__, _HOMES)
