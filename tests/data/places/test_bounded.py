"""Reading files nobody vouches for."""

from __future__ import annotations

import json
import os
import tracemalloc
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import fsspec
import pytest
from fsspec.asyn import AsyncFileSystem
from support.errors import refused

from protodask.data.places import bounded as bounded_module
from protodask.data.places.bounded import (
    MAX_JSON_BYTES,
    MAX_JSON_DEPTH,
    MAX_JSON_ITEMS,
    open_anew,
    open_inside,
    open_named,
    open_to_append,
    parse_json,
    read_bounded,
    read_json,
    read_object,
    read_objects,
)
from protodask.data.places.records import RecordKind, recognize, seal, unseal
from protodask.errors import FormatError

KIND = RecordKind("thing", "protodask-thing", 2, "Make one.", "Make it again.")


def _nested(depth: int) -> bytes:
    return b'{"a": [' * (depth // 2) + b"1" + b"]}" * (depth // 2)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b'{"a": 1, "b": {"c": 1, "c": 1}}', "stands twice"),
        (b"[NaN]", "NaN"),
        (b"[-Infinity]", "-Infinity"),
        (b"[1e999]", "beyond the range"),
        (b"[" + b"1" * 5000 + b"]", "digits"),
        (b"\xef\xbb\xbf{}", "BOM"),
        (b"\xff\xfe", "decode"),
        (b"", "Expecting value"),
        (b"{} {}", "Extra data"),
        (_nested(MAX_JSON_DEPTH + 2), "levels deep"),
        (b"[" * 100_000, "levels deep|values"),
        (b"[" + b"0," * MAX_JSON_ITEMS + b"0]", "more than .* values"),
    ],
)
def test_parse__refuses(content: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_json(content)


def test_parse__of_what_is_allowed() -> None:
    assert parse_json(_nested(MAX_JSON_DEPTH))
    value = {"a": [1, -2.5, 1e-300, None, True, "\ud800", "ü"], "b": {}, "c": 2**70}
    assert parse_json(json.dumps(value).encode()) == value


def test_read__of_a_large_file_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b"{}")
    os.truncate(tmp_path / "a.json", 2**40)
    with refused("over-limit", tmp_path / "a.json", MAX_JSON_BYTES, kind=FormatError):
        read_json(str(tmp_path), "a.json")


def test_read__at_a_url() -> None:
    files: Any = fsspec.filesystem("memory")
    files.pipe("/bounded/a.json", b'{"a": [1]}')
    files.pipe("/bounded/large.json", b" " * (MAX_JSON_BYTES + 1))
    assert read_json("memory://bounded", "a.json") == {"a": [1]}
    with refused("over-limit", "memory://bounded/large.json", MAX_JSON_BYTES, kind=FormatError):
        read_json("memory://bounded", "large.json")
    with pytest.raises(FileNotFoundError):
        read_json("memory://bounded", "gone.json")


def test_read_object__tells_what_is_absent_and_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_module, "MAX_JSON_BYTES", 10)
    fsspec.filesystem("memory").pipe({"/objects/a/b": b"x" * 10, "/objects/large": b"x" * 11})
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b").write_bytes(b"x" * 10)
    (tmp_path / "large").write_bytes(b"x" * 11)
    for root in ("memory://objects", str(tmp_path)):
        assert read_object(root, "a/b") == b"x" * 10
        assert read_object(root, "gone") is None
        assert read_object(root, "a/b/c") is None
        with refused("over-limit", "than 10", "10 bytes", f"{root}/large", kind=FormatError):
            read_object(root, "large")


def _place(kind: str, path: Path) -> None:
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "link":
            path.symlink_to(path.parent / "precious")
        case "dangling":
            path.symlink_to(path.parent / "made")
        case _:
            path.mkdir()


