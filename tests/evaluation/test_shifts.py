import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import chi2_contingency, false_discovery_control, fisher_exact, kstest, ttest_ind

from protodask.evaluation.row_moments import BinSums
from protodask.evaluation.shifts import (
    holm,
    mean_difference,
    outside_p_value,
    share_at_least,
    shift_p_value,
    stability_index,
)

Floats = NDArray[np.float64]

counts = st.lists(st.integers(0, 200), min_size=2, max_size=12)


def p_value(before: Floats, after: Floats) -> float:
    """Of rows by bin, all of weight 1."""
    return shift_p_value(BinSums(before, before), BinSums(after, after))


def index(before: Floats, after: Floats) -> float:
    return stability_index(BinSums(before, before), BinSums(after, after))


def thinned(rng: np.random.Generator, rows: int, shares: Floats, rates: Floats) -> BinSums:
    """Rows by bin, of which a part is kept that stands for all."""
    kept = rng.binomial(rng.multinomial(rows, shares), rates)
    return BinSums(kept / rates, kept / rates**2)


def test_stability_index__by_hand() -> None:
    before, after = np.array([49.5, 49.5]), np.array([24.5, 74.5])  # with half a row each of 100: 1/2, 1/2 and 1/4, 3/4
    assert index(before, after) == pytest.approx(0.25 * math.log(2) + 0.25 * math.log(1.5))
    assert index(before, np.zeros(2)) == 0
    empty = index(np.array([100.0, 0.0]), np.array([50.0, 50.0]))
    p, q = np.array([100.5, 0.5]) / 101, np.array([50.5, 50.5]) / 101
    assert empty == pytest.approx(float(((p - q) * np.log(p / q)).sum()))


@given(counts, counts)
def test_stability_index__is_symmetric_and_zero_only_without_a_shift(first: list[int], second: list[int]) -> None:
    size = min(len(first), len(second))
    before, after = np.array(first[:size], dtype=float), np.array(second[:size], dtype=float)
    found = index(before, after)
    assert found >= 0
    assert found == pytest.approx(index(after, before))
    assert index(before, before) == 0


def test_shift_p_value__of_many_rows_is_that_of_pearson() -> None:
    rng = np.random.default_rng(0)
    before, after = rng.multinomial(5000, np.full(8, 1 / 8)), rng.multinomial(900, np.full(8, 1 / 8))
    wanted = chi2_contingency(np.stack([before, after]), correction=False).pvalue
    assert p_value(before.astype(float), after.astype(float)) == pytest.approx(wanted)


def test_shift_p_value__of_one_rare_bin_is_exact() -> None:
    before, after = np.array([9995.0, 5.0]), np.array([490.0, 10.0])
    wanted = fisher_exact(np.array([[5, 9995], [10, 490]]), alternative="less").pvalue
    assert p_value(before, after) == pytest.approx(2 * wanted, rel=1e-6)
    assert p_value(np.array([10_000.0, 0.0]), np.array([480.0, 20.0])) < 1e-20


def test_shift_p_value__tells_nothing_of_nothing() -> None:
    assert p_value(np.zeros(3), np.ones(3)) == 1
    assert p_value(np.array([7.0, 0.0]), np.array([9.0, 0.0])) == 1
    assert p_value(np.array([1.0, 1.0]), np.array([1.0, 1.0])) == 1
    assert p_value(np.array([1000.0, 0.0]), np.array([500.0, 0.0])) == 1, "all rows in one bin"


def test_shift_p_value__and_the_index_have_the_distribution_they_should() -> None:
    rng = np.random.default_rng(1)
    shares = np.full(10, 0.1)
    before, after = rng.multinomial(3000, shares, 1000).astype(float), rng.multinomial(800, shares, 1000).astype(float)
    p_values = [p_value(first, second) for first, second in zip(before, after, strict=True)]
    assert kstest(p_values, "uniform").pvalue > 0.01
    scaled = [index(first, second) * 3000 * 800 / 3800 for first, second in zip(before, after, strict=True)]
    assert kstest(scaled, "chi2", args=(9,)).pvalue > 0.001


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.0005, 0.004, 0.02])
def test_shift_p_value__of_rare_values_does_not_cry_wolf(share: float) -> None:
    rng = np.random.default_rng(2)
    shares = np.array([1 - 2 * share, share, share])
    before, after = rng.multinomial(2000, shares, 800).astype(float), rng.multinomial(500, shares, 800).astype(float)
    found = np.array([p_value(first, second) for first, second in zip(before, after, strict=True)])
    for level in (0.05, 0.005):
        assert np.mean(found < level) < level + 4 * math.sqrt(level / 800)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shares", "rates"),
    [
        ([0.9, 0.1], [1, 0.05]),
        ([0.99, 0.01], [1, 0.01]),
        ([0.9, 0.1], [0.01, 1]),
        ([0.5, 0.3, 0.2], [0.02, 1, 0.3]),
    ],
)
def test_shift_p_value__does_not_cry_wolf_where_bins_were_thinned(shares: list[float], rates: list[float]) -> None:
    rng = np.random.default_rng(4)
    known, kept = np.array(shares), np.array(rates)
    found = np.array(
        [shift_p_value(*(thinned(rng, size, known, kept) for size in (20_000, 12_000))) for _ in range(1000)]
    )
    for level in (0.05, 0.005):
        assert np.mean(found < level) < level + 4 * math.sqrt(level / 1000)
    assert np.mean(found < 0.05) > 0.01, "nor is it blind"


