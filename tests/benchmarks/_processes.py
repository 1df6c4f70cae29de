"""Work in fresh processes that can be ended, and a file of what is done."""

from __future__ import annotations

import json
import multiprocessing
import os
import threading
from collections.abc import Callable, Hashable
from dataclasses import asdict
from multiprocessing.connection import Connection
from typing import Any, Generic, TypeVar

Row = TypeVar("Row")
"""A dataclass of plain values."""

Ready = Callable[[], None]
"""Said by work that is prepared: its limit counts from there."""


def in_fresh_process(work: Callable[..., Row], *arguments: object, limit: float | None = None) -> Row | None:
    """What `work(ready, *arguments)` returns in a new process; None if it had to be ended, `limit` seconds after it
    was ready.
    """
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_perform, args=(there, work, arguments))
    process.start()
    there.close()  # or a process that failed would be waited for
    try:
        here.recv()
        if here.poll(limit):
            found: Row = here.recv()
            return found
        return None
    except EOFError:
        raise SystemExit(f"{work.__name__}{arguments} failed.") from None
    finally:
        process.kill()
        process.join()
        here.close()


def _perform(connection: Connection, work: Callable[..., object], arguments: tuple[object, ...]) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    connection.send(work(lambda: connection.send(None), *arguments))


def _end_with_parent() -> None:
    """Work that nobody waits for any more would go on for hours."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


class Journal(Generic[Row]):
    """The rows that are done, in a file to which each is added at once, a line each; or in no file."""

    def __init__(self, path: str | None, make: Callable[..., Row], key: Callable[[Row], Hashable]) -> None:
        self._path, self._key = path, key
        self._done: dict[Hashable, Row] = {}
        if path is None or not os.path.exists(path):
            return
        with open(path, "rb+") as file:
            written = file.read()
            whole = written[: written.rfind(b"\n") + 1]
            file.truncate(len(whole))  # a line that was cut off is done again
        for line in whole.splitlines():
            row = make(**json.loads(line))
            self._done[key(row)] = row

    def find(self, key: Hashable) -> Row | None:
        """The last row of that key."""
        return self._done.get(key)

    def add(self, row: Row) -> None:
        self._done[self._key(row)] = row
        if self._path is None:
            return
        record: dict[str, Any] = asdict(row)  # type: ignore[call-overload]
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
