"""Sums over rows by bins of a score."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.scores import crowds, key_scores

from protodask.engine import Engine, array_source
from protodask.engine.blocks import Block
from protodask.evaluation.score_bins import (
    FIRST_FREE,
    Cuts,
    ScoreBins,
    bin_scores,
    bin_source,
    choose_cuts,
    coarsen,
    merge_within,
    no_bins,
    refine_bins,
    score_keys,
)

scores = crowds() | st.lists(st.floats(allow_nan=False) | st.sampled_from([0.0, -0.0, 0.5, 1.0]), max_size=60).map(
    lambda values: np.array(values, dtype=np.float64)
)

spread = st.lists(
    st.floats(allow_nan=False),
    min_size=13,
    max_size=40,
    unique_by=lambda value: int(score_keys(np.array([value]))[0]) >> FIRST_FREE,
).map(lambda values: np.array(values, dtype=np.float64))
"""More than a dozen, each in a bin of its own."""


def columns(score: NDArray[np.float64]) -> NDArray[np.float64]:
    """Whole numbers: they add up exactly, in whatever order."""
    number = np.arange(len(score), dtype=np.float64)
    return np.stack([number, number % 3], axis=1)


def same(left: ScoreBins, right: ScoreBins) -> bool:
    return all(np.array_equal(getattr(left, name), getattr(right, name)) for name in ScoreBins.__dataclass_fields__)


@given(scores)
def test_score_keys__order_as_the_scores_and_turn_back(score: NDArray[np.float64]) -> None:
    key = score_keys(score)
    assert np.array_equal(key[:, None] < key, score[:, None] < score)
    assert np.array_equal(key_scores(key), score)


@given(scores)
def test_bin_scores__holds_every_row_once_in_a_narrow_bin(score: NDArray[np.float64]) -> None:
    bins = bin_scores(score, columns(score))
    assert bins.rows.sum() == len(score)
    assert np.array_equal(bins.sums.sum(axis=0), columns(score).sum(axis=0))
    assert (bins.key[1:] > bins.key[:-1]).all()
    assert (bins.lowest[1:] > bins.highest[:-1]).all()
    for lowest, highest, rows, sums in zip(bins.lowest, bins.highest, bins.rows, bins.sums, strict=True):
        inside = (score >= lowest) & (score <= highest)
        assert rows == inside.sum()
        assert np.array_equal(sums, columns(score)[inside].sum(axis=0))
        assert lowest in score
        assert highest in score
    normal = (np.abs(bins.lowest) > 1e-300) & np.isfinite(bins.highest)
    width = bins.highest[normal] / 2 - bins.lowest[normal] / 2
    assert (2 * 1024 * width <= np.maximum(np.abs(bins.lowest), np.abs(bins.highest))[normal]).all()


@given(scores, st.integers(0, 60), st.integers(0, 60))
def test_merge_bins__is_a_monoid(score: NDArray[np.float64], first: int, second: int) -> None:
    low, high = sorted((first, second))
    a, b, c = (
        bin_scores(score[part], columns(score)[part]) for part in (slice(0, low), slice(low, high), slice(high, None))
    )
    whole = bin_scores(score, columns(score))
    assert same((a + b) + c, whole)
    assert same(a + (b + c), whole)
    assert same(whole + no_bins(2), whole)
    assert same(no_bins(2) + whole, whole)


@given(crowds(FIRST_FREE + 4), st.integers(1, 5), st.integers(1, 63))
def test_refine_bins__says_what_a_finer_cut_says(score: NDArray[np.float64], most: int, finer_by: int) -> None:
    bins = bin_scores(score, columns(score))
    cuts = choose_cuts(bins, bins.rows.astype(np.float64), most, finer_by)
    assert 0 < len(cuts.key) <= most
    finer = refine_bins(bins, cuts, bin_scores(score, columns(score), cuts))
    assert finer.rows.sum() == len(score)
    assert (finer.key[1:] > finer.key[:-1]).all()
    assert (finer.lowest[1:] > finer.highest[:-1]).all()
    assert finer.free.min() == max(FIRST_FREE - finer_by, 0)
    for lowest, highest, rows, sums in zip(finer.lowest, finer.highest, finer.rows, finer.sums, strict=True):
        inside = (score >= lowest) & (score <= highest)
        assert rows == inside.sum()
        assert np.array_equal(sums, columns(score)[inside].sum(axis=0))


def test_refine_bins__ends_with_single_scores() -> None:
    score = np.random.default_rng(0).uniform(0.5, 0.501, 2000)
    bins = bin_scores(score, columns(score))
    passes = 0
    while len((cuts := choose_cuts(bins, np.ones(len(bins.key)), 10_000)).key):
        bins = refine_bins(bins, cuts, bin_scores(score, columns(score), cuts))
        passes += 1
    assert np.array_equal(bins.lowest, np.unique(score))
    assert passes <= -(-FIRST_FREE // 8)
    assert bins.tied.all()


def test_bin_scores__takes_bins_that_differ_in_how_finely_they_are_cut() -> None:
    score = np.array([0.25, 0.2500001, 0.75, 0.7500001, 0.9])
    bins = bin_scores(score, columns(score))
    cuts = Cuts(bins.key[:2], bins.free[:2], np.array([32, 4], dtype=np.uint8))
    finer = bin_scores(score, columns(score), cuts)
    assert finer.rows.tolist() == [2, 1, 1]
    assert finer.free.tolist() == [32, 4, 4]


def read_scores(block: Block, sign: float) -> list[tuple[NDArray[Any], NDArray[np.float64]]]:
    ones = np.ones((block.n_rows, 1))
    return [(block["score"], ones), (sign * block["score"], 2 * ones)]


def test_bin_source__is_that_of_all_rows_at_once() -> None:
    score = np.random.default_rng(1).normal(size=5000).astype(np.float32)
    source = array_source({"score": score}, block_rows=512)
    first, second = bin_source(Engine(), source, read_scores, -1.0)
    assert same(first, bin_scores(score, np.ones((5000, 1))))
    assert same(second, bin_scores(-score, np.full((5000, 1), 2.0)))
    cuts = choose_cuts(first, first.rows.astype(np.float64), 100)
    none = Cuts(cuts.key[:0], cuts.free[:0], cuts.finer[:0])
    finer, nothing = bin_source(Engine(), source, read_scores, -1.0, cuts=[cuts, none])
    assert same(finer, bin_scores(score, np.ones((5000, 1)), cuts))
    assert len(nothing.key) == 0


@given(scores | spread, st.integers(0, 60), st.integers(0, 60), st.integers(2, 12))
def test_merge_within__is_a_monoid_of_few_bins(score: NDArray[np.float64], first: int, second: int, most: int) -> None:
    low, high = sorted((first, second))
    a, b, c = (
        bin_scores(score[part], columns(score)[part]) for part in (slice(0, low), slice(low, high), slice(high, None))
    )
    whole = coarsen(bin_scores(score, columns(score)), most)
    assert len(whole.key) <= most
    assert same(merge_within(merge_within(a, b, most), c, most), whole)
    assert same(merge_within(a, merge_within(b, c, most), most), whole)
    assert same(merge_within(whole, no_bins(2), most), whole)
    assert same(merge_within(no_bins(2), whole, most), whole)


@settings(max_examples=50)
@given(spread, st.integers(2, 12))
def test_coarsen__frees_no_more_bits_than_it_must(score: NDArray[np.float64], most: int) -> None:
    whole = bin_scores(score, columns(score))
    assert same(coarsen(whole, len(whole.key)), whole)
    found = coarsen(whole, most)
    assert np.array_equal(found.sums.sum(axis=0), whole.sums.sum(axis=0))
    free = int(found.free[0])
    assert same(found, bin_scores(score, columns(score), free=free))
    assert len(bin_scores(score, columns(score), free=free - 1).key) > most
