"""A short calibration of the machine: evaluations of rows like those of the data, and reading from its storage.

Whole passes of the engine are measured, with as many tasks as those of the fit have, at a problem's shape: all threads
are at work and wait for the slowest, and whatever else takes the processors, or has to travel, takes its share.
"""

from __future__ import annotations

import operator
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from protodask.data.format.dataset import Dataset
from protodask.data.format.metadata import block_digest
from protodask.data.format.schema import FEATURES, TARGET, WEIGHT
from protodask.engine import Arrays, Block, Engine, Layout, Reduction, identity
from protodask.engine.costs import longest_share
from protodask.engine.scheduling import Processes
from protodask.prototypes.batch_kernel import Candidates
from protodask.prototypes.candidates import SCORES
from protodask.prototypes.footprint import Shape
from protodask.prototypes.forms import expected_forms
from protodask.prototypes.kernel import Standardization
from protodask.prototypes.objective import LIKELIHOOD, RoundProblem, batch_sizes, make_problem, starting_point

PASS_SECONDS = 0.15
"""About as long as a measured pass takes, by `GUESSED_NANOSECONDS`."""

GUESSED_NANOSECONDS = (1.0, 0.04)
"""Of the kernel for each pair of row and candidate, and more for each feature: a third to three times the truth."""

FEWEST_ROWS = 2048
"""A tile of the longest kind."""

MEASURED_SECONDS = 0.8
FEWEST_PASSES = 3
"""Passes are repeated for so long, and so many times, after one that is not counted; the median counts."""

EMPTY_PASSES = 5

WARM_RATIO = 1.5
"""A first reading that takes less than so many times a second one came from the system's memory already."""

READ_BLOCKS = 8
READ_BYTES = 32 * 2**20
"""What each thread reads at most, but one block in any case: enough to tell the rate from the cost of a call."""


@dataclass(frozen=True)
class Calibration:
    """What was measured; all threads were at work at the same time."""

    row_seconds: float
    """Of an evaluation with all features active, for each row of the busiest thread."""
    pass_seconds: float
    """What an evaluation takes besides: making the kernel's operands, sending them, and bringing back the results."""
    read_bytes_per_second: float
    """Of one thread."""
    read_warm: bool
    """Whether what was read came from the system's memory; from the storage itself it may be slower."""
    seconds: float
    """That the calibration took."""


@dataclass(frozen=True)
class LikeRows:
    """Blocks of rows as evaluations see them: drawn from a normal distribution, with scores where batches come before.

    They are made of a few rows again and again, which takes no longer than to copy them.
    """

    resident: ClassVar = False
    layout: Layout
    shape: Shape

    @property
    def key(self) -> str:
        # By all that blocks depend on: workers keep them when the calibration is over, and another one may follow.
        layout, shape = self.layout, self.shape
        form = (shape.row_features, shape.feature_bytes, shape.n_classes, bool(shape.weight_columns), shape.scored)
        return "-".join(map(str, ("calibration", layout.n_rows, layout.block_rows, *form)))

    def read(self, number: int) -> Block:
        start, stop = self.layout.bounds(number)
        rows, width, n_classes = stop - start, self.shape.row_features, self.shape.n_classes
        few = np.random.default_rng(1).normal(size=(min(rows, FEWEST_ROWS), width))
        arrays: Arrays = {
            FEATURES.name: np.resize(few.astype(f"f{self.shape.feature_bytes}"), (rows, width)),
            TARGET.name: np.resize(np.arange(n_classes, dtype=np.int32), rows),
        }
        if self.shape.weight_columns:
            arrays = {**arrays, WEIGHT.name: np.ones(rows)}
        if self.shape.scored:
            arrays = {**arrays, SCORES: np.full((rows, n_classes), 1 / n_classes)}
        return Block(number, start, arrays)


