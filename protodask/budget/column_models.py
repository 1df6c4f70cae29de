"""The models that a budget chooses among: one for each set of features that is an answer, fitted to all rows."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from protodask.budget.column_accuracy import crew_for, describe_error, fit_shape, is_own, set_name
from protodask.budget.expansions import FeatureSet
from protodask.budget.feature_columns import FeatureColumns, restricted
from protodask.budget.folder import MODELS
from protodask.data.format.dataset import Dataset
from protodask.engine import Engine
from protodask.engine.together import Job, run_together
from protodask.errors import FormatError
from protodask.prototypes.config import FitConfig
from protodask.prototypes.draws import Fitting
from protodask.prototypes.fitting import fit_provenance
from protodask.prototypes.model import PrototypeSet, load_model
from protodask.prototypes.persistence import save_model
from protodask.prototypes.training import TrainingData


@dataclass(frozen=True)
class SetFit:
    """What came of fitting a set of features to all rows."""

    features: FeatureSet
    model: PrototypeSet | None
    failure: str | None = None


@dataclass(frozen=True)
class ModelsProgress:
    """How many of the models are fitted."""

    done: int
    of: int


def fit_sets(
    data: Dataset,
    features: FeatureColumns,
    sets: Sequence[FeatureSet],
    config: FitConfig,
    engine: Engine,
    rows: TrainingData,
    folder: str,
    listen: Callable[[ModelsProgress], None] | None = None,
) -> list[SetFit]:
    """Models on sets of features, none of them empty, several at once.

    Each asks for the columns of its features and no others. They are kept in `folder`, which belongs to these settings
    and data: what is there already is not fitted again.
    """
    fits = {one: SetFit(one, model) for one in sets if (model := _known(folder, one)) is not None}
    if listen is not None:
        listen(ModelsProgress(len(fits), len(sets)))
    crew = crew_for(data, config, engine, folder, fit_shape(data, config))

    def job(chosen: FeatureSet) -> Job[SetFit]:
        def fit_one(own: Engine) -> SetFit:
            part = restricted(rows, features.columns_of(chosen))
            fitting = Fitting(config, own, lambda draw: crew.keeper(f"{set_name(chosen)}-all-{draw + 1}"))
            try:
                model, history = fitting.run(part, data.has_group, crew.company, 1)
            except Exception as error:
                if not is_own(error):
                    raise
                return SetFit(chosen, None, describe_error(error))
            provenance = fit_provenance(data, config, history, None, model.n_batches)
            return SetFit(chosen, replace(model, provenance=provenance))

        return fit_one

    def done(fitted: SetFit) -> Iterable[Job[SetFit]]:
        fits[fitted.features] = fitted
        if fitted.model is not None:
            save_model(fitted.model, _place(folder, fitted.features), overwrite=True)
        if listen is not None:
            listen(ModelsProgress(len(fits), len(sets)))
        return ()

    jobs = [job(one) for one in sets if one not in fits]
    run_together(engine, jobs, done, company=crew.company, most=crew.most)
    return [fits[one] for one in sets]


def _place(folder: str, features: FeatureSet) -> str:
    return os.path.join(folder, MODELS, set_name(features))


def _known(folder: str, features: FeatureSet) -> PrototypeSet | None:
    """The model that an interrupted build has left, if it is whole."""
    place = _place(folder, features)
    if not os.path.lexists(place):
        return None
    try:
        return load_model(place)
    except FormatError:
        return None
