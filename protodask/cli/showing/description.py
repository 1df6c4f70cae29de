"""What lies at a path, for people to read: datasets, models, runs and predictions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from protodask.cli.showing.budget import show_budget_folder, show_budget_run
from protodask.cli.showing.console import say, say_pairs, say_some, say_table, show_json
from protodask.cli.showing.files import show_scored_folder
from protodask.cli.showing.robust import show_robust_model, show_robust_predictions, show_robust_run
from protodask.cli.showing.search import show_search, show_search_run
from protodask.pipeline.telling.wording import count, number, progress_pairs, run_pairs, shorten, size, value_text


def show_description(description: Mapping[str, Any], as_json: bool) -> None:
    """What lies at a path."""
    if as_json:
        show_json(description)
        return
    match description["kind"]:
        case "dataset":
            _show_dataset(description)
        case "model":
            _show_model(description)
        case "run":
            _show_run(description)
        case "search":
            show_search_run(description)
        case "budget":
            show_budget_folder(description)
        case "budget run":
            show_budget_run(description)
        case "folder of scored files":
            show_scored_folder(description)
        case "robust model":
            show_robust_model(description)
        case "robust run":
            show_robust_run(description)
        case "robust predictions":
            show_robust_predictions(description)
        case _:
            say_pairs([(name, value_text(value)) for name, value in description.items()])


def _show_dataset(found: Mapping[str, Any]) -> None:
    roles = [(name, str(found[name])) for name in ("target", "weight", "inclusion", "group") if found[name] is not None]
    say_pairs(
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
    say()
    rows = [[str(entry["label"]), f"{entry['rows']:,}", number(entry["weight"])] for entry in found["classes"]]
    say_some(["class", "rows", "weight"], rows)
    say()
    rows = [
        [entry["name"], *(f"{entry[key]:.4g}" for key in ("mean", "deviation", "minimum", "maximum"))]
        for entry in found["feature_summary"]
    ]
    say_some(["feature", "mean", "deviation", "minimum", "maximum"], rows)
    for note in found["notes"]:
        say(f"Note: {note}")


def _show_model(found: Mapping[str, Any]) -> None:
    from protodask.selection.results import read_search

    say_pairs(
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
    say()
    say_some(["class", "share"], [[str(entry["label"]), f"{entry['share']:.4f}"] for entry in found["classes"]])
    search = read_search(found["provenance"])
    if search is not None:
        say()
        show_search(search)
    for batch in found["batches"]:
        say()
        of_class = "" if batch["class"] is None else f" of class {batch['class']}"
        say(f"batch {batch['batch']}: {count(batch['prototypes'], 'prototype')}{of_class}")
        say_some(["feature", "weight"], [[entry["name"], f"{entry['weight']:.4g}"] for entry in batch["features"]])


def _batches_text(found: Mapping[str, Any]) -> str:
    number_of = str(len(found["batches"]))
    return f"{number_of}, trained in {count(len(found['rounds']), 'round')}" if "rounds" in found else number_of


def _calibration_text(found: Mapping[str, Any]) -> str:
    kind = "monotone splines" if found["monotone"] else "splines"
    batches = count(found["batches"], "batch", "batches")
    return f"{kind} of {count(found['bins'], 'bin')} for {batches}, fitted to {count(found['rows'], 'row')}"


def _show_run(found: Mapping[str, Any]) -> None:
    say_pairs(
        [
            *run_pairs(found),
            *([("start", value_text(found["start"]))] if found["start"] is not None else []),
            *progress_pairs(found["progress"]),
            *([("output of the driver", shorten(found["driver_log"]))] if found["driver_log"] is not None else []),
            *((log["name"], size(log["bytes"])) for log in found["logs"]),
        ]
    )
    if isinstance(found["config"], Mapping):
        say()
        say_pairs([(str(name), value_text(value)) for name, value in found["config"].items()])
    if found["batches"]:
        keys = ("batch", "status", "iterations", "evaluations", "value", "active_features", "prototypes", "seconds")
        say()
        say_table(
            [key.replace("_", " ") for key in keys],
            [[value_text(record.get(key)) for key in keys] for record in found["batches"]],
        )