def measured_layout(shape: Shape, processes: Processes) -> Layout:
    """Blocks for every thread, of about `PASS_SECONDS`."""
    base, by_feature = GUESSED_NANOSECONDS
    row_seconds = 1e-9 * max(1, sum(shape.drawn)) * (base + by_feature * shape.n_features)
    wanted = int(PASS_SECONDS / row_seconds)  # of each thread
    rows = min(shape.layout.block_rows, 1 << (max(wanted, FEWEST_ROWS).bit_length() - 1))
    in_whole_blocks = shape.n_rows // rows * rows or shape.n_rows
    return Layout(min(in_whole_blocks, processes.n_threads * max(1, wanted // rows) * rows), rows)


def synthetic_problem(
    shape: Shape, standardization: Standardization, columns: NDArray[np.int64] | None = None
) -> RoundProblem:
    """Candidates drawn from a normal distribution, as many of each class as a first batch has."""
    random = np.random.default_rng(0)
    classes = np.repeat(np.arange(shape.n_classes), shape.drawn)
    rows = np.full(len(classes), -1, dtype=np.int64)  # none of them is in a block
    candidates = Candidates(random.normal(size=(len(classes), shape.n_features)), classes, rows)
    weight = np.array(shape.class_rows, dtype=np.float64)
    sizes = batch_sizes(classes, shape.config.feature_weights)
    ones = np.ones(len(classes))
    return make_problem(candidates, ones, weight, standardization, shape.precision, sizes, columns=columns)


def _seconds(function: Callable[[], object]) -> float:
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def repeated(function: Callable[[], object], times: int, seconds: float = 0.0) -> float:
    """Median seconds of so many calls, and of more until all took `seconds`, after one that is not counted."""
    function()
    taken: list[float] = []
    while len(taken) < times or sum(taken) < seconds:
        taken.append(_seconds(function))
    return median(taken)


def time_reading(tick: Block, data: Dataset, ticks: int) -> NDArray[np.float64]:
    """Bytes of a few blocks of this task's own, and the seconds of reading them the first and the second time (3,)."""
    n_blocks = data.layout.n_blocks
    data.read(n_blocks - 1)  # opens the arrays, if this process has not yet
    first, stop = (number * n_blocks // ticks for number in (tick.number, tick.number + 1))
    total = np.zeros(3)
    for number in range(first, max(first + 1, min(stop, first + READ_BLOCKS))):
        if total[0] >= READ_BYTES:
            break
        fresh, again = (_seconds(partial(data.read, number)) for _ in range(2))
        # The first reading in a process compares the block's digest, which later passes do not.
        block = data.read(number)
        digest = _seconds(partial(block_digest, block))
        total += block.nbytes, max(fresh - digest, min(fresh, again)), again
    return total


READING: Reduction[NDArray[np.float64], NDArray[np.float64]] = Reduction(time_reading, operator.add, identity)


def calibrate(engine: Engine, data: Dataset, shape: Shape, processes: Processes) -> Calibration:
    """Measure for a second or two."""
    began = time.perf_counter()
    quiet = engine.with_progress(None)
    forms = expected_forms(data.columns, shape.config.feature_forms)
    standardization = forms.standardization(np.zeros(shape.row_features), np.ones(shape.row_features))
    problem = synthetic_problem(shape, standardization, forms.columns)
    shared, theta = quiet.share(problem), starting_point(problem)

    def evaluating(source: LikeRows) -> Callable[[], object]:
        return lambda: quiet.reduce(source, LIKELIHOOD, shared, theta)

    layout = measured_layout(shape, processes)
    many, everyone = LikeRows(layout, shape), LikeRows(Layout(processes.n_threads, 1), shape)
    hardly_any = LikeRows(Layout(min(processes.n_tasks, shape.layout.n_blocks), 1), shape)
    n_bytes, first, second = quiet.reduce(everyone, READING, data, processes.n_threads).tolist()
    evaluation = repeated(evaluating(many), FEWEST_PASSES, MEASURED_SECONDS)
    empty = repeated(evaluating(hardly_any), EMPTY_PASSES)
    for done in (many, everyone, hardly_any):
        quiet.forget(done)
    rows = min(longest_share(processes, layout.n_blocks) * layout.block_rows, layout.n_rows)
    more = max(1, rows - longest_share(processes, hardly_any.layout.n_rows))
    return Calibration(
        row_seconds=max(evaluation - empty, 0.0) / more,
        pass_seconds=empty,
        read_bytes_per_second=n_bytes / max(first, 1e-9),
        read_warm=first < WARM_RATIO * second or shape.layout.n_blocks == 1,
        seconds=time.perf_counter() - began,
    )
