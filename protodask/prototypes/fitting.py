"""Fitting on a dataset: the whole of a run, from its directory to its model."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protodask.data.format.dataset import Dataset, no_dataset, unweighted
from protodask.data.format.schema import FEATURES, INCLUSION, TARGET, WEIGHT
from protodask.data.format.summary import Summary, summarize
from protodask.data.places.own_folder import own_folder, temporary_folder
from protodask.engine import Engine, EngineLike, open_engine
from protodask.prototypes.config import FitConfig
from protodask.prototypes.draws import Fitting, how_together
from protodask.prototypes.footprint import scores_stored, shape_of
from protodask.prototypes.forms import settled
from protodask.prototypes.history import BatchRecord, Callback
from protodask.prototypes.model import SHRUNK, PrototypeSet
from protodask.prototypes.persistence import model_fingerprint
from protodask.prototypes.planning import require_shape
from protodask.prototypes.runs import NO_LOG, RunDirectory, RunLog, environment, run_place
from protodask.prototypes.scores import MemoryScores, ScoreKeeper, fresh_scores
from protodask.prototypes.setting_checks import checked_listeners
from protodask.prototypes.table_model import FITS
from protodask.prototypes.training_data import TrainingData, warn_of_large_weights, warn_of_scales


@dataclass(frozen=True)
class FitRun:
    """What a fit leaves behind."""

    model: PrototypeSet
    history: list[BatchRecord]
    """A record for each batch this fit added."""


def fit(
    data: Dataset,
    config: FitConfig | None = None,
    run_dir: str | os.PathLike[str] | None = None,
    engine: EngineLike = None,
    callbacks: Sequence[Callback] = (),
    start: PrototypeSet | None = None,
) -> FitRun:
    """Train a prototype set on a dataset; `start` is a model to add further batches to.

    With `run_dir` every evaluation is recorded: the same call again, after an interruption, continues where the last
    one stopped and ends with the same model. A run directory of other settings or data is refused. On a cluster the
    run directory must be reachable by the workers if the data has so many rows that their scores do not fit into
    memory. A fit that would not keep the memory limit of the engine's processes is refused before a row is read, with
    what would make it fit; `plan` gives the whole account. Where `config` leaves the weights of the data aside, a first
    pass finds the statistics of the rows without them.
    """
    with fitted(data, config, run_dir, engine, callbacks, start) as run:
        return run


@contextmanager
def fitted(
    data: Dataset,
    config: FitConfig | None = None,
    run_dir: str | os.PathLike[str] | None = None,
    engine: EngineLike = None,
    callbacks: Sequence[Callback] = (),
    start: PrototypeSet | None = None,
    keep: bool = True,
    rows: TrainingData | None = None,
) -> Iterator[FitRun]:
    """What `fit` returns, while nobody else may use the run directory; unless to `keep`, it goes when the body is done.

    If the body fails the run directory stays in any case. `rows` is what `training_data` gave for several fits of the
    same data, of whose large weights the caller has warned.
    """
    if not isinstance(data, Dataset):
        raise no_dataset(data)
    settings = settled(config, data.n_rows, data.columns, len(data.classes))
    if rows is None and settings.weighted:
        warn_of_large_weights(data.summary)
    record = {
        "config": settings.as_dict(),
        "dataset": data.key,
        "start": None if start is None else model_fingerprint(start),
    }
    with (
        open_engine(engine) as opened,
        nullcontext(require_shape(shape_of(data, settings, start), opened)),
        nullcontext() if run_dir is None else own_directory(run_dir, record, keep) as directory,
        temporary_folder() if directory is None else nullcontext(directory.path) as folder,
    ):
        if rows is None:
            rows = training_data(data, settings, opened, directory)
        stored = StoredRows(data, folder)
        model, history = fit_rows(opened, rows, settings, data.has_group, stored, start, directory or NO_LOG, callbacks)
        opened.forget(rows.source)
        model = replace(model, provenance=fit_provenance(data, settings, history, start, model.n_batches))
        if directory is not None:
            directory.finish([batch_summary(entry) for entry in history])
        yield FitRun(model, history)


@contextmanager
def own_directory(path: str | os.PathLike[str], record: Mapping[str, Any], keep: bool = True) -> Iterator[RunDirectory]:
    """The run directory at `path`, which nobody else may use meanwhile.

    Unless to `keep`, it is removed when the body is done. Where the body fails before its first evaluation, a directory
    that was made for it is removed.
    """
    with own_folder(run_place(path)) as folder:
        try:
            directory = RunDirectory.open(folder.path, record)
            yield directory
        except BaseException:
            folder.unwanted = folder.made and os.path.isdir(folder.path) and RunDirectory(folder.path).untouched
            raise
        folder.unwanted = not keep


def training_data(data: Dataset, config: FitConfig, engine: Engine, log: RunLog | None = None) -> TrainingData:
    """What training needs to know of a dataset.

    Where there are weights that are not to count, everything is as it would be of the same blocks without them, to the
    last bit. Statistics of the rows as they are take one pass, unless the `log` of a run has them.
    """
    weighted = dataset_for_training(data)
    if config.weighted or not (data.has_weight or data.has_inclusion):
        return weighted
    source = unweighted(data)

    def statistics() -> dict[str, NDArray[Any]]:
        found = summarize(engine, source, len(data.classes))
        return {name: getattr(found, name) for name in ROW_STATISTICS}

    known = (log or NO_LOG).arrays(0, "summary", statistics)
    class_rows = known["class_rows"]
    rows = int(class_rows.sum())
    summary = Summary(
        rows=rows, class_weight=class_rows.astype(np.float64), weight=float(rows), largest_weight=1.0, **known
    )
    return replace(weighted, source=source, array_names=(FEATURES.name, TARGET.name), summary=summary)


ROW_STATISTICS = ("class_rows", "mean", "squares", "minimum", "maximum")
"""Of rows that count once each; the rest of their summary follows from the numbers of rows."""


def dataset_for_training(data: Dataset) -> TrainingData:
    """What training needs to know of a dataset whose weights count."""
    names = [FEATURES.name, TARGET.name]
    names += [WEIGHT.name] if data.has_weight else []
    names += [INCLUSION.name] if data.has_inclusion else []
    metadata = data.metadata
    others = [metadata.weight_name, metadata.inclusion_name, metadata.group_name, *metadata.dropped]
    return TrainingData(
        source=data,
        array_names=tuple(names),
        summary=data.summary,
        classes=data.classes,
        feature_names=data.feature_names,
        columns=data.columns,
        dtype="float64" if data.dtype == np.float64 else "float32",
        target_name=data.target_name,
        other_names=tuple(name for name in others if name is not None),
    )


@dataclass(frozen=True)
class StoredRows:
    """Where rows lie that are not in memory, and what a fit or a search of them may write to."""

    dataset: Dataset
    folder: str
    recorded: bool = False
    """Whether the folder is a run directory that keeps evaluations."""


def fit_rows(
    engine: Engine,
    data: TrainingData,
    config: FitConfig,
    grouped: bool,
    stored: StoredRows | None,
    start: PrototypeSet | None = None,
    log: RunLog = NO_LOG,
    callbacks: Sequence[Callback] = (),
) -> tuple[PrototypeSet, list[BatchRecord]]:
    """Fit to rows in memory, or to `stored` ones, with settings that leave nothing open.

    The scores between batches are stored, too, if those of all draws that advance together are many.
    """
    n_classes, folder = len(data.classes), None
    shape = None if stored is None else shape_of(stored.dataset, config, start)
    company, most = how_together(engine, shape, data.source.layout.n_rows, len(data.feature_names), n_classes, config)
    if stored is not None and shape is not None:
        processes = engine.scheduler.processes()
        kept = min(most, config.n_draws) * shape.score_bytes
        folder = stored.folder if kept > processes.resident_bytes or scores_stored(shape, processes) else None
    fitting = Fitting(
        config, engine, partial(score_keeper, n_classes, folder), log, checked_listeners("callbacks", callbacks)
    )
    model, history = fitting.run(data, grouped, company, most, start)
    if history and not config.standardize:
        warn_of_scales(data.summary, model)
    return model, history


def score_keeper(n_classes: int, folder: str | None, draw: int = 0) -> ScoreKeeper:
    """Scores in `folder` if there is one, those of a further draw in a folder of its own; else in memory."""
    if folder is None:
        return MemoryScores()
    return fresh_scores(os.path.join(folder, f"draw-{draw + 1}") if draw else folder, n_classes)


def batch_summary(record: BatchRecord) -> dict[str, Any]:
    """A record without its list of candidates and with at most `MOST_VALUES` of its values, as plain JSON values."""
    summary = asdict(record)
    summary["candidates"] = len(record.candidates)
    summary["values"] = thinned(record.values)
    if record.held_out is None:
        del summary["held_out"]
    if record.batches is None:
        del summary["batches"]
    if not record.by_region:
        del summary["by_region"]
    if record.kept:
        del summary["kept"]
    if not record.on_all_rows:
        del summary["on_all_rows"]
    return summary


ADDED = "added"
"""Batches that a fit added to its model, in its entry, where they are not as many as its records."""

MOST_VALUES = 200
"""Points of a training curve that are kept with a model: more than a picture of it can show, in a few kilobytes."""


def thinned(values: Sequence[float]) -> list[float]:
    """At most `MOST_VALUES` of the values, evenly spread, the first and the last among them."""
    last = len(values) - 1
    if last < MOST_VALUES:
        return list(values)
    return [values[position * last // (MOST_VALUES - 1)] for position in range(MOST_VALUES)]


def counted_by(data: Dataset) -> dict[str, str]:
    """The columns by which rows count: "weight" and "inclusion", as far as there are such."""
    names = {"weight": data.metadata.weight_name, "inclusion": data.metadata.inclusion_name}
    return {role: name for role, name in names.items() if name is not None}


def fit_provenance(
    data: Dataset, config: FitConfig, history: Sequence[BatchRecord], start: PrototypeSet | None, n_batches: int
) -> dict[str, Any]:
    """Where a model of so many batches comes from: what `start` says as far as it is still true, and an entry for this
    fit, which says how many batches it added unless that is one for each record.

    A search is not kept: it chose the settings and the number of batches of a model that this one is not any more. What
    the start was shrunk from is: it tells where columns went that the training data of earlier fits have.
    """
    known = {} if start is None else start.provenance
    before = known.get(FITS)
    entry = {
        "dataset": data.key,
        "rows": data.n_rows,
        **counted_by(data),
        "config": config.as_dict(),
        "environment": environment(),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "batches": [batch_summary(record) for record in history],
    }
    added = n_batches - (0 if start is None else start.n_batches)
    if added != len(history):
        entry[ADDED] = added
    kept = {name: known[name] for name in (SHRUNK,) if name in known}
    return {**kept, FITS: [*(before if isinstance(before, list) else []), entry]}
