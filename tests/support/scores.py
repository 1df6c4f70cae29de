"""Scores that crowd, for what cuts them finer and finer."""

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from protodask.evaluation.score_bins import score_keys

LARGEST = np.finfo(np.float64).max


def key_scores(key: NDArray[np.uint64]) -> NDArray[np.float64]:
    """The scores that have these keys."""
    bits = key.view(np.int64)
    return (bits ^ (~(bits >> np.int64(63)) | np.int64(-(2**63)))).view(np.float64)


@st.composite
def crowds(draw: st.DrawFn, most_bits: int = 62) -> NDArray[np.float64]:
    """Scores around a few, whose keys differ from theirs in up to so many of the lowest bits.

    The first two are different, and so near to each other that they share every bin of a first cut.
    """
    finite = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([0.0, 0.5, 1.0])
    centres = score_keys(np.array(draw(st.lists(finite, min_size=1, max_size=3)))).tolist()
    turned = st.tuples(st.sampled_from(centres), st.integers(0, most_bits), st.integers(0, 2**most_bits - 1))
    others = draw(st.lists(turned, max_size=58))
    near = centres[0], centres[0] ^ draw(st.integers(1, 2**30))
    keys = [*near, *(centre ^ (bits >> (most_bits - length)) for centre, length, bits in others)]
    lowest, highest = score_keys(np.array([-LARGEST, LARGEST]))
    return key_scores(np.clip(np.array(keys, dtype=np.uint64), lowest, highest))
