"""Zarr arrays that others wrote."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from numcodecs import Blosc, pickles
from support.disk import Trap
from support.errors import refused

from protodask import Dataset, ingest
from protodask.data.arrays.foreign_arrays import open_foreign_array
from protodask.errors import FormatError, ProtodaskError, StorageError

FEATURES = np.random.default_rng(0).normal(size=(40, 2))
TARGET = np.arange(40) % 2


def _store(path: Path, zarr_format: Any = 3, **options: Any) -> Path:
    group = zarr.open_group(path, mode="w", zarr_format=zarr_format)
    group.create_array("features", data=FEATURES, chunks=(16, 2), **options)
    group.create_array("target", data=TARGET, chunks=(16,), **options)
    return path


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("compressors", ["auto", None], ids=str)
def test_ingest__reads_arrays_of_both_formats(zarr_format: int, compressors: Any, tmp_path: Path) -> None:
    dataset = ingest(str(_store(tmp_path / "a.zarr", zarr_format, compressors=compressors)), tmp_path / "d.zarr")
    np.testing.assert_array_equal(dataset.read(0)["features"], FEATURES.astype(np.float32))


@pytest.mark.parametrize("codec", [zarr.codecs.GzipCodec(), zarr.codecs.ZstdCodec(), zarr.codecs.BloscCodec()])
def test_ingest__reads_shards_of_every_compression(codec: Any, tmp_path: Path) -> None:
    group = zarr.open_group(tmp_path / "a.zarr", mode="w")
    group.create_array("features", data=FEATURES, chunks=(8, 2), shards=(16, 2), compressors=codec)
    group.create_array("target", data=TARGET, chunks=(16,))
    dataset = ingest(str(tmp_path / "a.zarr"), tmp_path / "d.zarr")
    assert dataset == Dataset.open(tmp_path / "d.zarr")
    np.testing.assert_array_equal(dataset.read(0)["features"], FEATURES.astype(np.float32))


def test_ingest__does_not_unpickle_a_chunk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Recent codecs refuse to by themselves; earlier ones did as they were told.
    monkeypatch.setattr(pickles, "ALLOW_UNSAFE_PICKLE_DECODE", True, raising=False)
    store = _store(tmp_path / "a.zarr", 2)
    objects = np.empty(40, dtype=object)
    objects[:] = Trap(tmp_path / "mark")
    record = json.loads((store / "target" / ".zarray").read_text())
    record |= {"dtype": "|O", "chunks": [40], "filters": [{"id": "vlen-utf8"}, {"id": "pickle"}], "fill_value": None}
    (store / "target" / ".zarray").write_text(json.dumps({**record, "compressor": None}))
    (store / "target" / "0").write_bytes(pickles.Pickle().encode(objects))
    with refused("unsupported", tmp_path / "a.zarr" / "target", "pickle"):
        ingest(str(store), tmp_path / "d.zarr")
    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize("member", [".", "features", "target"])
@pytest.mark.parametrize("harm", ["pipe", "link", "large"])
def test_ingest__does_not_open_what_is_no_file(harm: str, member: str, tmp_path: Path) -> None:
    file = _store(tmp_path / "a.zarr") / member / "zarr.json"
    match harm:
        case "pipe":
            file.unlink()
            os.mkfifo(file)
        case "link":
            shutil.move(file, tmp_path / "elsewhere")
            file.symlink_to(tmp_path / "elsewhere")
        case _:
            os.truncate(file, 2**40)
    with refused("over-limit" if harm == "large" else "wrong-kind", file, kind=FormatError):
        ingest(str(tmp_path / "a.zarr"), tmp_path / "d.zarr")


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("length", [0, 8, 20, 100])
def test_ingest__does_not_let_blosc_read_beyond_a_chunk(zarr_format: int, length: int, tmp_path: Path) -> None:
    codec: Any = zarr.codecs.BloscCodec() if zarr_format == 3 else Blosc()
    store = _store(tmp_path / "a.zarr", zarr_format, compressors=codec)
    chunk = store / "features" / ("c/1/0" if zarr_format == 3 else "1.0")
    os.truncate(chunk, length)
    with refused("damaged", store / "features", "Rows 0 to 40", kind=FormatError):
        ingest(str(store), tmp_path / "d.zarr")


@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_ingest__does_not_wait_for_a_chunk_that_is_a_pipe(kind: str, tmp_path: Path) -> None:
    store = _store(tmp_path / "a.zarr")
    chunk = store / "features" / "c" / "1" / "0"
    chunk.unlink()
    if kind == "pipe":
        os.mkfifo(chunk)
    else:
        chunk.symlink_to("/dev/zero")
    with refused("wrong-kind", chunk, kind=FormatError):
        ingest(str(store), tmp_path / "d.zarr")


def test_open__refuses_chunks_beyond_memory(tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "a", shape=(2**40, 2), chunks=(2**30, 2), dtype="float32")
    with refused("over-limit", tmp_path / "a", 2**33):
        open_foreign_array(str(tmp_path), "a")


def test_open__of_nothing(tmp_path: Path) -> None:
    with refused("not-found", tmp_path / "a", kind=StorageError):
        open_foreign_array(str(tmp_path), "a")


@pytest.mark.parametrize("compressor", [zarr.codecs.GzipCodec(), zarr.codecs.ZstdCodec(), zarr.codecs.BloscCodec()])
def test_ingest__of_damaged_chunks_says_which_rows(compressor: Any, tmp_path: Path) -> None:
    store = _store(tmp_path / "a.zarr", compressors=compressor)
    chunk = store / "features" / "c" / "1" / "0"
    chunk.write_bytes(chunk.read_bytes()[:20])
    with refused("damaged", store / "features", "Rows 0 to 40", kind=ProtodaskError):
        ingest(str(store), tmp_path / "d.zarr")
    assert not (tmp_path / "d.zarr").exists()
