"""An index of models on columns of a dataset: which columns to compute for an item, and the model for them."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace

import numpy as np

from protodask.budget.column_models import ColumnFits, ModelsProgress, column_expander, fit_sets, fit_shape
from protodask.budget.expansions import Expand, warn_of_failures
from protodask.budget.feature_columns import Costed, FeatureColumns, feature_columns
from protodask.budget.index import BudgetIndex
from protodask.budget.index_building import (
    Search,
    SearchSettings,
    index_exploration,
    search_of,
    search_sets,
    warn_of_assumption,
)
from protodask.budget.lattice import MOST_FEATURES, Exploration, ExplorationProgress
from protodask.budget.recorded import recorded
from protodask.data.format.dataset import Dataset, no_dataset
from protodask.data.format.schema import Label
from protodask.data.places.own_folder import temporary_folder
from protodask.engine import EngineLike, open_engine
from protodask.errors import InputError
from protodask.prototypes.config import FitConfig
from protodask.prototypes.fitting import own_directory, training_data
from protodask.prototypes.forms import settled
from protodask.prototypes.model import PrototypeSet
from protodask.prototypes.planning import require_shape
from protodask.prototypes.training_data import warn_of_large_weights

EXPANSIONS = "expansions.log"
"""In a run directory: the record of what was expanded."""

BudgetEvent = ExplorationProgress | ModelsProgress
BudgetListener = Callable[[BudgetEvent], None]


@dataclass(frozen=True, eq=False)
class ColumnBudget:
    """An index of sets of features of a dataset, and their models."""

    index: BudgetIndex
    features: FeatureColumns
    models: tuple[PrototypeSet | None, ...]
    """Of each of the index's `sets`. None for those that no size and budget leads to, and for the empty one, of which
    the class shares are all there is to say.
    """
    classes: tuple[Label, ...]
    shares: tuple[float, ...]
    """Of the classes among all rows."""
    target_name: str


def build_column_budget(
    data: Dataset,
    features: Mapping[str, Costed],
    sizes: tuple[float, float] = (0.0, math.inf),
    config: FitConfig | None = None,
    folds: int = 5,
    alpha: float = 0.0,
    monotone_error: float = 0.0,
    most_fits: int | None = None,
    run_dir: str | os.PathLike[str] | None = None,
    engine: EngineLike = None,
    listen: BudgetListener | None = None,
    without: Sequence[str] = (),
    diminishing_returns: bool = False,
    search: Search | None = None,
    size: float | None = None,
) -> ColumnBudget:
    """Cross-validate the classifier on sets of features, and index those that are the best within some budget.

    `features` gives each feature, by name, the columns of raw tables that are computed for it and the coefficients of
    its cost, a polynomial of the size of an item, constant first; items have the smallest and the largest of `sizes`.
    Columns are left out by naming them in `without`. A choice is at most `alpha` less accurate than the best set within
    the budget, where adding features lowers accuracy by no more than `monotone_error`, as cross-validated; `margin` of
    the index is what the noise of that adds. With `most_fits` sets expanded at most, `guarantee` of the index says how
    close it came, and `build_index` tells of `diminishing_returns` and `search`, which is at the median `size` where it
    is greedy. What contradicts the assumption is a `MonotonicityWarning`, sets that cannot be fitted are a
    `FailedExpansionWarning`.

    Each set costs `folds` fits with `config`, several of them at once, and rows of one group stay in one fold. With
    `run_dir` all that was expanded is recorded: the same call goes on after an interruption, and one with other costs,
    sizes, `alpha` or `most_fits` uses it again.
    """
    if not isinstance(data, Dataset):
        raise no_dataset(data)
    settings = SearchSettings(search, alpha, monotone_error, diminishing_returns, most_fits, size)
    chosen = feature_columns(data.columns, features, sizes, without)
    n_folds = folds.item() if isinstance(folds, np.generic) else folds
    with budgeted(data, chosen, config, settings, n_folds, run_dir, engine, listen) as found:
        index = found.budget.index
    warn_of_failures(index.failures, index.expanded, stacklevel=2)
    warn_of_assumption(index, stacklevel=2)
    return found.budget


@dataclass(frozen=True)
class BudgetRun:
    """What a build leaves behind."""

    budget: ColumnBudget
    exploration: Exploration
    expand: Expand
    """Answers from the record what it has; to be used before the run is over."""


@contextmanager
def budgeted(
    data: Dataset,
    features: FeatureColumns,
    config: FitConfig | None,
    settings: SearchSettings,
    n_folds: int,
    run_dir: str | os.PathLike[str] | None,
    engine: EngineLike,
    listen: BudgetListener | None = None,
    keep: bool = True,
) -> Iterator[BudgetRun]:
    """What `build_column_budget` returns, while nobody else may use the run directory.

    Without `keep`, that goes when the body is done; if the body fails it stays in any case.
    """
    search = search_of(settings.search, features.n_features)
    if search == "all" and features.n_features > MOST_FEATURES:  # said before a row is read
        raise InputError(
            "over-limit",
            f"There are {features.n_features:,} features, and the sets of {MOST_FEATURES} at most can be explored.",
            "Search greedily, let columns that are computed together be one feature, or leave some out.",
        )
    settled_config = settled(config, data.n_rows, data.columns, len(data.classes))
    if settled_config.weighted:
        warn_of_large_weights(data.summary)
    named = [[name, list(columns)] for name, columns in zip(features.names, features.columns, strict=True)]
    record = {
        "config": settled_config.as_dict(),
        "budget": {"folds": n_folds, "features": named},
        "dataset": data.key,
    }
    with (
        open_engine(engine) as opened,
        nullcontext(require_shape(fit_shape(data, settled_config), opened)),
        nullcontext() if run_dir is None else own_directory(run_dir, record, keep) as directory,
        temporary_folder() if directory is None else nullcontext(directory.path) as folder,
    ):
        rows = training_data(data, settled_config, opened, directory)
        fits = ColumnFits(data, features, settled_config, opened, rows, folder)
        with (
            column_expander(fits, n_folds) as fresh,
            recorded(fresh, os.path.join(folder, EXPANSIONS), record) as expand,
        ):
            exploration = search_sets(features.curves, expand, settings, listen)
            budget = _with_models(fits, exploration, listen)
            if directory is not None:
                directory.finish([])
            yield BudgetRun(budget, exploration, expand)
        opened.forget(rows.source)


def _with_models(fits: ColumnFits, exploration: Exploration, listen: BudgetListener | None) -> ColumnBudget:
    """The index with the models of its sets. A set whose fit to all rows fails is no answer: others take its place."""
    data, features = fits.data, fits.features
    while True:
        index = index_exploration(features.curves, exploration, features.names)
        sets = [one for one in index.answers if one]
        fitted = fit_sets(fits, sets, listen)
        failures = {fit.features: fit.failure for fit in fitted if fit.model is None}
        if not failures:
            break
        left = tuple(
            replace(one, accuracy=None, failure=failures[one.features]) if one.features in failures else one
            for one in exploration.expansions
        )
        exploration = replace(exploration, expansions=left, guarantee=math.inf)
    models = {fit.features: fit.model for fit in fitted}
    weight = fits.rows.summary.class_weight
    return ColumnBudget(
        index,
        features,
        tuple(models.get(one) for one in index.sets),
        data.classes,
        tuple((weight / weight.sum()).tolist()),
        data.target_name,
    )
