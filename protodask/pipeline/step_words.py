"""What steps do, in words, and settings as those say who write a command or a file."""

from __future__ import annotations

import re
from dataclasses import fields

from protodask.pipeline.steps import (
    CONFIG_NAMES,
    STEPS,
    BudgetStep,
    CalibrateStep,
    DecideStep,
    EvaluateStep,
    FitStep,
    GateStep,
    IngestStep,
    MonitorStep,
    PredictStep,
    PruneStep,
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
    step_name,
)
from protodask.pipeline.values import key_of
from protodask.places import mask


def describe_step(step: Step) -> str:
    """What a step does, in a few words."""
    match step:
        case SampleDataStep():
            what = f"{step.rows} rows of {step.kind} into {mask(step.out)}"
        case IngestStep():
            what = f"{', '.join(map(mask, step.sources))} into {mask(step.out)}"
        case SplitStep() | SubsampleStep() | FitStep() | TuneStep() | RobustFitStep():
            what = f"{mask(step.data)} into {mask(step.out)}"
        case CalibrateStep() | PruneStep() | MonitorStep() | ReportStep():
            what = f"{mask(step.model)} on {mask(step.data)} into {mask(step.out)}"
        case PredictStep():
            what = f"{', '.join(map(mask, step.data))} with {mask(step.model)} into {mask(step.out)}"
        case RobustPredictStep():
            what = f"{mask(step.data)} with {mask(step.model)} into {mask(step.out)}"
        case EvaluateStep() | RobustEvaluateStep():
            judged = "a policy" if step.model is None else mask(step.model)
            what = f"{judged} on {mask(step.data)}"
        case GateStep():
            judged = " and ".join(mask(place) for place in (step.results, step.model) if place is not None)
            what = f"of {judged}"
        case DecideStep():
            what = f"on {mask(step.predictions)} into {mask(step.out)}"
        case PublishStep():
            what = f"{mask(step.model)} as {step.alias} of {mask(step.registry)}"
        case BudgetStep():
            what = f"{mask(step.data)} with {mask(step.costs)} into {mask(step.out)}"
    return f"{step_name(step)}, {what}"


_KNOWN = {field.name: field.name for kind in STEPS.values() for field in fields(kind)} | {
    "n_folds": "folds",
    "n_trials": "trials",
    **{long: name for name, long in CONFIG_NAMES.items() if long != "n_draws"},
}
"""Fields by how they are called inside, and by their own names. The draws of a fit and of a search are called alike."""

_SETTING = re.compile(
    r"(?<!in Python )(?<!like )(?<![\w'\"`./=-])(?P<name>[a-z]+(?:_[a-z]+)*)"
    r"(?:=(?P<value>'[^']*'|True|[0-9][0-9.e+-]*))?(?![\w=(])"
)


def as_options(text: str) -> str:
    """A message with settings as on the command line: `--unseen zero` for "unseen='zero'", `--max-fraction`."""
    return _with_settings(text, "--", " ")


def as_keys(text: str) -> str:
    """A message with settings as in a pipeline file: `unseen: zero` for "unseen='zero'", `max-fraction`."""
    return _with_settings(text, "", ": ")


def _with_settings(text: str, before: str, between: str) -> str:
    def said(found: re.Match[str]) -> str:
        name, value = _KNOWN.get(found["name"]), found["value"]
        begins = found.start() == 0 and text.startswith(" is ", found.end())  # other words may be meant as such
        if name is None or (value is None and "_" not in found["name"] and not begins):
            return found[0]
        shown = (
            "" if value is None or (value == "True" and before) else between + value.strip("'").replace("True", "true")
        )
        return f"{before}{key_of(name)}{shown}"

    return _SETTING.sub(said, text)
