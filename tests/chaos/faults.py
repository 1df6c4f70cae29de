"""Faults, struck in chosen passes or at seeded random moments, and counted."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import psutil
from distributed import LocalCluster

from protodask.engine.cluster import ClusterScheduler

WAIT_SECONDS = 60.0
"""Bound on how long a worker that was killed may take to be there again."""

RESTART_SECONDS = 20.0
"""How long a killer waits for a worker to be there: a new one takes one to three seconds to start."""


@dataclass
class PassWatch:
    """Whether a pass is under way on a cluster."""

    busy: bool = False
    passes: int = 0

    @contextmanager
    def over_all_passes(self) -> Iterator[PassWatch]:
        run = ClusterScheduler.run

        def watched(scheduler: ClusterScheduler, *arguments: Any) -> Any:
            self.busy = True
            self.passes += 1
            try:
                return run(scheduler, *arguments)
            finally:
                self.busy = False

        with patch.object(ClusterScheduler, "run", watched):
            yield self


def worker_processes(cluster: LocalCluster) -> list[int]:
    """Process numbers of the workers that are alive."""
    numbers = [nanny.pid for nanny in list(cluster.workers.values())]
    return [number for number in numbers if number is not None and psutil.pid_exists(number)]


def working_processes(cluster: LocalCluster) -> list[int]:
    """Those of them that have joined: a nanny whose worker dies while it starts does not start another one."""
    scheduler: Any = cluster.scheduler
    joined = set(scheduler.workers)
    return [nanny.pid for nanny in list(cluster.workers.values()) if nanny.pid and nanny.worker_address in joined]


@contextmanager
def killed_in_pass(cluster: LocalCluster, number: int) -> Iterator[list[int]]:
    """Kill a worker in the middle of a pass: when the first of its tasks is done. Yields the processes killed."""
    run = ClusterScheduler.run
    passes = 0
    killed: list[int] = []

    def struck(scheduler: ClusterScheduler, work: Any, groups: Any, advance: Callable[[int], None]) -> Any:
        nonlocal passes
        passes += 1
        chosen = passes == number

        def advance_and_kill(blocks: int) -> None:
            if chosen and not killed:
                killed.append(working_processes(cluster)[0])
                os.kill(killed[0], signal.SIGKILL)
            advance(blocks)

        return run(scheduler, work, groups, advance_and_kill)

    before = len(cluster.workers)
    with patch.object(ClusterScheduler, "run", struck):
        yield killed
    deadline = time.monotonic() + WAIT_SECONDS
    while len(set(working_processes(cluster)) - set(killed)) < before:
        cluster.scale(before)  # a nanny gives up a worker that does not start in time, as on a busy machine
        assert time.monotonic() < deadline, "the worker does not come back"
        time.sleep(0.05)


@dataclass
class Killer:
    """Kills random workers with SIGKILL, waiting a random time before each."""

    processes: Callable[[], list[int]]
    seed: int
    least: int
    wait_seconds: tuple[float, float]
    watch: PassWatch
    all_at_once: bool = False
    least_in_mid_pass: int = 0
    """It goes on until so many kills struck one, too: on a fast machine most of them fall between passes."""
    killed: int = 0
    in_mid_pass: int = 0
    _ended: threading.Event = field(default_factory=threading.Event)

    @property
    def done(self) -> bool:
        return self.killed >= self.least and self.in_mid_pass >= self.least_in_mid_pass

    @contextmanager
    def at_work(self) -> Iterator[Killer]:
        thread = threading.Thread(target=self._run, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._ended.set()
            thread.join(RESTART_SECONDS)

    def _run(self) -> None:
        generator = random.Random(self.seed)
        while not self.done and not self._ended.wait(generator.uniform(*self.wait_seconds)):
            alive = self.processes()
            if not alive:
                continue
            busy = self.watch.busy
            for number in alive if self.all_at_once else [generator.choice(alive)]:
                try:
                    os.kill(number, signal.SIGKILL)
                except ProcessLookupError:
                    continue
                self.killed += 1
                self.in_mid_pass += busy
