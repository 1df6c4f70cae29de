"""A short calibration of the machine: the kernel at a problem's shape, reading from its storage, the engine's overhead.

It runs through the engine, so on a cluster the workers are measured. Every thread measures at the same time as the
others, because they share memory bandwidth, caches and the interpreter.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from protodask.data.dataset import Dataset
from protodask.data.schema import FEATURES, TARGET
from protodask.engine import Arrays, Block, Engine, Layout, Reduction, identity
from protodask.prototypes.candidates import sample_block
from protodask.prototypes.footprint import Shape
from protodask.prototypes.kernel import Candidates, Standardization
from protodask.prototypes.objective import BatchProblem, likelihood_block, make_problem, prepare_kernel
from protodask.prototypes.tiles import Precision

KERNEL_SECONDS = 0.5
"""How long each thread calls the kernel: tens of calls where the problem is small, two where it is large."""

CALL_SECONDS = 0.1
"""About as long as one call may take, by `GUESSED_NANOSECONDS`."""

GUESSED_NANOSECONDS = (1.0, 0.04)
"""Of the kernel for each pair of row and candidate, and more for each feature: a third to three times the truth."""

FEWEST_ROWS = 2048
"""A tile of the longest kind."""

WARM_RATIO = 1.5
"""A first reading that takes less than so many times a second one came from the system's memory already."""

READ_BLOCKS = 8
READ_BYTES = 32 * 2**20
"""What each thread reads at most, but one block in any case: enough to tell the rate from the cost of a call."""

PASSES = 5
"""Passes of nothing, after one that is not counted."""


@dataclass(frozen=True)
class Calibration:
    """What was measured; all threads were at work at the same time."""

    pair_nanoseconds: float
    """Of one thread, for each pair of row and candidate, all features active."""
    draw_nanoseconds: float
    """Of one thread, for each row, while candidates are drawn."""
    prepare_seconds: float
    """Making the kernel's operands, once an evaluation."""
    read_bytes_per_second: float
    """Of one thread."""
    read_warm: bool
    """Whether what was read came from the system's memory; from the storage itself it may be slower."""
    pass_seconds: float
    """What a pass takes in which nothing is computed."""
    seconds: float
    """That the calibration took."""

    def describe(self) -> dict[str, Any]:
        """Plain values, for files."""
        return asdict(self)


@dataclass(frozen=True)
class Ticks:
    """A source of as many blocks as there are tasks wanted; what they hold does not matter."""

    count: int

    @property
    def layout(self) -> Layout:
        return Layout(self.count, 1)

    @property
    def key(self) -> str:
        return "calibration"

    @property
    def resident(self) -> bool:
        return False

    def read(self, number: int) -> Block:
        return Block(number, number, {"tick": np.zeros(1)})


def synthetic_problem(shape: Shape) -> BatchProblem:
    """Candidates drawn from a normal distribution, as many of each class as a first batch has."""
    random = np.random.default_rng(0)
    classes = np.repeat(np.arange(shape.n_classes), shape.drawn)
    rows = np.full(len(classes), -1, dtype=np.int64)  # none of them is in a block
    candidates = Candidates(random.normal(size=(len(classes), shape.n_features)), classes, rows)
    weight = np.array(shape.class_rows, dtype=np.float64)
    precision: Precision = "float64" if shape.precision == "float64" else "float32"
    standardization = Standardization(np.zeros(shape.n_features), np.ones(shape.n_features))
    return make_problem(candidates, np.ones(len(classes)), weight, standardization, precision)


def block_rows_to_time(shape: Shape) -> int:
    """Rows of a block for the calibration: the problem's own, unless one call would take too long."""
    base, by_feature = GUESSED_NANOSECONDS
    guess = 1e-9 * max(1, sum(shape.drawn)) * (base + by_feature * shape.n_features)
    return min(shape.block_rows, max(FEWEST_ROWS, int(CALL_SECONDS / guess)))


def synthetic_block(shape: Shape, rows: int) -> Block:
    """Rows like the candidates, of all classes in proportion."""
    random = np.random.default_rng(1)
    share = np.array(shape.class_rows) / sum(shape.class_rows)
    arrays: Arrays = {
        FEATURES.name: random.standard_normal((rows, shape.n_features), dtype=np.float32).astype(
            f"float{8 * shape.feature_bytes}", copy=False
        ),
        TARGET.name: random.choice(shape.n_classes, rows, p=share).astype(np.int32),
    }
    return Block(0, 0, arrays)


