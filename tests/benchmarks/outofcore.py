"""Training on a dataset several times larger than the memory limit: peak memory and speed.

The dataset is made on disk (`blobs`), `--multiple` times `--limit` in size. A fresh process then trains on it, in
process with two threads and on two worker processes, for `--evaluations` evaluations of the objective and the passes
before them (the draw of candidates, and fetching them). A second fresh process does the same with the first
`--memory-rows` rows, which fit into the cache of decoded blocks: that is the in-memory rate. Peak memory is the largest
resident size that the system saw of each process, read before it ends. Pages of the larger dataset are dropped from the
system's cache before the run and before each evaluation unless `--warm` is given, so that it reads from the disk.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks import _common as common

    from protodask.engine import Engine
else:
    import _common as common

WANTED_RATE = 0.8
"""Of the in-memory rate."""
WORKERS = 2
ROW_OVERHEAD = 4
"""Bytes of a target, beside 4 for each feature."""
MODES = ("threads", "workers")


@dataclass(frozen=True)
class Timing:
    """One pass over the data."""

    label: str
    seconds: float


@dataclass(frozen=True)
class Measured:
    """What a process that trained says of itself."""

    mode: str
    rows: int
    block_rows: int
    passes: list[Timing]
    """All in order; the objective's are labelled `evaluate`."""
    driver_peak: int
    """Bytes."""
    worker_peaks: list[int]
    driver_modules: int
    """Imported by the end: what is not needed should not be."""

    def rates(self) -> list[float]:
        """Rows a second of each evaluation but the first, which fills the cache, if there are more."""
        seconds = [timing.seconds for timing in self.passes if timing.label == "evaluate"]
        return [self.rows / value for value in (seconds[1:] or seconds)]


class Enough(Exception):
    """The evaluations asked for are done."""


@dataclass
class Stopwatch:
    """Stands between solver and objective: times evaluations, and stops the training after some."""

    most: int
    passes: list[Timing]
    before_each: Callable[[], None]

    def recorded(self, batch: int, stage: str, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def timed(theta: Any) -> Any:
            if sum(timing.label == "evaluate" for timing in self.passes) >= self.most:
                raise Enough
            self.before_each()
            began = time.perf_counter()
            result = function(theta)
            self.passes.append(Timing("evaluate", time.perf_counter() - began))
            return result

        return timed

    def arrays(self, batch: int, name: str, make: Callable[[], Mapping[str, Any]], of: int = 0) -> dict[str, Any]:
        return dict(make())


def worker_processes() -> list[int]:
    """The children of this process that run Python's workers, by number."""
    psutil = common.peer("psutil")
    return [
        child.pid
        for child in psutil.Process().children(recursive=True)
        if "resource_tracker" not in " ".join(child.cmdline())
    ]


def open_engine(mode: str, limit: int) -> AbstractContextManager[Engine]:
    """Two threads of this process, or two processes, with `limit` bytes for each process."""
    if mode == "threads":
        from protodask.engine import thread_engine

        return thread_engine(WORKERS, limit)
    from protodask.engine.choose import local_engine

    return local_engine(WORKERS, limit)


def train(settings: argparse.Namespace) -> None:
    """What the measured process does; it writes a `Measured` to standard output."""
    from protodask.data.format.dataset import Dataset
    from protodask.prototypes.config import FitConfig
    from protodask.prototypes.fitting import dataset_for_training
    from protodask.prototypes.scores import MemoryScores
    from protodask.prototypes.training import Training

    dataset = Dataset.open(settings.data)
    config = FitConfig.of("source", n_candidates=settings.candidates)
    passes: list[Timing] = []
    with open_engine(settings.mode, settings.limit) as engine:
        timed = engine.with_progress(
            lambda event: (
                passes.append(Timing(event.label, event.seconds))
                if event.finished and event.label != "evaluate"
                else None
            )
        )
        stopwatch = Stopwatch(
            settings.evaluations, passes, partial(drop_pages, None if settings.warm else settings.data)
        )
        with suppress(Enough):
            Training(dataset_for_training(dataset), config, timed, MemoryScores(), stopwatch).run()
        workers = [common.peak_resident(child) for child in worker_processes()] if settings.mode == "workers" else []
    measured = Measured(
        mode=settings.mode,
        rows=dataset.n_rows,
        block_rows=dataset.layout.block_rows,
        passes=passes,
        driver_peak=common.peak_resident(os.getpid()),
        worker_peaks=workers,
        driver_modules=len(sys.modules),
    )
    print(json.dumps(asdict(measured)))


def in_fresh_process(mode: str, data: str, evaluations: int, warm: bool, settings: argparse.Namespace) -> Measured:
    """Run `train` in a new process."""
    command = [sys.executable, __file__, "--measured", "--mode", mode, "--data", data]
    command += ["--limit", str(settings.limit), "--evaluations", str(evaluations)]
    command += ["--candidates", str(settings.candidates), *(["--warm"] if warm else [])]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found = json.loads(done.stdout.splitlines()[-1])
    found["passes"] = [Timing(**timing) for timing in found["passes"]]
    return Measured(**found)


def drop_pages(folder: str | None) -> None:
    """Have the system forget what it cached of all files below, where it can be told to; of nothing for None."""
    if folder is None or not hasattr(os, "posix_fadvise"):
        return
    for place, _, names in os.walk(folder):
        for name in names:
            handle = os.open(os.path.join(place, name), os.O_RDONLY)
            try:
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(handle)


def add_measured_settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--measured", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--mode", choices=MODES, help=argparse.SUPPRESS)
    parser.add_argument("--data", help=argparse.SUPPRESS)


