"""`protodask info`: what a dataset, a model, a run directory or the like is."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from protodask.cli.console import Answer, give, say
from protodask.cli.grouping import grouped
from protodask.cli.options import Json
from protodask.errors import StorageError
from protodask.pipeline.steps.base import Option
from protodask.pipeline.steps.budget import guarantee_text, told_answers
from protodask.pipeline.steps.robust import what_is_known
from protodask.pipeline.steps.training import CONFIG_NAMES
from protodask.pipeline.steps.tune import MOST_TRIALS
from protodask.pipeline.telling.metrics import rows_of
from protodask.pipeline.telling.result import Pairs, Piece, Table, to_json_line
from protodask.pipeline.telling.wording import count, describe_seconds, number, shorten, size, value_text


@grouped
def info(
    path: Annotated[
        str,
        typer.Argument(
            metavar="DATA|MODEL|RUN|PIPELINE.yaml",
            help="A dataset, model, run directory, predictions, decisions, budget or pipeline file.",
        ),
    ],
    watch: Annotated[
        float | None,
        Option(
            "Describe it again after so many seconds, until it has finished or Ctrl-C is pressed.", "SECONDS", least=0.1
        ),
    ] = None,
    as_json: Json = False,
) -> Answer | None:
    """Describe what lies at a path, without reading rows; of a pipeline file, how its last run ended."""
    from protodask.data.places.references import split_reference
    from protodask.data.tables.source_files import check_present

    if split_reference(path) is None:
        check_present(path)
    from protodask.pipeline.inspecting.describe import describe_place

    if watch is None:
        return _answer(describe_place(path))
    _watch(path, watch, as_json)
    return None


def _answer(found: dict[str, Any]) -> Answer:
    return Answer(lambda: found, _told_description(found))


def _watch(path: str, seconds: float, as_json: bool) -> None:
    from protodask.pipeline.inspecting.describe import describe_place

    described: dict[str, Any] = {}
    while True:
        try:
            described = describe_place(path)
        except StorageError:
            if not described or os.path.lexists(path):
                raise
            typer.echo("The run directory is gone: the run has ended, or was removed.", err=True)
            return
        if as_json:
            typer.echo(to_json_line(described))
        else:
            give(_answer(described), as_json=False)
        if described.get("finished", True):
            return
        time.sleep(seconds)
        if not as_json:
            say()


def _told_description(found: Mapping[str, Any]) -> Iterator[Piece]:
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
            *_run_pairs(found),
            *([("start", value_text(found["start"]))] if found["start"] is not None else []),
            *_progress_pairs(found["progress"]),
            *([("output of the driver", shorten(found["driver_log"]))] if found["driver_log"] is not None else []),
            *((log["name"], size(log["bytes"])) for log in found["logs"]),
        ]
    )
    yield from _told_settings(found["config"])
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


def _told_search_run(found: Mapping[str, Any]) -> Iterator[Piece]:
    """How far a search has come, setting by setting."""
    begun = f"{found['fits_begun']:,} of {found['fits']:,} have recorded evaluations, {found['evaluations']:,} in all"
    final = found["final_fits"]
    yield Pairs(
        [
            *_run_pairs(found),
            ("fits", begun if found["fits"] else "none yet"),
            *_recorded_pairs(found["last_recorded"]),
            *([("output of the driver", shorten(found["driver_log"]))] if found["driver_log"] is not None else []),
        ]
    )
    if isinstance(found["search"], Mapping) and isinstance(found["config"], Mapping):
        yield ""
        yield Pairs(_search_settings(found["search"], found["config"]))
    if found["settings"]:
        yield ""
        begun_first = sorted(found["settings"], key=lambda entry: (-len(entry["losses"]), -entry["evaluations"]))
        yield Table(
            ["lambda_v", "lambda_w", "folds begun", "evaluations", "batches", "log-loss"],
            [
                [
                    f"{entry['lambda_v']:.3g}",
                    f"{entry['lambda_w']:.3g}",
                    f"{entry['folds_begun']} of {entry['folds']}",
                    f"{entry['evaluations']:,}",
                    str(len(entry["losses"])),
                    f"{entry['losses'][-1]:.5f}" if entry["losses"] else "",
                ]
                for entry in begun_first
            ],
        )
    for place, refit in enumerate(final, start=1):
        yield ""
        yield "Final fit" if len(final) == 1 else f"Final fit {place}"
        yield Pairs(_progress_pairs(refit))


def _search_settings(search: Mapping[str, Any], config: Mapping[str, Any]) -> list[tuple[str, str]]:
    """By the names that the command line gives them, without those that do not count."""
    from protodask.pipeline.work.settings import SEARCH_NAMES

    joint = search.get("strategy") == "joint"
    unused = {"lambda_w"} if joint else set()
    searched = {"n_batches", "lambda_v"} | ({"lambda_w"} if not joint else set())
    names = {long: short for short, long in SEARCH_NAMES.items()}
    short_names = {long: short for short, long in CONFIG_NAMES.items()}
    pairs = [(names.get(name, name), value) for name, value in search.items() if name not in unused]
    pairs += [(short_names.get(name, name), value) for name, value in config.items() if name not in searched]
    return [
        (str(name), " to ".join(map(value_text, value)) if isinstance(value, list) else value_text(value))
        for name, value in pairs
        if value is not None
    ]


def _told_budget_folder(found: Mapping[str, Any]) -> Iterator[Piece]:
    """What a budget on disk is."""
    low, high = found["sizes"]
    yield Pairs(
        [
            ("budget", shorten(found["path"])),
            ("target", found["target"]),
            ("sizes", f"{low:g} to {'any' if high is None or math.isinf(high) else f'{high:g}'}"),
            ("expanded", f"{found['expanded']:,} of {found['sets']:,} sets, {len(found['failures']):,} in vain"),
            ("candidates", f"{found['candidates']:,}"),
            ("entries", f"{found['entries']:,}"),
            ("models", f"{found['models']:,}"),
            ("alpha", value_text(found["alpha"])),
            ("gives", guarantee_text(found)),
        ]
    )
    yield ""
    yield Table(
        ["feature", "columns", "cost"],
        [
            [feature["name"], ", ".join(feature["columns"]), _polynomial(feature["cost"])]
            for feature in found["features"]
        ],
    )
    yield ""
    yield from told_answers(found["answers"])


def _polynomial(coefficients: Sequence[float]) -> str:
    terms = [
        f"{coefficient:g}" + ("" if power == 0 else " n" if power == 1 else f" n^{power}")
        for power, coefficient in enumerate(coefficients)
        if coefficient
    ]
    return " + ".join(terms) or "0"


def _told_budget_run(found: Mapping[str, Any]) -> Iterator[Piece]:
    """How far the building of a budget has come, from its run directory."""
    yield Pairs(
        [
            *_run_pairs(found),
            ("sets expanded", f"{found['expanded']:,}, {found['failed']:,} in vain"),
            ("models fitted", f"{found['models']:,}"),
            *_recorded_pairs(found["last_recorded"]),
        ]
    )
    yield ""
    rows = [[one["name"], ", ".join(one["columns"])] for one in found["features"]]
    yield Table(["feature", "columns"], rows, whole=True)


def _told_robust_model(found: Mapping[str, Any]) -> Iterator[Piece]:
    """What a robust model is."""
    rows = found["provenance"].get("rows")
    yield Pairs(
        [
            ("robust model", shorten(found["path"])),
            ("formulation", what_is_known(found["formulation"])),
            ("eps", value_text(found["eps"])),
            ("cost", value_text(found["cost"])),
            (
                "gap",
                f"{found['gap']:.2g}" + ("" if found["converged"] else f"; {found['gap_asked_for']:.2g} was asked for"),
            ),
            ("features", f"{len(found['features']):,}, of which {found['known_exactly']:,} known exactly"),
            ("target", found["target"]),
            ("classes", ", ".join(map(str, found["classes"]))),
            ("precision", found["precision"]),
            *([("trained on", f"{rows:,} rows of {found['provenance'].get('dataset')}")] if type(rows) is int else []),
            ("fingerprint", found["fingerprint"]),
        ]
    )
    for plane in found["planes"]:
        yield ""
        yield (
            f"{plane['class']} against {plane['against']} where w.x > {plane['intercept']:.6g}: "
            f"{count(plane['passes'], 'pass', 'passes')}, objective {plane['objective']:.6g}"
        )
        yield Table(["feature", "weight"], [[entry["name"], f"{entry['weight']:.4g}"] for entry in plane["weights"]])


def _told_robust_run(found: Mapping[str, Any]) -> Iterator[Piece]:
    """How far a robust fit has come, from its run directory."""
    yield Pairs([*_run_pairs(found), *_recorded_pairs(found["last_recorded"])])
    yield from _told_settings(found["config"])
    if found["planes"]:
        yield ""
        keys = ("status", "objective", "lower_bound")
        rows = [
            [str(number), str(len(plane.get("passes") or ())), *(value_text(plane.get(key)) for key in keys)]
            for number, plane in enumerate(found["planes"], 1)
        ]
        yield Table(["plane", "passes", *(key.replace("_", " ") for key in keys)], rows, whole=True)
    elif found["passes"]:
        yield ""
        rows = [[str(one["plane"]), str(one["passes"])] for one in found["passes"]]
        yield Table(["plane", "passes"], rows, whole=True)


def _told_robust_predictions(found: Mapping[str, Any]) -> Iterator[Piece]:
    """What robust predictions are."""
    yield Pairs(
        [
            ("robust predictions", shorten(found["path"])),
            ("rows", f"{found['rows']:,}"),
            ("classes", ", ".join(map(str, found["classes"]))),
            ("certified by", what_is_known(found["formulation"])),
            ("model", found["model"]),
        ]
    )


def _told_settings(config: object) -> Iterator[Piece]:
    """The settings of a fit, if its run directory says them."""
    if isinstance(config, Mapping):
        yield ""
        yield Pairs([(str(name), value_text(value)) for name, value in config.items()])


def _run_pairs(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What a run directory is of, and whether its run has ended."""
    return [
        ("run", shorten(found["path"])),
        ("state", "finished" if found["finished"] else "not finished: the same command continues it"),
        *([("dataset", value_text(found["dataset"]))] if found["dataset"] is not None else []),
    ]