@pytest.mark.parametrize("kind", ["pipe", "link", "dangling", "folder"])
@pytest.mark.parametrize("opener", [open_inside, open_to_append])
def test_open__of_what_is_no_file_of_the_folder(opener: Any, kind: str, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("keep")
    (tmp_path / "store").mkdir()
    _place(kind, tmp_path / "store" / "a")
    with refused("wrong-kind", tmp_path / "store" / "a", kind=FormatError):
        opener(str(tmp_path / "store"), "a")
    (tmp_path / "store" / "below").symlink_to(tmp_path)
    with refused("wrong-kind", tmp_path / "store" / "below", "symbolic link", kind=FormatError):
        opener(str(tmp_path / "store"), "below/precious")
    assert (tmp_path / "precious").read_text() == "keep"
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("kind", ["pipe", "link", "dangling", "file"])
def test_open_anew__takes_the_place_of_what_stands_there(kind: str, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("keep")
    path = tmp_path / "a"
    if kind == "file":
        path.write_text("old and longer")
    else:
        _place(kind, path)
    with open_anew(str(path)) as file:
        file.write(b"new")
    assert not path.is_symlink()
    assert path.read_bytes() == b"new"
    assert (tmp_path / "precious").read_text() == "keep"


def test_open_to_append__makes_and_extends_a_file(tmp_path: Path) -> None:
    for text in (b"one", b"two"):
        with open_to_append(str(tmp_path), "a") as file:
            file.write(text)
    assert (tmp_path / "a").read_bytes() == b"onetwo"


def test_open_named__follows_links_of_users_but_opens_files_only(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    with open_named(str(tmp_path / "link")) as file:
        assert file.read() == b"text"
    os.mkfifo(tmp_path / "pipe")
    with refused("wrong-kind", tmp_path / "pipe", kind=FormatError):
        open_named(str(tmp_path / "pipe"))


def test_seal__is_broken_by_any_change() -> None:
    record = seal({"format": KIND.format, "version": 1, "values": [1, 2.5]}, KIND.name)
    unseal(recognize(record, KIND, "here"))
    for change in ({"values": [1, 2]}, {"more": 1}, {"version": 2}, {"checksum": None}):
        with refused("damaged", "checksum", "thing here", kind=FormatError):
            unseal(recognize({**record, **change}, KIND, "here"))
    with refused("wrong-kind", "here", "thing", kind=FormatError):
        recognize({**record, "format": "other"}, KIND, "here")
    with refused("newer-format", "version 3", "up to 2", kind=FormatError):
        recognize({**record, "version": 3}, KIND, "here")


def test_seal__refuses_what_no_reader_would_take() -> None:
    with refused("over-limit", "dataset", "values"):
        seal({"values": [0] * MAX_JSON_ITEMS}, "dataset")
    with refused("over-limit", "dataset", "characters"):
        seal({"text": "x" * MAX_JSON_BYTES}, "dataset")
    with refused("overflow", "dataset"):
        seal({"squares": float("inf")}, "dataset")


@pytest.mark.slow
def test_seal__of_the_most_that_is_sealed_can_be_read(tmp_path: Path) -> None:
    record = seal({"format": KIND.format, "version": 1, "values": ["x"] * (MAX_JSON_ITEMS - 2**11)}, KIND.name)
    (tmp_path / "zarr.json").write_text(json.dumps({"attributes": record}, indent=2))
    unseal(recognize(read_json(str(tmp_path), "zarr.json")["attributes"], KIND, "here"))


def test_read_bounded__sets_aside_what_the_file_has_and_no_more(tmp_path: Path) -> None:
    path = tmp_path / "small"
    path.write_bytes(b"abc")
    tracemalloc.start()
    with open_named(str(path)) as file:
        assert read_bounded(file, MAX_JSON_BYTES, "small") == b"abc"
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < MAX_JSON_BYTES / 16
    for size, most in (3, 3), (2**20 + 5, 2**20 + 5), (0, 0):
        path.write_bytes(b"x" * size)
        with open_named(str(path)) as file:
            assert read_bounded(file, most, "small") == b"x" * size
    path.write_bytes(b"x" * (2**20 + 6))
    with open_named(str(path)) as file, refused("over-limit", "small", 2**20 + 5, kind=FormatError):
        read_bounded(file, 2**20 + 5, "small")


def test_read_objects__of_all_threads_through_one_client() -> None:
    made: list[object] = []

    class CountedFileSystem(AsyncFileSystem):  # type: ignore[misc]
        protocol = "counted"

        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            made.append(self)

        async def _cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
            return b"content"[start:end]

    fsspec.register_implementation("counted", CountedFileSystem, clobber=True)
    root, together = f"counted://{uuid.uuid4().hex}", Barrier(4)

    def read(_: int) -> object:
        together.wait(10)  # so that each is in a thread of its own
        return [None if content is None else bytes(content) for content in read_objects(root, [("a", 6), ("b", 0)])]

    assert read_object(root, "a") == b"content"
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(read, range(4))) == [[b"content", b"c"]] * 4
    assert len(made) == 1
