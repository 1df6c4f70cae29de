"""Where a dataset lies: opening its Zarr group, making its arrays, and publishing it whole or not at all."""

from __future__ import annotations

import errno
import json
import os
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

import zarr
from zarr.codecs import BytesCodec, Crc32cCodec
from zarr.core.sync import sync

from protodask.data.bounded import read_json
from protodask.data.metadata import Metadata, unfinished_attributes
from protodask.data.schema import FORMAT_NAME, Variable
from protodask.errors import FormatError, OutputExistsError, ProtodaskError, StorageError

try:
    import fcntl
except ImportError:  # not on Windows: appends there are told apart by their keys alone
    fcntl = None  # type: ignore[assignment]

LATE_WRITERS_SECONDS = 5.0
"""How long a failed write waits for tasks that were in the middle of writing a chunk when another one failed."""


def locate(path: str | os.PathLike[str]) -> str:
    """An absolute path, or a URL as it is, so that workers with another working folder find the same place."""
    text = os.fspath(path)
    if text.startswith("file://"):
        text = unquote(urlsplit(text).path)
    return text if is_url(text) else os.path.abspath(text)


def is_url(path: str) -> bool:
    """Whether a place is in a remote store."""
    return "://" in path


@contextmanager
def storage_errors(path: str, action: str) -> Iterator[None]:
    """Say what the operating system said, in the package's words."""
    try:
        yield
    except ProtodaskError:
        raise
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageError(
                f"The disk was full while {action} {path}.", "Free some space, or choose a place with more, and repeat."
            ) from error
        raise StorageError(
            f"{action.capitalize()} {path} failed ({error}).", "Check that the place exists and that you may use it."
        ) from error


def read_attributes(path: str) -> object:
    """The attributes of the group at `path`, unchecked, or None where there is no readable group.

    What stands there but must not be read (a link or a pipe in place of the file, or a file too large) is a
    `FormatError`.
    """
    if not is_url(path) and not os.path.exists(path):
        raise StorageError(f"There is nothing at {path}.", "Check the path.")
    try:
        record = read_json(path, "zarr.json")
    except PermissionError as error:
        raise StorageError(f"{path} cannot be read ({error}).", "Check that you may read it.") from error
    except FormatError:
        raise
    except (OSError, ValueError):
        return None
    is_group = isinstance(record, dict) and (record.get("zarr_format"), record.get("node_type")) == (3, "group")
    return record.get("attributes") if is_group else None


def make_group(path: str) -> zarr.Group:
    """A new, empty group that says it is an unfinished dataset."""
    return zarr.open_group(path, mode="w", zarr_format=3, attributes=unfinished_attributes())


def make_array(group: zarr.Group, variable: Variable, metadata: Metadata) -> None:
    """An empty array. Chunks are stored as they are with a checksum: measured faster than any compression, and a
    flipped bit does not go unnoticed.
    """
    group.create_array(
        variable.name,
        shape=metadata.shape_of(variable, metadata.n_rows),
        chunks=metadata.shape_of(variable, metadata.chunk_rows(variable)),
        dtype=metadata.dtype_of(variable),
        serializer=BytesCodec(endian="little"),
        compressors=Crc32cCodec(),
        filters=None,
        fill_value=variable.fill,
        dimension_names=variable.dims,
    )


@dataclass(frozen=True)
class Kind:
    """What is written: how it is called, and how one is told from what must not be overwritten."""

    name: str
    format: str

    def owns(self, path: str) -> bool:
        """Whether what lies at `path` is one of these."""
        attributes = read_marker(path) or read_attributes(path)
        return isinstance(attributes, dict) and attributes.get("format") == self.format


DATASET = Kind("dataset", FORMAT_NAME)

MARKER = "_protodask.json"
"""Says what a folder without a Zarr group is; readers of Parquet ignore names that begin with an underscore."""


def read_marker(path: str) -> object:
    """What the marker file of a folder says, unchecked, or None where there is none."""
    if is_url(path):
        return None
    try:
        return read_json(path, MARKER)
    except FormatError:
        raise
    except (OSError, ValueError):
        return None


def write_marker(path: str, record: Mapping[str, Any]) -> None:
    """Say what a folder is."""
    with open(os.path.join(path, MARKER), "w", encoding="utf-8") as file:
        json.dump(record, file, indent=2, allow_nan=False)


@contextmanager
def published(path: str, overwrite: bool, kind: Kind = DATASET) -> Iterator[str]:
    """Hand out a place to write a dataset or the like to, and put it at `path` once the body is done.

    A local dataset is written aside, made durable and renamed. At a URL there is no renaming: it is written in place,
    and counts as unfinished until its final attributes are written. If the body fails, nothing is left behind.
    """
    check_free(path, overwrite, kind)
    if is_url(path):
        with _in_place(path):
            yield path
    else:
        # Through a link: what it points to is replaced, and the link stays.
        place = os.path.realpath(path)
        # An append to what is being replaced would be lost, or write its chunks into what takes its place.
        replaced = kind == DATASET and os.path.lexists(place)
        with sole_writer(place) if replaced else nullcontext(), _aside(place, overwrite, kind) as aside:
            yield aside


