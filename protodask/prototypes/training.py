"""The training loop: draw candidates, minimise, merge, add the round to the model, score the data with it.

A round is a batch where all candidates share feature weights, or a batch for each class, trained together.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protodask.data.format.schema import FEATURES, TARGET, Column, Label, row_weights
from protodask.data.format.summary import Summary
from protodask.engine import ArraySource, Block, Engine, Source, zip_sources
from protodask.engine.records import taken
from protodask.errors import InputError
from protodask.prototypes.batch_kernel import Candidates
from protodask.prototypes.batches import Batch
from protodask.prototypes.candidates import STANDARDIZED, check_classes, draw, sampling
from protodask.prototypes.config import FitConfig, stage_row_bytes, staged_rows
from protodask.prototypes.forms import Forms, learn_forms, least_scale
from protodask.prototypes.history import (
    BatchDone,
    BatchRecord,
    BatchStarted,
    Callback,
    IterationDone,
    StageRecord,
)
from protodask.prototypes.kernel import Standardization, row_side
from protodask.prototypes.merging import merge_equivalent
from protodask.prototypes.model import PrototypeSet
from protodask.prototypes.objective import (
    Objective,
    Penalty,
    RoundProblem,
    WorkingSet,
    batch_sizes,
    make_problem,
    starting_point,
)
from protodask.prototypes.runs import NO_LOG, RunLog
from protodask.prototypes.scores import ScoreKeeper
from protodask.prototypes.scoring import add_round_block, score_block
from protodask.prototypes.solver import (
    AFTER_STEPS,
    TO_THE_END,
    Function,
    Iteration,
    Solution,
    solve,
)
from protodask.prototypes.staging import take_stage
from protodask.prototypes.steps import Steps, stepping_start

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class LargeWeightWarning(UserWarning):
    """A few rows stand for so many that they decide what is learnt."""


LARGE_WEIGHT = 100.0
"""Times the mean weight: beyond this, calibrating a model that was trained without weights is the better way."""


def warn_of_large_weights(summary: Summary) -> None:
    """Warn where a row weighs more than `LARGE_WEIGHT` times the mean of the rows of positive weight."""
    largest = summary.largest_weight
    if largest is None or summary.rows == 0:
        return
    mean = summary.weight / summary.rows
    if largest > LARGE_WEIGHT * mean:
        warnings.warn(
            f"The largest weight of a row is {largest:.6g}, {largest / mean:.4g} times the mean of {mean:.6g} over "
            f"{summary.rows:,} rows: a few rows decide what is learnt. Keep more of the rows that weigh so much, or "
            "train without weights (--unweighted, or weighted=False in a FitConfig) and calibrate the model with them.",
            LargeWeightWarning,
            stacklevel=2,
        )


FINISHING = 12
"""Iterations on all rows at the end of a round whose held-out rows lose an e-th of what the marginals do.

