"""Expected losses of a cut, against double sums over the exact distributions."""

from collections.abc import Callable

import numpy as np
import pytest

from protodask.decisions import LOSS_NAMES, Loss, as_loss, exact
from protodask.decisions.quadrature import count_rule, expected_loss
from protodask.decisions.ranked import Count, Ranking

MakeRanking = Callable[..., Ranking]


@pytest.mark.parametrize("name", LOSS_NAMES)
@pytest.mark.parametrize("small", [0.0, 20.0, 100.0])
def test_expected_loss__is_that_of_exact_sums(make_ranking: MakeRanking, name: str, small: float) -> None:
    # Of variance 60 to 100 on either side: with `small` 0 all of it is nodes of the corrected normal distribution.
    probability = np.random.default_rng(0).uniform(size=900)
    ranking, loss = make_ranking(probability, small=small), as_loss(name)
    for k in (250, 450, 650):
        found = expected_loss(*ranking.counts(k), loss)
        assert found == pytest.approx(exact.expected_loss(probability, k, loss), abs=1e-9)


def test_expected_loss__with_a_kink_is_close(make_ranking: MakeRanking) -> None:
    probability = np.random.default_rng(0).uniform(size=1600)
    loss = Loss("half of the positives", lambda u, v, p: np.maximum(0, p / 2 - u) + v / 8, True)
    ranking = make_ranking(probability, small=0.0)
    for k in (300, 480, 700):
        expected = exact.expected_loss(probability, k, loss)
        assert expected_loss(*ranking.counts(k), loss) == pytest.approx(expected, abs=1e-5)


def test_count_rule__has_the_cumulants_of_the_count() -> None:
    nodes, weights = count_rule(Count(10_000, 500.0, 400.0, 250.0, 80.0, 0))
    assert weights.sum() == pytest.approx(1, abs=1e-14)
    away = nodes - 500
    moments = [float(weights @ away**power) for power in (1, 2, 3, 4)]
    assert moments[:3] == pytest.approx([0, 400, 250], abs=1e-4)
    assert moments[3] - 3 * 400**2 == pytest.approx(80, abs=1e-2)
