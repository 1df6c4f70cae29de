"""What models and their predictions are, as plain values."""

from __future__ import annotations

from typing import Any

import numpy as np

from protodask.data.places.records import describe_columns, recognize, unseal
from protodask.places import mask
from protodask.prototypes.batches import Batch
from protodask.prototypes.model import PrototypeSet
from protodask.prototypes.persistence import model_fingerprint


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
        "columns": describe_columns(model.columns),
        "batches": [_describe_batch(model, number, batch) for number, batch in enumerate(model.batches, start=1)],
        **({} if model.rounds is None else {"rounds": list(model.rounds)}),
        "calibration": None if model.calibration is None else model.calibration.describe(model.classes),
        "provenance": dict(model.provenance),
    }


def _describe_batch(model: PrototypeSet, number: int, batch: Batch) -> dict[str, Any]:
    heaviest = np.argsort(-batch.feature_weight, kind="stable")
    names = model.names_in(batch)
    return {
        "batch": number,
        "prototypes": batch.n_prototypes,
        "class": model.label_of(batch),
        "prototypes_by_class": np.bincount(batch.prototype_class, minlength=model.n_classes).tolist(),
        "features": [
            {"name": names[position], "weight": float(batch.feature_weight[position])} for position in heaviest.tolist()
        ],
    }


def describe_predictions(record: dict[str, Any], path: str) -> dict[str, Any]:
    """What predictions are of."""
    from protodask.prototypes.prediction import CALIBRATED, KEPT_COLUMNS, PREDICTIONS  # which brings what makes them

    fields = unseal(recognize(record, PREDICTIONS, path))
    return {
        "kind": "predictions",
        "path": mask(path),
        "rows": fields.integer("rows", 0),
        "classes": list(fields.labels("classes")),
        "batches": fields.integer("n_batches", 0),
        "calibrated": record.get(CALIBRATED) is True,
        "kept": list(fields.texts(KEPT_COLUMNS)) if KEPT_COLUMNS in record else [],
        "model": fields.text("model"),
    }
