"""How far a search has come, from its run directory alone."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from protodask.data.places.locations import storage_errors
from protodask.prototypes.run_arrays import read_arrays
from protodask.prototypes.run_progress import DRIVER_LOG, read_progress
from protodask.prototypes.runs import SETTINGS_FILE, RunDirectory, read_run
from protodask.selection.search import LOSS
from protodask.selection.tuning import FITS, REFIT

LARGEST = sys.float_info.max
"""A JSON file may hold larger whole numbers."""


@dataclass(frozen=True)
class FoldProgress:
    """How far the fit of one setting that holds one fold out has come."""

    lambda_v: float
    lambda_w: float
    fold: int
    evaluations: int
    losses: tuple[float, ...]
    """Held-out log-loss by number of batches, from 1."""
    recorded: datetime | None
    """When the last evaluation was written down, in UTC."""


def describe_search_run(path: str, record: Mapping[str, Any]) -> dict[str, Any]:
    """What the run directory of a search records besides: how far each setting and the final fit are."""
    fits = [fit for run in _runs_in(os.path.join(path, FITS)) if (fit := _read_fit(run)) is not None]
    final = [read_progress(run) for run in _runs_in(os.path.join(path, REFIT))]  # one for each draw of candidates
    times = [fit.recorded for fit in fits if fit.recorded is not None]
    times += [stage.recorded for run in final for stage in run.stages]
    driver_log = os.path.join(path, DRIVER_LOG)
    return {
        "search": record.get("search"),
        "fits": len(fits),
        "fits_begun": sum(fit.evaluations > 0 for fit in fits),
        "evaluations": sum(fit.evaluations for fit in fits),
        "last_recorded": max(times).isoformat(timespec="seconds") if times else None,
        "settings": _by_setting(fits),
        "final_fits": [run.describe() for run in final],
        "driver_log": driver_log if os.path.exists(driver_log) else None,
    }


def _runs_in(folder: str) -> list[str]:
    """The run directories in a folder; one that is only just being made has no settings yet."""
    if not os.path.isdir(folder):
        return []
    with storage_errors(folder, "reading"):
        places = [os.path.join(folder, name) for name in sorted(os.listdir(folder))]
    return [place for place in places if os.path.exists(os.path.join(place, SETTINGS_FILE))]


def _read_fit(path: str) -> FoldProgress | None:
    record = read_run(path)
    config, fold = record.get("config"), record.get("fold")
    penalties = [config.get(name) for name in ("lambda_v", "lambda_w")] if isinstance(config, dict) else []
    numbers = [float(value) for value in penalties if isinstance(value, float | int) and 0 <= value <= LARGEST]
    if len(numbers) != 2 or not isinstance(fold, int):
        return None  # something else lies there
    lambda_v, lambda_w = numbers
    progress = read_progress(path)
    current = progress.current
    return FoldProgress(
        lambda_v,
        lambda_w,
        fold,
        evaluations=progress.evaluations,
        losses=tuple(_read_losses(RunDirectory.existing(path))),
        recorded=None if current is None else current.recorded,
    )


def _read_losses(directory: RunDirectory) -> Iterable[float]:
    batch = 1
    while True:
        name = f"batch-{batch}-{LOSS}.arrays"
        found = read_arrays(os.path.join(directory.path, name), directory.seal_of(name))
        if found is None or found.keys() != {LOSS} or found[LOSS].shape != (1,):
            return
        yield float(found[LOSS][0])
        batch += 1


def _by_setting(fits: Sequence[FoldProgress]) -> list[dict[str, Any]]:
    settings: dict[tuple[float, float], list[FoldProgress]] = {}
    for fit in fits:
        settings.setdefault((fit.lambda_v, fit.lambda_w), []).append(fit)
    return [
        {
            "lambda_v": lambda_v,
            "lambda_w": lambda_w,
            "folds": len(folds),
            "folds_begun": sum(fit.evaluations > 0 for fit in folds),
            "evaluations": sum(fit.evaluations for fit in folds),
            # Of the numbers of batches that all folds have come to, from 1.
            "losses": [sum(losses) / len(losses) for losses in zip(*(fit.losses for fit in folds), strict=False)],
        }
        for (lambda_v, lambda_w), folds in sorted(settings.items())
    ]
