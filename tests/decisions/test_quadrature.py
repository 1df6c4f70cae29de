"""Expected losses of cuts, against double sums over the exact distributions."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from protodask.decisions import LOSS_NAMES, Loss, as_loss, exact
from protodask.decisions.counts import CountTable, count_table
from protodask.decisions.quadrature import SMALL, count_rules, expected_losses
from protodask.decisions.ranked import Counts, Ranking

Floats = NDArray[np.float64]
MakeRanking = Callable[..., Ranking]

RANDOM = np.random.default_rng(0)
SHAPES = {
    "uniform": RANDOM.uniform(size=900),
    "rare": RANDOM.beta(0.3, 8, size=900),
    "nearly sure": 1 - RANDOM.beta(0.3, 8, size=900),
    "two kinds": np.concatenate([RANDOM.beta(20, 1, size=200), RANDOM.beta(1, 20, size=700)]),
    "tied": np.round(RANDOM.beta(1, 3, size=900), 1),
    "sure or rare": np.repeat([1, 0.011], [30, 870]),
}
STEEP = Loss.linear_fractional((0, -1.0001, 1, 1), (1e-6, -1, 1, 1), name="steep")
LOSSES = [*map(as_loss, LOSS_NAMES), as_loss("f2"), STEEP]


@cache
def tables(shape: str, k: int) -> tuple[CountTable, CountTable]:
    """Of the positives among the `k` items of largest probability, and among the others."""
    ordered = np.sort(SHAPES[shape])[::-1]
    return count_table(ordered[:k]), count_table(ordered[k:])


def expected_at(shape: str, k: int, loss: Loss) -> float:
    """`exact.expected_loss`, which would make the tables anew for every loss."""
    before, after = tables(shape, k)
    n, selected = len(SHAPES[shape]), before.counts[:, None]
    return float(before.probability @ loss(selected / n, k / n, (selected + after.counts) / n) @ after.probability)


@pytest.mark.parametrize("name", LOSS_NAMES)
@pytest.mark.parametrize("small", [0.0, 20.0, 100.0])
def test_expected_losses__are_those_of_exact_sums(make_ranking: MakeRanking, name: str, small: float) -> None:
    # Of variance 60 to 100 on either side: with `small` 0 all of it is nodes of the corrected normal distribution.
    probability = np.random.default_rng(0).uniform(size=900)
    ranking, loss = make_ranking(probability, small=small), as_loss(name)
    cuts = np.array([250, 450, 650])
    expected = [exact.expected_loss(probability, k, loss) for k in cuts.tolist()]
    np.testing.assert_allclose(expected_losses(*ranking.counts(cuts), loss), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_expected_losses__of_all_cuts_are_those_of_exact_sums(
    make_ranking: MakeRanking, shape: str, loss: Loss
) -> None:
    probability = SHAPES[shape]
    every = np.unique(np.concatenate([np.arange(6), np.arange(12, 889, 97), np.arange(895, 901)]))
    expected = [expected_at(shape, k, loss) for k in every.tolist()]
    found = expected_losses(*make_ranking(probability).counts(every), loss)
    nearly_normal = np.sum(probability * (1 - probability)) > SMALL
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10 if nearly_normal else 2e-12)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
@pytest.mark.parametrize("small", [0.0, 100.0])
def test_expected_losses__of_few_nodes_are_those_of_all(
    make_ranking: MakeRanking, shape: str, loss: Loss, small: float
) -> None:
    many = small == 0  # for which the distributions are taken as nearly normal
    every = np.array([9000, 9001, 9005, 9900]) if many else np.r_[:12, 12:889:35, 889:901]
    ranking = make_ranking(np.tile(SHAPES[shape], 20) if many else SHAPES[shape], small=small)
    few = expected_losses(*ranking.counts(every), loss)
    all_nodes = expected_losses(*ranking.counts(every), replace(loss, smooth=False))
    np.testing.assert_allclose(few, all_nodes, rtol=0, atol=1e-12)


def test_expected_losses__with_a_kink_are_close(make_ranking: MakeRanking) -> None:
    probability = np.random.default_rng(0).uniform(size=1600)
    loss = Loss("half of the positives", lambda u, v, p: np.maximum(0, p / 2 - u) + v / 8, True)
    ranking = make_ranking(probability, small=0.0)
    for k in (300, 480, 700):
        expected = exact.expected_loss(probability, k, loss)
        assert expected_losses(*ranking.counts(np.array([k])), loss)[0] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("smooth", [False, True])
def test_count_rules__have_the_cumulants_of_the_count(smooth: bool) -> None:
    cumulants = np.array([[500.0, 400.0, 250.0, 80.0]])
    none = np.zeros(1, dtype=np.int64)
    counts = Counts(none + 10_000, cumulants, none, none > 0, np.zeros((0, 129), dtype=np.complex128))
    (nodes,), (weights,) = count_rules(counts, smooth)
    assert weights.sum() == pytest.approx(1, abs=1e-14)
    away = nodes - 500
    moments = [float(weights @ away**power) for power in (1, 2, 3, 4)]
    assert moments[:3] == pytest.approx([0, 400, 250], abs=1e-4)
    assert moments[3] - 3 * 400**2 == pytest.approx(80, abs=1e-2)


def test_count_rules__of_a_smooth_loss_have_few_nodes_away_from_the_ends(make_ranking: MakeRanking) -> None:
    selected, _ = make_ranking(np.full(400, 0.5)).counts(np.array([1, 9, 300, 400]))
    widths = [np.count_nonzero(count_rules(selected, smooth)[1], axis=1).tolist() for smooth in (False, True)]
    assert widths[1][:2] == widths[0][:2] == [2, 10]
    assert max(widths[1][2:]) < 32
    assert min(widths[0][2:]) > 100
