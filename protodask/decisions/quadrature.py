"""Expected losses of a cut from the distributions of two counts, as small matrix products.

A count of a variance of up to `SMALL` is taken as it is, integer by integer, by its characteristic function. One of
a larger variance is nearly normal: nodes at even distances from its mean, with the density of the normal distribution
of its mean and variance, corrected to have its third and fourth cumulants, too.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from protodask.decisions.losses import Loss
from protodask.decisions.ranked import WINDOW, Count

Floats = NDArray[np.float64]

SMALL = 100.0
"""Variance up to which a count is taken integer by integer: 10 deviations lie between its mean and 0."""

NEGLIGIBLE = 1e-15
"""Probability of an integer that is left out."""

_NODES = np.arange(-28, 29) / 4
"""In standard deviations; the rule of equal weights is exact for smooth losses, and kind to those with edges."""

_DENSITY = np.exp(-0.5 * _NODES**2) / (4 * math.sqrt(2 * math.pi))
_HERMITE = tuple(np.polynomial.hermite_e.HermiteE.basis(degree)(_NODES) for degree in (3, 4, 6))


def expected_loss(selected: Count, others: Count, loss: Loss) -> float:
    """`E loss(TP / n, k / n, (TP + FN) / n)`, where TP and FN are the two counts."""
    k = selected.most
    n = k + others.most
    hits, weights = count_rule(selected)
    misses, other_weights = count_rule(others)
    values = loss((hits / n)[:, None], np.float64(k / n), (hits[:, None] + misses) / n)
    return float(weights @ values @ other_weights)


def count_rule(count: Count) -> tuple[Floats, Floats]:
    """Nodes and weights of a count, from 0 to the number of its rows; the weights sum to 1."""
    if count.log_size is not None and count.phase is not None:
        nodes, weights = _integers(count, count.log_size, count.phase)
    else:
        deviation = math.sqrt(count.variance)
        skewness, kurtosis = count.third / deviation**3, count.fourth / deviation**4
        third, fourth, sixth = _HERMITE
        weights = _DENSITY * (1 + skewness / 6 * third + kurtosis / 24 * fourth + skewness**2 / 72 * sixth)
        nodes = count.mean + deviation * _NODES
    return nodes, weights / weights.sum()


def _integers(count: Count, log_size: Floats, phase: Floats) -> tuple[Floats, Floats]:
    mass = np.fft.irfft(np.exp(log_size + 1j * -phase), WINDOW)
    # The transform tells integers apart up to multiples of the window.
    first = math.floor(count.mean) - count.certain - WINDOW // 2
    integers = np.arange(first, first + WINDOW)
    mass = mass[integers % WINDOW]
    nodes = integers + count.certain
    kept = (mass > NEGLIGIBLE) & (nodes >= 0) & (nodes <= count.most)
    return nodes[kept].astype(np.float64), mass[kept]
