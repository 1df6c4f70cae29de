"""What a pass does when its workers or its scheduler are gone."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask
import numpy as np
import pytest
from distributed import Client, Future
from distributed.client import FutureCancelledError
from distributed.core import Status
from support.errors import refused
from support.passes import LOOKUP, SLOW_SUM, SUM, NoiseSource

from protodask.engine import Engine, Layout, Reduction, cluster, identity, open_engine, submission, thread_engine
from protodask.engine.submission import SCHEDULER_LOST, WORKER_SECONDS_SETTING, Patience, cancelled, lost_scheduler
from protodask.errors import ClusterError

StartCluster = Callable[[int], Any]

SOURCE = NoiseSource(Layout(40, 1), "loss")

WAIT_SECONDS = 60.0
"""Bound on what is waited for; on an idle machine all of it comes in a few seconds."""


@pytest.fixture
def source(tmp_path: Path) -> NoiseSource:
    """A source that shows that a pass over it is under way."""
    (tmp_path / "reads").mkdir()
    return NoiseSource(SOURCE.layout, f"loss-{tmp_path}", log=tmp_path / "reads")


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@contextlib.contextmanager
def in_mid_pass(source: NoiseSource, action: Callable[[], object]) -> Iterator[None]:
    """Do something from another thread as soon as a few blocks of the source were read."""
    log = source.log
    assert log is not None

    def act() -> None:
        wait_until(lambda: len(list(log.iterdir())) >= 3)
        action()

    with ThreadPoolExecutor(1) as other_thread:
        acted = other_thread.submit(act)
        yield
        acted.result()


@pytest.mark.slow
def test_reduce__without_a_worker_ends_after_the_stated_time(start_cluster: StartCluster) -> None:
    cluster = start_cluster(0)
    with (
        dask.config.set({WORKER_SECONDS_SETTING: "1500ms"}),
        open_engine(cluster.scheduler_address) as engine,
        refused("no-workers", "1.5 seconds", "Start workers", kind=ClusterError),
    ):
        engine.reduce(SOURCE, SUM, "noise")


@pytest.mark.slow
def test_reduce__whose_workers_leave_in_mid_pass_ends_after_the_stated_time(
    own_cluster: StartCluster, source: NoiseSource
) -> None:
    cluster = own_cluster(2)
    with (
        dask.config.set({WORKER_SECONDS_SETTING: "1s"}),
        open_engine(cluster.scheduler_address) as engine,
        in_mid_pass(source, lambda: cluster.scale(0)),
        refused("no-workers", "1 seconds", "Start workers", kind=ClusterError),
    ):
        engine.reduce(source, SLOW_SUM, "noise", 0.5)


@pytest.mark.slow
def test_reduce__goes_on_when_workers_come_back_within_the_stated_time(
    own_cluster: StartCluster, source: NoiseSource
) -> None:
    cluster = own_cluster(1)
    with thread_engine(1) as local:
        expected = local.reduce(SOURCE, SUM, "noise")

    def restart() -> None:
        cluster.scale(0)
        wait_until(lambda: not cluster.scheduler.workers)
        cluster.scale(1)

    with open_engine(cluster.scheduler_address) as engine, in_mid_pass(source, restart):
        assert engine.reduce(source, SLOW_SUM, "noise", 0.05) == expected


def test_reduce__on_a_cluster_that_adapts_from_no_worker_gets_one(own_cluster: StartCluster) -> None:
    cluster = own_cluster(0)
    cluster.adapt(minimum=0, maximum=1, interval="100ms")
    with (
        dask.config.set({WORKER_SECONDS_SETTING: "30s"}),
        open_engine(cluster.scheduler_address) as engine,
        thread_engine(1) as local,
    ):
        assert engine.reduce(SOURCE, SUM, "noise") == local.reduce(SOURCE, SUM, "noise")


def test_patience__begins_anew_with_every_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    with dask.config.set({WORKER_SECONDS_SETTING: "100s"}):
        patience = Patience()
    for _ in range(3):
        patience.lose(0)
        now += 90
        patience.lose(0)
        patience.regain()
        now += 1000
    patience.lose(0)
    now += 101
    with refused("no-workers", "100 seconds", kind=ClusterError):
        patience.lose(0)


@pytest.mark.parametrize(
    ("status", "task", "wanted"),
    [
        (Status.running, "executing", True),
        (Status.paused, "executing", True),  # its memory is nearly full: it takes no more tasks, and ends this one
        (Status.closing, "executing", False),
        (Status.running, "cancelled", False),
        (Status.running, None, False),
    ],
)
def test_task__goes_on_while_somebody_waits_for_it(
    status: Status, task: str | None, wanted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = {} if task is None else {"key": SimpleNamespace(state=task)}
    worker = SimpleNamespace(status=status, state=SimpleNamespace(tasks=tasks))
    monkeypatch.setattr(cluster, "get_worker", lambda: worker)
    monkeypatch.setattr(cluster, "thread_state", SimpleNamespace(key="key"))
    with contextlib.nullcontext() if wanted else pytest.raises(cluster._UnwantedError):
        cluster._check_wanted()()


@pytest.mark.slow
def test_check_workers__counts_those_that_are_paused_as_gone(
    start_cluster: StartCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submission, "RUNNING", "none has this status")
    cluster = start_cluster(2)
    with (
        dask.config.set({WORKER_SECONDS_SETTING: "300ms"}),
        open_engine(cluster.scheduler_address) as engine,
        refused("no-workers", "2 workers", "0.3 seconds", "give them more", kind=ClusterError),
    ):
        engine.reduce(NoiseSource(Layout(8, 1), "paused"), SLOW_SUM, "noise", 1.0)


@contextlib.contextmanager
def scheduler_process(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], Engine]]:
    """A scheduler with one worker, each a process."""
    file = folder / "scheduler.json"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    common = ["--dashboard-address", "127.0.0.1:0", "--host", "127.0.0.1"]
    with contextlib.ExitStack() as started:

        def start(*arguments: str) -> subprocess.Popen[bytes]:
            process = subprocess.Popen(
                [sys.executable, "-m", "distributed.cli." + arguments[0], *arguments[1:], *common],
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            started.callback(process.wait, 30)
            started.callback(process.kill)
            return process

        scheduler = start("dask_scheduler", "--port", "0", "--scheduler-file", str(file))
        start("dask_worker", "--scheduler-file", str(file), "--no-nanny", "--nthreads", "1")
        with open_engine(address_in(file)) as engine:
            yield scheduler, engine


def address_in(file: Path) -> str:
    """The address in a scheduler's file, once it is written."""

    def written() -> str | None:
        with contextlib.suppress(FileNotFoundError, ValueError):
            return str(json.loads(file.read_text())["address"])
        return None

    wait_until(written)
    return str(written())


