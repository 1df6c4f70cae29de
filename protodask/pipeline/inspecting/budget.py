"""What budgets on disk and the run directories of their builds are, as plain values."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from protodask.budget.column_folder import load_column_budget
from protodask.budget.column_index import EXPANSIONS
from protodask.budget.folder import MODELS
from protodask.budget.recorded import read_record
from protodask.data.places.bounded import file_status
from protodask.data.places.storage import storage_errors
from protodask.pipeline.results.budget import describe_index
from protodask.places import mask


def describe_budget(path: str) -> dict[str, Any]:
    """What an index of features is, and what it answers at a few sizes."""
    found = load_column_budget(path)
    return {
        "kind": "budget",
        "path": mask(path),
        "target": found.target_name,
        "classes": [{"label": label, "share": share} for label, share in zip(found.classes, found.shares, strict=True)],
        **describe_index(found.index, found.columns),
        "models": len(found.models),
    }


def describe_budget_run(path: str, record: Mapping[str, Any]) -> dict[str, Any]:
    """How far the building of a budget has come, from its run directory alone."""
    budget = record["budget"]
    features = budget.get("features")
    place = os.path.join(path, EXPANSIONS)
    expansions = list(read_record(place).values()) if os.path.lexists(place) else []
    models = os.path.join(path, MODELS)
    with storage_errors(path, "reading"):
        names = os.listdir(models) if os.path.isdir(models) else []
        recorded = (
            datetime.fromtimestamp(file_status(path, EXPANSIONS).st_mtime, UTC).isoformat(timespec="seconds")
            if expansions
            else None
        )
    return {
        "folds": budget.get("folds"),
        "features": [
            {"name": str(one[0]), "columns": list(map(str, one[1]))}
            for one in (features if isinstance(features, list) else [])
            if isinstance(one, list) and len(one) == 2 and isinstance(one[1], list)
        ],
        "expanded": len(expansions),
        "failed": sum(one.accuracy is None for one in expansions),
        "models": sum(not name.startswith(".") for name in names),
        "last_recorded": recorded,
    }
