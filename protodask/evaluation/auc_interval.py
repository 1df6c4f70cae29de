"""How far the area under the ROC curve of some rows may be from that of the distribution they are drawn from.

Two answers. *DeLong's* interval takes the variance from the rows: with `P_i` the share of negatives below a positive
`i`, ties counting half, and `Q_j` that of positives above a negative `j`,

    Var(AUC_e)  =  v+ + v-,
    v+ = sum_i (P_i - AUC_e)^2 / (n+ (n+ - 1)),    v- = sum_j (Q_j - AUC_e)^2 / (n- (n- - 1)),

and is `AUC_e -+ t sd` on the scale of `log(AUC / (1 - AUC))`, where it is nearly normal. As the rows of a class may be
few, `t` is the quantile of Student's distribution with `(v+ + v-)^2 / (v+^2 / (n+ - 1) + v-^2 / (n- - 1))` degrees of
freedom (Welch's). It needs weights that are constant within each class, ten rows of each, and rows that are not all
told apart.

The *deviation* interval holds whatever the distribution, and is there for all rows. It is two and a half times as wide
where the area is 0.6, five times at 0.9, and more beyond. Given the labels, with `n+` and `n-` rows of weight 1,
another score of one positive changes the AUC by at most `1 / n+`, and of one negative by `1 / n-`, so that (McDiarmid),
with `rho = n+ / n`,

    P(|AUC_e - AUC| >= h) <= delta,    h^2 = (1 / n+ + 1 / n-) ln(2 / delta) / 2 = ln(2 / delta) / (2 rho (1 - rho) n).

The same holds where weights are constant within each class, whatever they are: `n+` and `n-` are rows, not weights.
Where weights vary it is not enough to put the effective numbers `m = (sum s)^2 / sum s^2` for `n`: the heavy rows may
all have low scores, and how many of them there are is chance, too. With `g` the share of negatives below a score and
`v` the mean of `s`, positives contribute `sum s (g - AUC) / sum s` to the deviation. The standard deviation of a term
`s (g - AUC)` is at most that of `v (g - AUC)`, which is `v / 2` at most, and the root of `E (s - v)^2`, together, since
`|g - AUC| <= 1`; and at most the root of `E s^2`. So what is `1 / 4n` for each class in `h^2 = 2 ln(2 / delta) (..)`
becomes

    min(1 / (2 sqrt(n)) + sqrt(1 / m - 1 / n), 1 / sqrt(m))^2,

the same for `m = n`. It bounds the variance for large `n`, and a normal tail is below `2 exp(-t^2 / 2)`: the interval
then covers at least as often as it says. `n` must be so large that rows of the largest weight are not few: no sample
can tell of rows that it has none of.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from protodask.engine.records import Floats, Integers
from protodask.evaluation.interval import Interval, check_confidence

ROUNDING = 1e-10
"""By how much, relatively, `n sum s^2` may exceed `(sum s)^2` where weights do not vary."""

LEAST_SQUARES = 1e-280
"""Smaller sums of squared weights have lost too many of their digits to tell how much the weights vary."""


@dataclass(frozen=True)
class ClassTotals:
    """Of each class (K,), negatives first: rows of positive weight, `sum s` and `sum s^2`; merges as a monoid."""

    rows: Integers
    weight: Floats
    squares: Floats


def class_totals(positive: NDArray[np.bool_], weight: Floats | None) -> ClassTotals:
    """The totals of some rows."""
    own = [~positive, positive]
    rows = np.array([np.count_nonzero(rows) for rows in own], dtype=np.int64)
    if weight is None:
        return ClassTotals(rows, rows.astype(np.float64), rows.astype(np.float64))
    with np.errstate(over="ignore"):  # infinite sums are known where they are used
        each = [(weight[rows].sum(), np.square(weight[rows]).sum()) for rows in own]
    sums, squares = np.array(each).T
    return ClassTotals(rows, sums, squares)


def half_width(totals: ClassTotals, confidence: float = 0.95) -> float:
    """Half-width of the deviation interval, as the module says; nan where one class only occurs."""
    check_confidence(confidence)
    if not totals.rows.all():
        return math.nan
    if (totals.squares < LEAST_SQUARES).any():
        return math.inf
    rows = 1 / totals.rows
    effective = totals.squares / totals.weight / totals.weight
    varies = effective > rows * (1 + ROUNDING)
    spread = np.sqrt(np.where(varies, effective - rows, 0.0))
    deviation = np.minimum(np.sqrt(rows) / 2 + spread, np.sqrt(np.maximum(effective, rows)))
    return math.sqrt(2 * math.log(2 / (1 - confidence)) * float(np.square(deviation).sum()))


class Spread(NamedTuple):
    """Of an area, by DeLong."""

    deviation: float
    """The standard deviation."""
    freedom: float
    """Degrees of freedom."""


def delong_spread(value: float, positive: Floats, negative: Floats, totals: ClassTotals) -> Spread | None:
    """How far an area may be off by DeLong, from the weights of both classes at ascending scores; None where that needs
    more than is known.
    """
    if (totals.rows < LEAST_ROWS).any() or not (totals.squares >= LEAST_SQUARES).all() or not np.isfinite(value):
        return None
    effective = totals.squares / totals.weight / totals.weight
    if (effective > (1 + ROUNDING) / totals.rows).any():
        return None
    own, other = positive / positive.sum(), negative / negative.sum()
    below, above = np.cumsum(other) - other / 2, 1 - np.cumsum(own) + own / 2
    rows = totals.rows[::-1] - 1.0
    spread = np.array([np.sum(own * np.square(below - value)), np.sum(other * np.square(above - value))]) / rows
    if not spread.sum() > LEAST_VARIANCE or not LEAST_VARIANCE < value < 1 - LEAST_VARIANCE:
        return None
    return Spread(math.sqrt(spread.sum()), float(spread.sum() ** 2 / np.sum(np.square(spread) / rows)))


LEAST_ROWS = 10
"""Of each class, to see how they differ. With 10 positives among a thousand rows 90 per cent of the intervals of 95
cover an area of 0.9, with 15 of them 93; with five it would be 87."""

LEAST_VARIANCE = 1e-20
"""Less is rounding: the classes are told apart, or all rows are tied."""


def area_interval(
    value: float, spread: Spread | None, totals: ClassTotals, error: float, confidence: float
) -> Interval:
    """DeLong's interval of an area known up to an error; the deviation interval where there is none."""
    if spread is None:
        return widened(value, half_width(totals, confidence), error)
    from scipy.special import stdtrit

    quantile = float(stdtrit(spread.freedom, 0.5 + check_confidence(confidence) / 2))
    reach = quantile * spread.deviation / (value * (1 - value))
    middle = math.log(value / (1 - value))
    low, high = (1 / (1 + math.exp(-min(max(end, -700.0), 700.0))) for end in (middle - reach, middle + reach))
    return Interval(value, max(0.0, min(low - error, value)), min(1.0, max(high + error, value)))


def widened(value: float, half: float, error: float) -> Interval:
    """The deviation interval of an area that is known up to an error, within 0 and 1; nan where there is none."""
    if math.isnan(value):
        return Interval(value, math.nan, math.nan)
    return Interval(value, max(0.0, value - half - error), min(1.0, value + half + error))
