"""What robust models, predictions, terms and run directories of robust fits are, as plain values."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from protodask.data.places.bounded import file_status
from protodask.data.places.locations import storage_errors
from protodask.data.places.records import describe_columns, recognize, unseal
from protodask.places import mask
from protodask.prototypes.runs import RunDirectory, read_history, read_log
from protodask.robust.bundle_run import STAGE
from protodask.robust.kept_terms import TERMS
from protodask.robust.model import RobustModel, robust_fingerprint
from protodask.robust.prediction import ROBUST_PREDICTIONS

PASSES = re.compile(rf"batch-([0-9]{{1,9}})-{STAGE}\.log", re.ASCII)
"""The log of the passes of one plane."""


def describe_robust_predictions(record: dict[str, Any], path: str) -> dict[str, Any]:
    """What robust predictions are of."""
    fields = unseal(recognize(record, ROBUST_PREDICTIONS, path))
    return {
        "kind": "robust predictions",
        "path": mask(path),
        "rows": fields.integer("rows", 0),
        "classes": list(fields.labels("classes")),
        "formulation": fields.text("formulation"),
        "model": fields.text("model"),
    }


def describe_terms(record: dict[str, Any], path: str) -> dict[str, Any]:
    """What the terms of robust fits are of."""
    fields = unseal(recognize(record, TERMS, path))
    return {
        "kind": "terms of robust fits",
        "path": mask(path),
        # Terms that were stored before do not say it, and fits take them as ever.
        **({"rows": fields.integer("rows", 0)} if "rows" in fields.record else {}),
        "features": fields.integer("features", 0),
        "dtype": fields.text("dtype"),
        "formulation": fields.text("formulation"),
        "data": fields.text("data"),
    }


def describe_robust_run(path: str, record: Mapping[str, Any]) -> dict[str, Any]:
    """How far a robust fit has come, from its run directory alone."""
    directory = RunDirectory.existing(path)
    with storage_errors(path, "reading"):
        names = {int(name[1]): name[0] for name in map(PASSES.fullmatch, os.listdir(path)) if name}
        done = {
            plane: sum(1 for _ in read_log(os.path.join(path, name), directory.seal_of(name)))
            for plane, name in sorted(names.items())
        }
        recorded = [file_status(path, names[plane]).st_mtime for plane, passes in done.items() if passes]
    return {
        "passes": [{"plane": plane, "passes": passes} for plane, passes in done.items()],
        "last_recorded": (
            datetime.fromtimestamp(max(recorded), UTC).isoformat(timespec="seconds") if recorded else None
        ),
        "planes": read_history(path, record) or [],
    }


def known_exactly(model: RobustModel) -> int:
    """How many features are a column of their own name, without bounds."""
    return len(set(model.features) & set(model.feature_names))


def describe_robust_model(model: RobustModel, path: str) -> dict[str, Any]:
    """What a robust model consists of; the weights of each plane in the order of their size."""
    return {
        "kind": "robust model",
        "path": mask(path),
        "fingerprint": robust_fingerprint(model),
        **describe_training(model),
        "precision": model.precision,
        "target": model.target_name,
        "classes": list(model.classes),
        "features": list(model.features),
        "known_exactly": known_exactly(model),
        "columns": describe_columns(model.columns),
        "planes": [
            {**plane, "weights": _largest_first(model.features, model.weights[number])}
            for number, plane in enumerate(describe_planes(model))
        ],
        "provenance": dict(model.provenance),
    }


def describe_training(model: RobustModel) -> dict[str, Any]:
    """The settings of a model, and how near it is to the best there is."""
    config = model.config
    return {
        "formulation": config.formulation,
        "eps": config.eps,
        "cost": config.C,
        "weighted": config.weighted,
        "gap": float(model.gap.max()),
        "gap_asked_for": config.gap,
        "converged": model.converged,
    }


def describe_planes(model: RobustModel) -> list[dict[str, Any]]:
    """What each plane tells apart, without its weights."""
    two = model.n_classes == 2
    return [
        {
            "class": label,
            "against": model.classes[0] if two else "the rest",
            "intercept": float(model.intercept[number]),
            "objective": float(model.objective[number]),
            "lower_bound": float(model.lower_bound[number]),
            "gap": float(model.gap[number]),
            "passes": model.passes[number],
        }
        for number, label in enumerate(model.classes[1:] if two else model.classes)
    ]


def _largest_first(features: Sequence[str], weights: np.ndarray[Any, Any]) -> list[dict[str, Any]]:
    order = np.argsort(-np.abs(weights), kind="stable").tolist()
    return [{"name": features[place], "weight": float(weights[place])} for place in order]
