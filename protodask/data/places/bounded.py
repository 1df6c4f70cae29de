"""Reading files nobody vouches for: regular ones only, of a bounded size, and never through a link inside a store.

A store may be reached through a symbolic link; inside it there are none, so that nothing in it stands for a file
elsewhere. Pipes and devices are not opened at all: opening one can wait for ever.
"""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from io import BufferedReader
from typing import Any, BinaryIO

from protodask.data.places.locations import is_url, open_store, storage_errors
from protodask.errors import FormatError

MAX_JSON_BYTES = 64 * 2**20
"""No JSON file of this package is larger; features cost about 200 bytes each, blocks 16."""

MAX_JSON_ITEMS = 2**21
"""Values in a JSON file: with what Python makes of each, a bound of some 300 MB on what reading one can allocate."""

MAX_JSON_DEPTH = 64
"""Far deeper than anything written here, and far from the depth at which Python gives up."""

PIECE_BYTES = 2**20
"""Read at once: Python sets aside as many bytes as are asked for, whatever the size of the file."""

RESTORE = "Restore it from a copy, or make it again."

_SAFELY = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)


def file_status(root: str, name: str) -> os.stat_result:
    """The status of the regular file `name` (parts joined by slashes) in the store or folder `root`.

    Whatever else stands there is a `FormatError`; what is absent is the system's `FileNotFoundError`.
    """
    path = root
    for part in name.split("/"):
        path = f"{path}/{part}"
        status = os.lstat(path)
        if stat.S_ISLNK(status.st_mode):
            raise FormatError(
                "wrong-kind",
                f"{path} is a symbolic link.",
                "Put the file itself in its place: links inside a store are not followed.",
            )
    if not stat.S_ISREG(status.st_mode):
        raise FormatError("wrong-kind", f"{path} is not a regular file.", RESTORE)
    return status


def open_inside(root: str, name: str) -> BinaryIO:
    """Open the regular file `name` in the store or folder `root` for reading."""
    file_status(root, name)
    return open_known(root, name)


def open_known(root: str, name: str) -> BufferedReader:
    """The same, where `file_status` was just asked for it."""
    return os.fdopen(_open(f"{root}/{name}", os.O_RDONLY | _NO_LINK), "rb")


def open_to_append(root: str, name: str) -> BinaryIO:
    """Open the regular file `name` in the folder `root` for adding to it; it is made where there is none."""
    with suppress(FileNotFoundError):
        file_status(root, name)
    return os.fdopen(_open(f"{root}/{name}", _NO_LINK | os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab")


def open_anew(path: str) -> BinaryIO:
    """Open a file of one's own for writing, in place of whatever stands there: a link is removed, not followed."""
    with suppress(FileNotFoundError):
        os.unlink(path)
    return os.fdopen(_open(path, _NO_LINK | os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb")


def open_named(path: str) -> BinaryIO:
    """Open a file the user named for reading; it may be a link, but not a pipe or a device."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        if os.path.isdir(path):
            raise IsADirectoryError(f"{path} is a folder")
        raise FormatError("wrong-kind", f"{path} is not a regular file.", "Give a file, not a pipe or a device.")
    return os.fdopen(_open(path, os.O_RDONLY), "rb")


def _open(path: str, flags: int) -> int:
    handle = os.open(path, flags | _SAFELY, 0o666)
    # Looked at again: what was a file a moment ago may be something else now.
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise FormatError("wrong-kind", f"{path} is not a regular file.", RESTORE)
    return handle


def read_bounded(file: BinaryIO, most: int, path: str) -> bytes:
    """All of a file of at most so many bytes."""
    content = read_up_to(file, most + 1)
    if len(content) > most:
        raise _too_large(path, most)
    return content


def read_up_to(file: BinaryIO, size: int) -> bytes:
    """So many bytes of a file from where it is, or what there is."""
    content = bytearray()
    while len(content) < size and (piece := file.read(min(PIECE_BYTES, size - len(content)))):
        content += piece
    return bytes(content)


def _too_large(path: str, most: int) -> FormatError:
    return FormatError(
        "over-limit", f"{path} has more than {most} bytes.", f"No file of its kind is so large. {RESTORE}"
    )


def read_json(root: str, name: str) -> Any:
    """The JSON value in the file `name` of a local store or folder, or of a store at a URL.

    What is no JSON, or is of a size or depth that nothing here has, is a `ValueError` (of which `FormatError` is one).
    """
    read = _read_remote if is_url(root) else _read_local
    content = read(root, name)
    if content is None:
        raise FileNotFoundError(f"{root}/{name}")
    return parse_json(content)


def read_object(root: str, name: str) -> bytes | None:
    """The content of a file or object that is no larger than JSON may be, or None where there is none."""
    if is_url(root):
        with storage_errors(root, "reading"):
            return _read_remote(root, name)
    try:
        return _read_local(root, name)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _read_local(root: str, name: str) -> bytes:
    with open_inside(root, name) as file:
        return read_bounded(file, MAX_JSON_BYTES, f"{root}/{name}")


def _read_remote(root: str, name: str) -> bytes | None:
    (content,) = read_objects(root, [(name, MAX_JSON_BYTES)])
    if content is not None and len(content) > MAX_JSON_BYTES:
        raise _too_large(f"{root}/{name}", MAX_JSON_BYTES)
    return None if content is None else bytes(content)


def read_objects(root: str, wanted: Iterable[tuple[str, int]]) -> list[memoryview | None]:
    """The contents of objects below a URL, asked for together; None where there is none.

    With the name of each comes how many bytes it may have: of one that has more, one byte more is read.
    """
    import asyncio  # which takes longer to import than all of this module

    from zarr.abc.store import RangeByteRequest
    from zarr.core.buffer import default_buffer_prototype
    from zarr.core.sync import sync

    store, kind = _store_of(root, os.getpid()), default_buffer_prototype()

    async def read() -> list[Any]:
        return await asyncio.gather(*(store.get(name, kind, RangeByteRequest(0, most + 1)) for name, most in wanted))

    return [None if content is None else memoryview(content.as_numpy_array()) for content in sync(read())]


@lru_cache(maxsize=64)
def _store_of(root: str, process: int) -> Any:
    """One for all threads of a process: fsspec itself makes a client for each, of 11 MiB and half a second with S3."""
    return open_store(root, read_only=True)


def json_items(content: bytes) -> int:
    """A bound on the values in JSON, which also counts what looks like the beginning of one in a text."""
    return content.count(b",") + content.count(b"[") + content.count(b"{")


def parse_json(content: bytes) -> Any:
    """A JSON value as the standard has it: no repeated keys, nothing infinite, of bounded length and depth."""
    if json_items(content) > MAX_JSON_ITEMS:
        raise ValueError(f"it has more than {MAX_JSON_ITEMS} values")
    try:
        value = json.loads(
            content.decode(), object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite_float
        )
    except RecursionError as error:
        raise ValueError(_TOO_DEEP) from error
    _check_depth(value)
    return value


_TOO_DEEP = f"it is nested more than {MAX_JSON_DEPTH} levels deep"


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice in one object")
    return found


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is no JSON number")


def _finite_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("a number is beyond the range of float64")
    return value


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(MAX_JSON_DEPTH + 1):
        inside = (node.values() if isinstance(node, dict) else node for node in level if isinstance(node, (dict, list)))
        level = [item for items in inside for item in items if isinstance(item, (dict, list))]
        if not level:
            return
    raise ValueError(_TOO_DEEP)
