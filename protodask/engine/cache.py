"""A memory of decoded blocks, keyed by content and bounded in bytes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection

from protodask.engine.blocks import Block


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
            if self.held_bytes + size > self.budget_bytes:
                self._evict(self.held_bytes + size - self.budget_bytes, active, own)
            if self.held_bytes + size > self.budget_bytes:
                return False
            self._blocks[key, block.number] = block
            self.held_bytes += size
            return True

    def _evict(self, wanted: int, active: Collection[str], own: Collection[int] | None) -> None:
        def useless(key: str, number: int) -> bool:
            return key not in active or (own is not None and number not in own)

        for entry in [entry for entry in self._blocks if useless(*entry)]:
            if wanted <= 0:
                return
            size = self._blocks.pop(entry).nbytes
            self.held_bytes -= size
            wanted -= size

    def drop(self, key: str) -> None:
        """Let go of all blocks of a source."""
        with self._lock:
            for entry in [entry for entry in self._blocks if entry[0] == key]:
                self.held_bytes -= self._blocks.pop(entry).nbytes

    def clear(self) -> None:
        with self._lock:
            self._blocks.clear()
            self.held_bytes = 0
