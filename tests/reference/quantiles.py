"""The pinball loss of a curve, and its least value on a grid of curves."""

from __future__ import annotations

from collections.abc import Sequence


def pinball_loss(coefficients: Sequence[float], sizes: Sequence[float], values: Sequence[float], q: float) -> float:
    """`sum_i q max(t_i - c(n_i), 0) + (1 - q) max(c(n_i) - t_i, 0)`."""
    total = 0.0
    for size, value in zip(sizes, values, strict=True):
        curve = sum(coefficient * size**power for power, coefficient in enumerate(coefficients))
        total += q * max(value - curve, 0.0) + (1 - q) * max(curve - value, 0.0)
    return total