@pytest.mark.slow
def test_reduce__whose_scheduler_dies_says_so(tmp_path: Path, source: NoiseSource) -> None:
    with scheduler_process(tmp_path) as (scheduler, engine):
        assert engine.scheduler.n_threads == 1
        with (
            in_mid_pass(source, lambda: os.kill(scheduler.pid, signal.SIGKILL)),
            refused("connection-lost", "scheduler still runs", kind=ClusterError),
        ):
            engine.reduce(source, SLOW_SUM, "noise", 0.5)


def test_lost_scheduler__is_told_in_one_line() -> None:
    told = lost_scheduler("a task was cancelled: lost.\nThe client lost the scheduler. Repeat your work.")
    assert told.seen == (
        "The connection to the scheduler was lost "
        "(a task was cancelled: lost. The client lost the scheduler. Repeat your work)."
    )


def test_reduce__whose_tasks_are_cancelled_says_so(start_cluster: StartCluster, source: NoiseSource) -> None:
    with Client(start_cluster(1).scheduler_address, set_as_default=False) as client, open_engine(client) as engine:

        def cancel() -> None:
            client.cancel([Future(key, client) for key in client.futures], force=True)

        with in_mid_pass(source, cancel), refused("task-lost", "were cancelled", "repeat", kind=ClusterError) as told:
            engine.reduce(source, SLOW_SUM, "noise", 0.1)
        assert "scheduler" not in told.value.seen
        assert np.isfinite(engine.reduce(SOURCE, SUM, "noise"))


def test_cancelled__tells_no_result_and_knows_a_scheduler_that_went_away() -> None:
    running: Any = SimpleNamespace(status="running")
    assert cancelled(running, ("tcp://a", [np.zeros(3)])).seen == "Tasks were cancelled before they ended."
    closed: Any = SimpleNamespace(status="closed")
    told = cancelled(closed, ("tcp://a", [np.zeros(3)]))
    assert (told.code, told.seen) == (
        "connection-lost",
        "The connection to the scheduler was lost (its tasks were cancelled).",
    )
    assert cancelled(running, FutureCancelledError("a", SCHEDULER_LOST)).code == "connection-lost"


@pytest.mark.slow
def test_reduce__after_the_scheduler_died_between_two_passes_says_so(tmp_path: Path) -> None:
    with scheduler_process(tmp_path) as (scheduler, engine):
        shared = engine.share(np.arange(3.0))
        assert engine.reduce(SOURCE, LOOKUP, shared) > 0
        scheduler.kill()
        scheduler.wait(30)
        for _ in range(2):
            with refused("connection-lost", "scheduler still runs", kind=ClusterError):
                engine.reduce(SOURCE, SUM, "noise")
        with refused("connection-lost", kind=ClusterError):
            engine.share(np.arange(3.0))


@pytest.mark.slow
def test_reduce__of_functions_that_the_workers_cannot_import_fails(
    start_cluster: StartCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = start_cluster(1)
    (tmp_path / "only_here.py").write_text("def total(block, name):\n    return float(block[name].sum())\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import importlib

    only_here = importlib.import_module("only_here")
    unknown: Reduction[float, float] = Reduction(only_here.total, max, identity)
    with open_engine(cluster.scheduler_address) as engine, refused("package-missing", "only_here", kind=ClusterError):
        engine.reduce(SOURCE, unknown, "noise")
    with open_engine(cluster.scheduler_address) as engine, refused("package-missing", "only_here", kind=ClusterError):
        list(engine.each(only_here.total, ["noise"]))
