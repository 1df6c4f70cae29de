"""A TLS cluster of real processes, started as a user starts one."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from protodask.engine import TlsFiles

START_SECONDS = 60
END_SECONDS = 10


def tls_files(folder: Path, role: str = "client") -> TlsFiles:
    """The files of a role in a folder of certificates."""
    return TlsFiles(folder / "ca.pem", folder / f"{role}.pem", folder / f"{role}-key.pem")


@contextmanager
def _running(command: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with log.open("wb") as file:
        process = subprocess.Popen([sys.executable, "-m", *command], stdout=file, stderr=file, env=environment)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(END_SECONDS)


@contextmanager
def secure_cluster(scheduler: Sequence[str], worker: Sequence[str], folder: Path, n_workers: int) -> Iterator[str]:
    """Run two commands that begin with `dask`; in that of the worker, SCHEDULER stands for the scheduler's address.

    Yields that address as soon as the scheduler has one; the workers may still be on their way.
    """
    found = folder / "scheduler.json"
    log = folder / "scheduler.log"
    with ExitStack() as processes:
        process = processes.enter_context(_running([*scheduler, "--port", "0", "--scheduler-file", str(found)], log))
        deadline = time.monotonic() + START_SECONDS
        address = None
        while address is None:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
            try:
                address = json.loads(found.read_text())["address"]
            except (FileNotFoundError, ValueError):
                continue
        for number in range(n_workers):
            own = [part.replace("SCHEDULER", address) for part in worker]
            limits = ["--no-nanny", "--nthreads", "1", "--memory-limit", "1GiB", "--local-directory", str(folder)]
            processes.enter_context(_running([*own, *limits], folder / f"worker-{number}.log"))
        yield address
