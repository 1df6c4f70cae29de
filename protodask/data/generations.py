"""Publishing in object stores, where nothing can be renamed.

What is written lies below the place in a group of its own, its *generation*. The attributes of the place itself are one
object, which is replaced in one step; they name the generation that counts:

    data.zarr/zarr.json                          {"format": ..., "generation": "generation-0123456789abcdef"}
    data.zarr/generation-0123456789abcdef/...    the whole group, as it would lie in a local folder

Until that object is replaced the old state stays as it was; afterwards the old generation is removed, and who still
reads it finds its objects missing. There are no locks: who begins to write removes every generation that does not
count, so of two writers the one that began first fails, and says so.

The object that is removed first is the one its writer looks for before it publishes and after, however long the rest
takes. What remains are two moments between single requests, which only conditional writes could close. One is between
the look whether a generation counts and the removal of that object: one published just then is removed even so, and
if the one that removed it fails too, nothing is left. The other is between reading the attributes of the place and
replacing them: of two that publish just then, the later one replaces an earlier one that it has not seen.
"""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from protodask.data.bounded import read_object
from protodask.data.local_files import CALM_LOOKS, LATE_WRITERS_SECONDS, LOOK_SECONDS
from protodask.data.locations import delete_below, inside, list_names, write_object
from protodask.errors import StorageError
from protodask.places import mask

GENERATION = re.compile(r"generation-[0-9a-f]{16}")

ROOT = "zarr.json"
"""What Zarr names the object with the attributes of a group."""


def named_generation(attributes: object) -> str | None:
    """The generation that the attributes of a place name, or None where they are those of what is wanted itself."""
    name = attributes.get("generation") if isinstance(attributes, dict) else None
    return name if isinstance(name, str) and GENERATION.fullmatch(name) else None


def holds_something(path: str) -> bool:
    """Whether there is anything at a URL but generations that never came to count."""
    return any(not GENERATION.fullmatch(name) for name in list_names(path))


@contextmanager
def new_generation(path: str, form: str) -> Iterator[str]:
    """Hand out a place below `path` for a group of the format `form`, and have it count when the body is done."""
    _remove_others(path, _counting(path))
    name = f"generation-{secrets.token_hex(8)}"
    place = inside(path, name)
    try:
        yield place
        _require(place, path)
        before = read_object(path, ROOT)
        write_object(path, ROOT, _root(form, name, _named_in(before)))
        if read_object(place, ROOT) is None:
            # Removed between the two looks by a writer that began meanwhile: the old state is the one that counts.
            if before is not None:
                write_object(path, ROOT, before)
            _require(place, path)
    except BaseException:
        with suppress(Exception):  # the first error is the one to tell
            _give_up(path, name)
        raise
    with suppress(OSError):  # it is published; what could not be removed now, the next writer removes
        _remove_others(path, name)
        _remove_older_layout(path, name)


def remove_replaced(path: str) -> None:
    """Remove the generation that the one that counts took the place of, if its writer was killed before it could.

    What other generations there are, a living process may be writing.
    """
    replaced = _attributes(read_object(path, ROOT)).get("replaced")
    if isinstance(replaced, str) and GENERATION.fullmatch(replaced) and replaced in list_names(path):
        _remove(path, replaced)


def _remove(path: str, name: str) -> None:
    """Remove a generation, beginning with the object by which its writer tells that it is there."""
    delete_below(path, f"{name}/{ROOT}")
    delete_below(path, name)


def _give_up(path: str, name: str) -> None:
    # A task may be in the middle of writing a chunk; later ones find the group gone and do not write at all.
    deadline = time.monotonic() + LATE_WRITERS_SECONDS
    calm = 0
    while calm < CALM_LOOKS and time.monotonic() < deadline:
        if name in list_names(path):
            calm = 0
            _remove(path, name)
        else:
            calm += 1
            time.sleep(LOOK_SECONDS)


def _root(form: str, generation: str, replaced: str | None) -> bytes:
    attributes = {"format": form, "generation": generation, "replaced": replaced}
    return json.dumps({"zarr_format": 3, "node_type": "group", "attributes": attributes}).encode()


def _require(place: str, path: str) -> None:
    if read_object(place, ROOT) is None:
        raise StorageError(
            "written-by-another",
            f"Someone else began to write to {mask(path)}, and what was written so far was removed.",
            "Write to it one at a time: wait for the other one, and repeat.",
        )


def _counting(path: str) -> str | None:
    return _named_in(read_object(path, ROOT))


def _named_in(content: bytes | None) -> str | None:
    return named_generation(_attributes(content))


def _attributes(content: bytes | None) -> dict[str, Any]:
    try:
        record = None if content is None else json.loads(content)
    except (ValueError, RecursionError):
        record = None
    attributes = record.get("attributes") if isinstance(record, dict) else None
    return attributes if isinstance(attributes, dict) else {}


def _remove_others(path: str, kept: str | None) -> None:
    for name in list_names(path):
        if GENERATION.fullmatch(name) and name not in (kept, _counting(path)):
            _remove(path, name)


def _remove_older_layout(path: str, kept: str) -> None:
    # The place was free or held what may be overwritten, so all else in it belonged to that.
    for name in list_names(path):
        if name not in (ROOT, kept) and not GENERATION.fullmatch(name):
            delete_below(path, name)
