"""The number of rows to select, found in landscapes of known valleys."""

import numpy as np
import pytest
from numpy.typing import NDArray

from protodask.decisions.ranked import Ranking
from protodask.decisions.search import best_number
from protodask.evaluation.score_bins import bin_scores

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def ranking_of(n: int) -> Ranking:
    probability = np.random.default_rng(0).beta(0.5, 2, size=n)
    return Ranking.of(bin_scores(probability, np.stack([probability, probability * (1 - probability)], axis=1)), 100.0)


@pytest.mark.parametrize("n", [1, 2, 7, 1000, 100_000])
@pytest.mark.parametrize("share", [0.0, 0.003, 0.4, 0.98, 1.0])
def test_best_number__of_one_valley_is_its_bottom(n: int, share: float) -> None:
    bottom = round(share * n)
    assert best_number(ranking_of(n), lambda k: ((k - bottom) / n) ** 2 + 1) == bottom


def test_best_number__of_several_valleys_is_the_deepest() -> None:
    def value(k: Integers) -> Floats:
        places, depths = np.array([[400], [31_234], [90_000]]), np.array([[0.2], [0.1], [0.15]])
        lowest: Floats = np.min(((k - places) / 1e5) ** 2 + depths, axis=0)
        return lowest

    assert best_number(ranking_of(100_000), value) == 31_234


def test_best_number__of_a_plain_is_the_smallest() -> None:
    rounding = np.random.default_rng(0).normal(scale=1e-16, size=10_001)
    assert best_number(ranking_of(10_000), lambda k: 0.5 + rounding[k]) == 0


def test_best_number__looks_at_few_places_of_many() -> None:
    seen: list[int] = []
    asked: list[int] = []

    def value(k: Integers) -> Floats:
        seen.extend(k.tolist())
        asked.append(len(k))
        return np.abs(k - 77_777) / 1e6

    assert best_number(ranking_of(1_000_000), value, [5]) == 77_777
    assert 5 in seen
    assert len(seen) == len(set(seen)) < 1000
    assert len(asked) < 10
