"""Names exchanged in one step, and what is put back and removed where processes died."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import numpy as np
import pytest
import zarr
from support.errors import refused

from protodask.data.places import local_files as local_files_module
from protodask.data.places import locks as locks_module
from protodask.data.places.local_files import (
    exchange,
    flush,
    leftovers,
    lock_place,
    make_durable,
    place_aside,
    put_in_place,
    recover,
)
from protodask.data.places.locks import lock_handle, sole_writer, sweep
from protodask.data.places.storage import published, write_group
from protodask.data.places.whole_files import replace_file
from protodask.errors import Code, OutputExistsError, StorageError


def make_folder(path: Path, content: str) -> Path:
    path.mkdir()
    (path / "file").write_text(content)
    return path


@pytest.fixture
def no_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that cannot exchange two names."""
    monkeypatch.setattr(local_files_module, "exchange", lambda first, second: False)


@contextmanager
def watched(path: Path) -> Iterator[set[str | None]]:
    """What another thread finds in the file of a folder, all the time."""
    seen: set[str | None] = set()
    enough = threading.Event()

    def look() -> None:
        while not enough.is_set():
            try:
                seen.add((path / "file").read_text())
            except FileNotFoundError:
                seen.add(None)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        enough.set()
        thread.join()


@pytest.mark.skipif(sys.platform not in ("linux", "darwin"), reason="only these can exchange two names")
def test_put_in_place__shows_a_reader_the_old_or_the_new(tmp_path: Path) -> None:
    place = make_folder(tmp_path / "d", "0")
    other = make_folder(tmp_path / "other", "")
    if not exchange(str(place), str(other)):
        pytest.skip("this file system cannot exchange two names")
    assert exchange(str(place), str(other))
    with watched(place) as seen:
        number = 0
        while number < 50 or len(seen) < 10:  # however seldom the other thread has its turn
            number += 1
            put_in_place(str(make_folder(tmp_path / "aside", str(number))), str(place))
    assert None not in seen
    assert sorted(os.listdir(tmp_path)) == ["d", "other"]


def test_exchange__says_what_went_wrong(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        exchange(str(tmp_path / "a"), str(tmp_path / "b"))


@pytest.mark.usefixtures("no_exchange")
def test_put_in_place__without_exchange(tmp_path: Path) -> None:
    place = make_folder(tmp_path / "d", "old")
    put_in_place(str(make_folder(tmp_path / "aside", "new")), str(place))
    assert (place / "file").read_text() == "new"
    assert os.listdir(tmp_path) == ["d"]


@pytest.mark.usefixtures("no_exchange")
def test_put_in_place__without_exchange_puts_the_old_one_back(tmp_path: Path) -> None:
    place = make_folder(tmp_path / "d", "old")
    with pytest.raises(FileNotFoundError):
        put_in_place(str(tmp_path / "nothing"), str(place))
    assert (place / "file").read_text() == "old"


def test_recover__puts_back_what_was_renamed_away(tmp_path: Path) -> None:
    place = tmp_path / "d"
    make_folder(tmp_path / ".d.replaced-00000000", "old")
    make_folder(tmp_path / ".d.partial-11111111", "new")
    recover(str(place))
    assert (place / "file").read_text() == "old"
    recover(str(place))
    sweep(str(place))
    assert os.listdir(tmp_path) == ["d"]


NAMES_OF_OTHERS = [".d.partial", ".d.partial-0", ".d.partial-0000000g", ".e.partial-00000000", "d.partial-00000000"]


def test_leftovers__are_those_of_the_place_alone(tmp_path: Path) -> None:
    for name in NAMES_OF_OTHERS:
        make_folder(tmp_path / name, "")
    # The name of one place may begin like the leftovers of another.
    aside = Path(place_aside(str(tmp_path / "d.partial-00000000")))
    make_folder(aside, "")
    ours = make_folder(tmp_path / ".d.partial-89abcdef", "")
    assert leftovers(str(tmp_path / "d")) == [str(ours)]
    assert leftovers(str(tmp_path / "nowhere" / "d")) == []
    with sole_writer(str(tmp_path / "d")):
        pass
    assert sorted(os.listdir(tmp_path)) == sorted([*NAMES_OF_OTHERS, aside.name])


HOLD = """
import os, sys
from protodask.data.places.storage import published
with published(sys.argv[1], True) as place:
    os.makedirs(place)
    print("ready", flush=True)
    sys.stdin.readline()
    os.kill(os.getpid(), 9)
"""


def test_sweep__spares_what_a_living_process_writes(tmp_path: Path) -> None:
    place = str(tmp_path / "d")
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, place], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        sweep(place)
        with (
            refused("written-by-another", "Someone else", kind=StorageError),
            sole_writer(place),
        ):
            pass
        assert len(leftovers(place)) == 1
        process.stdin.write("die\n")
        process.stdin.flush()
        assert process.wait(200) == -9
    assert len(leftovers(place)) == 1
    assert os.path.exists(lock_place(place))
    sweep(place)
    assert os.listdir(tmp_path) == []


