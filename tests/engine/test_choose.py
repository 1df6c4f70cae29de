import os
from typing import Any

import numpy as np
import psutil
import pytest
from support.errors import refused
from support.passes import SUM

from protodask.engine import Engine, array_source, open_engine, thread_engine, threads
from protodask.engine.choose import EngineLike, local_engine
from protodask.engine.threads import MOST_THREADS


def test_open_engine__of_none_uses_the_threads_of_this_process() -> None:
    with open_engine(None) as engine:
        assert engine.scheduler.n_threads == min(len(os.sched_getaffinity(0)), MOST_THREADS)
        assert engine.scheduler.memory_bytes > 2**20
        assert engine.reduce(array_source({"x": np.arange(10.0)}, 4), SUM, "x") == 45.0


@pytest.mark.parametrize(("processors", "expected"), [(1, 1), (4, 4), (16, 4)])
def test_thread_engine__has_four_threads_at_most_unless_more_are_asked_for(
    monkeypatch: pytest.MonkeyPatch, processors: int, expected: int
) -> None:
    monkeypatch.setattr(threads, "available_threads", lambda: processors)
    with thread_engine() as engine:
        assert engine.scheduler.processes().threads == expected
    with thread_engine(9) as engine:
        assert engine.scheduler.processes().threads == 9


def test_open_engine__closes_what_it_opened() -> None:
    source = array_source({"x": np.arange(10.0)}, 4)
    with open_engine(None) as engine:
        pass
    with refused("engine-closed"):
        engine.reduce(source, SUM, "x")


def test_open_engine__leaves_an_engine_open() -> None:
    with thread_engine(1) as given:
        with open_engine(given) as engine:
            assert engine is given
        assert given.reduce(array_source({"x": np.arange(10.0)}, 4), SUM, "x") == 45.0


@pytest.mark.parametrize("wrong", [3, Engine, [None]])
def test_open_engine__refuses_anything_else(wrong: EngineLike) -> None:
    with (
        refused("wrong-type", repr(wrong), "distributed.Client", "None"),
        open_engine(wrong),
    ):
        pass


@pytest.mark.parametrize("memory_bytes", [0, -5, float("nan"), "1 GiB"])
def test_thread_engine__needs_memory(memory_bytes: Any) -> None:
    with refused("bad-setting", f"{memory_bytes} bytes"):
        thread_engine(memory_bytes=memory_bytes)


@pytest.mark.parametrize("threads", [0, -2, "2", 1.5])
def test_thread_engine__needs_a_thread(threads: Any) -> None:
    with refused("bad-setting", "threads", threads):
        thread_engine(threads)


def test_thread_engine__states_its_limits() -> None:
    with thread_engine(3, memory_bytes=12345) as engine:
        assert (engine.scheduler.n_threads, engine.scheduler.memory_bytes) == (3, 12345)


@pytest.mark.slow
def test_local_engine__runs_on_workers_with_a_limit_and_ends_them() -> None:
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    source = array_source({"x": np.arange(5000.0)}, block_rows=1024)
    with local_engine(2, memory_bytes=400 * 2**20) as engine:
        assert engine.scheduler.n_threads == 2
        assert engine.scheduler.memory_bytes == 400 * 2**20
        assert engine.reduce(source, SUM, "x") == 4999 * 5000 / 2
        workers = [child for child in psutil.Process().children(recursive=True) if child.pid not in before]
        assert len(workers) >= 2
        listening = [
            connection
            for process in (psutil.Process(), *workers)
            for connection in process.net_connections(kind="inet")
            if connection.status == psutil.CONN_LISTEN
        ]
        assert listening
        assert {connection.laddr.ip for connection in listening} == {"127.0.0.1"}


@pytest.mark.parametrize("workers", [0, -1, "2", 1.5])
def test_local_engine__needs_a_worker(workers: Any) -> None:
    with refused("bad-setting", f"{workers!r} workers"), local_engine(workers):
        pass


def test_local_engine__needs_memory() -> None:
    with refused("bad-setting", "0 bytes"), local_engine(1, memory_bytes=0):
        pass
