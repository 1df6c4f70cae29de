"""The figures worth watching among what steps left behind, from results as their files have them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from protodask.pipeline.open_metrics import Family

QUALITY = Family(
    "protodask_model_quality", "How good a model is on the rows it was measured on, by the name of the measure."
)
GATE_PASSED = Family("protodask_gate_passed", "Whether a gate said yes: 1 or 0.")
GATE_FIGURE = Family("protodask_gate_figure", "What a gate looked at, by the name of the figure.")

FIGURES = (QUALITY, GATE_PASSED, GATE_FIGURE)

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

COMPARED = ("champion_loss", "challenger_loss", "gain", "gain_low", "p_value")
"""Of a gate with two models."""


def rows_of(result: Mapping[str, Any]) -> int | None:
    """Rows that a step dealt with, where its result says so."""
    rows = result.get("rows")
    return rows if isinstance(rows, int) and not isinstance(rows, bool) else None


def figures_of(result: Mapping[str, Any]) -> Iterator[Figure]:
    """The figures of a result; what is missing or no number is passed over, as records may be of another version."""
    kind = result.get("kind")
    if isinstance(kind, str):
        for measure in MEASURES.get(kind, ()):
            yield from _figure(QUALITY, {"measure": measure}, result.get(measure))
    if kind == "gate":
        yield from _gate(result)


def _gate(result: Mapping[str, Any]) -> Iterator[Figure]:
    yield from _figure(GATE_PASSED, {}, result.get("passed"))
    for entry in _entries(result.get("figures")):
        yield from _figure(GATE_FIGURE, {"figure": str(entry.get("name"))}, entry.get("value"))
    comparison = result.get("comparison")
    if isinstance(comparison, Mapping):
        for name in COMPARED:
            yield from _figure(GATE_FIGURE, {"figure": name}, comparison.get(name))


def _figure(family: Family, labels: dict[str, str], value: object) -> Iterator[Figure]:
    if isinstance(value, bool | int | float):
        yield family, labels, float(value)


def _entries(value: object) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, list):
        yield from (entry for entry in value if isinstance(entry, Mapping))
