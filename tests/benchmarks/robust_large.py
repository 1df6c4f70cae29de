"""Training from features known roughly: a dataset larger than memory, and the whole cone program on few rows.

Rows of `--features` features are made on disk, each with a support, bounds of the mean and a bound of the second moment
(five columns): two classes, and uncertainty of which features have more or less in every row. A fresh process trains on
them to a certified `--gap`, in process with two threads and on one and on two worker processes, within a memory limit;
the planes must be the same to the last bit. `terms s` is what the brackets take, which are computed once, `passes s`
what the passes take after that. Peak memory is the largest resident size that the system saw of each process. The
second table has the cone program of all rows, solved by Clarabel, beside the passes, both on arrays in memory.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from benchmarks import _common as common

    from protodask.engine import Engine
    from protodask.robust import UncertainRows
    from protodask.robust.classifier import Solver
else:
    import _common as common

PARTS = ("low", "high", "mean_low", "mean_high", "second")
MODES = ("threads", "1 worker", "2 workers")
SOLVERS: tuple[Solver, ...] = ("conic", "bundle")
WANTED_SECONDS = 600
CHUNK_ROWS = 2**14

Bounds = dict[str, NDArray[np.float32]]


@dataclass(frozen=True)
class Measured:
    """What a process that trained says of itself."""

    mode: str
    rows: int
    seconds: float
    terms_seconds: float
    passes: int
    objective: float
    gap: float
    plane: str
    """Its numbers in hexadecimal."""
    certified_fraction: float
    nominal_error: float
    driver_peak: int
    """Bytes."""
    worker_peaks: list[int]


def drawn_bounds(chunk: int, rows: int, n_features: int, signal: float) -> tuple[Bounds, NDArray[np.int32]]:
    """Some rows of what is measured, each chunk from a seed of its own."""
    random = np.random.default_rng((7, chunk))
    y = random.integers(0, 2, rows).astype(np.int32)
    mean = random.normal(size=(rows, n_features)) + signal * (2.0 * y[:, None] - 1) / np.sqrt(n_features)
    half = random.uniform(0.05, 0.5, size=(rows, n_features)) * random.uniform(0.2, 1.0, size=(rows, 1))
    off = 0.1 * half
    deviation = 0.4 * half
    bounds = {
        "low": mean - half,
        "high": mean + half,
        "mean_low": mean - off,
        "mean_high": mean + off,
        "second": np.square(np.abs(mean) + off) + np.square(deviation),
    }
    return {name: values.astype(np.float32) for name, values in bounds.items()}, y


def make_data(folder: str, rows: int, settings: argparse.Namespace) -> str:
    """The dataset, from arrays that are written chunk by chunk."""
    from numpy.lib.format import open_memmap

    from protodask.data.tables.ingest import ingest

    names = [f"x{feature}.{part}" for feature in range(settings.features) for part in PARTS]
    features, target = os.path.join(folder, "X.npy"), os.path.join(folder, "y.npy")
    X = open_memmap(features, mode="w+", dtype=np.float32, shape=(rows, len(names)))
    y = open_memmap(target, mode="w+", dtype=np.int32, shape=(rows,))
    for chunk, start in enumerate(range(0, rows, CHUNK_ROWS)):
        stop = min(start + CHUNK_ROWS, rows)
        bounds, labels = drawn_bounds(chunk, stop - start, settings.features, settings.signal)
        X[start:stop] = np.stack([bounds[part] for part in PARTS], axis=2).reshape(stop - start, -1)
        y[start:stop] = labels
    del X, y
    out = os.path.join(folder, f"{rows}.zarr")
    ingest((features, target), out, feature_names=names)
    os.remove(features)
    os.remove(target)
    return out


def open_engine(mode: str, limit: int) -> AbstractContextManager[Engine]:
    """Two threads of this process, or worker processes, with `limit` bytes for each process."""
    if mode == "threads":
        from protodask.engine import thread_engine

        return thread_engine(2, limit)
    from protodask.engine.choose import local_engine

    return local_engine(int(mode[0]), limit)


def worker_peaks() -> list[int]:
    """Of the children of this process that run Python's workers."""
    psutil = common.peer("psutil")
    return [
        common.peak_resident(child.pid)
        for child in psutil.Process().children(recursive=True)
        if "resource_tracker" not in " ".join(child.cmdline())
    ]


