"""Minimisation under bounds: L-BFGS-B in variables that suit the problem, and an end that is relative to it.

The solver sees `2.4 sqrt(D) v` in place of `v`: at the start `v = 10 / D`, so the feature weights together begin with
the norm 24 whatever `D` (where features enter in several forms, times the root of their number; of more than a hundred
features `v` begins longer, and is divided by that). Seen as they are, the
feature weights shrink with `D`, and where there are many the first steps throw features onto their bound, from which
they never return because the likelihood's gradient vanishes there.

In place of `w` it sees `w / 20`. Useful weights of prototypes are 10^2 to 10^4, and a solver that has to get there in
steps of the order of 1 takes hundreds of iterations, or gives up. tests/benchmarks/solver.py has the figures.

A round is done when the last iterations lowered the objective by next to nothing of its size. A gradient says nothing
by its size alone: that by a candidate's weight shrinks with the number of candidates and of features, and with the
share of its class.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from protodask.engine import one_blas_thread
from protodask.engine.records import Floats

if TYPE_CHECKING:
    from scipy.optimize import OptimizeResult


class Evaluation(NamedTuple):
    """What a function says of one `theta`."""

    value: float
    gradient: Floats
    held_out: float = math.nan
    """Mean log-loss of the rows that are held out; nan where none are."""


Function = Callable[[Floats], Evaluation]

MEMORY = 10
"""Pairs of steps and gradient changes that L-BFGS-B keeps."""

GRADIENT_TOLERANCE = 1e-9
"""Largest projected gradient, in the solver's variables and relative to that at the start, that counts as zero."""

WINDOW = 10
"""Iterations over which a decrease is taken: one alone may be short by chance."""

START_NORM = 24.0
"""Norm of the solver's variables for the feature weights at the start. With a third of it fits take a tenth less time,
and end in worse optima (on wine by half)."""

CANDIDATE_SCALE = 0.05
"""Of the candidates' weights. With 1 the objective ends 2 to 40 per cent higher on small tables, and the log-loss of
the defaults is a tenth larger where classes can be told apart (digits, wine), the same where they hardly can; but a
hundred candidates on a chess board of 64 fields learn it better (tests/benchmarks/solver.py, tables.py)."""

LINE_SEARCH_STEPS = 20

LEAST_GAIN = 1e-3
"""Share of the loss of held-out rows that counts as a gain."""

LEARNT = 0.05
"""Share by which the loss is lowered before a round may end soon, see `Patience.first`."""


@dataclass(frozen=True)
class Patience:
    """Iterations in a row that may be without a gain: so many, and such a share of those before, up to a number."""

    least: int = 2
    share: float = 0.1
    most: int = 12
    """Without it, a draw whose loss is lowered slowly goes on for thousands of iterations and changes the mean of the
    draws by a thousandth."""
    first: int = 20
    """That are allowed at least as long as the loss without prototypes, or of the first iteration if that is less, was
    not lowered by the share `LEARNT`: where classes interleave, as on a chess board, little is gained until the feature
    weights have grown."""
    from_start: bool = False
    """Whether the start may be the solution."""


TO_THE_END = Patience()
"""Of all rows. With three at least, a share of 0.25 and 20 at most, and 15 iterations in place of 12 on all rows after
it, fits of 258 tables take a sixth longer in the median and 1.4 times as long in all, and lose 0.9 per cent less."""

AFTER_STEPS = Patience(least=3, share=0.0, most=3, first=3, from_start=True)
"""Of all rows, where small steps led near the end: 40 more evaluations lower what flights lose by 0.0007."""


Status = Literal["converged", "stationary", "held out", "iteration limit", "line search failed", "left"]


@dataclass(frozen=True)
class Iteration:
    """State after an iteration."""

    iteration: int
    evaluations: int
    value: float
    gradient_norm: float
    theta: Floats
    held_out: float = math.nan


@dataclass(frozen=True)
class Solution:
    """Where the solver ended and why.

    `converged`: the last `WINDOW` iterations lowered the value by less than the tolerance each, on average;
    `stationary`: the projected gradient is next to nothing of what it was; `held out`: this iterate has the least loss
    on the rows that are held out, which was not, or hardly, lowered any more; `left`: the same so far, where something
    better was seen; otherwise it stopped early.
    """

    theta: Floats
    value: float
    gradient: Floats
    status: Status
    message: str
    iterations: int
    evaluations: int
    held_out: float = math.nan
    """Mean log-loss of held-out rows, nan where none are."""

    @property
    def gradient_norm(self) -> float:
        """Largest entry of the projected gradient by `theta`."""
        return projected_norm(self.theta, self.gradient)


def projected_norm(theta: Floats, gradient: Floats) -> float:
    """`max |P(theta - gradient) - theta|` with `P` the projection onto `theta >= 0`: 0 exactly at a KKT point."""
    return float(np.abs(np.maximum(theta - gradient, 0) - theta).max(initial=0.0))


def solver_scale(
    n_features: int, n_candidates: int, n_batches: int = 1, lengthening: float = 1.0, n_varying: int | None = None
) -> Floats:
    """Factors that turn `theta = (v, w)`, `v` of every batch, into the solver's variables.

    At the start `v` is `lengthening` times as long as `10 / D`, of `D` features that vary; all do if it is not said.
    """
    n_varying = n_features if n_varying is None else n_varying
    by_feature = np.full(n_batches * n_features, START_NORM / 10 * n_varying**0.5 / lengthening)
    return np.concatenate([by_feature, np.full(n_candidates, CANDIDATE_SCALE)])


