"""What lies at a path, as plain values."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np

from protodask.budget.column_folder import BUDGET
from protodask.data import Dataset
from protodask.data.places.bounded import file_status
from protodask.data.places.locations import is_url, locate, storage_errors
from protodask.data.places.records import describe_columns, recognize, unseal
from protodask.data.places.references import follow
from protodask.data.places.registry_state import read_state
from protodask.data.places.storage import DATASET, read_attributes, read_marker
from protodask.decisions.decision_store import DECISIONS, describe_decisions
from protodask.errors import FormatError, StorageError
from protodask.pipeline.each_file.ledger import SCORED_FILES, describe_ledger, read_ledger
from protodask.pipeline.file.definition import read_beforehand
from protodask.pipeline.file.yaml_file import read_document
from protodask.pipeline.inspecting.budget import describe_budget, describe_budget_run
from protodask.pipeline.inspecting.robust import (
    describe_robust_model,
    describe_robust_predictions,
    describe_robust_run,
    describe_terms,
)
from protodask.pipeline.state.records import State
from protodask.places import mask
from protodask.prototypes.batches import Batch
from protodask.prototypes.model import PrototypeSet, load_model
from protodask.prototypes.persistence import MODEL, model_fingerprint
from protodask.prototypes.prediction import CALIBRATED, KEPT_COLUMNS, PREDICTIONS, RECORD
from protodask.prototypes.run_progress import DRIVER_LOG, RunProgress, read_progress
from protodask.prototypes.runs import HISTORY_FILE, SETTINGS_FILE, RunDirectory, read_arrays, read_history, read_run
from protodask.robust.kept_terms import TERMS
from protodask.robust.model import ROBUST_MODEL, load_robust_model
from protodask.robust.prediction import ROBUST_PREDICTIONS
from protodask.selection.search import LOSS
from protodask.selection.tuning import FITS, REFIT

LARGEST = sys.float_info.max
"""A JSON file may hold larger whole numbers."""


def describe_place(path: str) -> dict[str, Any]:
    """A description of what lies at `path`: `kind` says whether it is a dataset, a model, a run or the like."""
    return follow(path, _describe)


def _describe(path: str) -> dict[str, Any]:
    where = locate(path)
    if not is_url(where):
        if not os.path.lexists(where):
            raise StorageError("not-found", f"There is nothing at {path}.", "Check the path.")
        if os.path.lexists(os.path.join(where, SETTINGS_FILE)):
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
        "Give the path that --out or --run-dir named.",
    )


def describe_pipeline(path: str) -> dict[str, Any]:
    """How the last run of a pipeline file ended, and what became of each step when a run looked at it last."""
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


def describe_run(path: str) -> dict[str, Any]:
    """What a run directory records: settings, data, how far the run has come, and the batches if it has ended."""
    record = read_run(path)
    of_all = {
        "path": mask(path),
        "finished": os.path.exists(os.path.join(path, HISTORY_FILE)),
        "dataset": record.get("dataset"),
        "config": record.get("config"),
        "environment": record.get("environment"),
    }
    if isinstance(record.get("search"), dict):
        return {"kind": "search", **of_all, **_describe_search_run(path, record)}
    if isinstance(record.get("budget"), dict):
        return {"kind": "budget run", **of_all, **describe_budget_run(path, record)}
    if record.get("kind") == "robust":
        return {"kind": "robust run", **of_all, **describe_robust_run(path, record)}
    logs = sorted(name for name in os.listdir(path) if name.startswith("batch-") and name.endswith(".log"))
    return {
        "kind": "run",
        **of_all,
        "start": record.get("start"),
        "progress": read_progress(path).describe(),
        "driver_log": _driver_log(path),
        "logs": [{"name": name, "bytes": file_status(path, name).st_size} for name in logs],
        "batches": read_history(path, record) or [],
    }


@dataclass(frozen=True)
class _Fit:
    """The fit of one setting that holds one fold out."""

    setting: tuple[float, float]
    """Its penalties, `lambda_v` and `lambda_w`."""
    progress: RunProgress
    losses: Sequence[float]
    """Held-out log-loss by number of batches, from 1."""


def _describe_search_run(path: str, record: Mapping[str, Any]) -> dict[str, Any]:
    """What the run directory of a search records besides: how far each setting and the final fit are."""
    fits = [fit for run in _runs_in(os.path.join(path, FITS)) if (fit := _read_fit(run)) is not None]
    final = [read_progress(run) for run in _runs_in(os.path.join(path, REFIT))]  # one for each draw of candidates
    times = [stage.recorded for run in (*(fit.progress for fit in fits), *final) for stage in run.stages]
    return {
        "search": record.get("search"),
        "fits": len(fits),
        "fits_begun": sum(fit.progress.evaluations > 0 for fit in fits),
        "evaluations": sum(fit.progress.evaluations for fit in fits),
        "last_recorded": max(times).isoformat(timespec="seconds") if times else None,
        "settings": _by_setting(fits),
        "final_fits": [run.describe() for run in final],
        "driver_log": _driver_log(path),
    }


def _driver_log(path: str) -> str | None:
    place = os.path.join(path, DRIVER_LOG)
    return place if os.path.exists(place) else None


def _runs_in(folder: str) -> list[str]:
    """The run directories in a folder; one that is only just being made has no settings yet."""
    if not os.path.isdir(folder):
        return []
    with storage_errors(folder, "reading"):
        places = [os.path.join(folder, name) for name in sorted(os.listdir(folder))]
    return [place for place in places if os.path.exists(os.path.join(place, SETTINGS_FILE))]


def _read_fit(path: str) -> _Fit | None:
    record = read_run(path)
    config = record.get("config")
    penalties = [config.get(name) for name in ("lambda_v", "lambda_w")] if isinstance(config, dict) else []
    numbers = [float(value) for value in penalties if isinstance(value, float | int) and 0 <= value <= LARGEST]
    if len(numbers) != 2 or not isinstance(record.get("fold"), int):
        return None  # something else lies there
    lambda_v, lambda_w = numbers
    return _Fit((lambda_v, lambda_w), read_progress(path), tuple(_read_losses(RunDirectory.existing(path))))


def _read_losses(directory: RunDirectory) -> Iterator[float]:
    for batch in count(1):
        name = f"batch-{batch}-{LOSS}.arrays"
        found = read_arrays(os.path.join(directory.path, name), directory.seal_of(name))
        if found is None or found.keys() != {LOSS} or found[LOSS].shape != (1,):
            return
        yield float(found[LOSS][0])


def _by_setting(fits: Sequence[_Fit]) -> list[dict[str, Any]]:
    settings: dict[tuple[float, float], list[_Fit]] = {}
    for fit in fits:
        settings.setdefault(fit.setting, []).append(fit)
    return [
        {
            "lambda_v": lambda_v,
            "lambda_w": lambda_w,
            "folds": len(folds),
            "folds_begun": sum(fit.progress.evaluations > 0 for fit in folds),
            "evaluations": sum(fit.progress.evaluations for fit in folds),
            # Of the numbers of batches that all folds have come to, from 1.
            "losses": [sum(losses) / len(losses) for losses in zip(*(fit.losses for fit in folds), strict=False)],
        }
        for (lambda_v, lambda_w), folds in sorted(settings.items())
    ]


def _describe_scored(path: str) -> dict[str, Any]:
    from protodask.pipeline.each_file.scoring import read_record

    columns = read_record(path).record["columns"]
    return {
        "kind": "folder of scored files",
        "path": mask(path),
        **describe_ledger(read_ledger(path)),
        "columns": [{"name": name, "type": kind} for name, kind in columns],
    }


def _describe_predictions(record: dict[str, Any], path: str) -> dict[str, Any]:
    fields = unseal(recognize(record, RECORD, path))
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


BY_FORMAT: Mapping[str, Callable[[dict[str, Any], str], dict[str, Any]]] = {
    DATASET.format: lambda record, where: Dataset.open(where).describe(),
    MODEL.format: lambda record, where: describe_model(load_model(where), where),
    PREDICTIONS.format: _describe_predictions,
    SCORED_FILES.format: lambda record, where: _describe_scored(where),
    DECISIONS.format: describe_decisions,
    BUDGET.format: lambda record, where: describe_budget(where),
    ROBUST_MODEL.format: lambda record, where: describe_robust_model(load_robust_model(where), where),
    ROBUST_PREDICTIONS.format: describe_robust_predictions,
    TERMS.format: describe_terms,
}
"""What describes a place, by the format that its marker or its attributes name, from these."""
