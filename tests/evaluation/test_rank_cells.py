"""Cells of neighbouring scores: the area they leave open, and how they are cut."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.scores import LARGEST, crowds, key_scores

from protodask.engine import add_records
from protodask.evaluation.rank_cells import (
    Cells,
    area_of_cells,
    bin_rows,
    cells_of_bins,
    cut_cells,
    find_cells,
    no_sums,
    refine_cells,
    sum_rows,
)
from protodask.evaluation.score_bins import bin_scores, score_keys

Floats = NDArray[np.float64]

scores = crowds() | st.lists(
    st.floats(allow_nan=False) | st.sampled_from([0.0, 0.5, np.nextafter(0.5, 1), 1.0]), min_size=2, max_size=60
).map(lambda values: np.array(values, dtype=np.float64))


def halves(score: Floats) -> NDArray[np.bool_]:
    return np.asarray(np.arange(len(score)) % 2 == 0)


def first_cells(score: Floats, most: int = 2**16, weight: Floats | None = None) -> Cells:
    return cells_of_bins(bin_rows(score, halves(score), weight, most))


def check(cells: Cells, score: Floats, weight: Floats) -> None:
    """Every row is in one cell, and cells hold what they say."""
    key, positive = score_keys(score), halves(score)
    assert (cells.lowest <= cells.highest).all()
    assert (cells.lowest[1:] > cells.highest[:-1]).all()
    for lowest, highest, above, below in zip(cells.lowest, cells.highest, cells.positive, cells.negative, strict=True):
        inside = (key >= lowest) & (key <= highest)
        assert {lowest, highest} <= set(key[inside])
        assert above == weight[inside & positive].sum()
        assert below == weight[inside & ~positive].sum()
    assert cells.positive.sum() + cells.negative.sum() == weight.sum()


@settings(max_examples=50)
@given(score=scores, most=st.integers(2, 10), places=st.integers(2, 200), weighted=st.booleans())
def test_refine_cells__ends_with_single_scores_in_few_passes(
    score: Floats, most: int, places: int, weighted: bool
) -> None:
    weight = np.where(np.arange(len(score)) % 3, 1.0, 0.25) if weighted else None
    counted = np.ones(len(score)) if weight is None else weight
    cells = first_cells(score, most, weight)
    check(cells, score, counted)
    _, error = area_of_cells(cells)
    passes = 0
    while (grid := cut_cells(cells, 0.0, places, 3)) is not None:
        assert 2 <= grid.n_places <= places
        cells = refine_cells(cells, grid, sum_rows(grid, score, halves(score), weight))
        check(cells, score, counted)
        before, error = error, area_of_cells(cells)[1]
        assert error <= before + 1e-15
        passes += 1
    assert error == 0
    assert passes <= 64 * len(score)
    ranks = np.unique(score, return_inverse=True)[1]
    pairs = np.sign(ranks[::2][:, None] - ranks[1::2]) / 2 + 0.5
    own, other = counted[::2], counted[1::2]
    assert area_of_cells(cells)[0] == pytest.approx(own @ pairs @ other / own.sum() / other.sum(), abs=1e-12)


@settings(max_examples=50)
@given(score=crowds(), sought=scores, most=st.integers(2, 20))
def test_find_cells__is_a_search_among_sorted_cells(score: Floats, sought: Floats, most: int) -> None:
    grid = cut_cells(first_cells(score, most), 0.0, 1000, 1)
    assert grid is not None
    beside = [np.nextafter(score, end) for end in (-LARGEST, LARGEST)]
    key = score_keys(np.concatenate([sought, score, *beside]))
    wanted = np.maximum(np.searchsorted(grid.lowest, key, side="right") - 1, 0)
    np.testing.assert_array_equal(find_cells(grid, key), wanted)


@settings(max_examples=50)
@given(score=crowds(), first=st.integers(0, 60), second=st.integers(0, 60))
def test_merge_sums__is_a_monoid(score: Floats, first: int, second: int) -> None:
    grid = cut_cells(first_cells(score, 4), 0.0, 100, 1)
    assert grid is not None
    low, high = sorted((first, second))
    positive, weight = halves(score), np.where(np.arange(len(score)) % 3, 1.0, 0.25)
    a, b, c = (
        sum_rows(grid, score[part], positive[part], weight[part])
        for part in (slice(0, low), slice(low, high), slice(high, None))
    )
    whole, none = sum_rows(grid, score, positive, weight), no_sums(grid.n_places)
    for merged in (
        add_records(add_records(a, b), c),
        add_records(a, add_records(b, c)),
        add_records(whole, none),
        add_records(none, whole),
    ):
        for name in ("weight", "lowest", "highest"):
            np.testing.assert_array_equal(getattr(merged, name), getattr(whole, name))


def even_cells(n_cells: int) -> Cells:
    """Of scores spread evenly from 1 to 2, half of them positives."""
    edges = score_keys(np.linspace(1, 2, n_cells + 1))
    return Cells(edges[:-1], edges[1:] - np.uint64(1), np.ones(n_cells), np.ones(n_cells))


@pytest.mark.parametrize("most_error", [1e-3, 1e-4, 1e-5])
def test_cut_cells__leaves_about_what_is_asked_for(most_error: float) -> None:
    cells = even_cells(100)
    assert area_of_cells(cells) == pytest.approx((0.5, 0.5 / 100))
    grid = cut_cells(cells, most_error, 10**6, 1)
    assert grid is not None
    places = np.diff(grid.first)
    left = 100 - len(places)  # cells that are not cut at all
    error = 0.5 * (np.sum(1 / places) + left) / 100**2
    assert 0.7 * most_error < error < most_error
    assert grid.n_places < 1.4 * 0.5 / most_error  # no fewer than 0.5 / most_error would do


def test_cut_cells__spreads_places_over_the_passes_that_are_left() -> None:
    cells = even_cells(100)
    for passes in (1, 2, 3):
        grid = cut_cells(cells, 1e-9, 1000, passes)
        assert grid is not None
        assert 800 < grid.n_places <= 1000
        assert np.diff(grid.first).mean() == pytest.approx(10 * passes, rel=0.25)


def test_cut_cells__leaves_alone_what_leaves_nothing_open() -> None:
    cells = even_cells(10)
    one_class = Cells(cells.lowest, cells.highest, np.ones(10), np.where(np.arange(10) == 3, 1.0, 0.0))
    grid = cut_cells(one_class, 0.0, 1000, 1)
    assert grid is not None
    np.testing.assert_array_equal(grid.lowest, cells.lowest[3:4])
    tied = Cells(cells.lowest, cells.lowest, np.ones(10), np.ones(10))
    assert cut_cells(tied, 0.0, 1000, 1) is None
    assert area_of_cells(tied) == (0.5, 0.0)


def test_cut_cells__prefers_cells_that_leave_more_open() -> None:
    heavy = np.where(np.arange(100) == 40, 1000.0, 1.0)
    cells = even_cells(100)
    grid = cut_cells(Cells(cells.lowest, cells.highest, heavy, heavy), 1e-4, 512, 1)
    assert grid is not None
    places = np.diff(grid.first)
    assert places[grid.lowest == cells.lowest[40]] >= 256
    assert places[grid.lowest != cells.lowest[40]].max(initial=0) <= 8


def test_area_of_cells__does_not_overflow() -> None:
    cells = even_cells(4)
    huge = Cells(cells.lowest, cells.highest, np.full(4, 1e300), np.full(4, 1e300))
    assert area_of_cells(huge) == area_of_cells(cells)


def test_bin_rows__of_many_slices_are_those_of_all_rows() -> None:
    random = np.random.default_rng(0)
    score = random.random(600_000).astype(np.float32)
    positive = random.random(600_000) < 0.5
    found = bin_rows(score, positive, None, 2**16)
    wanted = bin_scores(score, np.array([positive, ~positive], dtype=np.float64).T)
    for name in ("key", "free", "rows", "lowest", "highest", "sums"):
        np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name))
    grid = cut_cells(cells_of_bins(found), 0.0, 10_000, 1)
    assert grid is not None
    sums = sum_rows(grid, score, positive, None)
    assert sums.weight.sum() == 600_000
    assert key_scores(sums.lowest[:1])[0] == score[score_keys(score) >= grid.lowest[0]].min()
