"""Copies of models and files, byte for byte, from and to folders and URLs."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from typing import Any, BinaryIO

from protodask.data.places.bounded import PIECE_BYTES, open_anew, open_inside, open_named
from protodask.data.places.generations import GENERATION
from protodask.data.places.locations import inside, is_url, open_store, storage_errors, write_object
from protodask.errors import InputError, StorageError
from protodask.places import mask

MOST_BYTES = 2**28
"""Of an attached file, which is in memory while it is copied: reports and profiles are far smaller."""


def copy_group(source: str, target: str) -> None:
    """Copy all files of a group. Nothing is followed that is a link, and nothing read that is no regular file."""
    for name in list(_names_below(source)):
        with storage_errors(source, "reading"):
            if is_url(source) or is_url(target):
                write_file(target, name, _read(source, name))
                continue
            opened = open_inside(source, name)
        place = os.path.join(target, *name.split("/"))
        with opened as file, storage_errors(target, "writing"):
            os.makedirs(os.path.dirname(place), exist_ok=True)
            with open_anew(place) as copy:
                copy.writelines(_pieces(file, source))


def _pieces(file: BinaryIO, source: str) -> Iterator[bytes]:
    while True:
        with storage_errors(source, "reading"):
            piece = file.read(PIECE_BYTES)
        if not piece:
            return
        yield piece


def read_file(path: str) -> bytes:
    """The content of a file that the user named, of at most `MOST_BYTES`."""
    if is_url(path):
        above, _, name = path.rpartition("/")
        with storage_errors(path, "reading"):
            return _read(above, name, MOST_BYTES)
    try:
        with open_named(path) as file:
            content = file.read(MOST_BYTES + 1)
    except FileNotFoundError as error:
        raise StorageError("not-found", f"There is no file {path}.", "Check the path.") from error
    except IsADirectoryError as error:
        raise InputError("wrong-kind", f"{path} is a folder.", "Attach single files.") from error
    except OSError as error:
        raise StorageError(
            "unreadable", f"The file {path} cannot be read ({error}).", "Check its permissions."
        ) from error
    _check_size(path, len(content), MOST_BYTES)
    return content


def _check_size(path: str, size: int, most: int) -> None:
    if size > most:
        raise InputError(
            "over-limit",
            f"The file {path} has more than {most} bytes.",
            "Keep it elsewhere, and attach a file that names it.",
        )


def write_file(target: str, name: str, content: bytes) -> None:
    """Write a file into a folder or below a URL."""
    with storage_errors(target, "writing"):
        if is_url(target):
            write_object(target, name, content)
            return
        place = os.path.join(target, *name.split("/"))
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with open_anew(place) as file:
            file.write(content)


def _read(source: str, name: str, most: int | None = None) -> bytes:
    """The content of a file; at a URL, where more than `most` bytes are said to be there, none of it is read."""
    if not is_url(source):
        with open_inside(source, name) as file:
            return file.read()
    from zarr.core.buffer import default_buffer_prototype
    from zarr.core.sync import sync

    store, place = open_store(source, read_only=True), mask(inside(source, name))
    if most is not None:
        _check_size(place, sync(store.getsize(name)), most)
    content = sync(store.get(name, default_buffer_prototype()))
    if content is None:
        raise StorageError("not-found", f"There is nothing at {place}.", "Check the address, and repeat.")
    return bytes(content.to_bytes())


def _names_below(place: str) -> Iterator[str]:
    """Names of the files below a place, with slashes; what other writers left at a URL does not belong to it."""
    if is_url(place):
        from zarr.core.sync import sync

        with storage_errors(place, "reading"):
            found = sync(_keys(open_store(place, read_only=True)))
        yield from (name for name in sorted(found) if not GENERATION.fullmatch(name.partition("/")[0]))
        return
    for folder, folders, files in os.walk(place):
        folders.sort()
        within = os.path.relpath(folder, place)
        parts = [] if within == os.curdir else within.split(os.sep)
        # A link to a folder is found among the folders: named, it is refused when it is read.
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        yield from ("/".join((*parts, name)) for name in sorted((*files, *links)))


async def _keys(store: Any) -> list[str]:
    listed: AsyncIterator[str] = store.list()
    return [name async for name in listed]
