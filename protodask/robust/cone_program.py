"""The cone program of a robust classifier, in Clarabel's form, and what its answer says of the problem.

    min 1/2 |w|^2 + sum_i C_i xi_i      |r_i * v_i| <= xi_i - 1 - y_i b - (what the bracket holds besides)

Of each sample and feature the program holds no more than it must:

- fixed features, where the spread is 0 or the support is further away than it: `v = w`, and besides
  `-y m w + e |w|`, `m` the middle of the bounds of the mean and `e` half their distance. All samples share `|w|`.
- free features, where the support is nearer than the spread: `v = a`, a variable of the sample's own, and besides
  `-c (y w + a) + s |y w + a| + m a + e |a|`, `c` the middle of the support and `s` half its length.

Absolute values become variables where something is charged for them, and only there: what is free to grow would leave
the solver without a bounded set of answers.

The multipliers of the constraints give the points `z_i` of the samples' sets that hold the plane where it is: by
stationarity `w = sum_i alpha_i y_i z_i`.

`N` samples, `D` features, `F` pairs of a sample and a feature that is free there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from protodask.engine.records import Floats, Integers
from protodask.errors import needed
from protodask.robust.terms import Terms

MOST_ENTRIES = 1_000_000
"""Numbers in the matrix of the largest program that is solved.

It takes the solver some 15 seconds and 400 MB: 6,500 samples of 50 features, or 1,300 intersected ones.
"""

Setup = Literal["as scaled", "balanced", "patient"]
"""The solver's settings: its own scaling of rows and columns off; on, asking for all digits; and for hard programs.

Of 60 drawn intersected programs of up to 30 samples and 50 features, solved twice, the worst gaps were 3e-9, 1e-8 and
3e-6 of the objective, in 24, 35 and 42 iterations on average; what one leaves another finishes.
"""

SETUPS: tuple[Setup, ...] = ("as scaled", "balanced", "patient")


@dataclass(frozen=True, eq=False)
class Answer:
    """What the solver returned, read as the problem's own quantities."""

    weights: Floats
    """(D,)."""
    intercept: float
    """(N,)."""
    multipliers: Floats
    """`alpha`, (N,)."""
    points: Floats
    """`alpha_i z_i`, (N, D)."""
    status: str
    iterations: int


def load_clarabel() -> Any:
    """The solver of cone and quadratic programs, an extra; where it is missing, the error says how to install it."""
    with needed(
        "Robust classifiers need the library Clarabel, which is not installed.",
        'Install it, for example with pip install "protodask[robust]".',
    ):
        import clarabel
    return clarabel


def entries_of(terms: Terms) -> int:
    """Numbers in the matrix of the program, at most."""
    samples, features = terms.mean_low.shape
    free = int(np.count_nonzero(_is_free(terms)))
    return int(samples) * (3 + 3 * int(features)) + 12 * free + 4 * int(features)


def _is_free(terms: Terms) -> NDArray[np.bool_]:
    """Where the support is nearer than the spread, (N, D)."""
    room = terms.room
    return np.zeros(terms.spread.shape, dtype=np.bool_) if room is None else room < terms.spread


@dataclass(frozen=True, eq=False)
class _Numbers:
    """Middles and half lengths, each (N, D), and the free pairs in order."""

    mean: Floats
    mean_half: Floats
    support: Floats
    support_half: Floats
    free: NDArray[np.bool_]
    sample: Integers
    """(F,)."""
    feature: Integers
    """(F,)."""


def _numbers(terms: Terms) -> _Numbers:
    free = _is_free(terms)
    mean, half = terms.middle, terms.half
    support, support_half = mean, half
    if terms.lower is not None and terms.upper is not None:
        support_half = (terms.upper - terms.lower) / 2
        support = terms.lower + support_half
    sample, feature = np.nonzero(free)
    return _Numbers(mean, half, support, support_half, free, sample, feature)


