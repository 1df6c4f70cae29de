"""What a fit will cost, said before any row is read: memory, tasks, bytes and, after a calibration, seconds."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from protodask.data.format.dataset import Dataset, no_dataset
from protodask.engine import Engine, EngineLike, Layout, open_engine
from protodask.engine.costs import Memory, longest_share
from protodask.engine.memory import LARGEST_MEMORY, MIB, mebibytes, process_memory_limit
from protodask.engine.scheduling import Processes
from protodask.errors import InputError
from protodask.prototypes.config import FitConfig
from protodask.prototypes.footprint import Shape, fits, memory_of, read_bytes, scores_stored, shape_of
from protodask.prototypes.forms import settled
from protodask.prototypes.model import PrototypeSet
from protodask.prototypes.staging import step_blocks
from protodask.prototypes.steps import FEWEST_STEPS, ROUNDS, stepping_threads

ASSUMED_EVALUATIONS = 250
"""Of a batch: between 60 and 400 on six datasets of two to 64 features, with the default tolerance."""

HELD_OUT_EVALUATIONS = 20
"""Of a draw's round where rows that are held out end it: with those that finish it 33 in the mean of 26 tables, between
9 and 184."""

FINISHING_EVALUATIONS = 12
"""Further ones where it ends on all rows: 11 iterations in the mean of 258 tables, 27 of one draw in ten."""

STEPPED_EVALUATIONS = 10
"""The same on all rows, where it begins with small steps."""

EVALUATIONS_PER_ITERATION = 1.15

FEWEST_CANDIDATES = 10
SMALLEST_BLOCK_ROWS = 64


@dataclass(frozen=True)
class Seconds:
    """What a fit takes, by the calibration."""

    evaluation: float
    """Of the objective, all features active, after the first of a batch; later ones are faster as features drop out. If
    there are several batches, of one that has the scores of others to read.
    """
    batch: float
    """With the draw of candidates, and with the assumed number of evaluations."""
    pair_nanoseconds: float
    """Of one thread, for each pair of row and candidate."""
    read_bytes_per_second: float
    """Of one thread."""
    read_warm: bool
    """Whether the calibration read from the system's memory: from the storage itself it may be slower."""
    calibration: float
    """That measuring took."""


@dataclass(frozen=True)
class Remedy:
    """A change of one setting that makes a fit fit."""

    setting: Literal[
        "block_rows", "threads", "workers", "candidates", "precision", "feature_bytes", "memory", "driver_memory"
    ]
    value: int | str
    text: str


@dataclass(frozen=True)
class Plan:
    """What a fit will cost. Bytes are upper bounds, seconds are expectations."""

    shape: Shape
    processes: Processes
    worker: Memory
    """Of a process that computes, at its peak."""
    driver: Memory
    """Of this process: the same, if it computes itself."""
    scores_stored: bool
    """Whether the scores between batches go into a store."""
    fits: bool
    remedies: tuple[Remedy, ...]
    """Each of them alone would make it fit; empty if it does."""
    tasks: int
    """Of an evaluation."""
    first_evaluation_bytes: int
    """Read from the storage by a pass before blocks are cached."""
    evaluation_bytes: int
    """Read from the storage by every evaluation after the first pass."""
    batch_bytes: int
    evaluations: int
    """Assumed, of a batch."""
    seconds: Seconds | None
    """None where nothing was calibrated, because it was not wanted or the fit does not fit."""

    def describe(self) -> dict[str, Any]:
        """Plain values, for files."""
        shape, processes = self.shape, self.processes
        return {
            "kind": "plan",
            "fits": self.fits,
            "rows": shape.n_rows,
            "features": shape.row_features,
            "classes": shape.n_classes,
            "candidates": shape.n_candidates,
            "most_candidates": shape.grown_candidates,
            "batches": shape.n_batches,
            "most_batches": shape.most_batches,
            "rounds": shape.n_rounds,
            "precision": shape.precision,
            "blocks": shape.layout.n_blocks,
            "block_rows": shape.layout.block_rows,
            "processes": {
                "kind": processes.kind,
                "count": processes.count,
                "threads": processes.threads,
                "memory_limit": processes.memory_bytes,
            },
            "scores_stored": self.scores_stored,
            "tasks": self.tasks,
            "worker_bytes": self.worker.total,
            "worker_parts": {part.name: part.bytes for part in self.worker.parts},
            "driver_bytes": self.driver.total,
            "driver_parts": {part.name: part.bytes for part in self.driver.parts},
            "first_evaluation_bytes": self.first_evaluation_bytes,
            "evaluation_bytes": self.evaluation_bytes,
            "batch_bytes": self.batch_bytes,
            "assumed_evaluations": self.evaluations,
            "seconds": None if self.seconds is None else asdict(self.seconds),
            "remedies": [asdict(remedy) for remedy in self.remedies],
        }


