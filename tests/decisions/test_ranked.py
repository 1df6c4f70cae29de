"""Counts of positives on both sides of a cut: cumulants against sums, distributions against products of polynomials."""

from collections.abc import Callable
from functools import reduce

import numpy as np
import pytest
from numpy.typing import NDArray

from protodask.decisions.quadrature import SMALL, count_rules
from protodask.decisions.ranked import Counts, Ranking
from protodask.evaluation.score_bins import bin_scores

Floats = NDArray[np.float64]
MakeRanking = Callable[..., Ranking]


def distribution(probability: Floats) -> Floats:
    return reduce(lambda table, eta: np.convolve(table, [1 - eta, eta]), probability.tolist(), np.ones(1))


def counts(ranking: Ranking, k: int) -> tuple[Counts, Counts]:
    return ranking.counts(np.array([k]))


def shares(own: Counts) -> Floats:
    """The rule of one count as probabilities of 0, 1, .. rows."""
    (nodes,), (weights,) = count_rules(own)
    found = np.zeros(int(own.most[0]) + 1)
    np.add.at(found, nodes.astype(int), weights)
    return found


EXAMPLES = {
    "spread": np.random.default_rng(0).uniform(size=150),
    "rare": np.random.default_rng(1).beta(0.05, 20, size=400),
    "nearly sure": 1 - np.random.default_rng(2).beta(0.05, 20, size=400),
    "tied": np.random.default_rng(3).integers(0, 5, size=100) / 4,
    "halves": np.full(60, 0.5),
    "nothing": np.zeros(30),
    "all": np.ones(30),
    "one": np.array([0.3]),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_counts__of_small_variance_have_their_exact_distributions(make_ranking: MakeRanking, name: str) -> None:
    probability = EXAMPLES[name]
    ranking = make_ranking(probability)
    ordered = -np.sort(-probability)
    for k in {0, 1, len(ordered) // 3, len(ordered) // 2, len(ordered) - 1, len(ordered)}:
        selected, others = counts(ranking, k)
        assert (selected.most.tolist(), others.most.tolist()) == ([k], [len(ordered) - k])
        np.testing.assert_allclose(shares(selected), distribution(ordered[:k]), rtol=0, atol=1e-13)
        np.testing.assert_allclose(shares(others), distribution(ordered[k:]), rtol=0, atol=1e-13)


@pytest.mark.parametrize("name", EXAMPLES)
def test_counts__have_the_cumulants_of_their_rows(make_ranking: MakeRanking, name: str) -> None:
    ordered = -np.sort(-EXAMPLES[name])
    k = 2 * len(ordered) // 3
    for count, rows in zip(counts(make_ranking(ordered), k), (ordered[:k], ordered[k:]), strict=True):
        spread = rows * (1 - rows)
        expected = [rows.sum(), spread.sum(), (spread * (1 - 2 * rows)).sum(), (spread * (1 - 6 * spread)).sum()]
        np.testing.assert_allclose(count.cumulants[0], expected, atol=1e-12)


def test_counts__of_many_nearly_sure_rows_keep_their_digits() -> None:
    # A hundred million rows, of which about five are negative: the number of whole turns would take 8 digits.
    rows, eta = 100_000_000, 1 - 5e-8
    bins = bin_scores(np.array([eta]), np.array([[eta, eta * (1 - eta)]]))
    many = Ranking.of(
        type(bins)(bins.key, bins.free, bins.rows * rows, bins.lowest, bins.highest, bins.sums * rows), SMALL
    )
    (nodes,), (weights,) = count_rules(counts(many, rows)[0])
    negatives = rows - nodes
    expected = np.exp(-5.0) * np.cumprod(np.concatenate([[1.0], 5 / np.arange(1, 20)]))
    found = {int(count): weight for count, weight in zip(negatives, weights, strict=True)}
    np.testing.assert_allclose([found[count] for count in range(20)], expected, rtol=1e-6, atol=1e-12)


def test_place__is_inside_the_bin_of_the_row(make_ranking: MakeRanking) -> None:
    ranking = make_ranking(np.array([0.9, 0.5, 0.5, 0.5, 0.1]))
    whole, more = ranking.place(np.arange(6))
    assert (whole.tolist(), more.tolist()) == ([0, 1, 1, 1, 2, 3], [0, 0, 1, 2, 0, 0])


def test_counts__do_not_depend_on_what_is_kept_of_transforms(make_ranking: MakeRanking) -> None:
    # More bins than transforms kept, all of small variance: those in between are made from what is kept.
    ordered = -np.sort(-np.random.default_rng(0).uniform(0, 2e-3, size=20_000))
    ranking = make_ranking(ordered)
    assert len(ranking.head.rows) > 4 * 2048
    for k in (7, 12_345, 19_999):
        for count, rows in zip(counts(ranking, k), (ordered[:k], ordered[k:]), strict=True):
            expected = distribution(rows)[:60] if len(rows) < 100 else _by_windows(rows)
            np.testing.assert_allclose(shares(count)[: len(expected)], expected, atol=1e-12)


def _by_windows(rows: Floats) -> Floats:
    """The first 60 numbers of positives, which hold almost all of the probability."""
    table = np.zeros(200)
    table[0] = 1.0
    for eta in rows.tolist():
        table[1:] = table[1:] * (1 - eta) + table[:-1] * eta
        table[0] *= 1 - eta
    return table[:60]


@pytest.mark.slow
def test_counts__of_many_cuts_are_those_of_each(make_ranking: MakeRanking) -> None:
    ranking = make_ranking(np.random.default_rng(0).integers(0, 20, size=900) / 19)
    every = np.arange(901)
    for side, together in enumerate(ranking.counts(every)):
        transforms = iter(together.transform)
        for k in every.tolist():
            alone = counts(ranking, k)[side]
            assert (together.most[k], together.certain[k]) == (alone.most[0], alone.certain[0])
            np.testing.assert_array_equal(together.cumulants[k], alone.cumulants[0])
            assert together.small[k] == alone.small[0]
            for transform in alone.transform:
                np.testing.assert_array_equal(next(transforms), transform)
        assert 0 < together.small.sum() < 901