def train(settings: argparse.Namespace) -> None:
    """What the measured process does; it writes a `Measured` to standard output."""
    from protodask.data import Dataset
    from protodask.robust.config import RobustConfig
    from protodask.robust.measures import evaluate_robust
    from protodask.robust.training import RowsOfColumns, fit_robust
    from protodask.robust.uncertain_columns import uncertain_columns

    data = Dataset.open(settings.data)
    config = RobustConfig(settings.formulation, settings.eps, settings.cost, settings.gap)
    terms: list[float] = []
    with open_engine(settings.mode, settings.limit) as engine:
        timed = engine.with_progress(
            lambda event: terms.append(event.seconds) if event.finished and event.label == "terms" else None
        )
        began = time.perf_counter()
        run = fit_robust(data, config, settings.run_dir, timed)
        seconds = time.perf_counter() - began
        workers = [] if settings.mode == "threads" else worker_peaks()
        peak = common.peak_resident(os.getpid())
        rows_of = RowsOfColumns(uncertain_columns(data.feature_names))
        sums = evaluate_robust(run.model, data, rows_of, np.arange(2), engine)
    model = run.model
    measured = Measured(
        mode=settings.mode,
        rows=data.n_rows,
        seconds=seconds,
        terms_seconds=sum(terms),
        passes=model.passes[0],
        objective=float(model.objective[0]),
        gap=float(model.gap[0]),
        plane=np.append(model.weights[0], model.intercept).tobytes().hex(),
        certified_fraction=sums.certified_fraction,
        nominal_error=sums.nominal_error,
        driver_peak=peak,
        worker_peaks=workers,
    )
    print(json.dumps(asdict(measured)))


def in_fresh_process(mode: str, data: str, run_dir: str, settings: argparse.Namespace) -> Measured:
    """Run `train` in a new process."""
    command = [sys.executable, __file__, "--measured", "--mode", mode, "--data", data, "--run-dir", run_dir]
    for name in ("limit", "formulation", "eps", "cost", "gap"):
        command += [f"--{name}", str(getattr(settings, name))]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return Measured(**json.loads(done.stdout.splitlines()[-1]))


def on_disk(settings: argparse.Namespace, folder: str) -> tuple[list[Measured], list[common.Check]]:
    """Every mode on the dataset on disk."""
    began = time.perf_counter()
    data = make_data(folder, settings.rows, settings)
    size = settings.rows * settings.features * len(PARTS) * 4
    print(f"\nmade {settings.rows:,} rows, {size / common.GIB:.2f} GiB, in {time.perf_counter() - began:.0f} s")
    table = common.Table(
        f"{settings.formulation}, eps {settings.eps}, gap {settings.gap}, limit {settings.limit / common.MIB:.0f} MiB "
        "for each process",
        ("run", "rows", "terms s", "passes", "passes s", "seconds", "gap", "driver MiB", "worker MiB", "certified"),
    )
    found: list[Measured] = []
    checks: list[common.Check] = []
    for mode in settings.modes:
        run_dir = os.path.join(folder, mode.replace(" ", "-"))
        one = in_fresh_process(mode, data, run_dir, settings)
        found.append(one)
        peaks = [one.driver_peak, *one.worker_peaks]
        table.row(
            mode, one.rows, one.terms_seconds, one.passes, one.seconds - one.terms_seconds, one.seconds, one.gap,
            one.driver_peak / common.MIB, max(one.worker_peaks) / common.MIB if one.worker_peaks else None,
            one.certified_fraction,
        )  # fmt: skip
        checks += [
            common.Check(f"peak resident MB, {mode}", max(peaks) / 1e6, "<=", settings.limit / 1e6),
            common.Check(f"seconds, {mode}", one.seconds, "<=", WANTED_SECONDS),
            common.Check(f"gap, {mode}", one.gap, "<=", settings.gap),
        ]
    same = len({one.plane for one in found})
    checks.append(common.Check("different planes among the runs", float(same), "<=", 1.0))
    return found, checks


