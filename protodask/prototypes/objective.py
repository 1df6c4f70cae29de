"""The objective of one batch: penalised likelihood as a function of `theta = (v, w)`.

    l(v, w) = - sum_{n in T} r_n log p[y_n](x_n) + penalty(v; lambda_v, alpha_v) + penalty(w; lambda_w, alpha_w)
    r_n = s_n W_k / (W_k - W_ck) / W,  k = y_n

with `W_k` the weight of class `k`, `W_ck` that of its candidates, and `T` the rows that are no candidates. It knows no
solver; one evaluation is one pass over the data.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protodask.data.schema import FEATURES, TARGET, row_weights
from protodask.engine import Block, Engine, Reduction, Source, identity
from protodask.prototypes.candidates import SCORES
from protodask.prototypes.kernel import (
    Candidates,
    Likelihood,
    LikelihoodKernel,
    Standardization,
    merge_likelihoods,
)
from protodask.prototypes.tiles import Precision

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class BatchProblem:
    """What stays the same over all evaluations of a batch, and all that a worker needs besides the data."""

    candidates: Candidates
    class_factor: Floats
    """`W_k / (W_k - W_ck) / W` (K,)."""
    marginals: Floats
    standardization: Standardization
    precision: Precision

    @property
    def n_classes(self) -> int:
        return len(self.marginals)

    @property
    def n_features(self) -> int:
        return int(self.candidates.features.shape[1])

    @property
    def n_candidates(self) -> int:
        return len(self.candidates.rows)

    def split(self, theta: Floats) -> tuple[Floats, Floats]:
        """`theta` as feature weights `v` (D,) and candidate weights `w` (J,)."""
        return theta[: self.n_features], theta[self.n_features :]


def make_problem(
    candidates: Candidates,
    candidate_weight: Floats,
    class_weight: Floats,
    standardization: Standardization,
    precision: Precision,
) -> BatchProblem:
    """The problem for candidates of sample weights `candidate_weight` (J,), given the weight of every class (K,)."""
    drawn = np.bincount(candidates.classes, weights=candidate_weight, minlength=len(class_weight))
    total = class_weight.sum()
    return BatchProblem(
        candidates=candidates,
        class_factor=class_weight / (class_weight - drawn) / total,
        marginals=class_weight / total,
        standardization=standardization,
        precision=precision,
    )


def prepare_kernel(problem: BatchProblem, theta: Floats) -> tuple[BatchProblem, LikelihoodKernel]:
    """What all blocks of a task share."""
    feature_weight, candidate_weight = problem.split(theta)
    kernel = LikelihoodKernel(
        problem.candidates,
        feature_weight,
        candidate_weight,
        problem.standardization,
        problem.n_classes,
        problem.precision,
    )
    kernel.prepare()
    return problem, kernel


def likelihood_block(block: Block, problem: BatchProblem, kernel: LikelihoodKernel) -> Likelihood:
    """The sum over a block's rows in `T`."""
    target = block[TARGET.name]
    weight = problem.class_factor[target]
    rows_weight = row_weights(block)
    if rows_weight is not None:
        weight *= rows_weight
    first, last = np.searchsorted(problem.candidates.rows_sorted, (block.start, block.stop))
    weight[problem.candidates.rows_sorted[first:last] - block.start] = 0
    previous = block.arrays.get(SCORES, problem.marginals)
    return kernel.evaluate(block[FEATURES.name], target, weight, previous)


LIKELIHOOD: Reduction[Likelihood, Likelihood] = Reduction(
    likelihood_block, merge_likelihoods, identity, prepare=prepare_kernel
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
    """`theta -> (value, gradient)` on an engine."""

    engine: Engine
    source: Source
    problem: BatchProblem
    shared_problem: object
    feature_penalty: Penalty
    candidate_penalty: Penalty

    def __call__(self, theta: Floats) -> tuple[float, Floats]:
        likelihood = self.engine.reduce(self.source, LIKELIHOOD, self.shared_problem, theta, label="evaluate")
        feature_weight, candidate_weight = self.problem.split(theta)
        value = (
            likelihood.value
            + self.feature_penalty.value(feature_weight)
            + self.candidate_penalty.value(candidate_weight)
        )
        gradient = np.concatenate(
            [
                likelihood.by_feature + self.feature_penalty.gradient(feature_weight),
                likelihood.by_candidate + self.candidate_penalty.gradient(candidate_weight),
            ]
        )
        return value, gradient
