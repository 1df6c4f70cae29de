"""Progress of a pass over data, as events for whoever wants to show them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """`done` of `total` blocks of the pass called `label`, `seconds` after it began."""

    label: str
    done: int
    total: int
    seconds: float

    @property
    def finished(self) -> bool:
        return self.done == self.total


ProgressListener = Callable[[Progress], None]


def count_blocks(label: str, total: int, listener: ProgressListener | None) -> Callable[[int], None]:
    """What the tasks of one pass tell from several threads of how many more blocks are done, and the listener hears."""
    if listener is None:
        return lambda blocks: None
    done, began, lock = 0, time.perf_counter(), threading.Lock()

    def advance(blocks: int) -> None:
        nonlocal done
        with lock:
            done += blocks
            listener(Progress(label, done, total, time.perf_counter() - began))

    return advance
