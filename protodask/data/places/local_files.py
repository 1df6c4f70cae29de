"""Files and folders of this machine: durable, put in place in one step, and cleared of what was left behind.

Beside a place `NAME` lie, while someone writes to it, `.NAME.lock`, `.NAME.partial-XXXXXXXX` (what is being written, or
what is being removed), and on systems that cannot exchange two names `.NAME.replaced-XXXXXXXX` (the old state).
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import secrets
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import suppress

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

LATE_WRITERS_SECONDS = 5.0
"""How long a failed write waits for tasks that were in the middle of writing a chunk when another one failed."""

CALM_LOOKS = 3
LOOK_SECONDS = 0.02

AT_FDCWD = -100
RENAME_EXCHANGE = 2
"""Of Linux's renameat2."""
RENAME_SWAP = 2
"""Of macOS's renamex_np."""

CANNOT_EXCHANGE = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOTTY, errno.EPERM)
"""What systems and file systems say that do not know the exchange of two names."""

TORN = re.compile(r".+\.[0-9a-f]{32}\.partial")
"""Name under which Zarr writes a file of a store before it bears its own: a killed process leaves it."""

FULL_FLUSH: int | None = getattr(fcntl, "F_FULLFSYNC", None)
"""Of macOS's fcntl; elsewhere fsync does all of it."""

CANNOT_FLUSH_FULLY = (errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOTTY, errno.ENOSYS)
"""What file systems say that know no such call, such as those of other hosts."""


def place_aside(path: str) -> str:
    """A new name beside a place, on the same file system."""
    return _beside(path, f"partial-{secrets.token_hex(4)}")


def lock_place(path: str) -> str:
    """The lock file of a place: beside it, because Zarr warns of files in a group that it does not know."""
    return _beside(path, "lock")


def _beside(path: str, ending: str) -> str:
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}.{ending}")


def put_in_place(aside: str, path: str) -> None:
    """Give what was written aside its name; what bore the name is removed.

    Where the system can exchange two names, somebody bears the name at every moment. Where it cannot, the name is free
    between two renamings, and a process killed there leaves the old state for `recover` to put back.
    """
    folder = os.path.dirname(path)
    if not os.path.lexists(path):
        os.rename(aside, path)
        flush(folder)
        return
    if exchange(aside, path):
        flush(folder)
        delete(aside)
        return
    old = _beside(path, f"replaced-{secrets.token_hex(4)}")
    os.rename(path, old)
    try:
        os.rename(aside, path)
    except BaseException:
        os.rename(old, path)
        raise
    flush(folder)
    delete(old)


def exchange(first: str, second: str) -> bool:
    """Exchange two names in one step; False where that cannot be done."""
    library = ctypes.CDLL(None, use_errno=True) if os.name == "posix" else None
    arguments: tuple[object, ...]
    if sys.platform == "darwin":
        function = getattr(library, "renamex_np", None)
        arguments = (os.fsencode(first), os.fsencode(second), RENAME_SWAP)
    else:
        function = getattr(library, "renameat2", None)
        arguments = (AT_FDCWD, os.fsencode(first), AT_FDCWD, os.fsencode(second), RENAME_EXCHANGE)
    if function is None:
        return False
    if function(*arguments) == 0:
        return True
    number = ctypes.get_errno()
    if number in CANNOT_EXCHANGE:
        return False
    raise OSError(number, os.strerror(number), second)


def recover(path: str) -> None:
    """Put back the old state where a process was killed between the two renamings of `put_in_place`."""
    if os.path.lexists(path):
        return
    old = [place for place in leftovers(path) if ".replaced-" in os.path.basename(place)]
    if old:
        os.rename(max(old, key=lambda place: os.lstat(place).st_ctime_ns), path)


def leftovers(path: str) -> list[str]:
    """What others wrote beside a place and never gave its name, be they alive or dead."""
    folder, name = os.path.split(path)
    pattern = re.compile(rf"\.{re.escape(name)}\.(partial|replaced)-[0-9a-f]{{8}}")
    try:
        found = os.listdir(folder)
    except OSError:
        return []
    return [os.path.join(folder, entry) for entry in sorted(found) if pattern.fullmatch(entry)]


def remove(place: str) -> None:
    """Remove a file or folder, also if late writers bring parts of it back."""
    remove_for_good(lambda: os.path.lexists(place), lambda: delete(place))


def remove_for_good(is_there: Callable[[], bool], remove_once: Callable[[], None]) -> None:
    """Remove what late writers may bring back, until it stays away.

    A task that was writing a chunk makes its folder anew; later tasks find the group gone and do not write at all.
    """
    deadline = time.monotonic() + LATE_WRITERS_SECONDS
    calm = 0
    while calm < CALM_LOOKS and time.monotonic() < deadline:
        if is_there():
            calm = 0
            remove_once()
        else:
            calm += 1
            time.sleep(LOOK_SECONDS)


def delete(place: str) -> None:
    """Delete a file or folder as far as that is allowed."""
    if os.path.isdir(place) and not os.path.islink(place):
        shutil.rmtree(place, ignore_errors=True)
    else:
        with suppress(OSError):
            os.unlink(place)


def make_durable(place: str) -> None:
    """Have the system write a file, or everything below a folder, to the disk.

    What a killed process had not finished writing there is removed: its work was done again under another name. A late
    writer may rename a file between the look at its folder and the one at itself: a second walk finds it under
    its new name.
    """
    if not os.path.isdir(place):
        flush(place)
    elif not _flush_below(place):
        _flush_below(place)


def _flush_below(place: str) -> bool:
    """Whether all files were still there that were found."""
    complete = True
    for folder, _, files in os.walk(place):
        for name in files:
            path = os.path.join(folder, name)
            try:
                if TORN.fullmatch(name):
                    os.unlink(path)
                else:
                    flush(path)
            except FileNotFoundError:
                complete = False
        flush(folder)
    return complete


def flush(path: str) -> None:
    """Have the system write one file, or the names in one folder, to the disk."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))  # a pipe must not be waited for
    try:
        flush_handle(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EBADF):  # some file systems cannot flush a folder
            raise
    finally:
        os.close(handle)


def flush_handle(handle: int) -> None:
    """Have the system write an open file to the disk, and the disk keep it.

    On macOS `os.fsync` leaves it in the drive's cache, which a power failure empties: there is another call for that.
    """
    if FULL_FLUSH is not None:
        try:
            fcntl.fcntl(handle, FULL_FLUSH)
        except OSError as error:
            if error.errno not in CANNOT_FLUSH_FULLY:
                raise
        else:
            return
    os.fsync(handle)
