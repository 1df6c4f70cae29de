"""What can be refused of a step before it is begun: settings that cannot work, and places that are not as they must be.

Light to import: a command that only refuses need not wait for what would do the work.
"""

from __future__ import annotations

import glob
import os
from dataclasses import fields

from protodask.data.locations import is_url, locate
from protodask.data.references import split_reference
from protodask.data.source_files import globbed
from protodask.errors import InputError, StorageError
from protodask.pipeline.step_places import settings_of_places
from protodask.pipeline.steps import (
    AppendStep,
    BudgetStep,
    CalibrateStep,
    DecideStep,
    EvaluateStep,
    FitStep,
    GateStep,
    IngestStep,
    MonitorStep,
    Place,
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
    grows,
)
from protodask.pipeline.values import key_of

OF_POLICIES = ("action", "match", "reward", "propensity", "estimator", "dropped_zeros", "confidence")
"""Settings of an evaluation that say how a log of actions is to be read."""

OF_EITHER = ("data", "model", "batches", "calibrated", "inclusion", "unseen", "drop", "policy", "out", "overwrite")
"""Settings of an evaluation that such a log and rows of known classes have in common."""


READ_BY_ALL = ("data", "model", "sources", "predictions", "start")
"""Settings of places that must be there; a champion or a reference may not have come yet."""

WRITERS_OF_FILES = (EvaluateStep, RobustEvaluateStep, GateStep, MonitorStep, ReportStep)

TRAINING = (FitStep, TuneStep, BudgetStep, RobustFitStep)
"""The steps that go on inside, from a run directory."""


def check(step: Step) -> None:
    """Refuse settings that cannot work whatever the data; nothing but a settings file is read."""
    match step:
        case SampleDataStep():
            from protodask.data.synthetic import synthetic_source

            synthetic_source(step.kind, step.rows, seed=step.seed, n_features=step.features, n_classes=step.classes)
        case IngestStep():
            from protodask.pipeline.ingesting import check_ingest

            check_ingest(step)
        case SplitStep():
            from protodask.evaluation.splitting import check_split

            check_split(step.share, step.seed, step.out, step.held_out)
        case SubsampleStep():
            from protodask.evaluation.subsampling import check_rates, checked_seed

            check_rates(step.rate or None, step.budget)
            checked_seed(step.seed)
        case FitStep() | TuneStep() | BudgetStep() | RobustFitStep() | RobustPredictStep() | RobustEvaluateStep():
            _check_training(step)
        case GateStep():
            from protodask.pipeline.gating import check_gate

            check_gate(step)
        case DecideStep():
            _check_decisions(step)
        case CalibrateStep() | PredictStep() | EvaluateStep() | MonitorStep() | ReportStep():
            _check_use(step)
        case PruneStep():
            from protodask.prototypes.setting_checks import check_count

            check_count("prototypes", step.prototypes, 1)
        case PublishStep():
            from protodask.pipeline.publishing import check_publishing

            check_publishing(step)


def _check_training(
    step: FitStep | TuneStep | BudgetStep | RobustFitStep | RobustPredictStep | RobustEvaluateStep,
) -> None:
    match step:
        case FitStep():
            from protodask.pipeline.settings import fit_config, run_directory

            fit_config(step)
            run_directory(step.out, step.run_dir)
        case TuneStep():
            from protodask.pipeline.settings import check_tuning

            check_tuning(step)
        case BudgetStep():
            from protodask.pipeline.budget import check_budget

            check_budget(step)
        case _:
            from protodask.pipeline.robust import check_robust

            check_robust(step)


def _check_decisions(step: DecideStep) -> None:
    from protodask.pipeline.deciding import step_loss

    step_loss(step)
    if step.per_row is not None:
        from protodask.decisions.stored import check_per_row

        check_per_row(step.per_row, step.group, step.positive, step.method)


