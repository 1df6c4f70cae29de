"""Choosing hyperparameters for a dataset: the whole of it, from folds to the model fitted with what was chosen."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace

import numpy as np

from protodask.data.arrays.keyed import stream_key
from protodask.data.format.dataset import Dataset
from protodask.data.places.own_folder import temporary_folder
from protodask.engine import Block, Engine, EngineLike, Reduction, Source, array_source, identity, open_engine
from protodask.errors import InputError
from protodask.prototypes.config import FitConfig
from protodask.prototypes.draws import how_together
from protodask.prototypes.fitting import FitRun, StoredRows, fitted, own_directory, training_data
from protodask.prototypes.folds import check_training_parts, folded_source, make_folds
from protodask.prototypes.footprint import Shape, shape_of
from protodask.prototypes.forms import settled
from protodask.prototypes.history import BatchRecord, Callback
from protodask.prototypes.model import PrototypeSet
from protodask.prototypes.planning import require_shape
from protodask.prototypes.runs import NO_LOG, RunDirectory, RunLog
from protodask.prototypes.scores import MemoryScores, ScoreKeeper, fresh_scores
from protodask.prototypes.setting_checks import given_settings
from protodask.prototypes.training_data import TrainingData, forms_of, warn_of_large_weights
from protodask.selection.config import SearchConfig
from protodask.selection.holdout import ROWS_LOSS, fold_parts
from protodask.selection.results import SEARCH, Draw, Rule, SearchResult, Trial, best_of, best_trial, choose
from protodask.selection.search import Limits, Listener, Place, run_search
from protodask.selection.space import Setting

_DRAW_STREAM = 0x64726177
"""What tells the seeds of further draws from others that follow from the same one."""

FORMS = 2
"""How forms are learned and scaled: fits of a search that was begun when it was otherwise are not gone on with."""

FITS, REFIT, FINAL = "fits", "refit", "final"
"""Folders in the run directory of a search: those of its fits, and in another one the final fit or those of draws."""


@dataclass(frozen=True)
class TuneRun:
    """What a search leaves behind."""

    model: PrototypeSet
    """Fitted to all rows with what was chosen; its provenance keeps the search."""
    history: list[BatchRecord]
    search: SearchResult


def tune(
    data: Dataset,
    config: FitConfig | None = None,
    search: SearchConfig | None = None,
    run_dir: str | os.PathLike[str] | None = None,
    engine: EngineLike = None,
    callbacks: Sequence[Callback] = (),
    listen: Listener | None = None,
) -> TuneRun:
    """Choose `lambda_v`, the number of batches and, in two stages, `lambda_w` by cross-validation; then fit all rows.

    Rows of one group stay in one fold if the dataset has a column of groups. `config` says all that is not searched
    for, and its seed decides the folds. With `run_dir` every evaluation of every fit is recorded: the same call again
    continues where the last one stopped. `listen` hears how the search goes, `callbacks` the final fit. On a cluster
    the run directory must be reachable by the workers if the scores of all fits that advance together are many.
    """
    with tuned(data, config, search, run_dir, engine, callbacks, listen) as run:
        return run


@contextmanager
def tuned(
    data: Dataset,
    config: FitConfig | None = None,
    search: SearchConfig | None = None,
    run_dir: str | os.PathLike[str] | None = None,
    engine: EngineLike = None,
    callbacks: Sequence[Callback] = (),
    listen: Listener | None = None,
    keep: bool = True,
) -> Iterator[TuneRun]:
    """What `tune` returns, while nobody else may use the run directory; without `keep`, it goes when the body is done.

    If the body fails the run directory stays in any case.
    """
    settings = settled(config, data.n_rows, data.columns, len(data.classes))
    wanted = given_settings(SearchConfig, search)
    wanted = replace(wanted, rule=wanted.rule_for(settings.n_draws))
    if settings.weighted:
        warn_of_large_weights(data.summary)
    record = {"config": settings.with_batches(0).as_dict(), "search": wanted.as_dict(), "dataset": data.key}
    with (
        open_engine(engine) as opened,
        nullcontext(require_shape(search_shape(data, settings, wanted), opened)),
        nullcontext(require_shape(shape_of(data, settings.with_batches(wanted.max_batches)), opened)),
        nullcontext() if run_dir is None else own_directory(run_dir, record, keep) as directory,
        temporary_folder() if directory is None else nullcontext(directory.path) as folder,
    ):
        rows = training_data(data, settings, opened, directory)
        found = search_rows(
            opened,
            rows,
            settings,
            wanted,
            grouped=data.has_group,
            stored=StoredRows(data, folder, directory is not None),
            listen=listen,
        )
        chosen = chosen_config(settings, found)

        def fit_with(config: FitConfig, name: str) -> FitRun:
            place = None if directory is None else os.path.join(folder, REFIT, name)
            with fitted(data, config, place, opened, callbacks, rows=rows) as run:
                return run

        run, found = best_draw(opened, rows.source, fit_with, chosen, found, wanted)
        if directory is not None:
            directory.finish([])
        yield TuneRun(with_search(run.model, found), run.history, found)


def single_draw(config: FitConfig) -> FitConfig:
    """What the fits of a search are fitted with: the mean of several draws is for what is chosen, and so is an end on
    all rows, since another round may follow.
    """
    return replace(config, n_draws=1, finish=False)


def chosen_config(config: FitConfig, found: SearchResult) -> FitConfig:
    """`config` with what a search chose."""
    chosen = found.trials[found.selected]
    return replace(config, lambda_v=chosen.lambda_v, lambda_w=chosen.lambda_w, n_batches=chosen.n_batches)


def best_draw(
    engine: Engine,
    source: Source,
    fit_with: Callable[[FitConfig, str], FitRun],
    config: FitConfig,
    found: SearchResult,
    search: SearchConfig,
) -> tuple[FitRun, SearchResult]:
    """The final fit, with the best of several draws of candidates; `fit_with` fits with settings, under a name."""
    n_rows = source.layout.n_rows
    count = search.draws(n_rows, config.for_rows(n_rows).n_draws) if config.n_batches else 1
    if count == 1:
        return fit_with(config, FINAL), found
    runs: dict[int, FitRun] = {}
    draws: list[Draw] = []
    for seed in draw_seeds(config.seed, count):
        runs[seed] = fit_with(replace(config, seed=seed), f"draw-{seed}")
        loss = engine.reduce(source, ROWS_LOSS, engine.share(runs[seed].model), label="compare").mean
        draws.append(Draw(seed, loss))
    engine.forget(source)
    return runs[best_of(draws).seed], replace(found, draws=tuple(draws))


def draw_seeds(seed: int, count: int) -> list[int]:
    """Seeds of several draws: the one that was asked for, and others that follow from it."""
    others = stream_key(seed, _DRAW_STREAM, np.arange(count - 1)) >> np.uint64(33)
    return [seed, *(int(other) for other in others)]


def with_search(model: PrototypeSet, found: SearchResult) -> PrototypeSet:
    """The model, with the search that led to it in its provenance."""
    return replace(model, provenance={**model.provenance, SEARCH: found.describe()})


def search_shape(data: Dataset, config: FitConfig, search: SearchConfig) -> Shape:
    """The shape of a search's fits: a block has two further weights a row, for training and for judging."""
    shape = shape_of(data, single_draw(config.with_batches(search.max_batches)))
    return replace(shape, weight_columns=shape.weight_columns + 2)


