"""Folds against what defines them: even shares of every class, whole groups, nothing that depends on the cutting."""

import pickle
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedGroupKFold
from support.errors import refused

from protodask.engine import Block, Engine, Layout, Source, array_source, thread_engine, zip_sources
from protodask.engine.sources import DerivedSource
from protodask.errors import InputError
from protodask.prototypes import folds as module
from protodask.prototypes.folds import (
    FoldAssignment,
    GroupCounts,
    check_training_parts,
    count_groups,
    folded_source,
    make_folds,
    merge_groups,
)

Arrays = dict[str, NDArray[Any]]
ENGINE = Engine()


def all_folds(assignment: FoldAssignment, source: Source) -> NDArray[np.int8]:
    return np.concatenate([assignment.folds(source.read(number)) for number in range(source.layout.n_blocks)])


def counts_of(found: NDArray[np.int8], target: NDArray[Any], n_folds: int, n_classes: int) -> NDArray[np.int64]:
    table = np.zeros((n_folds, n_classes), dtype=np.int64)
    for fold, code in zip(found.tolist(), target.tolist(), strict=True):
        table[fold, code] += 1
    return table


@dataclass(frozen=True)
class Case:
    """Rows of some classes, in which every class has enough."""

    arrays: Arrays
    n_classes: int
    n_folds: int
    seed: int

    @property
    def counted(self) -> NDArray[np.bool_]:
        weight = self.arrays.get("weight")
        return np.ones(len(self.arrays["target"]), dtype=np.bool_) if weight is None else weight > 0


@st.composite
def cases(draw: st.DrawFn, groups: int = 0) -> Case:
    n_folds, n_classes = draw(st.integers(2, 7)), draw(st.integers(1, 5))
    extra = draw(st.lists(st.integers(0, 40), min_size=n_classes, max_size=n_classes))
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    target = np.repeat(np.arange(n_classes), n_folds + np.array(extra)).astype(np.int32)
    weight = None
    if draw(st.booleans()):
        # Rows of weight zero in between, which must not count.
        zero = generator.integers(0, n_classes, draw(st.integers(0, 20))).astype(np.int32)
        weight = np.concatenate([generator.uniform(0.5, 2, len(target)), np.zeros(len(zero))])
        target = np.concatenate([target, zero])
    order = generator.permutation(len(target))
    arrays: Arrays = {"target": target[order]}
    if weight is not None:
        arrays["weight"] = weight[order]
    if groups:
        arrays["group"] = generator.integers(0, groups, len(target)) * 7919 + 2**60
    return Case(arrays, n_classes, n_folds, draw(st.integers(-5, 2**64)))


BLOCK_ROWS = st.integers(0, 8).map(lambda exponent: 2**exponent)


@given(cases(), BLOCK_ROWS)
def test_row_folds__of_a_class_differ_by_one_row_at_most(case: Case, block_rows: int) -> None:
    source = array_source(case.arrays, block_rows)
    assignment = make_folds(ENGINE, source, case.n_classes, case.n_folds, case.seed)
    found = all_folds(assignment, source)
    assert found.dtype == np.int8
    assert set(found.tolist()) <= set(range(case.n_folds))
    table = counts_of(found[case.counted], case.arrays["target"][case.counted], case.n_folds, case.n_classes)
    assert (table.max(axis=0) - table.min(axis=0) <= 1).all()
    np.testing.assert_array_equal(assignment.class_rows, table)


@given(cases())
def test_row_folds__of_each_run_of_a_class_are_a_permutation(case: Case) -> None:
    source = array_source(case.arrays, 16)
    found = all_folds(make_folds(ENGINE, source, case.n_classes, case.n_folds, case.seed), source)
    for code in range(case.n_classes):
        of_class = found[case.counted & (case.arrays["target"] == code)].tolist()
        for first in range(0, len(of_class) - case.n_folds + 1, case.n_folds):
            assert sorted(of_class[first : first + case.n_folds]) == list(range(case.n_folds))


