"""What budgets on disk and the run directories of their builds are, as plain values."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from protodask.budget import BudgetIndex
from protodask.budget.column_folder import load_column_budget
from protodask.budget.column_index import EXPANSIONS
from protodask.budget.costs import CostCurves
from protodask.budget.folder import MODELS
from protodask.budget.noise import CONFIDENCE
from protodask.budget.recorded import read_record
from protodask.data.places.bounded import file_status
from protodask.data.places.locations import storage_errors
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


def describe_index(index: BudgetIndex, columns: Sequence[Sequence[str]]) -> dict[str, Any]:
    """An index by the names of its features, and what it answers at a few sizes."""
    curves = index.curves
    return {
        "features": [
            {"name": name, "columns": list(own), "cost": cost}
            for name, own, cost in zip(index.feature_names, columns, curves.coefficients.tolist(), strict=True)
        ],
        "sizes": [curves.low, curves.high],
        "alpha": index.alpha,
        "monotone_error": index.monotone_error,
        "guarantee": index.guarantee,
        "observed_error": index.observed_error,
        "guaranteed": index.guaranteed,
        "margin": index.margin,
        "confidence": CONFIDENCE,
        "sets": 2**curves.n_features,
        "expanded": index.expanded,
        "failures": [{"features": list(index.named(one.features)), "failure": one.failure} for one in index.failures],
        "candidates": len(index.sets),
        "entries": index.n_entries,
        "answers": [
            {
                "size": size,
                "choices": [
                    {"cost": choice.cost, "accuracy": choice.accuracy, "features": list(index.named(choice.features))}
                    for choice in index.skyline(size)
                ],
            }
            for size in shown_sizes(curves)
        ],
    }


def shown_sizes(curves: CostCurves) -> list[float]:
    """A few sizes to show answers at: one where no cost depends on it, else the ends of the range and one between."""
    low, high = curves.low, curves.high
    if not curves.coefficients[:, 1:].any() or low == high:
        return [low]
    if np.isinf(high):
        first = max(low, 1.0)
        return [first, 10 * first, 100 * first]
    # In ratio where the range is wide, as costs that are powers of the size are.
    middle = (low * high) ** 0.5 if low > 0 else (low + high) / 2
    return [low, middle, high]
