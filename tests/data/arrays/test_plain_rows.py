"""Rows of plain arrays: those that Zarr reads, and damage with a name wherever a chunk is not as it was written."""

from __future__ import annotations

import os
import uuid
import weakref
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from protodask.data.arrays import plain_rows as plain_rows_module
from protodask.data.arrays.plain_arrays import CHECKSUM_BYTES, MAX_CHUNK_BYTES, PlainArray, make_array
from protodask.data.arrays.plain_rows import AT_ONCE_BYTES, DamagedArrayError, read_rows
from protodask.data.places.bounded import read_objects
from protodask.data.places.locations import open_store
from protodask.errors import FormatError

KINDS = (("float32", 3), ("float64", 1), ("int32", None), ("int8", None))


@pytest.fixture(params=["disk", "object store"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "s.zarr") if request.param == "disk" else f"memory://{uuid.uuid4().hex}/s.zarr"


def write(root: str, rows: int, step: int) -> list[PlainArray]:
    """Arrays of all kinds in a store, in chunks of so many rows."""
    group = zarr.open_group(open_store(root), mode="w", zarr_format=3)
    arrays = []
    for number, (dtype, width) in enumerate(KINDS):
        shape, chunks = ((rows,), (step,)) if width is None else ((rows, width), (step, width))
        array = PlainArray(root, f"a{number}", dtype, shape, chunks, -1)
        values = np.random.default_rng(number).integers(0, 100, shape).astype(dtype)
        make_array(group, array, config={"write_empty_chunks": True})[...] = values
        arrays.append(array)
    return arrays


def files_of(root: str) -> Any:
    """A file system and the place in it, to harm files."""
    return fsspec.filesystem("memory" if "://" in root else "file"), root.removeprefix("memory:/")


@settings(max_examples=25)
@given(rows=st.integers(1, 20), step=st.integers(1, 8), at_once=st.sampled_from([0, 60, 10**6]), data=st.data())
def test_read_rows__are_those_that_zarr_reads(
    rows: int, step: int, at_once: int, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = data.draw(st.sampled_from([str(tmp_path_factory.mktemp("s") / "s.zarr"), f"memory://{uuid.uuid4().hex}/s"]))
    arrays = write(root, rows, step)
    start = data.draw(st.integers(0, rows))
    stop = data.draw(st.integers(start, rows))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plain_rows_module, "AT_ONCE_BYTES", at_once)
        found = read_rows(arrays, start, stop)
    for array, values in zip(arrays, found, strict=True):
        stored = zarr.open_array(open_store(root, read_only=True), path=array.name, mode="r")
        expected = np.asarray(stored[start:stop])
        assert (values.dtype, values.shape, values.tobytes()) == (expected.dtype, expected.shape, expected.tobytes())


@pytest.mark.parametrize(
    ("wanted", "harm", "reason"),
    [
        ((0, 8), lambda content: content[:-1], "were expected"),
        ((1, 2), lambda content: content + b"x", "were expected"),
        ((4, 7), lambda content: b"", "were expected"),
        ((0, 8), lambda content: bytes([content[0] ^ 1]) + content[1:], "the checksum of a chunk"),
        ((1, 2), lambda content: content[:-5] + bytes([content[-5] ^ 1]) + content[-4:], "the checksum of a chunk"),
        ((4, 7), lambda content: content[:-1] + bytes([content[-1] ^ 1]), "the checksum of a chunk"),
        *((wanted, None, "a chunk is missing") for wanted in ((0, 8), (1, 2), (4, 7))),
    ],
)
def test_read_rows__name_the_array_whose_chunk_is_damaged(
    root: str, wanted: tuple[int, int], harm: Any, reason: str
) -> None:
    arrays = write(root, 11, 4)
    files, place = files_of(root)
    for array in arrays:
        where = f"{place}/{array.key(wanted[0] // 4)}"
        content = files.cat_file(where)
        if harm is None:
            files.rm_file(where)
        else:
            files.pipe_file(where, harm(content))
        with pytest.raises(DamagedArrayError, match=reason) as error:
            read_rows(arrays, *wanted)
        assert error.value.name == array.name
        files.pipe_file(where, content)
    assert len(read_rows(arrays, *wanted)) == len(arrays)


def test_read_rows__allocate_nothing_for_a_file_that_is_too_small(tmp_path: Path) -> None:
    (array, *_others) = write(str(tmp_path / "s"), 4, 4)
    large = PlainArray(array.root, array.name, array.dtype, (2**50, 3), (2**50, 3), -1)
    with pytest.raises(DamagedArrayError, match="were expected"):
        read_rows([large], 0, 2**50)


def test_read_rows__follow_no_link_and_open_no_folder(tmp_path: Path) -> None:
    (array, *_others) = write(str(tmp_path / "s"), 4, 4)
    chunk = tmp_path / "s" / array.key(0)
    os.rename(chunk, tmp_path / "elsewhere")
    chunk.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FormatError, match="symbolic link"):
        read_rows([array], 0, 4)
    chunk.unlink()
    chunk.mkdir()
    with pytest.raises(FormatError, match="not a regular file"):
        read_rows([array], 0, 4)


def test_read_rows__of_a_file_that_shrinks_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (array, *_others) = write(str(tmp_path / "s"), 4, 4)
    os.truncate(tmp_path / "s" / array.key(0), 10)
    monkeypatch.setattr(plain_rows_module, "_check_file", lambda array, number: None)
    with pytest.raises(DamagedArrayError, match="shorter"):
        read_rows([array], 0, 4)


@pytest.mark.parametrize(("at_once", "waves"), [(10**6, [8]), (100, [1, 2, 5]), (0, [1] * 8)])
def test_read_rows__ask_an_object_store_for_several_chunks_together(
    at_once: int, waves: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[tuple[str, int]]] = []

    def read(root: str, wanted: Iterable[tuple[str, int]]) -> list[memoryview | None]:
        asked.append(list(wanted))
        return read_objects(root, asked[-1])

    monkeypatch.setattr(plain_rows_module, "AT_ONCE_BYTES", at_once)
    monkeypatch.setattr(plain_rows_module, "read_objects", read)
    arrays = write(f"memory://{uuid.uuid4().hex}/s", 8, 4)
    read_rows(arrays, 0, 8)
    expected = [(array.key(number), array.chunk_bytes) for array in arrays for number in (0, 1)]
    assert [one for wave in asked for one in wave] == expected
    assert all(len(wave) == 1 or sum(size for _, size in wave) <= at_once for wave in asked)
    assert [len(wave) for wave in asked] == waves


def test_read_rows__ask_for_two_of_the_largest_chunks_together() -> None:
    assert AT_ONCE_BYTES >= 2 * (MAX_CHUNK_BYTES + CHECKSUM_BYTES)


def test_read_rows__let_go_of_chunks_before_they_ask_for_more(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[weakref.ref[Any]] = []

    def read(root: str, wanted: Iterable[tuple[str, int]]) -> list[memoryview | None]:
        assert all(one() is None for one in given)
        contents = [np.array(content) for content in read_objects(root, wanted)]
        given.extend(map(weakref.ref, contents))
        return [content.data for content in contents]

    monkeypatch.setattr(plain_rows_module, "AT_ONCE_BYTES", 100)
    monkeypatch.setattr(plain_rows_module, "read_objects", read)
    read_rows(write(f"memory://{uuid.uuid4().hex}/s", 8, 4), 0, 8)
    assert len(given) == 8