def compare(settings: argparse.Namespace, folder: str) -> tuple[list[Measured], list[common.Check]]:
    """Make the data, and run every mode on the larger and on the smaller dataset."""
    from protodask.engine import choose_block_rows

    row_bytes = 4 * settings.features + ROW_OVERHEAD
    rows = int(settings.multiple * settings.limit / row_bytes)
    if settings.memory_rows >= rows:
        sys.exit("--memory-rows must be fewer than the rows of the larger dataset")
    block_rows = choose_block_rows(rows, row_bytes)
    large, small = os.path.join(folder, "large.zarr"), os.path.join(folder, "small.zarr")
    took = common.timed(lambda: common.make_blobs(rows, large, block_rows, settings.features))
    print(f"\nmade {rows:,} rows, {rows * row_bytes / common.GIB:.2f} GiB, in {took:.0f} s")
    common.make_blobs(settings.memory_rows, small, block_rows, settings.features)
    table = common.Table(
        f"{settings.features} features, {settings.candidates} candidates, limit {settings.limit / common.MIB:.0f} MiB "
        "for each process",
        ("run", "rows", "draw s", "take s", "evaluate s", "krows/s", "of memory", "driver MiB", "worker MiB"),
    )
    found: list[Measured] = []
    checks: list[common.Check] = []
    for mode in settings.modes:
        memory = in_fresh_process(mode, small, settings.memory_evaluations + 1, True, settings)
        memory_rate = common.median(memory.rates())
        show(table, f"{mode}, in memory", memory, memory_rate)
        drop_pages(None if settings.warm else large)
        disk = in_fresh_process(mode, large, settings.evaluations, settings.warm, settings)
        show(table, f"{mode}, out of core", disk, memory_rate)
        found += [memory, disk]
        peak = max([disk.driver_peak, *disk.worker_peaks])
        checks += [
            common.Check(f"peak resident MiB, {mode}", peak / common.MIB, "<=", settings.limit / common.MIB),
            common.Check(
                f"of the in-memory rate, {mode}", common.median(disk.rates()) / memory_rate, ">=", WANTED_RATE
            ),
        ]
    return found, checks


def show(table: common.Table, label: str, measured: Measured, memory_rate: float) -> None:
    """A row of the table."""
    seconds = {name: [one.seconds for one in measured.passes if one.label == name] for name in ("draw", "take")}
    rate = common.median(measured.rates())
    table.row(
        label, measured.rows, *(float(sum(values)) for values in seconds.values()), measured.rows / rate, rate / 1e3,
        rate / memory_rate, measured.driver_peak / common.MIB,
        max(measured.worker_peaks) / common.MIB if measured.worker_peaks else None,
    )  # fmt: skip


def main() -> None:
    parser = common.make_parser(__doc__)
    parser.add_argument("--limit", type=common.byte_count, default=common.GIB, help="memory limit of each process")
    parser.add_argument("--multiple", type=float, default=8.0, help="size of the dataset in limits")
    parser.add_argument("--features", type=common.positive, default=30, help="features")
    parser.add_argument("--candidates", type=common.positive, default=1000, help="candidates")
    parser.add_argument("--evaluations", type=common.positive, default=2, help="evaluations on the larger dataset")
    parser.add_argument(
        "--memory-rows", type=common.positive, default=2_000_000, help="rows of the dataset that fits into the cache"
    )
    parser.add_argument("--memory-evaluations", type=common.positive, default=5, help="evaluations on that, timed")
    parser.add_argument("--modes", type=common.choices(MODES), default=list(MODES), help="threads, workers, or both")
    parser.add_argument("--folder", help="where the datasets are made, and removed afterwards")
    parser.add_argument("--warm", action="store_true", help="leave the dataset in the system's page cache")
    add_measured_settings(parser)
    settings = parser.parse_args()
    if settings.measured:
        train(settings)
        return
    measured_on = common.start("outofcore")
    with common.scratch(settings.folder) as folder:
        results, checks = compare(settings, folder)
    common.finish("outofcore", settings, measured_on, results, checks)


if __name__ == "__main__":
    main()
