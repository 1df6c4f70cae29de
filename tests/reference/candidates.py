"""Which rows become candidates: the draw as specified, in Python integers and plain loops."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

WORD = 2**64
GOLDEN = 0x9E3779B97F4A7C15


def mix(z: int) -> int:
    """The finaliser of splitmix64, a bijection of 64-bit words."""
    z ^= z >> 30
    z = z * 0xBF58476D1CE4E5B9 % WORD
    z ^= z >> 27
    z = z * 0x94D049BB133111EB % WORD
    return z ^ (z >> 31)


def priority(seed: int, batch: int, rows: Sequence[int] | Integers) -> list[int]:
    """64-bit priorities of rows in the draw of a batch, counted from 1; the smallest are drawn."""
    key = mix(mix(seed % WORD) ^ (batch * GOLDEN % WORD))
    return [mix((key + int(row) * GOLDEN) % WORD) for row in rows]


def minimum_count(max_fraction: float) -> int:
    """Smallest `N_k` with `ceil(N_k / 2) >= 1 / (2 eta)` and `ceil(N_k / 2) > 1 / (2 (1 - eta))`.

    Both are asked of the number the draw takes from a bin of `ceil(N_k / 2)` rows: at least one, and not all. In the
    quotients rounding would count: for `eta = 0.95` the second is 10, but comes out below, and 10 rows would be drawn
    of 10.
    """
    count = 1
    while not 1 <= math.floor(max_fraction * math.ceil(count / 2) + 0.5) < math.ceil(count / 2):
        count += 1
    return count


def bins(q: Floats, target: Integers, weights: Floats) -> Integers:
    """Bin of each row: `2 k + 1` where class `k` is strictly the most probable, else `2 k`; -1 where `s = 0`."""
    found = np.full(len(target), -1, dtype=np.int64)
    for n in range(len(target)):
        if weights[n] > 0:
            k = int(target[n])
            correct = all(q[n, k] > q[n, other] for other in range(q.shape[1]) if other != k)
            found[n] = 2 * k + int(correct)
    return found


def allocate(bin_sizes: Sequence[int], n_candidates: int, max_fraction: float) -> list[int]:
    """How many rows to draw from each bin; bins of one size are served in the order given."""
    order = sorted(range(len(bin_sizes)), key=lambda b: (bin_sizes[b], b))
    wanted = [0.0] * len(bin_sizes)
    left = float(n_candidates)
    for i, b in enumerate(order):
        even = left / (len(order) - i)
        if even <= max_fraction * bin_sizes[b]:
            for later in order[i:]:
                wanted[later] = even
            break
        wanted[b] = max_fraction * bin_sizes[b]
        left -= wanted[b]
    return [math.floor(h + 0.5) for h in wanted]


def draw_candidates(
    q: Floats, target: Integers, weights: Floats, n_candidates: int, max_fraction: float, seed: int, batch: int
) -> Integers:
    """Row numbers of the candidates of a batch, sorted by class, then by row."""
    bin_of_row = bins(q, target, weights)
    members = [[n for n in range(len(target)) if bin_of_row[n] == b] for b in range(2 * q.shape[1])]
    numbers = allocate([len(rows) for rows in members], n_candidates, max_fraction)
    ranks = priority(seed, batch, range(len(target)))
    drawn: list[int] = []
    for rows, number in zip(members, numbers, strict=True):
        drawn += sorted(rows, key=lambda row: ranks[row])[:number]
    return np.array(sorted(drawn, key=lambda row: (target[row], row)), dtype=np.int64)
