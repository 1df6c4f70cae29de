import asyncio
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
from distributed import Client
from support.errors import refused
from support.passes import (
    HALF_SUM,
    KILL,
    KILL_TWICE,
    LOOKUP,
    PROCESSES,
    PRODUCTS,
    REFUSE,
    REFUSE_SLOWLY,
    SQUARED_LOOKUP,
    SUM,
    SUM_BESIDE,
    FileSink,
    NoiseSource,
    double_values,
    reduce_beside_tasks,
    reduce_in_task,
)

from protodask.engine import (
    Engine,
    Layout,
    Progress,
    array_source,
    open_engine,
    thread_engine,
    zip_sources,
)
from protodask.engine import cluster as cluster_module
from protodask.engine import submission as submission_module
from protodask.errors import LostTaskError

StartCluster = Callable[[int], Any]


@pytest.fixture(scope="module")
def local() -> Iterator[Engine]:
    with thread_engine(2) as engine:
        yield engine


@pytest.mark.parametrize("n_rows", [1, 15, 16, 17, 333, 1000])
def test_reduce__gives_the_bits_of_the_threads(cluster: Engine, local: Engine, n_rows: int) -> None:
    source = NoiseSource(Layout(n_rows, 16), f"bits-{n_rows}")
    expected = local.reduce(source, SUM, "noise")
    assert cluster.reduce(source, SUM, "noise") == expected, "cold"
    assert cluster.reduce(source, SUM, "noise") == expected, "warm, on preferred workers"


def test_reduce__computes_on_the_workers(cluster: Engine) -> None:
    workers = cluster.reduce(NoiseSource(Layout(64, 16), "where"), PROCESSES)
    assert os.getpid() not in workers
    assert 1 <= len(workers) <= 2


def test_reduce__over_some_blocks_reads_no_other(cluster: Engine, local: Engine, tmp_path: Path) -> None:
    source = NoiseSource(Layout(1000, 16), f"some-{tmp_path}", log=tmp_path)
    wanted = [3, 4, 5, 20, 41, 62]
    found = cluster.reduce(source, SUM, "noise", blocks=wanted)
    assert sorted(int(path.name.split("-")[0]) for path in tmp_path.iterdir()) == wanted
    assert found == local.reduce(source, SUM, "noise", blocks=wanted)


def test_reduce__of_resident_and_stored_sources_zipped(cluster: Engine, local: Engine) -> None:
    layout = Layout(333, 16)
    stored = NoiseSource(layout, "stored")
    held = array_source({"w": np.random.default_rng(7).uniform(size=333)}, 16)
    also_held = array_source({"u": np.random.default_rng(8).uniform(size=333)}, 16)
    for source in (zip_sources(stored, held), zip_sources(held, stored), zip_sources(also_held, stored, held)):
        for _ in range(2):
            found = cluster.reduce(source, PRODUCTS, "noise", "w", 0.5)
            np.testing.assert_array_equal(found, local.reduce(source, PRODUCTS, "noise", "w", 0.5))
    both_held = zip_sources(also_held, held)
    found = cluster.reduce(both_held, PRODUCTS, "u", "w", 1.0)
    np.testing.assert_array_equal(found, local.reduce(both_held, PRODUCTS, "u", "w", 1.0))


def test_reduce__of_a_resident_source_again_and_after_it_was_forgotten(cluster: Engine) -> None:
    source = array_source({"x": np.arange(100.0)}, 16)
    assert cluster.reduce(source, SUM, "x") == 4950.0
    assert cluster.reduce(source, SUM, "x") == 4950.0
    cluster.forget(source)
    assert cluster.reduce(source, SUM, "x") == 4950.0


@pytest.mark.parametrize("length", [7, 50_000], ids=["inline", "once for each worker"])
def test_reduce__passes_arguments_of_any_size(cluster: Engine, local: Engine, length: int) -> None:
    source, table = NoiseSource(Layout(1000, 16), "argument"), np.random.default_rng(0).normal(size=length)
    expected = local.reduce(source, LOOKUP, table)
    assert cluster.reduce(source, LOOKUP, table) == expected
    shared = cluster.share(table)
    assert cluster.reduce(source, LOOKUP, shared) == expected
    assert cluster.reduce(source, LOOKUP, shared) == expected
    assert cluster.reduce(source, SQUARED_LOOKUP, shared) == local.reduce(source, SQUARED_LOOKUP, table)


