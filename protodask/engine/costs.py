"""What the engine costs, as arithmetic on shapes: memory that processes hold, blocks they keep, what passes bring back.

Nothing here looks at data. A process that runs tasks holds the interpreter, the blocks its threads work on, the cache,
and what the system's allocator does not give back; what is computed on the blocks comes on top of that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from protodask.engine.groups import partials_held, split_blocks
from protodask.engine.memory import INTERPRETER_BYTES
from protodask.engine.scheduling import Processes, thread_tasks

BLOCKS_AT_WORK = 2
"""For each thread: the one the kernel sees, and the next one, read ahead."""

CHUNK_COPIES = 2
"""Chunks that a thread has beside the block that it reads: as many are asked of an object store together. A thread has
one block read at a time."""

UNRETURNED_BLOCKS = 1.5
"""Blocks for each thread that were freed and that the allocator keeps. Every thread allocates from an area of its own,
and glibc gives back the end of an area only: 66 MiB were lost to it in tests/benchmarks/outofcore.py with two threads
and blocks of 31 MiB. Dask starts its workers with settings that return such memory at once."""

MOST_UNRETURNED_BYTES = 48 * 2**20
"""For each thread; larger blocks are mapped one by one and returned at once (from 32 MiB on)."""


@dataclass(frozen=True)
class Part:
    """Bytes that are held, and what for."""

    name: str
    bytes: int


@dataclass(frozen=True)
class Memory:
    """What a process holds at its peak."""

    parts: tuple[Part, ...]

    @property
    def total(self) -> int:
        return sum(part.bytes for part in self.parts)


def holding_parts(processes: Processes, block_bytes: int, chunk_bytes: int, data_bytes: int) -> tuple[Part, ...]:
    """What a process holds of a source of `data_bytes`, and besides; the cached blocks come last."""
    threads = processes.threads
    at_work = min(BLOCKS_AT_WORK * threads * block_bytes, data_bytes)
    kept = min(processes.cache_bytes, data_bytes - at_work)
    unreturned = 0
    if processes.kind == "threads":
        unreturned = threads * min(int(UNRETURNED_BLOCKS * block_bytes), MOST_UNRETURNED_BYTES)
    return (
        Part("Python and its libraries", INTERPRETER_BYTES),
        Part("blocks at work", at_work),
        Part("chunks being read", min(CHUNK_COPIES * threads * chunk_bytes, CHUNK_COPIES * data_bytes)),
        Part("freed, not yet returned", unreturned),
        Part("blocks kept", kept),
    )


def kept_blocks(processes: Processes, n_blocks: int, block_bytes: int) -> int:
    """Blocks that all processes together find in their caches in every pass but the first."""
    if block_bytes == 0:
        return n_blocks
    share = -(-n_blocks // processes.count)
    return min(n_blocks, processes.count * min(share, processes.cache_bytes // block_bytes))


def longest_share(processes: Processes, n_blocks: int) -> int:
    """Blocks that the busiest thread takes in a pass, when each thread takes the next task as soon as it is free."""
    if processes.kind == "workers":
        here = Processes("threads", 1, processes.threads, processes.memory_bytes, processes.driver_bytes)
        return longest_share(here, -(-n_blocks // processes.count))
    busy = [0] * processes.n_threads
    for group in split_blocks(range(n_blocks), processes.n_tasks):
        busy[busy.index(min(busy))] += len(group)
    return max(busy)


def partials_alive(processes: Processes, n_blocks: int) -> int:
    """Partials of a pass that one process holds at the same time at most, the driver or one that runs tasks."""
    blocks, threads = range(n_blocks), processes.threads
    if processes.kind == "threads":
        return partials_held(blocks, processes.n_tasks, threads)
    shares = split_blocks(blocks, processes.n_tasks)
    at_work = max(partials_held(range(share[0], share[-1] + 1), thread_tasks(threads), threads) for share in shares)
    return max(at_work, partials_held(blocks, processes.n_tasks, 0))


def most_partials(processes: Processes, n_blocks: int) -> int:
    """Partials that the tasks of a pass hand to the driver: at most `2 log2(2 m)` largest aligned subtrees in a run of
    `m` blocks.
    """
    tasks = min(processes.n_tasks, n_blocks)
    return min(n_blocks, math.ceil(tasks * 2 * (1 + math.log2(n_blocks / tasks))))
