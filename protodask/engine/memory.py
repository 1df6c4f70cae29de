"""How a process's memory limit is divided."""

from __future__ import annotations

CACHE_SHARE = 0.4
"""Share of the limit for cached blocks. The rest holds the interpreter with its libraries (about 250 MiB), and for each
thread two blocks in flight and a tile."""


RESIDENT_SHARE = 0.1
"""Share of the limit for what passes leave in the memory of this process, such as the scores between two batches."""


def process_memory_limit() -> int:
    """Bytes this process may use: the machine's memory, or its control group's or resource limit if that is less."""
    from distributed.system import MEMORY_LIMIT  # takes a third of a second to import

    return int(MEMORY_LIMIT)


def cache_budget(memory_bytes: int) -> int:
    """Bytes of blocks a process with this limit keeps."""
    return int(CACHE_SHARE * memory_bytes)
