"""How a process's memory limit is divided."""

from __future__ import annotations

import os
import resource
from contextlib import suppress

MIB = 2**20

LARGEST_MEMORY = 2**60
"""Bytes beyond which no limit is looked for."""

CACHE_SHARE = 0.4
"""Largest share of the limit for cached blocks."""

INTERPRETER_BYTES = 250 * 2**20
"""Python with the libraries that a task imports."""

THREAD_BYTES = 160 * 2**20
"""What a thread works with: two blocks in flight (32 MiB each), chunks being read (16 MiB), arrays by row and a tile
(about 40 MiB while candidates are drawn), and what the allocator has not returned (up to 48 MiB)."""

RESIDENT_SHARE = 0.03
"""Share of the limit for what passes leave in the memory of this process, such as the scores between two batches."""

RESIDENT_COPIES = 3
"""Of that, while new scores are computed: the old ones, the new ones in parts, and the new ones joined."""


CONTROL_GROUP = "/sys/fs/cgroup"
LIMITS = ("memory.max", "memory.high", "memory/memory.limit_in_bytes", "memory/memory.soft_limit_in_bytes")
"""Files of a control group with its limits, of both versions."""


def mebibytes(amount: int) -> str:
    """Bytes to read, rounded up."""
    return f"{-(-amount // MIB):,} MiB"


def process_memory_limit() -> int:
    """Bytes this process may use: the machine's memory, or its control group's or resource limit if that is less.

    As `distributed.system` has it, which takes a third of a second to import.
    """
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), resource.getrlimit(resource.RLIMIT_RSS)[1]]
    for name in LIMITS:
        with suppress(OSError, ValueError), open(os.path.join(CONTROL_GROUP, name), encoding="ascii") as file:
            limits.append(int(file.read()))
    return min(limit for limit in limits if limit > 0)


def cache_budget(memory_bytes: int, threads: int) -> int:
    """Bytes of blocks that a process with this limit keeps beside what its threads work with and passes leave."""
    resident = int(RESIDENT_COPIES * RESIDENT_SHARE * memory_bytes)
    left = memory_bytes - INTERPRETER_BYTES - threads * THREAD_BYTES - resident
    return max(0, min(left, int(CACHE_SHARE * memory_bytes)))
