"""What the engine costs, by arithmetic, against what it does."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from distributed import Client
from hypothesis import given
from hypothesis import strategies as st

from protodask.engine import Block, Layout, Reduction, identity, open_engine, thread_engine
from protodask.engine.costs import (
    Memory,
    Part,
    holding_parts,
    kept_blocks,
    longest_share,
    most_partials,
)
from protodask.engine.groups import split_blocks
from protodask.engine.memory import INTERPRETER_BYTES
from protodask.engine.reduction import GroupFold
from protodask.engine.scheduling import LEAST_WORKING_BYTES, Processes

MIB = 2**20

a_process = st.builds(
    lambda kind, count, threads, memory: Processes(
        kind, 1 if kind == "threads" else count, threads, memory * MIB, memory * MIB
    ),
    st.sampled_from(["threads", "workers"]),
    st.integers(1, 20),
    st.integers(1, 64),
    st.integers(1, 2**20),
)


def test_memory__is_the_sum_of_its_parts() -> None:
    assert Memory((Part("a", 5), Part("kept", 3))).total == 8


@given(a_process, st.integers(1, 1000), st.integers(1, 100 * MIB), st.integers(1, 8 * MIB))
def test_holding_parts__blocks_are_never_more_than_the_data(
    processes: Processes, n_blocks: int, block_bytes: int, chunk_bytes: int
) -> None:
    data = n_blocks * block_bytes
    parts = {part.name: part.bytes for part in holding_parts(processes, block_bytes, chunk_bytes, data)}
    assert min(parts.values()) >= 0
    assert parts["blocks at work"] + parts["blocks kept"] <= data
    assert parts["blocks kept"] <= processes.cache_bytes
    assert list(parts)[-1] == "blocks kept"
    more = holding_parts(replace(processes, threads=processes.threads + 1), block_bytes, chunk_bytes, data)
    assert all(part.bytes >= parts[part.name] for part in more[:-1])


@given(a_process, st.integers(1, 3000))
def test_longest_share__is_between_an_even_share_and_everything(processes: Processes, n_blocks: int) -> None:
    share = longest_share(processes, n_blocks)
    assert -(-n_blocks // processes.n_threads) <= share <= n_blocks
    # What a thread that took one task too many has more than the others.
    assert share <= n_blocks / processes.n_threads + n_blocks / min(processes.n_tasks, n_blocks) + 1


@given(a_process, st.integers(1, 3000))
def test_most_partials__bounds_what_tasks_return(processes: Processes, n_blocks: int) -> None:
    found = 0
    for group in split_blocks(range(n_blocks), processes.n_tasks):
        fold = GroupFold(lambda left, right: None)
        for number in group:
            fold.add(number, None)
        found += len(fold.nodes)
    assert found <= most_partials(processes, n_blocks)


@given(a_process, st.integers(1, 1000), st.integers(1, 64 * MIB))
def test_kept_blocks__fit_into_the_caches(processes: Processes, n_blocks: int, block_bytes: int) -> None:
    kept = kept_blocks(processes, n_blocks, block_bytes)
    assert 0 <= kept <= n_blocks
    assert kept * block_bytes <= processes.count * processes.cache_bytes
    if processes.count == 1 and kept < n_blocks:
        assert (kept + 1) * block_bytes > processes.cache_bytes


class CountedBlocks:
    """Blocks of a mebibyte that note when they are read."""

    resident = False
    key = "counted"

    def __init__(self, n_blocks: int) -> None:
        self.layout = Layout(n_blocks, 1)
        self.reads: list[int] = []

    def read(self, number: int) -> Block:
        self.reads.append(number)
        return Block(number, number, {"row": np.zeros((1, MIB // 8))})


def count_block(block: Block) -> int:
    return 1


def add(left: int, right: int) -> int:
    return left + right


COUNT: Reduction[int, int] = Reduction(count_block, add, identity)


@pytest.mark.parametrize("memory", [300 * MIB, 460 * MIB, 472 * MIB, 2**30])
def test_kept_blocks__is_what_a_second_pass_finds(memory: int) -> None:
    source = CountedBlocks(20)
    with thread_engine(1, memory) as engine:
        engine.reduce(source, COUNT)
        source.reads.clear()
        engine.reduce(source, COUNT)
        processes = engine.scheduler.processes()
    assert len(source.reads) == 20 - kept_blocks(processes, 20, MIB)


def test_processes__threads() -> None:
    with thread_engine(3, 700 * MIB) as engine:
        found = engine.scheduler.processes()
        assert found == Processes("threads", 1, 3, 700 * MIB, 700 * MIB)
        assert found.n_tasks == engine.scheduler.n_tasks
        assert found.usable_bytes == 700 * MIB
    small = replace(found, memory_bytes=1)
    assert small.usable_bytes == INTERPRETER_BYTES + LEAST_WORKING_BYTES


@pytest.mark.slow
def test_processes__workers(start_cluster: Callable[[int], Any]) -> None:
    with Client(start_cluster(2), set_as_default=False) as client, open_engine(client) as engine:
        found = engine.scheduler.processes()
        assert (found.kind, found.count, found.threads, found.memory_bytes) == ("workers", 2, 1, 2**30)
        assert found.n_tasks == engine.scheduler.n_tasks
        assert found.usable_bytes < found.memory_bytes
