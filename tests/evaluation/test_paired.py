import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import bootstrap, norm, t
from sklearn.metrics import log_loss
from support.errors import refused
from support.models import make_model

from protodask.data import Label
from protodask.engine import add_records
from protodask.evaluation.challenging import check_comparable
from protodask.evaluation.paired import (
    LEAST_PROBABILITY,
    MOST_BLOCKS,
    PairedSums,
    compare_paired,
    group_bins,
    paired_sums,
    row_losses,
    run_rows,
)

Floats = NDArray[np.float64]


def sums_of(champion: Floats, challenger: Floats, rows: int) -> PairedSums:
    blocks = np.arange(len(champion)) // rows
    return paired_sums(blocks, np.ones(len(champion)), champion, challenger, int(blocks[-1]) + 1)


def test_row_losses__against_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(3), 50)
    target = rng.integers(0, 3, 50)
    codes = np.array([0, 1, 2])
    assert row_losses(p, codes, target, 3, "log-loss").mean() == pytest.approx(log_loss(target, p))
    assert row_losses(p, codes, target, 3, "error").mean() == np.mean(p.argmax(axis=1) != target)
    truth = np.eye(3)[target]
    assert row_losses(p, codes, target, 3, "brier") == pytest.approx(np.square(p - truth).sum(axis=1))


def test_row_losses__of_classes_in_another_order_and_of_unknown_ones() -> None:
    p = np.array([[0.9, 0.1], [0.2, 0.8], [0.7, 0.3]])
    codes = np.array([2, 0])  # the first column is class 2
    target = np.array([2, 2, 1])
    assert row_losses(p, codes, target, 3, "log-loss") == pytest.approx(
        [-math.log(0.9), -math.log(0.2), -math.log(LEAST_PROBABILITY)]
    )
    assert row_losses(p, codes, target, 3, "error").tolist() == [0, 1, 1]
    assert row_losses(p, codes, target, 3, "brier") == pytest.approx([0.02, 1.28, 0.49 + 0.09 + 1])
    assert row_losses(p[:1], np.array([1, 0]), np.array([1]), 2, "brier") == pytest.approx([0.01])


@given(st.lists(st.integers(0, 40), max_size=8), st.integers(1, 5))
def test_add_records__is_a_monoid(sizes: list[int], n_blocks: int) -> None:
    rng = np.random.default_rng(len(sizes))
    parts = []
    for size in sizes:
        weight, a, b = rng.integers(0, 9, (3, size)).astype(np.float64)
        parts.append((rng.integers(0, n_blocks, size), weight, a, b))
    none = np.zeros(0)
    merged = paired_sums(np.zeros(0, dtype=np.int64), none, none, none, n_blocks)
    for part in parts:
        merged = add_records(merged, paired_sums(*part, n_blocks))
    joined: Any = [np.concatenate([np.zeros(0, dtype=np.int64), *(part[i] for part in parts)]) for i in range(4)]
    whole = paired_sums(joined[0].astype(np.int64), joined[1], joined[2], joined[3], n_blocks)
    for name in ("rows", "weight", "champion", "challenger"):
        np.testing.assert_array_equal(getattr(merged, name), getattr(whole, name))


def test_compare_paired__agrees_with_the_bootstrap_of_scipy() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(1, 1, 2000), rng.normal(0.9, 1, 2000)
    found = compare_paired(sums_of(a, b, 1), draws=4000, confidence=0.95)
    wanted = bootstrap((a - b,), np.mean, n_resamples=4000, confidence_level=0.9, method="percentile", rng=rng)
    assert found.gain == pytest.approx(np.mean(a - b))
    assert found.low == pytest.approx(wanted.confidence_interval.low, abs=0.1 * float(wanted.standard_error))
    assert found.standard_error == pytest.approx(float(wanted.standard_error), rel=0.05)


@pytest.mark.parametrize("n_blocks", [6, 8, 10])
def test_compare_paired__of_few_blocks_has_the_bound_of_student(n_blocks: int) -> None:
    """Of blocks that look like normal ones; their own quantiles would lie a tenth of a standard error too high."""
    gains = norm.ppf((np.arange(n_blocks) + 0.5) / n_blocks)
    found = compare_paired(sums_of(gains, np.zeros(n_blocks), 1), draws=20_000, confidence=0.95)
    standard_error = np.std(gains, ddof=1) / math.sqrt(n_blocks)
    assert (found.gain - found.low) / standard_error == pytest.approx(t.ppf(0.95, n_blocks - 1), abs=0.05)


def test_compare_paired__weights_count_rows() -> None:
    rng = np.random.default_rng(1)
    a, b, times = rng.random(300), rng.random(300), rng.integers(0, 4, 300)
    block = np.arange(300) // 3
    weighted = compare_paired(paired_sums(block, times.astype(float), a, b, 100))
    repeated = compare_paired(
        paired_sums(np.repeat(block, times), np.ones(times.sum()), np.repeat(a, times), np.repeat(b, times), 100)
    )
    assert (weighted.gain, weighted.low) == pytest.approx((repeated.gain, repeated.low))


def test_compare_paired__with_a_margin_has_the_p_value_of_gains_less_by_it() -> None:
    rng = np.random.default_rng(4)
    a, b = rng.normal(1, 1, 300), rng.normal(0.9, 1, 300)
    found = compare_paired(sums_of(a, b, 1), margin=0.25)
    assert found.p_value == pytest.approx(compare_paired(sums_of(a - 0.25, b, 1)).p_value, abs=2e-3)
    assert found.p_value > compare_paired(sums_of(a, b, 1)).p_value + 0.02


