"""A short calibration of the machine: passes over a few blocks of the data, reading from its storage, empty passes.

Whole passes of the engine are measured, with as many tasks as those of the fit have, at a problem's shape: all threads
are at work and wait for the slowest, and whatever else takes the processors, or has to travel, takes its share.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protodask.data.format.dataset import Dataset, UnweightedSource
from protodask.data.format.metadata import block_digest
from protodask.engine import Block, Engine, Layout, Reduction, Source, array_source, identity, zip_sources
from protodask.engine.costs import kept_blocks, longest_share
from protodask.engine.scheduling import Processes
from protodask.prototypes.candidates import SCORES, sampling
from protodask.prototypes.footprint import Shape, streamed_row_bytes
from protodask.prototypes.forms import expected_forms
from protodask.prototypes.kernel import Standardization
from protodask.prototypes.likelihood import Candidates, Likelihood, LikelihoodKernel, merge_likelihoods
from protodask.prototypes.objective import (
    LIKELIHOOD,
    RoundProblem,
    batch_sizes,
    make_problem,
    prepare_kernel,
    starting_point,
)
from protodask.prototypes.tiles import Precision

PASS_SECONDS = 0.15
"""About as long as a measured pass takes, by `GUESSED_NANOSECONDS`, if it can: a block of the data may take longer."""

BLOCK_SECONDS = 0.3
"""As long as a block may take, by the same guess; of longer ones the first rows are taken."""

GUESSED_NANOSECONDS = (1.0, 0.04)
"""Of the kernel for each pair of row and candidate, and more for each feature: a third to three times the truth."""

FEWEST_ROWS = 2048
"""A tile of the longest kind."""

MEASURED_SECONDS = 0.8
FEWEST_PASSES = 3
"""Passes are repeated for so long, and so many times, after one that is not counted; the median counts."""

WARM_RATIO = 1.5
"""A first reading that takes less than so many times a second one came from the system's memory already."""

READ_BLOCKS = 8
READ_BYTES = 32 * 2**20
"""What each thread reads at most, but one block in any case: enough to tell the rate from the cost of a call."""

DRAWING_PASSES = 2
EMPTY_PASSES = 5


@dataclass(frozen=True)
class Calibration:
    """What was measured; all threads were at work at the same time."""

    row_seconds: float
    """Of an evaluation with all features active, for each row of the busiest thread."""
    draw_row_seconds: float
    """The same while candidates are drawn."""
    pass_seconds: float
    """What an evaluation takes besides: making the kernel's operands, sending them, and bringing back the results."""
    reading_counted: bool
    """Whether an evaluation's seconds include reading, because no block can be kept."""
    read_bytes_per_second: float
    """Of one thread."""
    read_warm: bool
    """Whether what was read came from the system's memory; from the storage itself it may be slower."""
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


@dataclass(frozen=True)
class Excerpt:
    """The first `rows` rows of some blocks of a source, all of one length or one alone."""

    data: Source
    numbers: tuple[int, ...]
    rows: int

    @property
    def layout(self) -> Layout:
        return Layout(min(len(self.numbers) * self.rows, self.data.layout.n_rows), self.rows)

    @property
    def key(self) -> str:
        return f"{self.data.key}-excerpt-{self.rows}-{len(self.numbers)}"

    @property
    def resident(self) -> bool:
        return False

    def read(self, number: int) -> Block:
        start, stop = self.layout.bounds(number)
        block = self.data.read(self.numbers[number])
        if block.n_rows == stop - start:
            return Block(number, start, block.arrays)
        # A copy, or the whole block would stay.
        return Block(number, start, {name: array[: stop - start].copy() for name, array in block.arrays.items()})


@dataclass(frozen=True)
class EvenScores:
    """Scores as they come from a store: the same for all classes."""

    layout: Layout
    n_classes: int

    @property
    def key(self) -> str:
        return f"even-{self.layout.n_rows}-{self.layout.block_rows}-{self.n_classes}"

    @property
    def resident(self) -> bool:
        return False

    def read(self, number: int) -> Block:
        start, stop = self.layout.bounds(number)
        return Block(number, start, {SCORES: np.full((stop - start, self.n_classes), 1 / self.n_classes)})


