"""What lies at a place, as a short text that changes with the content: light to import, and quick.

What this package wrote tells of its content itself: datasets have a fingerprint, models and predictions digests or an
identity of their own in their attributes. Of foreign files, small ones are read, larger ones told by size and time.
"""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from protodask.data.places.locations import file_system, is_url, locate, storage_errors
from protodask.data.places.references import is_reference, reference_fingerprint
from protodask.data.places.registry_state import REGISTRY_FILE, read_state
from protodask.data.places.storage import DATASET, MARKER, find_group
from protodask.data.tables.source_files import bytes_digest, is_table_path, modified_ns, object_version, source_files
from protodask.errors import StorageError

READ_BYTES = 4 * 2**20
"""Files up to this size are told by their content: settings, scores, small tables. Hashing this much takes 10 ms."""

OURS = "protodask-"
"""How the formats of this package begin."""

REGISTRY = "registry"
"""Of all registries: the move of an alias, such as a rollback by hand, gives nobody a reason to publish again."""


def identity(place: str) -> str | None:
    """What identifies the content of a place; None where there is nothing."""
    if is_reference(place) and (found := reference_fingerprint(place)) is not None:
        return f"version {found}"
    where = locate(place)
    if is_url(where):
        return _of_url(where)
    if os.path.isdir(where):
        return _of_folder(where)
    if os.path.lexists(where):
        return _of_file(where)
    if glob.has_magic(where):
        return _of_tables(where)
    return None


def _of_url(where: str) -> str | None:
    if is_table_path(where) or glob.has_magic(where):
        return _of_tables(where)
    if (own := _of_group(where)) is not None:
        return own
    return REGISTRY if read_state(where) is not None else _of_objects(where)


def _of_objects(where: str) -> str | None:
    """Of objects of others at or below a URL: their names, and what the store tells them apart by."""
    with storage_errors(where, "looking at"):
        store, path = file_system(where)
        store.invalidate_cache()  # another process may have written since
        found = store.find(path, detail=True)
    told = [
        f"{name} {details.get('size')} {object_version(details) or modified_ns(details)}"
        for name, details in sorted(found.items())
    ]
    return f"objects {_digest(told)}" if told else None


def _of_folder(where: str) -> str:
    with suppress(StorageError):
        if (own := _of_group(where)) is not None:
            return own
    if os.path.isfile(os.path.join(where, REGISTRY_FILE)):
        return REGISTRY
    marker = os.path.join(where, MARKER)
    if os.path.isfile(marker):
        return f"folder {_digest([_of_file(marker), *_listing(where)])}"
    if os.path.exists(os.path.join(where, "zarr.json")):  # arrays of others: what changes in them, files tell
        return f"arrays {_digest(_listing(where))}"
    return _of_tables(where) or f"folder {_digest(_listing(where))}"


def identity_of_files(place: str) -> str | None:
    """What identifies the files of a model or the like on a disk, where `identity` takes its attributes at their word:
    a damaged chunk is told by it. Of many bytes it is the sizes alone; None elsewhere, and of datasets, which grow.
    """
    where = locate(place)
    if is_url(where) or not os.path.isdir(where):
        return None
    attributes = _attributes(where)
    if attributes is None or attributes["format"] == DATASET.format:
        return None
    files = [(name, status) for name, status in _files(where) if not os.path.basename(name).startswith(".")]
    read = sum(status.st_size for _, status in files) <= READ_BYTES
    with storage_errors(where, "looking at"):
        return _digest(
            f"{name} {_of_file(os.path.join(where, name)) if read else status.st_size}" for name, status in files
        )


def _attributes(where: str) -> dict[str, Any] | None:
    """The attributes of what this package wrote; None of what others did."""
    _, attributes = find_group(where)
    return attributes if isinstance(attributes, dict) and str(attributes.get("format")).startswith(OURS) else None


def _of_group(where: str) -> str | None:
    """Of what this package wrote, whose attributes change whenever its content does; None of what others did."""
    attributes = _attributes(where)
    if attributes is None:
        return None
    fingerprint = attributes.get("fingerprint")
    if attributes["format"] == DATASET.format and isinstance(fingerprint, str):
        return f"dataset {fingerprint}"
    return f"{attributes['format']} {_digest([json.dumps(attributes, sort_keys=True)])}"


def _of_tables(where: str) -> str | None:
    """Of raw tables: their names, sizes and times of change; and their content, where they are few bytes on a disk.

    What is copied with its time, as `cp -p` does, may be another table of the same size.
    """
    files = source_files(where)
    if not files:
        return None
    read = not is_url(where) and sum(file.size for file in files) <= READ_BYTES
    told = [f"{file.name} {file.size} {file.modified_ns or file.version}" for file in files]
    if read:
        told += [_content_of(file.path) for file in files]
    return f"tables {_digest(told)}"


def _content_of(path: str) -> str:
    with suppress(StorageError):
        return _of_file(path)
    return ""  # taken away since it was listed, or not to be read, which whoever reads it will say


def _of_file(where: str) -> str:
    with storage_errors(where, "looking at"):
        status = os.stat(where)
        if status.st_size > READ_BYTES or not os.path.isfile(where):
            return f"file {status.st_size} {status.st_mtime_ns}"
        with open(where, "rb") as file:
            return f"file {bytes_digest(file.read(READ_BYTES + 1))}"


def _listing(where: str) -> list[str]:
    return [f"{name} {status.st_size} {status.st_mtime_ns}" for name, status in _files(where)]


def _files(where: str) -> list[tuple[str, os.stat_result]]:
    """All files below a folder, by their names in it."""
    with storage_errors(where, "looking at"):
        paths = [os.path.join(folder, name) for folder, _, names in os.walk(where) for name in names]
        return sorted((os.path.relpath(path, where), os.lstat(path)) for path in paths)


def _digest(parts: Iterable[str]) -> str:
    return bytes_digest("".join(f"{part}\n" for part in parts).encode("utf-8", "surrogateescape"))
