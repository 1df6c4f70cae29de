"""How far two distributions over the same bins are apart, and whether that may be chance.

`n` and `m` rows, of which `a_b` and `b_b` fall into bin `b` of `B`; `p_b` and `q_b` are the shares. The size of a shift
is the population stability index

    PSI = sum_b (p_b - q_b) ln(p_b / q_b),    p_b = (a_b + 1/2) / (n + B/2),

with half a row added to each bin, so that an empty one counts as rare, not as impossible. Without any shift `PSI n m /
(n + m)` is about chi-square with `B - 1` degrees of freedom, as is Pearson's statistic

    X^2 = n m sum_b (a_b / n - b_b / m)^2 / (a_b + b_b),

to which it is equal up to terms of third order, and which keeps closer to that distribution where bins hold few rows:
the p-value is that of `X^2`. Bins that hold fewer than 10 rows of the smaller sample by expectation are put together
for it, and each is tested by itself as well: given `a_b + b_b`, `b_b` is hypergeometric. The smallest of these p-values
counts, times their number (Bonferroni).

Rows with weights `s` may weigh more in one bin than in another, as where some of a log were dropped. With `W = sum s`,
`m_b = sum s^2 / sum s` of the rows in a bin, and `p_b` the shares of both samples together, the shares of a sample are

    sum_b m_b p_b (e_b - p) (e_b - p)^T / W

around those of all there are, `e_b` the unit vectors; the statistic is the difference of both, squared, in units of the
sum of their covariances. Where all weigh the same, that is Pearson's. A bin by itself counts as of so many rows of
equal weight as would tell as much of its share. The index takes all rows for `n = (sum s)^2 / sum s^2` alike.

All of this takes rows for independent. Where they come in clusters, such as the rows of one customer or one hour,
chance makes larger differences, and p-values are too small.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from protodask.engine.records import Floats
from protodask.evaluation.row_moments import BinSums

FEW = 10.0
"""Expected rows below which a bin is tested by itself."""

SAME = 1e-12
"""Of two means, relative to them, what may be rounding."""

MOST_COUNTED = 10_000
"""Rows up to which those outside a range are counted as draws; with more, their share has next to no spread."""


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjustment: `max_{j <= i} min(1, (m - j + 1) p_(j))`, in the order given."""
    adjusted = [1.0] * len(p_values)
    highest = 0.0
    for position, index in enumerate(sorted(range(len(p_values)), key=lambda index: p_values[index])):
        highest = max(highest, min(1.0, (len(p_values) - position) * p_values[index]))
        adjusted[index] = highest
    return adjusted


def stability_index(before: BinSums, after: BinSums) -> float:
    """Population stability index of rows by bin, as the module says; 0 where either has no rows."""
    if min(before.rows, after.rows) <= 0:
        return 0.0
    p, q = ((one.counts + 0.5) / (one.rows + len(one.weight) / 2) for one in (before, after))
    return float(np.sum((p - q) * np.log(p / q)))


def shift_p_value(before: BinSums, after: BinSums) -> float:
    """Probability of so large a difference between rows by bin of one distribution; 1 where nobody can tell."""
    from scipy.special import chdtrc  # what `scipy.stats.chi2.sf` calls in the end, in a tenth of the time

    if min(before.rows, after.rows) <= 0:
        return 1.0
    present = (before.weight + after.weight) > 0
    before, after = (BinSums(one.weight[present], one.squares[present]) for one in (before, after))
    n, m, shares = _common(before, after)
    rare = shares * np.minimum(n, m) < FEW
    found = [
        _one_bin(float(before.shares[b] * n[b]), float(after.shares[b] * m[b]), float(n[b]), float(m[b]))
        for b in np.flatnonzero(rare)
    ]
    if rare.any():
        before, after = before.together(rare), after.together(rare)
        n, m, shares = _common(before, after)
        if len(shares) > 1 and shares[-1] * min(n[-1], m[-1]) < FEW:
            smallest = np.arange(len(shares)) == np.argmin(shares[:-1])
            smallest[-1] = True
            before, after = before.together(smallest), after.together(smallest)
            shares = _common(before, after)[2]
    if len(shares) > 1:
        apart = np.eye(len(shares)) - shares[:, None]
        covariance = sum(
            (apart * (one.quotients(other) * shares)) @ apart.T / one.weight.sum()
            for one, other in ((before, after), (after, before))
        )
        rest = np.arange(len(shares)) != shares.argmax()  # of which the largest share follows
        difference = (before.shares - after.shares)[rest]
        statistic = float(difference @ np.linalg.solve(covariance[np.ix_(rest, rest)], difference))
        found.append(float(chdtrc(len(shares) - 1, statistic)))
    return min(1.0, len(found) * min(found)) if found else 1.0


