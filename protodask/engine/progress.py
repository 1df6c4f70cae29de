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


class PassProgress:
    """Counts the blocks of one pass; tasks report from several threads."""

    def __init__(self, label: str, total: int, listener: ProgressListener | None) -> None:
        self._label = label
        self._total = total
        self._listener = listener
        self._done = 0
        self._began = time.perf_counter()
        self._lock = threading.Lock()

    def advance(self, blocks: int = 1) -> None:
        if self._listener is None:
            return
        with self._lock:
            self._done += blocks
            self._listener(Progress(self._label, self._done, self._total, time.perf_counter() - self._began))
