"""The steps of pipelines: one for each command that does something, with the command's options as fields."""

from __future__ import annotations

from protodask.pipeline.steps.base import (
    NOBODY,
    Argument,
    Listeners,
    Option,
    Place,
    Read,
    Step,
    Written,
    describe_step,
)
from protodask.pipeline.steps.budget import BudgetStep
from protodask.pipeline.steps.calibrate import CalibrateStep
from protodask.pipeline.steps.decide import DecideStep
from protodask.pipeline.steps.evaluate import EvaluateStep
from protodask.pipeline.steps.fit import FitStep
from protodask.pipeline.steps.gate import GateStep, Limit
from protodask.pipeline.steps.ingest import AppendStep, IngestStep
from protodask.pipeline.steps.monitor import MonitorStep
from protodask.pipeline.steps.predict import PredictStep
from protodask.pipeline.steps.prune import PruneStep
from protodask.pipeline.steps.publish import PublishStep
from protodask.pipeline.steps.report import ReportStep
from protodask.pipeline.steps.robust import Formulation, RobustEvaluateStep, RobustFitStep, RobustPredictStep
from protodask.pipeline.steps.rows import GivenRows, KnownRows
from protodask.pipeline.steps.sample_data import SampleDataStep
from protodask.pipeline.steps.split import SplitStep
from protodask.pipeline.steps.subsample import SubsampleStep
from protodask.pipeline.steps.training import CONFIG_NAMES, FitSettings, Training, TrainingSettings
from protodask.pipeline.steps.tune import TuneStep

STEPS: dict[str, type[Step]] = {
    step.command: step
    for step in (
        SampleDataStep,
        IngestStep,
        SplitStep,
        SubsampleStep,
        FitStep,
        TuneStep,
        CalibrateStep,
        PruneStep,
        PredictStep,
        EvaluateStep,
        GateStep,
        MonitorStep,
        DecideStep,
        BudgetStep,
        RobustFitStep,
        RobustPredictStep,
        RobustEvaluateStep,
        ReportStep,
        PublishStep,
    )
}
"""Steps by the names of their commands: `budget` is `budget build`, `robust-fit` is `robust fit`, and so on."""

__all__ = [
    "CONFIG_NAMES",
    "NOBODY",
    "STEPS",
    "AppendStep",
    "Argument",
    "BudgetStep",
    "CalibrateStep",
    "DecideStep",
    "EvaluateStep",
    "FitSettings",
    "FitStep",
    "Formulation",
    "GateStep",
    "GivenRows",
    "IngestStep",
    "KnownRows",
    "Limit",
    "Listeners",
    "MonitorStep",
    "Option",
    "Place",
    "PredictStep",
    "PruneStep",
    "PublishStep",
    "Read",
    "ReportStep",
    "RobustEvaluateStep",
    "RobustFitStep",
    "RobustPredictStep",
    "SampleDataStep",
    "SplitStep",
    "Step",
    "SubsampleStep",
    "Training",
    "TrainingSettings",
    "TuneStep",
    "Written",
    "describe_step",
]
