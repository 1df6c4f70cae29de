"""The objective of a round of batches: penalised likelihood as a function of `theta = (v, w)`.

    l(v, w) = - sum_{n in T} r_n log p[y_n](x_n) + penalty(v; lambda_v, alpha_v) + penalty(w; lambda_w, alpha_w)

In `T` are all rows, and one that is a candidate does not look at itself: its own term of this round is left out of its
`p`, and

    r_n = s_n / W,  W = sum_n s_n

By the source's recipe `T` is the rows that are no candidates. With `W_k` the weight of class `k` and `W_ck` that of its
candidates in all batches of the round,

    r_n = s_n W_k / (W_k - W_ck) / W,  k = y_n

`theta` has the feature weights of one batch after those of another, then the candidate weights in the same order. It
knows no solver; one evaluation is one pass over the data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from protodask.data.format.schema import FEATURES, TARGET, row_weights
from protodask.engine import Block, Engine, Reduction, Source, add_records, identity
from protodask.engine.records import Floats
from protodask.prototypes.batch_kernel import MOST_APART, Candidates, batch_kernels
from protodask.prototypes.candidates import HELD_OUT, SCORES, STANDARDIZED
from protodask.prototypes.config import FeatureWeights
from protodask.prototypes.kernel import Standardization, far_out
from protodask.prototypes.likelihood import Likelihood, LikelihoodKernel, likelihood_kernel
from protodask.prototypes.solver import Evaluation, Function, solver_scale
from protodask.prototypes.tiles import Precision


@dataclass(frozen=True)
class RoundProblem:
    """What stays the same over all evaluations of a round, and all that a worker needs besides the data."""

    candidates: Candidates
    """Of all batches, one after the other."""
    sizes: tuple[int, ...]
    """Candidates of each batch (B,)."""
    class_factor: Floats
    """`r_n / s_n` of the rows of each class (K,)."""
    marginals: Floats
    standardization: Standardization
    precision: Precision
    held_out_weight: float = 0.0
    """Of all rows that are held out together; 0 where they play no part."""
    columns: NDArray[np.int64] | None = None
    """Features of the rows that those of the candidates are forms of; None where they are the same."""
    leave_one_out: bool = False
    """Whether rows that are candidates are in `T`, though none looks at itself."""

    def __getstate__(self) -> dict[str, Any]:
        return {one.name: getattr(self, one.name) for one in fields(self)}

    @property
    def n_batches(self) -> int:
        return len(self.sizes)

    @cached_property
    def batches(self) -> tuple[Candidates, ...]:
        """Candidates of each batch."""
        return tuple(self.candidates.part(places) for places in self.places)

    @cached_property
    def together(self) -> Candidates:
        """Candidates of all batches, to be met together."""
        return Candidates(self.candidates.features, self.candidates.classes, self.candidates.rows, self.sizes)

    @property
    def n_features(self) -> int:
        return int(self.candidates.features.shape[1])

    @property
    def n_candidates(self) -> int:
        return len(self.candidates.rows)

    @property
    def n_looked_at(self) -> int:
        """Features that vary, each counted once in however many forms it enters; 1 if there are none."""
        columns = np.arange(self.n_features) if self.columns is None else self.columns
        return max(1, len(np.unique(columns[self.varying])))

    @cached_property
    def varying(self) -> NDArray[np.bool_]:
        """Which features tell some candidates from others (D,)."""
        features = self.candidates.features
        found: NDArray[np.bool_] = (features != features[:1]).any(axis=0)
        return found

    @property
    def n_varying(self) -> int:
        """Features that vary; 1 if there are none."""
        return max(1, int(np.count_nonzero(self.varying)))

    @property
    def solver_scale(self) -> Floats:
        """What turns `theta` into the solver's variables."""
        return solver_scale(self.n_features, self.n_candidates, self.n_batches, self.lengthening, self.n_varying)

    @property
    def lengthening(self) -> float:
        """How much longer `v` is at the start than `10 / D`: `max(1, min(2, D / 100) sqrt(D) / 10)`.

        With `10 / D` the mean exponent of the kernel is `-100 / D`: of many hundred features all rows are alike,
        whatever their class, and few rows show no way on before those held out end the fit. It is -1 at a hundred
        features, and goes from there to -4 at two hundred, where it stays. tests/benchmarks/README.md has the figures.
        """
        return max(1.0, min(MOST_START, self.n_looked_at / MANY_FEATURES) * math.sqrt(self.n_looked_at) / 10)

    @property
    def n_feature_weights(self) -> int:
        return self.n_batches * self.n_features

    @property
    def places(self) -> list[slice]:
        """Where the candidates of each batch are."""
        ends = np.cumsum(self.sizes).tolist()
        return [slice(end - size, end) for end, size in zip(ends, self.sizes, strict=True)]

    def part(self, kept: NDArray[np.bool_]) -> RoundProblem:
        """The problem with some of the candidates (J,)."""
        sizes = tuple(int(np.count_nonzero(kept[places])) for places in self.places)
        return replace(self, candidates=self.candidates.part(kept), sizes=sizes)

    def of_all_rows(self, candidate_weight: Floats, class_weight: Floats) -> RoundProblem:
        """The problem over rows none of which is held out, given the sample weights of candidates and of classes."""
        return replace(
            self,
            class_factor=class_factors(self.candidates.classes, candidate_weight, class_weight, self.leave_one_out),
            marginals=class_weight / class_weight.sum(),
            held_out_weight=0.0,
        )

    def split(self, theta: Floats) -> tuple[Floats, Floats]:
        """`theta` as feature weights `v` of each batch (B, D) and candidate weights `w` (J,)."""
        features, candidates = np.split(theta, [self.n_feature_weights])
        return features.reshape(self.n_batches, self.n_features), candidates


