"""The AUC of more rows than fit into memory: time, peak memory, its bound and its true error.

Scores and labels lie in Zarr arrays, made by the benchmark: 8 bits of label and 32 or 64 of score for each row. A fresh
process computes the AUC in `--limit` bytes, streaming them from disk (`disk`), or read into memory whole before
(`memory`, where they leave half of the limit). Another one computes it exactly: the scores of each class are sorted in
blocks, and for each block of negatives the positives above are counted by a search in each block of positives. Beside
them, scikit-learn's `roc_auc_score` on the first `--peer-rows` rows. Peak memory is the largest resident size that the
system saw of the process, with the interpreter and all libraries.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks import _common as common
else:
    import _common as common

MOST_GB = 1.0
"""Of memory, of the whole process."""
MOST_ERROR = 1e-6
CHUNK_ROWS = 2**20
EXACT_BLOCK = 2**23
"""Rows sorted together where the AUC is computed exactly."""
KINDS = ("disk", "memory", "exact", "peer")


@dataclass(frozen=True)
class Measured:
    """What a process that computed an AUC says of itself."""

    kind: str
    dtype: str
    rows: int
    seconds: float
    """Of the computation; with reading where it reads from disk."""
    peak: int
    """Bytes."""
    value: float
    bound: float | None = None
    """That is stated for the error."""
    passes: int | None = None
    half_width: float | None = None


def make_rows(folder: str, rows: int) -> None:
    """Scores of either type and labels, 3 positives in 10; normal scores one sigma apart, made probabilities."""
    import numpy as np
    import zarr

    arrays = {
        name: zarr.create_array(
            os.path.join(folder, f"{name}.zarr"), shape=(rows,), chunks=(CHUNK_ROWS,), dtype=dtype, compressors=None
        )
        for name, dtype in (("float32", "float32"), ("float64", "float64"), ("label", "int8"))
    }
    random = np.random.default_rng(0)
    for first in range(0, rows, CHUNK_ROWS):
        size = min(CHUNK_ROWS, rows - first)
        label = random.random(size) < 0.3
        score = 1 / (1 + np.exp(-random.normal(size=size) - label))
        for name, values in (("float32", score), ("float64", score), ("label", label)):
            arrays[name][first : first + size] = values


def stored(settings: argparse.Namespace, name: str) -> Any:
    """An array of the benchmark."""
    import zarr

    return zarr.open_array(os.path.join(settings.data, f"{name}.zarr"), mode="r")


def measure_auc(settings: argparse.Namespace) -> Measured:
    """From disk or from memory, in the limit."""
    from protodask.engine import thread_engine
    from protodask.evaluation import auc

    score, label = stored(settings, settings.dtype), stored(settings, "label")
    if settings.kind == "memory":
        score, label = score[:], label[:]
    with thread_engine(settings.threads, settings.limit) as engine:
        began = time.perf_counter()
        found = auc(score, label, engine=engine)
        seconds = time.perf_counter() - began
    return Measured(
        settings.kind, settings.dtype, found.positives + found.negatives, seconds, common.peak_resident(os.getpid()),
        found.value, found.error_bound, found.passes, found.half_width,
    )  # fmt: skip


def measure_exact(settings: argparse.Namespace) -> Measured:
    """By sorted blocks of each class: for each pair of blocks, how many positives are above each negative, or tie."""
    import numpy as np

    began = time.perf_counter()
    scores, labels = stored(settings, settings.dtype), stored(settings, "label")
    blocks: dict[bool, list[Any]] = {False: [], True: []}
    for first in range(0, scores.shape[0], EXACT_BLOCK):
        score, label = scores[first : first + EXACT_BLOCK], labels[first : first + EXACT_BLOCK] == 1
        for positive in (False, True):
            blocks[positive].append(np.sort(score[label == positive]))
    won = 0  # twice the number of pairs, a whole number without bounds
    for negatives in blocks[False]:
        for positives in blocks[True]:
            not_above = np.searchsorted(positives, negatives, side="right").sum(dtype=np.int64)
            below = np.searchsorted(positives, negatives, side="left").sum(dtype=np.int64)
            won += 2 * len(negatives) * len(positives) - int(not_above) - int(below)
    counts = {positive: sum(map(len, blocks[positive])) for positive in blocks}
    value = won / (2 * counts[False] * counts[True])
    seconds = time.perf_counter() - began
    return Measured("exact", settings.dtype, sum(counts.values()), seconds, common.peak_resident(os.getpid()), value)


def measure_peer(settings: argparse.Namespace) -> Measured:
    """scikit-learn, on rows in memory."""
    metrics = common.peer("sklearn.metrics")
    score = stored(settings, settings.dtype)[: settings.peer_rows]
    label = stored(settings, "label")[: settings.peer_rows]
    began = time.perf_counter()
    value = float(metrics.roc_auc_score(label, score))
    seconds = time.perf_counter() - began
    return Measured("peer", settings.dtype, len(label), seconds, common.peak_resident(os.getpid()), value)


def in_fresh_process(settings: argparse.Namespace, kind: str, dtype: str, data: str) -> Measured:
    """Measure in a new process, which says what it found."""
    command = [sys.executable, __file__, "--kind", kind, "--dtype", dtype, "--data", data]
    command += ["--limit", str(settings.limit), "--threads", str(settings.threads)]
    command += ["--peer-rows", str(settings.peer_rows)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return Measured(**json.loads(done.stdout.splitlines()[-1]))


def compare(settings: argparse.Namespace, folder: str) -> tuple[list[Measured], list[common.Check]]:
    """Make the rows, and measure everything on them."""
    took = common.timed(lambda: in_child_process(settings.rows, folder))
    print(f"\nmade {settings.rows:,} rows in {took:.0f} s")
    table = common.Table(
        f"limit {settings.limit / common.MIB:.0f} MiB, {settings.threads} threads",
        ("run", "rows", "seconds", "ns/row", "peak MB", "B/row", "passes", "AUC", "bound", "true error", "interval +-"),
    )
    found: list[Measured] = []
    checks: list[common.Check] = []
    for dtype in settings.dtypes:
        exact = in_fresh_process(settings, "exact", dtype, folder)
        kinds = [kind for kind in settings.kinds if kind != "memory" or fits(settings, dtype)]
        for kind in (*kinds, "peer"):
            one = in_fresh_process(settings, kind, dtype, folder)
            show(table, one, None if kind == "peer" else abs(one.value - exact.value))
            found.append(one)
            if one.bound is not None:
                checks += [
                    common.Check(f"peak GB, {dtype} from {kind}", one.peak / 1e9, "<=", MOST_GB),
                    common.Check(f"bound on the error, {dtype} from {kind}", one.bound, "<=", MOST_ERROR),
                    common.Check(f"true error, {dtype} from {kind}", abs(one.value - exact.value), "<=", one.bound),
                ]
        show(table, exact, 0.0)
        found.append(exact)
    return found, checks


def fits(settings: argparse.Namespace, dtype: str) -> bool:
    """Whether the rows leave half of the limit."""
    return bool(settings.rows * (int(dtype.removeprefix("float")) // 8 + 1) <= settings.limit / 2)


def in_child_process(rows: int, folder: str) -> None:
    """Make the rows in a process of its own."""
    command = [sys.executable, __file__, "--kind", "make", "--data", folder, "--rows", str(rows)]
    subprocess.run(command, check=True)


def show(table: common.Table, one: Measured, error: float | None) -> None:
    """A row of the table."""
    table.row(
        f"{one.kind}, {one.dtype}", one.rows, one.seconds, one.seconds / one.rows * 1e9, one.peak / 1e6,
        one.peak / one.rows, one.passes, f"{one.value:.8f}", one.bound, error, one.half_width,
    )  # fmt: skip


def main() -> None:
    parser = common.make_parser(__doc__)
    parser.add_argument("--rows", type=common.positive, default=100_000_000, help="rows")
    parser.add_argument("--limit", type=common.byte_count, default=common.GIB, help="memory limit of the engine")
    parser.add_argument("--threads", type=common.positive, default=2, help="threads of the engine")
    parser.add_argument("--peer-rows", type=common.positive, default=10_000_000, help="rows for scikit-learn")
    parser.add_argument(
        "--dtypes", type=common.choices(("float32", "float64")), default=["float32", "float64"], help="of the scores"
    )
    parser.add_argument(
        "--kinds", type=common.choices(("disk", "memory")), default=["disk", "memory"], help="where the rows are"
    )
    parser.add_argument("--folder", help="where the rows are written, and removed afterwards")
    parser.add_argument("--kind", choices=("make", *KINDS), help=argparse.SUPPRESS)
    parser.add_argument("--dtype", help=argparse.SUPPRESS)
    parser.add_argument("--data", help=argparse.SUPPRESS)
    settings = parser.parse_args()
    match settings.kind:
        case "make":
            make_rows(settings.data, settings.rows)
        case "disk" | "memory":
            print(json.dumps(asdict(measure_auc(settings))))
        case "exact":
            print(json.dumps(asdict(measure_exact(settings))))
        case "peer":
            print(json.dumps(asdict(measure_peer(settings))))
        case _:
            measured_on = common.start("auc")
            with common.scratch(settings.folder) as folder:
                results, checks = compare(settings, folder)
            common.finish("auc", settings, measured_on, results, checks)


if __name__ == "__main__":
    main()
