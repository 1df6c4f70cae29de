"""Arrays by row between passes: blocks come back, and nothing comes back that was given up."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from support.errors import refused

from protodask.data.arrays.array_store import ArrayStore, store_key
from protodask.data.arrays.plain_arrays import MAX_CHUNK_BYTES, ArraySpec
from protodask.engine import Layout
from protodask.errors import FormatError, StorageError


def make_store(path: Path) -> ArrayStore:
    store = ArrayStore(
        str(path), Layout(20, 8), (ArraySpec("score", "float32", 3), ArraySpec("code", "int32")), store_key()
    )
    store.create()
    return store


def test_read__gives_back_what_was_written(tmp_path: Path) -> None:
    store = make_store(tmp_path / "s")
    rows = {"score": np.random.default_rng(0).random((4, 3), dtype=np.float32), "code": np.arange(4, dtype=np.int32)}
    store.write(2, 16, rows)
    for name, values in rows.items():
        np.testing.assert_array_equal(store.read(2)[name], values)
    with refused("damaged", "score", "block 1", kind=FormatError):
        store.read(1)


@pytest.mark.parametrize("opened_before", [False, True])
def test_write__does_not_bring_back_what_was_removed(opened_before: bool, tmp_path: Path) -> None:
    store = make_store(tmp_path / "s")
    rows = {"score": np.ones((8, 3), np.float32), "code": np.ones(8, np.int32)}
    if opened_before:
        store.write(0, 0, rows)
    shutil.rmtree(tmp_path / "s")
    with refused("changed-meanwhile", tmp_path / "s", kind=StorageError):
        store.write(1, 8, rows)
    assert os.listdir(tmp_path) == []


def test_read__misses_any_chunk_of_a_block(tmp_path: Path) -> None:
    width = MAX_CHUNK_BYTES // 8 // 2 + 1  # a row fills a chunk
    store = ArrayStore(str(tmp_path / "s"), Layout(6, 4), (ArraySpec("score", "float64", width),), store_key())
    store.create()
    for number, rows in enumerate((4, 2)):
        store.write(number, 4 * number, {"score": np.ones((rows, width))})
        assert len(store.read(number)["score"]) == rows
    for lost, number in (("2", 0), ("5", 1)):
        shutil.rmtree(tmp_path / "s" / "score" / "c" / lost)
        with refused("damaged", "score", f"block {number}", kind=FormatError):
            store.read(number)
