"""Where the rows of a dataset lie: in parts, none of which is ever written again.

    data.zarr/zarr.json                          the commit: what counts, replaced in one step
    data.zarr/features, target, ...              the rows of the first writing
    data.zarr/appends/00000003-0123abcd/...      the rows of the append that made the third commit, arrays and all
    data.zarr/appends/00000004-4567cdef/...      a list of sources alone

A part begins with a block, so an append holds the last block once more where that was not full: who reads a block
finds all of it in one part. A part in which no block counts any more is removed, and so is whatever bears the number of
a commit that is made and is not named by it: nobody can commit that any more. What bears a later number may be somebody
at work, and stays.

Icechunk commits in a like way, and appends one row in a third of the time; but it says of itself that on a disk two at
a time are not safe, and others find no plain Zarr arrays in its files.

Light to import.
"""

from __future__ import annotations

import re
import secrets
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from protodask.data.places.locations import inside

APPENDS = "appends"

NAME = re.compile(r"([0-9]{8,18})-[0-9a-f]{8}")

MAX_COMMITS = 2**62


@dataclass(frozen=True, slots=True)
class Part:
    """Rows that were written together: those from the first one of a block on, as many as its arrays have."""

    name: str
    """Of its group in `appends`; empty for the rows that lie in the group of the dataset itself."""
    first_block: int
    rows: int


def new_name(commit: int) -> str:
    """The name of a group for what a commit adds; nobody else's."""
    return f"{commit:08d}-{secrets.token_hex(4)}"


def commit_of(name: str) -> int | None:
    """The number of the commit that a group in `appends` is for; None where it has no such name."""
    found = NAME.fullmatch(name)
    return int(found[1]) if found else None


def place_of(place: str, name: str) -> str:
    """Where the group of this name is, of the dataset whose group lies at `place`; that itself for the empty name."""
    return inside(inside(place, APPENDS), name) if name else place


def key_of(name: str, inner: str) -> str:
    """What is called `inner` in the group of this name, as a key in that of its dataset."""
    return f"{APPENDS}/{name}/{inner}" if name else inner


def part_of(parts: Sequence[Part], block: int) -> Part:
    """The part that has a block."""
    return parts[bisect_right(parts, block, key=lambda part: part.first_block) - 1]


def grown(parts: Sequence[Part], added: Part) -> tuple[Part, ...]:
    """The parts that count once one is added: of earlier ones those that have a block before it."""
    return (*(part for part in parts if part.first_block < added.first_block), added)


def fits(parts: Sequence[Part], rows: int, block_rows: int) -> bool:
    """Whether parts are what so many rows can lie in."""
    starts = [part.first_block for part in parts]
    named = [part.name for part in parts if part.name]
    ends = [*starts[1:], starts[-1]]
    return (
        starts[0] == 0
        and starts == sorted(set(starts))
        and len(set(named)) == len(named) >= len(parts) - 1
        and all(commit_of(name) is not None for name in named)
        and all(part.rows >= block_rows * (end - part.first_block) for part, end in zip(parts, ends, strict=True))
        and parts[-1].rows == rows - block_rows * starts[-1]
    )


def list_name(attributes: Mapping[str, object]) -> str:
    """The name of the group with the list of the sources of a dataset that has these attributes, unchecked."""
    name = attributes.get("segments_in")
    return name if isinstance(name, str) and NAME.fullmatch(name) else ""
