"""What steps and pipelines left behind, for people to read or as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from protodask.cli.console import say, show_json
from protodask.cli.show_budget import show_budget, summarize_budget
from protodask.cli.show_dataset import summarize_written
from protodask.cli.show_decisions import show_decisions, summarize_decisions
from protodask.cli.show_files import show_files_scored, summarize_files_scored
from protodask.cli.show_gate import show_gate, summarize_gate
from protodask.cli.show_models import summarize_calibration, summarize_fit, summarize_pruning
from protodask.cli.show_monitor import show_monitor, summarize_monitor
from protodask.cli.show_policy import show_policy, summarize_policy
from protodask.cli.show_registry import show_published, summarize_published
from protodask.cli.show_robust import show_robust, summarize_robust
from protodask.cli.show_scores import show_scores, summarize_scores
from protodask.cli.show_search import show_tuned, summarize_choice
from protodask.cli.show_subsample import show_subsample, summarize_subsample
from protodask.cli.wording import count, shorten, size

if TYPE_CHECKING:
    from protodask.pipeline.each_file import FilesScored
    from protodask.pipeline.gate_results import GateAnswered
    from protodask.pipeline.monitor_results import RowsMonitored
    from protodask.pipeline.results import ModelEvaluated, PredictionsWritten, ReportWritten, Result


def show_result(result: Result, as_json: bool) -> None:
    """What a step left behind."""
    from protodask.pipeline.budget_results import BudgetBuilt
    from protodask.pipeline.each_file import FilesScored
    from protodask.pipeline.gate_results import GateAnswered
    from protodask.pipeline.monitor_results import RowsMonitored
    from protodask.pipeline.registry_results import ModelPublished
    from protodask.pipeline.results import (
        DatasetSplit,
        DatasetSubsampled,
        DatasetWritten,
        DecisionsWritten,
        ModelCalibrated,
        ModelEvaluated,
        ModelFitted,
        ModelPruned,
        ModelTuned,
        PolicyEvaluated,
        PredictionsWritten,
        ReportWritten,
    )
    from protodask.pipeline.robust_results import RobustEvaluated, RobustFitted, RobustPredicted

    if as_json:
        show_json(result.describe())
        return
    match result:
        case DatasetWritten() | ModelCalibrated():
            say(summarize_result(result))
            for note in result.notes:
                say(f"Note: {note}")
        case DatasetSubsampled():
            show_subsample(result)
        case ModelTuned():
            show_tuned(result)
        case ModelEvaluated() | GateAnswered() | RowsMonitored():
            _show_judgement(result)
        case DecisionsWritten():
            show_decisions(result)
        case PolicyEvaluated():
            show_policy(result)
        case BudgetBuilt():
            show_budget(result)
        case RobustFitted() | RobustPredicted() | RobustEvaluated():
            show_robust(result)
        case ModelPublished():
            show_published(result)
        case FilesScored():
            show_files_scored(result)
        case DatasetSplit() | ModelFitted() | ModelPruned() | PredictionsWritten() | ReportWritten():
            say(summarize_result(result))


def summarize_result(result: Result) -> str:
    """What a step left behind, in one line."""
    from protodask.pipeline.budget_results import BudgetBuilt
    from protodask.pipeline.each_file import FilesScored
    from protodask.pipeline.gate_results import GateAnswered
    from protodask.pipeline.monitor_results import RowsMonitored
    from protodask.pipeline.registry_results import ModelPublished
    from protodask.pipeline.results import (
        DatasetSplit,
        DatasetSubsampled,
        DatasetWritten,
        DecisionsWritten,
        ModelCalibrated,
        ModelEvaluated,
        ModelFitted,
        ModelPruned,
        ModelTuned,
        PolicyEvaluated,
        PredictionsWritten,
        ReportWritten,
    )
    from protodask.pipeline.robust_results import RobustEvaluated, RobustFitted, RobustPredicted

    match result:
        case DatasetWritten() | DatasetSplit():
            line = summarize_written(result)
        case DatasetSubsampled():
            line = summarize_subsample(result)
        case ModelFitted():
            line = summarize_fit(result)
        case ModelTuned():
            line = f"{summarize_fit(result)} {summarize_choice(result)}"
        case ModelCalibrated():
            line = summarize_calibration(result)
        case ModelPruned():
            line = summarize_pruning(result)
        case PredictionsWritten() | FilesScored():
            line = _summarize_predictions(result)
        case ModelEvaluated() | GateAnswered() | RowsMonitored():
            line = _summarize_judgement(result)
        case DecisionsWritten():
            line = summarize_decisions(result)
        case PolicyEvaluated():
            line = summarize_policy(result)
        case BudgetBuilt():
            line = summarize_budget(result)
        case RobustFitted() | RobustPredicted() | RobustEvaluated():
            line = summarize_robust(result)
        case ReportWritten() | ModelPublished():
            line = _summarize_report(result) if isinstance(result, ReportWritten) else summarize_published(result)
    return line


def _summarize_predictions(result: PredictionsWritten | FilesScored) -> str:
    from protodask.pipeline.each_file import FilesScored

    if isinstance(result, FilesScored):
        return summarize_files_scored(result)
    kind = "calibrated predictions" if result.calibrated else "predictions"
    marked = f", of which {result.marked:,} could not be scored and are marked" if result.marked else ""
    return f"The {kind} {shorten(result.path)} have {result.rows:,} rows{marked}."


def show_results(results: Sequence[Result]) -> None:
    """What the steps of a pipeline left behind: places first, then what it amounts to."""
    from protodask.pipeline.results import ModelEvaluated
    from protodask.pipeline.robust_results import RobustEvaluated

    for result in results:
        if not isinstance(result, ModelEvaluated | RobustEvaluated):
            say(summarize_result(result))
        elif result.path is not None:
            say(f"The scores {shorten(result.path)} are those of {shorten(result.model)} on {shorten(result.data)}.")
    for result in results:
        if isinstance(result, ModelEvaluated | RobustEvaluated):
            say()
            say(summarize_result(result))


def _show_judgement(result: ModelEvaluated | GateAnswered | RowsMonitored) -> None:
    from protodask.pipeline.gate_results import GateAnswered
    from protodask.pipeline.monitor_results import RowsMonitored

    match result:
        case GateAnswered():
            show_gate(result)
        case RowsMonitored():
            show_monitor(result)
        case _:
            show_scores(result)


def _summarize_judgement(result: ModelEvaluated | GateAnswered | RowsMonitored) -> str:
    from protodask.pipeline.gate_results import GateAnswered
    from protodask.pipeline.monitor_results import RowsMonitored

    match result:
        case GateAnswered():
            return summarize_gate(result)
        case RowsMonitored():
            return summarize_monitor(result)
        case _:
            return summarize_scores(result)


def _summarize_report(result: ReportWritten) -> str:
    drifted = "" if result.alarming is None else f" {count(result.alarming, 'feature')} drifted strongly."
    return (
        f"The report {shorten(result.path)} on {result.rows:,} rows has {size(result.size)}; open it in a browser."
        f"{drifted}"
    )
