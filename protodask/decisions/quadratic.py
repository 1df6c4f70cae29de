"""All exact expected losses of a linear-fractional loss in `O(n^2)`: F-beta and Jaccard among them.

With whole numbers `d` (a common factor of numerator and denominator is free) and counts in place of shares, the
denominator for `k` selected items, `k1` of them positive and `k2` of the others, is

    i + B k2      i = d0 n + d2 k + A k1      A = d1 + d3      B = d3,

and expectations over the others of its reciprocal, `s(k, i) = E 1 / (i + B S_{k+1:n})`, follow from each other:

    s(n, i) = 1 / i        s(k - 1, i) = eta_k s(k, i + B) + (1 - eta_k) s(k, i).

The numerator `c0 n + c2 k + (c1 + c3) k1 + c3 k2` is `c3 / B` times the denominator and a rest that `k2` is not in, so

    L_k = c3 / B + sum_{k1} C_k[k1] (c0 n + c2 k + (c1 + c3) k1 - c3 i / B) s(k, i),

or, where `B = 0`, the same with `c3 E S_{k+1:n}` in place of both terms with `c3 / B`. For F-beta, `b^2 = q / r`, it is

    L_k = 1 - (q + r) sum_{k1} C_k[k1] k1 s(k, r k + q k1),

and for Jaccard, where `A = 0`, `L_k = 1 - (sum_{i<=k} eta_i) E 1 / (k + S_{k+1:n})`.

At level `k` only those `i` matter that the first `k` items can lead to, each as a true positive (`A + d2`), a false
positive (`d2`), a false negative (`B`) or a true negative (0): `k` times the spread of these four numbers. Where the
denominator is 0, `1 / 0` counts as 0 and the loss's own value there is added with its probability.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from protodask.decisions.counts import prefix_tables
from protodask.decisions.losses import LinearFractional
from protodask.engine.records import Floats

Whole = tuple[int, int, int, int]

MOST_SPREAD = 300
"""Of the four numbers above: beyond it (F-beta: `b^2` with larger terms) the general method is as fast."""

LARGEST_TERM = 1000
"""Of the fractions that coefficients of the denominator, over the largest, are read as; they must agree to rounding."""


def whole_denominator(form: LinearFractional) -> Whole | None:
    """The smallest whole numbers in proportion to the denominator's, positive where it counts; None if too large."""
    largest = max(map(abs, form.d))
    ratios = [value / largest for value in form.d]
    fractions = [Fraction(ratio).limit_denominator(LARGEST_TERM) for ratio in ratios]
    if any(abs(float(near) - ratio) > 4e-16 * abs(ratio) for near, ratio in zip(fractions, ratios, strict=True)):
        return None
    scale = Fraction(math.lcm(*(near.denominator for near in fractions)))
    shared = math.gcd(*(int(near * scale) for near in fractions))
    sign = 1 if max(form.denominator) > 0 else -1
    d0, d1, d2, d3 = (sign * int(near * scale) // shared for near in fractions)
    whole = (d0, d1, d2, d3)
    return whole if spread(whole) <= MOST_SPREAD else None


def spread(whole: Whole) -> int:
    """By how much the four steps that an item can make differ."""
    return max(_steps(whole)) - min(_steps(whole))


def quadratic_losses(ordered: Floats, form: LinearFractional, whole: Whole) -> Floats:
    """All `L_k` for probabilities sorted, largest first; `whole` is the loss's `whole_denominator`."""
    n = len(ordered)
    d0, d1, d2, d3 = whole
    least, most = min(_steps(whole)), max(_steps(whole))
    common = next(ours / given for ours, given in zip(whole, form.d, strict=True) if given)
    c0, c1, c2, c3 = (common * value for value in form.c)
    slope, expected_others = (c3 / d3, 0.0) if d3 else (0.0, c3)
    others = np.concatenate([np.cumsum(ordered[::-1])[::-1], [0.0]])
    tables = prefix_tables(ordered)
    low = d0 * n + least * n
    lattice = np.arange(low, d0 * n + most * n + 1, dtype=np.float64)
    reciprocal = np.divide(1.0, lattice, out=np.zeros_like(lattice), where=lattice != 0)
    losses = np.empty(n + 1)
    for k in range(n, -1, -1):
        if k < n:
            lower = d0 * n + least * k
            first, last = lower - low, d0 * n + most * k + 1 - low
            eta = ordered[k]
            reciprocal = (1 - eta) * reciprocal[first:last] + eta * reciprocal[first + d3 : last + d3]
            low = lower
        k1 = tables[k].counts
        i = d0 * n + d2 * k + (d1 + d3) * k1
        rest = c0 * n + c2 * k + (c1 + c3) * k1 - slope * i + expected_others * others[k]
        losses[k] = slope + tables[k].probability @ (rest * reciprocal[i.astype(np.intp) - low])
    return losses + (form.at_zero - slope) * _zero_probability(ordered, form)


def _steps(whole: Whole) -> tuple[int, int, int, int]:
    """What an item adds to `i` as a true positive, false positive, false negative or true negative."""
    _, d1, d2, d3 = whole
    return d1 + d2 + d3, d2, d3, 0


def _zero_probability(ordered: Floats, form: LinearFractional) -> Floats:
    """Probability, for each `k`, that the denominator is 0: that all items are of the kinds it does not see."""
    tp, fp, fn, tn = form.zeros
    first_items = _all_of(ordered, tp, fp)
    last_items = _all_of(ordered[::-1], fn, tn)[::-1]
    return first_items * last_items


def _all_of(probability: Floats, positives: bool, negatives: bool) -> Floats:
    """Probability that the first 0, 1, .. n items are all of the allowed kinds."""
    allowed = probability * positives + (1 - probability) * negatives
    return np.concatenate([[1.0], np.cumprod(allowed)])
