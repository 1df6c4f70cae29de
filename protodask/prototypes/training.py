"""The training loop: draw candidates, train a round of them, merge, add it to the model, score the data with it.

A round is a batch where all candidates share feature weights, or a batch for each class, or for each region of a class,
trained together.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protodask.data.format.schema import FEATURES, TARGET, row_weights
from protodask.engine import ArraySource, Block, Engine, Source, zip_sources
from protodask.engine.records import Floats, Integers, taken
from protodask.errors import InputError, count
from protodask.prototypes.batch_kernel import Candidates
from protodask.prototypes.batches import Batch
from protodask.prototypes.candidates import STANDARDIZED, check_classes, draw, sampling
from protodask.prototypes.config import FitConfig
from protodask.prototypes.forms import Forms
from protodask.prototypes.history import BatchDone, BatchRecord, BatchStarted, Callback
from protodask.prototypes.kernel import Standardization, row_side
from protodask.prototypes.merging import merge_equivalent
from protodask.prototypes.model import PrototypeSet
from protodask.prototypes.objective import RoundProblem, batch_sizes, make_problem
from protodask.prototypes.regions import Regions, class_groups
from protodask.prototypes.rounds import Listeners, Round, known, rows_to_step_on
from protodask.prototypes.runs import NO_LOG, RunLog
from protodask.prototypes.scores import ScoreKeeper
from protodask.prototypes.scoring import add_round_block, score_block
from protodask.prototypes.training_data import TrainingData, check_size, forms_of

STANDARDIZED_SHARE = 16
"""Of what a process may keep, that part may be rows in standard units beside those in memory, of one of several fits at
work: to find normal scores and levels anew takes a sixth of an evaluation."""


@dataclass(frozen=True)
class Step:
    """A round that training added."""

    model: PrototypeSet
    """With the round."""
    record: BatchRecord
    source: Source
    """The rows it was trained on, with their unscaled probabilities before it unless it is the first; those that are
    held out are not among them, though it may end on all."""


@dataclass(frozen=True)
class Training:
    """One fit: everything that stays the same over its rounds."""

    data: TrainingData
    config: FitConfig
    engine: Engine
    scores: ScoreKeeper
    log: RunLog = NO_LOG
    callbacks: Sequence[Callback] = ()
    draw: int = 0
    """Which of the draws of a fit this is: its rounds are numbered after those of the draws before."""
    _learned: list[Forms] = field(default_factory=list, init=False, repr=False, compare=False)
    """The forms of the features, as soon as they are known."""

    def run(self, start: PrototypeSet | None = None) -> tuple[PrototypeSet, list[BatchRecord]]:
        """Add `config.n_batches` rounds to `start`, or to the marginals alone."""
        model = first_model(self.data, self.config, start)
        history: list[BatchRecord] = []
        for step in self.steps(model):
            model = step.model
            history.append(step.record)
            for callback in self.callbacks:
                callback(BatchDone(step.record))
        return model, history

    def steps(self, model: PrototypeSet) -> Generator[Step, None, None]:
        """Add up to `config.n_batches` rounds to `model`, one whenever the next is asked for."""
        config = self.config
        wanted = model.n_rounds + config.n_batches
        scores: Source | None = None
        try:
            if model.n_batches and config.n_batches:
                scores = self.scores.keep(self.engine, self.data.source, score_block, model)
            while model.n_rounds < wanted:
                batches, record = self._fit_round(scores, model, wanted)
                model = model.with_round(batches)
                yield Step(model, record, _with(self.data.source, scores))
                if model.n_rounds < wanted:
                    scores = self._rescore(scores, model)
        finally:
            if scores is not None:
                self.engine.forget(scores)
            self.scores.clear()  # also where the first scores were not written to their end

    def _rescore(self, previous: Source | None, model: PrototypeSet) -> Source:
        """Scores with the last round of `model`; those without it are let go."""
        data = self.data.source
        if previous is None:
            return self.scores.keep(self.engine, data, score_block, model)
        scores = self.scores.keep(self.engine, zip_sources(data, previous), add_round_block, model)
        self.engine.forget(previous)
        return scores

    @property
    def _forms(self) -> Forms:
        # Not a `cached_property`: before Python 3.12 all instances share its lock. Of fits that advance together one
        # would hold it and wait for a pass, which waits until the others, at the lock, ask for theirs.
        if not self._learned:
            self._learned.append(forms_of(self.engine, self.data, self.config, self.log))
        return self._learned[0]

    @cached_property
    def _standardized(self) -> Source | None:
        """The features in standard units, where all rows are in memory and these may be as well."""
        source, columns, dtype = self.data.source, self._forms.columns, self.config.kernel_precision
        size = source.layout.n_rows * len(columns) * np.dtype(dtype).itemsize
        processes = self.engine.scheduler.processes()
        here = processes.kind == "threads" and STANDARDIZED_SHARE * size <= processes.resident_bytes
        if not (source.resident and here):
            return None
        side = row_side(np.arange(len(columns)), self._standardization(), columns, dtype)
        rows = np.empty((source.layout.n_rows, len(columns)), dtype)
        for number in range(source.layout.n_blocks):
            block = source.read(number)
            side.standardize(block[FEATURES.name], rows[block.start : block.stop])
        return ArraySource({STANDARDIZED: rows}, source.layout)

    def _standardization(self) -> Standardization:
        summary, forms = self.data.summary, self._forms
        scale = summary.scale if self.config.standardize else np.ones(len(summary.mean))
        found = forms.standardization(summary.mean, scale)
        # Any centre will do as long as rows and candidates share it to the last bit, so it is rounded once, here.
        return replace(found, center=found.center.astype(self.config.kernel_precision).astype(np.float64))

    def _fit_round(
        self, scores: Source | None, model: PrototypeSet, wanted: int
    ) -> tuple[tuple[Batch, ...], BatchRecord]:
        """Train the next round of `wanted` in all, over the scores of the rounds before."""
        config, began = self.config, time.perf_counter()
        number = model.n_rounds + 1 + self.draw * config.n_batches
        standardization, columns = self._standardization(), self._forms.columns
        drawn = self._candidates(_with(self.data.source, scores), model, number)
        problem = self._problem(drawn, standardization)
        for callback in self.callbacks:
            begun = int(np.count_nonzero(drawn.few))
            callback(BatchStarted(number, wanted + (config.n_draws - 1) * config.n_batches, begun))
        listeners = Listeners(number, self._forms, self.callbacks, began)
        further = [source for source in (scores, self._standardized) if source is not None]
        one = Round(number, self.data, config, self.engine, self.log, further, listeners)
        trained = one.train(problem, drawn.weight, drawn.few, model.n_batches == 0, model.n_rounds + 1 == wanted)
        problem, solution, used = trained.problem, trained.solution, taken(drawn, trained.kept)
        feature_weights, candidate_weight = problem.split(solution.theta)
        batches = tuple(
            make_batch(taken(used, places), feature_weight, candidate_weight[places], standardization, columns)
            for places, feature_weight in zip(problem.places, feature_weights, strict=True)
        )
        record = BatchRecord(
            batch=number,
            status=solution.status,
            iterations=solution.iterations,
            evaluations=solution.evaluations,
            seconds=time.perf_counter() - began,
            value=solution.value,
            gradient_norm=solution.gradient_norm,
            active_features=len(set[int]().union(*(batch.looked_at.tolist() for batch in batches))),
            prototypes=sum(batch.n_prototypes for batch in batches),
            candidates=np.sort(drawn.rows[trained.tried]),
            values=tuple(listeners.values),
            held_out=known(solution.held_out),
            stages=trained.stages,
            on_all_rows=trained.on_all_rows,
            batches=len(batches),
            by_region=len(batches) > len(np.unique(drawn.classes)),
        )
        return batches, record

    def _problem(self, drawn: DrawnCandidates, standardization: Standardization) -> RoundProblem:
        """What a round of these candidates minimises."""
        features = standardization.apply(standardization.values(drawn.features, self._forms.columns))
        return make_problem(
            Candidates(features, drawn.classes, drawn.rows),
            drawn.weight,
            self.data.summary.class_weight,
            standardization,
            self.config.kernel_precision,
            batch_sizes(drawn.groups, self.config.feature_weights_of(self.draw)),
            self.data.held_out_weight,
            self._forms.columns,
            self.config.leave_one_out,
        )

    def _candidates(self, source: Source, model: PrototypeSet, number: int) -> DrawnCandidates:
        remembered = self.log.arrays(number, "candidates", lambda: self._draw(source, model, number).arrays())
        # Runs of earlier versions do not say which are the few: all were.
        every = np.ones(len(remembered["rows"]), dtype=np.bool_)
        drawn, regions = DrawnCandidates(**{"few": every, **remembered}), self._forms.regions
        if regions is None or self.config.feature_weights_of(self.draw) != "class":
            return drawn
        apart = taken(drawn, drawn.few).by_region(regions)
        return apart if len(np.unique(apart.groups)) > len(np.unique(drawn.classes)) else drawn

    def _draw(self, source: Source, model: PrototypeSet, number: int) -> DrawnCandidates:
        config, n_rows = self.config, source.layout.n_rows
        wanted, grown = min(config.n_candidates, n_rows), 0
        if config.leave_one_out and self.data.held_out_weight:
            steps = rows_to_step_on(config, self.data, len(self._forms.columns), model.n_batches > 0)
            grown = 0 if steps else min(config.most_candidates, n_rows)
        sampled = max(wanted, grown)
        sample = self.engine.reduce(
            source, sampling(sampled), model.marginals, config.seed, number, sampled, label="draw"
        )
        few = draw(sample, wanted, config.max_fraction)
        rows = draw(sample, wanted, config.max_fraction, grown)
        if len(few) == 0:
            raise InputError(
                "bad-setting",
                f"No candidate can be drawn: there are {len(self.data.classes)} classes and `n_candidates` is "
                f"{config.n_candidates}.",
                "Raise `n_candidates` to several for each class.",
            )
        taken = self.engine.take(self.data.source, rows, self.data.array_names, label="take")
        order = np.lexsort((rows, taken[TARGET.name]))
        arrays = {name: array[order] for name, array in taken.items()}
        weight = row_weights(Block(0, 0, arrays))
        return DrawnCandidates(
            features=arrays[FEATURES.name],
            classes=arrays[TARGET.name].astype(np.int64),
            rows=rows[order],
            weight=np.ones(len(rows)) if weight is None else weight,
            few=np.isin(rows[order], few),
        )


def first_model(data: TrainingData, config: FitConfig, start: PrototypeSet | None = None) -> PrototypeSet:
    """The model that rounds are added to, once the data are seen to be fit for it: `start`, or the marginals alone."""
    check_classes(data.summary.class_rows, data.classes, config.max_fraction)
    check_size(data, config)
    marginals = data.summary.class_weight / data.summary.class_weight.sum()
    if start is not None:
        check_start(start, data)
        found = replace(
            start,
            other_names=tuple(dict.fromkeys((*start.other_names, *data.other_names))),
            read_as="float64" if "float64" in (start.row_precision, data.dtype) else "float32",
        )
        # The first round is trained over the marginals of these rows.
        return found if found.n_batches else replace(found, marginals=marginals)
    return PrototypeSet(
        marginals=marginals,
        classes=data.classes,
        feature_names=data.feature_names,
        columns=data.columns,
        target_name=data.target_name,
        other_names=data.other_names,
        precision=config.kernel_precision,
        read_as=data.dtype,
    )


@dataclass(frozen=True)
class DrawnCandidates:
    """Candidates in raw units: ascending by class, then by region if there are any, then by row number."""

    features: NDArray[np.floating]
    classes: Integers
    rows: Integers
    weight: Floats
    few: NDArray[np.bool_]
    """Those that the round begins with (J,)."""
    region: Integers | None = None
    """Which batch of a round by class and region each is in, ascending."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All that they are made of, to be remembered."""
        return {name: values for name, values in vars(self).items() if values is not None}

    @property
    def groups(self) -> Integers:
        """Which batch of a round by class each is in."""
        return self.classes if self.region is None else self.region

    def by_region(self, regions: Regions) -> DrawnCandidates:
        """The same candidates, in batches of a class and a region."""
        group = class_groups(self.classes, regions.of(self.features), self.features.shape[1])
        order = np.lexsort((self.rows, group))
        return replace(taken(self, order), region=group[order])


