"""The one door to Dask: reduce a source, map a source into a store, take rows by number."""

from __future__ import annotations

import operator
from collections.abc import Callable, Generator, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from protodask.engine.blocks import Arrays, Block
from protodask.engine.groups import Pass, split_blocks
from protodask.engine.progress import ProgressListener, count_blocks
from protodask.engine.reduction import Node, Reduction, identity, merge_tree
from protodask.engine.scheduling import Scheduler
from protodask.engine.sources import Source, leaves
from protodask.engine.threads import ThreadScheduler

Partial = TypeVar("Partial")
Result = TypeVar("Result")


class Sink(Protocol):
    """A store that takes the blocks of a `map`, in any order and from any process."""

    def write(self, number: int, start: int, arrays: Arrays) -> None: ...


class Engine:
    """Runs reductions over sources on a scheduler."""

    def __init__(self, scheduler: Scheduler | None = None, progress: ProgressListener | None = None) -> None:
        self.scheduler: Scheduler = ThreadScheduler() if scheduler is None else scheduler
        self._progress = progress

    @property
    def n_tasks(self) -> int:
        """Tasks a pass is cut into, now."""
        return self.scheduler.n_tasks

    def nearby(self) -> Engine:
        """The engine for passes of milliseconds over arrays in this process's memory, which reports no progress."""
        return Engine(self.scheduler.nearby())

    def with_progress(self, progress: ProgressListener | None) -> Engine:
        """The same engine, reporting to another listener."""
        return Engine(self.scheduler, progress)

    def reduce(
        self,
        source: Source,
        reduction: Reduction[Partial, Result],
        *args: Any,
        label: str = "",
        blocks: Sequence[int] | None = None,
    ) -> Result:
        """`reduction` over all blocks of `source`, or over the block numbers given in ascending order.

        One submission. The partials merge along the aligned binary tree over block numbers, so that the result is the
        same to the last bit for any scheduler and any number of threads.
        """
        numbers = range(source.layout.n_blocks) if blocks is None else blocks
        if len(numbers) == 0:
            raise ValueError("a pass over no blocks")
        work = Pass(source, reduction.map, reduction.merge, args, reduction.prepare, label, reduction.writes)
        return reduction.finish(merge_tree(self.run_pass(work, numbers), reduction.merge))

    def run_pass(self, work: Pass, numbers: Sequence[int]) -> list[Node[Any]]:
        """The partials of one pass over some blocks, merged within each task."""
        groups = split_blocks(numbers, self.n_tasks)
        return self.scheduler.run(work, groups, count_blocks(work.label, len(numbers), self._progress))

    def map(
        self,
        source: Source,
        function: Callable[..., Arrays],
        *args: Any,
        sink: Sink,
        label: str = "",
        blocks: Sequence[int] | None = None,
    ) -> int:
        """Write `function(block, *args)` into `sink`, block by block; returns the number of rows written."""
        return self.reduce(source, _WRITE, function, sink, *args, label=label, blocks=blocks)

    def collect(self, source: Source, function: Callable[..., Arrays], *args: Any, label: str = "") -> dict[str, Any]:
        """`function(block, *args)` of all blocks, joined in memory: for results that are known to fit."""
        return self.reduce(source, _COLLECT, function, *args, label=label)

    def take(
        self, source: Source, rows: NDArray[np.int64], names: Sequence[str], label: str = ""
    ) -> dict[str, NDArray[Any]]:
        """The named arrays of some rows, in the order asked for; only the blocks that hold them are read."""
        if len(rows) == 0:
            raise ValueError("take needs at least one row")
        ordered, inverse = np.unique(rows, return_inverse=True)
        if ordered[0] < 0 or ordered[-1] >= source.layout.n_rows:
            raise IndexError(f"rows {ordered[0]} to {ordered[-1]} of a source of {source.layout.n_rows}")
        wanted = tuple(names)
        numbers = [int(number) for number in np.unique(source.layout.block_of(ordered))]
        parts = self.reduce(source, _TAKE, ordered, wanted, label=label, blocks=numbers)
        return {name: parts[name][inverse] for name in wanted}

    def each(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Generator[tuple[int, Any], None, None]:
        """Number and result of `function(item)` for each item as it ends: work that has nothing to do with blocks.

        On a cluster a task each, for whichever worker has a thread free; the function, with all it refers to, travels
        once for as long as it lives.
        """
        return self.scheduler.each(function, items)

    def share(self, value: Any) -> Any:
        """A stand-in for a large argument of many passes, to be passed where the value would be."""
        return self.scheduler.share(value)

    def forget(self, source: Source) -> None:
        """Say that a source will not be read again."""
        for leaf in leaves(source):
            self.scheduler.forget(leaf.key)

    def __reduce__(self) -> tuple[Any, ...]:
        # What listens to progress stays behind.
        return Engine, (self.scheduler,)

    def __deepcopy__(self, memo: object) -> Engine:
        # scikit-learn clones an estimator by copying its parameters; a copy of an engine is the engine.
        return self

    def close(self) -> None:
        """End the threads or the connection this engine opened."""
        self.scheduler.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _write_block(block: Block, function: Callable[..., Arrays], sink: Sink, *args: Any) -> int:
    sink.write(block.number, block.start, function(block, *args))
    return block.n_rows


_WRITE: Reduction[int, int] = Reduction(_write_block, operator.add, identity, writes=True)

Parts = list[dict[str, NDArray[Any]]]


def _collect_block(block: Block, function: Callable[..., Arrays], *args: Any) -> Parts:
    return [dict(function(block, *args))]


def _take_rows(block: Block, rows: NDArray[np.int64], names: tuple[str, ...]) -> Parts:
    first, last = np.searchsorted(rows, (block.start, block.stop))
    inside = rows[first:last] - block.start
    return [{name: block[name][inside] for name in names}]


def _join(parts: Parts) -> dict[str, NDArray[Any]]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


_COLLECT: Reduction[Parts, dict[str, NDArray[Any]]] = Reduction(_collect_block, operator.add, _join)
_TAKE: Reduction[Parts, dict[str, NDArray[Any]]] = Reduction(_take_rows, operator.add, _join)