@pytest.mark.parametrize("least", [1e-4, 1e-8, 1e-12])
@pytest.mark.parametrize("place", [0, 3])
def test_shift_p_value__tells_of_bins_that_weigh_next_to_nothing(least: float, place: int) -> None:
    rng, weight = np.random.default_rng(6), np.ones(4)
    weight[place] = least
    twice = np.where(np.arange(4) == place, 2.0, 1.0)
    found = []
    for shares in (np.full(4, 0.25), twice / twice.sum()):
        pairs = [[rng.multinomial(3000, each) for each in (np.full(4, 0.25), shares)] for _ in range(100)]
        found.append([shift_p_value(*(BinSums(rows * weight, rows * weight**2) for rows in pair)) for pair in pairs])
    assert np.mean(np.array(found[0]) < 0.05) < 0.05 + 4 * math.sqrt(0.05 / 100)
    assert np.mean(np.array(found[1]) < 1e-3) > 0.95


def test_shift_p_value__sees_twice_the_positives_where_zeros_were_thinned() -> None:
    rng, rates = np.random.default_rng(5), np.array([0.01, 1.0])
    for _ in range(50):
        before = thinned(rng, 100_000, np.array([0.99, 0.01]), rates)
        after = thinned(rng, 101_000, np.array([0.98, 0.02]), rates)
        assert shift_p_value(before, after) < 5e-5


@given(counts, counts, st.floats(0.1, 10))
def test_shift_p_value__does_not_mind_units_of_weights_or_an_empty_bin(
    first: list[int], second: list[int], unit: float
) -> None:
    size = min(len(first), len(second))
    before, after = np.array(first[:size], dtype=float), np.array(second[:size], dtype=float)
    wanted = p_value(before, after)
    weighed = BinSums(np.append(unit * after, 0), np.append(unit**2 * after, 0))
    assert shift_p_value(BinSums(np.append(before, 0), np.append(before, 0)), weighed) == pytest.approx(wanted)
    assert 0 <= wanted <= 1


def test_share_at_least__is_clopper_and_pearsons() -> None:
    # P(X >= 10 of 500) is the chance at the bound.
    from scipy.stats import binom

    low = share_at_least(10, 500, 1e-3)
    assert binom.sf(9, 500, low) == pytest.approx(1e-3)
    assert share_at_least(0, 500, 1e-3) == 0
    assert 0.9 < share_at_least(500, 500, 1e-3) < 1


def test_mean_difference__is_the_test_of_welch() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.normal(0, 1, 400), rng.normal(0.2, 2, 300)
    difference, _, z = mean_difference((a.mean(), a.var(), len(a)), (b.mean(), b.var(), len(b)))
    assert difference == pytest.approx(b.mean() - a.mean())
    assert z == pytest.approx(ttest_ind(b, a, equal_var=False).statistic)
    assert mean_difference((0, 0, 5), (0, 0, 5))[2] == 0
    assert mean_difference((0, 0, 5), (1, 0, 5))[2] == math.inf
    assert mean_difference((0, 1, 1), (1, 1, 5))[2] == 0
    assert mean_difference((0.1, 0, 5), (math.fsum([0.1] * 3) / 3 + 1e-16, 1e-36, 5))[2] == 0, "rounding"


def test_holm__by_hand_and_never_below_the_false_discovery_rate() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []
    p_values = np.random.default_rng(0).uniform(size=20)
    assert (np.array(holm(p_values.tolist())) >= false_discovery_control(p_values) - 1e-12).all()


@pytest.mark.parametrize(("before", "after", "least"), [(20, 15, 4), (50, 200, 10), (3, 5, 5)])
def test_outside_p_value__is_the_frequency_in_draws(before: int, after: int, least: int) -> None:
    rng = np.random.default_rng(0)
    old, new = rng.normal(size=(20_000, before)), rng.normal(size=(20_000, after))
    outside = (new < old.min(axis=1, keepdims=True)) | (new > old.max(axis=1, keepdims=True))
    frequency = np.mean(outside.sum(axis=1) >= least)
    assert outside_p_value(before, after, least / after) == pytest.approx(frequency, abs=0.01)


def test_outside_p_value__of_many_rows_is_continued_and_of_none_is_one() -> None:
    assert outside_p_value(1000, 10_001, 0.004) == pytest.approx(outside_p_value(1000, 10_000, 0.004), abs=0.02)
    assert outside_p_value(1000, 50, 0.0) == 1
    assert outside_p_value(1, 50, 0.9) == 1
