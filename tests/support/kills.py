"""Command lines that are killed at a chosen operation on files, and what a kill at any of them would leave behind.

SIGKILL leaves on disk what is there, whoever wrote it. So a copy of a folder, made before an operation, is what a kill
at that operation leaves, and one run that is never killed shows what kills at all of its operations do.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

import psutil
import pyarrow.parquet
import zarr.storage

import protodask.cli
from protodask.data.format import writer
from protodask.data.places import local_files
from protodask.prototypes import runs

Seen = TypeVar("Seen")

BLOCK_ROWS = 64
"""Of the datasets that are written here: small blocks, so that there are many files to be killed between."""

PAUSE = 0.01
"""Seconds before each operation where readers are to come in between: a writer takes a second or so."""

END_SECONDS = 120.0
"""What takes longer hangs."""

OPERATIONS: list[tuple[Any, str]] = [
    *((os, name) for name in ("rename", "replace", "rmdir", "unlink", "fsync")),
    (local_files, "exchange"),
    (zarr.storage._local, "_put"),
    (pyarrow.parquet, "write_table"),
    (zarr.storage.FsspecStore, "set"),
    (runs._RecordedFunction, "_append"),
]
"""What changes what lies on a disk or in a store."""

START = multiprocessing.get_context("forkserver")
START.set_forkserver_preload(
    [
        __name__,
        "protodask.pipeline.state.runner",
        "protodask.pipeline.inspecting.describe",
        "protodask.evaluation.model_scores",
        "scipy.optimize",
    ]
)


@contextlib.contextmanager
def small_blocks() -> Iterator[None]:
    with patch.object(writer, "choose_block_rows", lambda *_: BLOCK_ROWS):
        yield


@contextlib.contextmanager
def before_each_operation(look: Callable[[], None]) -> Iterator[None]:
    """In this process, call `look` before each operation but its own. Threads do one after the other."""
    lock, looking = threading.RLock(), False

    def watched(operation: Callable[..., Any]) -> Callable[..., Any]:
        def run(*values: Any, **named: Any) -> Any:
            nonlocal looking
            with lock:
                if not looking:
                    looking = True
                    try:
                        look()
                    finally:
                        looking = False
                return operation(*values, **named)

        return run

    with contextlib.ExitStack() as patches:
        for place, name in OPERATIONS:
            patches.enter_context(patch.object(place, name, watched(getattr(place, name))))
        patches.enter_context(small_blocks())
        yield


Listing = frozenset[tuple[str, int, int]]
"""Paths, sizes and times of change of files; of folders the paths alone."""


def listing(folder: Path, hidden: bool = True) -> Listing:
    """What is in a folder, with or without what has a name that begins with a dot, as all has that is not done yet."""
    found = []
    for place, folders, files in os.walk(folder):
        if not hidden:
            folders[:] = [name for name in folders if not name.startswith(".")]
        found += [(os.path.join(place, name), 0, 0) for name in folders]
        for name in files:
            if hidden or not name.startswith("."):
                status = os.lstat(os.path.join(place, name))
                found.append((os.path.join(place, name), status.st_size, status.st_mtime_ns))
    return frozenset((os.path.relpath(path, folder), size, time) for path, size, time in found)


def seen_in(copies: Sequence[Path], look: Callable[[Path], Seen]) -> dict[Path, Seen]:
    """What a reader sees in each of the folders; those that do not differ in what is done are looked at once."""
    known: dict[Listing, Seen] = {}
    found = {}
    for copy in copies:
        visible = listing(copy, hidden=False)
        if visible not in known:
            known[visible] = look(copy)
        found[copy] = known[visible]
    return found


def what_kills_leave(work: Callable[[], object], folder: Path, copies: Path) -> list[Path]:
    """Do some work in this process: copies of the folder from before its operations, in their order.

    One is left out where nothing changed since the one before.
    """
    made: list[Path] = []
    last: Listing | None = None

    def copy() -> None:
        nonlocal last
        found = listing(folder)
        if found != last:
            last = found
            made.append(copies / f"{len(made):04d}")
            shutil.copytree(folder, made[-1], symlinks=True)

    with before_each_operation(copy):
        work()
    return made


def spread(values: Sequence[Path], most: int) -> list[Path]:
    """So many of the values: the first, the last, and others evenly between them."""
    if len(values) <= most:
        return list(values)
    return [values[number * (len(values) - 1) // (most - 1)] for number in range(most)]


@dataclass(frozen=True)
class Strike:
    """A signal that a process gets just before one of its operations, or so many seconds after it began."""

    operation: int
    delay: float = 0.0
    signal: int = signal.SIGKILL


@dataclass(frozen=True)
class Ended:
    """How a process ended: its exit code, negative for a signal, and how many operations there were if it did all."""

    code: int
    operations: int

    @property
    def killed(self) -> bool:
        return self.code == -signal.SIGKILL


def _perform(
    arguments: list[str], environment: dict[str, str], strike: Strike | None, pause: float, pipe: Connection
) -> None:
    os.environ.clear()
    os.environ.update(environment)  # those of the fork server are from when it started
    count = 0

    def look() -> None:
        nonlocal count
        if strike is not None and count == strike.operation:
            if strike.delay > 0:
                threading.Timer(strike.delay, os.kill, (os.getpid(), strike.signal)).start()
            else:
                os.kill(os.getpid(), strike.signal)
        count += 1
        time.sleep(pause)

    sys.stdout = sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - until the process ends
    sys.argv = ["protodask", *arguments]
    with before_each_operation(look):
        try:
            protodask.cli.main()
        except SystemExit as end:
            pipe.send((end.code or 0, count))


@contextlib.contextmanager
def command_process(
    arguments: Sequence[str], strike: Strike | None = None, pause: float = 0.0
) -> Iterator[tuple[ForkServerProcess, Connection]]:
    """A process of its own for a command line, with a pause of so many seconds before each operation."""
    ours, theirs = START.Pipe()
    process = START.Process(target=_perform, args=(list(arguments), dict(os.environ), strike, pause, theirs))
    process.start()
    theirs.close()
    try:
        yield process, ours
    finally:
        process.kill()
        process.join()
        process.close()
        ours.close()


def run_command_process(arguments: Sequence[str], strike: Strike | None = None, pause: float = 0.0) -> Ended:
    """The end of such a process."""
    with command_process(arguments, strike, pause) as (process, pipe):
        process.join(END_SECONDS)
        assert process.exitcode is not None, "the command hangs"
        return Ended(*pipe.recv()) if process.exitcode == 0 else Ended(process.exitcode, 0)


def wait_until_stopped(process: ForkServerProcess) -> None:
    """Wait for a process that is to get SIGSTOP."""
    assert process.pid is not None
    watched, deadline = psutil.Process(process.pid), time.monotonic() + END_SECONDS
    while watched.status() != psutil.STATUS_STOPPED:
        assert time.monotonic() < deadline, "the process is not stopped"
        time.sleep(0.005)
