"""Paths and URLs: what a place is called, what lies there as single objects, and what is said when it fails.

Zarr, which takes long to import, is imported for URLs alone.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote

from protodask.errors import Code, InputError, ProtodaskError, StorageError
from protodask.places import mask, mask_text

REMOTE_PACKAGES = frozenset({"aiobotocore", "aiohttp", "azure", "botocore", "gcsfs", "google", "s3fs"})
"""Top-level packages of the object stores' clients: not all of their errors are errors of the operating system."""

LOCAL = "file://"

OF_SHELLS = re.compile(r"(~|\$\w+)(?=/|$)")
"""What a shell makes a path of, the home folder say, at the beginning of a word that has no quotation marks."""


def locate(path: str | os.PathLike[str]) -> str:
    """An absolute path, or a URL as it is, so that workers with another working folder find the same place."""
    if not isinstance(path, str | os.PathLike):
        raise InputError("wrong-type", f"{path!r} is no path.", "Give text or a pathlib.Path.")
    text = os.fspath(path)
    check_written_out(text)
    return absolute(text)


def absolute(text: str) -> str:
    """The same of a place that is not checked: nothing is read or written there yet."""
    if text.startswith(LOCAL):
        text = "/" + unquote(text.removeprefix(LOCAL).partition("/")[2])
    return text.rstrip("/") if is_url(text) else os.path.abspath(text)


def check_written_out(place: str) -> None:
    """Refuse a place that is empty, on another host, or begins as shells write the home folder."""
    host, _, rest = place.removeprefix(LOCAL).partition("/")
    if place.startswith(LOCAL) and host not in ("", "localhost"):
        seen = f"The place {place} names {host} as a host, and not as a folder."
        raise InputError("not-local", seen, f"Write an absolute path behind {LOCAL}, or the path alone.")
    if not place.strip() or (place.startswith(LOCAL) and not rest):
        raise InputError("setting-missing", "A place to read or to write is empty.", "Name it.")
    if found := OF_SHELLS.match(place):
        raise InputError(
            "bad-setting",
            f"The place {place} begins with {found[0]}, which only a shell replaces.",
            f"Write the path itself; in Python, os.path.expanduser gives it. A folder called so is ./{found[0]}.",
        )


def is_url(path: str) -> bool:
    """Whether a place is in a remote store."""
    return "://" in path


def inside(path: str, name: str) -> str:
    """The place of this name in a folder or below a URL."""
    return f"{path}/{name}" if is_url(path) else os.path.join(path, name)


NOT_WRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS)
"""What systems say of what must not be written."""

_ASIDE = re.compile(
    r"(?P<folder>.*?[/\\])?\.(?P<name>[^/\\]+)\.(?:partial|replaced)-[0-9a-f]{8}(?:[/\\].*)?", re.DOTALL
)


def named_place(path: str) -> str:
    """The place that something aside, or inside of that, is written for; of any other place itself."""
    found = _ASIDE.fullmatch(path)
    return path if found is None else f"{found['folder'] or ''}{found['name']}"


def gone(path: str) -> StorageError:
    """The error of who finds nothing where something is being written: it was given up, or never was within reach."""
    return StorageError(
        "changed-meanwhile",
        f"{mask(named_place(path))} is gone while it was being written, or was never there for this process.",
        "Look for the error before this one; if there is none, choose a place that all workers reach.",
    )


MORE_SPACE = "Free some space, or choose a place with more, and repeat."


@contextmanager
def storage_errors(path: str, action: str) -> Iterator[None]:
    """Say what the operating system or the client of an object store said, in the package's words.

    Of what is written aside, the place is told that it is for.
    """
    try:
        yield
    except ProtodaskError:
        raise
    except Exception as error:
        said, path = mask_text(str(error), path), mask(named_place(path))
        code: Code = "unreadable" if action.startswith(("reading", "looking")) else "unwritable"
        if code == "unreadable" and isinstance(error, FileNotFoundError):
            code = "not-found"
        if is_full(error):
            raise StorageError(
                "disk-full",
                f"The disk was full while {action} {path}.",
                MORE_SPACE,
            ) from error
        remedy = "Check that the place exists and that you may use it."
        if is_remote(error):
            remedy = "Check the address, the network, and the credentials in the environment."
        elif isinstance(error, UnicodeEncodeError) and any("\ud800" <= letter <= "\udfff" for letter in path):
            remedy = "Use a name in UTF-8: Arrow knows no others."
        elif not isinstance(error, OSError):
            raise
        elif error.errno == errno.EFBIG:
            remedy = "Raise the limit on the size of a file (`ulimit -f`), or choose a place that takes larger ones."
        elif code == "unwritable" and not is_url(path):
            remedy = _writable(error, path) or remedy
            if action == "locking":
                remedy += " While someone writes to a place, a lock file lies beside it."
        raise StorageError(code, f"{action.capitalize()} {path} failed ({said}).", remedy) from error


