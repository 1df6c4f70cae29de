"""How far the estimated accuracies of sets of features may be off: from paired differences on the same rows.

Rows, or groups of rows that belong together, are dealt out to `G` parts at random. With the weights `R_sg` of the rows
of part `g` that the models on a set `s` have right, each said by a model that did not see it, and `W_g` of all of them,

    A_s  = sum_g R_sg / W              the estimated accuracy; `a_s` is the true one, of the same models on new rows
    d_sg = (R_sg - A_s W_g) / W        what part g adds to its error; these sum to 0

For two sets `t` and `c` the error of `A_t - A_c` is a sum over independent parts, most of which cancels out where both
are right about the same rows. Its variance is estimated by `V_tc = G / (G - 1) sum_g (d_tg - d_cg)^2`, so that

    a_t - a_c <= A_t - A_c + m_tc,     m_tc = q sqrt(V_tc) + log(1 / p) / n

but for a probability `p` each: `q` is what Student's t of `G - 1` degrees of freedom exceeds with probability `p`. The
last term is for what happens so seldom that none of the `n` rows shows it: a kind of row of which `t` is right and `c`
is wrong has a share of `log(1 / p) / n` or more, and none among n rows, with a probability of `p` at most. Rows of such
a kind may weigh as much as the heaviest one, so that

    n = W / max_i w_i     rows of the largest weight are as much as all

where weights are unequal. Where rows belong together it is groups that weigh; what they do in a dataset is only known
on average, so that there the heaviest group may count for more than this. Where `n` is less than `G` it stands for `G`.
Which sets are compared depends on the same rows, so all `4^m` pairs of sets count: with
`p = delta / 4^m` it holds of all of them at once with probability `1 - delta`. It is as good as the normal
approximation, where the fits of the folds hardly depend on single rows, so that errors of different rows are
independent, and where no rows are much heavier than all that were seen.

*What is promised of a choice `c`.* Let true accuracy be monotone within `e`, and `s` be a set within the budget that
was not expanded. Some expanded `t` contains it and some expanded `r` costs no more, with `A_t + e - A_r <= guarantee`;
as `c` was chosen, `A_r <= A_c`. Then `a_s - a_c <= a_t + e - a_c <= (A_t + e - A_c) + m_tc`, where the bracket is at
most `guarantee`. If `s` was expanded, `A_s <= A_c` and `a_s - a_c <= (A_s - A_c) + m_sc`. So, with

    M_c = max of  m_tc + min(0, A_t + e - A_c - guarantee)   over expanded t with A_t <= A_c + guarantee,

no set within the budget is in truth more than `guarantee + M_c` more accurate than `c`. Where nothing is guaranteed, as
by greedy search, the same with `guarantee = e = 0` holds of the sets that were expanded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from protodask.data.arrays.keyed import dealt
from protodask.data.arrays.values import unmasked
from protodask.data.tables.frames import array_of_names, refuse_ungrouped
from protodask.engine.records import Floats
from protodask.errors import InputError, refusing

CONFIDENCE = 0.95
"""`1 - delta`."""

PARTS = 256
"""`G`: with so many the quantile is 3 per cent above that of a normal distribution for 10 features, and 12 for 40."""


@dataclass(frozen=True)
class Noise:
    """What an estimated accuracy owes to each part of the rows."""

    rows: float
    """How many rows, or groups, of the largest weight are as much as all: `n`."""
    parts: tuple[float, ...]
    """`d_sg`, (G,)."""

    @staticmethod
    def of(by_part: Floats, heaviest: float, grouped: bool = False) -> Noise:
        """From the weights of right rows and of all rows by part (2, G), and the largest weight of a row.

        What `grouped` rows weigh together is told from how unevenly parts share the weight: where whole groups of
        weight `w` are dealt out, `sum_g (W_g - W / G)^2` is `(1 - 1 / G) sum w^2` on average, and the mean weight of
        the group of a unit of weight is `sum w^2 / W`.
        """
        right, weight = by_part
        total = float(weight.sum())
        if grouped:
            heaviest = max(heaviest, float(weight.var(ddof=1)) * len(weight) / total)
        parts = (right - right.sum() / total * weight) / total
        return Noise(total / heaviest, tuple(parts.tolist()))

    @property
    def freedom(self) -> float:
        """Degrees of freedom, 1 or more: rows, or groups, may be fewer than parts."""
        return max(1.0, min(len(self.parts), self.rows) - 1)

    @property
    def standard_error(self) -> float:
        """Of the accuracy."""
        return math.sqrt((1 + 1 / self.freedom) * math.fsum(part**2 for part in self.parts))


@dataclass(frozen=True)
class Estimate:
    """An accuracy with its noise: a function that says how accurate a set is may answer with one in place of a number.

    All sets are to be judged on the same rows, in the same order.
    """

    accuracy: float
    noise: Noise

    @staticmethod
    def of_rows(right: ArrayLike, weight: ArrayLike | None = None, groups: ArrayLike | None = None) -> Estimate:
        """From which rows (N,) are classified right by models that did not see them.

        Rows of the same of `groups` are not independent of each other.
        """
        if groups is not None:
            refuse_ungrouped(groups, "A row")
        is_right = np.asarray(unmasked(right))
        n_rows = is_right.size
        remedy = "Give numbers of 0 or more, not all of them 0."
        with refusing((TypeError, ValueError), "wrong-type", "The weights of the rows are no numbers", remedy):
            weights = np.ones(n_rows) if weight is None else np.asarray(unmasked(weight), dtype=np.float64)
        keys = np.arange(n_rows) if groups is None else np.unique(array_of_names(groups), return_inverse=True)[1]
        if is_right.dtype != np.bool_ or is_right.ndim != 1 or not is_right.shape == weights.shape == keys.shape:
            raise InputError(
                "wrong-shape",
                f"What was right has the shape {is_right.shape} and the type {is_right.dtype}, the weights have the "
                f"shape {weights.shape}, and the groups {keys.shape}.",
                "Give True or False for each row, and one weight and one group for each if there are any.",
            )
        with np.errstate(over="ignore", invalid="ignore"):
            total = float(weights.sum())
        if not (np.isfinite(weights).all() and (weights >= 0).all() and total > 0):
            raise InputError("bad-value", "The weights of the rows make no sense.", remedy)
        if not math.isfinite(total):
            raise InputError(
                "overflow", "The weights add up to more than can be counted.", "Divide all weights by one number."
            )
        parts = dealt(keys, PARTS)
        sums = [np.bincount(parts, weights=values, minlength=PARTS) for values in (weights * is_right, weights)]
        accuracy = float(weights[is_right].sum() / total)
        own = weights if groups is None else np.bincount(keys, weights=weights)
        return Estimate(accuracy, Noise.of(np.array(sums, dtype=np.float64), float(own.max())))


def describe_noise(noise: Noise) -> dict[str, Any]:
    """Plain values, for files."""
    return {"rows": float(noise.rows), "parts": list(noise.parts)}


def parse_noise(record: object) -> Noise | None:
    """What `describe_noise` described, from a file; None where it is nothing of the kind."""
    match record:
        case {"rows": float(rows), "parts": list(parts)} if (
            rows > 0 and len(parts) > 1 and all(type(part) is float for part in parts)
        ):
            return Noise(rows, tuple(parts))
    return None
