"""Training planes on samples of any number: the brackets once, then bundles for planes that share passes."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import numpy as np

from protodask.data.format.dataset import Dataset, no_dataset, unweighted
from protodask.data.format.schema import FEATURES, Column
from protodask.data.places.own_folder import temporary_folder
from protodask.engine import Block, Engine, EngineLike, open_engine
from protodask.engine.together import all_together
from protodask.errors import InputError, count, some
from protodask.prototypes.fitting import dataset_for_training, own_directory
from protodask.prototypes.runs import environment
from protodask.prototypes.setting_checks import given_settings
from protodask.prototypes.training_data import warn_of_large_weights
from protodask.robust.bundle import Pass, PlaneFit, solve_bundle
from protodask.robust.bundle_run import recorded_passes
from protodask.robust.config import RobustConfig
from protodask.robust.footprint import planes_at_once
from protodask.robust.formulations import spread_multiple
from protodask.robust.kept_terms import ClassAgainstRest, TermsForm, UncertainSource, keep_terms, store_terms
from protodask.robust.model import RobustModel
from protodask.robust.uncertain_columns import UncertainColumns, columns_of_table
from protodask.robust.uncertain_rows import UncertainRows


@dataclass(frozen=True)
class PlanePass:
    """A pass over the samples is done."""

    plane: int
    """Counted from 1."""
    n_planes: int
    done: Pass


OnPass = Callable[[PlanePass], None]


@dataclass(frozen=True)
class RobustRun:
    """What a robust fit leaves behind."""

    model: RobustModel
    history: tuple[tuple[Pass, ...], ...]
    """The passes of each plane."""


@dataclass(frozen=True, eq=False)
class RowsOfColumns:
    """What the features of a dataset's block say: a `RowsOfBlock`."""

    columns: UncertainColumns

    def __call__(self, block: Block) -> UncertainRows:
        return self.columns.rows(block[FEATURES.name], block.start)


def fit_robust(
    data: Dataset,
    config: RobustConfig | None = None,
    run_dir: str | os.PathLike[str] | None = None,
    engine: EngineLike = None,
    on_pass: OnPass | None = None,
    terms: str | os.PathLike[str] | None = None,
) -> RobustRun:
    """Train planes on a dataset whose features are known roughly, as the names of its columns say.

    A feature `x` is a column `x` known exactly, or columns `x.low`, `x.high` and so on, see `uncertain_columns`. Two
    classes are one plane, more are one for each class against the rest; the passes of all are one as long as they last.

    With `run_dir` every pass is recorded: the same call again, after an interruption, continues where the last one
    stopped and ends with the same model; with a smaller gap it goes on from there. The brackets of the samples are
    computed once, block by block. Where they are too many for memory they are kept in the run directory (without one,
    in a temporary folder), which on a cluster the workers must be able to reach; or at the place `terms`, where other
    fits of the same data and formulation find them, whatever their `eps` and `C`.
    """
    with robustly_fitted(data, config, run_dir, engine, on_pass, terms) as run:
        return run


@contextmanager
def robustly_fitted(
    data: Dataset,
    config: RobustConfig | None = None,
    run_dir: str | os.PathLike[str] | None = None,
    engine: EngineLike = None,
    on_pass: OnPass | None = None,
    terms: str | os.PathLike[str] | None = None,
    keep: bool = True,
) -> Iterator[RobustRun]:
    """What `fit_robust` returns, while nobody else may use the run directory; unless to `keep`, it goes with the body.

    If the body fails the run directory stays in any case.
    """
    if not isinstance(data, Dataset):
        raise no_dataset(data)
    settings = given_settings(RobustConfig, config)
    if settings.weighted:
        warn_of_large_weights(data.summary)
    known = uncertain_dataset(data, settings)
    settings.check_total(data.summary.weight if settings.weighted else float(data.n_rows))
    warn_of_coarse_bounds(data)
    with (
        open_engine(engine) as opened,
        planes_trained(known, settings, opened, {"dataset": data.key}, run_dir, on_pass, terms, keep) as found,
    ):
        rows = dataset_for_training(data)
        model = replace(
            make_model(found, settings, known),
            columns=rows.columns,
            target_name=rows.target_name,
            other_names=rows.other_names,
            precision="float32" if known.dtype == "float32" else "float64",
            provenance=provenance(data, settings, found),
        )
        warn_if_short(model)
        yield RobustRun(model, tuple(plane.history for plane in found))


class CoarseBoundsWarning(UserWarning):
    """The type of the numbers is too coarse for what is to be known of a feature."""


COARSE = 1 / 16
"""Share of the mean distance of two bounds that a step of their type may be: each is off by half a step."""


def warn_of_coarse_bounds(data: Dataset) -> None:
    """Warn where the bounds of a feature were rounded to steps that are not small beside their distance."""
    if data.dtype != np.float32:
        return
    columns, summary = columns_of_table(data.columns), data.summary
    lower, upper = columns.lower, columns.upper
    size = np.maximum(np.abs(summary.minimum[lower]), np.abs(summary.maximum[upper]))
    step = np.spacing(size.astype(np.float32)).astype(np.float64)
    coarse = (lower != upper) & (step > COARSE * (summary.mean[upper] - summary.mean[lower]))
    if coarse.any():
        named = [name for name, rounded in zip(columns.features, coarse, strict=True) if rounded]
        warnings.warn(
            f"The dataset has float32 numbers, and the bounds of {some(named)} lie hardly further apart than their "
            "steps, or not at all: what is promised does not hold for what was rounded away. Ingest the data with "
            "dtype='float64', or take a constant from the feature.",
            CoarseBoundsWarning,
            stacklevel=3,
        )


