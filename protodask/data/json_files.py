"""Files of JSON, whole or not at all."""

from __future__ import annotations

import os

from protodask.data.local_files import delete, flush, place_aside
from protodask.data.locations import storage_errors
from protodask.data.locks import sole_writer


def replace_file(path: str, text: str) -> None:
    """Write a text file: aside, made durable, and renamed; who reads it finds the old one or the new one.

    One writer at a time: another one is refused meanwhile. What killed ones left beside it is removed.
    """
    place = os.path.realpath(path)
    with storage_errors(path, "writing"):
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with sole_writer(place):
            aside = place_aside(place)
            try:
                with open(aside, "w", encoding="utf-8") as file:
                    file.write(text)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(aside, place)
            except BaseException:
                delete(aside)
                raise
            flush(os.path.dirname(place))
