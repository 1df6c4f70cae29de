"""Figures of a pipeline's latest run, and of what its steps left behind, for those who watch over it.

They are written for Prometheus and its kin, in a text that follows both OpenMetrics 1.0 and the older format of
Prometheus. All are gauges: it is the type that both formats write alike, and node_exporter's collector of text files
reads the older one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, get_args

from protodask._version import __version__
from protodask.errors import ProtodaskError, StorageError
from protodask.pipeline.telling.events import SUCCESSES, RunEnded, RunEvent, RunListener, Status, StepOutcome
from protodask.places import mask


@dataclass(frozen=True)
class Family:
    """Figures of one name. `unit` is the end of the name, where it is one."""

    name: str
    help: str
    unit: str | None = None


Sample = tuple[Family, Mapping[str, str], float]
"""One figure: which family it is of, its labels in their order, and its value."""


VERSION = Family("protodask_version", "1, with the version that did the latest run.")
STATUS = Family("protodask_run_status", "1 for the way in which the latest run ended, 0 for the others.")
SUCCESS = Family("protodask_run_success", "Whether the latest run came to its end without a failure: 1 or 0.")
ENDED = Family("protodask_run_end_timestamp_seconds", "When the latest run ended, in seconds since 1970.", "seconds")
SUCCEEDED = Family(
    "protodask_run_last_success_timestamp_seconds",
    "When the latest run ended that did not fail, in seconds since 1970.",
    "seconds",
)
DURATION = Family("protodask_run_duration_seconds", "How long the latest run took.", "seconds")
STEP_PERFORMED = Family(
    "protodask_step_performed", "Whether the latest run that looked at this step did it: 1, or 0 if it was fresh."
)
STEP_FAILED = Family(
    "protodask_step_failed", "Whether this step failed, or was stopped, when it was last begun: 1 or 0."
)
STEP_DURATION = Family(
    "protodask_step_duration_seconds", "How long this step took when it last left something.", "seconds"
)
STEP_ROWS = Family("protodask_step_rows", "Rows that this step dealt with when it was last done.")
STEP_SPEED = Family("protodask_step_rows_per_second", "Those rows by the seconds that the step took.")

QUALITY = Family(
    "protodask_model_quality", "How good a model is on the rows it was measured on, by the name of the measure."
)
GATE_PASSED = Family("protodask_gate_passed", "Whether a gate said yes: 1 or 0.")
GATE_FIGURE = Family("protodask_gate_figure", "What a gate looked at, by the name of the figure.")
FAMILIARITY = Family("protodask_familiarity", "Quantiles of how familiar a model is with the rows it saw.")
DRIFT = Family("protodask_drift", "How much has changed in the rows that a model sees, by the name of the figure.")
FEATURE_DRIFT = Family("protodask_feature_drift", "Population stability index of the features that changed most.")
FILES = Family(
    "protodask_files",
    "Files of the source, by what became of them when this step was last done; those that wait, by the latest look.",
)

MARKED = Family("protodask_rows_marked", "Rows that could not be scored, and are marked, when this step was last done.")

FAMILIES = (
    *(VERSION, STATUS, SUCCESS, ENDED, SUCCEEDED, DURATION),
    *(STEP_PERFORMED, STEP_FAILED, STEP_DURATION, STEP_ROWS, STEP_SPEED),
    *(QUALITY, GATE_PASSED, GATE_FIGURE, FAMILIARITY, DRIFT, FEATURE_DRIFT, FILES, MARKED),
)
"""Of the run, of its steps, and of what these left behind, in this order."""

MEASURES = {
    "scores": (
        "log_loss",
        "marginal_log_loss",
        "accuracy",
        "balanced_accuracy",
        "brier_score",
        "roc_auc",
        "roc_auc_weighted",
    ),
    "robust scores": ("nominal_error", "expected_certified_error", "certified_fraction"),
    "policy value": ("value", "low", "high"),
}
"""By the kind of result."""

PERCENTILE = re.compile(r"p([0-9]{2})")

COMPARED = ("champion_loss", "challenger_loss", "gain", "gain_low", "p_value")
"""Of a gate with two models."""


CHANGED = {
    "drift": ("largest", "features"),
    "labels": ("shift", "unknown"),
    "predictions": ("shift",),
    "familiarity": ("shift", "rare"),
    "calibration": ("shift", "error"),
    "log_loss": ("increase",),
}
"""Of what a monitor says, names by group: gates have limits for them under the same names."""

FATES = ("repeated", "waiting", "failed", "changed")
"""Of files that are scored each once, besides those that were scored."""


def run_metrics(path: str, complain: Callable[[str], None]) -> RunListener:
    """A listener that writes the figures of each run that ends to a file, whole, in place of those of the run before.

    Of what this run says nothing new, they are those that are known of earlier ones. That the file cannot be written is
    told to `complain`, and is no error.
    """
    from protodask.data.places.whole_files import check_file_free, replace_file

    with suppress(StorageError):  # of which the end of the run tells
        check_file_free(path, overwrite=True)

    def listen(event: RunEvent) -> None:
        if not isinstance(event, RunEnded) or event.status == "left":  # the run that is under way writes its own
            return
        try:
            replace_file(path, to_text(FAMILIES, samples_of(event)))
        except (ProtodaskError, OSError) as error:
            complain(f"The metrics were not written ({error}).")

    return listen


def samples_of(end: RunEnded) -> Iterator[Sample]:
    """The figures of a run that has ended so."""
    # Absolute: two pipelines of one name may be watched on one machine.
    labels = {"pipeline": mask(end.pipeline if "://" in end.pipeline else os.path.abspath(end.pipeline))}
    yield VERSION, labels | {"version": __version__}, 1
    for status in get_args(Status):
        if status != "left":
            yield STATUS, labels | {"status": status}, status == end.status
    yield SUCCESS, labels, end.status in SUCCESSES
    yield ENDED, labels, end.time.timestamp()
    if end.known.succeeded is not None:
        yield SUCCEEDED, labels, end.known.succeeded.timestamp()
    yield DURATION, labels, end.seconds
    for outcome in end.known.steps:
        yield from _of_step(outcome, labels | {"step": outcome.step.name})


def _of_step(outcome: StepOutcome, labels: dict[str, str]) -> Iterator[Sample]:
    yield STEP_PERFORMED, labels, outcome.status in ("done", "failed", "interrupted")
    yield STEP_FAILED, labels, outcome.status in ("failed", "interrupted")
    if outcome.seconds is not None:
        yield STEP_DURATION, labels, outcome.seconds
    if outcome.result is not None:
        rows = rows_of(outcome.result)
        if rows is not None:
            yield STEP_ROWS, labels, rows
            if outcome.seconds:
                yield STEP_SPEED, labels, rows / outcome.seconds
        for family, own, value in _figures_of(outcome.result):
            if isinstance(value, bool | int | float):  # others are missing, or of another version
                yield family, labels | own, value
    if outcome.waiting is not None:
        yield FILES, labels | {"state": "waiting"}, outcome.waiting


def rows_of(result: Mapping[str, Any]) -> int | None:
    """Rows that a step dealt with, where its result says so: of a dataset that was added to, those that are new."""
    rows = result.get("new_rows", result.get("rows"))
    return rows if isinstance(rows, int) and not isinstance(rows, bool) else None


def _figures_of(result: Mapping[str, Any]) -> Iterator[tuple[Family, dict[str, str], Any]]:
    """The figures of a result, each with the labels that tell it from others of the step."""
    kind = str(result.get("kind"))
    for measure in MEASURES.get(kind, ()):
        yield QUALITY, {"measure": measure}, result.get(measure)
    yield MARKED, {}, result.get("marked")
    match kind:
        case "gate":
            yield from _gate(result)
        case "monitor":
            yield from _monitor(result)
        case "scored files":
            yield FILES, {"state": "scored"}, result.get("files")
            for fate in FATES:
                yield FILES, {"state": fate}, result.get(fate)
        case "dataset" if "new_sources" in result:
            left = result.get("left")
            yield FILES, {"state": "new"}, result["new_sources"]
            yield FILES, {"state": "waiting"}, len(left) if isinstance(left, list) else None


def _monitor(result: Mapping[str, Any]) -> Iterator[tuple[Family, dict[str, str], Any]]:
    groups = {name: group for name, group in result.items() if isinstance(group, Mapping)}
    for group, names in CHANGED.items():
        for name in names:
            yield DRIFT, {"figure": f"{group}.{name}"}, groups.get(group, {}).get(name)
    for entry in _entries(groups.get("drift", {}).get("worst")):
        yield FEATURE_DRIFT, {"feature": str(entry.get("name"))}, entry.get("index")
    for name, value in groups.get("familiarity", {}).items():
        if found := PERCENTILE.fullmatch(name):
            yield FAMILIARITY, {"quantile": f"{int(found[1]) / 100:g}"}, value
    yield QUALITY, {"measure": "log_loss"}, groups.get("log_loss", {}).get("value")
    yield QUALITY, {"measure": "accuracy"}, result.get("accuracy")


def _gate(result: Mapping[str, Any]) -> Iterator[tuple[Family, dict[str, str], Any]]:
    yield GATE_PASSED, {}, result.get("passed")
    for entry in _entries(result.get("figures")):
        yield GATE_FIGURE, {"figure": str(entry.get("name"))}, entry.get("value")
    comparison = result.get("comparison")
    if isinstance(comparison, Mapping):
        for name in COMPARED:
            yield GATE_FIGURE, {"figure": name}, comparison.get(name)


def _entries(value: object) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, list):
        yield from (entry for entry in value if isinstance(entry, Mapping))


def to_text(families: Sequence[Family], samples: Iterable[Sample]) -> str:
    """The text: families in their order, with the figures there are of them, the last of those with the same labels."""
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {family.name: {} for family in families}
    for family, labels, value in samples:
        found[family.name][tuple((name, _clean(text)) for name, text in labels.items())] = float(value)
    return "".join(line for family in families for line in _lines(family, found[family.name])) + "# EOF\n"


def _lines(family: Family, values: Mapping[tuple[tuple[str, str], ...], float]) -> Iterator[str]:
    if not values:
        return
    yield f"# TYPE {family.name} gauge\n"
    if family.unit is not None:
        yield f"# UNIT {family.name} {family.unit}\n"
    yield f"# HELP {family.name} {_escape(family.help)}\n"
    for labels, value in values.items():
        shown = ",".join(f'{name}="{_escape(text)}"' for name, text in labels)
        yield f"{family.name}{{{shown}}} {_number(value)}\n"


def _number(value: float) -> str:
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    return repr(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)


def _clean(text: str) -> str:
    # Lone surrogates, which names of files may have, are not to be written in UTF-8. Other separators of lines are none
    # to the formats, but to some who read them.
    return "".join(letter if letter.isprintable() or letter == "\n" else "?" for letter in text)


def _escape(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
