"""`protodask info`: what a dataset, a model, a run directory or the like is."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any

import typer

from protodask.cli.console import Answer, Part, apart, give, known, remark, say
from protodask.cli.grouping import grouped
from protodask.cli.options import Json
from protodask.errors import StorageError, count
from protodask.pipeline.steps.base import Option
from protodask.pipeline.steps.budget import guarantee_text, told_answers
from protodask.pipeline.steps.robust import what_is_known
from protodask.pipeline.steps.training import CONFIG_NAMES
from protodask.pipeline.steps.tune import MOST_TRIALS
from protodask.pipeline.telling.metrics import rows_of
from protodask.pipeline.telling.result import (
    Pairs,
    Table,
    describe_seconds,
    number,
    shorten,
    size,
    to_json_line,
    told_note,
    value_text,
)

app = typer.Typer(add_completion=False)


@app.command("info")
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

    describe = partial(describe_place, path)
    if watch is None:
        return _answer(describe())
    _watch(path, describe, watch, as_json)
    return None


def _answer(found: dict[str, Any]) -> Answer:
    return Answer(lambda: found, apart(TOLD.get(found["kind"], _told_plainly)(found)))


def _watch(path: str, describe: Callable[[], dict[str, Any]], seconds: float, as_json: bool) -> None:
    described: dict[str, Any] = {}
    while True:
        try:
            described = describe()
        except StorageError:
            if not described or os.path.lexists(path):
                raise
            remark("The run directory is gone: the run has ended, or was removed.")
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


def _told_plainly(found: Mapping[str, Any]) -> Iterator[Part]:
    yield Pairs([(name, value_text(value)) for name, value in found.items()])


def _told_dataset(found: Mapping[str, Any]) -> Iterator[Part]:
    said = {
        **found,
        "dataset": shorten(found["path"]),
        "features": f"{found['features']:,} ({found['dtype']})",
        "blocks": f"{found['blocks']:,} of up to {found['block_rows']:,} rows, {size(found['bytes'])} in all",
    }
    roles = ("target", "weight", "inclusion", "group")
    yield _pairs(said, "dataset", "rows", "features", *roles, "sources", "blocks", "fingerprint")
    classes = [{**entry, "weight": number(entry["weight"])} for entry in found["classes"]]
    yield _table(classes, {"class": "{label}", "rows": "{rows:,}", "weight": "{weight}"})
    figures = {name: f"{{{name}:.4g}}" for name in ("mean", "deviation", "minimum", "maximum")}
    summary = _table(found["feature_summary"], {"feature": "{name}", **figures})
    yield [summary, *map(told_note, found["notes"])]


def _told_model(found: Mapping[str, Any]) -> Iterator[Part]:
    from protodask.selection.results import as_text, read_search

    calibration, batches = found["calibration"], str(len(found["batches"]))
    said = {
        **found,
        "model": shorten(found["path"]),
        "batches": f"{batches}, trained in {_rounds(found)}" if "rounds" in found else batches,
        "features": f"{found['active_features']:,} of {found['features']:,} are used",
        "calibration": None if calibration is None else _calibration_text(calibration),
    }
    names = ("model", "batches", "prototypes", "features", "target", "precision", "calibration", "fingerprint")
    yield _pairs(said, *names)
    yield _table(found["classes"], {"class": "{label}", "share": "{share:.4f}"})
    search = read_search(found["provenance"])
    if search is not None:
        yield as_text(search, MOST_TRIALS)
    for batch in found["batches"][:LISTED]:
        of_class = "" if batch["class"] is None else f" of class {batch['class']}"
        title = f"batch {batch['batch']}: {count(batch['prototypes'], 'prototype')}{of_class}"
        yield [title, _table(batch["features"], WEIGHTS)]
    if (more := len(found["batches"]) - LISTED) > 0:
        yield f"And {count(more, 'batch', 'batches')} more: --json has all."


def _rounds(found: Mapping[str, Any]) -> str:
    """Those that count for predictions: rounds of several draws are one."""
    match found["provenance"]:
        case {"fits": [*_, {"config": {"n_draws": int(draws)}}]} if draws > 1:
            return f"{count(len(found['rounds']), 'round')} of each draw"
    return count(len(found["rounds"]), "round")


def _calibration_text(found: Mapping[str, Any]) -> str:
    kind = "monotone splines" if found["monotone"] else "splines"
    batches = count(found["batches"], "batch", "batches")
    return f"{kind} of {count(found['bins'], 'bin')} for {batches}, fitted to {count(found['rows'], 'row')}"


def _told_run(found: Mapping[str, Any]) -> Iterator[Part]:
    yield _pairs(
        {
            **_of_run(found),
            "start": found["start"],
            **_progress(found["progress"]),
            **_driver_output(found),
            **{log["name"]: size(log["bytes"]) for log in found["logs"]},
        }
    )
    yield from _told_settings(found["config"])
    if found["batches"]:
        figures = ("status", "iterations", "evaluations", "value", "active_features", "prototypes", "seconds")
        keys = ("batch", "batches", *figures)
        rows = [[value_text(record.get(key, "")) for key in keys] for record in found["batches"]]
        yield [
            Table(["round", *(key.replace("_", " ") for key in keys[1:])], rows, whole=True),
            *_notes_on_rounds(found["batches"]),
        ]


def _notes_on_rounds(records: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Which have batches by region, and which are not in the model."""
    for key, wanted, said in (
        ("by_region", True, "by region, as rules over several features decide"),
        ("kept", False, "not in the model, as other draws lose clearly less on rows held out"),
    ):
        if found := [value_text(record.get("batch")) for record in records if record.get(key, not wanted) is wanted]:
            yield f"Note: {said}: round{'s' if len(found) > 1 else ''} {', '.join(found)}."


