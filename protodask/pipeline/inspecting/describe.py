"""What lies at a path, as plain values.

Light to import, as what describes one kind of place is imported where one is found.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from protodask.data.places.locations import is_url, locate
from protodask.data.places.own_folder import SETTINGS_FILE
from protodask.data.places.references import follow
from protodask.data.places.registry_state import read_state
from protodask.data.places.storage import read_attributes, read_marker
from protodask.errors import FormatError, StorageError
from protodask.places import mask


def describe_place(path: str) -> dict[str, Any]:
    """A description of what lies at `path`: `kind` says whether it is a dataset, a model, a run or the like."""
    return follow(path, _describe)


def _describe(path: str) -> dict[str, Any]:
    where = locate(path)
    if not is_url(where):
        if not os.path.lexists(where):
            raise StorageError("not-found", f"There is nothing at {path}.", "Check the path.")
        if os.path.lexists(os.path.join(where, SETTINGS_FILE)):
            from protodask.pipeline.inspecting.run import describe_run

            return describe_run(where)
        if os.path.isfile(where) and where.endswith((".yaml", ".yml")):
            return describe_pipeline(path)
    record = read_marker(where) or read_attributes(where)
    if isinstance(record, dict) and (describe := BY_FORMAT.get(str(record.get("format")))) is not None:
        return describe(record, where)
    if read_state(where) is not None:
        raise FormatError("wrong-kind", f"{path} is a registry of models.", "Use `protodask registry list`.")
    raise FormatError(
        "wrong-kind",
        f"{path} is no dataset, model, run directory, predictions, decisions, budget, terms or pipeline file of "
        "protodask, or it is damaged.",
        "Give the path that `out` or `run_dir` named.",
    )


def describe_pipeline(path: str) -> dict[str, Any]:
    """How the last run of a pipeline file ended, and what became of each step when a run looked at it last."""
    from protodask.pipeline.file.definition import read_beforehand
    from protodask.pipeline.file.yaml_file import read_document
    from protodask.pipeline.state.records import State

    folder = locate(read_beforehand(path, ())[0])
    last = State(folder, path).last_run()
    if last is None:
        read_document(path)  # of a file that cannot be read nobody knows where its runs are noted
        raise StorageError(
            "not-found",
            f"Nothing is known of runs of the pipeline {path} in {folder}.",
            "Ask in the folder that it is run in; `protodask run --dry-run` says what a run would do.",
        )
    succeeded = last.known.succeeded
    return {
        **last.describe(),
        "kind": "pipeline",
        "path": mask(path),
        "state": folder,
        "ended": last.time.isoformat(),
        "succeeded": None if succeeded is None else succeeded.isoformat(),
        "steps": [outcome.describe() for outcome in last.known.steps],
    }


def _describe_scored(_record: dict[str, Any], path: str) -> dict[str, Any]:
    from protodask.pipeline.each_file.ledger import describe_ledger, read_ledger
    from protodask.pipeline.each_file.scoring import read_record

    columns = read_record(path).record["columns"]
    return {
        "kind": "folder of scored files",
        "path": mask(path),
        **describe_ledger(read_ledger(path)),
        "columns": [{"name": name, "type": kind} for name, kind in columns],
    }


def _describe_dataset(_record: dict[str, Any], path: str) -> dict[str, Any]:
    from protodask.data import Dataset

    return Dataset.open(path).describe()


def _describe_model(_record: dict[str, Any], path: str) -> dict[str, Any]:
    from protodask.pipeline.inspecting.model import describe_model
    from protodask.prototypes.model import load_model

    return describe_model(load_model(path), path)


def _describe_predictions(record: dict[str, Any], path: str) -> dict[str, Any]:
    from protodask.pipeline.inspecting.model import describe_predictions

    return describe_predictions(record, path)


def _describe_decisions(record: dict[str, Any], path: str) -> dict[str, Any]:
    from protodask.decisions.decision_store import describe_decisions

    return describe_decisions(record, path)


def _describe_budget(_record: dict[str, Any], path: str) -> dict[str, Any]:
    from protodask.pipeline.inspecting.budget import describe_budget

    return describe_budget(path)


def _describe_robust(record: dict[str, Any], path: str) -> dict[str, Any]:
    from protodask.pipeline.inspecting import robust
    from protodask.robust.model import load_robust_model

    match record["format"]:
        case "protodask-robust-model":
            return robust.describe_robust_model(load_robust_model(path), path)
        case "protodask-robust-predictions":
            return robust.describe_robust_predictions(record, path)
        case _:
            return robust.describe_terms(record, path)


BY_FORMAT: Mapping[str, Callable[[dict[str, Any], str], dict[str, Any]]] = {
    "protodask-dataset": _describe_dataset,
    "protodask-model": _describe_model,
    "protodask-predictions": _describe_predictions,
    "protodask-scored-files": _describe_scored,
    "protodask-decisions": _describe_decisions,
    "protodask-budget": _describe_budget,
    "protodask-robust-model": _describe_robust,
    "protodask-robust-predictions": _describe_robust,
    "protodask-robust-terms": _describe_robust,
}
"""What describes a place, by the format that its marker or its attributes name, from these."""
