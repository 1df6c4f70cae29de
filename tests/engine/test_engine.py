import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.errors import refused
from support.passes import (
    HALF_SUM,
    LOOKUP,
    PRODUCTS,
    REFUSE,
    SQUARED_LOOKUP,
    SUM,
    FileSink,
    NoiseSource,
    add,
    double_values,
)

from protodask.engine import (
    Block,
    Engine,
    Layout,
    Progress,
    Reduction,
    array_source,
    identity,
    thread_engine,
    zip_sources,
)
from protodask.engine.groups import Pass
from protodask.engine.memory import INTERPRETER_BYTES, RESIDENT_COPIES, RESIDENT_SHARE, THREAD_BYTES
from protodask.engine.reduction import Node
from protodask.engine.scheduling import Processes
from protodask.errors import InputError


@pytest.fixture(scope="module")
def engines() -> Iterator[list[Engine]]:
    """Engines of one, two and four threads."""
    opened = [thread_engine(threads, memory_bytes=2**30) for threads in (1, 2, 4)]
    yield opened
    for engine in opened:
        engine.close()


def tree_sum(leaves: list[float]) -> float:
    """Sum along the aligned binary tree, by its definition: the left half is the largest power of two."""
    if len(leaves) == 1:
        return leaves[0]
    half = 1 << ((len(leaves) - 1).bit_length() - 1)
    return tree_sum(leaves[:half]) + tree_sum(leaves[half:])


@settings(max_examples=40)
@example(n_rows=400, block_rows=1)
@given(st.integers(1, 120), st.integers(0, 5).map(lambda exponent: 2**exponent))
def test_reduce__is_the_fixed_tree_to_the_last_bit(engines: list[Engine], n_rows: int, block_rows: int) -> None:
    source = NoiseSource(Layout(n_rows, block_rows), f"{n_rows}-{block_rows}")
    expected = tree_sum([float(source.read(number)["noise"].sum()) for number in range(source.layout.n_blocks)])
    for engine in engines:
        assert engine.reduce(source, SUM, "noise") == expected, "cold"
        assert engine.reduce(source, SUM, "noise") == expected, "warm"
        engine.forget(source)


def test_reduce__over_some_blocks_reads_no_other(engines: list[Engine], tmp_path: Path) -> None:
    source = NoiseSource(Layout(1000, 16), "some", log=tmp_path)
    wanted = [3, 4, 5, 20, 41, 62]
    results = {engine.reduce(source, SUM, "noise", blocks=wanted) for engine in engines}
    assert len(results) == 1
    assert {int(path.name.split("-")[0]) for path in tmp_path.iterdir()} == set(wanted)


def test_reduce__finishes_once(engines: list[Engine]) -> None:
    source = NoiseSource(Layout(100, 8), "finish")
    for engine in engines:
        assert engine.reduce(source, HALF_SUM, "noise") == engine.reduce(source, SUM, "noise") / 2


def test_reduce__prepares_arguments_on_the_way_to_the_map(engines: list[Engine]) -> None:
    source, table = NoiseSource(Layout(100, 8), "prepare"), np.array([1.0, 2.0, 5.0])
    for engine in engines:
        assert engine.reduce(source, SQUARED_LOOKUP, table) == engine.reduce(source, LOOKUP, table**2)
    np.testing.assert_array_equal(table, [1.0, 2.0, 5.0])


def test_reduce__over_no_rows_is_refused(engines: list[Engine]) -> None:
    with pytest.raises(ValueError, match="no blocks"):
        engines[0].reduce(array_source({"x": np.zeros(0)}, 8), SUM, "x")


def test_reduce__of_zipped_sources_sees_the_same_rows_of_all(engines: list[Engine]) -> None:
    layout = Layout(333, 16)
    weights = np.random.default_rng(7).uniform(size=333)
    zipped = zip_sources(
        NoiseSource(layout, "noise"), array_source({"w": weights}, 16), NoiseSource(layout, "o", "other")
    )
    noise = np.concatenate([zipped.read(number)["noise"] for number in range(layout.n_blocks)])
    results = [engine.reduce(zipped, PRODUCTS, "noise", "w", 0.5) for engine in engines]
    for result in results:
        np.testing.assert_array_equal(result, results[0])
    np.testing.assert_allclose(results[0], [0.5 * noise @ weights, noise.sum()], rtol=1e-9)


