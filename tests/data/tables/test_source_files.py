"""Which files a source stands for, and how one is told from another."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import fsspec
import pytest
from support.errors import refused

from protodask.data.tables import source_files as module
from protodask.data.tables.source_files import (
    DigestCache,
    bytes_digest,
    cache_beside,
    content_digest,
    digest_of,
    files_of,
    find_files,
    is_unchanged,
    open_file,
    source_files,
)
from protodask.errors import StorageError


def put(path: Path, content: str = "x,target\n1,a\n", age: float = 3600.0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    os.utime(path, (time.time() - age,) * 2)
    return path


def test_source_files__of_a_folder(tmp_path: Path) -> None:
    for name in ("b.csv", "a.csv.gz", "deep/er/c.parquet", ".hidden.csv", "_metadata.parquet", "notes.md"):
        put(tmp_path / name)
    found = source_files(str(tmp_path))
    assert [file.name for file in found] == ["a.csv.gz", "b.csv", "deep/er/c.parquet"]
    assert [file.path for file in found] == find_files(str(tmp_path))
    assert all(file.size == 13 for file in found)
    assert found[1].modified_ns == os.stat(tmp_path / "b.csv").st_mtime_ns


def test_find_files__says_which_tables_of_a_folder_are_left_out(tmp_path: Path) -> None:
    for name in ("a.csv", "b.tsv.xz", "c.XLSX", "deep/d.csv.zip", "_log/e.jsonl", ".f.zip", "notes.md", "g.json"):
        put(tmp_path / name)
    with pytest.warns(UserWarning, match=r"neither CSV nor Parquet are left out: c\.XLSX, deep/d\.csv\.zip\.$"):
        found = find_files(str(tmp_path))
    assert [os.path.basename(path) for path in found] == ["a.csv", "b.tsv.xz"]


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("*.csv", ["a.csv", "b.csv"]),
        ("a.csv", ["a.csv"]),
        ("*/*.csv", ["one/c.csv", "two/d.csv"]),
        ("**/*.csv", ["a.csv", "b.csv", "one/c.csv", "two/d.csv"]),
        ("one/*.csv", ["c.csv"]),
        ("[xyz]*.csv", []),
    ],
)
def test_source_files__of_a_glob(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str, names: list[str]
) -> None:
    for name in ("a.csv", "b.csv", "one/c.csv", "two/d.csv"):
        put(tmp_path / name)
    assert [file.name for file in source_files(str(tmp_path / pattern))] == names
    monkeypatch.chdir(tmp_path)
    found = source_files(pattern)
    assert [file.name for file in found] == names
    assert all(os.path.isabs(file.path) for file in found)


def test_source_files__of_a_name_that_looks_like_a_glob(tmp_path: Path) -> None:
    put(tmp_path / "rows[1].csv")
    assert [file.name for file in source_files(str(tmp_path / "rows[1].csv"))] == ["rows[1].csv"]


def test_source_files__of_a_glob_in_a_folder_whose_name_looks_like_one(tmp_path: Path) -> None:
    for name in ("rows[1]/a.csv", "rows1/b.csv", "rows[1]/deep/c.csv"):
        put(tmp_path / name)
    assert [file.name for file in source_files(str(tmp_path / "rows[1]" / "*.csv"))] == ["a.csv"]
    assert [file.name for file in source_files(str(tmp_path / "rows[1]" / "**" / "c.csv"))] == ["deep/c.csv"]
    assert [file.name for file in source_files(str(tmp_path / "rows[1]"))] == ["a.csv", "deep/c.csv"]


def test_source_files__of_a_folder_that_a_glob_finds(tmp_path: Path) -> None:
    put(tmp_path / "rows.parquet" / "part-0.parquet")
    assert [file.name for file in source_files(str(tmp_path / "*.parquet"))] == ["rows.parquet/part-0.parquet"]
    assert find_files(str(tmp_path / "*.parquet")) == [str(tmp_path / "rows.parquet" / "part-0.parquet")]


def test_source_files__of_nothing(tmp_path: Path) -> None:
    assert source_files(str(tmp_path)) == ()
    with refused("not-found", tmp_path):
        find_files(str(tmp_path))
    with refused("not-found", tmp_path / "absent.csv", kind=StorageError):
        source_files(str(tmp_path / "absent.csv"))


@pytest.mark.parametrize("settle", [float("nan"), float("inf"), -1.0])
def test_source_files__that_never_settle(settle: float, tmp_path: Path) -> None:
    put(tmp_path / "a.csv")
    with refused("bad-setting", "settle", settle):
        source_files(str(tmp_path), settle)


@pytest.mark.parametrize("inner", [False, True])
def test_source_files__of_a_folder_that_nobody_may_read(
    inner: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "a.csv")
    (tmp_path / "inner").mkdir()
    closed = str(tmp_path / "inner") if inner else str(tmp_path)
    scan = os.scandir

    def scan_but_one(path: str) -> object:
        if os.fspath(path) == closed:
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", scan_but_one)
    with refused("unreadable", closed, kind=StorageError):
        source_files(str(tmp_path))


def test_source_files__of_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "rows.csv")
    with refused("wrong-kind", tmp_path / "rows.csv"):
        source_files(str(tmp_path))


def test_open_file__does_not_wait_for_a_pipe(tmp_path: Path) -> None:
    pipe = str(tmp_path / "rows.csv")
    os.mkfifo(pipe)
    for compression in (None, "infer"):
        with refused("wrong-kind", pipe):
            open_file(pipe, compression)


def test_source_files__that_settle(tmp_path: Path) -> None:
    for name, age in (("old.csv", 100.0), ("young.csv", 20.0), ("ahead.csv", -20.0), ("far-ahead.csv", -1e6)):
        put(tmp_path / name, age=age)
    settled = {file.name: file.settled for file in source_files(str(tmp_path), settle=60.0)}
    assert settled == {"old.csv": True, "far-ahead.csv": True, "young.csv": False, "ahead.csv": False}
    assert all(file.settled for file in source_files(str(tmp_path)))


def test_content_digest__is_that_of_the_bytes(tmp_path: Path) -> None:
    content = os.urandom(3 * 2**20 + 7)
    path = tmp_path / "rows.csv"
    path.write_bytes(content)
    assert content_digest(str(path)) == hashlib.blake2b(content, digest_size=16).hexdigest()
    with refused("not-found", tmp_path / "absent.csv", kind=StorageError):
        content_digest(str(tmp_path / "absent.csv"))


def test_content_digest__of_an_object_that_can_only_be_read() -> None:
    class Bare:
        """A file as those of HDFS are in fsspec 2024.12, without `readinto`."""

        def __init__(self, content: bytes) -> None:
            self._file = io.BytesIO(content)

        def read(self, size: int = -1) -> bytes:
            return self._file.read(size)

        def __enter__(self) -> Bare:
            return self

        def __exit__(self, *_: object) -> None:
            self._file.close()

    class BareFiles(fsspec.AbstractFileSystem):  # type: ignore[misc]
        protocol = "bare"

        def _open(self, path: str, *_: object, **__: object) -> Bare:
            return Bare(path.encode())

    fsspec.register_implementation("bare", BareFiles, clobber=True)
    assert content_digest("bare://rows.csv") == bytes_digest(b"rows.csv")


def test_digest_of__a_file_that_changes_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(tmp_path / "rows.csv")
    (listed,) = source_files(str(path))
    whole = module.content_digest

    def grows(place: str) -> str:
        digest = whole(place)
        with open(place, "a") as file:
            file.write("2,b\n")
        return digest

    monkeypatch.setattr(module, "content_digest", grows)
    assert digest_of(listed) is None
    assert not is_unchanged(listed)
    monkeypatch.undo()
    assert digest_of(listed) is None
    path.unlink()
    assert digest_of(listed) is None


def test_digest_of__a_file_that_is_replaced_by_one_of_the_same_size_and_time(tmp_path: Path) -> None:
    path = put(tmp_path / "rows.csv")
    (listed,) = source_files(str(path))
    other = put(tmp_path / "other", content="x,target\n1,b\n")
    os.utime(other, ns=(listed.modified_ns, listed.modified_ns))
    os.replace(other, path)
    assert not is_unchanged(listed)


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Paths of the files whose content is read from now on."""
    read: list[str] = []
    whole = content_digest

    def counting(path: str) -> str:
        read.append(path)
        return whole(path)

    monkeypatch.setattr(module, "content_digest", counting)
    return read