@dataclass(frozen=True)
class Timed:
    """Seconds of several kinds of work, summed over tasks."""

    tasks: int
    kernel: float
    draw: float
    prepare: float


def merge_timed(left: Timed, right: Timed) -> Timed:
    """Both are sums."""
    return Timed(
        left.tasks + right.tasks, left.kernel + right.kernel, left.draw + right.draw, left.prepare + right.prepare
    )


def time_kernel(tick: Block, shape: Shape) -> Timed:
    """Seconds for each row, of the kernel and of the draw, and for the operands."""
    problem = synthetic_problem(shape)
    block = synthetic_block(shape, block_rows_to_time(shape))
    theta = np.concatenate([np.full(shape.n_features, 10 / shape.n_features), np.ones(problem.n_candidates)])
    _, kernel = prepare_kernel(problem, theta)
    likelihood_block(block, problem, kernel)
    calls, seconds = 0, 0.0
    while seconds < KERNEL_SECONDS or calls < 2:
        seconds += _seconds(lambda: likelihood_block(block, problem, kernel))
        calls += 1
    prepare = min(_seconds(lambda: prepare_kernel(problem, theta)) for _ in range(3))
    draw = min(_seconds(lambda: sample_block(block, problem.marginals, 0, 1, shape.n_candidates)) for _ in range(3))
    return Timed(1, seconds / calls / block.n_rows, draw / block.n_rows, prepare)


def _seconds(function: Callable[[], object]) -> float:
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


@dataclass(frozen=True)
class Reading:
    """Bytes read, and the seconds that reading them the first and the second time took."""

    bytes: int
    first: float
    second: float


def merge_readings(left: Reading, right: Reading) -> Reading:
    """Both are sums."""
    return Reading(left.bytes + right.bytes, left.first + right.first, left.second + right.second)


def time_reading(tick: Block, data: Dataset, ticks: int) -> Reading:
    """Read a few blocks of this task's own, twice."""
    n_blocks = data.layout.n_blocks
    data.read(n_blocks - 1)  # opens the arrays, if this process has not yet
    first, stop = (number * n_blocks // ticks for number in (tick.number, tick.number + 1))
    numbers = range(first, max(first + 1, min(stop, first + READ_BLOCKS)))
    total = Reading(0, 0.0, 0.0)
    for number in numbers:
        if total.bytes >= READ_BYTES:
            break
        start, end = data.layout.bounds(number)
        fresh, again = (_seconds(partial(data.read, number)) for _ in range(2))
        total = merge_readings(total, Reading((end - start) * data.metadata.row_bytes, fresh, again))
    return total


def _nothing(tick: Block) -> int:
    return 1


def _add(left: int, right: int) -> int:
    return left + right


KERNEL: Reduction[Timed, Timed] = Reduction(time_kernel, merge_timed, identity)
READING: Reduction[Reading, Reading] = Reduction(time_reading, merge_readings, identity)
NOTHING: Reduction[int, int] = Reduction(_nothing, _add, identity)


def calibrate(engine: Engine, data: Dataset, shape: Shape, n_threads: int, n_tasks: int) -> Calibration:
    """Measure for a second or two."""
    began = time.perf_counter()
    quiet = engine.with_progress(None)
    everyone = Ticks(n_threads)
    reading = quiet.reduce(everyone, READING, data, n_threads)
    timed = quiet.reduce(everyone, KERNEL, shape)
    ticks = Ticks(min(n_tasks, shape.layout.n_blocks))
    quiet.reduce(ticks, NOTHING)
    empty = [_seconds(lambda: quiet.reduce(ticks, NOTHING)) for _ in range(PASSES)]
    for source in (everyone, ticks):
        quiet.forget(source)
    return Calibration(
        pair_nanoseconds=1e9 * timed.kernel / timed.tasks / max(1, sum(shape.drawn)),
        draw_nanoseconds=1e9 * timed.draw / timed.tasks,
        prepare_seconds=timed.prepare / timed.tasks,
        read_bytes_per_second=reading.bytes / max(reading.first, 1e-9),
        read_warm=reading.first < WARM_RATIO * reading.second or shape.layout.n_blocks == 1,
        pass_seconds=median(empty),
        seconds=time.perf_counter() - began,
    )