Of 258 tables (at most 9,000 rows), after waiting as long as `TO_THE_END` says others did, the log-loss is 2.5 per cent
less by it: 5 where rows held out lose less than three tenths of what the marginals do, 3 up to six tenths, the same
beyond. With 10 it is 0.2 per cent more, with 15 0.1 less; with 20 iterations of every round it is 0.7 more than
without, a tenth where little can be learnt."""


def marginal_loss(training_weight: Floats, held_out_weight: Floats) -> float:
    """Log-loss of the class shares of the training part: `-sum_k H_k log(W_k / W) / H`, in nats."""
    shares = training_weight / training_weight.sum()
    present = held_out_weight > 0
    return -float(held_out_weight[present] @ np.log(shares[present])) / float(held_out_weight.sum())


def finishing_iterations(loss: float, by_marginals: float, iterations: int) -> int:
    """How long a round of so many iterations goes on on all rows: `min(12 log(L0 / L), iterations)`.

    What the rows held out lose, `L` of `L0` by the marginals, says how much can be learnt from further rows.
    """
    if not 0 < loss < by_marginals:
        return iterations if loss <= 0 < by_marginals else 0
    return min(round(FINISHING * (math.log(by_marginals) - math.log(loss))), iterations)


STANDARDIZED_SHARE = 16
"""Of what a process may keep, that part may be rows in standard units beside those in memory, of one of several fits at
work: to find normal scores and levels anew takes a sixth of an evaluation."""


@dataclass(frozen=True)
class TrainingData:
    """A source of features and targets, and what is known of it as a whole."""

    source: Source
    array_names: tuple[str, ...]
    """Arrays of the source: `features` (N, D), `target` (N,), optionally `weight` and `inclusion` (N,)."""
    summary: Summary
    classes: tuple[Label, ...]
    feature_names: tuple[str, ...]
    columns: tuple[Column, ...]
    target_name: str = "target"
    other_names: tuple[str, ...] = ()
    held_out_weight: float = 0.0
    """Of all rows that are held out, to tell when a round is done; 0 where none are."""
    whole: TrainingData | None = None
    """With the rows that are held out among those trained on; None where none are."""
    forms: Forms | None = None
    """In which its features enter; None where that is not known yet."""


def forms_of(engine: Engine, data: TrainingData, config: FitConfig, log: RunLog = NO_LOG) -> Forms:
    """The forms in which features of the data enter: those they have, or those that the settings ask for, which a log
    remembers: a run that goes on has those that it began with.
    """
    if data.forms is not None:
        return data.forms
    columns: Sequence[Column] = data.columns
    if sum(len(column.feature_names) for column in columns) != len(data.feature_names):
        columns = [Column(name) for name in data.feature_names]

    def learn() -> dict[str, NDArray[Any]]:
        wanted = config.feature_forms, config.seed, config.kernel_precision
        forms = learn_forms(engine, data.source, data.array_names, columns, *wanted)
        if config.standardize and config.feature_forms != "plain":
            forms = replace(forms, least=least_scale(forms, data.summary))
        return forms.arrays()

    return Forms.of_arrays(log.arrays(0, "forms", learn))


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

    @cached_property
    def _forms(self) -> Forms:
        return forms_of(self.engine, self.data, self.config, self.log)

    @cached_property
    def _rows(self) -> Source | None:
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
        began = time.perf_counter()
        config = self.config
        number = model.n_rounds + 1 + self.draw * config.n_batches
        standardization, columns = self._standardization(), self._forms.columns
        source = _with(self.data.source, scores)
        drawn = self._candidates(source, model, number)
        source = _with(source, self._rows)
        problem = make_problem(
            Candidates(
                standardization.apply(standardization.values(drawn.features, columns)), drawn.classes, drawn.rows
            ),
            drawn.weight,
            self.data.summary.class_weight,
            standardization,
            config.kernel_precision,
            batch_sizes(drawn.classes, config.feature_weights_of(self.draw)),
            self.data.held_out_weight,
            columns,
            config.leave_one_out,
        )
        for callback in self.callbacks:
            callback(BatchStarted(number, wanted + (config.n_draws - 1) * config.n_batches, problem.n_candidates))

        values: list[float] = []

        def report(problem: RoundProblem, state: Iteration, rows: int | None = None) -> None:
            if rows is None:
                values.append(state.value)
            if not self.callbacks:
                return
            feature_weights, candidate_weight = problem.split(state.theta)
            event = IterationDone(
                batch=number,
                iteration=state.iteration,
                evaluations=state.evaluations,
                value=state.value,
                gradient_norm=state.gradient_norm,
                active_features=len(self._forms.looked_at(np.flatnonzero(feature_weights.sum(axis=0)))),
                candidates=int(np.count_nonzero(candidate_weight)),
                seconds=time.perf_counter() - began,
                held_out=_known(state.held_out),
                rows=rows,
            )
            for callback in self.callbacks:
                callback(event)

        start, kept, begun = self._take_steps(source, problem, number, model.n_batches > 0, report)
        problem, used = problem.part(kept), taken(drawn, kept)
        solution = self._minimize(source, problem, number, partial(report, problem), start)
        if solution.status not in ("converged", "stationary", "held out"):
            from protodask.prototypes.convergence import ConvergenceWarning

            warnings.warn(
                f"Batch {number} stopped early ({solution.status}: {solution.message}) after {solution.iterations} "
                "iterations; raise max_iterations or tolerance.",
                ConvergenceWarning,
                stacklevel=2,
            )
        before = solution.iterations
        # Another round would be judged by rows that had been trained on.
        if self.data.whole is not None and config.finish and model.n_rounds + 1 == wanted and not begun:
            kept = problem.split(solution.theta)[1] > 0
            more = self._further_iterations(solution, self.data.whole) if kept.any() else 0
            if more > 0:
                used = taken(used, kept)
                problem = problem.part(kept).of_all_rows(used.weight, self.data.whole.summary.class_weight)
                source = _with(_with(self.data.whole.source, scores), self._rows)
                solution = self._finish(source, problem, number, partial(report, problem), solution, kept, more)
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
            candidates=np.sort(drawn.rows),
            values=tuple(values),
            held_out=_known(solution.held_out),
            stages=begun,
            on_all_rows=solution.iterations - before,
        )
        return batches, record

    def _take_steps(
        self,
        source: Source,
        problem: RoundProblem,
        number: int,
        scored: bool,
        report: Callable[..., None],
    ) -> tuple[Floats | None, NDArray[np.bool_], tuple[StageRecord, ...]]:
        """Where small steps lead, None if rows are too few for them, which candidates are of use there (J,), and how it
        went.
        """
        config, nothing = self.config, (None, np.ones(problem.n_candidates, dtype=np.bool_), ())
        size = staged_rows(
            source.layout.n_rows,
            stage_row_bytes(problem.n_features, len(self.data.classes) if scored else 0, problem.precision),
        )
        if not (config.progressive and problem.held_out_weight and size):
            return nothing
        side = row_side(np.arange(problem.n_features), problem.standardization, self._forms.columns, problem.precision)
        stage = take_stage(self.engine, source, problem, config.seed, size, side, scored)
        if stage is None:
            return nothing
        steps = Steps(self.engine.nearby(), stage, *self._penalties, config.seed)
        stepped = steps.take(
            stepping_start(problem),
            partial(self.log.arrays, number),
            partial(report, stage.problem, rows=stage.rows),
        )
        left = int(np.count_nonzero(stepped.kept))
        return stepped.theta, stepped.kept, (StageRecord(stage.rows, stepped.steps, stepped.steps, left),)

    @property
    def _penalties(self) -> tuple[Penalty, Penalty]:
        """On feature weights and on candidates' weights."""
        config = self.config
        return Penalty(config.lambda_v, config.alpha_v), Penalty(config.lambda_w, config.alpha_w)

    def _minimize(
        self,
        source: Source,
        problem: RoundProblem,
        number: int,
        report: Callable[[Iteration], None],
        start: Floats | None = None,
    ) -> Solution:
        """Train on all rows but those held out, from `start` if there is one."""
        scale, tolerance, most = problem.solver_scale, self.config.tolerance, self.config.max_iterations
        objective = self._objective(source, problem, number, warm=start is not None)
        patience = TO_THE_END if start is None else AFTER_STEPS
        start = starting_point(problem) if start is None else start
        none = starting_point(problem)
        none[problem.n_feature_weights :] = 0
        nothing = objective(none) if problem.held_out_weight else None
        baseline = math.inf if nothing is None else nothing.held_out
        solution = solve(objective, start, scale, tolerance, most, report, patience, baseline)
        if solution.status == "line search failed" and problem.precision == "float32" and solution.iterations < most:
            # Near the optimum of a small problem float32's rounding can hide the last descent from the line search.
            exact = self._objective(source, replace(problem, precision="float64"), number)
            single, left = solution, most - solution.iterations
            double = solve(exact, single.theta, scale, tolerance, left, _after(single, report), patience, baseline)
            solution = replace(
                double if nothing is None or double.held_out <= single.held_out else single,
                iterations=single.iterations + double.iterations,
                evaluations=single.evaluations + double.evaluations,
            )
        if nothing is None:
            return solution
        # No prototypes at all, if rows that are held out lose no more without them.
        solution = replace(solution, evaluations=solution.evaluations + 1)
        if solution.held_out < nothing.held_out:
            return solution
        return replace(solution, theta=none, status="held out", **nothing._asdict())

    def _further_iterations(self, solution: Solution, whole: TrainingData) -> int:
        """Iterations on the `whole` of the rows after a solution, see `finishing_iterations`."""
        kept = self.data.summary.class_weight
        by_marginals = marginal_loss(kept, whole.summary.class_weight - kept)
        wanted = finishing_iterations(solution.held_out, by_marginals, solution.iterations)
        return min(wanted, self.config.max_iterations - solution.iterations)

    def _finish(
        self,
        source: Source,
        problem: RoundProblem,
        number: int,
        report: Callable[[Iteration], None],
        solution: Solution,
        kept: NDArray[np.bool_],
        iterations: int,
    ) -> Solution:
        """Go on from a solution for so many iterations on all rows, with the candidates that were `kept`.

        It may be fewer where nothing is lowered any more. What rows held out lose is said of the solution before.
        """
        objective = self._objective(source, problem, number, stage="whole-")
        start = solution.theta[np.concatenate([np.ones(problem.n_feature_weights, dtype=np.bool_), kept])]
        found = solve(
            objective, start, problem.solver_scale, self.config.tolerance, iterations, _after(solution, report)
        )
        return replace(
            found,
            status=solution.status,
            message=solution.message,
            iterations=solution.iterations + found.iterations,
            evaluations=solution.evaluations + found.evaluations,
            held_out=solution.held_out,
        )

    def _objective(
        self, source: Source, problem: RoundProblem, number: int, warm: bool = False, stage: str = ""
    ) -> Function:
        """What a round minimises on a source; `warm` where it begins near the end, with candidates that do no work.

        The log keeps its evaluations by `stage` and precision.
        """
        objective = Objective(
            self.engine,
            source,
            problem,
            self.engine.share(problem),
            *self._penalties,
        )
        recorded = partial(self.log.recorded, number, stage + problem.precision)
        if not problem.held_out_weight:
            return recorded(objective)
        # The first evaluation is that without prototypes, if any are held out; the second one looks at all, too.
        return WorkingSet(objective, recorded, awake=2 if warm else None)

    def _candidates(self, source: Source, model: PrototypeSet, number: int) -> DrawnCandidates:
        drawn = self.log.arrays(number, "candidates", lambda: vars(self._draw(source, model, number)))
        return DrawnCandidates(**drawn)

    def _draw(self, source: Source, model: PrototypeSet, number: int) -> DrawnCandidates:
        config = self.config
        wanted = min(config.n_candidates, source.layout.n_rows)
        sample = self.engine.reduce(
            source, sampling(wanted), model.marginals, config.seed, number, wanted, label="draw"
        )
        rows = draw(sample, wanted, config.max_fraction)
        if len(rows) == 0:
            raise InputError(
                "bad-setting",
                f"No candidate can be drawn: there are {len(self.data.classes)} classes and n_candidates is "
                f"{config.n_candidates}.",
                "Raise n_candidates to several for each class.",
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
        )