def test_reduce__finishes_here(cluster: Engine, local: Engine) -> None:
    source = NoiseSource(Layout(100, 8), "finish")
    assert cluster.reduce(source, HALF_SUM, "noise") == local.reduce(source, SUM, "noise") / 2


def test_map__writes_from_the_workers(cluster: Engine, tmp_path: Path) -> None:
    source = NoiseSource(Layout(75, 8), "map")
    assert cluster.map(source, double_values, "noise", sink=FileSink(tmp_path)) == 75
    assert len(list(tmp_path.iterdir())) == 2 * 10
    for number in range(10):
        written = np.load(tmp_path / f"{number}-{8 * number}-doubled.npy")
        np.testing.assert_array_equal(written, 2 * source.read(number)["noise"])


def test_collect__joins_the_blocks_in_order(cluster: Engine) -> None:
    x = np.random.default_rng(0).normal(size=75)
    found = cluster.collect(array_source({"x": x}, 8), double_values, "x")
    np.testing.assert_array_equal(found["doubled"], 2 * x)
    np.testing.assert_array_equal(found["rows"], np.arange(75))


def test_take__is_fancy_indexing(cluster: Engine) -> None:
    x = np.random.default_rng(0).normal(size=(100, 2))
    rows = np.array([99, 3, 3, 50, 0, 98])
    np.testing.assert_array_equal(cluster.take(array_source({"x": x}, 8), rows, ["x"])["x"], x[rows])


def test_progress__reaches_the_total(cluster: Engine) -> None:
    events: list[Progress] = []
    cluster.with_progress(events.append).reduce(NoiseSource(Layout(500, 8), "progress"), SUM, "noise", label="sum")
    done = [event.done for event in events]
    assert done == sorted(set(done))
    assert done[-1] == 63
    assert {(event.label, event.total) for event in events} == {("sum", 63)}


def test_reduce__passes_on_what_the_map_raised(cluster: Engine, local: Engine) -> None:
    source = NoiseSource(Layout(500, 8), "error")
    with refused("bad-value", "Block 40") as caught:
        cluster.reduce(source, REFUSE, 40)
    assert caught.value.seen == "Block 40 holds a missing value."
    assert caught.value.remedy == "Remove the row."
    assert cluster.reduce(source, SUM, "noise") == local.reduce(source, SUM, "noise"), "it still works"


def test_scheduler__states_its_limits(cluster: Engine) -> None:
    assert (cluster.scheduler.n_threads, cluster.scheduler.memory_bytes) == (2, 2**30)


@pytest.mark.parametrize(("limits", "expected"), [((3, 2, 5), 2), ((0, 7, 4), 4)])
def test_scheduler__of_unequal_workers_has_the_memory_of_the_smallest(
    cluster: Engine, monkeypatch: pytest.MonkeyPatch, limits: tuple[int, ...], expected: int
) -> None:
    """Any worker may get any task; one of 0 has no limit."""
    workers = {f"tls://w{number}": {"memory_limit": limit * 2**30} for number, limit in enumerate(limits)}
    monkeypatch.setattr(cluster_module, "workers_of", lambda client: workers)
    assert cluster.scheduler.memory_bytes == expected * 2**30


