"""Chernoff's bound of the probability that a point lies on the other side of a plane, by all that is known of it.

Of independent features and the side `y` of the plane `w.x = b`, for every `t >= 0`

    Prob(y (w.X - b) <= 0)  <=  E exp(-t y (w.X - b))  <=  exp(-t mu + sum_j E_j(t s_j |w_j|)),

with `mu` what is left at the worst means, `s_j` half the width of the support and `E_j` the most that `log E exp` of
the feature, scaled to [-1, 1] and turned so that it grows against `y`, can be beyond the worst mean
(`spread.largest_growth`). The exponent is convex in `t`, and its least value is the bound. It never exceeds those of
the brackets of Bernstein's inequality, with the support or without: these replace `E_j` by a parabola above it, or by
the line that the end of the support draws.

`N` points, `D` features.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from protodask.engine.records import Floats, taken
from protodask.robust.spread import largest_growth, variance
from protodask.robust.uncertain_rows import UncertainRows

STRIDE, MOST_STRIDES = 4.0, 200
"""Times as far, or as near, until the least exponent is passed, and how often at most."""

MOST_PLACE = 1e100
"""Margins, in standard deviations, beyond which all that is possible is on one side but for rounding."""

STEPS = 16
"""Of a search in between: any `t` gives a bound, and near the least it is flat."""

ROUNDING = 1e-12
"""Share of `t mu` that is added to the exponent, for what the arithmetic loses."""


@dataclass(frozen=True, eq=False)
class Scaled:
    """What is known of points, scaled to [-1, 1] by the support: each array (N, D)."""

    low: Floats
    high: Floats
    sigma: Floats
    half_width: Floats
    below: Floats
    """What is left between the bounds of the mean and the ends of the support, not scaled."""
    above: Floats


def scaled(rows: UncertainRows) -> Scaled:
    """What rows say."""
    return Scaled(*rows.normalised(), rows.half_width, rows.mean_low - rows.lower, rows.upper - rows.mean_high)


def log_bounds(known: Scaled, y: Floats, weights: Floats, margin: Floats) -> Floats:
    """The logarithms of the bounds (N,), given what is left at the worst means: 0 where nothing is certain, `-inf`
    where all that is possible is on the side `y`.
    """
    against = -y[:, None] * weights
    low = np.where(against > 0, known.low, -known.high)
    high = np.where(against > 0, known.high, -known.low)
    gain = known.half_width * np.abs(weights)
    room = np.where(against > 0, known.above, known.below)
    reach = np.einsum("nd,nd->n", np.abs(against), room)
    # At the mean that allows most: at an end all may be certain, and yet not between the ends.
    deviation = gain * np.sqrt(variance(np.clip(0.0, low, high), known.sigma))
    largest = deviation.max(axis=1, initial=0.0)
    sure = (margin > 0) & ((reach <= margin) | (largest == 0)) | ~weights.any()
    found = np.where(sure, -np.inf, 0.0)
    rows = np.flatnonzero((margin > 0) & ~sure)
    if len(rows):
        unit = largest[rows]
        with np.errstate(over="ignore"):
            problem = _Exponents(
                np.minimum(margin[rows] / unit, MOST_PLACE),
                gain[rows] / unit[:, None],
                low[rows],
                high[rows],
                known.sigma[rows],
                np.einsum("nd,nd->n", *[deviation[rows] / unit[:, None]] * 2),
            )
        found[rows] = problem.least()
    return found


@dataclass(frozen=True, eq=False)
class _Exponents:
    """`-t mu + sum_j E_j(t g_j)` of some points, in units of the largest standard deviation of a feature's part."""

    margin: Floats
    gain: Floats
    low: Floats
    high: Floats
    sigma: Floats
    variance: Floats
    """Of all parts together (N,)."""

    def at(self, t: Floats) -> tuple[Floats, Floats]:
        """Values and slopes (N,)."""
        flat = (values.ravel() for values in (t[:, None] * self.gain, self.low, self.high, self.sigma))
        growth, slope = (values.reshape(self.gain.shape) for values in largest_growth(*flat))
        used = t * self.margin
        value = growth.sum(axis=1) - used * (1 - ROUNDING)
        return value, np.einsum("nd,nd->n", slope, self.gain) - self.margin

    def least(self) -> Floats:
        """The least values found, at most 0 (N,)."""
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # far out, where nothing is least
            left, slope_left, right, slope_right, best = self._around()
            kept = np.zeros(len(best), dtype=np.int64)
            for _ in range(STEPS):
                # Regula falsi; an end that stays counts for half (Illinois).
                t = (left * slope_right - right * slope_left) / (slope_right - slope_left)
                t = np.where((t > left) & (t < right), t, (left + right) / 2)
                value, slope = self.at(t)
                best = np.fmin(best, value)
                below = slope < 0
                slope_right = np.where(below & (kept == 1), slope_right / 2, slope_right)
                slope_left = np.where(~below & (kept == -1), slope_left / 2, slope_left)
                left, right = np.where(below, t, left), np.where(below, right, t)
                slope_left, slope_right = np.where(below, slope, slope_left), np.where(below, slope_right, slope)
                kept = np.where(below, 1, -1)
        return best

    def _around(self) -> tuple[Floats, Floats, Floats, Floats, Floats]:
        """Places before and after the least value, not far apart, with the slopes there, and the least value so far."""
        first = self.margin / self.variance  # where it would be if features were normal
        value, slope = self.at(first)
        best, rises = np.fmin(value, 0.0), ~(slope < 0)
        ends, slopes = np.stack([first, first]), np.stack([slope, slope])
        for move, chosen in ((1 / STRIDE, rises), (STRIDE, ~rises)):
            rows, end = np.flatnonzero(chosen), int(move > 1)
            for _ in range(MOST_STRIDES):
                t = move * ends[end, rows]
                value, slope = taken(self, rows).at(t)
                best[rows] = np.fmin(best[rows], value)
                passed = (slope < 0) == (move < 1)
                ends[1 - end, rows] = np.where(passed, ends[end, rows], t)
                slopes[1 - end, rows] = np.where(passed, slopes[end, rows], slope)
                ends[end, rows], slopes[end, rows] = t, slope
                rows = rows[~passed]
                if not len(rows):
                    break
        return ends[0], slopes[0], ends[1], slopes[1], best