def test_digest_cache__reads_what_has_changed_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, place = tmp_path / "inbox", str(tmp_path / "digests")
    for number in range(5):
        put(folder / f"{number}.csv", f"x,target\n{number},a\n")
    read = counted(monkeypatch)

    def digests() -> list[str | None]:
        cache = DigestCache(place)
        found = [cache.digest_of(file) for file in source_files(str(folder))]
        cache.save()
        return found

    first = digests()
    assert len(read) == 5
    assert digests() == first
    assert len(read) == 5
    put(folder / "3.csv", "x,target\n9,b\n")
    assert digests() == [*first[:3], content_digest(str(folder / "3.csv")), first[4]]
    assert read[5:] == [str(folder / "3.csv")]


@pytest.mark.parametrize(
    "damage", [b"", b"{", b"[]", b"\xff", b'{"format": "other"}', b"[" * 100_000, b'{"format":"protodask-digests-1"}']
)
def test_digest_cache__that_is_damaged(tmp_path: Path, damage: bytes) -> None:
    path, place = put(tmp_path / "rows.csv"), tmp_path / "digests"
    place.write_bytes(damage)
    cache = DigestCache(str(place))
    (listed,) = source_files(str(path))
    assert cache.digest_of(listed) == content_digest(str(path))
    cache.save()
    assert list(json.loads(place.read_text())["files"]) == [str(path)]
    assert sorted(os.listdir(tmp_path)) == ["digests", "rows.csv"]