def _common(before: BinSums, after: BinSums) -> tuple[Floats, Floats, Floats]:
    """Rows of each that would tell as much of a bin's share, and the shares of both together, by bin."""
    together = before.rows + after.rows
    shares = before.shares * (before.rows / together) + after.shares * (after.rows / together)
    return before.rows_of_shares(shares, after), after.rows_of_shares(shares, before), shares


def _one_bin(before: float, after: float, n: float, m: float) -> float:
    """Two-sided p-value of one bin, twice that of the nearer side.

    `P(k) = C(K, k) C(N - K, m - k) / C(N, m)` of `N = n + m` rows, `K` of them in the bin.
    """
    from scipy.special import gammaln

    def choose(total: int, some: Floats) -> Floats:
        return np.asarray(gammaln(total + 1.0) - gammaln(some + 1.0) - gammaln(total - some + 1.0))

    found, drawn, inside = round(after), round(m), round(before) + round(after)
    rows = max(round(n) + drawn, inside)
    counts = np.arange(max(0.0, drawn - (rows - inside)), min(inside, drawn) + 1.0)
    chance = np.exp(
        choose(inside, counts) + choose(rows - inside, drawn - counts) - choose(rows, np.array([float(drawn)]))
    )
    return min(1.0, 2 * float(min(chance[counts <= found].sum(), chance[counts >= found].sum())))


def outside_p_value(rows_before: float, rows_after: float, share: float) -> float:
    """Probability that at least so large a share of rows lies outside the range of others of the same distribution.

    Of `m` rows, the number outside the range of `n` others is beta-binomial, `BetaBinomial(m, 2, n - 1)`, whatever
    their continuous distribution; the share itself is `Beta(2, n - 1)` for large `m`. Ties make it too large.
    """
    from scipy.stats import beta, betabinom

    if share <= 0 or rows_before < 2:
        return 1.0
    if rows_after > MOST_COUNTED:
        return float(beta.sf(share, 2, rows_before - 1))
    rows = max(1, round(rows_after))
    return float(betabinom.sf(round(share * rows) - 1, rows, 2, rows_before - 1))


def share_at_least(count: float, rows: float, chance: float) -> float:
    """Clopper and Pearson's lower bound for a share of which `count` of `rows` were seen: it errs with this chance."""
    from scipy.stats import beta

    if count <= 0 or rows <= 0:
        return 0.0
    return float(beta.ppf(chance, count, max(rows - count, 0.0) + 1))


def mean_difference(
    before: tuple[float, float, float], after: tuple[float, float, float]
) -> tuple[float, float, float]:
    """Difference of two means, its standard error, and `z`; each mean comes with its variance and number of rows.

    `se^2 = var_1 / (n - 1) + var_2 / (m - 1)`; `z` is 0 where either has fewer than two rows, and where the means are
    the same but for the order in which they were added up.
    """
    difference = after[0] - before[0]
    if min(before[2], after[2]) <= 1:
        return difference, float("nan"), 0.0
    error = float(np.sqrt(before[1] / (before[2] - 1) + after[1] / (after[2] - 1)))
    if abs(difference) <= SAME * max(abs(before[0]), abs(after[0])):
        return difference, error, 0.0
    if error == 0:
        return difference, 0.0, 0.0 if difference == 0 else float(np.copysign(np.inf, difference))
    return difference, error, difference / error
