"""A folder that one process has to itself: locked from inside, and removed only by the one who holds the lock."""

from __future__ import annotations

import os
import re
import secrets
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from protodask.data.places.local_files import delete, flush, place_aside
from protodask.data.places.locations import storage_errors
from protodask.data.places.locks import CAN_LOCK, has_name, lock_handle, take_lock
from protodask.errors import StorageError

LOCK = ".lock"
"""Inside the folder, so that nothing beside it needs to be writable; there while someone is at work."""

SETTINGS_FILE = "run.json"
"""In the folder of a run, what it is of."""

TEMPORARY = re.compile(r"\.?protodask-fit-[0-9a-f]{16}(\.partial-[0-9a-f]{8})?")

YOUNG_SECONDS = 60.0
"""A temporary folder as young as this may not be locked yet although its process lives."""


@dataclass
class OwnFolder:
    """What the holder of a folder knows and decides."""

    path: str
    made: bool
    """Whether it was missing before."""
    unwanted: bool = False
    """Set it, and the folder goes with the lock on it."""


@contextmanager
def own_folder(path: str, mode: int = 0o777) -> Iterator[OwnFolder]:
    """Make a folder where it is missing and keep others out of it until this process ends; who comes second is refused.

    The system drops the lock with the process that holds it. Only who holds it removes the folder, and who locked a
    folder that has lost its name meanwhile begins again: nobody loses a folder to another.
    """
    place = os.path.realpath(path)
    with storage_errors(path, "writing"):
        made, handle = _make_and_lock(place, mode)
    folder = OwnFolder(path, made)
    try:
        yield folder
    finally:
        aside = None
        try:
            if _is_there(handle, place):  # else somebody moved it away by hand
                with storage_errors(path, "removing"):
                    aside = _end(place, folder.unwanted)
        finally:
            if handle is not None:
                os.close(handle)
        if aside is not None:
            delete(aside)


def _end(place: str, unwanted: bool) -> str | None:
    """Give a folder up; where it is unwanted, it is gone at once, and this is what there is left to delete."""
    if not unwanted:
        with suppress(OSError):
            os.unlink(os.path.join(place, LOCK))
        return None
    aside = place_aside(place)
    os.rename(place, aside)
    with suppress(PermissionError):
        flush(os.path.dirname(place))
    return aside


@contextmanager
def temporary_folder() -> Iterator[str]:
    """A folder in the system's place for such, for this user alone. Those of dead processes are removed first."""
    above = tempfile.gettempdir()
    with suppress(PermissionError):  # one may be allowed to write there and not to look
        _remove_dead(above)
    with own_folder(os.path.join(above, f"protodask-fit-{secrets.token_hex(8)}"), 0o700) as folder:
        folder.unwanted = True
        yield folder.path


def _remove_dead(above: str) -> None:
    if not CAN_LOCK:
        return
    for name in filter(TEMPORARY.fullmatch, os.listdir(above)):
        place = os.path.join(above, name)
        with suppress(OSError, StorageError):  # locked by a living process, for one
            found = os.lstat(place)
            old = time.time() - found.st_mtime > YOUNG_SECONDS
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or not old:
                continue
            handle = os.open(os.path.join(place, LOCK), os.O_RDWR | os.O_NOFOLLOW)
            try:
                if lock_handle(handle, place):
                    delete(place)
            finally:
                os.close(handle)


def make_folder(path: str, mode: int = 0o777) -> bool:
    """Make a folder and those above it, so that a power failure does not undo it; whether it was missing."""
    if os.path.isdir(path):
        return False
    above = os.path.dirname(path)
    make_folder(above)
    try:
        os.mkdir(path, mode)
    except FileExistsError:
        if not os.path.isdir(path):
            raise
        return False
    with suppress(PermissionError):  # one may be allowed to write there and not to look
        flush(above)
    return True


def _make_and_lock(folder: str, mode: int) -> tuple[bool, int | None]:
    while True:
        made = make_folder(folder, mode)
        if not CAN_LOCK:
            return made, None
        with suppress(FileNotFoundError):  # its holder has just removed the folder
            taken = take_lock(os.path.join(folder, LOCK), folder, follow=False)
            if taken is not None:
                return made, taken[0]


def _is_there(handle: int | None, folder: str) -> bool:
    """Whether the lock in the folder of this name is the one that is held here, where there are locks."""
    return os.path.isdir(folder) if handle is None else has_name(handle, os.path.join(folder, LOCK), follow=False)