def test_reduce__reads_a_source_that_fits_once(tmp_path: Path) -> None:
    source = NoiseSource(Layout(512, 16), "cached", log=tmp_path)
    with thread_engine(2, memory_bytes=2**30) as engine:
        for _ in range(3):
            engine.reduce(source, SUM, "noise")
        assert len(list(tmp_path.iterdir())) == 32
        engine.forget(source)
        engine.reduce(source, SUM, "noise")
        assert len(list(tmp_path.iterdir())) == 64


def test_reduce__keeps_within_its_memory_and_still_hits(tmp_path: Path) -> None:
    source = NoiseSource(Layout(512, 16), "large", log=tmp_path)
    blocks_kept = 10
    block_bytes = 16 * 8
    beside_what_stays = INTERPRETER_BYTES + 2 * THREAD_BYTES + blocks_kept * block_bytes + block_bytes // 2
    memory = round(beside_what_stays / (1 - RESIDENT_COPIES * RESIDENT_SHARE))
    with thread_engine(2, memory_bytes=memory) as engine:
        engine.reduce(source, SUM, "noise")
        engine.reduce(source, SUM, "noise")
        assert len(list(tmp_path.iterdir())) == 32 + 32 - blocks_kept


class RecordingScheduler:
    """Runs nothing; records what it was asked to."""

    n_threads, n_tasks, memory_bytes = 3, 3, 0

    def __init__(self) -> None:
        self.runs: list[tuple[Pass, list[list[int]]]] = []

    def processes(self) -> Processes:
        return Processes("threads", 1, self.n_threads, self.memory_bytes, self.memory_bytes)

    def run(self, work: Pass, groups: Sequence[Sequence[int]], advance: Callable[[int], None]) -> list[Node[Any]]:
        self.runs.append((work, [list(group) for group in groups]))
        return [Node(0, number, 1) for group in groups for number in group]

    def each(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Generator[tuple[int, Any], None, None]:
        raise NotImplementedError

    def share(self, value: Any) -> Any:
        return value

    def forget(self, key: str) -> None: ...

    def nearby(self) -> "RecordingScheduler":
        return self

    def close(self) -> None: ...


def test_reduce__is_one_submission_of_as_many_tasks_as_wanted() -> None:
    scheduler = RecordingScheduler()
    assert Engine(scheduler).reduce(array_source({"x": np.zeros(80)}, 8), Reduction(add, add, identity)) == 10
    ((_, groups),) = scheduler.runs
    assert groups == [[0, 1, 2], [3, 4, 5], [6, 7, 8, 9]]


def test_map__writes_each_block_once(engines: list[Engine], tmp_path: Path) -> None:
    source = NoiseSource(Layout(75, 8), "map")
    for engine in engines:
        directory = tmp_path / str(engine.scheduler.n_threads)
        directory.mkdir()
        assert engine.map(source, double_values, "noise", sink=FileSink(directory)) == 75
        for number in range(10):
            written = np.load(directory / f"{number}-{8 * number}-doubled.npy")
            np.testing.assert_array_equal(written, 2 * source.read(number)["noise"])
        assert len(list(directory.iterdir())) == 2 * 10


def test_collect__joins_the_blocks_in_order(engines: list[Engine]) -> None:
    x = np.random.default_rng(0).normal(size=75)
    for engine in engines:
        found = engine.collect(array_source({"x": x}, 8), double_values, "x")
        np.testing.assert_array_equal(found["doubled"], 2 * x)
        np.testing.assert_array_equal(found["rows"], np.arange(75))


@settings(max_examples=30)
@given(st.data())
def test_take__is_fancy_indexing(engines: list[Engine], data: st.DataObject) -> None:
    n_rows = data.draw(st.integers(1, 200))
    rows = np.array(data.draw(st.lists(st.integers(0, n_rows - 1), min_size=1, max_size=30)))
    x, y = np.random.default_rng(0).normal(size=(n_rows, 2)), np.arange(n_rows, dtype=np.int32)
    source = array_source({"x": x, "y": y, "z": y}, 8)
    for engine in engines:
        found = engine.take(source, rows, ["y", "x"])
        assert list(found) == ["y", "x"]
        np.testing.assert_array_equal(found["x"], x[rows])
        np.testing.assert_array_equal(found["y"], y[rows])
        assert found["y"].dtype == np.int32


def test_take__reads_only_the_blocks_that_hold_the_rows(engines: list[Engine], tmp_path: Path) -> None:
    source = NoiseSource(Layout(1000, 16), "take", log=tmp_path)
    engines[1].take(source, np.array([700, 17, 18, 999]), ["noise"])
    assert {int(path.name.split("-")[0]) for path in tmp_path.iterdir()} == {1, 43, 62}


@pytest.mark.parametrize("rows", [[-1, 3], [3, 10]])
def test_take__refuses_rows_that_are_not_there(engines: list[Engine], rows: list[int]) -> None:
    with pytest.raises(IndexError, match="of a source of 10"):
        engines[0].take(array_source({"x": np.zeros(10)}, 4), np.array(rows), ["x"])


def test_take__refuses_no_rows(engines: list[Engine]) -> None:
    with pytest.raises(ValueError, match="at least one row"):
        engines[0].take(array_source({"x": np.zeros(10)}, 4), np.array([], dtype=np.int64), ["x"])


def test_share__stands_for_the_value(engines: list[Engine]) -> None:
    source, table = NoiseSource(Layout(100, 8), "share"), np.arange(7.0)
    for engine in engines:
        assert engine.reduce(source, LOOKUP, engine.share(table)) == table[np.arange(100) % 7].sum()


def test_progress__counts_every_block_up_to_the_total(engines: list[Engine]) -> None:
    source = NoiseSource(Layout(500, 8), "progress")
    for engine in engines:
        events: list[Progress] = []
        engine.with_progress(events.append).reduce(source, SUM, "noise", label="sum")
        assert [event.done for event in events] == list(range(1, 64))
        assert {(event.label, event.total) for event in events} == {("sum", 63)}
        assert [event.finished for event in events] == [False] * 62 + [True]
        assert [event.seconds for event in events] == sorted(event.seconds for event in events)


def test_progress__of_some_blocks_counts_these(engines: list[Engine]) -> None:
    events: list[Progress] = []
    source = NoiseSource(Layout(500, 8), "progress")
    engines[2].with_progress(events.append).reduce(source, SUM, "noise", blocks=[1, 7, 9])
    assert [(event.done, event.total) for event in events] == [(1, 3), (2, 3), (3, 3)]


def test_reduce__passes_on_what_the_map_raised(engines: list[Engine]) -> None:
    source = NoiseSource(Layout(500, 8), "error")
    for engine in engines:
        with refused("bad-value", "Block 40"):
            engine.reduce(source, REFUSE, 40)
        assert engine.reduce(source, SUM, "noise") == engines[0].reduce(source, SUM, "noise"), "it still works"


def test_reduce__that_fails_leaves_no_task_at_work() -> None:
    # The first task to come fails once another has begun. That other may finish the block in its hands, but must not go
    # on: whoever catches the error may remove the store that the tasks write to.
    mapped: list[int] = []
    failing, other_began = threading.Lock(), threading.Event()

    def map_slowly(block: Block) -> int:
        if failing.acquire(blocking=False):
            assert other_began.wait(timeout=30)
            raise InputError("bad-value", "A block is bad.", "Mend it.")
        mapped.append(block.number)
        other_began.set()
        time.sleep(0.02)
        return 1

    source = array_source({"x": np.zeros(128)}, 1)
    with thread_engine(2) as engine:
        with refused("bad-value", "A block is bad."):
            engine.reduce(source, Reduction(map_slowly, add, identity))
        by_then = len(mapped)
    assert len(mapped) - by_then <= 1