def test_digest_cache__with_entries_that_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, place = put(tmp_path / "rows.csv"), tmp_path / "digests"
    place.write_text(json.dumps({"format": module.CACHE_FORMAT, "files": {str(path): ["version"], "b": 3}}))
    read = counted(monkeypatch)
    assert (
        DigestCache(str(place)).digest_of(source_files(str(path))[0])
        == hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()
    )
    assert read == [str(path)]


def test_digest_cache__does_not_trust_a_file_that_changed_just_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "rows.csv", age=0.0)
    read = counted(monkeypatch)
    cache = DigestCache(None)
    for _ in range(2):
        assert cache.digest_of(source_files(str(tmp_path))[0]) is not None
    assert len(read) == 2


def test_digest_cache__that_cannot_be_written(tmp_path: Path) -> None:
    path = put(tmp_path / "rows.csv")
    cache = DigestCache(str(path / "digests"))
    assert cache.digest_of(source_files(str(path))[0]) == content_digest(str(path))
    cache.save()
    assert os.listdir(tmp_path) == ["rows.csv"]


def test_digest_cache__gives_way_to_another_writer_until_that_is_dead(tmp_path: Path) -> None:
    path = put(tmp_path / "rows.csv")
    aside = tmp_path / "digests.partial"
    aside.write_text("half")
    for age in (0.0, 3600.0):
        os.utime(aside, (time.time() - age,) * 2)
        cache = DigestCache(str(tmp_path / "digests"))
        cache.digest_of(source_files(str(path))[0])
        cache.save()
        assert not (tmp_path / "digests").exists()
    cache.save()
    assert sorted(os.listdir(tmp_path)) == ["digests", "rows.csv"]


def test_digest_cache__forgets_what_was_asked_for_longest_ago(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_REMEMBERED", 3)
    place = tmp_path / "digests"
    for name in "abcde":
        path = put(tmp_path / f"{name}.csv", f"x\n{name}\n")
        cache = DigestCache(str(place))
        cache.digest_of(source_files(str(path))[0])
        cache.save()
    assert [os.path.basename(path) for path in json.loads(place.read_text())["files"]] == ["c.csv", "d.csv", "e.csv"]


def test_cache_beside__a_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_beside(str(tmp_path / "data.zarr")) == str(tmp_path / ".data.zarr.digests")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "file").touch()
    first, second = cache_beside("s3://bucket/a.zarr"), cache_beside("s3://bucket/b.zarr")
    assert first is not None
    assert first.startswith(str(tmp_path / "cache"))
    assert first != second
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert cache_beside("s3://bucket/a.zarr") is None


def test_source_files__of_a_store_without_etags() -> None:
    import fsspec

    store = fsspec.filesystem("memory")
    store.pipe("/inbox/a.csv", b"x\n1\n")
    try:
        (found,) = source_files("memory://inbox")
        assert (found.name, found.size) == ("a.csv", 4)
        assert digest_of(found) == bytes_digest(b"x\n1\n")
        with refused("unsupported", "memory:///inbox/a.csv", "ETags"):
            digest_of(replace(found, version=""))  # a store that tells no times either
        store.pipe("/inbox/a.csv", b"x\n2\n")
        assert digest_of(found) is None
    finally:
        store.rm("/inbox", recursive=True)


def test_source_files__are_light() -> None:
    heavy = ("numpy", "zarr", "pandas", "dask")
    code = f"import sys, protodask.data.tables.source_files; print([name for name in {heavy} if name in sys.modules])"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    found = subprocess.check_output([sys.executable, "-c", code], text=True, timeout=200, env=environment)
    assert found.strip() == "[]"


def test_files_of__are_each_there_once_by_names_that_differ(tmp_path: Path) -> None:
    for name in ("a/x.csv", "b/x.csv", "b/y.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("n\n1\n")
    found = files_of([str(tmp_path / "b"), str(tmp_path / "a"), str(tmp_path / "b" / "y.csv")])
    below = str(tmp_path).lstrip("/")
    assert [file.name for file in found] == [f"{below}/b/x.csv", "y.csv", f"{below}/a/x.csv"]
