"""What there is at some sources that a dataset does not have yet: light to import, as hourly runs find nothing mostly.

A source is a path, folder or glob of files, or a dataset, whose segments count as so many sources. Each is told by its
digest, so that nothing counts twice: not under another name, not in two places, not after it was taken.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Container, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from protodask.data.format.segments import Segment, is_dataset, stored_segments
from protodask.data.places.locations import locate
from protodask.data.tables.source_files import DigestCache, SourceFile, cache_beside, check_settle, source_files
from protodask.errors import InputError, StorageError, count
from protodask.places import mask


@dataclass(frozen=True)
class NewFile:
    """A file with a content that is new."""

    file: SourceFile
    digest: str


@dataclass(frozen=True)
class NewRows:
    """Rows of another dataset that are new: one of its segments."""

    path: str
    """Of that dataset."""
    first: int
    """Number of the first row there."""
    segment: Segment


@dataclass(frozen=True)
class News:
    """What is new at some sources, in their order."""

    items: tuple[NewFile | NewRows, ...]
    waiting: tuple[str, ...]
    """Files that changed a moment ago: for the next time."""
    changing: tuple[str, ...]
    """Files that changed while they were looked at: likewise."""
    renewed: tuple[str, ...]
    """Names of new files that the dataset knows with another content."""

    def describe(self) -> str:
        """How much is new, in a few words."""
        files = sum(isinstance(item, NewFile) for item in self.items)
        parts = len(self.items) - files
        rows = sum(item.segment.rows for item in self.items if isinstance(item, NewRows))
        places = len({item.path for item in self.items if isinstance(item, NewRows)})
        words = [count(files, "new file")] if files else []
        words += [f"{count(rows, 'new row')} of {count(places, 'dataset')}"] if parts else []
        return " and ".join(words) or "nothing new"


Path = str | os.PathLike[str]

SegmentsOf = Callable[[str], tuple[Segment, ...] | None]


def find_news(
    sources: Sequence[str],
    known: Collection[Segment],
    cache: DigestCache,
    settle: float = 0.0,
    segments_of: SegmentsOf = stored_segments,
) -> News:
    """What the sources have besides the `known` segments; files that changed within `settle` seconds are left."""
    taken, names = {segment.digest for segment in known}, {segment.name for segment in known}
    items: list[NewFile | NewRows] = []
    waiting: list[str] = []
    changing: list[str] = []
    for source in sources:
        for found in _found(source, taken, cache, settle, segments_of):
            match found:
                case SourceFile(settled=False):
                    waiting.append(found.path)
                case SourceFile():
                    changing.append(found.path)
                case NewFile(digest=digest) | NewRows(segment=Segment(digest=digest)):
                    if digest not in taken:
                        taken.add(digest)
                        items.append(found)
    cache.save()
    renewed = [item.file.name for item in items if isinstance(item, NewFile) and item.file.name in names]
    return News(tuple(items), tuple(waiting), tuple(changing), tuple(renewed))


def _found(
    source: str, taken: Container[str], cache: DigestCache, settle: float, segments_of: SegmentsOf
) -> Iterator[NewFile | NewRows | SourceFile]:
    """Everything at a source; files that are left have no digest."""
    if is_dataset(source):
        stored = segments_of(source)
        if stored is None:
            raise StorageError("not-found", f"There is nothing at {mask(source)} any more.", "Check the path.")
        first = 0
        for segment in stored:
            yield NewRows(locate(source), first, segment)
            first += segment.rows
        return
    if source.rstrip("/").endswith(".zarr") or os.path.exists(os.path.join(source, "zarr.json")):
        raise InputError(
            "wrong-kind",
            f"{mask(source)} is not a protodask dataset, so nothing tells which of its rows are new.",
            "Give files or datasets; leave out `new` for arrays.",
        )
    for file in source_files(source, settle):
        digest = None
        if file.settled:
            digest = cache.digest_of(file, taken)
        elif cache.has_read(file):  # one that was only touched does not wait
            with suppress(StorageError):
                digest = cache.digest_of(file, taken)
        complete = file.settled or digest in taken
        yield NewFile(file, digest) if complete and digest is not None else file


def check_new(new: bool, unless_in: Path | None, settle: float, append: bool, overwrite: bool, out: Path) -> None:
    """Refuse settings that contradict each other."""
    if append and overwrite:
        raise InputError("settings-conflict", "Both append and overwrite are asked for.", "Choose one.")
    check_settle(settle)
    if new and overwrite:
        raise InputError(
            "settings-conflict", "Both new and overwrite are asked for.", "Choose one: new adds to what is there."
        )
    if unless_in is not None and append and not new:
        raise InputError(
            "settings-conflict",
            "Rows that another dataset does not have would be appended again each time.",
            "Use `new` in place of `append`: what is there is not appended again.",
        )
    if unless_in is not None and locate(unless_in) == locate(out):
        raise InputError(
            "places-overlap", "The dataset to write is the one to compare with.", "Use `new` to add what is new to it."
        )
    if settle and not new and unless_in is None:
        raise InputError(
            "settings-conflict",
            "Files that changed just now are to be left for the next time, but all files are taken each time.",
            "Use `settle` together with `new` or `unless_in`.",
        )


def known_segments(
    out: str, new: bool, unless_in: str | None, segments_of: SegmentsOf = stored_segments
) -> tuple[Segment, ...]:
    """The segments that are not to be taken: those of `out`, if it is added to, and those of `unless_in`."""
    places = ([out] if new else []) + ([] if unless_in is None else [unless_in])
    stored = [found for found in map(segments_of, places) if found is not None]
    return tuple(segment for found in stored for segment in found)


def news_for(out: str, sources: Sequence[str], new: bool, unless_in: str | None, settle: float) -> News:
    """What an ingest would take, found without reading rows."""
    return find_news(sources, known_segments(out, new, unless_in), DigestCache(cache_beside(locate(out))), settle)