class GatheredMatrix:
    """Rows of `bound - row . x`, gathered as they come.

    Sparse matrices put beside and below each other take longer to join than the solver takes to solve a small program.
    """

    def __init__(self) -> None:
        self._rows: list[NDArray[Any]] = []
        self._columns: list[NDArray[Any]] = []
        self._values: list[NDArray[Any]] = []

    def put(self, rows: ArrayLike, columns: ArrayLike, values: ArrayLike) -> None:
        for kept, part in zip(
            (self._rows, self._columns, self._values), np.broadcast_arrays(rows, columns, values), strict=True
        ):
            kept.append(part.ravel())

    def put_absolute(self, rows: Integers, size: Integers, parts: list[tuple[Integers, ArrayLike]]) -> None:
        """`size >= +-(sum of parts)`: rows of the sign + first, then as many of the sign -."""
        for sign, own_rows in ((1.0, rows), (-1.0, rows + len(rows))):
            self.put(own_rows, size, -1.0)
            for columns, values in parts:
                self.put(own_rows, columns, sign * np.asarray(values, dtype=np.float64))

    def finished(self, rows: int, columns: int) -> Any:
        places = np.concatenate(self._rows), np.concatenate(self._columns)
        values = np.concatenate(self._values).astype(np.float64)
        kept = values != 0
        return sparse.csc_matrix((values[kept], (places[0][kept], places[1][kept])), shape=(rows, columns))


@dataclass(frozen=True, eq=False)
class _Program:
    """Clarabel's arguments, and where the multipliers stand that are read again."""

    matrix: Any
    bounds: Floats
    flat: int
    """Rows that are to be at least 0, the first ones."""
    cones: list[int]
    """Lengths of the second-order cones after them."""
    variables: int
    top: Integers
    """The row of each sample, (N,)."""
    shared: Integers
    """Features whose `|w|` is a variable, in order; two runs of rows from `shared_rows` on."""
    shared_rows: int
    mean_pairs: Integers
    """Free pairs whose `|a|` is a variable; two runs of rows from `mean_rows` on."""
    mean_rows: int
    cone_rows: Integers
    """Of the numbers in the cones, with their sample and feature."""
    cone_sample: Integers
    cone_feature: Integers


def _program(terms: Terms, sign: Floats, numbers: _Numbers) -> _Program:
    samples, features = terms.mean_low.shape
    free, sample, feature = numbers.free, numbers.sample, numbers.feature
    pairs = len(sample)
    shared = np.flatnonzero(np.any(np.where(free, 0.0, numbers.mean_half) > 0, axis=0))
    support_pairs = np.flatnonzero(numbers.support_half[sample, feature] > 0)
    mean_pairs = np.flatnonzero(numbers.mean_half[sample, feature] > 0)

    intercept, slack = features, features + 1
    absolute = slack + samples
    own = absolute + len(shared)
    beyond = own + pairs
    size = beyond + len(support_pairs)
    variables = size + len(mean_pairs)

    shared_rows = samples
    support_rows = shared_rows + 2 * len(shared)
    mean_rows = support_rows + 2 * len(support_pairs)
    first_top = mean_rows + 2 * len(mean_pairs)
    spread_count = np.count_nonzero(terms.spread, axis=1)
    straight = spread_count == 0
    flat = first_top + int(straight.sum())
    curved = np.flatnonzero(~straight)
    lengths = 1 + spread_count[curved]
    top = np.empty(samples, dtype=np.int64)
    top[straight] = first_top + np.arange(int(straight.sum()))
    top[curved] = flat + np.cumsum(lengths) - lengths
    cone_sample, cone_feature = np.nonzero(terms.spread)
    # In order of samples, so each number's place in its cone is its rank in the row.
    rank = (np.cumsum(terms.spread != 0, axis=1) - 1)[cone_sample, cone_feature]
    cone_rows = top[cone_sample] + 1 + rank

    matrix = GatheredMatrix()
    each = np.arange(samples)
    matrix.put(each, slack + each, -1.0)
    matrix.put_absolute(shared_rows + np.arange(len(shared)), absolute + np.arange(len(shared)), [(shared, 1.0)])
    matrix.put_absolute(
        support_rows + np.arange(len(support_pairs)),
        beyond + np.arange(len(support_pairs)),
        [(feature[support_pairs], sign[sample[support_pairs]]), (own + support_pairs, 1.0)],
    )
    matrix.put_absolute(
        mean_rows + np.arange(len(mean_pairs)), size + np.arange(len(mean_pairs)), [(own + mean_pairs, 1.0)]
    )

    matrix.put(top, slack + each, -1.0)
    matrix.put(top, intercept, sign)
    centre = np.where(free, numbers.support, numbers.mean)
    matrix.put(top[:, None], np.arange(features), -sign[:, None] * centre)
    fixed_half = np.where(free, 0.0, numbers.mean_half)[:, shared]
    matrix.put(top[:, None], absolute + np.arange(len(shared)), fixed_half)
    matrix.put(top[sample], own + np.arange(pairs), (numbers.mean - numbers.support)[sample, feature])
    matrix.put(
        top[sample[support_pairs]],
        beyond + np.arange(len(support_pairs)),
        numbers.support_half[sample, feature][support_pairs],
    )
    matrix.put(
        top[sample[mean_pairs]], size + np.arange(len(mean_pairs)), numbers.mean_half[sample, feature][mean_pairs]
    )
    pair_of = np.cumsum(free).reshape(free.shape) - 1
    column = np.where(free, own + pair_of, np.arange(features))[cone_sample, cone_feature]
    matrix.put(cone_rows, column, -terms.spread[cone_sample, cone_feature])

    rows = flat + int(lengths.sum())
    bounds = np.zeros(rows)
    bounds[top] = -1.0
    return _Program(
        matrix.finished(rows, variables),
        bounds,
        flat,
        [int(length) for length in lengths],
        variables,
        top,
        shared,
        shared_rows,
        mean_pairs,
        mean_rows,
        cone_rows,
        cone_sample,
        cone_feature,
    )