def make_problem(
    candidates: Candidates,
    candidate_weight: Floats,
    class_weight: Floats,
    standardization: Standardization,
    precision: Precision,
    sizes: tuple[int, ...] | None = None,
    held_out_weight: float = 0.0,
    columns: NDArray[np.int64] | None = None,
    leave_one_out: bool = False,
) -> RoundProblem:
    """The problem for candidates of sample weights `candidate_weight` (J,), given the weight of every class (K,).

    `sizes` are the numbers of candidates of each batch; all are of one where they are not given.
    """
    return RoundProblem(
        candidates=candidates,
        sizes=(len(candidates.rows),) if sizes is None else sizes,
        class_factor=class_factors(candidates.classes, candidate_weight, class_weight, leave_one_out),
        marginals=class_weight / class_weight.sum(),
        standardization=standardization,
        precision=precision,
        held_out_weight=held_out_weight,
        columns=columns,
        leave_one_out=leave_one_out,
    )


def class_factors(
    classes: NDArray[np.int64], candidate_weight: Floats, class_weight: Floats, leave_one_out: bool
) -> Floats:
    """`r_n / s_n` of the rows of each class (K,), for candidates of these classes and sample weights (J,)."""
    total = class_weight.sum()
    if leave_one_out:
        return np.full(len(class_weight), 1 / total)
    drawn = np.bincount(classes, weights=candidate_weight, minlength=len(class_weight))
    factors: Floats = class_weight / (class_weight - drawn) / total
    return factors


def batch_sizes(groups: NDArray[np.int64], feature_weights: FeatureWeights) -> tuple[int, ...]:
    """Candidates of each batch of a round, given the class of each, or its class and region, ascending: one batch where
    feature weights are shared, else one for each of these.
    """
    if feature_weights == "shared":
        return (len(groups),)
    return tuple(np.unique(groups, return_counts=True)[1].tolist())


MANY_FEATURES, MOST_START = 100, 2.0
"""Features from which `v` begins longer, and the largest norm of it there. Were it so from 25 features on, where the
norms meet, the log-loss of 13 tables would be the same to a tenth of a per cent in the mean, 0.89 to 1.07 on each."""

START_WEIGHT = 10.0
"""Of a candidate: from 1 fits of fifteen tables take a seventh longer, and the log-loss is 1 per cent larger."""


def starting_point(problem: RoundProblem) -> Floats:
    """`v = 10 / D`, `w_j = 10`; of `k` forms of each of `D` features `10 / (D sqrt k)`: rows are as far apart then.

    Of more than a hundred features `v` is longer, see `RoundProblem.lengthening`. Features in which all candidates are
    alike are none of `D`: their `v` is 0 and stays so. Rows that differ there would only be far from all of them, as
    those of another year are where the year was one. The log-loss of 152 tables with categories is 0.981 of what it is
    with weights there.
    """
    start = problem.lengthening * 10 / (problem.n_looked_at * problem.n_varying) ** 0.5
    feature_weights = np.tile(np.where(problem.varying, start, 0.0), problem.n_batches)
    return np.concatenate([feature_weights, np.full(problem.n_candidates, START_WEIGHT)])


