"""Carrying out a step."""

from __future__ import annotations

from collections.abc import Sequence

from protodask.data import Dataset, sample_data
from protodask.data.ingest import ingest
from protodask.data.storage import check_file_free, check_free, locate
from protodask.data.tables import TableSource
from protodask.engine import Engine
from protodask.evaluation.subsampling import class_rates, subsample
from protodask.pipeline.budget import BudgetListener, build_budget
from protodask.pipeline.calibrating import calibrate
from protodask.pipeline.checks import check_evaluation
from protodask.pipeline.deciding import decide_step
from protodask.pipeline.each_file import FilesScored, score_each_file
from protodask.pipeline.gating import answer
from protodask.pipeline.ingesting import ingest_new_sources
from protodask.pipeline.json_file import write_json
from protodask.pipeline.model_scores import evaluate_model
from protodask.pipeline.monitoring import monitor_rows
from protodask.pipeline.policy import evaluate_policy
from protodask.pipeline.pruning import prune_model
from protodask.pipeline.published import published_model
from protodask.pipeline.publishing import publish_model
from protodask.pipeline.report import write_report
from protodask.pipeline.results import (
    DatasetSubsampled,
    DatasetWritten,
    ModelEvaluated,
    ModelFitted,
    PolicyEvaluated,
    PredictionsWritten,
    Result,
)
from protodask.pipeline.robust import RobustListener, perform_robust
from protodask.pipeline.scoring_data import rows_of_step, rows_to_predict
from protodask.pipeline.settings import fit_config, run_directory
from protodask.pipeline.splitting import split_dataset
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
)
from protodask.pipeline.tuning import SearchListener, tune_dataset
from protodask.prototypes.fitting import fitted
from protodask.prototypes.history import Callback
from protodask.prototypes.persistence import load_model, model_fingerprint, save_model
from protodask.prototypes.prediction import PREDICTIONS, predict


def perform(
    step: Step,
    engine: Engine,
    callbacks: Sequence[Callback] = (),
    listen: SearchListener | None = None,
    listen_budget: BudgetListener | None = None,
    listen_robust: RobustListener | None = None,
) -> Result:
    """Do what a step says; `callbacks` hear how training goes, the listeners a search, a budget or a robust fit.

    Passes over data report to the engine's listener.
    """
    match step:
        case SampleDataStep() | IngestStep() | SplitStep() | SubsampleStep():
            return _make_dataset(step, engine)
        case FitStep():
            return _fit(step, engine, callbacks)
        case TuneStep():
            return tune_dataset(step, engine, callbacks, listen)
        case CalibrateStep() | PruneStep():
            return calibrate(step, engine) if isinstance(step, CalibrateStep) else prune_model(step, engine)
        case PredictStep():
            return _predict(step, engine)
        case EvaluateStep() | GateStep() | MonitorStep():
            return _judge(step, engine)
        case DecideStep():
            return decide_step(step, engine)
        case BudgetStep():
            return build_budget(step, engine, listen_budget)
        case RobustFitStep() | RobustPredictStep() | RobustEvaluateStep():
            return perform_robust(step, engine, listen_robust)
        case ReportStep() | PublishStep():
            return write_report(step, engine) if isinstance(step, ReportStep) else publish_model(step)


def _make_dataset(step: SampleDataStep | IngestStep | SplitStep | SubsampleStep, engine: Engine) -> Result:
    match step:
        case SampleDataStep():
            return _make_sample_data(step, engine)
        case IngestStep():
            return _ingest(step, engine)
        case SplitStep():
            return split_dataset(step, engine)
        case SubsampleStep():
            return _subsample(step, engine)


def _make_sample_data(step: SampleDataStep, engine: Engine) -> DatasetWritten:
    dataset = sample_data(
        step.kind,
        step.rows,
        step.out,
        seed=step.seed,
        n_features=step.features,
        n_classes=step.classes,
        engine=engine,
        overwrite=step.overwrite,
    )
    return DatasetWritten(dataset)


def _ingest(step: IngestStep, engine: Engine) -> DatasetWritten:
    if step.new or step.unless_in is not None:
        return ingest_new_sources(step, engine)
    dataset = ingest(
        list(step.sources),
        step.out,
        target=step.target,
        categorical=step.categorical,
        ordinal=step.ordinal,
        weight=step.weight,
        inclusion=step.inclusion,
        group=step.group,
        drop=step.drop,
        missing=step.missing,
        text_is_categorical=step.text_is_categorical,
        append=isinstance(step, AppendStep),
        overwrite=step.overwrite,
        dtype=step.dtype,
        engine=engine,
    )
    return DatasetWritten(dataset)


def _subsample(step: SubsampleStep, engine: Engine) -> DatasetSubsampled:
    data, where = Dataset.open(step.data), locate(step.out)
    check_free(where, step.overwrite)
    rates = class_rates(data, step.rate or None, step.budget, engine)
    rows = tuple(data.summary.class_rows.tolist())
    dataset = subsample(data, where, rates=rates, seed=step.seed, engine=engine, overwrite=step.overwrite)
    return DatasetSubsampled(dataset, rows, tuple(rates.tolist()))


def _fit(step: FitStep, engine: Engine, callbacks: Sequence[Callback]) -> ModelFitted:
    config = fit_config(step)
    where = locate(step.out)
    run_dir = locate(run_directory(where, step.run_dir))
    published = published_model(where, run_dir, step.overwrite)
    start = None if step.start is None else load_model(step.start)
    with fitted(
        Dataset.open(step.data), config, run_dir, engine, callbacks, start, keep=step.run_dir is not None
    ) as run:
        if model_fingerprint(run.model) != published:
            save_model(run.model, where, overwrite=step.overwrite)
    return ModelFitted(where, run.model, tuple(run.history))


def _predict(step: PredictStep, engine: Engine) -> PredictionsWritten | FilesScored:
    if step.each_file:
        return score_each_file(step, engine, load_model)
    model = load_model(step.model)
    count = model.scored_batches(step.batches, step.calibrated)
    where = locate(step.out)
    check_free(where, step.overwrite, PREDICTIONS)
    source = rows_to_predict(
        model,
        *step.data,
        engine=engine,
        unseen=step.unseen,
        bad_rows=step.bad_rows,
        drop=step.drop,
        keep=step.keep,
    )
    rows = predict(
        model,
        source,
        where,
        n_batches=step.batches,
        calibrated=step.calibrated,
        engine=engine,
        overwrite=step.overwrite,
    )
    marked = source.marked if isinstance(source, TableSource) else 0
    return PredictionsWritten(where, rows, count, step.calibrated, marked)


def _judge(step: EvaluateStep | GateStep | MonitorStep, engine: Engine) -> Result:
    match step:
        case EvaluateStep():
            return _evaluate(step, engine)
        case GateStep():
            return answer(step, engine)
        case MonitorStep():
            return monitor_rows(step, engine)


def _evaluate(step: EvaluateStep, engine: Engine) -> ModelEvaluated | PolicyEvaluated:
    check_evaluation(step)
    if step.policy or step.model is None:
        return evaluate_policy(step, engine)
    model = load_model(step.model)
    model.scored_batches(step.batches, step.calibrated)
    if step.out is not None:
        check_file_free(step.out, step.overwrite)
    source, codes = rows_of_step(model, step, engine)
    scores = evaluate_model(
        model, source, codes, engine, n_batches=step.batches, roc_auc=step.roc_auc, calibrated=step.calibrated
    )
    result = ModelEvaluated(step.model, step.data, scores, step.out)
    if step.out is not None:
        write_json(step.out, result.describe(), step.overwrite)
    return result
