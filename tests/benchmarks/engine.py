"""What the engine costs: beside bare kernel calls, and when there is nothing to compute.

First an evaluation whose kernel takes about half a second on two processors. Bare: two plain threads take the blocks in
turn and call the kernel, one BLAS thread each. Against it, in turn: the objective on the in-process engine with rows in
memory, on one thread and on two, and with a warm cache, and on two worker processes with one thread each through
`distributed`, their caches warm.

Then reductions whose map returns at once, over 8, 1,000 and 100,000 blocks.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import time
import tracemalloc
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from protodask.data.format.schema import TARGET
from protodask.data.tables.synthetic import SyntheticSource, synthetic_source
from protodask.engine import Block, Engine, Layout, Reduction, add_records, array_source, identity, thread_engine
from protodask.engine.blas import one_blas_thread
from protodask.engine.choose import local_engine
from protodask.engine.groups import Pass
from protodask.engine.reduction import Node
from protodask.engine.scheduling import Scheduler
from protodask.prototypes.likelihood import Likelihood
from protodask.prototypes.objective import RoundProblem, likelihood_block, prepare_kernel, starting_point

if TYPE_CHECKING:
    from benchmarks import _common as common
    from benchmarks import _problem as problems
else:
    import _common as common
    import _problem as problems

WANTED_SECONDS = 0.5
PROBE_ROWS = 65_536
"""Rows whose evaluation tells how many rows take `WANTED_SECONDS`."""
N_CLASSES = 2
SLOWER_IN_PROCESS = 5.0
SLOWER_DISTRIBUTED = 15.0
"""Per cent."""
DISTRIBUTED = "distributed"
MANY_BLOCKS, MANY_MS = 1000, 30.0
ALONE = "in-process, one thread"
"""To compare with: what threads are worth."""

MOST_BLOCKS, MOST_MS, MOST_MIB = 100_000, 2000.0, 500.0
"""Blocks of an empty reduction, and what it may take through `distributed`, its tasks included."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Overhead:
    """An evaluation one way, and how much slower it is than the bare calls."""

    way: str
    seconds: float
    fastest: float
    per_cent: float
    """Of the medians."""
    fastest_per_cent: float
    processor_seconds: float
    """Of this process and the workers together, mean of a call: tells work from waiting for processors."""
    busiest_share: float | None
    """Share of the work that the busiest worker did: 1 / workers at best."""
    calls: list[float]


@dataclass(frozen=True)
class Empty:
    """Reductions of nothing."""

    way: str
    blocks: int
    seconds: float
    first_seconds: float
    submissions: float
    """For each reduction."""
    tasks: float
    driver_bytes: int
    """Traced peak in this process during one reduction."""


@dataclass
class CountingScheduler:
    """Counts what passes through to another scheduler."""

    inner: Scheduler
    submissions: int = field(default=0)
    tasks: int = field(default=0)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def run(self, work: Pass, groups: Sequence[Sequence[int]], advance: Callable[[int], None]) -> list[Node[Any]]:
        self.submissions += 1
        self.tasks += len(groups)
        return self.inner.run(work, groups, advance)


@dataclass(frozen=True)
class EmptySource:
    """Blocks of one row that cost nothing to read."""

    layout: Layout

    @property
    def key(self) -> str:
        return f"empty/{self.layout}"

    @property
    def resident(self) -> bool:
        return False

    def read(self, number: int) -> Block:
        return Block(number, number, {"row": ROW})


ROW = np.zeros(1)


def nothing(block: Block) -> int:
    return 1


def add(left: int, right: int) -> int:
    return left + right


COUNT: Reduction[int, int] = Reduction(nothing, add, identity)


def blobs(rows: int, n_features: int) -> SyntheticSource:
    """Rows made when they are first read, so that a worker can have them without a file."""
    return synthetic_source("blobs", rows, n_features=n_features, n_classes=N_CLASSES)


