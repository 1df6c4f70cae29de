"""The steps of pipelines: one for each command that does something, with the command's options as fields."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from protodask.pipeline.steps.base import (
    Argument,
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
from protodask.pipeline.steps.policy import PolicyStep
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

ORDER = (
    *("sample-data", "ingest", "split", "subsample", "fit", "tune", "calibrate", "prune", "predict", "evaluate"),
    *(
        "policy",
        "gate",
        "monitor",
        "decide",
        "budget",
        "robust-fit",
        "robust-predict",
        "robust-evaluate",
        "report",
        "publish",
    ),
)
"""The order in which steps are listed; others come after these."""


def _steps() -> dict[str, type[Step]]:
    """The steps of the files here by their commands: those that have a command of their own."""
    steps: dict[str, type[Step]] = {}
    for module in iter_modules(__path__, f"{__name__}."):
        for found in vars(import_module(module.name)).values():
            if isinstance(found, type) and issubclass(found, Step) and "command" in vars(found):
                other = steps.setdefault(found.command, found)
                if other is not found:
                    raise TypeError(f"{other.__module__} and {found.__module__} both have the step {found.command!r}.")
    return steps


def _rank(step: type[Step]) -> tuple[int, str]:
    return ORDER.index(step.command) if step.command in ORDER else len(ORDER), step.command


STEPS: dict[str, type[Step]] = {step.command: step for step in sorted(_steps().values(), key=_rank)}
"""Steps by their names in pipeline files."""

__all__ = [
    "CONFIG_NAMES",
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
    "MonitorStep",
    "Option",
    "Place",
    "PolicyStep",
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
