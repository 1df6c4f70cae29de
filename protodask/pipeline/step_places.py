"""What the steps read and write: which of their settings are places."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from protodask.data.locations import is_url, locate
from protodask.data.references import split_reference
from protodask.pipeline.steps import (
    BudgetStep,
    CalibrateStep,
    DecideStep,
    EvaluateStep,
    FitStep,
    GateStep,
    IngestStep,
    MonitorStep,
    PredictStep,
    PublishStep,
    ReportStep,
    RobustEvaluateStep,
    RobustFitStep,
    RobustPredictStep,
    SampleDataStep,
    SplitStep,
    Step,
    SubsampleStep,
    TuneStep,
)

OUTPUTS: Mapping[type, tuple[str, ...]] = {
    SampleDataStep: ("out",),
    IngestStep: ("out",),
    SplitStep: ("out", "held_out"),
    SubsampleStep: ("out",),
    FitStep: ("out",),
    TuneStep: ("out", "table"),
    CalibrateStep: ("out",),
    PredictStep: ("out",),
    EvaluateStep: ("out",),
    DecideStep: ("out",),
    BudgetStep: ("out", "plot"),
    RobustFitStep: ("out",),
    RobustPredictStep: ("out",),
    RobustEvaluateStep: ("out",),
    ReportStep: ("out",),
    PublishStep: ("registry",),
    GateStep: ("out",),
    MonitorStep: ("out",),
}
"""Settings that name what a step writes, the principal one first. Caches and records of runs are none of these."""

INPUTS: Mapping[type, tuple[str, ...]] = {
    SampleDataStep: (),
    IngestStep: ("sources", "unless_in"),
    SplitStep: ("data",),
    SubsampleStep: ("data",),
    FitStep: ("data", "config", "start"),
    TuneStep: ("data", "config"),
    CalibrateStep: ("model", "data"),
    PredictStep: ("model", "data"),
    EvaluateStep: ("model", "data"),
    DecideStep: ("predictions",),
    BudgetStep: ("data", "costs", "config"),
    RobustFitStep: ("data",),
    RobustPredictStep: ("model", "data"),
    RobustEvaluateStep: ("model", "data"),
    ReportStep: ("model", "data", "training", "drift"),
    PublishStep: ("model", "metrics", "files"),
    GateStep: ("results", "model", "champion", "data"),
    MonitorStep: ("model", "data", "reference"),
}
"""Settings that name what a step reads."""


def outputs(step: Step) -> tuple[str, ...]:
    """The places that a step writes, the principal one first: `./model/` is `model`, so that its record is found."""
    return tuple(
        place.rstrip("/") if is_url(place) else os.path.normpath(place) for place in _places(step, OUTPUTS[type(step)])
    )


def inputs(step: Step) -> tuple[str, ...]:
    """The places that a step reads."""
    return tuple(_places(step, INPUTS[type(step)]))


def _places(step: Step, settings: tuple[str, ...]) -> Iterator[str]:
    for setting in settings:
        match getattr(step, setting):
            case None:
                pass
            case str() as place:
                yield place
            case Mapping() as places:
                yield from places.values()
            case places:
                yield from places


def holds(output: str, place: str) -> bool:
    """Whether writing `output` may change what is read at `place`: the same place, one inside it, a version in it."""
    own, other = _normal(output), _normal(place)
    return other == own or other.startswith((f"{own}/", f"{own}@"))


def _normal(place: str) -> str:
    """One text for all ways to write a place; links are followed, also that of a registry in front of a version."""
    reference = split_reference(place)
    if reference is not None:
        ending = "" if reference.name is None else f":{reference.name}"
        return f"{_normal(reference.registry)}@{reference.version}{ending}"
    where = locate(place)
    return where if is_url(where) else os.path.realpath(where).replace(os.sep, "/")
