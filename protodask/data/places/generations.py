"""Publishing in object stores, where nothing can be renamed.

What is written lies below the place in a group of its own, its *generation*. The attributes of the place itself are one
object, which is replaced in one step; they name the generation that counts:

    data.zarr/zarr.json                          {"format": ..., "generation": "generation-000000030123abcd"}
    data.zarr/generation-000000030123abcd/...    the whole group, as it would lie in a local folder

Until that object is replaced the old state stays as it was; afterwards the old generation is removed, and who still
reads it finds its objects missing. There are no locks: all that began from one state may write, and the first to
replace the object wins; the others fail, and say so. In S3 it is replaced on the condition that it is still the one
that the writer began from; other stores are asked just before, and looked at after.

A generation has the number of the one it follows, and one more, in the first half of its digits (those of earlier
versions were drawn). Once a number counts, all others of it or of earlier ones are removed: none of them can come to
count any more. Whatever has a later number may be somebody at work; and where nothing can be written on a condition, so
may be those of the same number, which stay until the next one counts.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from protodask.data.places.bounded import read_object
from protodask.data.places.conditional import replace_object, tag_of
from protodask.data.places.local_files import remove_for_good
from protodask.data.places.locations import delete_below, inside, list_names
from protodask.errors import StorageError
from protodask.places import mask

GENERATION = re.compile(r"generation-([0-9a-f]{8})[0-9a-f]{8}")

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
    tag = tag_of(path, ROOT)
    before = read_object(path, ROOT)
    old = generation_in(before)
    _remove_up_to(path, old, tag.conditional)
    name = f"generation-{_number(old) + 1:08x}{secrets.token_hex(4)}"
    place = inside(path, name)
    content = group_content({"format": form, "generation": name, "replaced": old})
    try:
        yield place
        if read_object(place, ROOT) is None or not (
            replace_object(path, ROOT, before, content, tag) or _has_counted(path, name)
        ):
            raise StorageError(
                "written-by-another",
                f"Someone else has written to {mask(path)} meanwhile, and what was written now was removed.",
                "Write to it one at a time: wait for the other one, and repeat.",
            )
    except BaseException:
        with suppress(Exception):  # the first error is the one to tell
            if generation_in(read_object(path, ROOT)) != name:
                give_up(path, name)
        raise
    with suppress(OSError):  # it is published; what could not be removed now, the next writer removes
        _remove_up_to(path, name, tag.conditional)
        for other in list_names(path):
            # The place was free or held what may be overwritten, so what is of an older layout belonged to that.
            if other not in (ROOT, name) and not GENERATION.fullmatch(other):
                delete_below(path, other)


def _has_counted(path: str, name: str) -> bool:
    """Whether a generation counts, or the one that does came in its place."""
    found = _attributes(read_object(path, ROOT))
    return name in (found.get("generation"), found.get("replaced"))


def remove_replaced(path: str) -> None:
    """Remove the generation that the one that counts took the place of, if its writer was killed before it could.

    What other generations there are, a living process may be writing.
    """
    replaced = _attributes(read_object(path, ROOT)).get("replaced")
    if isinstance(replaced, str) and GENERATION.fullmatch(replaced) and replaced in list_names(path):
        remove_group(path, replaced)


def remove_group(path: str, name: str) -> None:
    """Remove a group below a URL, beginning with the object by which its writer tells that it is there."""
    delete_below(path, f"{name}/{ROOT}")
    delete_below(path, name)


def give_up(path: str, name: str) -> None:
    """Remove a group below a URL that one has been writing, with what tasks of one's own still write."""
    remove_for_good(lambda: name in list_names(path), lambda: remove_group(path, name))


def group_content(attributes: Mapping[str, Any]) -> bytes:
    """The object that makes a group with these attributes."""
    record = {"zarr_format": 3, "node_type": "group", "attributes": attributes}
    return json.dumps(record, allow_nan=False).encode()


def generation_in(content: bytes | None) -> str | None:
    """The generation that the object with the attributes of a place names."""
    return named_generation(_attributes(content))


def _attributes(content: bytes | None) -> dict[str, Any]:
    try:
        record = None if content is None else json.loads(content)
    except (ValueError, RecursionError):
        record = None
    attributes = record.get("attributes") if isinstance(record, dict) else None
    return attributes if isinstance(attributes, dict) else {}


def _number(name: str | None) -> int:
    found = GENERATION.fullmatch(name or "")
    return int(found[1], 16) if found else 0


def _remove_up_to(path: str, kept: str | None, certain: bool) -> None:
    """Remove what can count no more, given the generation that does, and whether it can only have come to once."""
    for name in list_names(path):
        if GENERATION.fullmatch(name) and name != kept and _number(name) < _number(kept) + certain:
            remove_group(path, name)