def search_rows(
    engine: Engine,
    data: TrainingData,
    config: FitConfig,
    search: SearchConfig,
    *,
    grouped: bool,
    stored: StoredRows | None,
    listen: Listener | None = None,
) -> SearchResult:
    """Cross-validate on rows in memory, or on `stored` ones; each fit is of one draw.

    Where fits hold rows out, those are rows of its training part: no fit is stopped by the rows that it is judged by.
    """
    n_rows, n_classes = data.source.layout.n_rows, len(data.classes)
    asked = settled(config, n_rows, data.columns, n_classes)
    config, rule = single_draw(asked), search.rule_for(asked.n_draws)
    shape = None if stored is None else search_shape(stored.dataset, config, search)
    company, most = how_together(engine, shape, n_rows, len(data.feature_names), n_classes, config)
    keep_stored = False
    if stored is not None and shape is not None:
        processes = engine.scheduler.processes()
        # A setting holds back those of its folds that are ahead, so that a few more are begun than are at work.
        keep_stored = most * search.n_folds * shape.score_bytes > processes.resident_bytes
        if keep_stored and processes.kind == "workers":
            require_reach(engine, stored.folder)
    assignment = make_folds(engine, data.source, n_classes, search.n_folds, config.seed, grouped, data.classes)
    check_training_parts(assignment, data.classes, config.max_fraction)
    folded = folded_source(data.source, assignment)
    fast = replace(config, tolerance=search.tolerance)

    def scores(name: str) -> ScoreKeeper:
        if stored is None or not (keep_stored or stored.recorded):
            return MemoryScores()
        keeper = fresh_scores(os.path.join(stored.folder, FITS, name), n_classes)
        return keeper if keep_stored else MemoryScores()

    def log(name: str, setting: Setting, fold: int) -> RunLog:
        if stored is None or not stored.recorded:
            return NO_LOG
        record = {
            "config": setting.of(replace(fast, n_batches=0)).as_dict(),
            "dataset": stored.dataset.key,
            "folds": assignment.key,
            "fold": fold,
            "forms": FORMS,
        }
        return RunDirectory.open(os.path.join(stored.folder, FITS, name), record)

    try:
        parts = fold_parts(engine, folded, data, assignment.n_folds, config, grouped, company, most)
        # All fits of a fold look at the same rows.
        parts = [replace(part, data=replace(part.data, forms=forms_of(engine, part.data, config))) for part in parts]

        def tried(stage: int, settings: Sequence[Setting], max_batches: int) -> list[Trial]:
            limits, place = Limits(max_batches, search.patience, search.least_gain), Place(scores, log)
            losses = run_search(engine, parts, settings, fast, limits, place, company=company, most=most, listen=listen)
            return [
                Trial(stage, setting.lambda_v, setting.lambda_w, count, by_fold)
                for setting, by_count in zip(settings, losses, strict=True)
                for count, by_fold in enumerate(by_count)
            ]

        return _choose(tried, search, rule, search.settings(config.lambda_w, config.seed))
    finally:
        engine.forget(folded)


