import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.errors import refused
from support.passes import add, refuse_block, sum_looked_up, sum_products, sum_values

from protodask.engine import Block, Layout, array_source, zip_sources
from protodask.engine.groups import BlockCache, Pass, Reader, partials_held, run_group, split_blocks
from protodask.engine.reduction import GroupFold

N_BLOCKS, BLOCK_ROWS = 9, 16
BLOCK_BYTES = 8 * BLOCK_ROWS


class CountingSource:
    """Counts the reads of each block, and the blocks alive whenever one is read."""

    resident = False

    def __init__(self, fails_at: int | None = None) -> None:
        self.layout = Layout(N_BLOCKS * BLOCK_ROWS, BLOCK_ROWS)
        self.key = "counted"
        self.reads: list[int] = []
        self.threads: set[int] = set()
        self.most_alive = 0
        self._made: list[weakref.ref[Any]] = []
        self._fails_at = fails_at

    def read(self, number: int) -> Block:
        if number == self._fails_at:
            raise OSError(f"block {number} cannot be read")
        values = np.full(BLOCK_ROWS, float(number))
        self.reads.append(number)
        self.threads.add(threading.get_ident())
        self._made.append(weakref.ref(values))
        self.most_alive = max(self.most_alive, sum(made() is not None for made in self._made))
        return Block(number, number * BLOCK_ROWS, {"x": values})


