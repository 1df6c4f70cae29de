"""Polynomials of one variable, as rows of coefficients, constant first: `p(n) = sum_k c_k n^k` for `n >= 0`.

Ranges of sizes are half-open ranges of *positions* here: the bits of a float that is not negative, read as an integer,
count the floats from zero up. Halving a range of positions halves its floats, whatever the scale, and ends at the last
one.
"""

from __future__ import annotations

import math
import struct

import numpy as np
from numpy.typing import ArrayLike, NDArray

from protodask.engine.records import Floats, Integers

Flags = NDArray[np.bool_]

FEW_POLYNOMIALS = 16
"""So many at most are halved one by one: with Python's own numbers that is faster than arrays as short."""


def evaluate(coefficients: Floats, sizes: ArrayLike) -> Floats:
    """`p(n)` by Horner's rule: coefficients (..., d + 1) and sizes that broadcast against all axes but the last.

    All costs of the package are computed here, in this order of operations, so that equal costs compare as equal.
    """
    n = np.asarray(sizes, dtype=np.float64)
    value = coefficients[..., -1]
    if coefficients.shape[-1] == 1:
        return np.broadcast_arrays(value, n)[0].copy()
    with np.errstate(over="ignore"):  # infinite is what a cost beyond the largest float is
        for power in range(coefficients.shape[-1] - 2, -1, -1):
            value = value * n + coefficients[..., power]
    return np.asarray(value, dtype=np.float64)


def plain_rows(coefficients: Floats) -> list[tuple[float, ...]]:
    """Coefficients (P, d + 1) as `horner` takes them: one size at a time, Python's own numbers are faster."""
    return [tuple(row) for row in coefficients[:, ::-1].tolist()]


def horner(row: tuple[float, ...], size: float) -> float:
    """What `evaluate` gives for one size, of a row with the highest power first."""
    value = row[0]
    for coefficient in row[1:]:
        value = value * size + coefficient
    return value


def position(size: float) -> int:
    """How many floats lie between zero and a size."""
    return int(np.float64(abs(size)).view(np.int64))


def position_after(size: float) -> int:
    """Where the range of positions ends that has a size as its last; infinity stands for all floats."""
    return position(size) + (0 if math.isinf(size) else 1)


def sizes_at(positions: ArrayLike) -> Floats:
    """The floats at positions."""
    return np.ascontiguousarray(positions, dtype=np.int64).view(np.float64)


def derivative(coefficients: Floats) -> Floats:
    """(..., d + 1) -> (..., d)."""
    return coefficients[..., 1:] * np.arange(1.0, coefficients.shape[-1])


def is_below(coefficients: Floats, positions: Integers) -> Flags:
    """Whether `p(n) < 0`, as computed, for one position each."""
    return evaluate(coefficients, sizes_at(positions)) < 0


def sign_cuts(coefficients: Floats, starts: Integers, ends: Integers) -> Integers:
    """Where polynomials (P, d + 1) begin or cease to be negative, each within its range from a start to before an end.

    (P, d) positions in ascending order, some of them where nothing changes: between two of them `is_below` is the same
    everywhere. The roots of the derivative, found in the same way, cut the range into pieces on which the polynomial is
    monotone; where its ends differ in sign, a piece is halved down to the float. Roots of even multiplicity are no
    special case: they are ends of pieces. Where roots nearly coincide the sign is that of rounding errors: a stretch
    on which `|p(n)|` stays below a few roundings of `sum_k |c_k| n^k` may be missed.
    """
    n_polynomials, degree = coefficients.shape[0], coefficients.shape[1] - 1
    if degree == 0 or n_polynomials == 0:
        return np.empty((n_polynomials, degree), dtype=np.int64)
    turns = sign_cuts(derivative(coefficients), starts, ends)
    edges = np.concatenate([starts[:, None], turns, ends[:, None]], axis=1)
    # What follows a piece belongs to it, so that no change of sign falls between two.
    lasts = np.minimum(edges[:, 1:], ends[:, None] - 1)
    firsts = np.minimum(edges[:, :-1], lasts)
    below = is_below(coefficients[:, None, :], np.concatenate([firsts, lasts[:, -1:]], axis=1))
    changes = below[:, :-1] != below[:, 1:]
    cuts = np.where(changes, lasts, edges[:, 1:])
    which, piece = np.nonzero(changes)
    cuts[which, piece] = _halve(coefficients[which], firsts[changes], lasts[changes], below[:, :-1][changes])
    return cuts


def _halve(coefficients: Floats, first: Integers, last: Integers, below: Flags) -> Integers:
    """The first position with the sign at `last`, for polynomials that have another, `below`, at `first`."""
    if len(first) <= FEW_POLYNOMIALS:
        each = zip(plain_rows(coefficients), first.tolist(), last.tolist(), below.tolist(), strict=True)
        return np.array([_halve_one(*one) for one in each], dtype=np.int64)
    while True:
        gap = last - first
        if gap.max() <= 1:
            break
        middle = first + (gap >> 1)
        as_first = is_below(coefficients, middle) == below
        first = np.where(as_first, middle, first)
        last = np.where(as_first, last, middle)
    return last


def _halve_one(row: tuple[float, ...], first: int, last: int, below: bool) -> int:
    """The same of one polynomial, the highest power first."""
    while last - first > 1:
        middle = (first + last) >> 1
        (size,) = struct.unpack("=d", struct.pack("=q", middle))
        if (horner(row, size) < 0) == below:
            first = middle
        else:
            last = middle
    return last


def never_below(coefficients: Floats, start: int, end: int) -> Flags:
    """Whether polynomials (P, d + 1) are nowhere negative in a range of positions: (P,)."""
    starts = np.full(len(coefficients), start, dtype=np.int64)
    ends = np.full(len(coefficients), end, dtype=np.int64)
    turns = sign_cuts(derivative(coefficients), starts, ends) if coefficients.shape[1] > 1 else starts[:, None]
    # The least value is at an end or where the slope changes its sign, before it or after it.
    where = np.concatenate([starts[:, None], turns - 1, turns, ends[:, None] - 1], axis=1)
    return np.asarray(~is_below(coefficients[:, None, :], np.clip(where, start, end - 1)).any(axis=1))


def first_range_below(coefficients: Floats, start: int, end: int) -> tuple[float, float] | None:
    """The first and the last size of the first stretch of a range where a polynomial, (d + 1,), is negative, if any."""
    cuts = sign_cuts(coefficients[None], np.array([start]), np.array([end]))[0]
    edges = np.unique(np.concatenate([[start], cuts, [end]]))
    below = is_below(coefficients[None], edges[:-1])
    if not below.any():
        return None
    first = int(below.argmax())
    beyond = first + int(np.append(below[first:], False).argmin())
    sizes = sizes_at([edges[first], edges[beyond] - 1])
    return float(sizes[0]), float(sizes[1])
