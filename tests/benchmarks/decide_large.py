"""Decisions on many predictions in a store: seconds and peak memory of `protodask decide`, for each loss.

The predictions are made on disk, `--rows` of them with two classes, block by block in a process of its own: the
probability of the second class is drawn from a beta distribution of mean `--mean`, keyed by block. For each loss a
fresh process then runs the command and is watched until it ends; peak memory is the largest resident size that the
system saw of it, and `--memory-limit` is what the command is told. The files of the predictions stay in the system's
cache where it keeps them.

Before that, `--check` compares with the exact code: on 2,000 items of five kinds of distribution and for all named
losses, by how much the exact expected loss of the number selected exceeds the least one (`regret`), and by how much
the expected loss reported is off (`error`). And on a million items the passes over bins are compared with sorting:
every number about the one selected, and a thousand others, evaluated from sums over the sorted probabilities. Last,
a million items are decided on in groups of one to 100,000.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks import _common as common
else:
    import _common as common

LOSSES = ("am", "f1", "jaccard", "g_tp_pr", "g_mean", "h_mean", "auc")
EXACT_ITEMS = 2000
SORTED_ITEMS = 1_000_000
GROUP_ITEMS = (1, 10, 100, 1000, 100_000)
WANTED_SECONDS = 180.0
WANTED_GROUPED_SECONDS = 60.0
"""For groups of ten."""
WANTED_BYTES = 10**9
WANTED_REGRET = 1e-4
WATCH_SECONDS = 0.05

MAKE = """
import sys
import numpy as np
from protodask.data.arrays.array_store import ArrayStore
from protodask.data.arrays.plain_arrays import ArraySpec
from protodask.data.places.records import seal
from protodask.engine import Layout
rows, mean, out = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
layout = Layout(rows, 2**20)
store = ArrayStore(out, layout, (ArraySpec("probability", "float64", 2),), "benchmark")
record = {"format": "protodask-predictions", "version": 1, "model": "none", "n_batches": 1, "classes": [0, 1],
          "rows": rows, "identity": "benchmark"}
store.create(seal(record, "predictions"))
for number in range(layout.n_blocks):
    start, stop = layout.bounds(number)
    eta = np.random.default_rng([0, number]).beta(2 * mean, 2 * (1 - mean), size=stop - start)
    store.write(number, start, {"probability": np.stack([1 - eta, eta], axis=1)})