def plan(
    data: Dataset,
    config: FitConfig | None = None,
    engine: EngineLike = None,
    calibrate: bool = True,
    start: PrototypeSet | None = None,
) -> Plan:
    """What `fit` with the same arguments will cost.

    Memory, tasks and bytes are arithmetic on the shapes in the dataset's attributes. With `calibrate` a second or two
    of measuring, on the threads or workers that would compute, adds seconds; a few blocks are read for it.
    """
    if not isinstance(data, Dataset):
        raise no_dataset(data)
    settings = settled(config, data.n_rows, data.columns, len(data.classes))
    shape = shape_of(data, settings, start)
    with open_engine(engine) as opened:
        processes = opened.scheduler.processes()
        found = plan_shape(shape, processes)
        if not calibrate or not found.fits:
            return found
        from protodask.prototypes.calibration import calibrate as measure

        measured = measure(opened, data, shape, processes)
    busiest = longest_share(processes, shape.layout.n_blocks) / shape.layout.n_blocks
    rate = measured.read_bytes_per_second
    computing = measured.row_seconds * busiest * shape.n_rows
    reading = busiest * found.first_evaluation_bytes / rate
    evaluation = measured.pass_seconds + computing + busiest * found.evaluation_bytes / rate
    drawing = 2 * (measured.pass_seconds + reading)  # what is computed is nothing beside the evaluations
    scoring = computing + reading if shape.scored else 0.0
    _, together = step_blocks(shape.staged_rows, settings.n_draws)
    at_work = min(stepping_threads(processes), together * settings.n_draws)
    stepping = measured.row_seconds * stepped_rows(shape) / at_work
    seconds = Seconds(
        evaluation=evaluation,
        batch=drawing + stepping + found.evaluations * evaluation + scoring,
        pair_nanoseconds=1e9 * measured.row_seconds / max(1, sum(shape.drawn)),
        read_bytes_per_second=rate,
        read_warm=measured.read_warm,
        calibration=measured.seconds,
    )
    return replace(found, seconds=seconds)


def stepped_rows(shape: Shape) -> int:
    """Rows that small steps look at, each as often as they do."""
    fewest = FEWEST_STEPS * math.prod(step_blocks(shape.staged_rows, shape.config.n_draws))
    return max(ROUNDS * shape.staged_rows, fewest) if shape.staged_rows else 0


def plan_shape(shape: Shape, processes: Processes) -> Plan:
    """The plan as far as it is arithmetic."""
    stored = scores_stored(shape, processes)
    worker, driver = memory_of(shape, processes, stored)
    enough = fits(shape, processes)
    first, later = read_bytes(shape, processes)
    assumed = HELD_OUT_EVALUATIONS if shape.config.hold_out else ASSUMED_EVALUATIONS
    if shape.finished:
        assumed += FINISHING_EVALUATIONS
    if shape.staged_rows:
        assumed = STEPPED_EVALUATIONS
    evaluations = max(1, min(assumed, int(EVALUATIONS_PER_ITERATION * shape.config.max_iterations)))
    scoring = first if shape.scored else 0
    return Plan(
        shape=shape,
        processes=processes,
        worker=worker,
        driver=driver,
        scores_stored=stored,
        fits=enough,
        remedies=() if enough else tuple(remedy for remedy, _, _ in remedies(shape, processes)),
        tasks=min(processes.n_tasks, shape.layout.n_blocks),
        first_evaluation_bytes=first,
        evaluation_bytes=later,
        batch_bytes=first + later + evaluations * later + scoring,
        evaluations=evaluations,
        seconds=None,
    )


def require_shape(shape: Shape, engine: Engine) -> Plan:
    """The plan of a fit of a shape. One whose processes would not keep their memory limit is refused, with what would
    do.
    """
    found = plan_shape(shape, engine.scheduler.processes())
    if not found.fits:
        raise misfit(found)
    return found


def misfit(found: Plan) -> InputError:
    """The error that says by how much a fit does not fit, what takes most, and what would do."""
    threads = found.processes.kind == "threads"
    short = threads or found.worker.total > found.processes.usable_bytes
    memory = found.worker if short else found.driver
    limit = found.processes.memory_bytes if short else found.processes.driver_bytes
    who = "this process" if threads or not short else "a worker process"
    largest = sorted(memory.parts, key=lambda part: -part.bytes)[:3]
    shares = ", ".join(f"{mebibytes(part.bytes)} for {part.name}" for part in largest)
    advice = "; ".join(remedy.text for remedy in found.remedies)
    return InputError(
        "over-memory",
        f"This fit needs up to {mebibytes(memory.total)} in {who}, and its memory limit is {mebibytes(limit)} "
        f"({shares}).",
        f"One of these would do: {advice}. `plan()` shows the whole account.",
    )


Change = tuple[Remedy, Shape, Processes]
"""A remedy, and the problem and the processes with it."""


