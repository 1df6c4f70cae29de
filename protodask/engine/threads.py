"""In-process scheduling: Dask's threaded scheduler, no server."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import dask.threaded
from dask._task_spec import Task

from protodask.engine.cache import BlockCache
from protodask.engine.groups import Pass, Reader, run_group
from protodask.engine.memory import cache_budget, process_memory_limit
from protodask.engine.reduction import Node

TASKS_PER_THREAD = 4
"""A task costs about 40 microseconds here, and several a thread even out threads that were held up."""


def available_threads() -> int:
    """Processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class ThreadScheduler:
    """Runs tasks on threads of this process, within a memory limit."""

    def __init__(self, threads: int | None = None, memory_bytes: int | None = None) -> None:
        self._threads = available_threads() if threads is None else threads
        self._memory = process_memory_limit() if memory_bytes is None else memory_bytes
        self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="protodask")
        # A reader mostly waits for storage, and there is at most one block ahead for each thread that computes.
        self._readers = ThreadPoolExecutor(self._threads, thread_name_prefix="protodask-read")
        self._reader = Reader(BlockCache(cache_budget(self._memory)), self._readers)

    @property
    def n_threads(self) -> int:
        return self._threads

    @property
    def n_tasks(self) -> int:
        return TASKS_PER_THREAD * self._threads if self._threads > 1 else 1

    @property
    def memory_bytes(self) -> int:
        return self._memory

    def run(self, work: Pass, groups: Sequence[Sequence[int]], advance: Callable[[int], None]) -> list[Node[Any]]:
        def run_one(task: int) -> list[Node[Any]]:
            return run_group(work, groups[task], self._reader, lambda: advance(1))

        keys = [f"group-{task}" for task in range(len(groups))]
        graph = {key: Task(key, run_one, task) for task, key in enumerate(keys)}
        results = dask.threaded.get(graph, keys, pool=self._pool)
        return [node for nodes in results for node in nodes]

    def share(self, value: Any) -> Any:
        return value

    def forget(self, key: str) -> None:
        self._reader.cache.drop(key)

    def close(self) -> None:
        self._pool.shutdown()
        self._readers.shutdown()
        self._reader.cache.clear()
