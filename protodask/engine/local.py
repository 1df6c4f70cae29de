"""A cluster of worker processes on this machine, for as long as one run takes."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker

from protodask.engine.engine import Engine
from protodask.errors import ClusterError, InputError

LOOPBACK = "127.0.0.1"

DASHBOARD = f"{LOOPBACK}:0"
"""The HTTP server cannot be switched off, so it is bound to loopback, on a free port."""


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Deliver Ctrl-C after the body.

    The terminal sends it to the workers as well, each of which would answer with a traceback. Threads and processes
    that are started in the body keep the signal blocked; the main thread gets it, and ends them in order.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # or it would be started in the body, and unblock the signal afterwards
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def local_engine(workers: int, memory_bytes: int | None = None) -> Iterator[Engine]:
    """An engine on `workers` new processes of one thread each, which end with the context.

    `memory_bytes` is the limit of each process; by default they share the machine's memory.
    """
    if workers < 1:
        raise InputError("bad-setting", f"{workers} workers were asked for.", "Ask for at least one.")
    if memory_bytes is not None and memory_bytes < 1:
        raise InputError(
            "bad-setting", f"A memory limit of {memory_bytes} bytes was asked for.", "Give a positive number of bytes."
        )
    from distributed import Client, LocalCluster

    from protodask.engine.cluster import ClusterScheduler

    try:
        with _interrupts_held_back():
            cluster = LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                processes=True,
                host=LOOPBACK,
                dashboard_address=DASHBOARD,
                worker_dashboard_address=DASHBOARD,
                memory_limit="auto" if memory_bytes is None else memory_bytes,
                # What goes wrong in a task comes back as an exception; the workers need not tell it a second time.
                silence_logs=logging.CRITICAL,
            )
    except (OSError, RuntimeError, TimeoutError) as error:
        raise ClusterError(
            "no-workers",
            f"{workers} worker processes could not be started on this machine ({error}).",
            "Ask for fewer workers, or compute in this process.",
        ) from error
    with cluster, Client(cluster, set_as_default=False) as client:
        yield Engine(ClusterScheduler(client))
