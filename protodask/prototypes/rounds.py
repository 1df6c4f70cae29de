"""How a round is trained: by small steps where rows are many, by the solver up to where rows held out lose least, with
more candidates on the way where these help, and then on all rows.

Each part of the way begins where the one before ended. What it computed is kept under the number of the round, so that
a run which is begun again goes the same way without computing.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from protodask.engine import Engine, Source, zip_sources
from protodask.engine.records import Floats, Integers
from protodask.errors import count
from protodask.prototypes.config import FitConfig, stage_row_bytes, staged_rows
from protodask.prototypes.forms import Forms
from protodask.prototypes.growing import GAIN, LOOKED_AFTER, evenly
from protodask.prototypes.history import Callback, IterationDone, StageRecord
from protodask.prototypes.kernel import row_side
from protodask.prototypes.objective import Objective, Penalty, RoundProblem, WorkingSet, starting_point
from protodask.prototypes.runs import RunLog
from protodask.prototypes.solver import AFTER_STEPS, TO_THE_END, Function, Iteration, Patience, Solution, solve
from protodask.prototypes.staging import take_stage
from protodask.prototypes.steps import Steps, stepping_start
from protodask.prototypes.training_data import TrainingData

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


def rows_to_step_on(config: FitConfig, data: TrainingData, n_forms: int, scored: bool) -> int:
    """Of the small steps that a round begins with, on features in so many forms; 0 where it does not."""
    if not (config.progressive and data.held_out_weight):
        return 0
    row_bytes = stage_row_bytes(n_forms, len(data.classes) if scored else 0, config.kernel_precision)
    return staged_rows(data.source.layout.n_rows, row_bytes)


@dataclass(frozen=True)
class Listeners:
    """Who is told of the iterations of a round, and what of them is kept."""

    number: int
    forms: Forms
    callbacks: Sequence[Callback]
    began: float
    values: list[float] = field(default_factory=list)
    """Objective after each iteration."""

    def told(self, problem: RoundProblem, state: Iteration, rows: int | None = None) -> None:
        """Of an iteration on a problem, or of a part of the small steps on so many `rows`."""
        if rows is None:
            self.values.append(state.value)
        if not self.callbacks:
            return
        feature_weights, candidate_weight = problem.split(state.theta)
        event = IterationDone(
            batch=self.number,
            iteration=state.iteration,
            evaluations=state.evaluations,
            value=state.value,
            gradient_norm=state.gradient_norm,
            active_features=len(self.forms.looked_at(np.flatnonzero(feature_weights.sum(axis=0)))),
            candidates=int(np.count_nonzero(candidate_weight)),
            seconds=time.perf_counter() - self.began,
            held_out=known(state.held_out),
            rows=rows,
        )
        for callback in self.callbacks:
            callback(event)


@dataclass(frozen=True)
class Trained:
    """Where a round ended."""

    problem: RoundProblem
    """Of the candidates that are left."""
    kept: Integers
    """Which of those that were drawn they are."""
    tried: NDArray[np.bool_]
    """Which of these were candidates at all."""
    solution: Solution
    stages: tuple[StageRecord, ...]
    on_all_rows: int
    """Iterations."""


@dataclass(frozen=True)
class Round:
    """A round of a fit, over the scores of the rounds before."""

    number: int
    data: TrainingData
    config: FitConfig
    engine: Engine
    log: RunLog
    further: Sequence[Source]
    """Arrays beside those of the data: scores of the rounds before, features in standard units."""
    listeners: Listeners

    def train(
        self, problem: RoundProblem, candidate_weight: Floats, few: NDArray[np.bool_], is_first: bool, is_last: bool
    ) -> Trained:
        """Minimise it, given the sample weights of all candidates and the `few` that it begins with (J,).

        Rows have scores unless the round `is_first`; it ends on all rows if it `is_last`: another round would be judged
        by rows that had been trained on.
        """
        start, useful, stages = self._take_steps(problem, not is_first)
        problem, kept = problem.part(useful), np.flatnonzero(useful)
        solution, left = self._minimize(problem, start, few[kept])
        tried = few | left.all()
        if not left.all():
            problem, kept = problem.part(left), kept[left]
        self._warn_if_early(solution)
        before, whole = solution.iterations, self.data.whole
        if whole is not None and self.config.finish and is_last and not stages:
            useful = problem.split(solution.theta)[1] > 0
            more = self._further_iterations(solution, whole) if useful.any() else 0
            if more > 0:
                kept = kept[useful]
                problem = problem.part(useful).of_all_rows(candidate_weight[kept], whole.summary.class_weight)
                solution = self._finish(problem, whole, solution, useful, more)
        return Trained(problem, kept, tried, solution, stages, solution.iterations - before)

    def _rows(self, data: TrainingData) -> Source:
        return zip_sources(data.source, *self.further)

    def _take_steps(
        self, problem: RoundProblem, scored: bool
    ) -> tuple[Floats | None, NDArray[np.bool_], tuple[StageRecord, ...]]:
        """Where small steps lead, None if rows are too few for them, which candidates are of use there (J,), and how it
        went.
        """
        config, data, nothing = self.config, self.data, (None, np.ones(problem.n_candidates, dtype=np.bool_), ())
        size = rows_to_step_on(config, data, problem.n_features, scored)
        if not size:
            return nothing
        columns = self.listeners.forms.columns
        side = row_side(np.arange(problem.n_features), problem.standardization, columns, problem.precision)
        stage = take_stage(self.engine, self._rows(data), problem, config.seed, size, side, scored, config.n_draws)
        if stage is None:
            return nothing
        steps = Steps(self.engine.nearby(), stage, *self._penalties, config.seed)
        stepped = steps.take(
            stepping_start(problem),
            partial(self.log.arrays, self.number),
            partial(self.listeners.told, stage.problem, rows=stage.rows),
        )
        left = int(np.count_nonzero(stepped.kept))
        return stepped.theta, stepped.kept, (StageRecord(stage.rows, stepped.steps, stepped.steps, left),)

    def _warn_if_early(self, solution: Solution) -> None:
        if solution.status in ("converged", "stationary", "held out"):
            return
        from protodask.prototypes.convergence import ConvergenceWarning

        warnings.warn(
            f"Round {self.number} stopped early ({solution.status}: {solution.message}) after "
            f"{count(solution.iterations, 'iteration')}; raise `max_iterations` or `tolerance`.",
            ConvergenceWarning,
            stacklevel=2,
        )

    @property
    def _penalties(self) -> tuple[Penalty, Penalty]:
        """On feature weights and on candidates' weights."""
        config = self.config
        return Penalty(config.lambda_v, config.alpha_v), Penalty(config.lambda_w, config.alpha_w)

    def _minimize(
        self, whole: RoundProblem, start: Floats | None, few: NDArray[np.bool_]
    ) -> tuple[Solution, NDArray[np.bool_]]:
        """Train on all rows but those held out, from `start` if there is one; with the `few` of the candidates, and on
        with all where they serve (J,). Which these were is said, too.
        """
        problem, all_serve = whole, None
        if not few.all():
            problem, all_serve = whole.part(few), partial(self._all_serve, whole, few)
        objective = self._objective(self.data, problem, warm=start is not None)
        patience = TO_THE_END if start is None else AFTER_STEPS
        none = starting_point(problem)
        none[problem.n_feature_weights :] = 0
        nothing = objective(none) if problem.held_out_weight else None
        baseline = math.inf if nothing is None else nothing.held_out
        start = starting_point(problem) if start is None else start
        solution = self._descend(objective, problem, start, patience, baseline, leaves=all_serve)
        if solution.status == "left":
            grown = self._grow(whole, few, solution, baseline)
            if grown.held_out < solution.held_out:
                solution, few = grown, np.ones_like(few)
            elif grown.iterations < self.config.max_iterations:
                from_there = replace(patience, from_start=True)
                solution = self._descend(objective, problem, solution.theta, from_there, baseline, grown)
            else:
                solution = _added(replace(solution, status="held out"), grown)
        if nothing is None:
            return solution, few
        # No prototypes at all, if rows that are held out lose no more without them.
        solution = replace(solution, evaluations=solution.evaluations + 1)
        if solution.held_out < nothing.held_out:
            return solution, few
        return replace(solution, theta=none, status="held out", **nothing._asdict()), few

    def _descend(
        self,
        objective: Function,
        problem: RoundProblem,
        start: Floats,
        patience: Patience,
        baseline: float,
        before: Solution | None = None,
        leaves: Callable[[Iteration], bool] | None = None,
        stage: str = "",
    ) -> Solution:
        """Minimise an objective of a problem from a start, its iterations counted on from those `before`."""
        most = self.config.max_iterations
        report: Callable[[Iteration], None] = partial(self.listeners.told, problem)
        if before is not None:
            report, most = _after(before, report), most - before.iterations
        settings = problem.solver_scale, self.config.tolerance
        solution = solve(objective, start, *settings, most, report, patience, baseline, leaves)
        if solution.status == "line search failed" and problem.precision == "float32" and solution.iterations < most:
            # Near the optimum of a small problem float32's rounding can hide the last descent from the line search.
            exact = self._objective(self.data, replace(problem, precision="float64"), stage=stage)
            left = most - solution.iterations
            double = solve(exact, solution.theta, *settings, left, _after(solution, report), patience, baseline)
            better = double if math.isnan(solution.held_out) or double.held_out <= solution.held_out else solution
            solution = _added(better, solution, double)
        return solution if before is None else _added(solution, before, solution)

    def _all_serve(self, problem: RoundProblem, few: NDArray[np.bool_], state: Iteration) -> bool:
        """Whether all candidates of a problem tell classes apart better than a `few`, which an iterate is of."""
        if state.iteration != LOOKED_AFTER:
            return False
        # Rows that are trained on count for nothing here, and cost nothing.
        judged = replace(problem, class_factor=np.zeros_like(problem.class_factor))
        objective = self._objective(self.data, judged, stage="looked-")
        everybody = np.ones_like(few)
        by_few, by_all = (objective(evenly(problem, few, state.theta, over)).held_out for over in (few, everybody))
        return by_all <= (1 - GAIN) * by_few

    def _grow(self, problem: RoundProblem, few: NDArray[np.bool_], before: Solution, baseline: float) -> Solution:
        """Go on from a solution of a `few` of the candidates with all of them."""
        start, stage = evenly(problem, few, before.theta, np.ones_like(few)), "grown-"
        objective = self._objective(self.data, problem, stage=stage)
        return self._descend(objective, problem, start, TO_THE_END, baseline, before, stage=stage)

    def _further_iterations(self, solution: Solution, whole: TrainingData) -> int:
        """Iterations on the `whole` of the rows after a solution, see `finishing_iterations`."""
        kept = self.data.summary.class_weight
        by_marginals = marginal_loss(kept, whole.summary.class_weight - kept)
        wanted = finishing_iterations(solution.held_out, by_marginals, solution.iterations)
        return min(wanted, self.config.max_iterations - solution.iterations)

    def _finish(
        self,
        problem: RoundProblem,
        whole: TrainingData,
        solution: Solution,
        useful: NDArray[np.bool_],
        iterations: int,
    ) -> Solution:
        """Go on from a solution for so many iterations on all rows, with those candidates that are of use (J,).

        It may be fewer where nothing is lowered any more. What rows held out lose is said of the solution before.
        """
        objective = self._objective(whole, problem, stage="whole-")
        start = solution.theta[np.concatenate([np.ones(problem.n_feature_weights, dtype=np.bool_), useful])]
        report = _after(solution, partial(self.listeners.told, problem))
        found = solve(objective, start, problem.solver_scale, self.config.tolerance, iterations, report)
        return replace(
            found,
            status=solution.status,
            message=solution.message,
            iterations=solution.iterations + found.iterations,
            evaluations=solution.evaluations + found.evaluations,
            held_out=solution.held_out,
        )

    def _objective(self, data: TrainingData, problem: RoundProblem, warm: bool = False, stage: str = "") -> Function:
        """What is minimised on the data; `warm` where it begins near the end, with candidates that do no work.

        The log keeps its evaluations by `stage` and precision.
        """
        objective = Objective(self.engine, self._rows(data), problem, self.engine.share(problem), *self._penalties)
        recorded = partial(self.log.recorded, self.number, stage + problem.precision)
        if not problem.held_out_weight:
            return recorded(objective)
        # The first evaluation is that without prototypes, if any are held out; the second one looks at all, too.
        return WorkingSet(objective, recorded, awake=2 if warm else None)


def _added(solution: Solution, *parts: Solution) -> Solution:
    """A solution with the iterations and evaluations of the parts of the way there."""
    iterations, evaluations = (sum(getattr(part, name) for part in parts) for name in ("iterations", "evaluations"))
    return replace(solution, iterations=iterations, evaluations=evaluations)


def _after(solution: Solution, report: Callable[[Iteration], None]) -> Callable[[Iteration], None]:
    """Report iterations that are counted on from those of a solution."""

    def counted(state: Iteration) -> None:
        iteration, evaluations = state.iteration + solution.iterations, state.evaluations + solution.evaluations
        report(replace(state, iteration=iteration, evaluations=evaluations))

    return counted


def known(held_out: float) -> float | None:
    """None where no row was held out."""
    return None if math.isnan(held_out) else held_out