@settings(max_examples=50)
@given(cases(), BLOCK_ROWS, BLOCK_ROWS, st.integers(1, 3))
def test_row_folds__are_the_same_for_any_blocks_and_threads(case: Case, one: int, other: int, threads: int) -> None:
    found = []
    for block_rows, n_threads in ((one, 1), (other, threads)):
        source = array_source(case.arrays, block_rows)
        with thread_engine(threads=n_threads) as engine:
            found.append(all_folds(make_folds(engine, source, case.n_classes, case.n_folds, case.seed), source))
    np.testing.assert_array_equal(found[0], found[1])


@settings(max_examples=50)
@given(cases(), cases(), BLOCK_ROWS)
def test_row_folds__of_rows_stay_when_others_are_appended(case: Case, more: Case, block_rows: int) -> None:
    head = {"weight": case.counted.astype(float), "target": case.arrays["target"]}
    tail = {"weight": more.counted.astype(float), "target": more.arrays["target"] % case.n_classes}
    both = {name: np.concatenate([head[name], tail[name]]) for name in head}
    before, after = array_source(head, block_rows), array_source(both, block_rows)
    old = all_folds(make_folds(ENGINE, before, case.n_classes, case.n_folds, case.seed), before)
    new = all_folds(make_folds(ENGINE, after, case.n_classes, case.n_folds, case.seed), after)
    np.testing.assert_array_equal(new[: len(old)], old)


def test_row_folds__are_equally_likely_wherever_a_row_stands() -> None:
    target = np.repeat(np.arange(2, dtype=np.int32), 60_000)
    source = array_source({"target": target}, 2**14)
    found = all_folds(make_folds(ENGINE, source, 2, 5, 1), source).reshape(2, -1, 5)
    for of_class in found:
        for place in range(5):
            # 12,000 draws with probability 1/5: a standard deviation of 44.
            assert abs(np.bincount(of_class[:, place], minlength=5) - 2400).max() < 200
    assert (found[0] == found[1]).mean() == pytest.approx(1 / 5, abs=0.02)  # classes have draws of their own


def test_row_folds__of_another_seed_are_others() -> None:
    source = array_source({"target": np.zeros(1000, dtype=np.int32)}, 64)
    one, other = (make_folds(ENGINE, source, 1, 5, seed) for seed in (0, 1))
    assert (all_folds(one, source) == all_folds(other, source)).mean() < 0.3
    assert one.key != other.key
    assert one.key == make_folds(ENGINE, source, 1, 5, 0).key
    assert one.key != make_folds(ENGINE, source, 1, 4, 0).key


