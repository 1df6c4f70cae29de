"""The draw of candidates against the oracle's plain loops, and the check that comes before it."""

import math
from collections.abc import Callable, Iterator
from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from reference import candidates as oracle
from support.errors import refused

from protodask.engine import Block, Engine, array_source, thread_engine
from protodask.errors import Code, InputError
from protodask.errors import count as counted
from protodask.prototypes.candidates import (
    SCORES,
    Sample,
    allocate,
    check_classes,
    draw,
    is_correct,
    merge_samples,
    priority,
    sample_block,
    sample_of,
    sampling,
    smallest_class,
)

FRACTIONS = [0.01, 0.05, 0.1, 0.2, 0.25, 0.3, 1 / 3, 0.4, 0.5, 0.6, 2 / 3, 0.7, 0.75, 0.8, 0.9, 0.95, 0.98, 0.99]

Arrays = dict[str, NDArray[Any]]


@given(st.integers(0, 2**64 - 1), st.integers(1, 2**31), st.lists(st.integers(0, 2**62), min_size=1, max_size=20))
def test_priority__is_the_oracles(seed: int, batch: int, rows: list[int]) -> None:
    assert priority(seed, batch, np.array(rows, dtype=np.int64)).tolist() == oracle.priority(seed, batch, rows)


def test_priority__is_distinct_for_distinct_rows() -> None:
    assert len(np.unique(priority(3, 1, np.arange(100_000)))) == 100_000


@given(st.lists(st.integers(0, 300), min_size=2, max_size=40), st.integers(1, 2000), st.sampled_from(FRACTIONS))
def test_allocate__is_the_oracles(sizes: list[int], wanted: int, max_fraction: float) -> None:
    found = allocate(np.array(sizes), wanted, max_fraction)
    assert found.tolist() == oracle.allocate(sizes, wanted, max_fraction)


@given(st.lists(st.integers(0, 300), min_size=2, max_size=40), st.integers(1, 2000), st.sampled_from(FRACTIONS))
def test_allocate__is_the_rule_step_by_step(sizes: list[int], wanted: int, max_fraction: float) -> None:
    # With bins sorted, the level `r` is where sum_i min(r, eta g_i) reaches the number wanted.
    ceilings = [max_fraction * size for size in sizes]
    low, high = 0.0, float(wanted)
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(min(middle, top) for top in ceilings) < wanted else (low, middle)
    found = allocate(np.array(sizes), wanted, max_fraction)
    exact = np.minimum(high, ceilings)
    assert (np.abs(found - exact) <= 0.5 + 1e-6).all()


@pytest.mark.parametrize("unlucky", [0, 1])
@pytest.mark.parametrize("others", [0, 40])
@pytest.mark.parametrize("most", [1, 3, 40])
def test_sample_of__has_the_smallest_of_a_bin_whose_priorities_are_all_large(
    unlucky: int, others: int, most: int
) -> None:
    rows = np.argsort(priority(5, 1, np.arange(4000)))
    rows = np.sort(np.concatenate([rows[-40:], rows[1::100][:others]]))  # the largest, and some of all sizes
    drawn = priority(5, 1, rows)
    bins = np.where(drawn >= np.sort(drawn)[-40], unlucky, 1 - unlucky)
    found = sample_of(rows, bins, 2, 5, 1, most)
    ordered = [rows[bins == number][np.argsort(drawn[bins == number])][:most] for number in (0, 1)]
    assert found.rows.tolist() == np.concatenate(ordered).tolist()
    assert found.counts.tolist() == np.bincount(bins, minlength=2).tolist()


