"""What reaches the disk, in which order, and how much of a file may; and what lies there."""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

Event = tuple[str, str]
"""What happened, "flush" or "name", and to which path; a name is given to what lay elsewhere before."""


def watch_disk(patch: pytest.MonkeyPatch) -> list[Event]:
    """The files and folders that are flushed from now on, and the names that are given, as they come."""
    if sys.platform != "linux":
        pytest.skip("what a handle is of can be told on Linux")
    events: list[Event] = []
    flush, rename, replace = os.fsync, os.rename, os.replace

    def flushing(handle: int) -> None:
        events.append(("flush", os.readlink(f"/proc/self/fd/{handle}")))
        flush(handle)

    def renaming(first: str, second: str) -> None:
        rename(first, second)
        events.append(("name", os.path.realpath(second)))

    def replacing(first: str, second: str) -> None:
        replace(first, second)
        events.append(("name", os.path.realpath(second)))

    patch.setattr(os, "fsync", flushing)
    patch.setattr(os, "rename", renaming)
    patch.setattr(os, "replace", replacing)
    return events


def files_below(folder: str | Path) -> set[str]:
    """The files in a folder, by their paths in it."""
    return {str(path.relative_to(folder)) for path in Path(folder).rglob("*") if path.is_file()}


class Trap:
    """Leaves a mark when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.mark),)


def attributes_of(path: str | Path) -> dict[str, Any]:
    """Of a group of Zarr."""
    found: dict[str, Any] = json.loads(Path(path, "zarr.json").read_text())["attributes"]
    return found


@contextmanager
def small_files_only(most: int) -> Iterator[None]:
    """Writing beyond so many bytes of any file fails as it does when no space is left."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
