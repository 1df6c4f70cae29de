import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protodask.engine.reduction import GroupFold, Node, fold_nodes, merge_tree


def parenthesise(left: Any, right: Any) -> tuple[Any, Any]:
    """A merge that remembers how it was called."""
    return (left, right)


def tree_value(present: frozenset[int], level: int, index: int) -> Any:
    """The aligned binary tree over block numbers as it is defined; None below which there is no block."""
    if level == 0:
        return index if index in present else None
    left, right = tree_value(present, level - 1, 2 * index), tree_value(present, level - 1, 2 * index + 1)
    if left is None or right is None:
        return right if left is None else left
    return (left, right)


def root_value(numbers: list[int]) -> Any:
    return tree_value(frozenset(numbers), max(numbers).bit_length(), 0)


def fold_runs(runs: list[list[int]]) -> list[Node[Any]]:
    nodes: list[Node[Any]] = []
    for run in runs:
        fold = GroupFold(parenthesise)
        for number in run:
            fold.add(number, number)
        nodes += fold.nodes
    return nodes


@st.composite
def runs_of_blocks(draw: st.DrawFn) -> list[list[int]]:
    """Block numbers, with or without gaps, ascending, cut anywhere; some runs may be empty."""
    if draw(st.booleans()):
        numbers = list(range(draw(st.integers(1, 150))))
    else:
        numbers = sorted(draw(st.sets(st.integers(0, 200), min_size=1, max_size=60)))
    cuts = sorted(draw(st.lists(st.integers(0, len(numbers)), max_size=12)))
    return [numbers[first:last] for first, last in zip([0, *cuts], [*cuts, len(numbers)], strict=True)]


@given(runs_of_blocks(), st.randoms())
def test_merge_tree__of_any_grouping_is_the_aligned_tree(runs: list[list[int]], shuffler: random.Random) -> None:
    nodes = fold_runs(runs)
    shuffler.shuffle(nodes)  # tasks finish in any order
    assert merge_tree(nodes, parenthesise) == root_value([number for run in runs for number in run])


@given(runs_of_blocks(), st.randoms())
def test_fold_nodes__are_those_of_one_task_for_all(runs: list[list[int]], shuffler: random.Random) -> None:
    nodes = fold_runs(runs)
    shuffler.shuffle(nodes)
    assert fold_nodes(nodes, parenthesise) == fold_runs([[number for run in runs for number in run]])


@given(runs_of_blocks())
def test_group_fold__returns_the_value_of_each_whole_subtree(runs: list[list[int]]) -> None:
    for run in runs:
        for node in fold_runs([run]):
            covered = range(node.index << node.level, (node.index + 1) << node.level)
            assert set(covered) <= set(run)
            assert node.partial == tree_value(frozenset(run), node.level, node.index)


@given(st.integers(0, 500), st.integers(1, 300))
def test_group_fold__of_a_run_without_gaps_keeps_two_partials_a_level(first: int, length: int) -> None:
    nodes = fold_runs([list(range(first, first + length))])
    assert max(Counter(node.level for node in nodes).values()) <= 2
    assert sum(2**node.level for node in nodes) == length


def test_merge_tree__of_one_block_merges_nothing() -> None:
    assert merge_tree([Node(0, 37, "alone")], parenthesise) == "alone"


def test_merge_tree__of_no_block_is_refused() -> None:
    with pytest.raises(ValueError, match="no blocks"):
        merge_tree([], parenthesise)