def test_scheduler__computes_on_four_threads_of_a_worker_at_most(
    cluster: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = {f"tls://w{number}": {"nthreads": threads, "memory_limit": 0} for number, threads in enumerate((16, 2))}
    for name in ("workers_of", "first_workers"):
        monkeypatch.setattr(cluster_module, name, lambda client: workers)
    assert cluster.scheduler.n_threads == 6
    assert cluster.scheduler.processes().threads == 4


def test_open_engine__of_a_client_leaves_it_connected(address: str) -> None:
    with Client(address, set_as_default=False) as client:
        with open_engine(client) as engine:
            assert engine.reduce(array_source({"x": np.arange(100.0)}, 16), SUM, "x") == 4950.0
        assert client.status == "running"
        assert client.submit(len, (1, 2, 3)).result(timeout=30) == 3


@pytest.mark.parametrize("by_address", [True, False])
def test_open_engine__in_tasks_on_all_threads_leaves_these_to_the_passes(address: str, by_address: bool) -> None:
    with Client(address, set_as_default=False) as client:
        tasks = [client.submit(reduce_in_task, address if by_address else None, pure=False) for _ in range(2)]
        assert client.gather([client.submit(float, task) for task in tasks]) == [4950.0, 4950.0]


def test_open_engine__in_a_task_that_gave_its_thread_up_goes_on(address: str) -> None:
    with Client(address, set_as_default=False) as client:
        assert client.submit(reduce_beside_tasks, address).result(timeout=60) == 4950.0


def test_open_engine__refuses_a_client_of_the_event_loop_it_is_called_in(address: str) -> None:
    def reduce(client: Client) -> float:
        with open_engine(client) as engine:
            return engine.reduce(array_source({"x": np.arange(100.0)}, 16), SUM, "x")

    async def in_event_loop() -> float:
        async with Client(address, asynchronous=True, set_as_default=False) as client:
            with refused("unsupported", "asynchronous=True", "asyncio.to_thread"):
                reduce(client)
            return await asyncio.to_thread(reduce, client)

    assert asyncio.run(asyncio.wait_for(in_event_loop(), 60)) == 4950.0


@pytest.mark.slow
def test_open_engine__that_fails_leaves_no_noise_at_exit(tmp_path: Path) -> None:
    program = """
from protodask.engine import open_engine
from protodask.errors import ClusterError
try:
    open_engine("127.0.0.1").__enter__()
except ClusterError as error:
    print(error.code)
"""
    finished = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=200,
        check=True,
        cwd=tmp_path,
    )
    assert finished.stdout == "no-answer\n"
    assert finished.stderr == ""


@pytest.mark.slow
def test_reduce__that_kills_its_worker_says_so_after_a_few_tries(own_cluster: StartCluster, tmp_path: Path) -> None:
    with dask.config.set({"distributed.scheduler.allowed-failures": 0}):
        small = own_cluster(1)
    with (
        open_engine(small.scheduler_address) as engine,
        pytest.warns(UserWarning, match="tried again") as told,
        refused("task-lost", "give workers more", kind=LostTaskError),
    ):
        engine.reduce(NoiseSource(Layout(16, 16), "killer"), KILL, tmp_path)
    assert ["(2 of 3)" in str(told[0].message), "(3 of 3)" in str(told[1].message), len(told)] == [True, True, 2]
    assert len(list(tmp_path.iterdir())) == submission_module.MOST_TRIES


@pytest.mark.slow
def test_reduce__whose_task_lost_too_many_workers_by_chance_tries_again(
    own_cluster: StartCluster, local: Engine, tmp_path: Path
) -> None:
    with dask.config.set({"distributed.scheduler.allowed-failures": 0}):
        small = own_cluster(1)
    source = NoiseSource(Layout(16, 16), f"killed-{tmp_path}")
    with open_engine(small.scheduler_address) as engine:
        found = engine.reduce(source, KILL_TWICE, "noise", tmp_path)
    assert len(list(tmp_path.iterdir())) == 2
    assert found == local.reduce(source, SUM, "noise")


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes of the tasks of each submission."""
    sizes: list[int] = []
    submit = submission_module.submit_graph

    def measured(client: Client, graph: dict[str, Any], keys: list[str]) -> Any:
        sizes.append(sum(len(pickle.dumps(task)) for task in graph.values()))
        return submit(client, graph, keys)

    monkeypatch.setattr(submission_module, "submit_graph", measured)
    return sizes


def test_reduce__of_a_source_with_much_to_say_sends_it_once(cluster: Engine, local: Engine, sent: list[int]) -> None:
    source = NoiseSource(Layout(333, 16), "long-" + "x" * 2 * cluster_module.SHARE_BYTES)
    expected = local.reduce(source, SUM, "noise")
    for _ in range(4):
        assert cluster.reduce(source, SUM, "noise") == expected
    assert 2 * cluster_module.SHARE_BYTES < sent[0] < 3 * cluster_module.SHARE_BYTES, "for two tasks"
    # A task that ended elsewhere than it was to, or where nobody knew what it was about, had it sent once more.
    assert sorted(sent)[0] < 2 * 2**10


def test_reduce__sends_arguments_once_whatever_they_are(cluster: Engine, local: Engine, sent: list[int]) -> None:
    source, text = NoiseSource(Layout(333, 16), "arguments"), "x" * 300_000
    assert cluster.reduce(source, SUM_BESIDE, "noise", text) == local.reduce(source, SUM, "noise")
    assert len(text) < sent[0] < 1.1 * len(text)


def test_reduce__of_a_source_that_is_too_long_to_be_kept_sends_it_with_each_pass(
    cluster: Engine, local: Engine, sent: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_module, "LONGEST_DESCRIPTION", 1000)
    source = NoiseSource(Layout(333, 16), "longest-" + "x" * 2000)
    for _ in range(3):
        assert cluster.reduce(source, SUM, "noise") == local.reduce(source, SUM, "noise")
    assert len(sent) == 3
    assert min(sent) > 2000


def test_reduce__on_workers_that_do_not_know_what_they_were_told(
    cluster: Engine, local: Engine, sent: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when they began anew at the same address."""
    source = NoiseSource(Layout(333, 16), "forgotten")
    monkeypatch.setattr(cluster_module.ClusterScheduler, "_knows", lambda *_: True)
    for _ in range(2):
        assert cluster.reduce(source, SUM, "noise") == local.reduce(source, SUM, "noise")
    assert len(sent) > 2, "tasks were told more"