def require_reach(engine: Engine, folder: str) -> None:
    """Refuse a folder for scores that a worker does not find: it may be on another machine."""
    rows = array_source({"row": np.zeros(engine.scheduler.n_threads)}, 1)
    reached = engine.reduce(rows, _REACH, folder, label="folder")
    engine.forget(rows)
    if not reached:
        raise InputError(
            "not-found",
            f"The scores between batches would go into {folder}, where not every worker finds a folder.",
            "Give a run directory on storage that the workers share with this process.",
        )


def _reaches(block: Block, folder: str) -> bool:
    return os.path.isdir(folder)


_REACH: Reduction[bool, bool] = Reduction(_reaches, operator.and_, identity)


def _choose(
    tried: Callable[[int, Sequence[Setting], int], list[Trial]],
    search: SearchConfig,
    rule: Rule,
    settings: Sequence[Setting],
) -> SearchResult:
    match search.strategy:
        case "joint":
            before, last = [], tried(1, settings, search.max_batches)
        case "two-stage":
            # The marginals have the same loss with all penalties: the first stage is about those of one batch.
            before = [trial for trial in tried(1, settings, 1) if trial.n_batches == 1]
            chosen = before[choose(before, rule)]
            last = tried(2, [Setting(chosen.lambda_v, chosen.lambda_w)], search.max_batches)
    first = len(before)
    return SearchResult(
        search.strategy,
        (*before, *last),
        first + best_trial(last),
        first + choose(last, rule),
        rule,
    )