def prepare_kernel(
    problem: RoundProblem, theta: Floats, asleep: NDArray[np.bool_] | None = None
) -> tuple[RoundProblem, LikelihoodKernel]:
    """What all blocks of a task share; the gradient of candidates that are `asleep` is not computed."""
    feature_weights, candidate_weight = problem.split(theta)
    far = _far_out(problem, feature_weights)
    if asleep is not None:
        far &= (candidate_weight > 0) | ~asleep
    work, together = _work_alone(problem, feature_weights, far), False
    if problem.n_batches > 1:
        whole = _work_together(problem, feature_weights, far)
        together = _meet_together(work, whole)
        work = whole if together else work
    for candidates in problem.batches if together else [problem.together]:
        candidates.forget()
    if together:
        parts = [(problem.together, slice(None), slice(None))]
    else:
        own = [slice(number, number + 1) for number in range(problem.n_batches)]
        parts = list(zip(problem.batches, own, problem.places, strict=True))
    batches = [
        kernel
        for (candidates, own, places), apart in zip(parts, work.apart, strict=True)
        for kernel in batch_kernels(
            candidates,
            feature_weights[own],
            candidate_weight[places],
            problem.standardization,
            problem.precision,
            problem.columns,
            None if asleep is None else asleep[places],
            far[places] if apart else None,
            (own.start or 0, places.start or 0),
        )
    ]
    return problem, likelihood_kernel(batches)


def _far_out(problem: RoundProblem, feature_weights: Floats) -> NDArray[np.bool_]:
    """Candidates for which float32 was asked for and would not do (J,)."""
    if problem.precision == "float64":
        return np.zeros(problem.n_candidates, dtype=np.bool_)
    return far_out(problem.candidates.features, feature_weights, problem.together.batch)


ROW_WORK, SHARED_WORK, CALL_WORK = 60, 8, 1.5e6
"""What is to be done beside the kernel, in units of a feature of a row and a candidate: for each feature of a row and
matrix of one batch, and for each batch more where it is of several, whatever the candidates; and for a matrix, whatever
the rows."""


class Work(NamedTuple):
    """Of some kernel matrices, in units of a row, a feature and a candidate in float32."""

    amount: float
    apart: NDArray[np.bool_]
    """Of which those candidates that need float64 are apart, as it takes less then."""


def _work(
    problem: RoundProblem, features: NDArray[np.int64], candidates: Any, far: NDArray[np.int64], by_row: float
) -> Work:
    """Of some matrices (M,), each with so many features and candidates, some of which are `far` and need float64.

    `by_row` is what a feature of a row costs besides; all of it counts twice in float64, three times in two matrices.
    Candidates of a round are taken for `14 sqrt(N)` of the rows. It is the same whatever blocks, threads and workers
    there are, and so is what follows from it, which changes nothing but the time and what rounding does.
    """
    call = CALL_WORK / max(1.0, problem.n_candidates / 14) ** 2
    in_one = features * (candidates + by_row) * np.where(far > 0, 2, 1) + call
    in_two = features * (candidates + far + 3 * by_row) + 2 * call
    apart = (far > 0) & (far <= MOST_APART * (candidates - far)) & (in_two < in_one)
    return Work(float(np.where(apart, in_two, in_one).sum()), apart)


def _work_alone(problem: RoundProblem, feature_weights: Floats, far: NDArray[np.bool_]) -> Work:
    """Of a matrix for each batch."""
    far_of_batch = np.bincount(problem.together.batch[far], minlength=problem.n_batches)
    return _work(problem, (feature_weights > 0).sum(axis=1), np.array(problem.sizes), far_of_batch, ROW_WORK)


def _work_together(problem: RoundProblem, feature_weights: Floats, far: NDArray[np.bool_]) -> Work:
    """Of one matrix of the features that any batch looks at."""
    looked_at = np.array([np.count_nonzero((feature_weights > 0).any(axis=0))])
    by_row = ROW_WORK + SHARED_WORK * problem.n_batches
    return _work(problem, looked_at, problem.n_candidates, np.array([np.count_nonzero(far)]), by_row)


def _meet_together(alone: Work, whole: Work) -> bool:
    """Whether the batches of a round meet rows in one matrix."""
    return whole.amount <= alone.amount


def likelihood_block(block: Block, problem: RoundProblem, kernel: LikelihoodKernel) -> Likelihood:
    """The sum over a block's rows in `T`."""
    target = block[TARGET.name]
    weight = problem.class_factor[target]
    rows_weight = row_weights(block)
    if rows_weight is not None:
        weight *= rows_weight
    itself = None
    if problem.leave_one_out:
        itself = [batch.candidates.within(block.start, block.stop) for batch in kernel.batches]
    else:
        weight[problem.candidates.within(block.start, block.stop)[0]] = 0
    previous = block.arrays.get(SCORES, problem.marginals)
    held_out = block[HELD_OUT] if problem.held_out_weight else None
    standardized = block.arrays.get(STANDARDIZED)
    return kernel.evaluate(block[FEATURES.name], target, weight, previous, held_out, standardized, itself)


