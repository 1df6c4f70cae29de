"""Clusters of worker processes on this machine."""

import numpy as np
import psutil
import pytest
from support.errors import refused
from support.passes import SUM

from protodask.engine import array_source
from protodask.engine.local import local_engine


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


@pytest.mark.parametrize("workers", [0, -1])
def test_local_engine__needs_a_worker(workers: int) -> None:
    with refused("bad-setting", f"{workers} workers"), local_engine(workers):
        pass


def test_local_engine__needs_memory() -> None:
    with refused("bad-setting", "0 bytes"), local_engine(1, memory_bytes=0):
        pass
