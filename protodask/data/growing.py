"""Letting the arrays of a stored dataset grow in place, and committing what was added."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import zarr

from protodask.data.bounded import read_object
from protodask.data.conditional import Tag, tag_of, write_if
from protodask.data.generations import ROOT
from protodask.data.local_files import delete, flush, flush_handle, place_aside
from protodask.data.locations import delete_below, gone, is_url, list_names, write_object
from protodask.data.metadata import Metadata
from protodask.data.schema import TARGET
from protodask.errors import StorageError
from protodask.places import mask

UNFINISHED = ".partial"
"""How the names of files end that Zarr is writing; a process that is killed meanwhile leaves one behind."""


@dataclass(frozen=True)
class Claim:
    """At a URL, where nothing can be locked: the object with the attributes, as a writer left it when it began."""

    content: bytes
    tag: Tag
    pending: bool
    """Whether one that began before has not committed: it was killed, or is at work."""


def claim(place: str) -> Claim | None:
    """Let nobody commit any more who began to write to this place before; None where a lock has seen to that.

    The object with the attributes gets other white space at its end: its readers see no difference, and who goes by
    how it was before cannot replace it.
    """
    if not is_url(place):
        return None
    tag = tag_of(place, ROOT)
    before = read_object(place, ROOT)
    if before is None:
        raise gone(place)
    bare = before.rstrip()
    content = bare + b"\n" + bytes(secrets.choice(b" \t") for _ in range(64))
    _replace(place, content, tag)
    claimed = Claim(content, tag_of(place, ROOT), len(bare) < len(before))
    require_claim(place, claimed)
    return claimed


def require_claim(place: str, claimed: Claim) -> None:
    """Refuse to go on where somebody else has begun to write, or has committed."""
    if read_object(place, ROOT) != claimed.content:
        raise _overtaken(place)


def _replace(place: str, content: bytes, tag: Tag) -> None:
    if not tag.conditional:
        write_object(place, ROOT, content)
    elif not write_if(place, ROOT, content, tag):
        raise _overtaken(place)


def _overtaken(place: str) -> StorageError:
    return StorageError(
        "written-by-another",
        f"Someone else has begun to write to {mask(place)}.",
        "Write to it one at a time: wait for the other one, and repeat.",
    )


def begin_writing(group: zarr.Group, token: str) -> None:
    """Say whose writing goes on, in the attributes of an array: those of the group are what readers go by."""
    array: Any = group[TARGET.name]
    array.update_attributes({"writer": token})


def require_writer(place: str, token: str) -> None:
    """Refuse to write into a group that was given up, or that another writing has taken over."""
    content = read_object(place, f"{TARGET.name}/{ROOT}")
    if content is None or read_object(place, ROOT) is None:
        raise gone(place)
    if json.loads(content)["attributes"].get("writer") != token:
        raise _overtaken(place)


def resize(group: zarr.Group, metadata: Metadata) -> None:
    """Give the arrays the committed rows of `metadata`; chunks beyond are removed."""
    for variable in metadata.variables:
        array: Any = group[variable.name]
        array.resize(metadata.shape_of(variable, metadata.n_rows))


def remove_strays(place: str, metadata: Metadata, first_block: int) -> None:
    """Remove what writers that were killed, or came late, left from `first_block` on, where appends begin."""
    if not is_url(place):
        for folder in ("", *(variable.name for variable in metadata.variables)):
            _remove_unfinished(os.path.join(place, folder))
    for variable in metadata.variables:
        rows = metadata.chunk_rows(variable)
        chunks = -(-metadata.n_rows // rows)
        for name in list_names(place, f"{variable.name}/c"):
            if not name.isdecimal() or int(name) >= chunks:
                _delete(place, f"{variable.name}/c/{name}")
            elif len(variable.dims) == 2 and int(name) >= first_block * metadata.block_rows // rows:
                _remove_unfinished(os.path.join(place, variable.name, "c", name))


def _remove_unfinished(folder: str) -> None:
    if os.path.isdir(folder):
        for name in os.listdir(folder):
            if name.endswith(UNFINISHED):
                delete(os.path.join(folder, name))


def _delete(place: str, name: str) -> None:
    if is_url(place):
        delete_below(place, name)
    else:
        delete(os.path.join(place, *name.split("/")))


def commit(place: str, where: str, attributes: Mapping[str, Any], claimed: Claim | None = None) -> None:
    """Replace the attributes of the group in one step; they are on the disk before they take effect."""
    if claimed is not None:
        require_claim(place, claimed)
    record = json.loads(read_object(place, ROOT) or b"{}")
    text = json.dumps({**record, "attributes": attributes}, indent=2, allow_nan=False)
    if claimed is not None:
        _replace(place, text.encode(), claimed.tag)
        return
    # Beside the dataset: Zarr warns of files in a group that it does not know.
    aside = place_aside(os.path.realpath(where))
    try:
        with open(aside, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            flush_handle(file.fileno())
        os.replace(aside, os.path.join(place, ROOT))
    except BaseException:
        delete(aside)
        raise
    flush(place)
