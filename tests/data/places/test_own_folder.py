"""A folder of one process: who holds it, who is refused, and who removes it."""

import os
import stat
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.errors import refused

from protodask.data.places import locks as locks_module
from protodask.data.places import own_folder as own_folder_module
from protodask.data.places.locks import lock_handle
from protodask.data.places.own_folder import LOCK, make_folder, own_folder, temporary_folder
from protodask.errors import StorageError

HOLDS = """
import sys
from protodask.data.places.own_folder import own_folder
with own_folder(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_own_folder__needs_nothing_beside_itself(tmp_path: Path) -> None:
    place = tmp_path / "run"
    with own_folder(str(place)) as folder:
        assert folder.made
        assert [path.name for path in tmp_path.iterdir()] == ["run"]
        assert [path.name for path in place.iterdir()] == [LOCK]
    assert list(place.iterdir()) == []
    with own_folder(str(place)) as folder:
        assert not folder.made
        folder.unwanted = True
    assert list(tmp_path.iterdir()) == []


def test_own_folder__the_lock_goes_with_the_process_that_is_killed(tmp_path: Path) -> None:
    place = str(tmp_path / "run")
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDS, place],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with refused("written-by-another", place, kind=StorageError), own_folder(place):
            pass
    finally:
        holder.kill()
        holder.communicate(timeout=60)
    with own_folder(place) as folder:
        assert not folder.made


def test_own_folder__removed_while_the_next_one_waits_at_its_door(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = str(tmp_path / "run")
    first = ExitStack()
    first.enter_context(own_folder(place)).unwanted = True

    def late(handle: int, folder: str) -> bool:
        # It has opened the first one's lock, and the first one ends before it asks for it.
        first.close()
        return lock_handle(handle, folder)

    monkeypatch.setattr(locks_module, "lock_handle", late)
    with own_folder(place) as second:
        monkeypatch.undo()
        assert second.made
        with refused("written-by-another", place, kind=StorageError), own_folder(place):
            pass
    assert os.listdir(place) == []


def test_own_folder__moved_away_by_hand_is_let_go(tmp_path: Path) -> None:
    place = tmp_path / "run"
    first, second = ExitStack(), ExitStack()
    first.enter_context(own_folder(str(place))).unwanted = True
    place.rename(tmp_path / "elsewhere")
    with second:
        second.enter_context(own_folder(str(place)))
        first.close()
        with refused("written-by-another", place, kind=StorageError), own_folder(str(place)):
            pass
    assert (tmp_path / "elsewhere").is_dir()


def test_own_folder__a_link_in_place_of_the_lock_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / LOCK).symlink_to(tmp_path / "victim")
    with refused("unwritable", tmp_path / "run", kind=StorageError), own_folder(str(tmp_path / "run")):
        pass
    assert not (tmp_path / "victim").exists()


@pytest.mark.parametrize("target", ["elsewhere", LOCK])
def test_own_folder__a_link_put_in_place_of_its_lock_is_none(tmp_path: Path, target: str) -> None:
    place = tmp_path / "run"
    with own_folder(str(place)) as folder:
        folder.unwanted = True
        (place / LOCK).rename(place / "elsewhere")
        (place / LOCK).symlink_to(target)
    assert (place / LOCK).is_symlink()


def test_make_folder__survives_a_power_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[str] = []
    monkeypatch.setattr(own_folder_module, "flush", flushed.append)
    assert make_folder(str(tmp_path / "runs" / "one"))
    assert flushed == [str(tmp_path), str(tmp_path / "runs")]
    assert not make_folder(str(tmp_path / "runs" / "one"))


def test_temporary_folder__those_of_dead_processes_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def left(name: str, lock: bool = True, age: float = 1e4) -> Path:
        place = tmp_path / name
        place.mkdir()
        (place / "scores.zarr").mkdir()
        if lock:
            (place / LOCK).touch()
        os.utime(place, (time.time() - age,) * 2)
        return place

    dead = [left(f"protodask-fit-{'a' * 16}"), left(f".protodask-fit-{'a' * 16}.partial-{'b' * 8}")]
    kept = [
        left(f"protodask-fit-{'c' * 16}", lock=False),
        left(f"protodask-fit-{'d' * 16}", age=1.0),
        left(f"protodask-fitting-{'e' * 16}"),
    ]
    (tmp_path / f"protodask-fit-{'f' * 16}").symlink_to(kept[-1])
    with temporary_folder() as living:
        os.utime(living, (0, 0))
        assert stat.S_IMODE(os.stat(living).st_mode) == 0o700
        with temporary_folder() as other:
            assert os.path.isdir(living)
            assert other != living
        assert not any(place.exists() for place in dead)
    assert not os.path.exists(living)
    assert all((place / "scores.zarr").is_dir() for place in kept)