@pytest.mark.parametrize("grouped", [False, True])
def test_folds__are_the_same_after_pickling(grouped: bool) -> None:
    arrays: Arrays = {"target": np.arange(400, dtype=np.int32) % 3, "group": np.arange(400) // 2}
    source = array_source(arrays, 64)
    assignment = make_folds(ENGINE, source, 3, grouped=grouped)
    again = pickle.loads(pickle.dumps(assignment))
    assert again.key == assignment.key
    np.testing.assert_array_equal(all_folds(again, source), all_folds(assignment, source))


def test_make_folds__names_a_class_with_too_few_rows() -> None:
    target = np.array([0] * 10 + [1] * 4, dtype=np.int32)
    source = array_source({"target": target}, 8)
    with refused("too-few", "'rare'", "4 rows", "5 folds", "at most 4 folds"):
        make_folds(ENGINE, source, 2, classes=["common", "rare"])
    assert make_folds(ENGINE, source, 2, 4).class_rows[:, 1].tolist() == [1, 1, 1, 1]
    weighted = array_source({"target": target, "weight": np.where(np.arange(14) < 11, 1.0, 0.0)}, 8)
    with refused("too-few", "Class 1", "1 row", "positive weight", "merge or drop"):
        make_folds(ENGINE, weighted, 2)


@pytest.mark.parametrize("n_folds", [-1, 0, 1, 101])
def test_make_folds__refuses_a_number_of_folds_that_makes_no_sense(n_folds: int) -> None:
    with refused("bad-setting", n_folds, "2 to 100"):
        make_folds(ENGINE, array_source({"target": np.zeros(500, dtype=np.int32)}), 1, n_folds)


def test_make_folds__refuses_data_without_rows_or_groups() -> None:
    with refused("no-rows"):
        make_folds(ENGINE, array_source({"target": np.zeros(0, dtype=np.int32)}, 4), 1)
    with refused("column-missing", "`group`"):
        make_folds(ENGINE, array_source({"target": np.zeros(9, dtype=np.int32)}, 4), 1, grouped=True)


def test_check_training_parts__wants_what_training_wants() -> None:
    # With eta = 1/2 training needs 3 rows of each class; of 5 rows in 2 folds, 2 are left without the larger fold.
    target = np.array([0] * 20 + [1] * 5, dtype=np.int32)
    source = array_source({"target": target}, 8)
    with refused("too-few", "2 folds", "2 rows", "'b'", "`max_fraction` 0.5", "needs 3", "Ask for other folds, add"):
        check_training_parts(make_folds(ENGINE, source, 2, 2), ["a", "b"], 0.5)
    few = array_source({"target": target[:23]}, 8)  # 3 rows, of which 2 are left in the best case
    with refused("too-few", "needs 3. Folds of any number hold out one of its rows at least: add rows"):
        check_training_parts(make_folds(ENGINE, few, 2, 3), ["a", "b"], 0.5)
    check_training_parts(make_folds(ENGINE, source, 2, 5), ["a", "b"], 0.5)


# --- groups


@settings(max_examples=60)
@given(cases(groups=60), BLOCK_ROWS)
def test_group_folds__never_split_a_group(case: Case, block_rows: int) -> None:
    source = array_source(case.arrays, block_rows)
    try:
        assignment = make_folds(ENGINE, source, case.n_classes, case.n_folds, case.seed, grouped=True)
    except InputError:
        event("refused")  # too few groups have some class
        return
    found, counted = all_folds(assignment, source), case.counted
    for group in np.unique(case.arrays["group"][counted]):
        assert len(set(found[counted & (case.arrays["group"] == group)].tolist())) == 1
    table = counts_of(found[counted], case.arrays["target"][counted], case.n_folds, case.n_classes)
    assert (table > 0).all()
    np.testing.assert_array_equal(assignment.class_rows, table)
    whole = array_source(case.arrays, 2 * block_rows)
    again = make_folds(ENGINE, whole, case.n_classes, case.n_folds, case.seed, grouped=True)
    np.testing.assert_array_equal(all_folds(again, whole), found)


def unevenness(table: NDArray[np.int64]) -> float:
    """Sum of the squared deviations of the folds' shares of the classes."""
    shares = table / table.sum(axis=0)
    return float(np.square(shares - 1 / len(table)).sum())


@pytest.mark.parametrize("seed", range(5))
def test_group_folds__are_about_as_even_as_those_of_scikit_learn(seed: int) -> None:
    generator = np.random.default_rng(seed)
    sizes = generator.geometric(0.03, 120)
    group = np.repeat(np.arange(120), sizes)
    share = generator.beta(0.5, 0.9, 120)[group]
    target = (generator.random(len(group)) < share).astype(np.int32)
    source = array_source({"target": target, "group": group}, 256)
    found = make_folds(ENGINE, source, 2, 5, seed, grouped=True).class_rows
    theirs = np.array(
        [
            np.bincount(target[test], minlength=2)
            for _, test in StratifiedGroupKFold(5).split(np.zeros((len(group), 1)), target, group)
        ]
    )
    assert unevenness(found) <= 1.5 * unevenness(theirs) + 1e-5
    assert abs(found / found.sum(axis=0) - 0.2).max() < 0.01


def test_group_folds__share_out_a_rare_class_as_evenly_as_a_common_one() -> None:
    sizes = np.random.default_rng(0).integers(30, 70, 20)
    group = np.concatenate([np.repeat(np.arange(20), sizes), np.arange(10)])
    target = np.repeat([0, 1], [sizes.sum(), 10]).astype(np.int32)
    source = array_source({"target": target, "group": group}, 256)
    for seed in range(3):
        assert make_folds(ENGINE, source, 2, 5, seed, grouped=True).class_rows[:, 1].tolist() == [2] * 5


def test_group_folds__of_one_row_each_are_even_to_a_row() -> None:
    target = np.arange(103, dtype=np.int32) % 2
    source = array_source({"target": target, "group": np.arange(103)}, 32)
    rows = make_folds(ENGINE, source, 2, grouped=True).class_rows
    assert (rows.max(axis=0) - rows.min(axis=0)).tolist() == [1, 1]


def test_group_folds__of_more_groups_than_told_apart_join_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_GROUPS", 50)
    generator = np.random.default_rng(0)
    target, group = generator.integers(0, 3, 6000).astype(np.int32), generator.integers(0, 2000, 6000)
    arrays: Arrays = {"target": target, "group": group}
    assignments = []
    for block_rows in (64, 512, 8192):
        source = array_source(arrays, block_rows)
        assignment = make_folds(ENGINE, source, 3, grouped=True)
        assignments.append(assignment)
        found = all_folds(assignment, source)
        assert all(len(set(found[group == code].tolist())) == 1 for code in np.unique(group))
        np.testing.assert_array_equal(assignment.class_rows, counts_of(found, target, 5, 3))
        assert abs(assignment.class_rows / assignment.class_rows.sum(axis=0) - 0.2).max() < 0.03
    assert len({assignment.key for assignment in assignments}) == 1


def same(left: GroupCounts, right: GroupCounts) -> bool:
    return (
        left.bits == right.bits
        and np.array_equal(left.groups, right.groups)
        and np.array_equal(left.rows, right.rows)
        and len(left.groups) == len(left.rows)
    )


@given(st.lists(st.integers(0, 40), max_size=60), st.lists(st.integers(0, 60), max_size=4), st.integers(2, 30))
def test_group_counts__merge_as_a_monoid(groups: list[int], cuts: list[int], most: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MAX_GROUPS", most)
        target = np.arange(len(groups)) % 3

        def part(first: int, last: int) -> GroupCounts:
            arrays = {"group": np.array(groups[first:last], dtype=np.int64), "target": target[first:last]}
            return count_groups(Block(0, 0, arrays), 3)

        edges = sorted({0, len(groups), *(min(cut, len(groups)) for cut in cuts)})
        parts = [part(first, last) for first, last in pairwise(edges)] or [part(0, 0)]
        whole = part(0, len(groups))
        assert same(reduce(merge_groups, parts), whole)
        assert same(reduce(lambda right, left: merge_groups(left, right), reversed(parts)), whole)
        assert same(merge_groups(part(0, 0), whole), whole)
        assert len(whole.groups) <= most
        assert whole.rows.sum(axis=0).tolist() == np.bincount(target, minlength=3).tolist()


def test_group_folds__refuse_a_class_in_too_few_groups() -> None:
    arrays: Arrays = {"target": np.array([0, 1] * 20 + [0] * 20, dtype=np.int32), "group": np.repeat(np.arange(6), 10)}
    source = array_source(arrays, 16)
    with refused("too-few", "'b'", "4 groups", "5 folds", "at most 4 folds"):
        make_folds(ENGINE, source, 2, grouped=True, classes=["a", "b"])


def test_group_folds__refuse_a_fold_that_lacks_a_class() -> None:
    target = np.array([0] * 8 + [1] * 8 + [2] * 8, dtype=np.int32)
    group = np.array([1] * 4 + [2] * 4 + [2] * 4 + [3] * 4 + [3] * 4 + [1] * 4)
    # Groups 1, 2 and 3 hold the classes {0, 2}, {0, 1} and {1, 2}: of two folds one has a single group and two classes.
    source = array_source({"target": target, "group": group}, 8)
    with refused("too-few", "of 2", "no row of class", "fewer folds", "another seed"):
        make_folds(ENGINE, source, 3, 2, grouped=True)


# --- the source with its folds


class Stored:
    """What reads like a dataset: not in this process's memory, and it counts how often it is read."""

    def __init__(self, arrays: Arrays, block_rows: int, key: str) -> None:
        self._inner = array_source(arrays, block_rows)
        self.key = key
        self.resident = False
        self.reads = 0

    @property
    def layout(self) -> Layout:
        return self._inner.layout

    def read(self, number: int) -> Block:
        self.reads += 1
        return self._inner.read(number)


def rows(n: int = 200) -> Arrays:
    generator = np.random.default_rng(3)
    return {"features": generator.normal(size=(n, 2)), "target": (np.arange(n) % 3).astype(np.int32)}


def fold_of_all(source: Source) -> NDArray[np.int8]:
    return np.concatenate([source.read(number)["fold"] for number in range(source.layout.n_blocks)])


def test_folded_source__of_a_store_adds_the_folds_to_its_blocks() -> None:
    stored = Stored(rows(), 64, "abc")
    assignment = make_folds(ENGINE, stored, 3)
    folded = folded_source(stored, assignment)
    assert isinstance(folded, DerivedSource)
    assert folded.key.startswith("abc")
    assert assignment.key in folded.key
    assert not folded.resident
    assert folded.layout == stored.layout
    block = folded.read(1)
    assert set(block.arrays) == {"features", "target", "fold"}
    assert (block.number, block.start) == (1, 64)
    np.testing.assert_array_equal(fold_of_all(folded), all_folds(assignment, stored))


def test_folded_source__of_memory_finds_the_folds_once() -> None:
    source = array_source(rows(), 64)
    assignment = make_folds(ENGINE, source, 3)
    folded = folded_source(source, assignment)
    assert folded.resident
    assert folded.key == folded_source(source, assignment).key
    assert folded.key != folded_source(source, make_folds(ENGINE, source, 3, seed=1)).key
    assert np.shares_memory(folded.read(2)["fold"], folded.read(2)["fold"])
    np.testing.assert_array_equal(fold_of_all(folded), all_folds(assignment, source))


def test_folded_source__of_zipped_sources_wraps_what_has_the_target() -> None:
    scores = Stored({"scores": np.zeros((200, 3))}, 64, "scores")
    stored = Stored(rows(), 64, "abc")
    assignment = make_folds(ENGINE, stored, 3)
    folded = folded_source(zip_sources(scores, stored), assignment)
    before = scores.reads
    np.testing.assert_array_equal(fold_of_all(folded), all_folds(assignment, stored))
    assert set(folded.read(0).arrays) == {"features", "target", "fold", "scores"}
    wrapped = [leaf for leaf in getattr(folded, "parts", ()) if isinstance(leaf, DerivedSource)]
    assert [leaf.base for leaf in wrapped] == [stored]
    assert scores.reads > before


def test_folded_source__takes_the_weights_from_another_source_if_they_are_there() -> None:
    weight = np.where(np.arange(200) % 7 == 0, 0.0, 1.0)
    both = zip_sources(Stored(rows(), 64, "abc"), Stored({"weight": weight}, 64, "weights"))
    assignment = make_folds(ENGINE, both, 3)
    folded = folded_source(both, assignment)
    np.testing.assert_array_equal(fold_of_all(folded), all_folds(assignment, both))
    table = counts_of(fold_of_all(folded)[weight > 0], rows()["target"][weight > 0], 5, 3)
    np.testing.assert_array_equal(table, assignment.class_rows)


def test_folded_source__serves_a_reduction() -> None:
    stored = Stored(rows(), 16, "blocks of 16")
    assignment = make_folds(ENGINE, stored, 3)
    with thread_engine(threads=2) as engine:
        found = engine.collect(folded_source(stored, assignment), _fold_and_target)
    np.testing.assert_array_equal(counts_of(found["fold"], found["target"], 5, 3), assignment.class_rows)


def _fold_and_target(block: Block) -> Arrays:
    return {name: block[name] for name in ("fold", "target")}