def _check_use(step: CalibrateStep | PredictStep | EvaluateStep | MonitorStep | ReportStep) -> None:
    if isinstance(step, CalibrateStep):
        from protodask.evaluation.control_points import SplineSettings

        SplineSettings(step.bins, step.monotone)
    if step.batches is not None and step.batches < 0:
        raise InputError("bad-setting", f"batches is {step.batches}.", "Give a number of batches of the model, from 0.")
    if isinstance(step, EvaluateStep):
        check_evaluation(step)
    if isinstance(step, MonitorStep):
        from protodask.pipeline.monitoring import check_monitoring

        check_monitoring(step)
    if isinstance(step, PredictStep) and step.keep:
        from protodask.prototypes.prediction import check_kept

        check_kept(step.keep, step.out)
    if isinstance(step, PredictStep) and (step.each_file or step.settle):
        from protodask.pipeline.each_file import check_each_file

        check_each_file(step)


def check_evaluation(step: EvaluateStep) -> None:
    """Refuse settings that do not go together, or that cannot work whatever the data."""
    defaults = {field.name: field.default for field in fields(EvaluateStep)}
    given = [name for name in defaults if getattr(step, name) != defaults[name]]
    if not step.policy:
        if wrong := [name for name in given if name in OF_POLICIES]:
            raise InputError(
                "settings-conflict",
                f"{key_of(wrong[0])} is set, and nothing is said of a policy.",
                "Set policy, too, for the value of actions on a log; leave it out for scores on known classes.",
            )
        if step.model is None:
            raise InputError(
                "setting-missing", "There is no model to evaluate.", "Name a model and the data to try it on."
            )
        return
    if wrong := [name for name in given if name not in (*OF_POLICIES, *OF_EITHER)]:
        raise InputError(
            "settings-conflict",
            f"{key_of(wrong[0])} is set, and has no place in the value of a policy.",
            "Leave out one of the two.",
        )
    if step.model is None and step.match is None:
        raise InputError(
            "setting-missing",
            "It is not said what the policy does.",
            "Name a model, or with match the column that says whether the policy takes the logged action.",
        )
    if step.match is not None and (
        wrong := [name for name in ("model", "action", "batches", "calibrated") if name in given]
    ):
        raise InputError(
            "settings-conflict",
            f"Both match and {key_of(wrong[0])} are set.",
            "Choose the column that says what the policy does, or a model that does it.",
        )
    from protodask.evaluation.policy import PolicyQuestion

    PolicyQuestion(step.estimator, step.dropped_zeros, step.confidence)


def check_present(path: str) -> None:
    """Refuse a path or glob at which there is nothing; of URLs nothing is known yet."""
    where = locate(path)
    if not is_url(where) and not os.path.exists(where) and not globbed(where):
        raise StorageError("not-found", f"There is nothing at {path}.", "Check the path.")


def check_there(step: Step) -> None:
    """Refuse what is certain: nothing to read at a place of this machine, or something in the way of what is written.

    Training may go on from its record though its model is there, and what grows, or is divided again, may be there.
    """
    from protodask.data.storage import check_file_free, check_free, sweep

    for setting in READ_BY_ALL:
        found = getattr(step, setting, None)
        for place in (found,) if isinstance(found, str) else found or ():
            if split_reference(place) is None and not glob.has_magic(place):
                check_present(place)
    if getattr(step, "overwrite", False) or isinstance(step, AppendStep | SplitStep) or grows(step) or _goes_on(step):
        return
    if isinstance(step, TRAINING):
        sweep(_record(step))  # what was killed while it removed the record of a training that was done
    for setting in settings_of_places(type(step), Place.WRITTEN):
        place = getattr(step, setting)
        if place is None or is_url(locate(place)):
            continue
        if setting in ("table", "plot") or isinstance(step, WRITERS_OF_FILES):
            check_file_free(place, False)
        else:
            check_free(locate(place), False)


def _goes_on(step: Step) -> bool:
    """Whether there is a record from which a training may go on."""
    return isinstance(step, TRAINING) and os.path.exists(_record(step))


def _record(step: FitStep | TuneStep | BudgetStep | RobustFitStep) -> str:
    """Where a training keeps its record."""
    from protodask.pipeline.settings import run_directory

    return locate(run_directory(step.out, step.run_dir))