def excerpt(data: Source, shape: Shape, processes: Processes) -> Excerpt:
    """Blocks for every thread: of about `PASS_SECONDS`, if their processes can keep so many."""
    base, by_feature = GUESSED_NANOSECONDS
    row_seconds = 1e-9 * max(1, sum(shape.drawn)) * (base + by_feature * shape.n_features)
    rows = shape.layout.block_rows
    while rows > FEWEST_ROWS and rows * row_seconds > BLOCK_SECONDS:
        rows //= 2
    kept = processes.cache_bytes // (processes.threads * rows * streamed_row_bytes(shape, stored=True))
    each = max(1, min(int(PASS_SECONDS / (rows * row_seconds)), kept))
    blocks = max(1, shape.layout.n_blocks - 1)  # the last one may be shorter
    count = min(blocks, processes.n_threads * each)
    return Excerpt(data, tuple(number * blocks // count for number in range(count)), rows)


def with_scores(part: Excerpt, shape: Shape, stored: bool) -> Source:
    """What passes of a batch read: where batches come before it, their scores as well."""
    if not shape.scored:
        return part
    scores = EvenScores(part.layout, shape.n_classes)
    if stored:
        return zip_sources(part, scores)
    held = np.full((part.layout.n_rows, shape.n_classes), 1 / shape.n_classes)
    return zip_sources(part, array_source({SCORES: held}, part.rows))


def synthetic_problem(
    shape: Shape, standardization: Standardization, columns: NDArray[np.int64] | None = None
) -> RoundProblem:
    """Candidates drawn from a normal distribution, as many of each class as a first batch has."""
    random = np.random.default_rng(0)
    classes = np.repeat(np.arange(shape.n_classes), shape.drawn)
    rows = np.full(len(classes), -1, dtype=np.int64)  # none of them is in a block
    candidates = Candidates(random.normal(size=(len(classes), shape.n_features)), classes, rows)
    weight = np.array(shape.class_rows, dtype=np.float64)
    precision: Precision = "float64" if shape.precision == "float64" else "float32"
    sizes = batch_sizes(classes, shape.feature_weights)
    ones = np.ones(len(classes))
    return make_problem(candidates, ones, weight, standardization, precision, sizes, columns=columns)


def _no_rows(tick: Block, problem: RoundProblem, kernel: LikelihoodKernel) -> Likelihood:
    """A partial of the usual size."""
    return Likelihood(0.0, np.zeros((problem.n_batches, problem.n_features)), np.zeros(problem.n_candidates))


NO_ROWS: Reduction[Likelihood, Likelihood] = Reduction(_no_rows, merge_likelihoods, identity, prepare=prepare_kernel)


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
        # The first reading in a process compares the block's digest, which later passes do not.
        digest = _seconds(partial(block_digest, data.read(number)))
        fresh = max(fresh - digest, min(fresh, again))
        total = merge_readings(total, Reading((end - start) * data.metadata.row_bytes, fresh, again))
    return total


READING: Reduction[Reading, Reading] = Reduction(time_reading, merge_readings, identity)


def calibrate(engine: Engine, data: Dataset, shape: Shape, processes: Processes, stored: bool) -> Calibration:
    """Measure for a second or two, with blocks of `data`; `stored` says where the scores between batches are."""
    began = time.perf_counter()
    quiet = engine.with_progress(None)
    everyone = Ticks(processes.n_threads)
    reading = quiet.reduce(everyone, READING, data, processes.n_threads)
    part = excerpt(UnweightedSource(data) if shape.unweighted else data, shape, processes)
    source = with_scores(part, shape, stored)
    forms = expected_forms(data.columns, shape.feature_forms)
    standardization = forms.standardization(data.summary.mean, data.summary.scale)
    problem = synthetic_problem(shape, standardization, forms.columns)
    shared = quiet.share(problem)
    theta = starting_point(problem)
    wanted = shape.n_candidates
    ticks = Ticks(min(processes.n_tasks, shape.layout.n_blocks))
    evaluation = repeated(lambda: quiet.reduce(source, LIKELIHOOD, shared, theta), FEWEST_PASSES, MEASURED_SECONDS)
    drawing = repeated(lambda: quiet.reduce(source, sampling(wanted), problem.marginals, 0, 1, wanted), DRAWING_PASSES)
    empty = repeated(lambda: quiet.reduce(ticks, NO_ROWS, shared, theta), EMPTY_PASSES)
    for done in (everyone, ticks, source):
        quiet.forget(done)
    share = longest_share(processes, part.layout.n_blocks)
    rows = min(share * part.rows, part.layout.n_rows)
    block_bytes = part.rows * streamed_row_bytes(shape, stored)
    return Calibration(
        row_seconds=max(evaluation - empty, 0.0) / rows,
        draw_row_seconds=drawing / rows,
        pass_seconds=empty,
        reading_counted=kept_blocks(processes, part.layout.n_blocks, block_bytes) == 0,
        read_bytes_per_second=reading.bytes / max(reading.first, 1e-9),
        read_warm=reading.first < WARM_RATIO * reading.second or shape.layout.n_blocks == 1,
        seconds=time.perf_counter() - began,
    )
