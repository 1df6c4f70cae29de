"""What the engine costs on many workers: an evaluation of which the blocks do nothing, and blocks that change hands.

One scheduler process, and workers of 16 threads, many of them in each of a few processes of this machine: what they do
is next to nothing, but they share its processors with the scheduler, so that seconds here are more than on machines of
their own; `scheduler` and `driver` are the processor time of those two alone. The source says 8 bytes of each block of
itself, as a dataset does of its chunks, and the parameters are 8 KiB. `sent` is what the tasks of an evaluation weigh
when the workers know the source, beside the parameters, for each worker; `partials` those that the driver merges.

Then blocks are dealt out to workers that join one by one, and to those that are left of a hundred: `again` is the share
of the blocks that one pass finds elsewhere than the pass before, and `second pass` that of the pass after it. At last,
one row at a time is appended to datasets of many small blocks.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import pickle
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from protodask.engine import Block, Layout, Reduction, identity, open_engine, submission
from protodask.engine.placement import Placement
from protodask.engine.reduction import merge_tree

if TYPE_CHECKING:
    from benchmarks import _common as common
    from benchmarks.engine import EmptySource
else:
    import _common as common
    from engine import EmptySource

LOOPBACK = "127.0.0.1"
PARAMETERS = 1024
MOST_SECONDS = 0.3
MOST_SENT = 64 * 2**10
MOST_PARTIALS = 64
ROWS_OF_BLOCK, APPENDED_FEATURES = 16, 30
MOST_APPENDING = {2000: 0.1, 100_000: 1.0}
"""Seconds of an append of one row, by the number of blocks."""
START_SECONDS = 120.0

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class StampedSource(EmptySource):
    """Blocks that cost nothing to read, of which there is something to say for each."""

    stamps: NDArray[np.int64] = field(kw_only=True)


def nothing(block: Block, parameters: Floats) -> Floats:
    return parameters


def left(one: Floats, other: Floats) -> Floats:
    return one


NOTHING: Reduction[Floats, Floats] = Reduction(nothing, left, identity)


@dataclass(frozen=True)
class Evaluations:
    """Of nothing, on so many workers."""

    workers: int
    threads: int
    blocks: int
    seconds: float
    scheduler_seconds: float
    driver_seconds: float
    tasks: float
    sent_bytes: float
    """To a worker, without the parameters."""
    partials: int


@dataclass(frozen=True)
class Moves:
    """Share of the blocks that change hands."""

    what: str
    blocks: int
    again: float
    least: float
    """Share of the blocks that must: those of who left, or of who came."""
    second_pass: float


def _schedule(address: Any) -> None:
    from distributed import Scheduler

    async def serve() -> None:
        scheduler = await Scheduler(host=LOOPBACK, port=0, dashboard=False)
        address.put(scheduler.address)
        await scheduler.finished()

    asyncio.run(serve())


def _work(address: str, workers: int, threads: int, ready: Any) -> None:
    from distributed import Worker

    async def serve() -> None:
        made = [
            Worker(address, nthreads=threads, memory_limit="4GiB", dashboard=False, host=LOOPBACK)
            for _ in range(workers)
        ]
        await asyncio.gather(*made)
        ready.set()
        await asyncio.gather(*(worker.finished() for worker in made))

    asyncio.run(serve())


@contextmanager
def crowd(workers: int, threads: int, processes: int) -> Iterator[tuple[str, int]]:
    """The address of a scheduler with so many workers, and its process."""
    context = multiprocessing.get_context("spawn")
    address = context.Queue()
    started = [context.Process(target=_schedule, args=(address,), daemon=True)]
    started[0].start()
    try:
        where = address.get(timeout=START_SECONDS)
        ready = [context.Event() for _ in range(processes)]
        for number, event in enumerate(ready):
            share = workers * (number + 1) // processes - workers * number // processes
            started.append(context.Process(target=_work, args=(where, share, threads, event), daemon=True))
            started[-1].start()
        if not all(event.wait(START_SECONDS) for event in ready):
            raise TimeoutError("the workers did not come")
        yield where, int(started[0].pid or 0)
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.join()


def evaluate(settings: argparse.Namespace, n_blocks: int, address: str, scheduler: int) -> Evaluations:
    """Time evaluations of nothing, and weigh what they send."""
    psutil = common.peer("psutil")
    parameters = np.ones(PARAMETERS)
    source = StampedSource(Layout(n_blocks, 1), stamps=np.arange(n_blocks))
    sizes: list[int] = []
    tasks: list[int] = []
    partials: list[int] = []
    submit = submission.submit_graph

    def weighed(client: Any, graph: dict[str, Any], keys: list[str]) -> Any:
        sizes.append(sum(len(pickle.dumps(task)) for task in graph.values()))
        tasks.append(len(graph))
        return submit(client, graph, keys)

    def counted(nodes: Any, merge: Any) -> Any:
        found = list(nodes)
        partials.append(len(found))
        return merge_tree(found, merge)

    def processor() -> tuple[float, float]:
        used = psutil.Process(scheduler).cpu_times()
        return used.user + used.system, time.process_time()

    with open_engine(address) as engine:
        for _ in range(2):
            engine.reduce(source, NOTHING, parameters)
        with patch.object(submission, "submit_graph", weighed), patch("protodask.engine.engine.merge_tree", counted):
            engine.reduce(source, NOTHING, parameters)
        before = processor()
        seconds = [common.timed(lambda: engine.reduce(source, NOTHING, parameters)) for _ in range(settings.rounds)]
        used = [(after - began) / settings.rounds for began, after in zip(before, processor(), strict=True)]
        n_workers = engine.scheduler.n_tasks
    return Evaluations(
        workers=n_workers,
        threads=settings.threads,
        blocks=n_blocks,
        seconds=common.median(seconds),
        scheduler_seconds=used[0],
        driver_seconds=used[1],
        tasks=sum(tasks),
        sent_bytes=sum(sizes) / n_workers - parameters.nbytes,
        partials=partials[0],
    )


def owners(placement: Placement, n_blocks: int, workers: int, gone: int = 0) -> NDArray[np.int64]:
    """The worker of each block, of so many of which the first are gone."""
    found = np.empty(n_blocks, dtype=np.int64)
    crew = {str(number): 16 for number in range(gone, workers)}
    for share in placement.shares("data", n_blocks, range(n_blocks), crew):
        for run in share.runs:
            found[run.start : run.stop] = int(share.worker)
    return found


def moves(n_blocks: int, workers: int) -> list[Moves]:
    """Blocks that change hands while workers join one by one, and when one leaves."""
    placement = Placement()
    before = owners(placement, n_blocks, 1)
    again: list[float] = []
    for count in range(2, workers + 1):
        after = owners(placement, n_blocks, count)
        again.append(float(np.mean(after != before)))
        before = after
    second = float(np.mean(owners(placement, n_blocks, workers) != before))
    joined = Moves(f"1 to {workers} workers, the last one", n_blocks, again[-1], 1 / workers, second)
    lost = float(np.mean(before == 0))
    after = owners(placement, n_blocks, workers, gone=1)
    left_over = float(np.mean(after != before))
    second = float(np.mean(owners(placement, n_blocks, workers, gone=1) != after))
    return [joined, Moves(f"one of {workers} leaves", n_blocks, left_over, lost, second)]


@dataclass(frozen=True)
class Appended:
    """One row more, to a dataset of so many blocks."""

    blocks: int
    seconds: float
    """In the median."""
    most: float


def append_rows(n_blocks: int, rounds: int, folder: str) -> Appended:
    """Rows that are appended one at a time, to blocks of few rows."""
    from protodask.data.tables.ingest import ingest

    random = np.random.default_rng(0)
    place = os.path.join(folder, f"{n_blocks}.zarr")
    rows = n_blocks * ROWS_OF_BLOCK
    features = random.normal(size=(rows, APPENDED_FEATURES)).astype(np.float32)
    ingest((features, random.integers(0, 2, rows)), place, block_rows=ROWS_OF_BLOCK)
    one = random.normal(size=(1, APPENDED_FEATURES)).astype(np.float32)
    seconds = [common.timed(lambda: ingest((one, np.array([1])), place, append=True)) for _ in range(rounds)]
    return Appended(n_blocks, common.median(seconds), max(seconds))


def main() -> None:
    parser = common.make_parser(__doc__)
    parser.add_argument("--workers", type=common.positive, default=200, help="workers")
    parser.add_argument("--threads", type=common.positive, default=16, help="of each worker")
    parser.add_argument("--processes", type=common.positive, default=4, help="that the workers are in")
    parser.add_argument("--blocks", type=common.numbers, default=[3200, 1_000_000], help="blocks of a source")
    parser.add_argument("--rounds", type=common.positive, default=9, help="evaluations")
    parser.add_argument(
        "--append-blocks",
        type=common.numbers,
        default=[*MOST_APPENDING],
        help="of datasets that rows are added to",
    )
    parser.add_argument("--folder", help="where these are made, and removed afterwards")
    settings = parser.parse_args()
    measured_on = common.start("scale")
    table = common.Table(
        f"evaluations of nothing on {settings.workers} workers of {settings.threads} threads: medians of "
        f"{settings.rounds}",
        ("blocks", "ms", "scheduler ms", "driver ms", "tasks", "sent KiB/worker", "partials"),
        12,
    )
    found: list[Evaluations] = []
    checks: list[common.Check] = []
    with crowd(settings.workers, settings.threads, settings.processes) as (address, scheduler):
        for n_blocks in settings.blocks:
            one = evaluate(settings, n_blocks, address, scheduler)
            table.row(
                f"{n_blocks:,}", 1e3 * one.seconds, 1e3 * one.scheduler_seconds, 1e3 * one.driver_seconds, one.tasks,
                one.sent_bytes / 2**10, one.partials,
            )  # fmt: skip
            found.append(one)
            checks += [
                common.Check(f"bytes to a worker, {n_blocks:,} blocks", one.sent_bytes, "<=", MOST_SENT),
                common.Check(f"partials at the driver, {n_blocks:,} blocks", one.partials, "<=", MOST_PARTIALS),
            ]
        checks.append(common.Check("seconds of an evaluation", found[0].seconds, "<=", MOST_SECONDS))
    moved = moves(10_000, 100)
    table = common.Table("blocks that change hands", ("what", "again", "least", "second pass"), 30)
    for each in moved:
        table.row(each.what, each.again, each.least, each.second_pass)
        checks.append(common.Check(f"read again in the second pass, {each.what}", each.second_pass, "<=", 0.0))
    table = common.Table("one row that is appended", ("blocks", "ms", "most"), 12)
    appended: list[Appended] = []
    with common.scratch(settings.folder) as folder:
        for n_blocks in settings.append_blocks:
            appended.append(append_rows(n_blocks, settings.rounds, folder))
            table.row(f"{n_blocks:,}", 1e3 * appended[-1].seconds, 1e3 * appended[-1].most)
            if n_blocks in MOST_APPENDING:
                bound = MOST_APPENDING[n_blocks]
                checks.append(
                    common.Check(f"seconds of an append, {n_blocks:,} blocks", appended[-1].seconds, "<=", bound)
                )
    common.finish("scale", settings, measured_on, [*found, *moved, *appended], checks)


if __name__ == "__main__":
    main()