def random_arrays(seed: int, n_rows: int, n_classes: int, scored: bool, weighted: bool) -> Arrays:
    rng = np.random.default_rng(seed)
    arrays: Arrays = {"target": rng.integers(0, n_classes, n_rows).astype(np.int32)}
    if scored:
        # Of few values, so that classes tie.
        arrays[SCORES] = rng.integers(1, 4, (n_rows, n_classes)).astype(np.float64)
    if weighted:
        arrays["weight"] = rng.integers(0, 3, n_rows).astype(np.float64)
    return arrays


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**20),
    n_rows=st.integers(1, 120),
    n_classes=st.integers(2, 6),
    scored=st.booleans(),
    weighted=st.booleans(),
    block_rows=st.sampled_from([1, 4, 32, 128]),
    wanted=st.integers(1, 80),
    max_fraction=st.sampled_from(FRACTIONS),
)
def test_draw__is_the_oracles_for_any_block_size(
    engine: Engine,
    seed: int,
    n_rows: int,
    n_classes: int,
    scored: bool,
    weighted: bool,
    block_rows: int,
    wanted: int,
    max_fraction: float,
) -> None:
    arrays = random_arrays(seed, n_rows, n_classes, scored, weighted)
    marginals = np.random.default_rng(seed).dirichlet(np.ones(n_classes))
    sample = engine.reduce(array_source(arrays, block_rows), sampling(wanted), marginals, seed, 2, wanted)
    q = arrays.get(SCORES, np.tile(marginals, (n_rows, 1)))
    weights = arrays.get("weight", np.ones(n_rows))
    expected = oracle.draw_candidates(q, arrays["target"].astype(np.int64), weights, wanted, max_fraction, seed, 2)
    assert draw(sample, wanted, max_fraction).tolist() == sorted(expected.tolist())
    bins = oracle.bins(q, arrays["target"].astype(np.int64), weights)
    assert sample.counts.tolist() == [int((bins == number).sum()) for number in range(2 * n_classes)]


def blocks_of(arrays: Arrays, edges: list[int]) -> Iterator[Block]:
    for number, (first, last) in enumerate(pairwise(edges)):
        yield Block(number, first, {name: values[first:last] for name, values in arrays.items()})


def same(left: Sample, right: Sample) -> bool:
    return all(
        np.array_equal(getattr(left, name), getattr(right, name)) for name in ("counts", "bins", "priority", "rows")
    )


@given(seed=st.integers(0, 2**20), most=st.integers(1, 10), cuts=st.lists(st.integers(0, 60), max_size=5))
def test_merge_samples__is_a_monoid(seed: int, most: int, cuts: list[int]) -> None:
    arrays = random_arrays(seed, 60, 3, True, True)
    marginals = np.full(3, 1 / 3)
    whole = sample_block(Block(0, 0, arrays), marginals, seed, 1, most)
    edges = [0, *sorted(cuts), 60]
    parts = [sample_block(block, marginals, seed, 1, most) for block in blocks_of(arrays, edges)]
    forward = reduce(lambda left, right: merge_samples(most, left, right), parts)
    backward = reduce(lambda left, right: merge_samples(most, right, left), reversed(parts))
    assert same(forward, whole)
    assert same(backward, whole)


@given(st.integers(0, 2**20), st.integers(1, 8))
def test_is_correct__is_strict(seed: int, n_classes: int) -> None:
    rng = np.random.default_rng(seed)
    scores, target = rng.integers(0, 3, (30, n_classes)).astype(np.float64), rng.integers(0, n_classes, 30)
    before = scores.copy()
    expected = [all(scores[n, target[n]] > scores[n, k] for k in range(n_classes) if k != target[n]) for n in range(30)]
    assert is_correct(scores, target).tolist() == expected
    np.testing.assert_array_equal(scores, before)


def drawn_of_class(correct: int, wrong: int, max_fraction: float) -> int:
    return sum(math.floor(max_fraction * size + 0.5) for size in (correct, wrong))


@pytest.mark.parametrize("max_fraction", FRACTIONS)
def test_smallest_class__always_leaves_a_row_to_draw_and_one_to_score(max_fraction: float) -> None:
    least = smallest_class(max_fraction)
    assert least == oracle.minimum_count(max_fraction)
    for count in range(least, least + 6):
        taken = [drawn_of_class(correct, count - correct, max_fraction) for correct in range(count + 1)]
        assert min(taken) >= 1
        assert max(taken) < count
    fewer = [drawn_of_class(correct, least - 1 - correct, max_fraction) for correct in range(least)]
    assert min(fewer) < 1 or max(fewer) >= least - 1


