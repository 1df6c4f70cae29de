"""Keyed draws: those of the published generator, and streams that have nothing in common."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from protodask.data.arrays.keyed import keyed_draws, mix, stream_key

NUMBERS = np.arange(2000)


def test_keyed_draws__of_the_key_zero_are_the_published_stream_of_splitmix64() -> None:
    # The first outputs of the generator for the seed 0, whose state is advanced before each.
    found = keyed_draws(np.zeros(1, dtype=np.uint64), np.arange(1, 4))
    assert [hex(value) for value in found.tolist()] == ["0xe220a8397b1dcdaf", "0x6e789e6aa1b965f4", "0x6c45d188009454f"]


@given(st.lists(st.integers(0, 2**64 - 1), unique=True, min_size=1))
def test_mix__joins_no_values(values: list[int]) -> None:
    assert len(set(mix(np.array(values, dtype=np.uint64)).tolist())) == len(values)


@given(st.integers(-(2**70), 2**70), st.integers(0, 2**32), st.integers(0, 2**32))
def test_stream_key__of_an_array_is_the_key_of_each(seed: int, one: int, other: int) -> None:
    together = stream_key(seed, one, np.array([other, 0, 5]))
    assert together.tolist() == [stream_key(seed, one, stream).item() for stream in (other, 0, 5)]


def test_keyed_draws__of_two_streams_share_nothing() -> None:
    keys = [stream_key(0), stream_key(1), stream_key(0, 1), stream_key(0, 2), stream_key(0, 1, 1), stream_key(0, 1, 2)]
    draws = [keyed_draws(key, NUMBERS) for key in keys]
    assert len(np.unique(np.concatenate(draws))) == len(keys) * len(NUMBERS)
    bits = np.array([np.unpackbits(draw.view(np.uint8)) for draw in draws], dtype=np.float64)
    # 128,000 bits: the correlation of independent ones has a standard deviation of 0.0028.
    assert abs(np.corrcoef(bits) - np.eye(len(keys))).max() < 0.02
