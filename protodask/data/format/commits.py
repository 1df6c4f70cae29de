"""Changing a stored dataset: what is added lies in groups of its own, and counts once the attributes name it.

On a disk one writer at a time holds the lock. At a URL there is none: all that began from one state may write, the
first to commit wins, and the others find that the attributes are not those they began from. In S3 the replacement
itself is made on that condition, so that no two can win; other stores are asked just before, and looked at after.
Nobody removes what a commit names, or what one that is still to come may name (`parts`); where neither a lock nor a
condition makes sure that a commit is the only one of its number, what else has the number stays until the next one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

from protodask.data.format.dataset import Dataset
from protodask.data.format.metadata import Metadata, to_attributes
from protodask.data.format.parts import APPENDS, MAX_COMMITS, Part, commit_of, new_name, place_of
from protodask.data.format.segments import (
    Segment,
    check_rows,
    remove_other_segments,
    segments_content,
    write_segments,
)
from protodask.data.places.bounded import read_object
from protodask.data.places.conditional import Tag, replace_object, tag_of
from protodask.data.places.generations import ROOT, give_up
from protodask.data.places.local_files import make_durable, place_aside, remove
from protodask.data.places.locations import full_disk_of, gone, inside, is_url, list_names, locate, storage_errors
from protodask.data.places.locks import sole_writer
from protodask.data.places.records import hash_json
from protodask.data.places.storage import find_group, read_stable, remove_inside, write_group
from protodask.data.places.whole_files import write_whole
from protodask.errors import ProtodaskError, StorageError
from protodask.places import mask

PART_FORMAT = "protodask-part"

RECENT = 32
"""Commits whose names a dataset has: more than others make while one waits for an answer."""


@dataclass
class Change:
    """A change of a dataset that has begun."""

    dataset: Dataset
    """As it was then."""
    base: bytes
    """The object with its attributes."""
    tag: Tag
    certain: bool
    """Whether no other change can have the same number: by a lock, or by a condition."""
    name: str
    """What the commit is called; nobody else's."""
    added: list[str] = field(default_factory=list)
    """Names of the groups that were written for this."""

    @property
    def place(self) -> str:
        return self.dataset.place

    @property
    def number(self) -> int:
        """Of the commit that it will be."""
        return self.dataset.metadata.commit + 1

    def after(self, metadata: Metadata, parts: tuple[Part, ...] | None = None) -> Metadata:
        """What the dataset says once the change counts, with the rows in these parts."""
        return replace(
            metadata,
            commit=self.number,
            parts=parts or metadata.all_parts,
            changes=(*metadata.changes, self.name)[-RECENT:],
        )

    def make_group(self, name: str) -> str:
        """Make an empty group in `appends`, and tell its place."""
        if read_object(self.place, f"{APPENDS}/{ROOT}") is None:  # through no link that leads elsewhere
            write_group(inside(self.place, APPENDS), {})
        self.added.append(name)
        place = place_of(self.place, name)
        write_group(place, {"format": PART_FORMAT})
        return place

    def with_segments(self, metadata: Metadata, segments: tuple[Segment, ...]) -> Metadata:
        """What says that its rows are from these segments, which are written to a group of their own."""
        check_rows(segments, metadata.n_rows, self.dataset.path)
        name = new_name(self.number)
        digest = write_segments(self.make_group(name), segments)
        return replace(metadata, segments=digest, n_segments=len(segments), segments_in=name)

    def make_durable(self) -> None:
        """Have the system write what was added to the disk."""
        if not is_url(self.place):
            for name in self.added:
                make_durable(place_of(self.place, name))

    def is_overtaken(self) -> bool:
        """Whether the dataset is not the one any more that this began from."""
        return find_group(self.dataset.path)[0] != self.place or read_object(self.place, ROOT) != self.base

    def is_committed(self) -> bool:
        """Whether the change counts, be it that others were made since."""
        place, attributes = find_group(self.dataset.path)
        changes = attributes.get("changes") if isinstance(attributes, dict) else None
        return place == self.place and isinstance(changes, list) and self.name in changes

    def commit(self, metadata: Metadata) -> Dataset:
        """Have the dataset be as the metadata say, in one step; what no one can need any more is removed."""
        record = {**json.loads(self.base), "attributes": to_attributes(metadata)}
        content = json.dumps(record, indent=2, allow_nan=False).encode()
        if self.is_overtaken():
            raise _overtaken(self.dataset.path)
        if not is_url(self.place):
            # Beside the dataset: Zarr warns of files in a group that it does not know.
            aside = place_aside(os.path.realpath(self.dataset.path))
            write_whole(os.path.join(self.place, ROOT), aside, [content])
        else:
            replace_object(self.place, ROOT, self.base, content, self.tag)
        if not self.is_committed():
            raise _overtaken(self.dataset.path)
        with suppress(OSError, ProtodaskError):  # it is committed; what could not be removed now, the next one removes
            remove_unnamed(self.place, metadata, metadata.commit if self.certain else metadata.commit - 1)
        return Dataset.open(self.dataset.path)

    def give_up(self) -> None:
        """Remove what was added, unless it counts."""
        if self.is_committed():
            return
        for name in self.added:
            if is_url(self.place):
                give_up(inside(self.place, APPENDS), name)
            else:
                remove(place_of(self.place, name))