@settings(max_examples=25)
@given(st.data())
def test_draw__of_classes_that_pass_the_check_leaves_both_whatever_is_wanted(data: st.DataObject) -> None:
    max_fraction = data.draw(st.sampled_from([0.2, 0.5, 0.8]))
    least = smallest_class(max_fraction)
    sizes = []
    for _ in range(data.draw(st.integers(2, 4))):
        count = data.draw(st.integers(least, least + 20))
        correct = data.draw(st.integers(0, count))
        sizes += [count - correct, correct]
    found = allocate(np.array(sizes), 10**6, max_fraction)
    for wrong, right in zip(found[::2], found[1::2], strict=True):
        position = int(np.flatnonzero((found[::2] == wrong) & (found[1::2] == right))[0])
        assert 1 <= wrong + right < sizes[2 * position] + sizes[2 * position + 1]


@given(st.sampled_from(FRACTIONS), st.integers(0, 2))
def test_check_classes__names_the_rare_classes_their_counts_and_the_least_that_would_do(
    max_fraction: float, missing: int
) -> None:
    least = smallest_class(max_fraction)
    rows = np.array([least, max(least - 1 - missing, 1), least + 5])
    if least == 1:
        check_classes(rows, ("a", "b", "c"), max_fraction)
        return
    few, enough = counted(int(rows[1]), "row"), counted(least, "row")
    with refused("too-few", f"'b' ({few})", f"at least {enough} of positive weight") as e:
        check_classes(rows, ("a", "b", "c"), max_fraction)
    assert "'a'" not in str(e.value)
    assert "'c'" not in str(e.value)


def test_check_classes__names_all_rare_classes() -> None:
    with refused("too-few", "'x' (0 rows), 7 (2 rows)", "at least 3 rows"):
        check_classes(np.array([0, 9, 2, 9]), ("x", "y", 7, True), 0.5)


def test_check_classes__names_few_of_many_rare_classes() -> None:
    with pytest.raises(InputError) as caught:
        check_classes(np.ones(500, dtype=np.int64), range(500), 0.5)
    assert caught.value.seen.endswith("8 (1 row), 9 (1 row) and 490 more.")


@pytest.mark.parametrize(
    ("rows", "max_fraction", "helps"), [(2, 0.5, False), (2, 0.1, False), (3, 0.1, True), (8, 0.9, True)]
)
def test_check_classes__advises_another_share_only_where_it_can_help(
    rows: int, max_fraction: float, helps: bool
) -> None:
    with pytest.raises(InputError) as caught:
        check_classes(np.array([1000, rows]), ("a", "b"), max_fraction)
    assert ("closer to 0.5" in caught.value.remedy) == helps


def test_check_classes__of_enough_rows_says_nothing() -> None:
    check_classes(np.array([3, 3, 1000]), ("a", "b", "c"), 0.5)


@pytest.mark.parametrize(
    ("rows", "code", "seen"), [([5, 0], "one-class", "'a'"), ([0, 0], "no-rows", "positive weight")]
)
def test_check_classes__needs_two_classes(rows: list[int], code: Code, seen: str) -> None:
    with refused(code, seen):
        check_classes(np.array(rows), ("a", "b"), 0.5)


def test_training__with_a_class_too_rare_says_so_before_any_pass(
    make_rows: Callable[..., Arrays], training_data: Callable[..., Any]
) -> None:
    from protodask.prototypes.config import FitConfig
    from protodask.prototypes.scores import MemoryScores
    from protodask.prototypes.training import Training

    arrays = make_rows(60, n_classes=3)
    arrays["target"][arrays["target"] == 2] = 0
    arrays["target"][:2] = 2
    data = training_data(arrays, n_classes=3)
    labels: list[str] = []
    with thread_engine(1) as engine:
        watched = engine.with_progress(lambda event: labels.append(event.label))
        with refused("too-few", "class 2 (2 rows)", "at least 3 rows"):
            Training(data, FitConfig.of("source", n_candidates=10), watched, MemoryScores()).run()
    assert labels == []
