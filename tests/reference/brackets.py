"""The brackets of robust classifiers as they are defined, one sample and one number at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

Row = Sequence[float]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Sample:
    """The terms of one sample."""

    mean_low: Row
    mean_high: Row
    spread: Row
    lower: Row | None = None
    upper: Row | None = None


def plain(sample: Sample, y: int, weights: Row) -> float:
    worst = sum(
        max(-y * low * w, -y * high * w)
        for low, high, w in zip(sample.mean_low, sample.mean_high, weights, strict=True)
    )
    return worst + math.sqrt(sum((r * w) ** 2 for r, w in zip(sample.spread, weights, strict=True)))


def intersected(sample: Sample, y: int, weights: Row) -> float:
    """The least over `a`, by `|z| = min over t > 0 of (|z|^2 / t + t) / 2`: a search over t, and a few candidates."""
    longest = math.sqrt(sum((r * w) ** 2 for r, w in zip(sample.spread, weights, strict=True)))
    if longest == 0:
        return sum(_least(sample, j, y * w, math.inf) for j, w in enumerate(weights))

    def value(log_t: float) -> float:
        t = longest * math.exp(log_t)
        return sum(_least(sample, j, y * w, t) for j, w in enumerate(weights)) + t / 2

    ends = [value(0.0), value(-40.0)]
    found = minimize_scalar(value, bounds=(-40.0, 0.0), method="bounded", options={"xatol": 1e-9})
    near = minimize_scalar(value, bounds=(-3.0, 0.0), method="bounded", options={"xatol": 1e-9})
    return min(float(found.fun), float(near.fun), *ends)


def _least(sample: Sample, j: int, yw: float, t: float) -> float:
    assert sample.lower is not None
    assert sample.upper is not None
    low, high, r = sample.mean_low[j], sample.mean_high[j], sample.spread[j]
    lower, upper = sample.lower[j], sample.upper[j]

    def cost(a: float) -> float:
        ball = 0.0 if r == 0 else (r * a) ** 2 / (2 * t)
        return max(-lower * (yw + a), -upper * (yw + a)) + max(low * a, high * a) + ball

    candidates = [0.0, -yw]
    if r > 0:
        candidates += [(end - mean) * t / r**2 for end in (lower, upper) for mean in (low, high)]
    return min(map(cost, candidates))


def bracket(sample: Sample, y: int, weights: Row) -> float:
    return plain(sample, y, weights) if sample.lower is None else intersected(sample, y, weights)


def is_possible(sample: Sample, point: Row, slack: float = 1e-9) -> bool:
    """Whether a point is in the sample's set: within the spread of its possible means, and in the support."""
    square = 0.0
    for j, z in enumerate(point):
        off = max(sample.mean_low[j] - z, z - sample.mean_high[j], 0.0)
        scale = slack * (1 + abs(z))
        if sample.spread[j] > 0:
            square += (max(off - scale, 0.0) / sample.spread[j]) ** 2
        elif off > scale:
            return False
        lower = -math.inf if sample.lower is None else sample.lower[j]
        upper = math.inf if sample.upper is None else sample.upper[j]
        if not lower - scale <= z <= upper + scale:
            return False
    return square <= 1 + slack


def corners(sample: Sample, angles: int = 400) -> Floats:
    """Points of the set of a sample of one or two features among which the extreme ones are, to a fine grid.

    From each corner of the means the deviations of length 1 in that direction, cut at the support; also those that
    just reach it, where the set has a corner that a grid would miss by its step.
    """
    low, high, spread = (np.asarray(row) for row in (sample.mean_low, sample.mean_high, sample.spread))
    found = []
    for signs in np.ndindex(*(2,) * len(low)):
        direction = 2 * np.array(signs) - 1
        start, room = np.where(direction > 0, high, low), np.full(len(low), np.inf)
        if sample.lower is not None and sample.upper is not None:
            room = np.where(direction > 0, sample.upper - start, start - sample.lower)
        steps = np.ones((1, 1))
        if len(low) == 2:
            across, along = np.where(spread > room, room / np.where(spread > 0, spread, 1.0), 1.0)
            angle = np.append(np.linspace(0, np.pi / 2, angles), [np.arccos(across), np.arcsin(along)])
            steps = np.stack([np.cos(angle), np.sin(angle)], axis=1)
        found.append(start + direction * np.minimum(spread * steps, room))
    return np.concatenate(found)


def objective(
    brackets: Sequence[float], y: Sequence[int], costs: Sequence[float], weights: Row, intercept: float
) -> float:
    hinges = (c * max(0.0, 1 + yi * intercept + b) for b, yi, c in zip(brackets, y, costs, strict=True))
    return sum(w * w for w in weights) / 2 + sum(hinges)
