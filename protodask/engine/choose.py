"""From what a user says to an engine."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Union

from protodask.engine.connect import TlsFiles
from protodask.engine.engine import Engine
from protodask.engine.threads import ThreadScheduler
from protodask.errors import ClusterError, InputError, refusing

if TYPE_CHECKING:
    from distributed import Client

EngineLike = Union[Engine, "Client", str, None]
"""An engine; a `distributed.Client`; a scheduler's address; None for threads of this process.

An address is tls://, with the certificates of Dask's configuration, or on this machine; `cluster_engine` takes others.
"""


def open_engine(engine: EngineLike) -> AbstractContextManager[Engine]:
    """The engine meant; one that had to be opened here is closed at the end.

    In a task of Dask's, one of a cluster leaves the thread of that task to others until then.
    """
    if isinstance(engine, Engine):
        return nullcontext(engine)
    opened = _open(engine)
    return opened if engine is None else _beside_tasks(opened)


@contextmanager
def _beside_tasks(engine: Engine) -> Iterator[Engine]:
    from protodask.engine.cluster import thread_given_up

    with engine, thread_given_up():
        yield engine


def _open(engine: object) -> Engine:
    if engine is None:
        return thread_engine()
    if isinstance(engine, str):
        return cluster_engine(engine)
    from distributed import Client  # which takes a third of a second to import

    from protodask.engine.cluster import ClusterScheduler

    if isinstance(engine, Client):
        if engine.asynchronous:
            raise InputError(
                "unsupported",
                "engine is a client of the event loop that runs in this thread, which a computation would hold up.",
                "Give one made without asynchronous=True, or compute in another thread, as asyncio.to_thread does.",
            )
        return Engine(ClusterScheduler(engine))
    raise InputError(
        "wrong-type",
        f"engine is {engine!r}.",
        "Give an Engine, a distributed.Client, a scheduler address, or None for this process.",
    )


def thread_engine(threads: int | None = None, memory_bytes: int | None = None) -> Engine:
    """An engine on threads of this process: one a processor, though four at most, and within its memory limit unless
    said otherwise. On more processors worker processes are faster.
    """
    if threads is not None and not _is_count(threads, Integral):
        raise InputError("bad-setting", f"threads is {threads!r}.", "Give at least one thread.")
    if memory_bytes is not None:
        _check_memory(memory_bytes)
    return Engine(ThreadScheduler(threads, memory_bytes))


def _is_count(value: Any, kind: type) -> bool:
    """Whether it is a number of this kind, from 1."""
    return issubclass(type(value), kind) and bool(value >= 1)


def _check_memory(memory_bytes: int) -> None:
    if not _is_count(memory_bytes, Real):
        raise InputError(
            "bad-setting", f"A memory limit of {memory_bytes} bytes was asked for.", "Give a positive number of bytes."
        )


def cluster_engine(address: str, tls: TlsFiles | None = None, insecure: bool = False) -> Engine:
    """An engine on the Dask cluster whose scheduler is at `address`, such as tls://10.0.0.1:8786.

    `tls` names the certificates; without it those of Dask's own configuration count. `insecure` allows a scheduler of
    another machine at a tcp:// address, where everyone on the network can read the data and run code on the workers.
    """
    from protodask.engine.cluster import ClusterScheduler

    return Engine(ClusterScheduler.connect(address, tls, insecure))


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
    from multiprocessing import resource_tracker

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
    if not _is_count(workers, Integral):
        raise InputError("bad-setting", f"{workers!r} workers were asked for.", "Ask for at least one.")
    if memory_bytes is not None:
        _check_memory(memory_bytes)
    from distributed import Client, LocalCluster

    from protodask.engine.cluster import ClusterScheduler

    failed = f"{workers} worker processes could not be started on this machine"
    remedy = "Ask for fewer workers, or compute in this process."
    with refusing((OSError, RuntimeError), "no-workers", failed, remedy, ClusterError), _interrupts_held_back():
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
    with cluster, Client(cluster, set_as_default=False) as client:
        yield Engine(ClusterScheduler(client))
