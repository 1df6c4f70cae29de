"""Single files, written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterable

from protodask.data.places.bounded import open_anew
from protodask.data.places.local_files import delete, flush, flush_handle, place_aside
from protodask.data.places.locations import check_writable, is_url, locate
from protodask.data.places.locks import sweep, writing_alone
from protodask.data.places.references import check_no_version
from protodask.errors import InputError, OutputExistsError
from protodask.places import mask


def write_whole(path: str, aside: str, parts: Iterable[bytes]) -> None:
    """Write a file under the name `aside`, flush it to the disk, and give it its own."""
    try:
        with open_anew(aside) as file:
            for part in parts:
                file.write(part)
            file.flush()
            flush_handle(file.fileno())
        os.replace(aside, path)
        flush(os.path.dirname(path))
    except BaseException:
        delete(aside)
        raise


def local_file(path: str) -> str:
    """Where a single file is to be written; refused is a place in another store."""
    place = locate(path)
    if is_url(place):
        raise InputError(
            "not-local",
            f"{mask(path)} is no place on this machine, and single files are written to local places only.",
            "Use a local path, and copy the file where it is to be.",
        )
    return place


def check_file_free(path: str, overwrite: bool) -> None:
    """Refuse a file that is there already, unless it may be overwritten; a folder, or another store, always.

    A place where nothing can be made is refused, too. What killed processes left beside it is removed first.
    """
    place = local_file(path)
    check_no_version(place)
    sweep(place)
    check_replaceable(place, path)
    if os.path.lexists(place) and not overwrite:
        raise OutputExistsError(
            "exists", f"{path} exists already.", "Choose another place, or overwrite it with overwrite=True."
        )
    check_writable(place)


def check_replaceable(place: str, path: str) -> None:
    """Refuse what is there and no file: a device that was replaced by a file, such as /dev/null, all would miss."""
    if os.path.exists(place) and not os.path.isfile(place):
        found = "a folder" if os.path.isdir(place) else "a device or a pipe"
        raise OutputExistsError("wrong-kind", f"{path} is {found}.", "Give the name of a file.")


def replace_file(path: str, content: str | Iterable[bytes]) -> None:
    """Write a file: aside, made durable, and renamed; who reads it finds the old one or the new one.

    One writer at a time: another one is refused meanwhile. What killed ones left beside it is removed.
    """
    check_replaceable(locate(path), path)
    parts = [content.encode()] if isinstance(content, str) else content
    with writing_alone(path) as place:
        write_whole(place, place_aside(place), parts)
