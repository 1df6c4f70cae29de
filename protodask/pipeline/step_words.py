"""What steps do, in words."""

from __future__ import annotations

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
