"""Ten fits in one search, out of core: what the search reads, against what a fit alone reads.

The dataset (`blobs`) is four times the memory limit of the engine. A search of two settings on five folds, one batch
each, has ten fits; that is what `tune` does, candidates and all, with few candidates, so that reading matters. Then
some of the ten are fitted alone, the longest first: one setting and one fold through the same machinery, each with an
engine of its own whose cache is cold. The search may read 1.3 times what the longest does. What is read is counted
from the first to the last pass: a search needs two more than its fits, one for the folds and one for their statistics.

Counted are the bytes of the blocks that the dataset hands out: what the engine asks storage for, and what a cached
block spares it. They are the same in every run, on every machine. What the process has read from files meanwhile (rchar
of /proc/self/io: compressed chunks and what else Python reads) stands beside them, where the system tells it.

Evaluations are recorded, in the search as in the fits alone, and the records of a fit have to be the same to the last
bit: its candidates, every parameter vector with its value and gradient, and the held-out loss.
"""

from __future__ import annotations

import argparse
import os
import threading
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from protodask.data.format.dataset import Dataset
from protodask.data.format.schema import FEATURES, TARGET
from protodask.data.format.summary import summarize
from protodask.engine import Block, Engine, Layout, choose_block_rows, thread_engine
from protodask.prototypes.config import FitConfig
from protodask.prototypes.draws import without_fold
from protodask.prototypes.fitting import StoredRows, dataset_for_training
from protodask.prototypes.folds import folded_source, make_folds
from protodask.prototypes.footprint import shape_of
from protodask.prototypes.planning import require_shape
from protodask.prototypes.rounds import marginal_loss
from protodask.prototypes.runs import RunDirectory, read_run
from protodask.prototypes.scores import MemoryScores
from protodask.prototypes.training_data import TrainingData
from protodask.selection.config import SearchConfig
from protodask.selection.holdout import FoldData
from protodask.selection.results import SearchResult
from protodask.selection.search import FoldStep, Limits, Place, SearchEvent, fit_name, run_search
from protodask.selection.space import Setting
from protodask.selection.tuning import FITS, search_rows

if TYPE_CHECKING:
    from benchmarks import _common as common
else:
    import _common as common

MOST_READ = 1.3
"""Of what the longest fit reads."""
THREADS = 2
ROW_OVERHEAD = 4
"""Bytes of a target, beside 4 for each feature."""
SETTINGS, FOLDS = 2, 5
NOT_SETTINGS = ("format", "version", "environment", "checksum")
"""What a run directory says of itself besides the settings of its run."""


@dataclass(frozen=True, eq=False)
class CountedDataset:
    """A dataset that counts the bytes of the blocks it hands out, in this process."""

    dataset: Dataset
    _read: list[int] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def layout(self) -> Layout:
        return self.dataset.layout

    @property
    def key(self) -> str:
        return self.dataset.key

    @property
    def resident(self) -> bool:
        return False

    def read(self, number: int) -> Block:
        block = self.dataset.read(number)
        with self._lock:
            self._read.append(block.nbytes)
        return block

    @property
    def bytes_read(self) -> int:
        return sum(self._read)


@dataclass(frozen=True)
class Reading:
    """What the search, or a fit alone, read."""

    what: str
    fits: int
    evaluations: int
    """Of all its fits."""
    longest: int
    """Evaluations of the longest of its fits."""
    bytes_read: int
    passes: float
    """Bytes over those of the dataset."""
    file_bytes: int | None
    """As the system counts what this process reads; None where it does not say."""
    seconds: float
    same: bool | None = None
    """Whether a fit alone has the records of the one in the search."""


def file_bytes() -> int | None:
    """Bytes this process has read from files and pipes so far."""
    try:
        with open("/proc/self/io", encoding="ascii") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("rchar:"))
    except OSError:
        return None


def difference(now: int | None, before: int | None) -> int | None:
    return None if now is None or before is None else now - before


def settings_of(settings: argparse.Namespace) -> tuple[FitConfig, SearchConfig]:
    """What is fitted, and the search of ten fits."""
    config = FitConfig.of("source", n_candidates=settings.candidates, max_iterations=settings.max_iterations)
    search = SearchConfig(n_trials=SETTINGS, lambda_v=tuple(settings.lambda_v), max_batches=1, n_folds=FOLDS)
    return config, search