def _told_scored(found: Mapping[str, Any]) -> Iterator[Part]:
    newest = found["newest"]
    yield _pairs(
        {
            "scored files": shorten(found["path"]),
            "files": f"{found['files']:,}" + (f", {found['repeated']:,} repeated" if found["repeated"] else ""),
            "rows": f"{found['rows']:,}" + (f", {found['marked']:,} marked" if found["marked"] else ""),
            "newest": None if newest is None else f"{newest['file']}, scored {newest['time']}",
            "columns": [column["name"] for column in found["columns"]],
        }
    )
    if found["models"]:
        columns = {"model": "{model}", "files": "{files:,}", "rows": "{rows:,}", "last used": "{newest}"}
        yield _table(found["models"], columns)


def _told_pipeline(found: Mapping[str, Any]) -> Iterator[Part]:
    yield _pairs(
        {
            "pipeline": shorten(found["path"]),
            "last run": f"{found['status']}, {_moment(found['ended'])}, after {describe_seconds(found['seconds'])}",
            "last success": "none" if found["succeeded"] is None else _moment(found["succeeded"]),
            "message": found["message"] or None,
        }
    )
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


def _told_search_run(found: Mapping[str, Any]) -> Iterator[Part]:
    """How far a search has come, setting by setting."""
    begun = f"{found['fits_begun']:,} of {found['fits']:,} have recorded evaluations, {found['evaluations']:,} in all"
    yield _pairs(
        {
            **_of_run(found),
            "fits": begun if found["fits"] else "none yet",
            **_recorded(found["last_recorded"]),
            **_driver_output(found),
        }
    )
    if isinstance(found["search"], Mapping) and isinstance(found["config"], Mapping):
        yield Pairs(_search_settings(found["search"], found["config"]))
    if found["settings"]:
        begun_first = sorted(found["settings"], key=lambda entry: (-len(entry["losses"]), -entry["evaluations"]))
        yield _table(
            [
                {**entry, "batches": len(losses), "loss": f"{losses[-1]:.5f}" if losses else ""}
                for entry in begun_first
                for losses in [entry["losses"]]
            ],
            {
                "lambda_v": "{lambda_v:.3g}",
                "lambda_w": "{lambda_w:.3g}",
                "folds begun": "{folds_begun} of {folds}",
                "evaluations": "{evaluations:,}",
                "batches": "{batches}",
                "log-loss": "{loss}",
            },
        )
    final = found["final_fits"]
    for place, refit in enumerate(final, start=1):
        yield ["Final fit" if len(final) == 1 else f"Final fit {place}", _pairs(_progress(refit))]