@pytest.fixture
def executor() -> Iterator[Executor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


def total_of(source: Any, reader: Reader, numbers: list[int]) -> float:
    return float(sum(node.partial for node in run_group(Pass(source, sum_values, add, ("x",)), numbers, reader)))


@given(st.integers(1, 200), st.integers(1, 50))
def test_split_blocks__cuts_even_runs_in_order(n_blocks: int, n_tasks: int) -> None:
    numbers = list(range(0, 3 * n_blocks, 3))
    groups = split_blocks(numbers, n_tasks)
    assert [number for group in groups for number in group] == numbers
    assert len(groups) == min(n_tasks, n_blocks)
    lengths = [len(group) for group in groups]
    assert max(lengths) - min(lengths) <= 1


def test_run_group__reads_ahead_every_block_once_and_holds_two(executor: Executor) -> None:
    source = CountingSource()
    assert total_of(source, Reader(BlockCache(0), executor), list(range(N_BLOCKS))) == BLOCK_ROWS * sum(range(N_BLOCKS))
    assert source.reads == list(range(N_BLOCKS))
    assert source.most_alive == 2
    assert len(source.threads) == 2, "the first block is read here, the others by the reader"


class InlineExecutor(Executor):
    """Runs at once what is submitted: the fastest storage there could be."""

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(function(*args, **kwargs))
        return future


def test_run_group__holds_two_blocks_however_fast_they_come() -> None:
    source = CountingSource()
    total_of(source, Reader(BlockCache(0), InlineExecutor()), list(range(N_BLOCKS)))
    assert source.reads == list(range(N_BLOCKS))
    assert source.most_alive == 2


def test_run_group__reads_only_the_blocks_asked_for(executor: Executor) -> None:
    source = CountingSource()
    total_of(source, Reader(BlockCache(0), executor), [1, 2, 6])
    assert source.reads == [1, 2, 6]


def test_run_group__reads_again_only_what_the_cache_did_not_keep(executor: Executor) -> None:
    source, reader = CountingSource(), Reader(BlockCache(4 * BLOCK_BYTES), executor)
    first = total_of(source, reader, list(range(N_BLOCKS)))
    source.reads.clear()
    assert total_of(source, reader, list(range(N_BLOCKS))) == first
    assert source.reads == list(range(4, N_BLOCKS))
    source.reads.clear()
    assert total_of(source, reader, [0, 1, 2]) == BLOCK_ROWS * (0 + 1 + 2)
    assert source.reads == []


def test_run_group__does_not_cache_what_is_in_memory_already(executor: Executor) -> None:
    source, cache = CountingSource(), BlockCache(100 * BLOCK_BYTES)
    weights = array_source({"w": np.ones(N_BLOCKS * BLOCK_ROWS)}, BLOCK_ROWS)
    work = Pass(zip_sources(source, weights), sum_products, add, ("x", "w", 1.0))
    run_group(work, list(range(N_BLOCKS)), Reader(cache, executor))
    assert len(cache) == N_BLOCKS
    assert cache.held_bytes == N_BLOCKS * BLOCK_BYTES
    assert all(cache.get(weights.key, number) is None for number in range(N_BLOCKS))


def test_run_group__reports_each_block(executor: Executor) -> None:
    seen: list[None] = []
    work = Pass(CountingSource(), sum_values, add, ("x",))
    run_group(work, [0, 3, 4], Reader(BlockCache(0), executor), lambda: seen.append(None))
    assert len(seen) == 3


def test_run_group__prepares_the_arguments_once(executor: Executor) -> None:
    calls: list[float] = []

    def prepare(factor: float) -> tuple[np.ndarray[Any, np.dtype[np.float64]]]:
        calls.append(factor)
        return (np.full(1, factor),)

    work = Pass(CountingSource(), sum_looked_up, add, (3.0,), prepare)
    nodes = run_group(work, [0, 1, 2], Reader(BlockCache(0), executor))
    assert sum(node.partial for node in nodes) == 3 * BLOCK_ROWS * 3.0
    assert calls == [3.0]


def test_run_group__passes_on_what_reading_raised(executor: Executor) -> None:
    with pytest.raises(OSError, match="block 5 cannot be read"):
        total_of(CountingSource(fails_at=5), Reader(BlockCache(0), executor), list(range(N_BLOCKS)))


def test_run_group__that_fails_waits_for_the_block_it_reads_ahead(executor: Executor) -> None:
    source = CountingSource()
    with refused("bad-value", "Block 2"):
        run_group(Pass(source, refuse_block, add, (2,)), list(range(N_BLOCKS)), Reader(BlockCache(0), executor))
    read = list(source.reads)
    assert read in ([0, 1, 2], [0, 1, 2, 3])
    executor.submit(int).result()  # whatever was queued has run by now
    assert source.reads == read


@given(st.integers(0, 300), st.integers(1, 300), st.integers(1, 40), st.integers(1, 8))
@example(0, 98, 2, 1)  # blocks 49 .. 94: subtrees of 1, 2, 4, 8, 16, 8, 4, 2 and 1
def test_partials_held__is_no_fewer_than_tasks_return_and_work_with(
    first: int, n_blocks: int, n_tasks: int, threads: int
) -> None:
    numbers = range(first, first + n_blocks)
    returned, at_work = 0, 0
    for group in split_blocks(numbers, n_tasks):
        fold = GroupFold(lambda left, right: None)
        for number in group:
            fold.add(number, None)
            at_work = max(at_work, len(fold.nodes) + 1)
        returned += len(fold.nodes)
    held = partials_held(numbers, n_tasks, threads)
    assert returned + max(returned // 2, at_work) <= held
    assert held <= 2 * returned + threads * (at_work + 9)


KEYS = ("a", "b", "c")
NUMBERS = range(4)


def make_block(number: int, size: int) -> Block:
    return Block(number, 0, {"x": np.zeros(size, dtype=np.uint8)})


def held(cache: BlockCache) -> dict[tuple[str, int], int]:
    """Bytes of each block the cache can return."""
    found = {(key, number): cache.get(key, number) for key in KEYS for number in NUMBERS}
    return {entry: block.nbytes for entry, block in found.items() if block is not None}


offers = st.tuples(
    st.sampled_from(KEYS),
    st.sampled_from(NUMBERS),
    st.integers(0, 60),
    st.frozensets(st.sampled_from(KEYS)),
    st.none() | st.frozensets(st.sampled_from(NUMBERS)),
)


@given(st.integers(0, 100), st.lists(st.one_of(offers, st.sampled_from(KEYS)), max_size=40))
def test_cache__keeps_its_books_and_never_exceeds_the_budget(
    budget: int, steps: list[tuple[str, int, int, frozenset[str], frozenset[int] | None] | str]
) -> None:
    cache = BlockCache(budget)
    for step in steps:
        before = held(cache)
        if isinstance(step, str):
            cache.drop(step)
            assert held(cache) == {entry: size for entry, size in before.items() if entry[0] != step}
        else:
            key, number, size, active, own = step
            kept = cache.offer(key, make_block(number, size), active, own)
            after = held(cache)
            assert kept == ((key, number) in after)
            read = {entry for entry in before if entry[0] in active and (own is None or entry[1] in own)}
            # What a pass in progress reads is never pushed out, and nothing comes in but what was offered.
            assert read <= after.keys()
            assert after.keys() <= before.keys() | {(key, number)}
            room = budget - sum(before[entry] for entry in read)
            assert kept == ((key, number) in before or size <= room)
        assert cache.held_bytes == sum(held(cache).values()) <= budget
        assert len(cache) == len(held(cache))


def test_cache__full_turns_newcomers_away_so_that_repeated_passes_hit() -> None:
    cache, active = BlockCache(3 * 10), frozenset({"a"})
    hits = []
    for _ in range(3):
        hits.append(sum(cache.get("a", number) is not None for number in range(8)))
        for number in range(8):
            cache.offer("a", make_block(number, 10), active)
    assert hits == [0, 3, 3]


def test_cache__evicts_sources_that_the_pass_does_not_read() -> None:
    cache = BlockCache(30)
    for number in NUMBERS:
        cache.offer("a", make_block(number, 10), {"a"})
    assert cache.offer("b", make_block(0, 20), {"b"})
    assert sorted(held(cache)) == [("a", 2), ("b", 0)]


def test_cache__returns_the_very_block() -> None:
    cache, block = BlockCache(10), make_block(2, 10)
    cache.offer("a", block, ())
    assert cache.get("a", 2) is block
    assert cache.get("a", 1) is None
    assert cache.get("b", 2) is None
    cache.clear()
    assert cache.get("a", 2) is None
    assert cache.held_bytes == 0


def test_cache__is_safe_for_threads() -> None:
    cache = BlockCache(100)

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(300):
            key, number = KEYS[rng.integers(3)], int(rng.integers(4))
            cache.offer(key, make_block(number, int(rng.integers(1, 50))), {KEYS[rng.integers(3)]})
            cache.get(key, number)
            if rng.random() < 0.05:
                cache.drop(key)
            assert 0 <= cache.held_bytes <= 100

    with ThreadPoolExecutor(4) as pool:
        for finished in [pool.submit(work, seed) for seed in range(4)]:
            finished.result()
    assert cache.held_bytes == sum(held(cache).values())
