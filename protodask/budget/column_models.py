"""The prototype set classifier on some columns of a dataset: its accuracy, cross-validated, and its fit to all rows.

The accuracy of a set of features is the share of the weight of all rows whose most probable class is right, each row
classified by the model that was trained without its fold; for the empty set, by the shares of the classes alone. The
fits of all sets and folds advance together: one pass over the data serves all those that wait for one. How far that may
be off is told by parts of the rows, of which groups stay whole.

The models that a budget chooses among are fitted to all rows: one for each set of features that is an answer.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from protodask.budget.expansions import Expand, Expansion, FeatureSet
from protodask.budget.feature_columns import FeatureColumns, restricted
from protodask.budget.folder import MODELS
from protodask.budget.noise import PARTS, Noise
from protodask.data.format.dataset import Dataset
from protodask.data.places.records import hash_text
from protodask.engine import Engine, add_records
from protodask.engine.together import Company, Job, run_together
from protodask.errors import FormatError, InputError, ProtodaskError
from protodask.prototypes.config import FitConfig
from protodask.prototypes.draws import Fitting, how_together
from protodask.prototypes.fitting import fit_provenance
from protodask.prototypes.folds import check_training_parts, folded_source, make_folds
from protodask.prototypes.footprint import DOUBLE, Shape, most_together, shape_of
from protodask.prototypes.model import PrototypeSet, load_model
from protodask.prototypes.persistence import save_model
from protodask.prototypes.planning import require_shape
from protodask.prototypes.scores import MemoryScores, ScoreKeeper, fresh_scores
from protodask.prototypes.training import Training, first_model
from protodask.prototypes.training_data import TrainingData
from protodask.selection.holdout import HELD_OUT_RIGHT, FoldData, RightSums, fold_parts
from protodask.selection.tuning import require_reach


@dataclass(frozen=True)
class ColumnFits:
    """What models on columns of a dataset are fitted to, how, and where."""

    data: Dataset
    features: FeatureColumns
    config: FitConfig
    engine: Engine
    rows: TrainingData
    """What `training_data` says of the dataset."""
    folder: str
    """Belongs to these settings and data."""


@dataclass(frozen=True)
class Crew:
    """How fits of a dataset advance together, and where they keep their scores between batches."""

    company: Company
    most: int
    folder: str | None
    """None where the scores of all fits at work fit into memory."""
    n_classes: int

    def keeper(self, name: str) -> ScoreKeeper:
        """For the scores of the fit of a name."""
        return MemoryScores() if self.folder is None else fresh_scores(os.path.join(self.folder, name), self.n_classes)


def fit_shape(data: Dataset, config: FitConfig, weight_columns: int = 0) -> Shape:
    """The shape of a fit on columns of a dataset, at most: of all of them, which a block then holds a second time."""
    shape = shape_of(data, config)
    viewed = -(-shape.n_features * shape.feature_bytes // DOUBLE)
    return replace(
        shape, weight_columns=shape.weight_columns + weight_columns, other_columns=shape.other_columns + viewed
    )


def crew_for(fits: ColumnFits, weight_columns: int = 0) -> Crew:
    """How fits advance together; one that would not keep the memory limit is refused before it begins."""
    data, config, engine, folder = fits.data, fits.config, fits.engine, fits.folder
    shape = fit_shape(data, config, weight_columns)
    require_shape(shape, engine)
    processes = engine.scheduler.processes()
    # Whatever the dataset has, a fit is of a few of its features.
    company, most = how_together(engine, shape_of(data, config), data.n_rows, 1, len(data.classes), config)
    most = min(most, most_together(shape, processes))
    stored = most * shape.score_bytes > processes.resident_bytes
    if stored and processes.kind == "workers":
        require_reach(engine, folder)
    return Crew(company, most, folder if stored else None, len(data.classes))


@contextmanager
def column_expander(fits: ColumnFits, n_folds: int) -> Iterator[Expand]:
    """Expands sets of features of a dataset by cross-validation.

    A set whose fit fails with an error of its own is handed over as one that failed, and the others go on. Large scores
    between batches go into the folder.
    """
    if fits.config.n_batches < 1:
        raise InputError("bad-setting", "The models would have no batches.", "Train them with one batch or more.")
    fits = replace(fits, config=replace(fits.config, n_draws=1))
    data, config, engine, rows = fits.data, fits.config, fits.engine, fits.rows
    # A block has two further weights a row, for training and for judging.
    crew = crew_for(fits, weight_columns=2)
    assignment = make_folds(engine, rows.source, len(data.classes), n_folds, config.seed, data.has_group, data.classes)
    check_training_parts(assignment, data.classes, config.max_fraction)
    folded = folded_source(rows.source, assignment)
    try:
        parts = fold_parts(engine, folded, rows, assignment.n_folds, config, data.has_group, crew.company, crew.most)
        yield CrossValidation(fits, tuple(parts), crew).expand
    finally:
        engine.forget(folded)


@dataclass(frozen=True)
class _FoldDone:
    """What came of the fit of one set that holds one fold out."""

    number: int
    """Of the set."""
    fold: int
    sums: RightSums | None
    failure: str | None
    seconds: float


@dataclass(frozen=True)
class CrossValidation:
    """The folds of a dataset, and how models on sets of its features are fitted to them."""

    fits: ColumnFits
    parts: tuple[FoldData, ...]
    crew: Crew

    def expand(self, sets: Sequence[FeatureSet], listen: Callable[[Expansion], None]) -> None:
        """Fit all sets with each fold held out; `listen` gets a set when its last fold is done."""
        waiting = {(number, part.fold) for number in range(len(sets)) for part in self.parts}
        found: list[list[_FoldDone]] = [[] for _ in sets]
        of_listener: list[Exception] = []

        def heard(result: _FoldDone) -> Iterable[Job[_FoldDone]]:
            waiting.discard((result.number, result.fold))
            own = found[result.number]
            own.append(result)
            if len(own) == len(self.parts):
                try:
                    listen(_expansion(sets[result.number], own, self.fits.data.has_group))
                except Exception as error:
                    of_listener.append(error)
                    raise
            return ()

        def job(number: int, fold: int) -> Job[_FoldDone]:
            return lambda engine: self._judge(engine, number, sets[number], self.parts[fold])

        def judge(places: Iterable[tuple[int, int]], most: int) -> str | None:
            """What is reported of a fit that failed, where one did."""
            try:
                jobs = [job(*place) for place in places]
                run_together(self.fits.engine, jobs, heard, company=self.crew.company, most=most)
            except Exception as error:
                if error in of_listener:
                    raise
                return own_failure(error)
            return None

        if judge(sorted(waiting), self.crew.most) is not None:
            # In step, an error in a pass is one of all fits that it serves. Alone, each shows whose it is.
            for number, fold in sorted(waiting):
                if (failure := judge([(number, fold)], 1)) is not None:
                    heard(_FoldDone(number, fold, None, failure, 0.0))

    def _judge(self, engine: Engine, number: int, features: FeatureSet, part: FoldData) -> _FoldDone:
        began = time.perf_counter()
        sums, failure = None, None
        try:
            sums = self._held_out(engine, features, part)
        except Exception as error:
            failure = own_failure(error)
        return _FoldDone(number, part.fold, sums, failure, time.perf_counter() - began)

    def _held_out(self, engine: Engine, features: FeatureSet, part: FoldData) -> RightSums:
        """Fit a set to all folds but one, and see how many rows of that it classifies right."""
        weight, config = part.data.summary.class_weight, self.fits.config
        precision = config.precision
        if not features:
            return engine.reduce(
                part.data.source, HELD_OUT_RIGHT, (), weight / weight.sum(), precision, PARTS, label="hold out"
            )
        data = restricted(part.data, self.fits.features.columns_of(features))
        keeper = self.crew.keeper(f"{set_name(features)}-fold-{part.fold}")
        training = Training(data, config, engine, keeper)
        sums = RightSums(0.0, 0.0, 0.0, np.zeros((2, PARTS)))
        for step in training.steps(first_model(data, config)):
            if step.model.n_rounds == config.n_batches:
                sums = engine.reduce(
                    step.source,
                    HELD_OUT_RIGHT,
                    step.model.last_round,
                    step.model.marginals,
                    precision,
                    PARTS,
                    label="hold out",
                )
        return sums


def _expansion(features: FeatureSet, folds: Sequence[_FoldDone], grouped: bool) -> Expansion:
    ordered = sorted(folds, key=lambda one: one.fold)  # they end in any order, and sums have one
    seconds = math.fsum(one.seconds for one in ordered)
    for one in ordered:
        if one.sums is None:
            return Expansion(features, None, one.failure, seconds)
    sums = [one.sums for one in ordered if one.sums is not None]
    right, weight = math.fsum(one.right for one in sums), math.fsum(one.weight for one in sums)
    together = reduce(add_records, sums)
    noise = Noise.of(together.parts, together.heaviest, grouped)
    return Expansion(features, right / weight, None, seconds, noise)


def own_failure(error: BaseException) -> str:
    """What is reported of a fit that failed by itself: by its data or their numbers, not by storage, cluster or memory.

    Any other error is raised again.
    """
    if isinstance(error, InputError):
        return str(error)
    if isinstance(error, ProtodaskError) or not isinstance(error, ValueError | ArithmeticError):
        raise error
    return f"{type(error).__name__}: {error}"


LONGEST_NAME = 40
"""Characters of the name of a set in a path."""


def set_name(features: FeatureSet) -> str:
    """A set as a part of a path: the numbers of its features, or where they are many a digest of them."""
    numbers = "-".join(map(str, sorted(features)))
    if len(numbers) <= LONGEST_NAME:
        return numbers or "none"
    return hash_text(numbers)


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
    fits: ColumnFits, sets: Sequence[FeatureSet], listen: Callable[[ModelsProgress], None] | None
) -> list[SetFit]:
    """Models on sets of features, none of them empty, several at once.

    Each asks for the columns of its features and no others. They are kept in the folder: what is there already is not
    fitted again.
    """
    data, config, folder = fits.data, fits.config, fits.folder
    found = {one: SetFit(one, model) for one in sets if (model := _known(folder, one)) is not None}
    if listen is not None:
        listen(ModelsProgress(len(found), len(sets)))
    crew = crew_for(fits)

    def job(chosen: FeatureSet) -> Job[SetFit]:
        def fit_one(own: Engine) -> SetFit:
            part = restricted(fits.rows, fits.features.columns_of(chosen))
            fitting = Fitting(config, own, lambda draw: crew.keeper(f"{set_name(chosen)}-all-{draw + 1}"))
            try:
                model, history = fitting.run(part, data.has_group, crew.company, 1)
            except Exception as error:
                return SetFit(chosen, None, own_failure(error))
            provenance = fit_provenance(data, config, history, None, model.n_batches)
            return SetFit(chosen, replace(model, provenance=provenance))

        return fit_one

    def done(fitted: SetFit) -> Iterable[Job[SetFit]]:
        found[fitted.features] = fitted
        if fitted.model is not None:
            save_model(fitted.model, _place(folder, fitted.features), overwrite=True)
        if listen is not None:
            listen(ModelsProgress(len(found), len(sets)))
        return ()

    jobs = [job(one) for one in sets if one not in found]
    run_together(fits.engine, jobs, done, company=crew.company, most=crew.most)
    return [found[one] for one in sets]


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
