"""Small steps: where rows are many, a round is trained on some hundreds of them at a time before it looks at all.

Most of the way to a good model is as well found by many rough gradients as by few exact ones, if the steps are taken in
the logarithms of all weights. They are Adam's there:

    a = log theta,  g = theta dl/dtheta + what penalties add
    m <- b m + (1 - b) g,  s <- c s + (1 - c) g^2,  a <- a - r_t m' / sqrt(s')

with `m'` and `s'` corrected for their start at 0, and a rate `r_t` that falls to 0 in a straight line. A weight that is
of no use is halved again and again, one that is wanted grows a thousandfold; in the weights themselves such steps lead
nowhere. Candidates begin with so little weight that all prototypes together say as much as the marginals: from
more, hundreds of steps only bring them down.

Flights (229,000 rows, 2,000 candidates): 0.450 after six rounds through the rows, where 140 exact evaluations of all
rows after 180 of parts of them lost 0.459 and took three times as long (tests/benchmarks/tables.py).

Which rows a step looks at follows from the seed, and the gradients of its blocks merge in a fixed order: the bits are
the same for any number of threads. A run keeps where it is after each part of the way and goes on from there.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from protodask.data.arrays.keyed import keyed_draws, stream_key
from protodask.engine import Arrays, Engine, Source, one_blas_thread
from protodask.engine.records import Floats
from protodask.engine.scheduling import Processes
from protodask.engine.threads import available_threads
from protodask.prototypes.objective import Objective, Penalty, RoundProblem, starting_point
from protodask.prototypes.solver import Iteration, projected_norm
from protodask.prototypes.staging import STEP_BLOCKS, Stage

ROUNDS, FEWEST_STEPS = 5, 600
"""Through all rows, and steps where these are fewer. With 6 flights lose 0.0018 less and a fit takes a fifth longer;
with 800 steps of two blocks in place of 500 diamonds lose 0.005 less, storms, star and taxa the same to half a per
cent."""

RATE, WARM_UP = 0.15, 20
"""Largest rate, and steps until it is reached. With 0.1 diamonds and weather lose as much to 0.2 per cent."""

KEPT, KEPT_SQUARES = 0.9, 0.99
"""`b` and `c`."""

PARTS, PATIENCE = 8, 3
"""Of the way, after each of which the rows held out are looked at, and how many in a row may bring nothing."""

START_MASS, MEASURED = 1.0, 512
"""Sum of all classes' `u_k` at the start, on average over so many candidates; the marginals add up to 1. With 0.5
and 2 diamonds and storms lose the same to half a per cent."""

START_LONGER = 3.0
"""Times `v = 10 / D`, however many features there are: with so many rows, small steps find a way on from there, and one
to fewer prototypes. With 1 diamonds lose 0.551, with 2 or more 0.541; where few rows are noisy it is the other way
round (weather: 0.953 and 0.957)."""

LEAST_FEATURE_WEIGHT = 1e-4
"""Below which a feature is not looked at: by it, two rows a hundred standard deviations apart are alike to 0.00005."""

LET_GO = 0.002
"""Share of the weight of a batch's candidates that those of least weight have together which are let go in the end.
Before, they come back: let go after each part of the way, a ten-thousandth of it costs 1.5 per cent on diamonds."""

FARTHEST = 30.0
"""Of a logarithm, from 0."""

ORDER = 2**40
"""Of the draws by which blocks are put in order, among those of a seed: beyond those for rounds."""


@dataclass(frozen=True)
class Stepped:
    """Where small steps led."""

    theta: Floats
    """Of the candidates that are kept."""
    kept: NDArray[np.bool_]
    """(J,)"""
    steps: int


@dataclass(frozen=True)
class Steps:
    """A way of small steps over the rows of a stage."""

    engine: Engine
    """Of threads of this process, see `Engine.nearby`: a step takes milliseconds."""
    stage: Stage
    feature_penalty: Penalty
    candidate_penalty: Penalty
    seed: int

    @property
    def blocks(self) -> int:
        return self.stage.trained.layout.n_blocks

    @property
    def of_a_round(self) -> int:
        """Steps in which all rows are looked at once, but for those of blocks that are too few for another step."""
        return max(self.blocks // self.stage.together, 1)

    @property
    def most(self) -> int:
        """Steps of the whole way."""
        return max(ROUNDS * self.of_a_round, FEWEST_STEPS)

    def take(
        self,
        start: Floats,
        remember: Callable[[str, Callable[[], Arrays], int], Arrays],
        report: Callable[[Iteration], None],
    ) -> Stepped:
        """Take them from `start`, as long as they help the rows held out, and come back to where these lose least.

        `remember` gives the arrays of a part of the way, made by the function if they are not known yet for the number.
        """
        at, way = np.log(np.maximum(start, math.exp(-FARTHEST))), self._way(start)
        state: Arrays = {"at": at, "mean": np.zeros_like(at), "square": np.zeros_like(at)}
        least, best, last_better, done = math.inf, at, 0, 0
        for number in range(1, PARTS + 1):
            first, last = (self.most * part // PARTS for part in (number - 1, number))
            state = remember(f"steps-{last}", partial(self._part, state, first, last), way)
            done, held_out = last, float(state["held_out"][0])
            theta = looked_at(state["at"], self.stage.problem)
            report(Iteration(last, last, float(state["value"][0]), float(state["norm"][0]), theta, held_out))
            if held_out < least:
                least, best, last_better = held_out, state["at"], number
            if number - last_better == PATIENCE:
                break
        theta = looked_at(best, self.stage.problem)
        kept = worth_keeping(self.stage.problem, theta)
        if not self.stage.problem.leave_one_out:
            kept[:] = True  # their rows are left out, and what the others weigh is made for that
        n_feature_weights = self.stage.problem.n_feature_weights
        kept_theta = np.concatenate([theta[:n_feature_weights], theta[n_feature_weights:][kept]])
        return Stepped(kept_theta, kept, done)

    def _way(self, start: Floats) -> int:
        """What tells these steps from others on the same rows: of other forms, say, or taken by another version."""
        numbers = (
            self.stage.together,
            self.most,
            PARTS,
            RATE,
            WARM_UP,
            KEPT,
            KEPT_SQUARES,
            LEAST_FEATURE_WEIGHT,
            FARTHEST,
        )
        return zlib.crc32(np.array(numbers).tobytes(), zlib.crc32(start.tobytes(), 1))

    def _objective(self, source: Source, problem: RoundProblem) -> Objective:
        shared = self.engine.share(problem)
        return Objective(self.engine, source, problem, shared, self.feature_penalty, self.candidate_penalty)

    def _part(self, state: Arrays, first: int, last: int) -> Arrays:
        """Steps from the `first` on, up to the `last` which is not one of them."""
        at, mean, square = (state[name].copy() for name in ("at", "mean", "square"))
        problem = self.stage.problem
        trained = self._objective(self.stage.trained, replace(problem, held_out_weight=0.0))
        judged = self._objective(self.stage.judged, self.stage.judging)
        theta = gradient = looked_at(at, problem)
        value, order, known_round, together = 0.0, np.zeros(0, dtype=np.int64), -1, self.stage.together
        for step in range(first, last):
            through, place = divmod(step, self.of_a_round)
            if through != known_round:
                priorities = keyed_draws(stream_key(self.seed, ORDER, through), np.arange(self.blocks))
                order, known_round = np.argsort(priorities), through
            blocks = np.sort(order[place * together : (place + 1) * together]).tolist()
            theta = looked_at(at, problem)
            found = trained(theta, blocks=blocks)
            value, gradient = value + found.value, found.gradient
            slope = theta * gradient
            mean += (1 - KEPT) * (slope - mean)
            square += (1 - KEPT_SQUARES) * (slope * slope - square)
            rate = RATE * min(1.0, (step + 1) / WARM_UP) * (1 - step / self.most)
            size = np.sqrt(square / (1 - KEPT_SQUARES ** (step + 1)))
            mean_now = mean / (1 - KEPT ** (step + 1))
            at -= rate * np.divide(mean_now, size, out=np.zeros_like(at), where=size > 0)
            np.clip(at, -FARTHEST, FARTHEST, out=at)
        return {
            "at": at,
            "mean": mean,
            "square": square,
            "norm": np.array([projected_norm(theta, gradient)]),
            "value": np.array([value / (last - first)]),
            "held_out": np.array([judged(looked_at(at, problem)).held_out]),
        }


def stepping_threads(processes: Processes) -> int:
    """That steps have at most, of one draw or of several: of this process, or of the driver of a cluster."""
    here = processes.threads if processes.kind == "threads" else available_threads()
    return min(here, STEP_BLOCKS)


def stepping_start(problem: RoundProblem) -> Floats:
    """`v` above `10 / D`, and all `w` so large that `sum_k u_k` is `START_MASS` in the mean of some candidates, each of
    which looks at itself, too.
    """
    theta, n_feature_weights = starting_point(problem), problem.n_feature_weights
    theta[:n_feature_weights] *= START_LONGER / problem.lengthening
    candidates = problem.candidates.features[:, problem.varying]
    some = candidates[:: -(-len(candidates) // MEASURED)]
    with one_blas_thread():
        squares = (some**2).sum(axis=1)[:, None] + (candidates**2).sum(axis=1) - 2 * some @ candidates.T
    largest = theta[:n_feature_weights].max()
    mass = np.exp(-0.5 * largest**2 * np.maximum(squares, 0)).sum(axis=1).mean()
    theta[n_feature_weights:] = START_MASS / mass
    return theta


def looked_at(at: Floats, problem: RoundProblem) -> Floats:
    """`theta` of its logarithms, without features that next to nothing is seen of."""
    theta = np.exp(at)
    feature_weights = theta[: problem.n_feature_weights]
    feature_weights[feature_weights < LEAST_FEATURE_WEIGHT] = 0
    return theta


def worth_keeping(problem: RoundProblem, theta: Floats) -> NDArray[np.bool_]:
    """Candidates but for those of least weight in their batch, which have `LET_GO` of it together (J,)."""
    weight = problem.split(theta)[1]
    kept = np.zeros(len(weight), dtype=np.bool_)
    for places in problem.places:
        order = np.argsort(weight[places], kind="stable")
        so_far = np.cumsum(weight[places][order])
        kept[places.start + order[so_far > LET_GO * so_far[-1]]] = True
    return kept
