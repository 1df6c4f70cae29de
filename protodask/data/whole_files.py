"""Single files, written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterable

from protodask.data.bounded import open_anew
from protodask.data.local_files import delete, flush, flush_handle, place_aside
from protodask.data.locations import storage_errors
from protodask.data.locks import sole_writer


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


def replace_file(path: str, text: str) -> None:
    """Write a text file: aside, made durable, and renamed; who reads it finds the old one or the new one.

    One writer at a time: another one is refused meanwhile. What killed ones left beside it is removed.
    """
    place = os.path.realpath(path)
    with storage_errors(path, "writing"):
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with sole_writer(place):
            write_whole(place, place_aside(place), [text.encode()])
