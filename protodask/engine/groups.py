"""What one task does: read a group of blocks through a cache, map each, merge what belongs together."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from protodask.engine.blas import one_blas_thread
from protodask.engine.blocks import Block
from protodask.engine.reduction import GroupFold, Merge, Node
from protodask.engine.sources import Source, assemble, leaves


@dataclass(frozen=True)
class Pass:
    """One pass over (some blocks of) a source: everything a task needs but its block numbers."""

    source: Source
    map: Callable[..., Any]
    merge: Merge
    args: tuple[Any, ...]
    prepare: Callable[..., tuple[Any, ...]] | None = None
    label: str = ""
    """What it is for, where progress is shown."""
    writes: bool = False
    """Whether it writes: its partials reach the driver one by one then, and none is made anew after that."""

    def prepared(self) -> Pass:
        """The same pass with the arguments that `map` gets."""
        if self.prepare is None:
            return self
        return replace(self, args=self.prepare(*self.args), prepare=None)


class BlockCache:
    """Keeps blocks up to a budget.

    Training reads the same blocks in the same order hundreds of times; evicting the least recently used block would
    then evict each one just before it is needed. So a full cache keeps what it holds and turns newcomers away, and
    only blocks that the current pass does not read make room.
    """

    def __init__(self, budget_bytes: int) -> None:
        self.budget_bytes = budget_bytes
        self.held_bytes = 0
        self._blocks: OrderedDict[tuple[str, int], Block] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._blocks)

    def get(self, key: str, number: int) -> Block | None:
        with self._lock:
            return self._blocks.get((key, number))

    def offer(self, key: str, block: Block, active: Collection[str], own: Collection[int] | None = None) -> bool:
        """Keep a block if there is room, or room can be made among sources that are not `active`, or among their blocks
        that are not this process's `own`, where those are said.
        """
        size = block.nbytes
        with self._lock:
            if (key, block.number) in self._blocks:
                return True
            if size > self.budget_bytes:
                return False
            self._evict(self.held_bytes + size - self.budget_bytes, active, own)
            if self.held_bytes + size > self.budget_bytes:
                return False
            self._blocks[key, block.number] = block
            self.held_bytes += size
            return True

    def _evict(self, wanted: int, active: Collection[str], own: Collection[int] | None) -> None:
        """Make so much room, as far as that goes."""
        most = self.held_bytes - wanted
        for key, number in list(self._blocks) if wanted > 0 else ():
            if self.held_bytes > most and (key not in active or (own is not None and number not in own)):
                self.held_bytes -= self._blocks.pop((key, number)).nbytes

    def drop(self, key: str) -> None:
        """Let go of all blocks of a source."""
        with self._lock:
            for entry in [entry for entry in self._blocks if entry[0] == key]:
                self.held_bytes -= self._blocks.pop(entry).nbytes

    def clear(self) -> None:
        with self._lock:
            self._blocks.clear()
            self.held_bytes = 0


@dataclass(frozen=True)
class Reader:
    """Reads blocks through a cache, the next one ahead of time while the kernel works on this one."""

    cache: BlockCache
    executor: Executor
    own: frozenset[int] | None = None
    """Blocks that this process takes of the sources it reads; None where it takes all."""

    def _read(self, source: Source, parts: Sequence[Source], number: int) -> Block:
        """A block of a source of which the leaves are given."""
        blocks = {leaf.key: self._read_leaf(leaf, number, parts) for leaf in parts}
        return assemble(source, lambda leaf: blocks[leaf.key])

    def _read_leaf(self, leaf: Source, number: int, parts: Sequence[Source]) -> Block:
        if leaf.resident:
            return leaf.read(number)
        block = self.cache.get(leaf.key, number)
        if block is None:
            block = leaf.read(number)
            self.cache.offer(leaf.key, block, {one.key for one in parts}, self.own)
        return block

    def stream(self, source: Source, numbers: Sequence[int]) -> Iterator[Block]:
        parts = leaves(source)
        if all(leaf.resident or self.cache.get(leaf.key, number) is not None for number in numbers for leaf in parts):
            for number in numbers:
                yield self._read(source, parts, number)
            return
        ahead: Future[Block] | None = None
        try:
            for position, number in enumerate(numbers):
                block = self._read(source, parts, number) if ahead is None else ahead.result()
                ahead = None
                if position + 1 < len(numbers):
                    ahead = self.executor.submit(self._read, source, parts, numbers[position + 1])
                yield block
                del block
        finally:
            if ahead is not None and not ahead.cancel():
                ahead.exception()


def run_group(
    work: Pass, numbers: Sequence[int], reader: Reader, on_block: Callable[[], None] | None = None
) -> list[Node[Any]]:
    """Map the blocks `numbers`, in order, and return the partials of the whole subtrees they form."""
    fold = GroupFold(work.merge)
    with one_blas_thread():
        ready = work.prepared()
        for block in reader.stream(work.source, numbers):
            fold.add(block.number, work.map(block, *ready.args))
            del block  # or three blocks would be alive while the next one is fetched
            if on_block is not None:
                on_block()
    return fold.nodes


def split_blocks(numbers: Sequence[int], n_tasks: int) -> list[Sequence[int]]:
    """Cut block numbers into at most `n_tasks` runs of nearly equal length, in order.

    Runs need not be aligned: a task returns one partial for each whole subtree of the merge tree inside its run, so
    the threads are evenly loaded and the answer is that of the fixed tree all the same.
    """
    n_tasks = max(1, min(n_tasks, len(numbers)))
    edges = [len(numbers) * task // n_tasks for task in range(n_tasks + 1)]
    return [numbers[first:last] for first, last in pairwise(edges)]


def partials_held(numbers: range, n_tasks: int, n_threads: int) -> int:
    """Partials of a pass over some blocks that are alive at the same time at most.

    Those that tasks have returned, one for each whole subtree of their blocks, and either their merging or what the
    tasks at work have so far.
    """
    groups = split_blocks(numbers, n_tasks)
    returned = sum(_n_subtrees(blocks[0], blocks[-1] + 1) for blocks in groups)
    at_work = min(n_threads, len(groups)) * max(_most_at_work(blocks[0], blocks[-1]) for blocks in groups)
    return returned + max(returned // 2, at_work) + 1


def _most_at_work(first: int, last: int) -> int:
    """Partials that a task has at the same time while it goes through its blocks: whole subtrees, and a block's own.

    There are most of them before a block that completes a subtree, or at the end.
    """
    ends = {last, *((last >> height << height) - 1 for height in range(last.bit_length() + 1))}
    return 1 + max(_n_subtrees(first, end) for end in ends if end >= first)


def _n_subtrees(first: int, last: int) -> int:
    """Largest aligned subtrees of the binary tree over block numbers that the blocks `first .. last` fall into."""
    count = 0
    while first < last:
        fits = 1 << ((last - first).bit_length() - 1)
        first += min(first & -first, fits) if first else fits
        count += 1
    return count
