"""What a place is called, however it is written, and what is said of one that fails."""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.errors import refused

from protodask.data.places.local_files import place_aside
from protodask.data.places.locations import full_disk_of, gone, locate, named_place, storage_errors
from protodask.data.places.storage import check_free
from protodask.data.places.whole_files import check_file_free
from protodask.errors import StorageError


@pytest.mark.parametrize("name", ["a#b", "a?b=c", "a b", "50%", "ü", "a:b", "[a]*", "~a", "$"])
def test_locate__takes_every_letter_of_a_name(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    place = str(tmp_path / name)
    assert {locate(form) for form in (name, f"{name}/", f"./{name}", Path(name), place)} == {place}
    for host in ("", "localhost"):
        assert locate(f"file://{host}{place}") == place
        assert locate(f"file://{host}{Path(place).as_uri()[len('file://') :]}") == place


def test_locate__refuses_what_is_no_place_of_this_machine() -> None:
    for place in ("file://data.zarr", "file://host/data.zarr"):
        with refused("not-local", place, "host", "absolute path"):
            locate(place)
    for place in ("", " ", "file://", "file:///", "file://localhost", "file://localhost/"):
        with refused("setting-missing", "empty"):
            locate(place)
    for place in ("~", "~/m.zarr", "$HOME/m.zarr"):
        with refused("bad-setting", place, "expanduser", f"./{place.partition('/')[0]}"):
            locate(place)
    assert locate("./~/m.zarr") == os.path.abspath("~/m.zarr")


@pytest.mark.parametrize("inside", ["", "features/c/0/0"])
def test_named_place__is_what_is_written_aside_for(inside: str, tmp_path: Path) -> None:
    place = str(tmp_path / "my data.zarr")
    assert named_place(os.path.join(place_aside(place), inside)) == place
    assert named_place(place_aside("d.csv")) == "d.csv"
    for other in (place, f"{place}.partial", "s3://bucket/d.zarr", str(tmp_path / ".partial-00000000")):
        assert named_place(other) == other


def test_storage_errors__name_the_place_that_was_given(tmp_path: Path) -> None:
    place = tmp_path / "d.zarr"
    aside = place_aside(str(place))
    assert f"{place} is gone" in str(gone(aside))
    with refused("disk-full", f"while writing {place}.", kind=StorageError), storage_errors(aside, "writing"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), aside)


@pytest.mark.parametrize(
    ("at", "said"),
    [
        ("r", "appending to d"),
        ("r/versions/1/m.zarr", "appending to d"),
        (".r.partial-01234567/x", "appending to d"),
        ("r.zarr", "writing"),
        ("m.zarr", "writing"),
    ],
)
def test_full_disk_of__names_what_was_named(at: str, said: str, tmp_path: Path) -> None:
    @contextmanager
    def writing(number: int) -> Iterator[None]:
        with full_disk_of(str(tmp_path / "r"), "appending to d"), storage_errors(str(tmp_path / at), "writing"):
            yield
            raise OSError(number, os.strerror(number))

    with refused("disk-full", f"The disk was full while {said}", kind=StorageError), writing(errno.ENOSPC):
        pass
    with refused("unwritable", "Writing", tmp_path, kind=StorageError), writing(errno.EFBIG):
        pass


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EROFS])
def test_storage_errors__say_which_folder_has_to_be_writable(number: int, tmp_path: Path) -> None:
    place = str(tmp_path / "new" / "d.zarr")
    for told in (place, place_aside(str(tmp_path / "d.zarr")), "d.zarr", None):
        with refused("unwritable", f"Make {tmp_path} writable", kind=StorageError), storage_errors(place, "writing"):
            raise OSError(number, os.strerror(number), told)


@pytest.mark.parametrize("allowed", [True, False])
def test_storage_errors__say_which_file_has_to_be_writable(
    allowed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one that is writable, it is the folder that keeps another one from its place."""
    file = tmp_path / "run.log"
    file.touch()
    monkeypatch.setattr(os, "access", lambda *_: allowed)
    said = f"Make {tmp_path if allowed else file} writable"
    with refused("unwritable", said, kind=StorageError), storage_errors(str(file), "writing"):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(file))


@pytest.mark.parametrize("check", [check_free, check_file_free])
def test_check__refuses_a_place_where_nothing_can_be_made(
    check: Callable[[str, bool], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, file = tmp_path / "new" / "d", tmp_path / "file"
    check(str(place), False)
    file.touch()
    with refused("unwritable", f"Writing {file / 'd'}", f"{file} is a file", kind=StorageError):
        check(str(file / "d"), False)
    monkeypatch.setattr(os, "access", lambda *_: False)  # as it is for others than the superuser
    with refused("unwritable", f"Writing {place}", f"Make {tmp_path} writable", kind=StorageError):
        check(str(place), False)
    assert os.listdir(tmp_path) == ["file"]


def test_storage_errors__of_what_is_to_be_replaced_name_the_folder_that_holds_it(tmp_path: Path) -> None:
    place = tmp_path / "d.zarr"
    place.mkdir()
    for told in (place_aside(str(place)), os.path.join(place_aside(str(place)), "zarr.json")):
        with refused("unwritable", f"Make {tmp_path} writable", kind=StorageError), storage_errors(told, "writing"):
            raise OSError(errno.EACCES, os.strerror(errno.EACCES), told)


def test_check__of_a_file_system_that_is_read_only_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_flag=os.ST_RDONLY))
    with refused("unwritable", os.strerror(errno.EROFS), kind=StorageError):
        check_free(str(tmp_path / "d"), False)