def problem_of(source: SyntheticSource, n_candidates: int) -> RoundProblem:
    """A problem with candidates from the first rows; the classes count as even."""
    first = source.rows(0, min(source.layout.n_rows, 4 * n_candidates))
    class_rows = np.full(N_CLASSES, source.layout.n_rows // N_CLASSES)
    return problems.problem_of(first, class_rows, n_candidates)


@dataclass(frozen=True)
class BareCalls:
    """The kernel on all blocks, by plain threads that take the next block when they are free."""

    pool: ThreadPoolExecutor
    threads: int
    blocks: list[Block]
    row_weights: list[Floats]
    problem: RoundProblem
    theta: Floats

    def __call__(self) -> Likelihood:
        with one_blas_thread():
            turn = itertools.count()
            futures = [self.pool.submit(self._work, turn) for _ in range(self.threads)]
            return reduce(add_records, [future.result() for future in futures])

    def _work(self, turn: itertools.count[int]) -> Likelihood:
        _, kernel = prepare_kernel(self.problem, self.theta)
        total: Likelihood | None = None
        while (number := next(turn)) < len(self.blocks):
            block = self.blocks[number]
            found = kernel.evaluate(
                block["features"], block[TARGET.name], self.row_weights[number], self.problem.marginals
            )
            total = found if total is None else add_records(total, found)
        if total is None:
            raise ValueError("there were fewer blocks than threads")
        return total


def weights_of(problem: RoundProblem, block: Block) -> Floats:
    """The `r_n` of a block, as `likelihood_block` makes them."""
    caught: list[Floats] = []

    class Catcher:
        def evaluate(self, features: Any, target: Any, weight: Floats, *others: Any) -> None:
            caught.append(weight)

    likelihood_block(block, problem, Catcher())  # type: ignore[arg-type]
    return caught[0]


def rows_for(seconds: float, n_features: int, n_candidates: int, threads: int) -> int:
    """Rows whose evaluation takes about so long here."""
    with thread_engine(threads, common.GIB) as engine:
        source = blobs(PROBE_ROWS, n_features)
        problem = problem_of(source, n_candidates)
        objective, theta = problems.objective_of(engine, source, problem), starting_point(problem)
        took = common.alternate([lambda: objective(theta)], 5)[0]
    return int(seconds / common.median(took) * PROBE_ROWS)


def processor_seconds(process: Any) -> float:
    """Processor time of a process so far."""
    times = process.cpu_times()
    return float(times.user + times.system)


def overheads(settings: argparse.Namespace) -> tuple[list[Overhead], list[common.Check]]:
    """An evaluation all ways, in turn."""
    threads, limit = settings.threads, 2 * common.GIB
    rows = settings.rows or rows_for(WANTED_SECONDS, settings.features, settings.candidates, threads)
    source = blobs(rows, settings.features)
    problem = problem_of(source, settings.candidates)
    theta = starting_point(problem)
    arrays = {name: np.asarray(array) for name, array in source.rows(0, rows).items()}
    memory = array_source(arrays, source.layout.block_rows)
    blocks = [memory.read(number) for number in range(memory.layout.n_blocks)]
    with (
        thread_engine(1, limit) as alone,
        thread_engine(threads, limit) as in_process,
        local_engine(threads, limit) as cluster,
        ThreadPoolExecutor(threads) as pool,
    ):
        bare = BareCalls(pool, threads, blocks, [weights_of(problem, block) for block in blocks], problem, theta)
        ways: dict[str, tuple[Engine, Any]] = {
            ALONE: (alone, memory),
            "in-process, rows in memory": (in_process, memory),
            "in-process, warm cache": (in_process, source),
            f"{DISTRIBUTED}, warm caches": (cluster, source),
        }
        objectives = [problems.objective_of(engine, chosen, problem) for engine, chosen in ways.values()]
        psutil = common.peer("psutil")
        clocks = [
            partial(processor_seconds, process)
            for process in (psutil.Process(), *psutil.Process().children(recursive=True))
        ]
        plain: list[Callable[[], object]] = [bare, *(partial(objective, theta) for objective in objectives)]
        calls = [common.Metered(call, clocks) for call in plain]
        for objective in objectives:
            objective(theta)
        seconds = common.alternate(calls, settings.rounds)
    table = common.Table(
        f"{rows:,} rows in {len(blocks)} blocks, {settings.features} features, {settings.candidates} candidates: "
        f"{settings.rounds} calls each",
        ("way", "median ms", "fastest ms", "slower %", "fastest slower %", "processor ms", "busiest share"),
        30,
    )
    found: list[Overhead] = []
    base, base_fastest = common.median(seconds[0]), min(seconds[0])
    for way, taken, call in zip(["bare kernel calls", *ways], seconds, calls, strict=True):
        middle, fastest, used = common.median(taken), min(taken), call.means
        workers = used[1:]
        one = Overhead(
            way=way,
            seconds=middle,
            fastest=fastest,
            per_cent=100 * (middle / base - 1),
            fastest_per_cent=100 * (fastest / base_fastest - 1),
            processor_seconds=sum(used),
            busiest_share=max(workers) / sum(workers) if way.startswith(DISTRIBUTED) else None,
            calls=taken,
        )
        table.row(
            way, 1e3 * one.seconds, 1e3 * one.fastest, one.per_cent, one.fastest_per_cent,
            1e3 * one.processor_seconds, one.busiest_share,
        )  # fmt: skip
        found.append(one)
    checks = [
        common.Check(
            f"per cent slower, {one.way}",
            one.per_cent,
            "<=",
            SLOWER_DISTRIBUTED if one.way.startswith(DISTRIBUTED) else SLOWER_IN_PROCESS,
        )
        for one in found[1:]
        if one.way != ALONE
    ]
    return found, checks


def empty(way: str, engine: Engine, n_blocks: int, rounds: int) -> Empty:
    """Time reductions of nothing, then trace one."""
    counting = CountingScheduler(engine.scheduler)
    counted = Engine(counting)
    source = EmptySource(Layout(n_blocks, 1))

    def run() -> None:
        if counted.reduce(source, COUNT) != n_blocks:
            raise AssertionError("blocks were lost")

    began = time.perf_counter()
    run()
    first = time.perf_counter() - began
    seconds = [common.timed(run) for _ in range(rounds)]
    done = rounds + 1
    submissions, tasks = counting.submissions / done, counting.tasks / done
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    run()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return Empty(way, n_blocks, common.median(seconds), first, submissions, tasks, peak - before)


def empties(settings: argparse.Namespace) -> list[Empty]:
    """All numbers of blocks, both ways."""
    table = common.Table(
        f"reductions of nothing: medians of {settings.rounds}",
        ("way, blocks", "ms", "us/block", "first ms", "submissions", "tasks", "driver MiB"),
        30,
    )
    found: list[Empty] = []
    with (
        thread_engine(settings.threads, common.GIB) as in_process,
        local_engine(settings.threads, common.GIB) as cluster,
    ):
        for way, engine in (("in-process", in_process), (DISTRIBUTED, cluster)):
            for n_blocks in settings.blocks:
                one = empty(way, engine, n_blocks, settings.rounds)
                table.row(
                    f"{way}, {n_blocks:,}", 1e3 * one.seconds, 1e6 * one.seconds / n_blocks, 1e3 * one.first_seconds,
                    one.submissions, one.tasks, one.driver_bytes / common.MIB,
                )  # fmt: skip
                found.append(one)
    return found


def empty_checks(one: Empty) -> list[common.Check]:
    """Bounds of what the engine alone takes on a cluster."""
    if one.way != DISTRIBUTED:
        return []
    checks = []
    if one.blocks == MANY_BLOCKS:
        checks.append(common.Check(f"ms of nothing over {one.blocks:,} blocks", 1e3 * one.seconds, "<=", MANY_MS))
    if one.blocks == MOST_BLOCKS:
        checks.append(common.Check(f"ms of nothing over {one.blocks:,} blocks", 1e3 * one.seconds, "<=", MOST_MS))
        mebibytes = one.driver_bytes / common.MIB
        checks.append(common.Check(f"driver's MiB for {one.blocks:,} blocks", mebibytes, "<=", MOST_MIB))
    return checks


def main() -> None:
    parser = common.make_parser(__doc__)
    parser.add_argument("--rows", type=common.positive, help="rows; by default as many as take half a second")
    parser.add_argument("--features", type=common.positive, default=30, help="features")
    parser.add_argument("--candidates", type=common.positive, default=1000, help="candidates")
    parser.add_argument("--threads", type=common.positive, default=2, help="threads, and worker processes")
    parser.add_argument("--rounds", type=common.positive, default=15, help="calls of each, in turn")
    parser.add_argument("--blocks", type=common.numbers, default=[8, 1000, 100_000], help="blocks of empty reductions")
    settings = parser.parse_args()
    measured_on = common.start("engine")
    found, checks = overheads(settings)
    nothings = empties(settings)
    checks += [check for one in nothings for check in empty_checks(one)]
    common.finish("engine", settings, measured_on, [*found, *nothings], checks)


if __name__ == "__main__":
    main()
