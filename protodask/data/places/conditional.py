"""Replacing an object at a URL only if nobody else has done so since: the conditional writes of S3.

Stores of other kinds know no such write here, and S3 servers of other makers may leave the condition aside.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from protodask.data.places.bounded import read_object
from protodask.data.places.locations import is_url, open_store, storage_errors, write_object


@dataclass(frozen=True)
class Tag:
    """Which content an object has: None is no object, or a store that does not say."""

    text: str | None
    conditional: bool


def tag_of(place: str, name: str) -> Tag:
    """The tag of an object below a URL, now; of files there are none."""
    if not is_url(place):
        return Tag(None, False)
    with storage_errors(place, "reading"):
        store, key = _object(place, name)
        protocol = store.fs.protocol
        if "s3" not in ((protocol,) if isinstance(protocol, str) else protocol):
            return Tag(None, False)
        from zarr.core.sync import sync

        try:
            found = sync(store.fs._info(key, refresh=True)).get("ETag")
        except FileNotFoundError:
            return Tag(None, True)
        return Tag(found, isinstance(found, str))


def replace_object(place: str, name: str, before: bytes | None, content: bytes, tag: Tag) -> bool:
    """Put an object below a URL in place of what was there `before`, with this tag; False if somebody else has since.

    Where nothing can be written on a condition, it is looked at just before, and again after.
    """
    if not tag.conditional:
        if read_object(place, name) != before:
            return False
        write_object(place, name, content)
        return read_object(place, name) == content
    from zarr.core.sync import sync

    condition = {"IfNoneMatch": "*"} if tag.text is None else {"IfMatch": tag.text}
    store, key = _object(place, name)
    try:
        sync(store.fs._pipe_file(key, content, **condition))
    except Exception:  # of whatever kind; the answer may have been lost alone
        # Asked again, the client may have been refused by its own first request: what counts is what is there.
        if read_object(place, name) == content:
            return True
        if tag_of(place, name) == tag:
            raise
        return False
    return True


def _object(place: str, name: str) -> tuple[Any, str]:
    store = open_store(place)
    return store, f"{store.path}/{name}"
