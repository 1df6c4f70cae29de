"""What the run directories of fits and searches record, as plain values."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from protodask.data.places.bounded import file_status
from protodask.data.places.locations import storage_errors
from protodask.data.places.own_folder import SETTINGS_FILE
from protodask.places import mask
from protodask.prototypes.run_progress import DRIVER_LOG, RunProgress, read_progress
from protodask.prototypes.runs import HISTORY_FILE, RunDirectory, read_arrays, read_history, read_run

LARGEST = sys.float_info.max
"""A JSON file may hold larger whole numbers."""


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
        from protodask.pipeline.inspecting.budget import describe_budget_run

        return {"kind": "budget run", **of_all, **describe_budget_run(path, record)}
    if record.get("kind") == "robust":
        from protodask.pipeline.inspecting.robust import describe_robust_run

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


def _driver_log(path: str) -> str | None:
    place = os.path.join(path, DRIVER_LOG)
    return place if os.path.exists(place) else None


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
    from protodask.selection.tuning import FITS, REFIT

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
    from protodask.selection.search import LOSS

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
