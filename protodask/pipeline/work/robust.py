"""Carrying out the steps on robust models: planes for rows whose features are known only roughly."""

from __future__ import annotations

from protodask.data import Dataset
from protodask.data.places.storage import check_file_free, check_free, locate
from protodask.engine import Engine
from protodask.errors import InputError
from protodask.pipeline.steps.robust import (
    RobustEvaluated,
    RobustEvaluateStep,
    RobustFitStep,
    RobustFitted,
    RobustPredicted,
    RobustPredictStep,
)
from protodask.pipeline.telling.events import Listener, RobustStarted
from protodask.pipeline.telling.json_file import written
from protodask.pipeline.work.published import published_model
from protodask.pipeline.work.settings import run_directory
from protodask.places import mask
from protodask.prototypes.rows_to_score import rows_to_predict
from protodask.robust.cone_program import load_clarabel
from protodask.robust.config import RobustConfig
from protodask.robust.measures import evaluate_robust
from protodask.robust.model import RobustModel
from protodask.robust.persistence import ROBUST_MODEL, load_robust_model, robust_fingerprint, save_robust_model
from protodask.robust.prediction import ROBUST_PREDICTIONS, predict_robust
from protodask.robust.training import RowsOfColumns, robustly_fitted
from protodask.robust.uncertain_columns import columns_of_table


def check_places(step: RobustFitStep) -> None:
    """Refuse a model or terms where others write: the fit would end with no room for its model."""
    named = {"model": step.out, "run directory": run_directory(step.out, step.run_dir), "terms": step.terms}
    places = {name: locate(place) for name, place in named.items() if place is not None}
    # Terms may lie in a run directory, as they do by default.
    for name, other in (("model", "run directory"), ("model", "terms"), ("run directory", "terms"), ("terms", "model")):
        if name in places and other in places and f"{places[name]}/".startswith(f"{places[other]}/"):
            raise InputError(
                "places-overlap",
                f"The {name} {mask(places[name])} would lie in the {other} {mask(places[other])}.",
                "Choose places beside each other.",
            )


def robust_config(step: RobustFitStep) -> RobustConfig:
    """The checked settings of a robust fit."""
    return RobustConfig(
        formulation=step.formulation,
        eps=step.eps,
        C=step.cost,
        gap=step.gap,
        max_passes=step.max_passes,
        weighted=step.weighted,
    )


def fit(step: RobustFitStep, engine: Engine, listen: Listener) -> RobustFitted:
    """Train the planes and write the model; `listen` hears every pass."""
    load_clarabel()  # whether there is anything to solve with is asked before the work is done
    config = robust_config(step)
    where = locate(step.out)
    run_dir = locate(run_directory(where, step.run_dir))
    published = published_model(where, run_dir, step.overwrite, ROBUST_MODEL, _fingerprint_at)
    if published is not None and load_robust_model(where).config != config:
        # The run may go on to a smaller gap; but its model would not take the place of this one.
        check_free(where, step.overwrite, ROBUST_MODEL)
    data = Dataset.open(step.data)
    keep = step.run_dir is not None
    listen(RobustStarted())
    with robustly_fitted(data, config, run_dir, engine, listen, step.terms, keep) as run:
        if robust_fingerprint(run.model) != published:
            save_robust_model(run.model, where, overwrite=step.overwrite)
    return RobustFitted(where, run.model, run.history)


def _fingerprint_at(path: str) -> str:
    return robust_fingerprint(load_robust_model(path))


def predict(step: RobustPredictStep, engine: Engine) -> RobustPredicted:
    """Write the predictions."""
    model = load_robust_model(step.model)
    where = locate(step.out)
    check_free(where, step.overwrite, ROBUST_PREDICTIONS)
    source = rows_to_predict(model, step.data, engine=engine, unseen=step.unseen, drop=step.drop)
    name = model.certifying(step.formulation)
    rows = predict_robust(
        model, source, rows_of_model(model), where, engine, formulation=name, overwrite=step.overwrite
    )
    return RobustPredicted(where, rows, name)


def evaluate(step: RobustEvaluateStep, engine: Engine) -> RobustEvaluated:
    """Measure the errors, and write them if a file is named."""
    model = load_robust_model(step.model)
    if step.out is not None:
        check_file_free(step.out, step.overwrite)
    source, codes = step.known_rows(step.data, model, engine)
    name = model.certifying(step.formulation)
    eps = model.config.eps if step.eps is None else step.eps
    sums = evaluate_robust(model, source, rows_of_model(model), codes, engine, formulation=name, eps=eps)
    measured = RobustEvaluated(step.model, step.data, sums, name, eps, path=step.out)
    return written(measured, step.out, step.overwrite)


def rows_of_model(model: RobustModel) -> RowsOfColumns:
    """What the numbers of rows like those a model was trained on say of its features."""
    return RowsOfColumns(columns_of_table(model.columns))
