"""What a pass does when its workers or its scheduler are gone."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
from support.passes import LOOKUP, SLOW_SUM, SUM, NoiseSource

from protodask.engine import Engine, Layout, Reduction, identity, open_engine, submission, thread_engine
from protodask.engine.submission import WORKER_SECONDS_SETTING, lost_scheduler
from protodask.errors import ClusterError

StartCluster = Callable[[int], Any]

SOURCE = NoiseSource(Layout(40, 1), "loss")


@contextlib.contextmanager
def after(seconds: float, action: Callable[[], object]) -> Iterator[None]:
    """Do something from another thread meanwhile."""
    timer = threading.Timer(seconds, action)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join(30)


def test_reduce__without_a_worker_ends_after_the_stated_time(start_cluster: StartCluster) -> None:
    cluster = start_cluster(0)
    with (
        dask.config.set({WORKER_SECONDS_SETTING: "1500ms"}),
        open_engine(cluster.scheduler_address) as engine,
        pytest.raises(ClusterError, match="no worker for 1.5 seconds.*Start workers for it, and repeat"),
    ):
        engine.reduce(SOURCE, SUM, "noise")


def test_reduce__whose_workers_leave_in_mid_pass_ends_after_the_stated_time(own_cluster: StartCluster) -> None:
    cluster = own_cluster(2)
    with (
        dask.config.set({WORKER_SECONDS_SETTING: "2s"}),
        open_engine(cluster.scheduler_address) as engine,
        after(1, lambda: cluster.scale(0)),
        pytest.raises(ClusterError, match="no worker for 2 seconds.*Start workers for it, and repeat"),
    ):
        engine.reduce(SOURCE, SLOW_SUM, "noise", 0.5)


def test_reduce__goes_on_when_workers_come_back_within_the_stated_time(own_cluster: StartCluster) -> None:
    cluster = own_cluster(1)
    with thread_engine(1) as local:
        expected = local.reduce(SOURCE, SUM, "noise")

    def restart() -> None:
        cluster.scale(0)
        threading.Event().wait(2)
        cluster.scale(1)

    with open_engine(cluster.scheduler_address) as engine, after(0.5, restart):
        assert engine.reduce(SOURCE, SLOW_SUM, "noise", 0.1) == expected


def test_check_workers__counts_those_that_are_paused_as_gone(
    start_cluster: StartCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submission, "RUNNING", "none has this status")
    cluster = start_cluster(2)
    with (
        dask.config.set({WORKER_SECONDS_SETTING: "1s"}),
        open_engine(cluster.scheduler_address) as engine,
        pytest.raises(ClusterError, match="None of the 2 workers took a task for 1 seconds.*give them more"),
    ):
        engine.reduce(SOURCE, SLOW_SUM, "noise", 0.5)


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
    pause = threading.Event()
    for _ in range(300):
        with contextlib.suppress(FileNotFoundError, ValueError):
            return str(json.loads(file.read_text())["address"])
        pause.wait(0.1)
    pytest.fail("the scheduler wrote no file")


def test_reduce__whose_scheduler_dies_says_so(tmp_path: Path) -> None:
    with scheduler_process(tmp_path) as (scheduler, engine):
        assert engine.scheduler.n_threads == 1
        with (
            after(1, lambda: os.kill(scheduler.pid, signal.SIGKILL)),
            pytest.raises(ClusterError, match="connection to the scheduler was lost.*scheduler still runs"),
        ):
            engine.reduce(SOURCE, SLOW_SUM, "noise", 0.5)


def test_lost_scheduler__is_told_in_one_line() -> None:
    told = lost_scheduler("a task was cancelled: lost.\nThe client lost the scheduler. Repeat your work.")
    assert told.seen == (
        "The connection to the scheduler was lost "
        "(a task was cancelled: lost. The client lost the scheduler. Repeat your work)."
    )


def test_reduce__after_the_scheduler_died_between_two_passes_says_so(tmp_path: Path) -> None:
    with scheduler_process(tmp_path) as (scheduler, engine):
        shared = engine.share(np.arange(3.0))
        assert engine.reduce(SOURCE, LOOKUP, shared) > 0
        scheduler.kill()
        scheduler.wait(30)
        for _ in range(2):
            with pytest.raises(ClusterError, match="connection to the scheduler was lost.*scheduler still runs"):
                engine.reduce(SOURCE, SUM, "noise")
        with pytest.raises(ClusterError, match="connection to the scheduler was lost"):
            engine.share(np.arange(3.0))


def test_reduce__of_functions_that_the_workers_cannot_import_fails(
    start_cluster: StartCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = start_cluster(1)
    (tmp_path / "only_here.py").write_text("def total(block, name):\n    return float(block[name].sum())\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import importlib

    only_here = importlib.import_module("only_here")
    unknown: Reduction[float, float] = Reduction(only_here.total, max, identity)
    with open_engine(cluster.scheduler_address) as engine, pytest.raises(ClusterError, match="only_here"):
        engine.reduce(SOURCE, unknown, "noise")
