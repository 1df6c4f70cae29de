"""Expected losses of many cuts from the distributions of two counts each, as small matrix products.

A count of a variance of up to `SMALL` is taken as it is, integer by integer, by its characteristic function. One of
a larger variance is nearly normal: nodes at even distances from its mean, with the density of the normal distribution
of its mean and variance, corrected to have its third and fourth cumulants, too.

A smooth loss does not need all of them. Every `s`-th node with `s` times its weight gives the same sum but for terms at
multiples of the frequency `t = 2 pi / s`. Of that the normal distribution has `exp(-(t sd)^2 / 2)`: 3e-18 where `s` is
`SPACING` standard deviations. A count taken integer by integer has at most `exp(-sd^2 (1 - cos t))`, as much as that of
many improbable rows, and `s` is the largest with which this is `NEGLIGIBLE`. That is where the count is far from 0 and
from all its rows, which are the places where denominators vanish.
"""

from __future__ import annotations

import math

import numpy as np

from protodask.decisions.losses import Loss
from protodask.decisions.ranked import WINDOW, Counts
from protodask.engine.records import Floats, Integers

SMALL = 100.0
"""Variance up to which a count is taken integer by integer: 10 deviations lie between its mean and 0."""

NEGLIGIBLE = 1e-15
"""Probability on either side of the integers that are taken, and share of a frequency that is passed over."""

SPACING = 0.7
"""Standard deviations between two nodes of a nearly normal count for a smooth loss; for others it is a quarter."""

_EXPONENT = -math.log(NEGLIGIBLE)

FAR = 8.5
"""Standard deviations from 0 and from all rows, from which on a count is far from them."""

TOGETHER = 16
"""Cuts computed at a time: neighbouring ones need as many nodes as each other, nearly."""


def _normal_rule(distance: float, steps: int) -> tuple[Floats, Floats, tuple[Floats, ...]]:
    """Nodes in standard deviations on both sides of 0, the normal density there, and polynomials for the cumulants."""
    nodes = np.arange(-steps, steps + 1, dtype=np.float64) * distance
    polynomials = tuple(np.polynomial.hermite_e.HermiteE.basis(degree)(nodes) for degree in (3, 4, 6))
    density: Floats = np.exp(-0.5 * nodes**2)
    return nodes, density, polynomials


_ALL, _FEW = _normal_rule(0.25, 28), _normal_rule(SPACING, 10)
"""Equal distances are exact for smooth losses, and kind to those with edges."""


def expected_losses(selected: Counts, others: Counts, loss: Loss) -> Floats:
    """`E loss(TP / n, k / n, (TP + FN) / n)`, where TP and FN are the two counts, of each of M cuts (M,)."""
    share = selected.most / (selected.most + others.most)
    n = int(selected.most[0] + others.most[0])
    hits, weights = count_rules(selected, loss.smooth)
    misses, other_weights = count_rules(others, loss.smooth)
    widths, other_widths = _widths(weights), _widths(other_weights)
    found = np.empty(len(share))
    for start in range(0, len(found), TOGETHER):
        rows = slice(start, start + TOGETHER)
        width, other_width = widths[rows].max(), other_widths[rows].max()
        first, second = hits[rows, :width, None], misses[rows, None, :other_width]
        values = loss(first / n, share[rows, None, None], (first + second) / n)
        summed = (weights[rows, None, :width] @ values)[:, 0]
        found[rows] = np.einsum("mj,mj->m", summed, other_weights[rows, :other_width])
    return found


def _widths(weights: Floats) -> Integers:
    """The nodes of each rule but for those without a weight at its end (M,)."""
    widths: Integers = weights.shape[1] - np.argmax(weights[:, ::-1] != 0, axis=1)
    return widths


def count_rules(counts: Counts, smooth: bool = False) -> tuple[Floats, Floats]:
    """Nodes and weights of each count (M, J), from 0 to the number of its rows; the weights of each sum to 1.

    Those that a count does not need have a weight of 0, after those that it does.
    """
    parts = []
    if counts.small.any():
        parts.append((counts.small, *_integers(counts, smooth)))
    if not counts.small.all():
        parts.append((~counts.small, *_nearly_normal(counts.cumulants[~counts.small], smooth)))
    width = max(own.shape[1] for _, own, _ in parts)
    nodes, weights = np.zeros((2, len(counts.most), width))
    for which, own, own_weights in parts:
        nodes[which, : own.shape[1]] = own
        weights[which, : own.shape[1]] = own_weights
    return nodes, weights / weights.sum(axis=1, keepdims=True)


def _nearly_normal(cumulants: Floats, smooth: bool) -> tuple[Floats, Floats]:
    nodes, density, (third, fourth, sixth) = _FEW if smooth else _ALL
    deviation = np.sqrt(cumulants[:, 1:2])
    skewness, kurtosis = cumulants[:, 2:3] / deviation**3, cumulants[:, 3:] / deviation**4
    weights = density * (1 + skewness / 6 * third + kurtosis / 24 * fourth + skewness**2 / 72 * sixth)
    return cumulants[:, :1] + deviation * nodes, weights


def _integers(counts: Counts, smooth: bool) -> tuple[Floats, Floats]:
    mean, variance = counts.cumulants[counts.small, :2].T
    most, certain = counts.most[counts.small], counts.certain[counts.small]
    middle = np.floor(mean).astype(np.int64)
    reach = np.minimum(_reach(np.maximum(variance, 0)), WINDOW // 2 - 1)
    first, last = np.maximum(middle - reach, 0), np.minimum(middle + 1 + reach, most)
    step = np.ones(len(mean), dtype=np.int64)
    if smooth:
        far = (variance > _EXPONENT / 2) & (np.minimum(mean, most - mean) > FAR * np.sqrt(np.maximum(variance, 0)))
        step[far] = 2 * np.pi / np.arccos(1 - _EXPONENT / variance[far])
    nodes = first[:, None] + step[:, None] * np.arange(((last - first) // step).max() + 1)
    # The transform tells integers apart up to multiples of the window.
    places = (np.minimum(nodes, last[:, None]) - certain[:, None]) % WINDOW
    mass = np.take_along_axis(np.fft.irfft(counts.transform, WINDOW), places, axis=1)
    inside = nodes <= last[:, None]
    return np.where(inside, nodes, 0.0), np.where(inside, mass, 0.0)


def _reach(variance: Floats) -> Integers:
    """The distance from the mean beyond which Bernstein's inequality leaves `NEGLIGIBLE` on either side."""
    return np.ceil(_EXPONENT / 3 + np.sqrt(_EXPONENT**2 / 9 + 2 * _EXPONENT * variance)).astype(np.int64)
