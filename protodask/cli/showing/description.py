"""What lies at a path, for people to read: datasets, models, runs and predictions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

from protodask.cli.showing.budget import told_budget_folder, told_budget_run
from protodask.cli.showing.robust import told_robust_model, told_robust_predictions, told_robust_run
from protodask.cli.showing.search import told_search_run
from protodask.pipeline.steps.tune import MOST_TRIALS
from protodask.pipeline.telling.figures import rows_of
from protodask.pipeline.telling.result import Pairs, Piece, Table
from protodask.pipeline.telling.wording import (
    count,
    describe_seconds,
    number,
    progress_pairs,
    run_pairs,
    shorten,
    size,
    value_text,
)


def told_description(found: Mapping[str, Any]) -> Iterator[Piece]:
    """What lies at a path."""
    told = TOLD.get(found["kind"])
    return iter([Pairs([(name, value_text(value)) for name, value in found.items()])]) if told is None else told(found)


def _told_dataset(found: Mapping[str, Any]) -> Iterator[Piece]:
    roles = [(name, str(found[name])) for name in ("target", "weight", "inclusion", "group") if found[name] is not None]
    yield Pairs(
        [
            ("dataset", shorten(found["path"])),
            ("rows", f"{found['rows']:,}"),
            ("features", f"{found['features']:,} ({found['dtype']})"),
            *roles,
            *([("sources", f"{found['sources']:,}")] if found["sources"] is not None else []),
            ("blocks", f"{found['blocks']:,} of up to {found['block_rows']:,} rows, {size(found['bytes'])} in all"),
            ("fingerprint", found["fingerprint"]),
        ]
    )
    yield ""
    rows = [[str(entry["label"]), f"{entry['rows']:,}", number(entry["weight"])] for entry in found["classes"]]
    yield Table(["class", "rows", "weight"], rows)
    yield ""
    rows = [
        [entry["name"], *(f"{entry[key]:.4g}" for key in ("mean", "deviation", "minimum", "maximum"))]
        for entry in found["feature_summary"]
    ]
    yield Table(["feature", "mean", "deviation", "minimum", "maximum"], rows)
    for note in found["notes"]:
        yield f"Note: {note}"


def _told_model(found: Mapping[str, Any]) -> Iterator[Piece]:
    from protodask.selection.results import as_text, read_search

    yield Pairs(
        [
            ("model", shorten(found["path"])),
            ("batches", _batches_text(found)),
            ("prototypes", f"{found['prototypes']:,}"),
            ("features", f"{found['active_features']:,} of {found['features']:,} are used"),
            ("target", found["target"]),
            ("precision", found["precision"]),
            *([("calibration", _calibration_text(found["calibration"]))] if found["calibration"] is not None else []),
            ("fingerprint", found["fingerprint"]),
        ]
    )
    yield ""
    yield Table(["class", "share"], [[str(entry["label"]), f"{entry['share']:.4f}"] for entry in found["classes"]])
    search = read_search(found["provenance"])
    if search is not None:
        yield ""
        yield as_text(search, MOST_TRIALS)
    for batch in found["batches"]:
        yield ""
        of_class = "" if batch["class"] is None else f" of class {batch['class']}"
        yield f"batch {batch['batch']}: {count(batch['prototypes'], 'prototype')}{of_class}"
        yield Table(["feature", "weight"], [[entry["name"], f"{entry['weight']:.4g}"] for entry in batch["features"]])


def _batches_text(found: Mapping[str, Any]) -> str:
    number_of = str(len(found["batches"]))
    return f"{number_of}, trained in {count(len(found['rounds']), 'round')}" if "rounds" in found else number_of


def _calibration_text(found: Mapping[str, Any]) -> str:
    kind = "monotone splines" if found["monotone"] else "splines"
    batches = count(found["batches"], "batch", "batches")
    return f"{kind} of {count(found['bins'], 'bin')} for {batches}, fitted to {count(found['rows'], 'row')}"


def _told_run(found: Mapping[str, Any]) -> Iterator[Piece]:
    yield Pairs(
        [
            *run_pairs(found),
            *([("start", value_text(found["start"]))] if found["start"] is not None else []),
            *progress_pairs(found["progress"]),
            *([("output of the driver", shorten(found["driver_log"]))] if found["driver_log"] is not None else []),
            *((log["name"], size(log["bytes"])) for log in found["logs"]),
        ]
    )
    if isinstance(found["config"], Mapping):
        yield ""
        yield Pairs([(str(name), value_text(value)) for name, value in found["config"].items()])
    if found["batches"]:
        keys = ("batch", "status", "iterations", "evaluations", "value", "active_features", "prototypes", "seconds")
        yield ""
        rows = [[value_text(record.get(key)) for key in keys] for record in found["batches"]]
        yield Table([key.replace("_", " ") for key in keys], rows, whole=True)


def _told_scored(found: Mapping[str, Any]) -> Iterator[Piece]:
    newest = found["newest"]
    yield Pairs(
        [
            ("scored files", shorten(found["path"])),
            ("files", f"{found['files']:,}" + (f", {found['repeated']:,} repeated" if found["repeated"] else "")),
            ("rows", f"{found['rows']:,}" + (f", {found['marked']:,} marked" if found["marked"] else "")),
            *([] if newest is None else [("newest", f"{newest['file']}, scored {newest['time']}")]),
            ("columns", ", ".join(column["name"] for column in found["columns"])),
        ]
    )
    if found["models"]:
        yield ""
        rows = [[one["model"], f"{one['files']:,}", f"{one['rows']:,}", one["newest"]] for one in found["models"]]
        yield Table(["model", "files", "rows", "last used"], rows)


def _told_pipeline(found: Mapping[str, Any]) -> Iterator[Piece]:
    yield Pairs(
        [
            ("pipeline", shorten(found["path"])),
            ("last run", f"{found['status']}, {_moment(found['ended'])}, after {describe_seconds(found['seconds'])}"),
            ("last success", "none" if found["succeeded"] is None else _moment(found["succeeded"])),
            *([("message", found["message"])] if found["message"] else []),
        ]
    )
    yield ""
    rows = []
    for step in found["steps"]:
        dealt_with = rows_of(step["result"] or {})
        rows.append(
            [
                str(step["number"]),
                step["name"],
                step["status"] + (f", {count(step['waiting'], 'file')} waiting" if step["waiting"] else ""),
                "-" if step["seconds"] is None else describe_seconds(step["seconds"]),
                "-" if dealt_with is None else f"{dealt_with:,}",
            ]
        )
    yield Table(["", "step", "status", "took", "rows"], rows, whole=True)


def _moment(text: str) -> str:
    return datetime.fromisoformat(text).astimezone().isoformat(" ", "seconds")


TOLD: Mapping[str, Callable[[Mapping[str, Any]], Iterator[Piece]]] = {
    "dataset": _told_dataset,
    "model": _told_model,
    "run": _told_run,
    "search": told_search_run,
    "budget": told_budget_folder,
    "budget run": told_budget_run,
    "folder of scored files": _told_scored,
    "pipeline": _told_pipeline,
    "robust model": told_robust_model,
    "robust run": told_robust_run,
    "robust predictions": told_robust_predictions,
}
"""By the kind of what lies there; of others, names and values."""