def make_batch(
    drawn: DrawnCandidates,
    feature_weight: Floats,
    candidate_weight: Floats,
    standardization: Standardization,
    columns: Integers,
) -> Batch:
    """The batch that the weights found by the solver amount to; the features they are of are in these `columns`."""
    active = np.flatnonzero(feature_weight > 0) if candidate_weight.any() else np.zeros(0, dtype=np.int64)
    weight = feature_weight[active]
    selected = standardization.select(active)
    raw = selected.values(drawn.features, columns[active]).astype(np.float64)
    compared = None if selected.differences is None else selected.differences.compared(drawn.features)
    kept = merge_equivalent(selected.apply(raw) * weight, drawn.classes, candidate_weight, drawn.rows)
    return Batch(
        feature_index=columns[active],
        feature_weight=weight,
        center=selected.center,
        scale=selected.scale,
        prototypes=raw[kept.position],
        prototype_class=drawn.classes[kept.position],
        prototype_weight=kept.weight,
        row=drawn.rows[kept.position],
        knots=selected.knots,
        differences=selected.differences,
        compared=None if compared is None else compared[kept.position],
    )


def check_start(model: PrototypeSet, data: TrainingData) -> None:
    """Refuse to add batches to a model of other classes or features."""
    if model.classes != data.classes:
        raise InputError(
            "columns-differ",
            f"The model has the classes {list(model.classes)}, the data {list(data.classes)}.",
            "Add batches with data of the same classes, or fit a new model.",
        )
    if model.feature_names != data.feature_names:
        raise InputError(
            "columns-differ",
            f"The model has {count(model.n_features, 'feature')} and the data {len(data.feature_names)}, or "
            "their names differ.",
            "Add batches with data of the same features in the same order, or fit a new model.",
        )


def _with(source: Source, further: Source | None) -> Source:
    """A source with the arrays of another beside its own, if there is one."""
    return source if further is None else zip_sources(source, further)
