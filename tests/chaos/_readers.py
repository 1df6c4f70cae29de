"""Readers of datasets and predictions, and a process that reads and never stops.

A module of its own, so that a fork server can import it.
"""

from __future__ import annotations

import hashlib
import os
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import zarr
from support.kills import END_SECONDS, START

from protodask.data import Dataset
from protodask.data.places import storage as storage_module
from protodask.data.places.storage import read_marker
from protodask.errors import StorageError

State = tuple[str, str]
"""Name of what is at a place, and hash of all that was read of it."""


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
        raise StorageError("changed-meanwhile", "They were replaced meanwhile.", "Read them again.")
    return attributes["model"], digest.hexdigest()


def read_parquet_predictions(path: str) -> State:
    """Predictions in Parquet as a foreign reader sees them that compares their identity before and after."""
    record: Any = read_marker(path)
    table = pyarrow.parquet.read_table(path).sort_by("row")
    now: Any = read_marker(path)
    if now["identity"] != record["identity"]:
        raise StorageError("changed-meanwhile", "They were replaced meanwhile.", "Read them again.")
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
                expected = isinstance(error, StorageError) and error.code == "changed-meanwhile"
            else:
                expected = replaced
            if not expected:
                message = "".join(traceback.format_exception(error))
                errors[message] = errors.get(message, 0) + 1
    pipe.send((states, errors, reads))


@contextmanager
def reader(kind: str, place: Path, allowed: set[State]) -> Iterator[None]:
    """Another process that reads the place all the time, and may see the allowed states only."""
    ours, theirs = START.Pipe()
    process = START.Process(target=read_again_and_again, args=(kind, str(place), theirs))
    process.start()
    theirs.close()
    try:
        yield
        ours.send("enough")
        assert ours.poll(END_SECONDS), "the reader hangs"
        states, errors, reads = ours.recv()
        assert not errors, "\n".join(errors)
        assert reads > 0
        assert states <= allowed
        process.join(END_SECONDS)
    finally:
        process.kill()
        process.join()
        ours.close()


def state_of(kind: str, place: Path) -> State | None:
    return READERS[kind](str(place)) if place.exists() else None
