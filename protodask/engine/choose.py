"""From what a user says to an engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Union

from protodask.engine.connect import TlsFiles
from protodask.engine.engine import Engine
from protodask.engine.threads import ThreadScheduler
from protodask.errors import InputError

if TYPE_CHECKING:
    from distributed import Client

EngineLike = Union[Engine, "Client", str, None]
"""An engine; a `distributed.Client`; a scheduler's address; None for threads of this process.

An address is tls://, with the certificates of Dask's configuration, or on this machine; `cluster_engine` takes others.
"""


@contextmanager
def open_engine(engine: EngineLike) -> Iterator[Engine]:
    """The engine meant; one that had to be opened here is closed at the end."""
    if isinstance(engine, Engine):
        yield engine
        return
    with _open(engine) as opened:
        yield opened


def _open(engine: object) -> Engine:
    if engine is None:
        return Engine(ThreadScheduler())
    from protodask.engine.cluster import ClusterScheduler  # distributed takes a third of a second to import

    if isinstance(engine, str):
        return Engine(ClusterScheduler.connect(engine))
    from distributed import Client

    if isinstance(engine, Client):
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
    if threads is not None and threads < 1:
        raise InputError("bad-setting", f"threads is {threads}.", "Give at least one thread.")
    return Engine(ThreadScheduler(threads, memory_bytes))


def cluster_engine(address: str, tls: TlsFiles | None = None, insecure: bool = False) -> Engine:
    """An engine on the Dask cluster whose scheduler is at `address`, such as tls://10.0.0.1:8786.

    `tls` names the certificates; without it those of Dask's own configuration count. `insecure` allows a scheduler of
    another machine at a tcp:// address, where everyone on the network can read the data and run code on the workers.
    """
    from protodask.engine.cluster import ClusterScheduler

    return Engine(ClusterScheduler.connect(address, tls, insecure))