def check_free(path: str, overwrite: bool, kind: Kind = DATASET) -> None:
    """Refuse a place that is taken, unless it is by one of its kind that may be overwritten."""
    if not _is_taken(path):
        return
    if not overwrite:
        raise OutputExistsError(f"{path} exists already.", "Choose another place, or overwrite it with --overwrite.")
    if not kind.owns(path):
        raise OutputExistsError(
            f"{path} exists and is not a protodask {kind.name}, so it is not overwritten.",
            "Choose another place, or remove it yourself.",
        )


@contextmanager
def _in_place(path: str) -> Iterator[None]:
    with storage_errors(path, "writing"):
        try:
            yield
        except BaseException:
            _remove(path)
            raise


@contextmanager
def _aside(path: str, overwrite: bool, kind: Kind) -> Iterator[str]:
    folder, name = os.path.split(path)
    place = os.path.join(folder, f".{name}.partial-{secrets.token_hex(4)}")
    with storage_errors(path, "writing"):
        os.makedirs(folder, exist_ok=True)
        try:
            yield place
            make_durable(place)
            check_free(path, overwrite, kind)
            _exchange(place, path)
        except BaseException:
            _remove(place)
            raise


@contextmanager
def sole_writer(path: str) -> Iterator[None]:
    """Keep others from appending to a dataset or replacing it, until this process ends; at a URL there is no lock."""
    if is_url(path) or fcntl is None:
        yield
        return
    folder, name = os.path.split(os.path.realpath(path))
    # Beside the dataset, because Zarr warns of files in a group that it does not know.
    place = os.path.join(folder, f".{name}.append.lock")
    with storage_errors(path, "locking"):
        handle = _take_lock(place, path)
    try:
        yield
    finally:
        # Removed while it is still held: who waits at the old file finds it gone, and makes a new one.
        with suppress(OSError):
            os.unlink(place)
        os.close(handle)


def _take_lock(place: str, path: str) -> int:
    while True:
        handle = os.open(place, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            _lock_file(handle, path)
            if os.path.samestat(os.fstat(handle), os.stat(place)):
                return handle
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _lock_file(handle: int, path: str) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise StorageError(
            f"Someone else is writing to {path}.",
            "Write to it one at a time: wait for the other one, and repeat.",
        ) from error
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):  # some file systems know no locks
            raise


def make_durable(place: str) -> None:
    """Have the system write everything below a folder to the disk."""
    for folder, _, files in os.walk(place):
        for name in files:
            flush(os.path.join(folder, name))
        flush(folder)


def flush(path: str) -> None:
    """Have the system write a file, or the names in a folder, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EBADF):  # some file systems cannot flush a folder
            raise
    finally:
        os.close(handle)


def _exchange(place: str, path: str) -> None:
    if not os.path.lexists(path):
        os.rename(place, path)
        flush(os.path.dirname(path))
        return
    folder, name = os.path.split(path)
    old = os.path.join(folder, f".{name}.replaced-{secrets.token_hex(4)}")
    os.rename(path, old)
    try:
        os.rename(place, path)
    except BaseException:
        os.rename(old, path)
        raise
    flush(folder)
    shutil.rmtree(old)


def _remove(place: str) -> None:
    # A task that was writing a chunk makes its folder anew; later tasks find the group gone and do not write at all.
    deadline = time.monotonic() + LATE_WRITERS_SECONDS
    calm = 0
    while calm < CALM_LOOKS and time.monotonic() < deadline:
        if _is_taken(place):
            calm = 0
            _delete(place)
        else:
            calm += 1
            time.sleep(LOOK_SECONDS)


CALM_LOOKS = 3
LOOK_SECONDS = 0.02


def _is_taken(path: str) -> bool:
    return not sync(_is_empty(path)) if is_url(path) else os.path.lexists(path)


async def _is_empty(path: str) -> bool:
    empty: bool = await (await _open_store(path)).is_empty("")
    return empty


def _delete(path: str) -> None:
    if is_url(path):
        sync(_delete_store(path))
    else:
        shutil.rmtree(path, ignore_errors=True)


async def _delete_store(path: str) -> None:
    await (await _open_store(path)).delete_dir("")


async def _open_store(path: str) -> Any:
    from zarr.storage._common import make_store  # the public ways to a store from a URL also create a group in it

    return await make_store(path, mode="a")


def group_exists(path: str) -> bool:
    """Whether the group at `path` is still there: a writer asks before each block, in case the whole was given up."""
    return sync(_has_group(path)) if is_url(path) else os.path.exists(os.path.join(path, "zarr.json"))


def require_group(path: str) -> None:
    """Refuse to write into a group that was given up."""
    if not group_exists(path):
        raise StorageError(
            f"{path} is gone while it was being written.", "Look for the error before this one, and repeat."
        )


async def _has_group(path: str) -> bool:
    found: bool = await (await _open_store(path)).exists("zarr.json")
    return found