@dataclass
class _Best:
    """The iterate with the least loss on held-out rows so far."""

    iteration: int
    theta: Floats
    evaluation: Evaluation
    gained: tuple[int, float]
    """Iteration and loss of the last one that was better by `LEAST_GAIN` than the one of which that was said before."""
    baseline: float
    """Loss without prototypes where that is known, at most that of the first iteration."""

    def goes_on(self, iteration: int, patience: Patience) -> bool:
        """Whether there may be one that is much better, after so many iterations."""
        gained = self.gained[0]
        waits = min(patience.least + patience.share * gained, patience.most)
        if self.evaluation.held_out > (1 - LEARNT) * self.baseline:
            waits = max(waits, patience.first)
        return iteration - gained < waits


def _better(best: _Best | None, iteration: int, theta: Floats, known: Evaluation, baseline: float) -> _Best:
    """The better one of the best so far, if there is any, and this iterate."""
    if best is None:
        return _Best(iteration, theta, known, (iteration, known.held_out), min(baseline, known.held_out))
    if known.held_out >= best.evaluation.held_out:
        return best
    gains = known.held_out < (1 - LEAST_GAIN) * best.gained[1]
    return _Best(iteration, theta, known, (iteration, known.held_out) if gains else best.gained, best.baseline)


def solve(
    function: Function,
    start: Floats,
    scale: Floats,
    tolerance: float,
    max_iterations: int,
    on_iteration: Callable[[Iteration], None] | None = None,
    patience: Patience = TO_THE_END,
    baseline: float = math.inf,
    leaves: Callable[[Iteration], bool] | None = None,
) -> Solution:
    """Minimise `function` over `theta >= 0` from `start`, in the variables `scale * theta`.

    It ends when an iteration lowers the value by less than `tolerance` of its size, on average over the last `WINDOW`.
    Where the function says what rows that are held out lose, the iterate at which they lose least is the solution, and
    it also ends when `patience` does; `baseline` is what they lose without prototypes. Where it would go on, it is left
    after the first iteration of which `leaves` says so.
    """
    from scipy.optimize import minimize  # half a second, which commands that train nothing do not wait for

    evaluations = 0
    slope_at_start = 0.0
    best: _Best | None = None
    latest: dict[bytes, Evaluation] = {}

    def scaled(variables: Floats) -> tuple[float, Floats]:
        nonlocal evaluations, slope_at_start, best
        found = function(variables / scale)
        gradient = found.gradient / scale
        if evaluations == 0:
            slope_at_start = projected_norm(variables, gradient)
        evaluations += 1
        if evaluations == 1 and patience.from_start and not math.isnan(found.held_out):
            best = _better(None, 0, start, found, baseline)
        latest.clear()
        latest[variables.tobytes()] = found
        return found.value, gradient

    iterations = 0
    values: list[float] = []
    ended: Status | None = None

    def report(intermediate_result: OptimizeResult) -> None:
        nonlocal iterations, best, ended
        iterations += 1
        variables = intermediate_result.x
        theta = variables / scale
        known = latest.get(variables.tobytes(), Evaluation(float(intermediate_result.fun), np.full(len(theta), np.nan)))
        norm = projected_norm(theta, known.gradient)
        state = Iteration(iterations, evaluations, known.value, norm, theta, known.held_out)
        if on_iteration is not None:
            try:
                on_iteration(state)
            except StopIteration as error:  # which SciPy would take for the end
                raise RuntimeError("a callback raised StopIteration") from error
        values.append(known.value)
        if iterations > WINDOW and values[-1 - WINDOW] - known.value <= WINDOW * tolerance * abs(known.value):
            ended = "converged"
        elif projected_norm(variables, known.gradient / scale) <= GRADIENT_TOLERANCE * slope_at_start:
            ended = "stationary"
        if not math.isnan(known.held_out):
            best = _better(best, iterations, theta, known, baseline)
            if not best.goes_on(iterations, patience):
                ended = "held out"
        if ended is not None or (leaves is not None and iterations < max_iterations and leaves(state)):
            ended = ended or "left"
            raise StopIteration

    with one_blas_thread():  # else the solver's own products wake BLAS threads that spin into the next evaluation
        result = minimize(
            scaled,
            start * scale,
            method="L-BFGS-B",
            jac=True,
            bounds=[(0.0, None)] * len(start),
            callback=report,
            options={
                "maxcor": MEMORY,
                "ftol": 0.0,  # SciPy's own are absolute where the objective is below 1
                "gtol": 0.0,
                "maxiter": max_iterations,
                # A line search may take several evaluations; the limit that users set is the one on iterations.
                "maxfun": (LINE_SEARCH_STEPS + 1) * max_iterations,
                "maxls": LINE_SEARCH_STEPS,
            },
        )
    found = Solution(
        theta=result.x / scale,
        value=float(result.fun),
        gradient=np.asarray(result.jac) * scale,
        status=ended or _status(int(result.status), str(result.message)),
        message=str(result.message),
        iterations=int(result.nit),
        evaluations=evaluations,
    )
    if best is None:
        return found
    status = "held out" if best.iteration < iterations and ended != "left" else found.status
    return replace(found, theta=best.theta, status=status, **best.evaluation._asdict())


def _status(code: int, message: str) -> Status:
    match code:
        case 0:
            return "stationary" if "PROJECTED GRADIENT" in message.upper() else "converged"
        case 1:
            return "iteration limit"
        case _:
            return "line search failed"
