"""Distributed statistics as records of pure functions, and the fixed tree that merges their partials."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

Partial = TypeVar("Partial")
Result = TypeVar("Result")


def identity(value: Partial) -> Partial:
    """The `finish` of a statistic whose merged partial is the result."""
    return value


@dataclass(frozen=True, slots=True)
class Reduction(Generic[Partial, Result]):
    """A statistic over blocks: `finish(merge(... map(block, *args) ...))`.

    `merge` must be associative; neither function may change its arguments. The functions are pickled by name when a
    cluster runs them, so they live at module level. `prepare(*args)` returns the arguments that `map` gets in their
    place; it runs once for each process or task, for what is costly to derive and costlier to send. One that
    `writes` does more than to compute.
    """

    map: Callable[..., Partial]
    merge: Callable[[Partial, Partial], Partial]
    finish: Callable[[Partial], Result]
    prepare: Callable[..., tuple[Any, ...]] | None = None
    writes: bool = False


@dataclass(frozen=True, slots=True)
class Node(Generic[Partial]):
    """The merged partial of the blocks `index * 2**level .. (index + 1) * 2**level` that took part."""

    level: int
    index: int
    partial: Partial


Merge = Callable[[Any, Any], Any]


class GroupFold:
    """Merges the leaves of one task as they come, in block order, wherever both halves of a tree node are complete.

    What is left are the partials of the largest whole subtrees inside the task's blocks, at most two for each level.
    """

    def __init__(self, merge: Merge) -> None:
        self._merge = merge
        self._nodes: list[Node[Any]] = []

    def add(self, number: int, partial: Any) -> None:
        self.add_node(Node(0, number, partial))

    def add_node(self, node: Node[Any]) -> None:
        """Add what is merged already of the blocks that follow."""
        while self._nodes and _are_siblings(self._nodes[-1], node):
            left = self._nodes.pop()
            node = Node(node.level + 1, node.index // 2, self._merge(left.partial, node.partial))
        self._nodes.append(node)

    @property
    def nodes(self) -> list[Node[Any]]:
        return list(self._nodes)


def fold_nodes(nodes: Iterable[Node[Any]], merge: Merge) -> list[Node[Any]]:
    """Merge nodes of different blocks, in any order, wherever both halves of a tree node are complete."""
    fold = GroupFold(merge)
    for node in sorted(nodes, key=lambda node: node.index << node.level):  # by their first blocks
        fold.add_node(node)
    return fold.nodes


def _are_siblings(left: Node[Any], right: Node[Any]) -> bool:
    return left.level == right.level and right.index == left.index + 1 and left.index % 2 == 0


def merge_tree(nodes: Iterable[Node[Any]], merge: Merge) -> Any:
    """Merge nodes up to the root of the aligned binary tree over block numbers.

    The value at a tree node depends on the blocks below it alone: two present halves are merged, a lone half moves up
    unchanged. So any grouping of blocks into tasks gives the same bits.
    """
    found = fold_nodes(nodes, merge)
    if not found:
        raise ValueError("a reduction over no blocks has no value")
    while len(found) > 1:
        level = min(node.level for node in found)
        fold = GroupFold(merge)
        for node in found:
            fold.add_node(Node(level + 1, node.index // 2, node.partial) if node.level == level else node)
        found = fold.nodes
    return found[0].partial