LIKELIHOOD: Reduction[Likelihood, Likelihood] = Reduction(
    likelihood_block, add_records, identity, prepare=prepare_kernel
)


@dataclass(frozen=True)
class Penalty:
    """`strength (share/2 |x|_2^2 + (1 - share) |x|_1)` for `x >= 0`."""

    strength: float
    share: float

    def value(self, x: Floats) -> float:
        return self.strength * (self.share / 2 * float(x @ x) + (1 - self.share) * float(x.sum()))

    def gradient(self, x: Floats) -> Floats:
        return self.strength * (self.share * x + (1 - self.share))


@dataclass(frozen=True)
class Objective:
    """What the solver minimises, on an engine."""

    engine: Engine
    source: Source
    problem: RoundProblem
    shared_problem: object
    feature_penalty: Penalty
    candidate_penalty: Penalty

    def __call__(
        self, theta: Floats, asleep: NDArray[np.bool_] | None = None, blocks: Sequence[int] | None = None
    ) -> Evaluation:
        """Value and gradient, without the likelihood's part of it for candidates of weight 0 that are `asleep`.

        Of some `blocks` alone, the likelihood is theirs times as many as there are for each.
        """
        times = 1.0 if blocks is None else self.source.layout.n_blocks / len(blocks)
        label = "evaluate" if blocks is None else "step"
        likelihood = self.engine.reduce(
            self.source, LIKELIHOOD, self.shared_problem, theta, asleep, label=label, blocks=blocks
        )
        n_feature_weights = self.problem.n_feature_weights
        feature_weight, candidate_weight = theta[:n_feature_weights], theta[n_feature_weights:]
        value = (
            times * likelihood.value
            + self.feature_penalty.value(feature_weight)
            + self.candidate_penalty.value(candidate_weight)
        )
        gradient = np.concatenate(
            [
                times * likelihood.by_feature.ravel() + self.feature_penalty.gradient(feature_weight),
                times * likelihood.by_candidate + self.candidate_penalty.gradient(candidate_weight),
            ]
        )
        if not self.problem.held_out_weight:
            return Evaluation(value, gradient)
        return Evaluation(value, gradient, likelihood.held_out / self.problem.held_out_weight)


AWAKE, LOOK_AGAIN = 20, 10
"""Evaluations in which nobody sleeps, and from then on from one that looks at all candidates to the next. From the
first evaluation on, digits lose 8 per cent by it (tests/benchmarks/tables.py), and a tenth of the time is saved."""


class WorkingSet:
    """An objective as the solver sees it: candidates that do no work are not looked at in every evaluation.

    The solver keeps a candidate of weight 0 there as long as its gradient is positive, and it adds nothing to the value
    or to any other gradient: of most candidates in the second half of a long fit, a pass computes what nobody uses.
    They sleep from evaluation `AWAKE` on (before, many that fall to 0 come back), and are looked at again every
    `LOOK_AGAIN`. The gradient of a candidate that sleeps is what it was when it fell asleep.

    Which sleep follows from the evaluations so far alone: a run that is repeated from its log goes the same way.
    """

    def __init__(
        self, objective: Objective, recorded: Callable[[Function], Function], awake: int | None = None
    ) -> None:
        """Where the first evaluation is without prototypes and `awake` is given, nobody is looked at in it."""
        n_candidates = objective.problem.n_candidates
        self._gradient = np.zeros(n_candidates)
        self._asleep = np.zeros(n_candidates, dtype=np.bool_)
        self._awake, self._evaluations = AWAKE if awake is None else awake, 0
        self._begins_with_nothing = awake is not None
        asleep = self._asleep  # and not this object itself, which would keep the problem and all it remembers
        self._evaluate = recorded(lambda theta: objective(theta, asleep))

    def __call__(self, theta: Floats) -> Evaluation:
        by_candidate = slice(len(theta) - len(self._asleep), None)
        looks = self._evaluations < self._awake or self._evaluations % LOOK_AGAIN == 0
        useless = (theta[by_candidate] == 0) & (self._gradient > 0)
        self._asleep[:] = useless & (not looks)
        if self._begins_with_nothing and self._evaluations == 0:
            self._asleep[:] = theta[by_candidate] == 0
        self._evaluations += 1
        found = self._evaluate(theta)
        self._gradient = np.where(self._asleep, self._gradient, found.gradient[by_candidate])
        gradient = found.gradient.copy()
        gradient[by_candidate] = self._gradient
        return found._replace(gradient=gradient)