def test_sole_writer__whose_lock_file_others_removed_and_made_anew_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its opening and its locking of the file one writer ends, and another one begins."""
    place = str(tmp_path / "d")
    others: list[int] = []

    def lock_late(handle: int, path: str) -> bool:
        if not others:
            os.unlink(lock_place(place))
            others.append(os.open(lock_place(place), os.O_RDWR | os.O_CREAT))
            fcntl.flock(others[0], fcntl.LOCK_EX | fcntl.LOCK_NB)
        return lock_handle(handle, path)

    monkeypatch.setattr(locks_module, "lock_handle", lock_late)
    with refused("written-by-another", place, kind=StorageError), sole_writer(place):
        pass
    os.close(others[0])
    with sole_writer(place):
        pass
    assert os.listdir(tmp_path) == []


def test_sole_writer__where_there_are_no_locks_removes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(handle: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", fail)
    left = make_folder(tmp_path / ".d.partial-00000000", "perhaps somebody's")
    with sole_writer(str(tmp_path / "d")):
        assert left.exists()
    assert left.exists()


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EROFS])
def test_sole_writer__in_a_folder_that_may_not_be_written_says_which(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: str, *_: object) -> int:
        raise OSError(number, os.strerror(number), path)  # as it is for others than the superuser

    monkeypatch.setattr(os, "open", fail)
    with (
        refused("unwritable", f"Locking {tmp_path / 'd'}", tmp_path, kind=StorageError),
        sole_writer(str(tmp_path / "d")),
    ):
        pass


def test_make_durable__finds_what_a_late_writer_renames_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chunks = tmp_path / "d" / "c"
    chunks.mkdir(parents=True)
    (chunks / "0").write_text("a chunk")
    (chunks / "1.partial").write_text("a chunk written twice")
    flushed: list[str] = []

    def flush_late(path: str) -> None:
        if path.endswith(".partial"):
            os.rename(path, path.removesuffix(".partial"))
        flush(path)
        flushed.append(os.path.relpath(path, chunks))

    monkeypatch.setattr(local_files_module, "flush", flush_late)
    make_durable(str(tmp_path / "d"))
    assert {"0", "1", ".", ".."} <= set(flushed)
    assert flushed.index("1") < len(flushed) - 1 - flushed[::-1].index("."), "the name follows the content"


def test_published__has_no_file_that_a_killed_process_had_not_finished_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "d.zarr"

    def leave_behind(source: Path, target: Path) -> None:
        shutil.copy(source, target)

    with published(str(place), False) as aside:
        write_group(aside, {"format": "some"})
        with monkeypatch.context() as patches:
            patches.setattr(Path, "replace", leave_behind)
            zarr.create_array(aside, name="a", data=np.arange(3))
        assert [path for path in Path(aside).rglob("*") if path.name.endswith(".partial")], "as Zarr writes today"
    assert [path for path in place.rglob("*") if path.name.endswith(".partial")] == []
    np.testing.assert_array_equal(zarr.open_array(place / "a", mode="r")[...], [0, 1, 2])


@pytest.mark.parametrize("answer", [None, errno.ENOTSUP, errno.EIO])
def test_flush__empties_the_cache_of_the_drive_where_the_system_can(
    answer: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def full_flush(handle: int, command: int) -> int:
        assert command == 51
        calls.append("full")
        if answer is not None:
            raise OSError(answer, os.strerror(answer))
        return 0

    monkeypatch.setattr(local_files_module, "FULL_FLUSH", 51)
    monkeypatch.setattr(fcntl, "fcntl", full_flush)
    monkeypatch.setattr(os, "fsync", lambda handle: calls.append("fsync"))
    expected = {None: ["full"], errno.ENOTSUP: ["full", "fsync"], errno.EIO: ["full"]}
    with pytest.raises(OSError, match=os.strerror(errno.EIO)) if answer == errno.EIO else nullcontext():
        flush(str(tmp_path))
    assert calls == expected[answer]


@pytest.mark.parametrize(("write", "flushed"), [(replace_file, 2), (lambda path, _: write_group(path[:-10], {}), 3)])
def test_writers__flush_what_they_hold_in_the_same_way(
    write: Callable[[str, str], None], flushed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[int] = []
    (tmp_path / "zarr.json").write_text("{}")
    monkeypatch.setattr(local_files_module, "FULL_FLUSH", 51)
    monkeypatch.setattr(fcntl, "fcntl", lambda handle, command: commands.append(command))
    write(str(tmp_path / "zarr.json"), "{}")
    assert commands == [51] * flushed, "the content and the names"


def test_replace_file__sweeps_and_keeps_the_link(tmp_path: Path) -> None:
    (tmp_path / "real.json").write_text("old")
    (tmp_path / ".real.json.partial-00000000").write_text("torn")
    (tmp_path / "link.json").symlink_to("real.json")
    replace_file(str(tmp_path / "link.json"), "new")
    assert (tmp_path / "real.json").read_text() == "new"
    assert (tmp_path / "link.json").is_symlink()
    assert sorted(os.listdir(tmp_path)) == ["link.json", "real.json"]
    with (
        sole_writer(str(tmp_path / "real.json")),
        refused("written-by-another", tmp_path / "real.json", kind=StorageError),
    ):
        replace_file(str(tmp_path / "link.json"), "newer")


@pytest.mark.parametrize(("overwrite", "code"), [(False, "exists"), (True, "wrong-kind")])
def test_published__leaves_alone_what_another_put_there_meanwhile(tmp_path: Path, overwrite: bool, code: Code) -> None:
    place = tmp_path / "data.zarr"

    def publish() -> None:
        with published(str(place), overwrite) as aside:
            os.makedirs(aside)
            place.mkdir()
            (place / "notes.txt").write_text("theirs")

    with refused(code, str(place), kind=OutputExistsError):
        publish()
    assert [file.name for file in tmp_path.iterdir()] == ["data.zarr"]
    assert (place / "notes.txt").read_text() == "theirs"