def rows_in_memory(rows: int, settings: argparse.Namespace) -> tuple[UncertainRows, NDArray[np.int32]]:
    """The same kind of rows as arrays."""
    from protodask.robust import UncertainRows

    bounds, y = drawn_bounds(0, rows, settings.features, settings.signal)
    return UncertainRows(*(bounds[part] for part in PARTS)), y


def fit_in_memory(
    settings: argparse.Namespace,
    known: UncertainRows,
    y: NDArray[np.int32],
    solver: Solver,
    objective: dict[str, float],
) -> None:
    """Train on arrays, and note the objective."""
    from protodask.engine import thread_engine
    from protodask.robust import RobustClassifier

    with thread_engine(2) as engine:
        model = RobustClassifier(
            settings.formulation, settings.eps, settings.cost, settings.gap, solver=solver, engine=engine
        )
        objective[solver] = model.fit(known, y).objective_


def against_the_whole(settings: argparse.Namespace) -> list[dict[str, Any]]:
    """The cone program of all rows beside the passes."""
    table = common.Table(
        "one cone program of all rows (Clarabel, one thread) and passes (two threads), arrays in memory",
        ("rows", "whole s", "passes s", "ratio", "objectives differ by"),
    )
    found: list[dict[str, Any]] = []
    for rows in settings.whole:
        known, y = rows_in_memory(rows, settings)
        objective: dict[str, float] = {}
        fits = [partial(fit_in_memory, settings, known, y, solver, objective) for solver in SOLVERS]
        taken = common.alternate(fits, settings.repeats)
        seconds = dict(zip(SOLVERS, map(common.median, taken), strict=True))
        apart = objective["bundle"] / objective["conic"] - 1
        table.row(str(rows), seconds["conic"], seconds["bundle"], seconds["conic"] / seconds["bundle"], apart)
        found.append({"rows": rows, "seconds": seconds, "objective": objective})
    return found


def main() -> None:
    parser = common.make_parser(__doc__)
    parser.add_argument("--rows", type=common.positive, default=1_000_000, help="rows of the dataset on disk")
    parser.add_argument("--features", type=common.positive, default=50, help="features")
    parser.add_argument("--signal", type=float, default=3.0, help="half the distance of the means of the classes")
    parser.add_argument("--formulation", default="SBMV-I", help="formulation")
    parser.add_argument("--eps", type=float, default=0.1, help="probability of error")
    parser.add_argument("--cost", type=float, default=1.0, help="cost of slack")
    parser.add_argument("--gap", type=float, default=1e-3, help="relative gap")
    parser.add_argument("--limit", type=common.byte_count, default=10**9, help="memory limit of each process")
    parser.add_argument("--modes", type=common.choices(MODES), default=list(MODES), help="how to run")
    parser.add_argument("--whole", type=common.numbers, default=[200, 500, 1000], help="rows of the second table")
    parser.add_argument("--repeats", type=common.positive, default=3, help="runs of each in the second table")
    parser.add_argument("--folder", help="where the dataset is made, and removed afterwards")
    parser.add_argument("--measured", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--mode", choices=MODES, help=argparse.SUPPRESS)
    parser.add_argument("--data", help=argparse.SUPPRESS)
    parser.add_argument("--run-dir", help=argparse.SUPPRESS)
    settings = parser.parse_args()
    if settings.measured:
        train(settings)
        return
    measured_on = common.start("robust_large")
    with common.scratch(settings.folder) as folder:
        results, checks = on_disk(settings, folder)
    common.finish("robust_large", settings, measured_on, [*results, *against_the_whole(settings)], checks)


if __name__ == "__main__":
    main()
