"""The figures worth watching among what steps left behind, from results as their files have them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from protodask.pipeline.telling.open_metrics import Family

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

FIGURES = (QUALITY, GATE_PASSED, GATE_FIGURE, FAMILIARITY, DRIFT, FEATURE_DRIFT, FILES, MARKED)

Figure = tuple[Family, dict[str, str], float]
"""A figure's family, the labels that tell it from others of the step, and its value."""

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


def rows_of(result: Mapping[str, Any]) -> int | None:
    """Rows that a step dealt with, where its result says so: of a dataset that was added to, those that are new."""
    rows = result.get("new_rows", result.get("rows"))
    return rows if isinstance(rows, int) and not isinstance(rows, bool) else None


def figures_of(result: Mapping[str, Any]) -> Iterator[Figure]:
    """The figures of a result; what is missing or no number is passed over, as records may be of another version."""
    for family, labels, value in _values_of(result):
        if isinstance(value, bool | int | float):
            yield family, labels, float(value)


def _values_of(result: Mapping[str, Any]) -> Iterator[tuple[Family, dict[str, str], Any]]:
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