def uncertain_dataset(data: Dataset, config: RobustConfig) -> UncertainSource:
    """A dataset as samples that are known roughly."""
    counted = config.weighted or not (data.has_weight or data.has_inclusion)
    columns = columns_of_table(data.columns)
    return UncertainSource(
        source=data if counted else unweighted(data),
        rows_of=RowsOfColumns(columns),
        features=columns.features,
        classes=data.classes,
        dtype=data.dtype.name,
    )


@contextmanager
def planes_trained(
    known: UncertainSource,
    config: RobustConfig,
    engine: Engine,
    rows: Mapping[str, Any],
    run_dir: str | os.PathLike[str] | None,
    on_pass: OnPass | None,
    terms: str | os.PathLike[str] | None = None,
    keep: bool = True,
) -> Iterator[list[PlaneFit]]:
    """The plane of two classes, the second against the first, or those of each of more classes against the rest.

    A pass serves as many planes as memory allows, or all that have not ended: each has the bits it has alone.
    `rows` tells the samples from those of other runs; the rest is what `fit_robust` and `robustly_fitted` say.
    """
    if on_pass is not None and not callable(on_pass):
        raise InputError("bad-setting", f"on_pass is {on_pass!r}.", "Give a function of one argument, or None.")
    form = TermsForm(config.formulation, len(known.features), known.dtype)
    positives = positive_codes(len(known.classes))
    multiple = spread_multiple(config.formulation, config.eps)
    record = {"kind": "robust", "config": config.problem(), **rows}
    telling = threading.Lock()

    def train(number: int, engine: Engine) -> PlaneFit:
        def listen(done: Pass) -> None:
            if on_pass is not None:
                with telling:
                    on_pass(PlanePass(number, len(positives), done))

        return solve_bundle(
            kept,
            ClassAgainstRest(form, multiple, positives[number - 1], config.C),
            engine,
            gap=config.gap,
            max_passes=config.max_passes,
            recorded=None if directory is None else recorded_passes(directory, number),
            on_pass=listen,
        )

    with (
        nullcontext() if run_dir is None else own_directory(run_dir, record, keep) as directory,
        temporary_folder()
        if directory is None and not known.source.resident
        else nullcontext("" if directory is None else directory.path) as folder,
    ):
        # What does not fit is refused before anything is computed.
        at_once = planes_at_once(form, len(positives), known.source.layout, engine)
        kept = keep_terms(known, form, engine, folder) if terms is None else store_terms(known, form, engine, terms)
        planes = [partial(train, number) for number in range(1, len(positives) + 1)]
        if min(at_once, len(positives)) == 1:
            found = [plane(engine) for plane in planes]
        else:
            # In step also where all samples are in memory: that takes no longer than planes that compute side by side.
            found = all_together(engine, planes, company="in step", most=at_once)
        engine.forget(kept)
        if directory is not None:
            directory.finish([plane_summary(plane) for plane in found])
        yield found


def positive_codes(n_classes: int) -> list[int]:
    """The classes that a plane is for: the second of two, or each of more."""
    return [1] if n_classes == 2 else list(range(n_classes))


def make_model(found: Sequence[PlaneFit], config: RobustConfig, known: UncertainSource) -> RobustModel:
    """The model that planes amount to, of a table of which nothing is known but the features."""
    return RobustModel(
        weights=np.stack([plane.weights for plane in found]),
        intercept=np.array([plane.intercept for plane in found]),
        classes=known.classes,
        features=known.features,
        columns=tuple(Column(name) for name in known.features),
        config=config,
        objective=np.array([plane.objective for plane in found]),
        lower_bound=np.array([plane.dual_objective for plane in found]),
        passes=tuple(plane.passes for plane in found),
    )


def warn_if_short(model: RobustModel) -> None:
    """Warn where a gap is larger than was asked for."""
    if not model.converged:
        from protodask.prototypes.convergence import ConvergenceWarning

        passes = max(model.passes)
        warnings.warn(
            f"The gap is {model.gap.max():.1e} after {count(passes, 'pass', 'passes')}; "
            f"{model.config.gap:.1e} was asked for. Raise `max_passes` or `gap`, or bring the features to "
            "similar scales.",
            ConvergenceWarning,
            stacklevel=3,
        )


def plane_summary(plane: PlaneFit) -> dict[str, Any]:
    """How the training of a plane went, as plain JSON values."""
    return {
        "status": plane.status,
        "objective": plane.objective,
        "lower_bound": plane.dual_objective,
        "passes": [asdict(done) for done in plane.history],
    }


def provenance(data: Dataset, config: RobustConfig, found: Sequence[PlaneFit]) -> Mapping[str, Any]:
    """Where a model comes from."""
    return {
        "dataset": data.key,
        "rows": data.n_rows,
        "config": config.as_dict(),
        "environment": environment(),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "planes": [plane_summary(plane) for plane in found],
    }
