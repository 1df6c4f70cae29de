"""Whether a fit costs what its plan says: seconds per evaluation, and peak memory of every process.

Five problems of four shapes: few features and many rows, many features, many classes with two batches, and a dataset
larger than the memory limit; two of them on two worker processes. For each, one fresh process makes the data, another
one asks for the plan, with its calibration, and a third one trains for `--iterations` iterations a batch, with all that
belongs to a fit: the draw of candidates, merging, and the scores between batches. Then a fourth one asks for the plan
again, because machines drift; the mean of both plans counts. Measured seconds are the median of the evaluations of the
last batch but the first, in which blocks are read for the first time. Peak memory is the largest resident size the
system saw of a process.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import warnings
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks import _common as common
    from benchmarks import outofcore

    from protodask.engine import Engine
else:
    import _common as common
    import outofcore

WITHIN = 0.3
"""Of the measured seconds."""


@dataclass(frozen=True)
class Case:
    """A problem, and where it is computed."""

    name: str
    rows: int
    features: int
    classes: int
    candidates: int
    batches: int
    mode: str
    """`threads` or `workers`: two of them."""
    limit: int
    """Bytes for each process that computes."""


CASES = (
    Case("few features, many rows", 4_000_000, 4, 2, 300, 1, "threads", 2 * common.GIB),
    Case("many features", 120_000, 300, 2, 600, 1, "threads", 2 * common.GIB),
    Case("many classes, two batches", 400_000, 20, 20, 800, 2, "workers", 2 * common.GIB),
    Case("out of core, threads", 10_000_000, 30, 2, 250, 1, "threads", 768 * common.MIB),
    Case("out of core, workers", 10_000_000, 30, 2, 250, 1, "workers", 512 * common.MIB),
)


@dataclass(frozen=True)
class Planned:
    """What the plan said."""

    seconds: float
    worker_bytes: int
    driver_bytes: int
    calibration: float
    """Seconds it took."""


@dataclass(frozen=True)
class Measured:
    """What happened."""

    seconds: list[float]
    """Of the evaluations of the last batch but the first."""
    driver_bytes: int
    worker_bytes: list[int]


@dataclass(frozen=True)
class Compared:
    """Both, for a problem."""

    case: Case
    before: Planned
    after: Planned
    measured: Measured


def open_engine(case: Case) -> AbstractContextManager[Engine]:
    return outofcore.open_engine(case.mode, case.limit)


def config_of(case: Case, iterations: int) -> Any:
    from protodask.prototypes.config import FitConfig

    return FitConfig.of("source", n_candidates=case.candidates, n_batches=case.batches, max_iterations=iterations)


def make(case: Case, place: str) -> None:
    """The data of a problem."""
    from protodask.data.tables.synthetic import sample_data

    sample_data("blobs", case.rows, place, n_features=case.features, n_classes=case.classes)


def ask(case: Case, place: str, iterations: int) -> Planned:
    """The plan of a problem."""
    from protodask import Dataset, plan

    with open_engine(case) as engine:
        found = plan(Dataset.open(place), config_of(case, iterations), engine)
    if found.seconds is None:
        raise AssertionError(f"{case.name} does not fit")
    return Planned(found.seconds.evaluation, found.worker.total, found.driver.total, found.seconds.calibration)


def train(case: Case, place: str, iterations: int) -> Measured:
    """The fit itself."""
    from protodask import Dataset, fit
    from protodask.engine import Progress

    seconds: list[list[float]] = []

    def listen(event: Progress) -> None:
        if event.finished and event.label == "take":
            seconds.append([])
        elif event.finished and event.label == "evaluate":
            seconds[-1].append(event.seconds)

    with open_engine(case) as engine, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it stops before it has converged
        fit(Dataset.open(place), config_of(case, iterations), engine=engine.with_progress(listen))
        workers = outofcore.worker_processes() if case.mode == "workers" else []
        peaks = [common.peak_resident(process) for process in workers]
    return Measured(seconds[-1][1:], common.peak_resident(os.getpid()), peaks)


def in_fresh_process(step: str, number: int, place: str, settings: argparse.Namespace) -> Any:
    """One step of a case in a process of its own; returns what it printed last."""
    command = [sys.executable, __file__, "--step", step, "--case", str(number), "--data", place]
    command += ["--iterations", str(settings.iterations)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def perform(settings: argparse.Namespace) -> None:
    """A step, in the process that was started for it."""
    case = CASES[settings.case]
    result: Planned | Measured | None = None
    match settings.step:
        case "make":
            make(case, settings.data)
        case "plan":
            result = ask(case, settings.data, settings.iterations)
        case _:
            result = train(case, settings.data, settings.iterations)
    print(json.dumps(None if result is None else asdict(result)))


def compare(settings: argparse.Namespace, folder: str) -> tuple[list[Compared], list[common.Check]]:
    """All cases, one after the other."""
    table = common.Table(
        "planned and measured; memory in MiB, of this process for threads, of the largest worker otherwise",
        (
            "problem",
            "before s",
            "after s",
            "real s",
            "ratio",
            "plan MiB",
            "real MiB",
            "plan driver",
            "real driver",
            "calibration s",
        ),
        28,
    )
    found: list[Compared] = []
    checks: list[common.Check] = []
    for number, case in enumerate(CASES):
        if settings.cases is not None and number not in settings.cases:
            continue
        place = os.path.join(folder, f"{number}.zarr")
        in_fresh_process("make", number, place, settings)
        planned = Planned(**in_fresh_process("plan", number, place, settings))
        measured = Measured(**in_fresh_process("train", number, place, settings))
        after = Planned(**in_fresh_process("plan", number, place, settings))
        found.append(Compared(case, planned, after, measured))
        expected = (planned.seconds + after.seconds) / 2
        shutil.rmtree(place)
        seconds = common.median(measured.seconds)
        worker = max(measured.worker_bytes, default=measured.driver_bytes)
        table.row(
            case.name, planned.seconds, after.seconds, seconds, expected / seconds, planned.worker_bytes / common.MIB,
            worker / common.MIB, planned.driver_bytes / common.MIB, measured.driver_bytes / common.MIB,
            planned.calibration,
        )  # fmt: skip
        checks += [
            common.Check(
                f"{case.name}: difference of seconds, as a share", abs(expected / seconds - 1), "<=", WITHIN
            ),
            common.Check(
                f"{case.name}: measured peak over planned", worker / planned.worker_bytes, "<=", 1.0
            ),
            common.Check(
                f"{case.name}: measured peak of the driver over planned",
                measured.driver_bytes / planned.driver_bytes, "<=", 1.0,
            ),
            common.Check(f"{case.name}: measured peak over the limit", worker / case.limit, "<=", 1.0),
        ]  # fmt: skip
    return found, checks


def main() -> None:
    parser = common.make_parser(__doc__)
    parser.add_argument("--iterations", type=common.positive, default=6, help="iterations of a batch")
    parser.add_argument("--cases", type=lambda text: [int(part) for part in text.split(",")], help="numbers, from 0")
    parser.add_argument("--folder", help="where the datasets are made, and removed afterwards")
    parser.add_argument("--step", choices=("make", "plan", "train"), help=argparse.SUPPRESS)
    parser.add_argument("--case", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--data", help=argparse.SUPPRESS)
    settings = parser.parse_args()
    if settings.step is not None:
        perform(settings)
        return
    measured_on = common.start("plan")
    with common.scratch(settings.folder) as folder:
        results, checks = compare(settings, folder)
    common.finish("plan", settings, measured_on, results, checks)


if __name__ == "__main__":
    main()
