"""Calibration splines as naive loops over sorted rows, in exact fractions."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

Points = list[tuple[Fraction, Fraction]]


def bin_of_scores(mass: dict[Fraction, Fraction], n_bins: int) -> dict[Fraction, int]:
    """The bin of each distinct score, by the middle of its mass."""
    total = sum(mass.values())
    below = Fraction(0)
    found: dict[Fraction, int] = {}
    for score in sorted(mass):
        middle = below + mass[score] / 2
        found[score] = int(n_bins * middle / total)
        below += mass[score]
    return found


def control_points(
    scores: Sequence[float],
    outcomes: Sequence[float],
    weights: Sequence[float],
    n_bins: int,
    *,
    monotone: bool = False,
    supported_ends: bool | None = False,
) -> Points:
    """The control points of the rows of positive weight."""
    rows = [(Fraction(x), Fraction(y), Fraction(s)) for x, y, s in zip(scores, outcomes, weights, strict=True) if s > 0]
    ones = [s for _, y, s in rows if y == 1]
    zeros = [s for _, y, s in rows if y == 0]
    two_valued = len(ones) + len(zeros) == len(rows)
    mass: dict[Fraction, Fraction] = {}
    for x, _, s in rows:
        mass[x] = mass.get(x, Fraction(0)) + s
    own = bin_of_scores(mass, n_bins)
    bins = [[row for row in rows if own[row[0]] == number] for number in range(n_bins)]
    bins = [members for members in bins if members]
    weight = [sum((s for _, _, s in members), Fraction(0)) for members in bins]
    score = [sum(s * x for x, _, s in members) / w for members, w in zip(bins, weight, strict=True)]
    outcome = [sum(s * y for _, y, s in members) / w for members, w in zip(bins, weight, strict=True)]
    raw = list(outcome)
    if monotone:
        outcome = pool_adjacent_violators(outcome, weight)
    low, high = min(y for _, y, _ in rows), max(y for _, y, _ in rows)
    supported = two_valued if supported_ends is None else supported_ends
    if supported and two_valued:
        mean = sum(s for _, _, s in rows) / Fraction(len(rows))
        one = sum(ones) / Fraction(len(ones)) if ones else mean
        zero = sum(zeros) / Fraction(len(zeros)) if zeros else mean
        low = (one / 2) / (run_weight(raw, weight, 0) + (one + zero) / 2)
        high = 1 - (zero / 2) / (run_weight(raw[::-1], weight[::-1], 1) + (one + zero) / 2)
    first, last = min(x for x, _, _ in rows), max(x for x, _, _ in rows)
    at_first, at_last = low, high
    if supported:
        at_first, at_last = outcome[0], outcome[-1]
        if len(score) > 1:
            at_first -= max((outcome[1] - outcome[0]) / (score[1] - score[0]), Fraction(0)) * (score[0] - first)
            at_last += max((outcome[-1] - outcome[-2]) / (score[-1] - score[-2]), Fraction(0)) * (last - score[-1])
    points = list(zip(score, outcome, strict=True))
    if points[0][0] > first:
        points.insert(0, (first, at_first))
    if points[-1][0] < last:
        points.append((last, at_last))
    return [(x, min(max(y, low), high)) for x, y in points]


def run_weight(outcome: list[Fraction], weight: list[Fraction], value: int) -> Fraction:
    """Weight of the bins up to the first that is not all of one outcome, of the first in any case."""
    total = Fraction(0)
    for place, (y, w) in enumerate(zip(outcome, weight, strict=True)):
        if place and y != value:
            break
        total += w
        if y != value:
            break
    return total


def pool_adjacent_violators(values: list[Fraction], weights: list[Fraction]) -> list[Fraction]:
    """Weighted isotonic regression: merge neighbours for as long as one is below the one before it."""
    pools = [(value, weight, 1) for value, weight in zip(values, weights, strict=True)]
    place = 0
    while place + 1 < len(pools):
        (left, left_weight, left_size), (right, right_weight, right_size) = pools[place], pools[place + 1]
        if left <= right:
            place += 1
            continue
        weight = left_weight + right_weight
        mean = (left * left_weight + right * right_weight) / weight
        pools[place : place + 2] = [(mean, weight, left_size + right_size)]
        place = max(place - 1, 0)
    return [value for value, _, size in pools for _ in range(size)]


def spline(points: Points, x: float) -> Fraction:
    """The value of the spline at `x`."""
    at = Fraction(x)
    if at <= points[0][0]:
        return points[0][1]
    for (left, low), (right, high) in pairwise(points):
        if at <= right:
            return low + (high - low) * (at - left) / (right - left)
    return points[-1][1]