@contextmanager
def changing(where: str) -> Iterator[Change]:
    """Begin to change the dataset at a place; if the body fails, nothing is left of it."""
    written = full_disk_of(where, f"appending to {mask(where)}")
    with written, sole_writer(where) as locked, storage_errors(where, "appending to"):
        change = read_stable(where, lambda: _begun(where, locked))
        if locked:  # so whatever else there is was left by a process that was killed
            remove_unnamed(change.place, change.dataset.metadata, MAX_COMMITS)
        try:
            yield change
        except BaseException as error:
            overtaken = False
            # The first error is the one to tell; and of what cannot be looked at now nothing is removed.
            with suppress(Exception):
                # Whoever commits removes what others have begun, who then find it gone.
                overtaken = getattr(error, "code", None) == "changed-meanwhile" and change.is_overtaken()
                change.give_up()
            if overtaken:
                raise _overtaken(where) from error
            raise


def _begun(where: str, locked: bool) -> Change:
    place, attributes = find_group(where)
    tag = tag_of(place, ROOT)
    base = read_object(place, ROOT)
    if base is None:
        raise gone(where)
    if json.loads(base).get("attributes") != attributes:
        raise _overtaken(where)
    dataset = Dataset.of(where, place, attributes)
    return Change(dataset, base, tag, locked or tag.conditional, new_name(dataset.metadata.commit + 1))


def remove_unnamed(place: str, metadata: Metadata, last: int) -> None:
    """Remove what was written for commits up to the last one and is not named by these attributes."""
    folder = inside(place, APPENDS)
    if not is_url(folder) and os.path.islink(folder):
        return
    named = {part.name for part in metadata.all_parts}
    for name in list_names(place, APPENDS):
        number = commit_of(name)
        if number is not None and name not in (*named, metadata.segments_in) and number <= last:
            remove_inside(folder, name)
    if "" not in named:  # the first writing was less than a block, and an append has it once more
        for variable in metadata.variables:
            remove_inside(place, variable.name)
    remove_other_segments(place, None if metadata.segments_in else metadata.segments)


def _overtaken(where: str) -> StorageError:
    return StorageError(
        "written-by-another",
        f"Someone else has changed {mask(where)} meanwhile.",
        "What was to be added was not: write to it one at a time, and repeat.",
    )


def segments_before(dataset: Dataset, added: Sequence[Segment] | None) -> tuple[Segment, ...] | None:
    """The segments a dataset has before an append, or None if it will have none after it either.

    That of all rows, where they are the first. What was new a moment ago may turn out to be there by now.
    """
    if dataset.metadata.segments is None and added is None:
        return None
    before = dataset.sources
    known = {segment.digest for segment in before}
    if added is not None and any(segment.digest in known for segment in added):
        raise StorageError(
            "written-by-another",
            f"Someone else added the same rows to {dataset.path} meanwhile.",
            "Repeat: what is there is not added again.",
        )
    segments_content([*before, *(added or ())])  # that there are not too many, before the rows are read
    return before


def appended_segment(metadata: Metadata, first_row: int) -> Segment:
    """The rows from `first_row` on, of unknown origin: told by that number and by all that the dataset now holds."""
    return Segment("", hash_json(["appended", metadata.fingerprint, first_row]), metadata.n_rows - first_row)


def add_empty_segments(path: str, added: Sequence[Segment]) -> Dataset:
    """Note sources without a single row in the dataset at a path, so that they are not looked into again."""
    with changing(locate(path)) as change:
        before = segments_before(change.dataset, added) or ()
        noted = change.after(change.with_segments(change.dataset.metadata, (*before, *added)))
        change.make_durable()
        return change.commit(noted)