@pytest.mark.parametrize(("n_blocks", "draws", "confidence"), [(5, 100, 0.99), (40, 100, 0.95), (200, 999, 0.9)])
def test_compare_paired__bound_is_the_gain_of_the_nearest_rank(n_blocks: int, draws: int, confidence: float) -> None:
    rng = np.random.default_rng(n_blocks)
    sums = sums_of(rng.normal(0.3, 1, n_blocks), rng.normal(0, 1, n_blocks), 1)
    low = compare_paired(sums, draws=draws, confidence=confidence).low
    student = t.ppf(1 - confidence, n_blocks - 1) * math.sqrt(n_blocks / (n_blocks - 1))
    rank = max(math.floor(norm.cdf(student) * draws), 1)
    # So many gains are not above the bound.
    counted = compare_paired(sums, draws=draws, confidence=confidence, margin=low).p_value * (draws + 1) - 1
    assert counted == pytest.approx(rank)


def test_compare_paired__is_keyed_by_its_seed() -> None:
    rng = np.random.default_rng(2)
    sums = sums_of(rng.random(500), rng.random(500), 5)
    assert compare_paired(sums, seed=3) == compare_paired(sums, seed=3)
    assert compare_paired(sums, seed=3).low != compare_paired(sums, seed=4).low


def test_compare_paired__needs_five_blocks_and_sensible_settings() -> None:
    with refused("too-few", 4, 5):
        compare_paired(sums_of(np.ones(8), np.ones(8), 2))
    with refused("bad-setting", "from 100 to 100,000", "draws", 10):
        compare_paired(sums_of(np.ones(5), np.ones(5), 1), draws=10)


@given(st.integers(1, 10**9))
def test_run_rows__makes_a_bounded_number_of_blocks(n_rows: int) -> None:
    rows = run_rows(n_rows)
    count = -(-n_rows // rows)
    assert count <= MOST_BLOCKS
    assert count >= min(n_rows, 100)


def test_group_bins__keep_groups_together() -> None:
    group = np.random.default_rng(0).integers(0, 10**6, 5000)
    found = group_bins(np.concatenate([group, group]))
    np.testing.assert_array_equal(found[:5000], found[5000:])
    assert found.min() >= 0
    assert found.max() < MOST_BLOCKS
    assert len(np.unique(found)) > 0.8 * MOST_BLOCKS


def clustered(rng: np.random.Generator, n_rows: int, cluster: int, gain: float) -> tuple[Floats, Floats]:
    """Losses of rows in runs of neighbours of which each has an effect of its own on the difference."""
    effect = np.repeat(rng.normal(0, 0.5, -(-n_rows // cluster)), cluster)[:n_rows]
    hard = np.resize(rng.exponential(1, 1000), n_rows)  # it cancels in the difference
    return hard + effect + rng.normal(0, 0.5, n_rows), hard - gain


def promotions(repeats: int, n_rows: int, cluster: int, gain: float, rows: int | None = None) -> float:
    """How often a challenger passes at a confidence of 95 per cent."""
    rng = np.random.default_rng(n_rows + cluster)
    passed = 0
    for seed in range(repeats):
        a, b = clustered(rng, n_rows, cluster, gain)
        found = compare_paired(sums_of(a, b, rows or run_rows(n_rows)), draws=200, seed=seed)
        passed += found.low > 0
    return passed / repeats


@pytest.mark.slow
def test_compare_paired__rarely_promotes_an_equal_and_mostly_a_better_model() -> None:
    noise = norm.ppf(0.9999) * math.sqrt(0.05 * 0.95 / 400)
    assert 0.01 < promotions(400, 2000, 4, 0.0) < 0.05 + noise
    assert promotions(100, 2000, 4, 0.1) > 0.9
    assert promotions(200, 600, 20, 0.0, rows=1) > 0.2, "rows of a cluster are not independent"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n_rows", "cluster", "most"),
    [
        # Measured: 0.047, 0.042, 0.054, 0.039, 0.053; over rows 0.05, 0.11, 0.20, 0.25 of the first four. The last has
        # as many rows to a block as 200,000 have.
        (300, 1, 0.065),
        (2000, 4, 0.065),
        (5000, 8, 0.07),
        (20_000, 20, 0.07),
        (50_000, 8, 0.07),
    ],
)
def test_compare_paired__promotes_equal_models_as_rarely_as_it_says(
    n_rows: int, cluster: int, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("protodask.evaluation.paired.MOST_BLOCKS", 500)
    assert promotions(1000, n_rows, cluster, 0.0) < most


@pytest.mark.slow
def test_compare_paired__few_blocks_cover_as_often_as_they_say() -> None:
    rng = np.random.default_rng(5)
    for n_blocks in (5, 10, 30):
        passed = 0
        for seed in range(1500):
            a = rng.normal(0, 1, n_blocks)
            passed += compare_paired(sums_of(a, np.zeros(n_blocks), 1), draws=1000, seed=seed).low > 0
        assert 0.03 < passed / 1500 < 0.075, (n_blocks, passed)


@pytest.mark.parametrize("classes", [("0", "1"), (False, True)])
def test_check_comparable__refuses_classes_of_another_type(classes: tuple[Label, ...]) -> None:
    champion, challenger = make_model(classes=(0, 1)), make_model(classes=classes)
    for pair in ((challenger, champion), (champion, challenger)):
        with refused("columns-differ", "0, 1", *map(repr, classes), "type"):
            check_comparable(*pair)
    check_comparable(make_model(classes=(1, 2)), champion)