@dataclass(frozen=True)
class Searched:
    """The search as it went."""

    reading: Reading
    result: SearchResult
    steps: tuple[FoldStep, ...]


def run_whole(settings: argparse.Namespace, data: Dataset, folder: str) -> Searched:
    """The search, as `tune` does it with a run directory."""
    config, search = settings_of(settings)
    counted = CountedDataset(data)
    steps: list[FoldStep] = []

    def listen(event: SearchEvent) -> None:
        if isinstance(event, FoldStep):
            steps.append(event)

    def work() -> None:
        with thread_engine(THREADS, settings.limit) as engine:
            require_shape(shape_of(data, config.with_batches(1)), engine)
            training = replace(dataset_for_training(data), source=counted)
            stored = StoredRows(data, folder, recorded=True)
            found.append(search_rows(engine, training, config, search, grouped=False, stored=stored, listen=listen))

    found: list[SearchResult] = []
    before = file_bytes()
    seconds = common.timed(work)
    evaluations = [step.record.evaluations for step in steps]
    reading = Reading(
        what="the search",
        fits=len(steps),
        evaluations=sum(evaluations),
        longest=max(evaluations),
        bytes_read=counted.bytes_read,
        passes=counted.bytes_read / size_of(data),
        file_bytes=difference(file_bytes(), before),
        seconds=seconds,
    )
    return Searched(reading, found[0], tuple(steps))


def size_of(data: Dataset) -> int:
    """Bytes of the blocks of a dataset."""
    return data.n_rows * data.metadata.row_bytes


def part_of(engine: Engine, data: TrainingData, fold: int, seed: int) -> FoldData:
    """What the fits that hold a fold out are trained on."""
    n_classes = len(data.classes)
    assignment = make_folds(engine, data.source, n_classes, FOLDS, seed)
    source = without_fold(folded_source(data.source, assignment), fold)
    summary = summarize(engine, source, n_classes)
    loss = marginal_loss(summary.class_weight, data.summary.class_weight - summary.class_weight)
    return FoldData(fold, replace(data, source=source, array_names=(FEATURES.name, TARGET.name), summary=summary), loss)


def run_alone(settings: argparse.Namespace, data: Dataset, step: FoldStep, searched: str, folder: str) -> Reading:
    """One fit of the search by itself; what it needs to begin, folds and statistics, is not counted."""
    config, search = settings_of(settings)
    name = fit_name(step.setting, step.fold)
    counted = CountedDataset(data)
    with thread_engine(THREADS, settings.limit) as engine:
        part = part_of(engine, replace(dataset_for_training(data), source=counted), step.fold, config.seed)
    made_before = counted.bytes_read
    there, here = os.path.join(searched, FITS, name), os.path.join(folder, name)
    os.makedirs(here)
    # The seals of what is recorded are made from the settings.
    record = {key: value for key, value in read_run(there).items() if key not in NOT_SETTINGS}
    place = Place(lambda _: MemoryScores(), lambda name, setting, fold: RunDirectory.open(here, record))
    steps: list[SearchEvent] = []

    def work() -> None:
        with thread_engine(THREADS, settings.limit) as engine:
            limits = Limits(1, search.patience, search.least_gain)
            fast = replace(config, tolerance=search.tolerance)
            one = [Setting(step.setting.lambda_v, step.setting.lambda_w)]
            run_search(engine, [part], one, fast, limits, place, company="in step", most=1, listen=steps.append)

    before = file_bytes()
    seconds = common.timed(work)
    bytes_read = counted.bytes_read - made_before
    evaluations = next(event.record.evaluations for event in steps if isinstance(event, FoldStep))
    return Reading(
        what=f"lambda_v {step.setting.lambda_v:.3g}, fold {step.fold}",
        fits=1,
        evaluations=evaluations,
        longest=evaluations,
        bytes_read=bytes_read,
        passes=bytes_read / size_of(data),
        file_bytes=difference(file_bytes(), before),
        seconds=seconds,
        same=recorded(here) == recorded(there),
    )