def solve_program(terms: Terms, sign: Floats, costs: Floats, objective: float, setup: Setup) -> Answer | None:
    """What Clarabel makes of the program, None if it fails without an answer.

    `objective` is about what the least one will be: the program is divided by it.
    """
    clarabel = load_clarabel()
    numbers = _numbers(terms)
    program = _program(terms, sign, numbers)
    samples, features = terms.mean_low.shape
    square = np.zeros(program.variables)
    square[:features] = 1.0 / objective
    linear = np.zeros(program.variables)
    linear[features + 1 : features + 1 + samples] = costs / objective
    cones = [clarabel.NonnegativeConeT(program.flat), *map(clarabel.SecondOrderConeT, program.cones)]
    quadratic = sparse.csc_matrix(sparse.diags(square))
    settings = _settings(clarabel, setup)
    try:
        result = clarabel.DefaultSolver(quadratic, linear, program.matrix, program.bounds, cones, settings).solve()
    except BaseException as error:
        # A panic of the solver's own code derives from no Exception, and its class has no public name.
        if type(error).__name__ == "PanicException":
            return None
        raise
    x, duals = np.asarray(result.x), np.asarray(result.z) * objective
    if not (np.isfinite(x).all() and np.isfinite(duals).all()):
        return None
    return Answer(
        x[:features],
        float(x[features]),
        duals[program.top],
        _points(terms, sign, numbers, program, duals),
        str(result.status),
        int(result.iterations),
    )


def _points(terms: Terms, sign: Floats, numbers: _Numbers, program: _Program, duals: Floats) -> Floats:
    """`alpha_i z_i`, from the multipliers of the means and of the spread.

    Where the support is near, its multipliers give the same point but for the solver's errors, which would be divided
    by the spread there: small spreads would lead far out of the set.
    """
    alpha = duals[program.top]
    points = alpha[:, None] * numbers.mean
    fixed_half = np.where(numbers.free, 0.0, numbers.mean_half)[:, program.shared]
    points[:, program.shared] -= (
        (sign * alpha)[:, None] * fixed_half * _balance(duals, program.shared_rows, len(program.shared))
    )
    sample, feature = numbers.sample[program.mean_pairs], numbers.feature[program.mean_pairs]
    points[sample, feature] += (alpha[sample] * numbers.mean_half[sample, feature]) * _balance(
        duals, program.mean_rows, len(program.mean_pairs)
    )
    sample, feature = program.cone_sample, program.cone_feature
    direction = np.where(numbers.free[sample, feature], -1.0, sign[sample])
    points[sample, feature] += direction * terms.spread[sample, feature] * duals[program.cone_rows]
    return points


def _balance(duals: Floats, start: int, count: int) -> Floats:
    """Where between -1 and 1 the multipliers of `size >= +-number` stand."""
    plus, minus = duals[start : start + count], duals[start + count : start + 2 * count]
    both = plus + minus
    return np.asarray(np.divide(plus - minus, both, out=np.zeros(count), where=both > 0))


def _settings(clarabel: Any, setup: Setup) -> Any:
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    # The same answer wherever it runs.
    settings.max_threads = 1
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-9
    match setup:
        case "as scaled":
            settings.equilibrate_enable = False
        case "balanced":
            settings.static_regularization_constant = 1e-10
            settings.tol_gap_abs = settings.tol_gap_rel = 1e-12
            settings.tol_feas = 1e-13
        case "patient":
            settings.equilibrate_min_scaling, settings.equilibrate_max_scaling = 1e-8, 1e8
            settings.equilibrate_max_iter = 50
            settings.static_regularization_constant = 1e-7
            settings.iterative_refinement_max_iter = 50
            settings.max_iter = 1000
    return settings
