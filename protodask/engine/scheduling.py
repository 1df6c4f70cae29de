"""What the engine asks of a scheduler."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from protodask.engine.groups import Pass
from protodask.engine.reduction import Node


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

    @property
    def resident_bytes(self) -> int:
        """Bytes of rows that may sensibly stay in the driver's memory and still be read by every task."""
        ...

    def run(self, work: Pass, groups: Sequence[Sequence[int]], advance: Callable[[int], None]) -> list[Node[Any]]:
        """Run one task for each group of block numbers; report finished blocks through `advance`."""
        ...

    def share(self, value: Any) -> Any:
        """Make a large value cheap to pass to many tasks; what is returned stands for it in `Pass.args`."""
        ...

    def forget(self, key: str) -> None:
        """Drop what is held of the source with this key."""
        ...

    def close(self) -> None: ...
