"""Which rows of a dataset came from which source: an ordered list of segments, kept with the dataset. Light to import.

The list is the attributes of a Zarr group inside of the dataset's, `segments-0123...`, which is named by what it holds
and never written again: an append writes the longer list into a group of its own (`parts`), and the attributes of the
dataset, replaced in one step, say which counts. So rows and what is said of them are committed together.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from protodask.data.format.parts import key_of, list_name
from protodask.data.places.bounded import MAX_JSON_BYTES, MAX_JSON_ITEMS, json_items, read_json
from protodask.data.places.generations import ROOT, group_content
from protodask.data.places.locations import inside, is_url, list_names, locate, storage_errors
from protodask.data.places.records import Fields, hash_json
from protodask.data.places.storage import DATASET, find_group, is_taken, read_stable, remove_inside, write_group_content
from protodask.errors import FormatError, InputError

FORMAT = "protodask-segments"

FOLDER = re.compile(r"segments-[0-9a-f]{32}")
DIGEST = re.compile(r"[0-9a-f]{32}")

MAX_SEGMENTS = 500_000
"""What fits into a JSON file of this package: an hourly file for 57 years."""

RESTORE = "Restore the dataset from a copy, or ingest the data again."


@dataclass(frozen=True, slots=True)
class Segment:
    """Rows of a dataset, one after the other, that came from one source."""

    name: str
    """Of the file, below the folder it was found in; empty where rows were added without saying where from."""
    digest: str
    """32 hexadecimal digits: of the content of the file, or else of what only these rows have."""
    rows: int


def segments_record(segments: Sequence[Segment]) -> dict[str, Any]:
    """What is written of some segments."""
    return {
        "format": FORMAT,
        "version": 1,
        "names": [segment.name for segment in segments],
        "digests": [segment.digest for segment in segments],
        "rows": [segment.rows for segment in segments],
    }


def segments_hash(segments: Sequence[Segment]) -> str:
    """What a list of segments is named by."""
    return hash_json(segments_record(segments))


def segments_content(segments: Sequence[Segment]) -> bytes:
    """The file with a list of segments; one that a reader would refuse for its size is an error."""
    content = group_content(segments_record(segments))
    if len(segments) > MAX_SEGMENTS or len(content) > MAX_JSON_BYTES or json_items(content) > MAX_JSON_ITEMS:
        raise InputError(
            "over-limit",
            f"The rows would come from {len(segments):,} sources, whose list has {len(content):,} bytes. A dataset "
            f"remembers up to {MAX_SEGMENTS:,} sources, or fewer if their names are long or have many commas.",
            "Join small files into larger ones, shorten their names, or begin another dataset.",
        )
    return content


def write_segments(place: str, segments: Sequence[Segment]) -> str:
    """Write a list of segments into the group at `place`, durably, and tell its hash; it does not count yet."""
    content, digest = segments_content(segments), segments_hash(segments)
    write_group_content(inside(place, f"segments-{digest}"), content)
    return digest


def remove_other_segments(place: str, kept: str | None) -> None:
    """Remove the lists beside the arrays that do not count: appends of earlier versions wrote theirs there."""
    for name in list_names(place):
        if FOLDER.fullmatch(name) and name != f"segments-{kept}":
            remove_inside(place, name)


def read_segments(place: str, digest: str, where: str, name: str = "") -> tuple[Segment, ...]:
    """The list of segments of this hash, of the dataset `where`, in its group at `place` or in one of its `appends`."""
    with storage_errors(where, "reading the sources of"):
        try:
            record = read_json(place, key_of(name, f"segments-{digest}/{ROOT}"))
        except FormatError:
            raise
        except (FileNotFoundError, NotADirectoryError) as error:
            raise FormatError("damaged", f"The dataset {where} has lost the list of its sources.", RESTORE) from error
        except ValueError as error:
            raise _damaged(where, str(error)) from error
    attributes = record.get("attributes") if isinstance(record, dict) else None
    if not isinstance(attributes, dict) or attributes.get("format") != FORMAT:
        raise _damaged(where, "it is none")
    fields = Fields(attributes, where, "list of sources of the dataset", RESTORE)
    names, digests = fields.texts("names"), fields.texts("digests")
    if not len(names) == len(digests) <= MAX_SEGMENTS:
        raise _damaged(where, "its lengths contradict each other")
    if not all(DIGEST.fullmatch(text) for text in digests):
        raise _damaged(where, "it holds something else than digests")
    segments = tuple(map(Segment, names, digests, fields.integers("rows", len(names))))
    if segments_hash(segments) != digest:
        raise _damaged(where, "its checksum does not match")
    return segments


def _damaged(where: str, reason: str) -> FormatError:
    return FormatError("damaged", f"The list of sources of the dataset {where} is damaged: {reason}.", RESTORE)


def prefix_of(segments: Sequence[Segment], rows: int, digest: str) -> tuple[Segment, ...] | None:
    """The first of the segments that have so many rows together and this hash, if there are such."""
    totals = itertools.accumulate((segment.rows for segment in segments), initial=0)
    prefixes = (tuple(segments[:number]) for number, total in enumerate(totals) if total == rows)
    return next((prefix for prefix in prefixes if segments_hash(prefix) == digest), None)


def stored_segments(path: str | os.PathLike[str]) -> tuple[Segment, ...] | None:
    """Where the rows of the dataset at a path are from, all from one source where it does not say; None where nothing
    lies there.
    """
    where = locate(path)
    if not is_taken(where):
        return None
    return read_stable(where, lambda: _stored(where, *find_group(where)))


def _stored(where: str, place: str, attributes: object) -> tuple[Segment, ...]:
    if not isinstance(attributes, Mapping) or attributes.get("format") != DATASET.format:
        raise FormatError("wrong-kind", f"{where} is not a protodask dataset.", "Choose another place for the dataset.")
    rows, fingerprint, digest = (attributes.get(name) for name in ("n_rows", "fingerprint", "segments"))
    if type(rows) is not int or rows < 1 or not isinstance(fingerprint, str) or not DIGEST.fullmatch(fingerprint):
        raise FormatError("unfinished", f"The dataset {where} was never finished, or is damaged.", RESTORE)
    if digest is None:
        return (whole_segment(where, fingerprint, rows),)
    if not isinstance(digest, str) or not DIGEST.fullmatch(digest):
        raise _damaged(where, "it has no checksum")
    segments = read_segments(place, digest, where, list_name(attributes))
    check_rows(segments, rows, where)
    return segments


def whole_segment(where: str, fingerprint: str, rows: int) -> Segment:
    """All rows of a dataset that does not say from which sources they are."""
    return Segment(where.rstrip("/" + os.sep).replace(os.sep, "/").rpartition("/")[2], fingerprint, rows)


def check_rows(segments: Iterable[Segment], rows: int, where: str) -> None:
    """Refuse segments that have more or fewer rows than their dataset."""
    if sum(segment.rows for segment in segments) != rows:
        raise _damaged(where, "it is of another number of rows")


def is_dataset(path: str) -> bool:
    """Whether a dataset lies at a path, in whatever condition; files, globs and other stores are none."""
    where = locate(path)
    if not is_url(where) and not os.path.isdir(where):
        return False
    attributes = find_group(where)[1]  # and no marker, which others have, maybe as a link
    return isinstance(attributes, Mapping) and attributes.get("format") == DATASET.format