def _search_settings(search: Mapping[str, Any], config: Mapping[str, Any]) -> list[tuple[str, str]]:
    """By the names that the command line gives them, without those that do not count."""
    from protodask.pipeline.work.settings import SEARCH_NAMES

    joint = search.get("strategy") == "joint"  # which takes lambda_w as the fits have it
    pairs = []
    for settings, outside, unused in (
        (search, SEARCH_NAMES, {"lambda_w"} if joint else set()),
        (config, CONFIG_NAMES, {"n_batches", "lambda_v"} if joint else {"n_batches", "lambda_v", "lambda_w"}),
    ):
        names = {inside: name for name, inside in outside.items()}
        for name, value in settings.items():
            if value is not None and name not in unused:
                said = " to ".join(map(value_text, value)) if isinstance(value, list) else value_text(value)
                pairs.append((names.get(name, name), said))
    return pairs


def _told_budget_folder(found: Mapping[str, Any]) -> Iterator[Part]:
    low, high = found["sizes"]
    said = {
        **found,
        "budget": shorten(found["path"]),
        "sizes": f"{low:g} to {'any' if high is None or math.isinf(high) else f'{high:g}'}",
        "expanded": f"{found['expanded']:,} of {found['sets']:,} sets, {len(found['failures']):,} in vain",
        "gives": guarantee_text(found),
    }
    names = ("budget", "target", "sizes", "expanded", "candidates", "entries", "models", "alpha", "gives")
    yield _pairs(said, *names)
    features = [[one["name"], ", ".join(one["columns"]), _polynomial(one["cost"])] for one in found["features"]]
    yield Table(["feature", "columns", "cost"], features)
    yield list(told_answers(found["answers"]))


def _polynomial(coefficients: Sequence[float]) -> str:
    terms = [
        f"{coefficient:g}" + ("" if power == 0 else " n" if power == 1 else f" n^{power}")
        for power, coefficient in enumerate(coefficients)
        if coefficient
    ]
    return " + ".join(terms) or "0"


def _told_budget_run(found: Mapping[str, Any]) -> Iterator[Part]:
    yield _pairs(
        {
            **_of_run(found),
            "sets expanded": f"{found['expanded']:,}, {found['failed']:,} in vain",
            "models fitted": found["models"],
            **_recorded(found["last_recorded"]),
        }
    )
    rows = [[one["name"], ", ".join(one["columns"])] for one in found["features"]]
    yield Table(["feature", "columns"], rows, whole=True)


def _told_robust_model(found: Mapping[str, Any]) -> Iterator[Part]:
    rows = found["provenance"].get("rows")
    missed = "" if found["converged"] else f"; {found['gap_asked_for']:.2g} was asked for"
    said = {
        **found,
        "robust model": shorten(found["path"]),
        "formulation": what_is_known(found["formulation"]),
        "gap": f"{found['gap']:.2g}{missed}",
        "features": f"{len(found['features']):,}, of which {found['known_exactly']:,} known exactly",
        "trained on": f"{rows:,} rows of {found['provenance'].get('dataset')}" if type(rows) is int else None,
    }
    settings = ("formulation", "eps", "cost", "gap", "features", "target", "classes", "precision")
    yield _pairs(said, "robust model", *settings, "trained on", "fingerprint")
    for plane in found["planes"]:
        title = (
            f"{plane['class']} against {plane['against']} where w.x > {plane['intercept']:.6g}: "
            f"{count(plane['passes'], 'pass', 'passes')}, objective {plane['objective']:.6g}"
        )
        yield [title, _table(plane["weights"], WEIGHTS)]


