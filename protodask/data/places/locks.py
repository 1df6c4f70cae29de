"""One writer at a time for a local place, and nothing of dead ones beside it."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from protodask.data.places.local_files import leftovers, lock_place, recover, remove
from protodask.data.places.locations import is_url, locate, storage_errors
from protodask.errors import StorageError

try:
    import fcntl
except ImportError:  # not on Windows: there nothing tells a dead writer from a living one, and nothing is swept
    fcntl = None  # type: ignore[assignment]

CAN_LOCK = bool(fcntl)

NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
"""What file systems say that know no locks."""


@contextmanager
def sole_writer(path: str) -> Iterator[bool]:
    """Keep others from writing to a place until this process ends; who comes second is refused.

    The system drops the lock with the process that holds it, and a shared file system passes it on to other hosts (NFS
    does; one that is mounted with locks for each host alone does not). So whatever lies beside the place while the lock
    is held was left by a process that is dead, and is removed first. At a URL there is no lock, nor on file systems
    that know none: handed out is whether there is one.
    """
    if is_url(path) or fcntl is None:
        yield False
        return
    path = os.path.realpath(path)
    place = lock_place(path)
    with storage_errors(path, "locking"):
        while (taken := take_lock(place, path)) is None:
            pass
    handle, locked = taken
    try:
        if locked:
            with storage_errors(path, "clearing what was left beside"):
                recover(path)
                for left in leftovers(path):
                    remove(left)
        yield locked
    finally:
        # Removed while it is still held: who waits at the old file finds it gone, and makes a new one.
        with suppress(OSError):
            os.unlink(place)
        os.close(handle)


@contextmanager
def writing_alone(path: str) -> Iterator[str]:
    """Hand out where a local path leads, through links, with the folder made that it is in, for a sole writer.

    What a link points to is replaced, and the link stays.
    """
    place = os.path.realpath(locate(path))
    with storage_errors(path, "writing"):
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with sole_writer(place):
            yield place


def sweep(path: str) -> None:
    """Remove what dead processes left beside a local place, unless someone is writing to it now."""
    if is_url(path):
        return
    place = os.path.realpath(path)
    if leftovers(place) or os.path.lexists(lock_place(place)):
        with suppress(StorageError), sole_writer(place):
            pass


def take_lock(place: str, path: str, follow: bool = True) -> tuple[int, bool] | None:
    """Open the lock file at `place` and lock it for whoever writes to `path`; None where it lost its name meanwhile.

    Unless links are to be followed, one at its place is refused.
    """
    handle = os.open(place, os.O_RDWR | os.O_CREAT | (0 if follow else os.O_NOFOLLOW), 0o666)
    try:
        locked = lock_handle(handle, path)
        if has_name(handle, place, follow):
            return handle, locked
    except BaseException:
        os.close(handle)
        raise
    os.close(handle)
    return None


def has_name(handle: int, place: str, follow: bool) -> bool:
    """Whether an open file is the one of this name; a link to it is, where links are to be followed."""
    try:
        return os.path.samestat(os.fstat(handle), os.stat(place, follow_symlinks=follow))
    except FileNotFoundError:
        return False


def lock_handle(handle: int, path: str) -> bool:
    """Lock an open file for whoever writes to `path`; False where the file system knows no locks."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise StorageError(
            "written-by-another",
            f"Someone else is writing to {path}.",
            "Write to it one at a time: wait for the other one, and repeat.",
        ) from error
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        return False
    return True
