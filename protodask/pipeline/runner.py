"""Running a pipeline: its steps one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from protodask.engine import Engine
from protodask.errors import InputError, OutputExistsError, ProtodaskError
from protodask.pipeline.budget import BudgetListener
from protodask.pipeline.definition import Pipeline
from protodask.pipeline.perform import check, perform
from protodask.pipeline.results import Result
from protodask.pipeline.robust import RobustListener
from protodask.pipeline.steps import (
    BudgetStep,
    CalibrateStep,
    DecideStep,
    EvaluateStep,
    FitStep,
    GateStep,
    IngestStep,
    PredictStep,
    ReportStep,
    RobustEvaluateStep,
    RobustFitStep,
    RobustPredictStep,
    SampleDataStep,
    Step,
    SubsampleStep,
    TuneStep,
    step_name,
)
from protodask.pipeline.tuning import SearchListener
from protodask.places import mask
from protodask.prototypes.history import Callback

StepStarted = Callable[[int, Step], None]


def check_pipeline(pipeline: Pipeline) -> None:
    """Refuse a pipeline with a step whose settings cannot work."""
    for number, step in enumerate(pipeline.steps, start=1):
        try:
            check(step)
        except InputError as error:
            raise InputError(f"{_where(pipeline, number, step)}: {error.seen}", error.remedy) from error


def run_pipeline(
    pipeline: Pipeline,
    engine: Engine,
    *,
    callbacks: Sequence[Callback] = (),
    listen: SearchListener | None = None,
    listen_budget: BudgetListener | None = None,
    listen_robust: RobustListener | None = None,
    started: StepStarted | None = None,
) -> list[Result]:
    """Carry out the steps in order; the first that fails ends the run, and what was done before stays."""
    check_pipeline(pipeline)
    results: list[Result] = []
    for number, step in enumerate(pipeline.steps, start=1):
        if started is not None:
            started(number, step)
        try:
            results.append(perform(step, engine, callbacks, listen, listen_budget, listen_robust))
        except ProtodaskError as error:
            raise _at_step(pipeline, number, step, error) from error
    return results


def _at_step(pipeline: Pipeline, number: int, step: Step, error: ProtodaskError) -> ProtodaskError:
    remedy = error.remedy
    if isinstance(error, OutputExistsError) and not step.overwrite:
        remedy = "Choose another place, or let this step replace what is there with `overwrite: true`."
    return type(error)(f"{_where(pipeline, number, step)}: {error.seen}", remedy)


def _where(pipeline: Pipeline, number: int, step: Step) -> str:
    return f"The pipeline {pipeline.path}, step {number} ({step_name(step)})"


def describe_step(step: Step) -> str:
    """What a step does, in a few words."""
    match step:
        case SampleDataStep():
            what = f"{step.rows} rows of {step.kind} into {mask(step.out)}"
        case IngestStep():
            what = f"{', '.join(map(mask, step.sources))} into {mask(step.out)}"
        case SubsampleStep():
            what = f"{mask(step.data)} into {mask(step.out)}"
        case FitStep():
            what = f"{mask(step.data)} into {mask(step.out)}"
        case TuneStep() | RobustFitStep():
            what = f"{mask(step.data)} into {mask(step.out)}"
        case CalibrateStep():
            what = f"{mask(step.model)} on {mask(step.data)} into {mask(step.out)}"
        case PredictStep() | RobustPredictStep():
            what = f"{mask(step.data)} with {mask(step.model)} into {mask(step.out)}"
        case EvaluateStep() | RobustEvaluateStep():
            judged = "a policy" if step.model is None else mask(step.model)
            what = f"{judged} on {mask(step.data)}"
        case GateStep():
            judged = " and ".join(mask(place) for place in (step.results, step.model) if place is not None)
            what = f"of {judged}"
        case DecideStep():
            what = f"on {mask(step.predictions)} into {mask(step.out)}"
        case BudgetStep():
            what = f"{mask(step.data)} with {mask(step.costs)} into {mask(step.out)}"
        case ReportStep():
            what = f"{mask(step.model)} on {mask(step.data)} into {mask(step.out)}"
    return f"{step_name(step)}, {what}"
