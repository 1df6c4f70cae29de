"""Pseudo-random draws keyed by what they are for: the same wherever and in whatever order they are made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Draws = NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


def mix(value: Draws) -> Draws:
    """The finaliser of SplitMix64: a bijection of 64 bits, after which neighbours look unrelated."""
    value = (value ^ (value >> np.uint64(30))) * _FIRST
    value = (value ^ (value >> np.uint64(27))) * _SECOND
    return value ^ (value >> np.uint64(31))


def stream_key(seed: int, *streams: int | NDArray[np.integer[Any]]) -> Draws:
    """Key of a stream of draws, from a seed and what the draws are for; arrays among it broadcast to an array of keys.

    `key = mix(... mix(mix(mix(seed) ^ g stream_1) ^ g stream_2) ...)`, `g` the golden ratio as a fraction of `2^64`.
    """
    key = mix(np.array([seed % 2**64], dtype=np.uint64))
    for stream in streams:
        key = mix(key ^ (np.atleast_1d(np.asarray(stream)).astype(np.uint64) * _GOLDEN))
    return key


def keyed_draws(key: Draws, numbers: NDArray[np.integer[Any]]) -> Draws:
    """Draw number `n` of a stream, uniform over 64 bits: `mix(key + g n)`, distinct for distinct numbers."""
    return mix(key + numbers.astype(np.uint64) * _GOLDEN)


_DEALING = stream_key(0, 0x6465616C)


def dealt(numbers: NDArray[np.integer[Any]], n_parts: int) -> NDArray[np.int64]:
    """Which of some parts each number is in, at random and always the same."""
    return np.asarray(keyed_draws(_DEALING, numbers) % np.uint64(n_parts)).astype(np.int64)


def smallest(draws: Draws, most: int) -> NDArray[np.int64]:
    """Positions of the `most` smallest draws, ascending; only those are sorted."""
    if len(draws) > most:
        first = np.argpartition(draws, most - 1)[:most]
        return first[np.argsort(draws[first])]
    return np.argsort(draws)


def smallest_of_both(
    most: int, left: Sequence[NDArray[Any]], right: Sequence[NDArray[Any]]
) -> tuple[NDArray[Any], ...]:
    """Two samples as one: of arrays by row, draws first, the rows of the `most` smallest draws, ascending by them."""
    chosen = smallest(np.concatenate([left[0], right[0]]), most)
    return tuple(np.concatenate(pair)[chosen] for pair in zip(left, right, strict=True))