def _recorded_pairs(last_recorded: str | None) -> list[tuple[str, str]]:
    """When the last evaluation was recorded, if there is one."""
    if last_recorded is None:
        return []
    recorded = datetime.fromisoformat(last_recorded)
    ago = max(0.0, (datetime.now(UTC) - recorded).total_seconds())
    return [("last recorded", f"{recorded:%Y-%m-%d %H:%M:%S} UTC, {describe_seconds(ago)} ago")]


def _progress_pairs(progress: Mapping[str, Any]) -> list[tuple[str, str]]:
    """How far a run is."""
    if progress["batch"] is None:
        return [("evaluations", "none yet")]
    place = f"batch {progress['batch']}, {progress['stage']}"
    if progress["of_batches"] is not None:
        place += f"; {progress['position']} of the run's {count(progress['of_batches'], 'batch', 'batches')}"
    here = (
        ""
        if progress["stage_evaluations"] == progress["evaluations"]
        else (f", {progress['stage_evaluations']:,} of them here")
    )
    return [
        ("at", place),
        ("evaluations", f"{progress['evaluations']:,}{here}"),
        (
            "objective",
            f"{value_text(progress['last_value'])}, the lowest so far {value_text(progress['lowest_value'])}",
        ),
        *_recorded_pairs(progress["last_recorded"]),
    ]


TOLD: Mapping[str, Callable[[Mapping[str, Any]], Iterator[Piece]]] = {
    "dataset": _told_dataset,
    "model": _told_model,
    "run": _told_run,
    "search": _told_search_run,
    "budget": _told_budget_folder,
    "budget run": _told_budget_run,
    "folder of scored files": _told_scored,
    "pipeline": _told_pipeline,
    "robust model": _told_robust_model,
    "robust run": _told_robust_run,
    "robust predictions": _told_robust_predictions,
}
"""By the kind of what lies there; of others, names and values."""