def remedies(shape: Shape, processes: Processes) -> Iterator[Change]:
    """For each setting the smallest change that makes the problem fit, where one does."""
    for changes in _changes(shape, processes):
        if found := next((change for change in changes if fits(*change[1:])), None):
            yield found
    yield _more_memory(shape, processes)


def _changes(shape: Shape, processes: Processes) -> Iterator[Iterator[Change]]:
    """Changes to try, setting by setting, small ones first."""
    fewer, option = "fewer threads", "threads="
    if processes.kind == "workers":
        fewer, option = "workers with fewer threads", "dask worker --nthreads "
    yield (
        (Remedy("threads", threads, f"{fewer} ({option}{threads})"), shape, replace(processes, threads=threads))
        for threads in range(processes.threads - 1, 0, -1)
    )
    if processes.kind == "threads" and processes.threads > 1:
        yield iter([_as_workers(shape, processes)])
    # Where these are left open, there might be more draws of fewer candidates; where they are given, these might grow.
    others = ", most_candidates=0" if shape.grows else ""
    others += f", n_draws={shape.config.n_draws}" if shape.config.hold_out else ""
    yield (
        (
            Remedy("candidates", candidates, f"fewer candidates (n_candidates={candidates}{others})"),
            shape.with_settings(n_candidates=candidates, most_candidates=0),
            processes,
        )
        for candidates in (*([shape.n_candidates] if shape.grows else []), *_fewer(shape.n_candidates))
    )
    yield (
        (
            Remedy(
                "block_rows", rows, f"blocks of fewer rows, chosen when the dataset is made (ingest, block_rows={rows})"
            ),
            replace(shape, layout=Layout(shape.n_rows, rows)),
            processes,
        )
        for rows in _halves(shape.layout.block_rows)
    )
    if shape.precision == "float64":
        remedy = Remedy("precision", "float32", "the kernel in float32 (precision='float32')")
        yield iter([(remedy, shape.with_settings(precision="float32"), processes)])
    if shape.feature_bytes == 2 * 4:
        remedy = Remedy("feature_bytes", 4, "features stored as float32 (ingest, dtype='float32')")
        yield iter([(remedy, replace(shape, feature_bytes=4), processes)])


def _as_workers(shape: Shape, processes: Processes) -> Change:
    """A worker process for each thread. Each may be given the limit of this process, unless an even share of the
    machine, for the workers and for this process, is less.
    """
    workers, machine = processes.threads, process_memory_limit()
    limit = max(1, min(processes.memory_bytes, machine // (workers + 1)) // MIB) * MIB
    options = f"n_workers={workers}, memory_limit={limit}"
    text = f"{workers} worker processes with a limit of {mebibytes(limit)} each ({options})"
    return (
        Remedy("workers", workers, text),
        shape,
        Processes("workers", workers, 1, limit, machine - workers * limit),
    )


def _fewer(candidates: int) -> Iterator[int]:
    """Numbers of candidates from nine tenths downwards, in round figures."""
    value = int(0.9 * candidates)
    while value >= FEWEST_CANDIDATES:
        digits = 10 ** max(0, len(str(value)) - 2)
        yield value // digits * digits
        value = int(0.9 * value)


def _halves(rows: int) -> Iterator[int]:
    while rows > SMALLEST_BLOCK_ROWS:
        rows //= 2
        yield rows


def _more_memory(shape: Shape, processes: Processes) -> Change:
    """The memory that the problem needs as it is, of the processes that have too little."""
    here = processes.kind == "threads"
    _, driver = memory_of(shape, processes, scores_stored(shape, processes))
    need_of_driver = -(-driver.total // MIB) * MIB
    for_driver = f"{mebibytes(driver.total)} of memory for this process, which drives the workers"
    short = not here and driver.total > processes.driver_bytes
    enough = replace(processes, driver_bytes=max(processes.driver_bytes, need_of_driver))
    if short and fits(shape, enough):
        return Remedy("driver_memory", need_of_driver, for_driver), shape, enough

    def given(size: int) -> Processes:
        """Of so many mebibytes each."""
        return replace(enough, memory_bytes=size * MIB, driver_bytes=size * MIB if here else enough.driver_bytes)

    sizes = range(LARGEST_MEMORY // MIB)
    need = bisect_left(sizes, True, lo=processes.memory_bytes // MIB, key=lambda size: fits(shape, given(size)))
    if here:
        text = f"a limit of {mebibytes(need * MIB)} for this process (memory_bytes={need * MIB})"
        if need * MIB > process_memory_limit():
            text += ", on a machine with more memory"
    else:
        text = (
            f"workers with a limit of {mebibytes(need * MIB)} each (memory_limit={need * MIB}, where they are started)"
        )
        text += f", and {for_driver}" if short else ""
    return Remedy("memory", need * MIB, text), shape, given(need)