"""


@dataclass(frozen=True)
class Run:
    """One run of the command."""

    loss: str
    rows: int
    seconds: float
    peak_bytes: int
    selected: int
    expected_loss: float
    loss_at_half: float


@dataclass(frozen=True)
class Compared:
    """The large-n method against the exact one."""

    shape: str
    loss: str
    selected: int
    best: int
    regret: float
    error: float


@dataclass(frozen=True)
class Grouped:
    """Seconds of decisions for groups of so many items."""

    items: int
    am_seconds: float
    f1_seconds: float


def shapes(items: int) -> dict[str, Any]:
    """Five kinds of distribution of probabilities."""
    import numpy as np

    random = np.random.default_rng(0)
    sure = random.uniform(size=items) < 0.3
    return {
        "uniform": random.uniform(size=items),
        "skewed, mean 0.001": random.beta(0.05, 49.95, size=items),
        "two kinds": np.where(sure, random.beta(20, 1, size=items), random.beta(1, 20, size=items)),
        "mostly sure": 1 - random.beta(0.3, 30, size=items),
        "tied in tenths": np.round(random.beta(1, 3, size=items), 1),
    }


def compare_exact() -> list[Compared]:
    """Against `expected_losses`."""
    import numpy as np

    from protodask.decisions import expected_losses
    from protodask.decisions.large import decide_normal

    table = common.Table(
        f"{EXACT_ITEMS:,} items, against exact sums", ("distribution", "loss", "k", "best k", "regret", "error")
    )
    found = []
    for shape, probability in shapes(EXACT_ITEMS).items():
        for loss in LOSSES:
            exact = expected_losses(probability, loss)
            chosen = decide_normal(probability, loss)
            one = Compared(
                shape, loss, chosen.k, int(np.argmin(exact)), float(exact[chosen.k] - exact.min()),
                float(abs(chosen.expected_loss - exact[chosen.k])),
            )  # fmt: skip
            table.row(shape, loss, one.selected, one.best, one.regret, one.error)
            found.append(one)
    return found


def compare_sorted() -> list[Compared]:
    """Against the same formulas on sums over the sorted probabilities, without bins."""
    import numpy as np

    from protodask.decisions import as_loss
    from protodask.decisions.large import decide_normal
    from protodask.decisions.quadrature import SMALL, expected_losses

    table = common.Table(
        f"{SORTED_ITEMS:,} items, against sorting them", ("distribution", "loss", "k", "best k", "regret", "error")
    )
    found = []
    for shape, probability in shapes(SORTED_ITEMS).items():
        ordered = -np.sort(-probability)
        spread = ordered * (1 - ordered)
        columns = np.stack([ordered, spread, spread * (1 - 2 * ordered), spread * (1 - 6 * spread)], axis=1)
        before = np.concatenate([np.zeros((1, 4)), np.cumsum(columns, axis=0)])
        after = np.concatenate([np.cumsum(columns[::-1], axis=0)[::-1], np.zeros((1, 4))])
        for loss in LOSSES:
            form = as_loss(loss)
            chosen = decide_normal(probability, loss)
            places = {chosen.k, *range(max(0, chosen.k - 50), min(SORTED_ITEMS, chosen.k + 50) + 1)}
            places |= set(np.linspace(0, SORTED_ITEMS, 1001).astype(int).tolist())
            every = np.array(sorted(places))
            every = every[np.minimum(before[every, 1], after[every, 1]) > SMALL]  # where no transform is needed
            selected, others = _counts(every, before[every]), _counts(SORTED_ITEMS - every, after[every])
            values: dict[int, float] = {}
            if len(every):
                values = dict(zip(every.tolist(), expected_losses(selected, others, form).tolist(), strict=True))
            own = values.get(chosen.k, chosen.expected_loss)
            least = min([own, *values.values()])
            best = min([chosen.k, *values], key=lambda k: values.get(k, own))
            one = Compared(shape, loss, chosen.k, best, own - least, abs(chosen.expected_loss - own))
            table.row(shape, loss, one.selected, one.best, one.regret, one.error)
            found.append(one)
    return found


def time_groups() -> list[Grouped]:
    """A million items in groups of one size, in memory, decided for AM and for F1."""
    import numpy as np

    from protodask.decisions import decide_groups

    probability = shapes(SORTED_ITEMS)["tied in tenths"] * 0.9 + np.random.default_rng(1).uniform(0, 0.1, SORTED_ITEMS)
    table = common.Table(f"{SORTED_ITEMS:,} items in groups", ("items of a group", "groups", "am s", "f1 s"))
    found = []
    for items in GROUP_ITEMS:
        group = np.arange(SORTED_ITEMS) // items
        am, f1 = (common.timed(partial(decide_groups, probability, group, loss)) for loss in ("am", "f1"))
        found.append(Grouped(items, am, f1))
        table.row(items, SORTED_ITEMS // items, am, f1)
    return found


def _counts(rows: Any, cumulants: Any) -> Any:
    import numpy as np

    from protodask.decisions.ranked import Counts

    none = np.zeros(len(rows), dtype=np.int64)
    return Counts(rows, cumulants, none, none > 0, np.zeros((0, 0), dtype=np.complex128))


def watched(command: list[str]) -> tuple[str, float, int]:
    """Output, seconds and largest resident size of a process."""
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    peak = 0

    def watch() -> None:
        nonlocal peak
        while process.poll() is None:
            peak = max(peak, common.peak_resident(process.pid))
            time.sleep(WATCH_SECONDS)

    watcher = threading.Thread(target=watch)
    watcher.start()
    output, _ = process.communicate()
    watcher.join()
    if process.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {process.returncode}")
    return output, time.perf_counter() - began, peak


def decide(settings: argparse.Namespace, folder: str) -> list[Run]:
    """The command on the store, for each loss."""
    import json

    predictions, out = os.path.join(folder, "predictions.zarr"), os.path.join(folder, "decisions.zarr")
    making = [sys.executable, "-c", MAKE, str(settings.rows), str(settings.mean), predictions]
    took = common.timed(lambda: subprocess.run(making, check=True))
    print(f"\nmade {settings.rows:,} predictions in {took:.0f} s")
    table = common.Table(
        f"{settings.rows:,} rows, told to use {settings.limit / common.MIB:,.0f} MiB",
        ("loss", "seconds", "peak MiB", "selected", "expected", "at 0.5"),
    )
    found = []
    for loss in settings.losses:
        command = [sys.executable, "-m", "protodask", "decide", predictions, "--loss", loss, "--out", out]
        command += ["--overwrite", "--json", "--memory-limit", str(settings.limit)]
        output, seconds, peak = watched(command)
        said = json.loads(output)
        run = Run(loss, settings.rows, seconds, peak, said["selected"], said["expected_loss"], said["loss_at_half"])
        table.row(loss, seconds, peak / common.MIB, run.selected, run.expected_loss, run.loss_at_half)
        found.append(run)
    return found


def main() -> None:
    parser = common.make_parser(__doc__)
    parser.add_argument("--rows", type=common.positive, default=100_000_000, help="rows of the predictions")
    parser.add_argument("--mean", type=float, default=0.1, help="mean probability")
    parser.add_argument("--losses", type=common.choices(LOSSES), default=list(LOSSES), help="losses, by commas")
    parser.add_argument("--limit", type=common.byte_count, default=10**9, help="memory limit told to the command")
    parser.add_argument("--check", action="store_true", help="compare with the exact code and with sorting, too")
    parser.add_argument("--folder", help="where the predictions are made, and removed afterwards")
    settings = parser.parse_args()
    measured_on = common.start("decide_large")
    results: list[Any] = []
    checks: list[common.Check] = []
    if settings.check:
        for name, compared in (("exact", compare_exact()), ("sorted", compare_sorted())):
            results += compared
            checks.append(common.Check(f"regret, {name}", max(one.regret for one in compared), "<=", WANTED_REGRET))
            checks.append(common.Check(f"error, {name}", max(one.error for one in compared), "<=", WANTED_REGRET))
        grouped = time_groups()
        results += grouped
        tens = max(max(one.am_seconds, one.f1_seconds) for one in grouped if one.items == 10)
        checks.append(common.Check("seconds, groups of ten", tens, "<=", WANTED_GROUPED_SECONDS))
    with common.scratch(settings.folder) as folder:
        runs = decide(settings, folder)
    results += runs
    checks.append(common.Check("seconds", max(run.seconds for run in runs), "<=", WANTED_SECONDS))
    checks.append(common.Check("peak bytes", float(max(run.peak_bytes for run in runs)), "<=", float(WANTED_BYTES)))
    common.finish("decide_large", settings, measured_on, results, checks)


if __name__ == "__main__":
    main()
