"""What the engine asks of a scheduler, and what a scheduler says of the processes that run its tasks."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from protodask.engine.groups import Pass
from protodask.engine.memory import INTERPRETER_BYTES, RESIDENT_SHARE, cache_budget
from protodask.engine.reduction import Node

TASKS_PER_THREAD = 4
"""Of one process: a task costs about 40 microseconds there, and several a thread even out threads that were held up."""

SHIPPED_BYTES = 64 * 2**20
"""Rows in the driver's memory travel through the scheduler; beyond this a store that the workers read is better."""

TERMINATE_SHARE = 0.95
"""Share of its limit at which Dask kills a worker."""

LEAST_WORKING_BYTES = 64 * 2**20
"""A limit on this process that leaves less than this beside the interpreter is taken to leave this: the libraries are
loaded as it is, and refusing a problem that small would save nothing."""


def thread_tasks(threads: int) -> int:
    """Tasks that the threads of one process are best given."""
    return TASKS_PER_THREAD * threads if threads > 1 else 1


@dataclass(frozen=True)
class Processes:
    """The processes that run tasks: this one, or worker processes that are all alike."""

    kind: Literal["threads", "workers"]
    count: int
    threads: int
    """Of one process."""
    memory_bytes: int
    """Limit of one process."""
    driver_bytes: int
    """Limit of this process, which drives the others."""

    @property
    def n_threads(self) -> int:
        return self.count * self.threads

    @property
    def n_tasks(self) -> int:
        """Tasks a long pass is cut into: on a cluster one for each process, since its scheduler takes 1.2 to 1.6 ms for
        each.
        """
        return self.count if self.kind == "workers" else thread_tasks(self.threads)

    @property
    def cache_bytes(self) -> int:
        """Blocks that one process keeps at most."""
        return cache_budget(self.memory_bytes, self.threads)

    @property
    def resident_bytes(self) -> int:
        """Rows that may sensibly stay in the driver's memory between passes and still be read by every task."""
        return int(RESIDENT_SHARE * self.memory_bytes) if self.kind == "threads" else SHIPPED_BYTES

    @property
    def usable_bytes(self) -> int:
        """What one process may hold."""
        if self.kind == "workers":
            return int(TERMINATE_SHARE * self.memory_bytes)
        return max(self.memory_bytes, INTERPRETER_BYTES + LEAST_WORKING_BYTES)


class Scheduler(Protocol):
    """Runs the tasks of one pass and brings back their partials."""

    @property
    def n_threads(self) -> int:
        """Tasks that can run at the same time, now."""
        ...

    @property
    def n_tasks(self) -> int:
        """Tasks a pass is best cut into, now."""
        ...

    @property
    def memory_bytes(self) -> int:
        """Memory limit of one process that runs tasks."""
        ...

    def processes(self) -> Processes:
        """The processes that run tasks, as they are now."""
        ...

    def run(self, work: Pass, groups: Sequence[Sequence[int]], advance: Callable[[int], None]) -> list[Node[Any]]:
        """Run one task for each group of block numbers; report finished blocks through `advance`."""
        ...

    def each(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Generator[tuple[int, Any], None, None]:
        """Number and result of `function(item)` for each item as it ends, wherever there is a thread free."""
        ...

    def share(self, value: Any) -> Any:
        """Make a large value cheap to pass to many tasks; what is returned stands for it in `Pass.args`."""
        ...

    def forget(self, key: str) -> None:
        """Drop what is held of the source with this key."""
        ...

    def nearby(self) -> Scheduler:
        """One for passes of milliseconds over arrays in this process's memory: on its threads."""
        ...

    def close(self) -> None: ...
