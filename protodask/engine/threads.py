"""In-process scheduling: Dask's threaded scheduler, no server."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any

from protodask.engine.blas import one_blas_thread
from protodask.engine.groups import BlockCache, Pass, Reader, run_group
from protodask.engine.memory import cache_budget, process_memory_limit
from protodask.engine.reduction import Node
from protodask.engine.scheduling import Processes
from protodask.errors import InputError

MOST_THREADS = 4
"""Threads that compute in one process, unless more are asked for: between the long calls of a kernel they wait for the
interpreter's lock. On 16 processors four took half the time of one for an evaluation, and sixteen, of an earlier
kernel, as long as one."""


def available_threads() -> int:
    """Processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class ThreadScheduler:
    """Runs tasks on threads of this process, within a memory limit."""

    def __init__(self, threads: int | None = None, memory_bytes: int | None = None) -> None:
        self.n_threads = min(available_threads(), MOST_THREADS) if threads is None else threads
        self.memory_bytes = process_memory_limit() if memory_bytes is None else memory_bytes
        self._closed = threading.Event()
        self._pool = ThreadPoolExecutor(self.n_threads, thread_name_prefix="protodask")
        # A reader mostly waits for storage, and there is at most one block ahead for each thread that computes.
        self._readers = ThreadPoolExecutor(self.n_threads, thread_name_prefix="protodask-read")
        self._reader = Reader(BlockCache(cache_budget(self.memory_bytes, self.n_threads)), self._readers)

    def __reduce__(self) -> tuple[Any, ...]:
        # In another process it has threads and a cache of its own.
        return ThreadScheduler, (self.n_threads, self.memory_bytes)

    @property
    def n_tasks(self) -> int:
        return self.processes().n_tasks

    def processes(self) -> Processes:
        return Processes("threads", 1, self.n_threads, self.memory_bytes, self.memory_bytes)

    def run(self, work: Pass, groups: Sequence[Sequence[int]], advance: Callable[[int], None]) -> list[Node[Any]]:
        if self._closed.is_set():
            raise InputError(
                "engine-closed", "The engine was closed.", "Open another one, or use it inside its `with` block."
            )
        with one_blas_thread():
            work = work.prepared()
        return run_groups(work, groups, self._reader, self._pool, lambda: advance(1))

    def each(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Generator[tuple[int, Any], None, None]:
        """One after the other, in this thread: `run_together` is for several, which may use this engine themselves."""
        return ((number, function(item)) for number, item in enumerate(items))

    def share(self, value: Any) -> Any:
        return value

    def forget(self, key: str) -> None:
        self._reader.cache.drop(key)

    def nearby(self) -> ThreadScheduler:
        return self

    def close(self) -> None:
        self._closed.set()
        self._pool.shutdown()
        self._readers.shutdown()
        self._reader.cache.clear()


@cache
def dask_on_threads() -> tuple[Callable[..., Any], type[Any]]:
    """Dask's scheduler on threads and its tasks, which take a sixth of a second to import: one task needs neither."""
    from dask.threaded import get

    from protodask.engine.graph import Task

    return get, Task


def run_groups(
    work: Pass, groups: Sequence[Sequence[int]], reader: Reader, pool: ThreadPoolExecutor, on_block: Callable[[], None]
) -> list[Node[Any]]:
    """The partials of a prepared pass over groups of blocks, each a task of some threads of this process.

    What `on_block` raises after a block ends all of them.
    """
    tasks = _Tasks()

    def check_and_tell() -> None:
        tasks.check()
        on_block()

    def run_one(task: int) -> list[Node[Any]]:
        with tasks.one():
            return run_group(work, groups[task], reader, check_and_tell)

    if len(groups) == 1:
        return run_one(0)  # here and now: handing one task over takes several times as long as a small one itself
    get, task_of = dask_on_threads()
    keys = [f"group-{task}" for task in range(len(groups))]
    graph = {key: task_of(key, run_one, task) for task, key in enumerate(keys)}
    try:
        # Without Dask's callbacks: to find those that are registered it changes what all threads share.
        results = get(graph, keys, pool=pool, callbacks=())
    except BaseException:
        # Whoever catches this may remove the store that the tasks write to, so none may still be at work.
        tasks.stop()
        raise
    return [node for nodes in results for node in nodes]


class _StoppedError(Exception):
    """Ends a task after another one of its pass failed."""


class _Tasks:
    """The tasks of one pass: lets a failed pass end the others after the block in their hands."""

    def __init__(self) -> None:
        self._stopped = False
        self._at_work = 0
        self._changed = threading.Condition()

    @contextmanager
    def one(self) -> Iterator[None]:
        with self._changed:
            self.check()
            self._at_work += 1
        try:
            yield
        finally:
            with self._changed:
                self._at_work -= 1
                self._changed.notify_all()

    def check(self) -> None:
        if self._stopped:
            raise _StoppedError

    def stop(self) -> None:
        """Have the tasks end, and wait until they have."""
        with self._changed:
            self._stopped = True
            self._changed.wait_for(lambda: self._at_work == 0)