@pytest.fixture(scope="module")
def threaded(own_cluster: Callable[..., Any]) -> Any:
    """Two workers of three threads each, which tests may kill."""
    return own_cluster(2, threads=3)


def test_reduce__on_threads_of_each_worker_gives_the_bits_of_one(threaded: Any, local: Engine, tmp_path: Path) -> None:
    """One task for each worker, whose threads share its blocks."""
    with open_engine(threaded.scheduler_address) as engine:
        assert (engine.scheduler.n_threads, engine.scheduler.n_tasks) == (6, 2)
        for n_rows in (1, 17, 1000):
            log = tmp_path / str(n_rows)
            log.mkdir()
            source = NoiseSource(Layout(n_rows, 16), f"threads-{log}", log=log)
            for _ in range(3):
                assert engine.reduce(source, SUM, "noise") == local.reduce(replace(source, log=None), SUM, "noise")
            assert len(list(log.iterdir())) == source.layout.n_blocks, "what was read is in the cache of its worker"
        with refused("bad-value", "Block 40"):
            engine.reduce(NoiseSource(Layout(1000, 16), "error"), REFUSE, 40)


def test_reduce__merges_the_partials_of_many_workers_on_them(
    threaded: Any, local: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_module, "MOST_TO_DRIVER", 1)
    monkeypatch.setattr(cluster_module, "MERGED_TOGETHER", 2)
    merged = cluster_module.ClusterScheduler._merged

    def merged_after_a_loss(self: Any, futures: Any, merge: Any) -> Any:
        if losing:
            losing.pop()
            victim = next(iter(client.who_has(futures).values()))[0]
            os.kill(client.run(os.getpid, workers=[victim])[victim], signal.SIGKILL)
        nodes = merged(self, futures, merge)
        at_driver.append(nodes)
        return nodes

    monkeypatch.setattr(cluster_module.ClusterScheduler, "_merged", merged_after_a_loss)
    losing: list[bool] = []
    at_driver: list[Any] = []
    with Client(threaded, set_as_default=False) as client, open_engine(client) as engine:
        source = NoiseSource(Layout(1000, 16), "merged")
        expected = local.reduce(source, SUM, "noise")
        for _ in range(2):
            assert engine.reduce(source, SUM, "noise") == expected
        assert [len(nodes) for nodes in at_driver] == [6, 6], "of 63 blocks: 32, 16, 8, 4, 2 and 1"
        some = [1, 2, 3, 40, 41]
        assert engine.reduce(source, SUM, "noise", blocks=some) == local.reduce(source, SUM, "noise", blocks=some)
        losing.append(True)
        assert engine.reduce(source, SUM, "noise") == expected, "a worker was lost, and what it had found"
        with refused("bad-value", "Block 40"):
            engine.reduce(source, REFUSE, 40)


@pytest.mark.slow
def test_reduce__that_failed_leaves_nothing_running(cluster: Engine, tmp_path: Path) -> None:
    source = NoiseSource(Layout(640, 16), f"left-{tmp_path}", log=tmp_path)
    with refused("bad-value", "Block 1"):
        cluster.reduce(source, REFUSE_SLOWLY, 1, 0.3)
    deadline, read, before = time.monotonic() + 20, -1, -2
    while read != before:
        assert time.monotonic() < deadline
        before = len(list(tmp_path.iterdir()))
        time.sleep(1)
        read = len(list(tmp_path.iterdir()))
    assert read < 15, "the other worker did not go through its twenty blocks"
