"""Whether workers reach the same storage as the client: not only a place of the same name.

A file or a Zarr store is only read, and its content compared. Into any other folder the client writes a probe that the
workers must find there, and each worker writes one that it removes again.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from dataclasses import dataclass
from typing import Any

from protodask.data.places.locations import is_url
from protodask.data.tables.source_files import bytes_digest
from protodask.places import mask, mask_text

MOST_BYTES = 2**20
"""How much of a file is compared."""

STORE_FILE = "zarr.json"


@dataclass(frozen=True)
class ProbeTask:
    """What a worker is to read, which bytes it should find there, and the folder to write to, if any."""

    file: str
    digest: str
    folder: str | None


@dataclass(frozen=True)
class ClientProbe:
    """A place, as the client found it. `error` says why the workers need not be asked."""

    shown: str
    task: ProbeTask
    error: str | None

    @classmethod
    def begin(cls, place: str) -> ClientProbe:
        """Look at a place, and leave a probe there if it is a folder."""
        import fsspec

        where = place if is_url(place) else os.path.abspath(place)
        shown = mask(where)
        nothing = ProbeTask(where, "", None)
        try:
            files, path = fsspec.core.url_to_fs(where)
            for file in (where, f"{where.rstrip('/')}/{STORE_FILE}"):
                if files.isfile(fsspec.core.url_to_fs(file)[1]):
                    return cls(shown, ProbeTask(file, bytes_digest(_read(file)), None), None)
            # Object stores have no empty folders: there any place can be written to.
            if not is_url(where) and not files.isdir(path):
                return cls(shown, nothing, "there is nothing")
            name = f"{where.rstrip('/')}/{_probe_name()}"
            content = secrets.token_bytes(32)
            task = ProbeTask(name, bytes_digest(content), where)
            _write(name, content)
        except Exception as error:  # each file system has exceptions of its own
            return cls(shown, nothing, said(error, where))
        return cls(shown, task, None)

    def end(self) -> None:
        """Take the probe away."""
        if self.task.folder is not None:
            _remove(self.task.file)


async def probe_from_worker(task: ProbeTask) -> tuple[bool, bool | None, str | None]:
    """`probe_storage` beside the worker's event loop: a store that hangs is not to stop its heartbeat."""
    return await asyncio.to_thread(probe_storage, task)


def probe_storage(task: ProbeTask) -> tuple[bool, bool | None, str | None]:
    """Whether this process reads what the client saw, whether it can write (None if not tried), and what failed."""
    try:
        if bytes_digest(_read(task.file)) != task.digest:
            return False, None, "other content than here: it is another place of the same name"
    except Exception as error:
        return False, None, said(error, task.file)
    if task.folder is None:
        return True, None, None
    name = f"{task.folder.rstrip('/')}/{_probe_name()}"
    try:
        _write(name, b"probe")
        _remove(name)
    except Exception as error:
        return True, False, said(error, task.file)
    return True, True, None


def _probe_name() -> str:
    return f".protodask-probe-{secrets.token_hex(8)}"


def _read(file: str) -> bytes:
    import fsspec

    with fsspec.open(file, "rb") as opened:
        content: bytes = opened.read(MOST_BYTES)
    return content


def _write(file: str, content: bytes) -> None:
    import fsspec

    with fsspec.open(file, "wb") as opened:
        opened.write(content)


def _remove(file: str) -> None:
    import fsspec

    files: Any
    files, path = fsspec.core.url_to_fs(file)
    files.rm_file(path)


def said(error: BaseException, place: str = "") -> str:
    """What an error is and says, without the secrets of a place."""
    return mask_text(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__, place)