def first_model(data: TrainingData, config: FitConfig, start: PrototypeSet | None = None) -> PrototypeSet:
    """The model that rounds are added to, once the data are seen to be fit for it: `start`, or the marginals alone."""
    check_classes(data.summary.class_rows, data.classes, config.max_fraction)
    check_size(data)
    marginals = data.summary.class_weight / data.summary.class_weight.sum()
    if start is not None:
        check_start(start, data)
        found = replace(start, other_names=tuple(dict.fromkeys((*start.other_names, *data.other_names))))
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
    )


@dataclass(frozen=True)
class DrawnCandidates:
    """Candidates in raw units: ascending by class, then by row number."""

    features: NDArray[np.floating]
    classes: Integers
    rows: Integers
    weight: Floats


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


def check_size(data: TrainingData) -> None:
    """Refuse features or weights whose sums overflow."""
    summary = data.summary
    broken = ~(np.isfinite(summary.mean) & np.isfinite(summary.squares))
    if not np.isfinite(summary.weight):
        raise InputError(
            "overflow", "The sample weights are so large that their sum overflows.", "Divide them by a common factor."
        )
    if broken.any():
        name = data.feature_names[int(np.argmax(broken))]
        raise InputError(
            "overflow",
            f"The values of feature {name!r} are so large that the sum of their squares overflows.",
            "Rescale it, or take its logarithm.",
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
            f"The model has {model.n_features} features and the data {len(data.feature_names)}, or their names differ.",
            "Add batches with data of the same features in the same order, or fit a new model.",
        )


def _with(source: Source, further: Source | None) -> Source:
    """A source with the arrays of another beside its own, if there is one."""
    return source if further is None else zip_sources(source, further)


def _after(solution: Solution, report: Callable[[Iteration], None]) -> Callable[[Iteration], None]:
    """Report iterations that are counted on from those of a solution."""

    def counted(state: Iteration) -> None:
        iteration, evaluations = state.iteration + solution.iterations, state.evaluations + solution.evaluations
        report(replace(state, iteration=iteration, evaluations=evaluations))

    return counted


def _known(held_out: float) -> float | None:
    return None if math.isnan(held_out) else held_out
