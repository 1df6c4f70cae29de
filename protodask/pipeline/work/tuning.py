"""Carrying out the step `tune`: a search, the model with what it chose, and the table of its trials."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from protodask.data import Dataset
from protodask.data.places.storage import locate
from protodask.engine import Engine
from protodask.pipeline.steps import TuneStep
from protodask.pipeline.steps.tune import ModelTuned
from protodask.pipeline.telling.events import Listener, SearchStarted
from protodask.pipeline.work.published import check_beside, published_model, write_beside
from protodask.pipeline.work.settings import run_directory, search_config, tuned_config
from protodask.prototypes.persistence import model_fingerprint, save_model
from protodask.selection.results import SearchResult, as_rows
from protodask.selection.tuning import tuned


def tune_dataset(step: TuneStep, engine: Engine, listen: Listener) -> ModelTuned:
    """Search, train, and write what the step asks for."""
    search = search_config(step)
    config = tuned_config(step, search)
    where = locate(step.out)
    run_dir = locate(run_directory(where, step.run_dir))
    published = published_model(where, run_dir, step.overwrite)
    if step.table is not None:
        check_beside(step.table, step.overwrite, run_dir)
    data = Dataset.open(step.data)
    group = data.metadata.group_name
    n_settings = len(search.settings(config.lambda_w, config.seed))
    listen(SearchStarted(search.strategy, n_settings, search.n_folds, group))
    keep = step.run_dir is not None
    with tuned(data, config, search, run_dir, engine, (listen,), listen, keep=keep) as run:
        # The table first: the model says that all is there.
        if step.table is not None:
            write_beside(step.table, table_text(run.search).encode(), step.overwrite)
        if model_fingerprint(run.model) != published:
            save_model(run.model, where, overwrite=step.overwrite)
    return ModelTuned(
        where,
        run.model,
        tuple(run.history),
        run.search,
        data.n_rows,
        group,
        step.table,
        tuple(notes_on(run.search, search.max_batches)),
    )


def notes_on(search: SearchResult, max_batches: int) -> Iterator[str]:
    """What speaks for another search, such as a best trial on the edge of what was tried."""
    best = search.trials[search.best]
    if search.trials[search.selected].n_batches == 0:
        yield "No setting does better than the shares of the classes alone by more than the noise of the folds."
        return
    if best.n_batches == max_batches:
        yield f"The best setting has {max_batches} batches, as many as were allowed; try more with --max-batches."
    for name, option in (("lambda_v", "--lambda-v-range"), ("lambda_w", "--lambda-w-range")):
        tried = {getattr(trial, name) for trial in search.trials}
        value = getattr(best, name)
        if len(tried) > 1 and value in (min(tried), max(tried)):
            end = "smallest" if value == min(tried) else "largest"
            yield f"The best {name}, {value:.3g}, is the {end} that was tried; widen {option} to look beyond it."


def table_text(search: SearchResult) -> str:
    """All trials as CSV, numbers to the last bit."""
    rows = as_rows(search)
    with io.StringIO(newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return file.getvalue()