def _told_robust_run(found: Mapping[str, Any]) -> Iterator[Part]:
    yield _pairs({**_of_run(found), **_recorded(found["last_recorded"])})
    yield from _told_settings(found["config"])
    if found["planes"]:
        keys = ("status", "objective", "lower_bound")
        rows = [
            [str(number), str(len(plane.get("passes") or ())), *(value_text(plane.get(key)) for key in keys)]
            for number, plane in enumerate(found["planes"], 1)
        ]
        yield Table(["plane", "passes", *(key.replace("_", " ") for key in keys)], rows, whole=True)
    elif found["passes"]:
        yield Table(
            ["plane", "passes"], [[str(one["plane"]), str(one["passes"])] for one in found["passes"]], whole=True
        )


def _told_robust_predictions(found: Mapping[str, Any]) -> Iterator[Part]:
    path, known = shorten(found["path"]), what_is_known(found["formulation"])
    said = {**found, "robust predictions": path, "certified by": known}
    yield _pairs(said, "robust predictions", "rows", "classes", "certified by", "model")


def _told_settings(config: object) -> Iterator[Part]:
    """The settings of a fit, if its run directory says them."""
    if isinstance(config, Mapping):
        yield Pairs([(str(name), value_text(value)) for name, value in config.items()])


def _of_run(found: Mapping[str, Any]) -> dict[str, Any]:
    """What a run directory is of, and whether its run has ended."""
    return {
        "run": shorten(found["path"]),
        "state": "finished" if found["finished"] else "not finished: the same command continues it",
        "dataset": found["dataset"],
    }


def _driver_output(found: Mapping[str, Any]) -> dict[str, str]:
    return {} if found["driver_log"] is None else {"output of the driver": shorten(found["driver_log"])}


def _recorded(last_recorded: str | None) -> dict[str, str]:
    """When the last evaluation was recorded, if there is one."""
    if last_recorded is None:
        return {}
    recorded = datetime.fromisoformat(last_recorded)
    ago = max(0.0, (datetime.now(UTC) - recorded).total_seconds())
    return {"last recorded": f"{recorded:%Y-%m-%d %H:%M:%S} UTC, {describe_seconds(ago)} ago"}


def _progress(progress: Mapping[str, Any]) -> dict[str, str]:
    if progress["batch"] is None:
        return {"evaluations": "none yet"}
    place = f"round {progress['batch']}, {progress['stage']}"
    if progress["of_batches"] is not None:
        place += f"; {progress['position']} of the run's {count(progress['of_batches'], 'round')}"
    done, here = progress["evaluations"], progress["stage_evaluations"]
    value, lowest = value_text(progress["last_value"]), value_text(progress["lowest_value"])
    return {
        "at": place,
        "evaluations": f"{done:,}" + ("" if here == done else f", {here:,} of them here"),
        "objective": f"{value}, the lowest so far {lowest}",
        **_recorded(progress["last_recorded"]),
    }


def _pairs(said: Mapping[str, Any], *names: str) -> Pairs:
    """What is said by these names, or all of it, where it is known."""
    return known((name, said[name]) for name in names or said)


def _table(entries: Iterable[Mapping[str, Any]], columns: Mapping[str, str]) -> Table:
    """A line of each entry; for each column, by its heading, how its cells are made of the entry."""
    return Table(list(columns), [[form.format_map(entry) for form in columns.values()] for entry in entries])


LISTED = 12
"""Batches of a model whose features are listed."""

WEIGHTS = {"feature": "{name}", "weight": "{weight:.4g}"}
"""The columns of a table of features by weight."""

TOLD: Mapping[str, Callable[[Mapping[str, Any]], Iterator[Part]]] = {
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
