"""What lies at a path, as plain values."""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np

from protodask.data import Dataset
from protodask.data.schema import FORMAT_NAME
from protodask.data.storage import is_url, locate, read_attributes, read_marker
from protodask.errors import FormatError, StorageError
from protodask.places import mask
from protodask.prototypes.model import Batch, PrototypeSet
from protodask.prototypes.persistence import MODEL, load_model, model_fingerprint
from protodask.prototypes.prediction import PREDICTIONS
from protodask.prototypes.runs import SETTINGS_FILE, read_run


def describe_place(path: str) -> dict[str, Any]:
    """A description of the dataset, model, run directory or predictions at `path`; `kind` says which of them."""
    where = locate(path)
    if not is_url(where):
        if not os.path.lexists(where):
            raise StorageError(f"There is nothing at {path}.", "Check the path.")
        if os.path.exists(os.path.join(where, SETTINGS_FILE)):
            return describe_run(where)
    record = read_marker(where) or read_attributes(where)
    match record.get("format") if isinstance(record, dict) else None:
        case str(name) if name == FORMAT_NAME:
            return Dataset.open(where).describe()
        case str(name) if name == MODEL.format:
            return describe_model(load_model(where), where)
        case str(name) if name == PREDICTIONS.format and isinstance(record, dict):
            return _describe_predictions(record, where)
    raise FormatError(
        f"{path} is no dataset, model, run directory or predictions of protodask, or it is damaged.",
        "Give the path that --out or --run-dir named.",
    )


def describe_model(model: PrototypeSet, path: str) -> dict[str, Any]:
    """What a model consists of."""
    return {
        "kind": "model",
        "path": mask(path),
        "fingerprint": model_fingerprint(model),
        "precision": model.precision,
        "target": model.target_name,
        "classes": [
            {"label": label, "share": share}
            for label, share in zip(model.classes, model.marginals.tolist(), strict=True)
        ],
        "features": model.n_features,
        "active_features": len(model.active_features),
        "prototypes": model.n_prototypes,
        "columns": [
            {"name": column.name, "kind": column.kind, "categories": list(column.categories)}
            for column in model.columns
        ],
        "batches": [_describe_batch(model, number, batch) for number, batch in enumerate(model.batches, start=1)],
        "provenance": dict(model.provenance),
    }


def _describe_batch(model: PrototypeSet, number: int, batch: Batch) -> dict[str, Any]:
    heaviest = np.argsort(-batch.feature_weight, kind="stable")
    return {
        "batch": number,
        "prototypes": batch.n_prototypes,
        "prototypes_by_class": np.bincount(batch.prototype_class, minlength=model.n_classes).tolist(),
        "features": [
            {
                "name": model.feature_names[batch.feature_index[position]],
                "weight": float(batch.feature_weight[position]),
            }
            for position in heaviest.tolist()
        ],
    }


def describe_run(path: str) -> dict[str, Any]:
    """What a run directory records: settings, data, and the batches if the run has ended."""
    record = read_run(path)
    history = _read_history(path)
    logs = sorted(name for name in os.listdir(path) if name.startswith("batch-") and name.endswith(".log"))
    return {
        "kind": "run",
        "path": mask(path),
        "finished": history is not None,
        "dataset": record.get("dataset"),
        "start": record.get("start"),
        "config": record.get("config"),
        "environment": record.get("environment"),
        "logs": [{"name": name, "bytes": os.path.getsize(os.path.join(path, name))} for name in logs],
        "batches": history or [],
    }


def _read_history(path: str) -> list[dict[str, Any]] | None:
    file = os.path.join(path, "history.json")
    try:
        with open(file, encoding="utf-8") as opened:
            history = json.load(opened)
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{file} is damaged ({error}).", "Run the fit again with this run directory.") from error
    if not isinstance(history, list) or not all(isinstance(record, dict) for record in history):
        raise FormatError(f"{file} is not the history of a run.", "Run the fit again with this run directory.")
    return history


def _describe_predictions(record: dict[str, Any], path: str) -> dict[str, Any]:
    return {
        "kind": "predictions",
        "path": mask(path),
        "rows": record.get("rows"),
        "classes": record.get("classes"),
        "batches": record.get("n_batches"),
        "model": record.get("model"),
    }