@contextmanager
def full_disk_of(place: str, written: str, remedy: str = MORE_SPACE) -> Iterator[None]:
    """Say of a disk that is full at a place, or inside of it, what was being written there: nobody named that."""
    try:
        yield
    except StorageError as error:
        said = error.seen.removesuffix(".")
        roots = {mask(place), mask(os.path.realpath(place))}
        if error.code != "disk-full" or not any(said.endswith(f" {one}") or f" {one}/" in said for one in roots):
            raise
        raise StorageError("disk-full", f"The disk was full while {written}.", remedy) from error


def check_writable(place: str) -> None:
    """Refuse a local place where nothing can be made, before the work is done that is to be written there."""
    folder = _found_at(os.path.dirname(os.path.realpath(place)))
    if os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK):
        return
    number = errno.EACCES if os.path.isdir(folder) else errno.ENOTDIR
    if hasattr(os, "statvfs") and os.statvfs(folder).f_flag & os.ST_RDONLY:
        number = errno.EROFS
    with storage_errors(place, "writing"):
        raise OSError(number, os.strerror(number), folder)


def _writable(error: OSError, path: str) -> str | None:
    """What to do where it is a file or folder at or above a place that keeps it from being written, if it is."""
    told = error.filename  # within an open folder that it is relative to, a name alone says nothing
    where = told if isinstance(told, str) and os.path.isabs(told) else os.path.abspath(path)
    place = _found_at(where if named_place(where) == where else os.path.dirname(named_place(where)))
    if error.errno in (errno.EEXIST, errno.ENOTDIR) and not os.path.isdir(place):
        return f"{place} is a file: choose a place in a folder."
    if error.errno not in NOT_WRITABLE:
        return None
    if not os.path.isdir(place) and os.access(place, os.W_OK):  # so its folder keeps others from being put there
        place = os.path.dirname(place)
    return f"Make {place} writable, or choose another place."


def _found_at(place: str) -> str:
    """What there is of an absolute path: the file or folder of this name, or the nearest one above it."""
    while not os.path.lexists(place) and (above := os.path.dirname(place)) != place:
        place = above
    return place


def written_over(place: str) -> InputError:
    """What to raise where something would be written to a place that is read."""
    return InputError("places-overlap", f"{mask(place)} is read, and would be written over.", "Write to another place.")


def is_full(error: BaseException) -> bool:
    """Whether this says that a disk, or what somebody may have of it, is full."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def is_remote(error: BaseException) -> bool:
    """Whether the client of an object store raised this, and not the operating system."""
    return type(error).__module__.partition(".")[0] in REMOTE_PACKAGES


def open_store(path: str, read_only: bool = False) -> Any:
    """What Zarr opens: a local path as it is, a URL through fsspec.

    Credentials, region and endpoint come from the environment alone. Listings are never cached: another process may
    have written since.
    """
    if not is_url(path):
        return path
    from zarr.storage import FsspecStore

    with _known_store(path):
        return FsspecStore.from_url(path, storage_options={"use_listings_cache": False}, read_only=read_only)


def file_system(path: str) -> tuple[Any, str]:
    """What reads single objects of the store that a URL is in, and what the one at the URL is called there."""
    import fsspec

    with _known_store(path):
        files, name = fsspec.core.url_to_fs(path)
    return files, name


@contextmanager
def _known_store(path: str) -> Iterator[None]:
    """Say of a URL whose store cannot be opened whether a package is missing, or nobody knows such stores."""
    try:
        yield
    except ImportError as error:
        raise InputError(
            "package-missing",
            f"{mask(path)} needs a package that is not installed ({mask_text(str(error), path)}).",
            "Install protodask[remote], or the fsspec package for this kind of store.",
        ) from error
    except ValueError as error:
        raise InputError(
            "unsupported",
            f"{mask(path)} is in no known kind of store ({mask_text(str(error), path)}).",
            "Check the beginning of the URL.",
        ) from error


def write_object(path: str, name: str, content: bytes) -> None:
    """Put one object below a URL; who reads it finds the old one or the new one."""
    from zarr.core.buffer import default_buffer_prototype
    from zarr.core.sync import sync

    sync(open_store(path).set(name, default_buffer_prototype().buffer.from_bytes(content)))


def list_names(path: str, prefix: str = "") -> list[str]:
    """Names of what lies directly in a folder or below a URL; none where there is nothing."""
    if not is_url(path):
        try:
            return os.listdir(os.path.join(path, *prefix.split("/")))
        except (FileNotFoundError, NotADirectoryError):
            return []
    from zarr.core.sync import sync

    async def listed() -> list[str]:
        store = open_store(path, read_only=True)  # in the thread of Zarr, as fsspec keeps a client for each thread
        return [name async for name in store.list_dir(prefix)]

    return [name.rstrip("/").rpartition("/")[2] for name in sync(listed()) if name.strip("/")]


def delete_below(path: str, name: str) -> None:
    """Delete an object below a URL, and everything whose key begins with it and a slash."""
    from zarr.core.sync import sync

    async def delete() -> None:
        store = open_store(path)
        await store.delete(name)
        await store.delete_dir(name)

    sync(delete())
