"""What the tests of decisions share."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from protodask.decisions.ranked import Ranking
from protodask.evaluation.score_bins import Cuts, bin_scores

Floats = NDArray[np.float64]
MakeRanking = Callable[..., Ranking]

SINGLE = Cuts(np.array([1 << 63], dtype=np.uint64), np.array([63], dtype=np.uint8), np.array([0], dtype=np.uint8))


def _make_ranking(probability: Floats, small: float = 100.0) -> Ranking:
    columns = np.stack([probability, probability * (1 - probability)], axis=1)
    return Ranking.of(bin_scores(probability, columns, SINGLE), small)


@pytest.fixture(scope="session")
def make_ranking() -> MakeRanking:
    """Rank probabilities, each in a bin of its own."""
    return _make_ranking
