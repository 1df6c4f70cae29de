"""Results for people to read, or as JSON."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import typer

from protodask.cli.console import say, say_pairs, say_table
from protodask.cli.progress import describe_seconds
from protodask.places import mask

if TYPE_CHECKING:
    from protodask.evaluation.metrics import Scores
    from protodask.pipeline.definition import Pipeline
    from protodask.pipeline.model_scores import ModelScores
    from protodask.pipeline.results import (
        ModelCalibrated,
        ModelEvaluated,
        ModelFitted,
        ModelTuned,
        ReportWritten,
        Result,
    )

MOST_LINES = 20
"""Lines of a list that are shown; --json has all."""


def show_result(result: Result, as_json: bool) -> None:
    """What a step left behind."""
    from protodask.pipeline.results import (
        DatasetSubsampled,
        DatasetWritten,
        DecisionsWritten,
        ModelCalibrated,
        ModelEvaluated,
        ModelFitted,
        ModelTuned,
        PolicyEvaluated,
        PredictionsWritten,
        ReportWritten,
    )

    if as_json:
        show_json(result.describe())
        return
    match result:
        case DatasetWritten():
            say(summarize_result(result))
            for note in result.dataset.notes:
                say(f"Note: {note}")
        case DatasetSubsampled():
            from protodask.cli.show_subsample import show_subsample

            show_subsample(result)
        case ModelEvaluated():
            _show_scores(result)
        case ModelTuned():
            from protodask.cli.show_search import show_tuned

            show_tuned(result)
        case ModelCalibrated():
            say(summarize_result(result))
            for note in result.notes:
                say(f"Note: {note}")
        case DecisionsWritten():
            from protodask.cli.show_decisions import show_decisions

            show_decisions(result)
        case PolicyEvaluated():
            from protodask.cli.show_policy import show_policy

            show_policy(result)
        case ModelFitted() | PredictionsWritten() | ReportWritten():
            say(summarize_result(result))


def show_json(value: Any) -> None:
    """A value as JSON on standard output."""
    from protodask.pipeline.json_file import to_json

    typer.echo(to_json(value))


def summarize_result(result: Result) -> str:
    """What a step left behind, in one line."""
    from protodask.pipeline.results import (
        DatasetSubsampled,
        DatasetWritten,
        DecisionsWritten,
        ModelCalibrated,
        ModelEvaluated,
        ModelFitted,
        ModelTuned,
        PolicyEvaluated,
        PredictionsWritten,
        ReportWritten,
    )

    match result:
        case DatasetWritten(dataset):
            return (
                f"The dataset {shorten(dataset.path)} has {dataset.n_rows:,} rows, "
                f"{count(dataset.n_features, 'feature')} and {len(dataset.classes)} classes."
            )
        case DatasetSubsampled():
            from protodask.cli.show_subsample import summarize_subsample

            return summarize_subsample(result)
        case ModelFitted():
            return summarize_fit(result)
        case ModelTuned():
            from protodask.cli.show_search import summarize_choice

            return f"{summarize_fit(result)} {summarize_choice(result)}"
        case ModelCalibrated():
            return _summarize_calibration(result)
        case PredictionsWritten():
            kind = "calibrated predictions" if result.calibrated else "predictions"
            return f"The {kind} {shorten(result.path)} have {result.rows:,} rows."
        case ModelEvaluated():
            return _summarize_scores(result.scores, result.data)
        case DecisionsWritten():
            from protodask.cli.show_decisions import summarize_decisions

            return summarize_decisions(result)
        case PolicyEvaluated():
            from protodask.cli.show_policy import summarize_policy

            return summarize_policy(result)
        case ReportWritten():
            return _summarize_report(result)


def summarize_fit(result: ModelFitted | ModelTuned) -> str:
    """What a training left behind, in one line."""
    model = result.model
    seconds = math.fsum(record.seconds for record in result.history)
    return (
        f"The model {shorten(result.path)} has {count(model.n_batches, 'batch', 'batches')} with "
        f"{count(model.n_prototypes, 'prototype')} and uses {len(model.active_features)} of "
        f"{count(model.n_features, 'feature')}; training took {describe_seconds(seconds)}."
    )


def _summarize_calibration(result: ModelCalibrated) -> str:
    found = result.calibration
    return (
        f"The model {shorten(result.path)} has a calibration of {count(found.n_batches, 'batch', 'batches')}, fitted "
        f"to {count(found.rows, 'row')}; --calibrated asks for its probabilities."
    )


def _summarize_report(result: ReportWritten) -> str:
    drifted = "" if result.alarming is None else f" {count(result.alarming, 'feature')} drifted strongly."
    return (
        f"The report {shorten(result.path)} on {result.rows:,} rows has {size(result.size)}; open it in a browser."
        f"{drifted}"
    )


def _summarize_scores(scores: ModelScores, data: str) -> str:
    found = scores.scores
    who = "calibrated model" if scores.calibrated else "model"
    return (
        f"The {who} is right on {found.accuracy:.1%} of the {found.rows:,} rows of {mask(data)}. Its log-loss there is "
        f"{found.log_loss:.4f}; always predicting the class shares of the training data has "
        f"{scores.marginal_log_loss:.4f}, perfect predictions have 0."
    )


def _doubt(scores: Scores) -> str:
    """How exact an area under the curve is, where it is not exact, and what sampling leaves open of it."""
    interval = scores.roc_auc_interval
    drawn = "" if interval is None else f"95 per cent interval {interval[0]:.6f} to {interval[1]:.6f}"
    # With two digits, and never less than it is: rounding takes off less than the twentieth that is added.
    inexact = f"off by at most {1.05 * scores.roc_auc_error:.1e}" if scores.roc_auc_error else ""
    said = "; ".join(part for part in (inexact, drawn) if part)
    return f" ({said})" if said else ""


def _show_scores(result: ModelEvaluated) -> None:
    scores = result.scores.scores
    say(_summarize_scores(result.scores, result.data))
    say()
    pairs = [
        ("log-loss", f"{scores.log_loss:.6f}"),
        ("accuracy", f"{scores.accuracy:.6f}"),
        ("balanced accuracy", f"{scores.balanced_accuracy:.6f}"),
        ("Brier score", f"{scores.brier_score:.6f}"),
    ]
    if scores.roc_auc is not None:
        pairs.append(("ROC AUC", f"{scores.roc_auc:.6f}{_doubt(scores)}"))
    if scores.roc_auc_weighted is not None and len(result.scores.classes) > 2:
        pairs.append(("ROC AUC, weighted by class", f"{scores.roc_auc_weighted:.6f}"))
    say_pairs(pairs)
    if len(result.scores.classes) <= MOST_LINES:
        say()
        say("Confusion (rows: true class, columns: predicted class)")
        names = [str(label) for label in result.scores.classes]
        say_table(["", *names], [[name, *map(number, row)] for name, row in zip(names, scores.confusion, strict=True)])
    if result.path is not None:
        say()
        say(f"The scores are in {shorten(result.path)}.")


def show_pipeline(pipeline: Pipeline, results: Sequence[Result], as_json: bool) -> None:
    """What the steps of a pipeline left behind: places first, then what it amounts to."""
    from protodask.pipeline.results import ModelEvaluated
    from protodask.pipeline.steps import step_name

    if as_json:
        steps = zip(pipeline.steps, results, strict=True)
        show_json([{"step": step_name(step), "result": result.describe()} for step, result in steps])
        return
    for result in results:
        if not isinstance(result, ModelEvaluated):
            say(summarize_result(result))
        elif result.path is not None:
            say(f"The scores {shorten(result.path)} are those of {shorten(result.model)} on {shorten(result.data)}.")
    for result in results:
        if isinstance(result, ModelEvaluated):
            say()
            say(summarize_result(result))


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
            from protodask.cli.show_search import show_search_run

            show_search_run(description)
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
    from protodask.cli.show_search import show_search
    from protodask.selection.results import read_search

    say_pairs(
        [
            ("model", shorten(found["path"])),
            ("batches", str(len(found["batches"]))),
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
        say(f"batch {batch['batch']}: {count(batch['prototypes'], 'prototype')}")
        say_some(["feature", "weight"], [[entry["name"], f"{entry['weight']:.4g}"] for entry in batch["features"]])


def _calibration_text(found: Mapping[str, Any]) -> str:
    kind = "monotone splines" if found["monotone"] else "splines"
    batches = count(found["batches"], "batch", "batches")
    return f"{kind} of {count(found['bins'], 'bin')} for {batches}, fitted to {count(found['rows'], 'row')}"


def _show_run(found: Mapping[str, Any]) -> None:
    say_pairs(
        [
            ("run", shorten(found["path"])),
            ("state", "finished" if found["finished"] else "not finished: the same command continues it"),
            ("dataset", value_text(found["dataset"])),
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


def recorded_pairs(last_recorded: str | None) -> list[tuple[str, str]]:
    """When the last evaluation was recorded, if there is one."""
    if last_recorded is None:
        return []
    recorded = datetime.fromisoformat(last_recorded)
    ago = max(0.0, (datetime.now(UTC) - recorded).total_seconds())
    return [("last recorded", f"{recorded:%Y-%m-%d %H:%M:%S} UTC, {describe_seconds(ago)} ago")]


def progress_pairs(progress: Mapping[str, Any]) -> list[tuple[str, str]]:
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
        *recorded_pairs(progress["last_recorded"]),
    ]


def say_some(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table, of many rows the first ones."""
    say_table(header, rows[:MOST_LINES])
    if len(rows) > MOST_LINES:
        say(f"and {len(rows) - MOST_LINES:,} more")


def value_text(value: Any) -> str:
    """A value of no special kind."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def number(value: float) -> str:
    """A weight or a count: whole numbers without decimals."""
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.4g}"


def count(amount: int, one: str, many: str | None = None) -> str:
    """A number of things."""
    return f"{amount:,} {one if amount == 1 else many or one + 's'}"


def size(amount: int) -> str:
    """Bytes to read."""
    units = ("bytes", "KiB", "MiB", "GiB", "TiB")
    power = min(max(amount.bit_length() - 1, 0) // 10, len(units) - 1)
    return f"{amount / 1024**power:.4g} {units[power]}"


def shorten(path: str) -> str:
    """A path as seen from the current folder, where that is shorter; of a URL, what may be shown."""
    if "://" in path:
        return mask(path)
    relative = os.path.relpath(path)
    return relative if len(relative) < len(path) and not relative.startswith("..") else path
