"""What the processes of the publishing tests do: slowed-down writers to be killed, and a reader that never stops.

A module of its own, so that a fork server imports it once and every process starts at once.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import pyarrow.parquet
import zarr
import zarr.storage._local

import protodask.cli
from protodask.data import Dataset
from protodask.data import local_files as local_files_module
from protodask.data import storage as storage_module
from protodask.data import writer as writer_module
from protodask.data.storage import read_marker
from protodask.errors import StorageError

PRELOADED = [
    "pytest",
    "dask.dataframe",
    "pyarrow.parquet",
    "protodask.cli",
    "protodask.pipeline.runner",
    "protodask.pipeline.describe",
    "protodask.pipeline.perform",
    "scipy.optimize",
    "scipy.spatial",
]

BLOCK_ROWS = 64

State = tuple[str, str]
"""Name of what is at a place, and hash of all that was read of it."""


class Steps:
    """Counts the operations on files, slows them down, and has the process killed in or just after one of them."""

    def __init__(self, pause: float, fatal: int | None, delay: float) -> None:
        self.count = 0
        self._pause = pause
        self._fatal = fatal
        self._delay = delay
        self._lock = threading.Lock()
        self.take()

    def take(self) -> None:
        with self._lock:
            if self.count == self._fatal:
                threading.Timer(self._delay, os.kill, (os.getpid(), signal.SIGKILL)).start()
            self.count += 1
        time.sleep(self._pause)

    def slowed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*values: Any, **named: Any) -> Any:
            self.take()
            return function(*values, **named)

        return run


def write_slowly(arguments: list[str], pause: float, fatal: int | None, delay: float, pipe: Connection) -> None:
    """Run the command line with a pause of so many seconds before each file is written, renamed, flushed or removed.

    `fatal` is the number of the operation in which SIGKILL strikes, `delay` seconds after it began. A process that
    lives to its end tells its exit code and how many operations there were.
    """
    steps = Steps(pause, fatal, delay)
    zarr.storage._local._put = steps.slowed(zarr.storage._local._put)
    pyarrow.parquet.write_table = steps.slowed(pyarrow.parquet.write_table)
    for name in ("rename", "replace", "rmdir", "unlink", "fsync"):
        setattr(os, name, steps.slowed(getattr(os, name)))
    local_files_module.exchange = steps.slowed(local_files_module.exchange)
    # Small blocks, so that there are many files to be killed between.
    setattr(writer_module, "choose_block_rows", lambda *_: BLOCK_ROWS)  # noqa: B010 - imported there
    sys.stdout = sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - until the process ends
    sys.argv = ["protodask", *arguments]
    try:
        protodask.cli.main()
    except SystemExit as end:
        pipe.send((end.code or 0, steps.count))


def read_dataset(path: str) -> State:
    """A dataset as a reader sees it: opened, and every row read."""
    dataset = Dataset.open(path)
    digest = hashlib.blake2b(digest_size=16)
    for number in range(dataset.layout.n_blocks):
        block = dataset.read(number)
        for name in dataset.array_names:
            digest.update(np.ascontiguousarray(block[name]).tobytes())
    return dataset.key, digest.hexdigest()


def read_zarr_predictions(path: str) -> State:
    """Predictions as a foreign reader sees them that compares their identity before and after."""
    group: Any = zarr.open_group(path, mode="r", zarr_format=3)
    attributes = dict(group.attrs)
    digest = hashlib.blake2b(digest_size=16)
    for name in ("probability", "familiarity", "predicted"):
        digest.update(group[name][...].tobytes())
    if zarr.open_group(path, mode="r", zarr_format=3).attrs["identity"] != attributes["identity"]:
        raise StorageError("bad-value", "The predictions were replaced while they were read.", "Read them again.")
    return attributes["model"], digest.hexdigest()


def read_parquet_predictions(path: str) -> State:
    """Predictions in Parquet as a foreign reader sees them that compares their identity before and after."""
    record: Any = read_marker(path)
    table = pyarrow.parquet.read_table(path).sort_by("row")
    now: Any = read_marker(path)
    if now["identity"] != record["identity"]:
        raise StorageError("bad-value", "The predictions were replaced while they were read.", "Read them again.")
    if table.num_rows != record["rows"]:
        raise ValueError(f"{table.num_rows} rows where {record['rows']} were written")
    digest = hashlib.blake2b(digest_size=16)
    for name in table.column_names:
        digest.update(repr(table[name].to_pylist()).encode())
    return record["model"], digest.hexdigest()


READERS: dict[str, Callable[[str], State]] = {
    "dataset": read_dataset,
    "zarr": read_zarr_predictions,
    "parquet": read_parquet_predictions,
}


def read_again_and_again(kind: str, path: str, pipe: Connection) -> None:
    """Read a place until told to stop, and tell what was seen: states, and errors with how often."""
    states: set[State] = set()
    errors: dict[str, int] = {}
    reads = 0
    enough = False
    while not enough:
        enough = pipe.poll()  # told so after the last writer: one more look, at what has come of it all
        there = os.path.lexists(path)
        before = storage_module.version_of(path), read_marker(path)
        try:
            states.add(READERS[kind](path))
            reads += 1
        except Exception as error:
            if not there and not reads:
                continue  # nothing was published yet
            replaced = before != (storage_module.version_of(path), read_marker(path))
            if kind == "dataset":
                # It was open when another took its place: this must be said, and nothing else may happen.
                expected = isinstance(error, StorageError) and "was replaced or removed" in str(error)
            else:
                expected = replaced
            if not expected:
                message = "".join(traceback.format_exception(error))
                errors[message] = errors.get(message, 0) + 1
    pipe.send((states, errors, reads))