def recorded(folder: str) -> dict[str, bytes]:
    """What a fit has recorded of its batches: candidates, evaluations, held-out losses."""
    found: dict[str, bytes] = {}
    for name in os.listdir(folder):
        if name.startswith("batch-"):
            with open(os.path.join(folder, name), "rb") as file:
                found[name] = file.read()
    if not found:
        raise ValueError(f"{folder} has no records to compare")
    return found


COLUMNS = ("", "fits", "evaluations", "longest", "read MiB", "passes", "files MiB", "seconds", "same bits")


def show(table: common.Table, row: Reading) -> None:
    table.row(
        row.what, row.fits, row.evaluations, row.longest, row.bytes_read / common.MIB, row.passes,
        None if row.file_bytes is None else row.file_bytes / common.MIB, row.seconds,
        None if row.same is None else "yes" if row.same else "NO",
    )  # fmt: skip


def compare(settings: argparse.Namespace, folder: str) -> tuple[list[Reading], list[common.Check]]:
    """Make the data, search, and repeat some of the fits alone."""
    row_bytes = 4 * settings.features + ROW_OVERHEAD
    rows = int(settings.scale * settings.multiple * settings.limit / row_bytes)
    where = os.path.join(folder, "data.zarr")
    took = common.timed(lambda: common.make_blobs(rows, where, choose_block_rows(rows, row_bytes), settings.features))
    data = Dataset.open(where)
    print(
        f"\nmade {rows:,} rows in {data.layout.n_blocks} blocks, {size_of(data) / common.GIB:.3g} GiB, in {took:.0f} s"
    )
    table = common.Table(
        f"{settings.features} features, {settings.candidates} candidates, limit {settings.limit / common.MIB:.0f} MiB",
        COLUMNS,
    )
    searched = os.path.join(folder, "search")
    os.makedirs(searched)
    whole = run_whole(settings, data, searched)
    peak = common.peak_resident(os.getpid())
    show(table, whole.reading)
    found = [whole.reading]
    alone = os.path.join(folder, "alone")
    order = sorted(whole.steps, key=lambda step: -step.record.evaluations)
    for step in order[: settings.alone]:
        found.append(run_alone(settings, data, step, searched, alone))
        show(table, found[-1])
    return found, checks_of(found, peak, settings)


def checks_of(found: Sequence[Reading], peak: int, settings: argparse.Namespace) -> list[common.Check]:
    whole, singles = found[0], found[1:]
    longest = max(one.bytes_read for one in singles)
    return [
        common.Check("fits of the search", whole.fits, ">=", SETTINGS * FOLDS),
        common.Check("read by the search, of the longest fit", whole.bytes_read / longest, "<=", MOST_READ),
        common.Check("fits alone that differ in a bit", sum(not one.same for one in singles), "<=", 0),
        common.Check("peak resident MiB", peak / common.MIB, "<=", settings.limit / common.MIB),
    ]


def main() -> None:
    parser = common.make_parser(__doc__)
    parser.add_argument("--limit", type=common.byte_count, default=576 * common.MIB, help="memory limit of the engine")
    parser.add_argument("--multiple", type=float, default=4.0, help="size of the dataset in limits")
    parser.add_argument("--scale", type=float, default=1.0, help="makes the dataset smaller, not the limit")
    parser.add_argument("--features", type=common.positive, default=100, help="features")
    parser.add_argument("--candidates", type=common.positive, default=20, help="candidates")
    parser.add_argument(
        "--lambda-v", type=float, nargs=2, default=[1e-4, 1e-2], metavar=("FIRST", "SECOND"), help="the two settings"
    )
    parser.add_argument("--max-iterations", type=common.positive, default=30, help="iterations of a fit, at most")
    parser.add_argument(
        "--alone", type=common.positive, default=1, metavar="N", help="repeat the N longest fits alone; 10 for all"
    )
    parser.add_argument("--folder", help="where the dataset is made, and removed afterwards")
    settings = parser.parse_args()
    measured_on = common.start("search_reading")
    with common.scratch(settings.folder) as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a fit may stop at the most iterations
        results, checks = compare(settings, folder)
    common.finish("search_reading", settings, measured_on, results, checks)


if __name__ == "__main__":
    main()
