"""An object store in memory, with the conditional writes of S3, in which writers take turns in an order that is drawn.

`turns://NAME/KEY` is the object KEY as the writer NAME sees it. While a `World` is on, each request of a writer waits
until all of them wait or have ended; then one is drawn, and goes on to its next request. A writer can be killed at any
of its requests: from there on all of them fail, so that nothing it does afterwards, be it to clean up, has an effect.
And the answer to what it wrote can be lost.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import fsspec
import numpy as np
from fsspec.asyn import AsyncFileSystem


class KilledError(Exception):
    """What a writer meets that is dead."""


class World:
    """Writers, of which one at a time does one request."""

    def __init__(self, seed: int, kills: float = 0.0, losses: float = 0.0) -> None:
        self.generator = np.random.default_rng(seed)
        self.kills = kills
        """The share of requests at which the writer is killed."""
        self.losses = losses
        """The share of writes that are done, and of which the writer hears an error."""
        self.objects: dict[str, bytes] = {}
        self.killed: set[str] = set()
        self.immortal: set[str] = set()
        self.outcomes: dict[str, BaseException | object] = {}
        self.steps: list[tuple[str, str]] = []
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, writers: dict[str, Callable[[], object]], seconds: float = 60.0) -> None:
        """Have writers do their work, each in a thread of its own; `outcomes` says what came of it."""
        self._waiting = {name: [] for name in writers}
        threads = [threading.Thread(target=self._work, args=one, daemon=True) for one in writers.items()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(seconds)
            assert not thread.is_alive(), self.steps[-20:]

    @property
    def is_on(self) -> bool:
        """Whether anybody takes turns."""
        return bool(self._waiting)

    def _work(self, name: str, work: Callable[[], object]) -> None:
        try:
            self.outcomes[name] = work()
        except BaseException as error:
            self.outcomes[name] = error
            told: BaseException | None = error
            while told is not None:  # what the frames hold would warn later, when the world is forgotten
                traceback.clear_frames(told.__traceback__)
                told = told.__context__
        finally:
            if self._loop is None:
                self._end(name)
            else:
                self._loop.call_soon_threadsafe(self._end, name)

    def _end(self, name: str) -> None:
        for left in self._waiting.pop(name, []):
            left.cancel()
        self._next()

    async def turn(self, path: str, what: str) -> str:
        """Wait for the turn of the writer of a path, and tell the key."""
        name, _, key = path.strip("/").partition("/")
        if name in self._waiting:
            self._loop = asyncio.get_running_loop()
            future: asyncio.Future[None] = self._loop.create_future()
            self._waiting[name].append(future)
            self._next()
            try:
                await future
            except asyncio.CancelledError:  # one of several requests at a time failed, and the others are given up
                self._next()
                raise
            self.steps.append((name, f"{what} {key}"))
            if self._waiting[name]:  # with another of its requests, made at the same time
                self._loop.call_soon(self._next)
            if name not in self.immortal and self.generator.random() < self.kills:
                self.killed.add(name)
        if name in self.killed:
            raise KilledError(name)
        return key

    def _next(self) -> None:
        for name, waiting in self._waiting.items():
            self._waiting[name] = [future for future in waiting if not future.done()]
        if self._waiting and all(self._waiting.values()):
            names = sorted(self._waiting)
            self._waiting[names[self.generator.integers(len(names))]].pop(0).set_result(None)


class TurnsFileSystem(AsyncFileSystem):  # type: ignore[misc]
    """What fsspec makes of the URLs."""

    protocol = ("turns", "s3")
    world: ClassVar[World] = World(0)

    async def _turn(self, path: str, what: str) -> str:
        return await TurnsFileSystem.world.turn(self._strip_protocol(path), what)

    @property
    def _objects(self) -> dict[str, bytes]:
        return TurnsFileSystem.world.objects

    async def _cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        key = await self._turn(path, "read")
        if key not in self._objects:
            raise FileNotFoundError(path)
        return self._objects[key][start:end]

    async def _pipe_file(
        self, path: str, value: bytes, IfMatch: str | None = None, IfNoneMatch: str | None = None, **_: Any
    ) -> None:
        key = await self._turn(path, "write")
        found = self._objects.get(key)
        if (IfMatch is not None and (found is None or IfMatch != etag(found))) or (IfNoneMatch and found is not None):
            raise OSError("PreconditionFailed")
        self._objects[key] = bytes(value)
        world = TurnsFileSystem.world
        if world.is_on and world.generator.random() < world.losses:
            raise [OSError, RuntimeError][world.generator.integers(2)]("no answer")

    async def _rm_file(self, path: str, **_: Any) -> None:
        key = await self._turn(path, "remove")
        if self._objects.pop(key, None) is None:
            raise FileNotFoundError(path)

    async def _rm(self, path: Any, recursive: bool = False, **_: Any) -> None:
        name, _slash, key = self._strip_protocol(path).strip("/").partition("/")
        keys = [one for one in sorted(self._objects) if one == key or (recursive and one.startswith(f"{key}/"))]
        if not keys:
            raise FileNotFoundError(path)
        for one in keys:
            await self._rm_file(f"{name}/{one}")

    async def _info(self, path: str, **_: Any) -> dict[str, Any]:
        key = await self._turn(path, "look at")
        if key in self._objects:
            content = self._objects[key]
            return {"name": path, "size": len(content), "type": "file", "ETag": etag(content)}
        if any(one.startswith(f"{key}/") for one in self._objects):
            return {"name": path, "size": 0, "type": "directory"}
        raise FileNotFoundError(path)

    async def _ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        key = await self._turn(path, "list")
        below = {one[len(key) + 1 :].partition("/")[0] for one in self._objects if one.startswith(f"{key}/")}
        if not below:
            raise FileNotFoundError(path)
        names = [f"{self._strip_protocol(path).rstrip('/')}/{one}" for one in sorted(below)]
        return [{"name": name} for name in names] if detail else names


def etag(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


@contextmanager
def turns(seed: int, kills: float = 0.0, losses: float = 0.0) -> Iterator[World]:
    """Another, empty world for the URLs."""
    fsspec.register_implementation("turns", TurnsFileSystem, clobber=True)
    before, TurnsFileSystem.world = TurnsFileSystem.world, World(seed, kills, losses)
    gc.freeze()  # what is there already, which to collect would take longer than all that is done in the world
    try:
        yield TurnsFileSystem.world
    finally:
        TurnsFileSystem.world = before
        gc.collect()  # requests that Zarr made and never waited for warn here, and not in another test
        gc.unfreeze()
