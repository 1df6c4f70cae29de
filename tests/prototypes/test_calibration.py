"""What a calibration measures: passes like those of the fit, timed here by a clock that the passes themselves move."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support.shapes import make_shape

from protodask import plan
from protodask.data import Dataset, write_dataset
from protodask.data.format.schema import Column
from protodask.engine import Arrays, Engine, array_source, thread_engine, zip_sources
from protodask.engine.groups import Pass, split_blocks
from protodask.engine.reduction import Node
from protodask.engine.scheduling import Processes, thread_tasks
from protodask.prototypes import FitConfig, calibration, planning
from protodask.prototypes.calibration import FEWEST_ROWS, PASS_SECONDS, LikeRows, measured_layout
from protodask.prototypes.candidates import SCORES
from protodask.prototypes.footprint import Shape, shape_of
from protodask.prototypes.kernel import Standardization
from protodask.prototypes.objective import LIKELIHOOD, likelihood_block

MIB = 2**20

BLOCK_ROWS = 64

PASS_COST, ROW_COST, SCORE_COST = 0.01, 1e-4, 3e-5
"""Seconds of the clock for a pass, for each row of the busiest thread, and more where the row has scores."""


@pytest.fixture(scope="module")
def data(make_rows: Callable[..., dict[str, NDArray[Any]]], tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    columns = tuple(Column(f"x{position}") for position in range(3))
    path = tmp_path_factory.mktemp("calibration") / "data.zarr"
    rows = array_source(make_rows(64 * 40 + 7, 1), BLOCK_ROWS)
    return write_dataset(rows, path, classes=(0, 1), columns=columns, block_rows=BLOCK_ROWS)


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def perf_counter(self) -> float:
        return self.seconds


class ClockedScheduler:
    """Runs passes on another scheduler, and moves a clock by what an evaluation is to take."""

    def __init__(self, inner: Any, clock: Clock, claimed: Processes) -> None:
        self._inner = inner
        self._clock = clock
        self._claimed = claimed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    @property
    def n_tasks(self) -> int:
        return self._claimed.n_tasks

    def processes(self) -> Processes:
        return self._claimed

    def run(self, work: Pass, groups: Sequence[Sequence[int]], advance: Callable[[int], None]) -> list[Node[Any]]:
        nodes: list[Node[Any]] = self._inner.run(work, groups, advance)
        self._clock.seconds += PASS_COST
        if work.map is likelihood_block:
            block = work.source.read(groups[0][0])
            cost = ROW_COST + (SCORE_COST if SCORES in block else 0)
            claimed, layout = self._claimed, work.source.layout
            shares = [groups]
            if claimed.kind == "workers":
                shares = [split_blocks(group, thread_tasks(claimed.threads)) for group in groups]
            busy = [[0] * claimed.threads for _ in shares]
            for threads, share in zip(busy, shares, strict=True):
                for group in share:
                    bounds = [layout.bounds(number) for number in group]
                    threads[threads.index(min(threads))] += sum(stop - start for start, stop in bounds)
            self._clock.seconds += cost * max(map(max, busy))
        return nodes


@pytest.mark.slow
@pytest.mark.parametrize("n_batches", [1, 2])
@pytest.mark.parametrize(
    "processes",
    [
        Processes("threads", 1, 1, 2**30, 2**30),
        Processes("threads", 1, 3, 2**30, 2**30),
        Processes("workers", 5, 1, 2**30, 2**30),
        Processes("workers", 2, 2, 300 * MIB, 2**30),
    ],
    ids=lambda found: f"{found.kind}-{found.count}-{found.threads}",
)
def test_plan__expects_what_passes_of_the_fit_take(
    data: Dataset, n_batches: int, processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(calibration, "time", clock)
    with thread_engine(2, 2**30) as engine:
        scheduler: Any = ClockedScheduler(engine.scheduler, clock, processes)
        found = plan(data, FitConfig.of("source", n_candidates=30, n_batches=n_batches), Engine(scheduler))
        assert found.seconds is not None
        shape = found.shape
        scores: Arrays = {SCORES: np.full((data.n_rows, 2), 0.5)}
        source = zip_sources(data, array_source(scores, BLOCK_ROWS)) if n_batches == 2 else data
        before = clock.seconds
        problem = calibration.synthetic_problem(shape, Standardization(np.zeros(3), np.ones(3)))
        theta = np.ones(shape.n_features + problem.n_candidates)
        Engine(scheduler).reduce(source, LIKELIHOOD, problem, theta)
    # All blocks but one are of one length, so that the busiest thread's rows are known up to a block.
    assert found.seconds.evaluation == pytest.approx(clock.seconds - before, abs=(ROW_COST + SCORE_COST) * BLOCK_ROWS)
    if n_batches == 2:
        assert found.seconds.pair_nanoseconds * sum(shape.drawn) == pytest.approx(1e9 * (ROW_COST + SCORE_COST))


@pytest.mark.parametrize("options", [{}, {"n_batches": 2}, {"precision": "float64", "feature_forms": "all"}])
def test_like_rows__are_like_those_of_the_data(data: Dataset, options: dict[str, Any]) -> None:
    shape = shape_of(data, FitConfig.of("source", n_candidates=30, **options))
    found, block = LikeRows(data.layout, shape).read(40), data.read(40)
    assert (found.number, found.start, found.n_rows) == (block.number, block.start, block.n_rows)
    for name, array in block.arrays.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
    assert found.arrays.keys() - block.arrays.keys() == ({SCORES} if shape.scored else set())
    assert set(found["target"].tolist()) == {0, 1}


@pytest.mark.parametrize(
    "other",
    [
        make_shape((600, 400), 5, 128),
        make_shape((600, 300, 100), 3, 128),
        make_shape((600, 400), 3, 128, feature_bytes=8),
        make_shape((600, 400), 3, 128, weight_columns=1),
        make_shape((600, 400), 3, 128, n_batches=2),
    ],
)
def test_like_rows__of_another_shape_are_not_taken_from_what_workers_kept(other: Shape) -> None:
    shape = make_shape((600, 400), 3, 128)
    assert LikeRows(shape.layout, shape).key == LikeRows(shape.layout, make_shape((500, 500), 3, 128)).key
    assert LikeRows(shape.layout, shape).key != LikeRows(shape.layout, other).key


@pytest.mark.parametrize("threads", [1, 4, 60])
def test_measured_layout__has_blocks_for_every_thread(data: Dataset, threads: int) -> None:
    shape = shape_of(data, FitConfig.of("source", n_candidates=30))
    layout = measured_layout(shape, Processes("threads", 1, threads, 2**30, 2**30))
    assert layout.block_rows == BLOCK_ROWS
    assert min(threads, 40) <= layout.n_blocks <= 40
    assert layout.n_rows <= data.n_rows


@pytest.mark.parametrize("candidates", [10, 100, 1000, 20_000])
@pytest.mark.parametrize("features", [3, 300, 10**5])
def test_measured_layout__is_of_parts_of_long_blocks(candidates: int, features: int) -> None:
    shape = make_shape((10**7,) * 2, features, 2**18, n_candidates=candidates)
    for processes in (Processes("threads", 1, 4, 2**30, 2**30), Processes("workers", 3, 2, 2**30, 2**30)):
        layout = measured_layout(shape, processes)
        assert layout.n_blocks >= processes.n_threads
        assert FEWEST_ROWS <= layout.block_rows <= 2**18
        of_a_thread = layout.n_rows // processes.n_threads
        seconds = 1e-9 * candidates * of_a_thread * (1 + 0.04 * features)
        assert seconds <= PASS_SECONDS or of_a_thread == FEWEST_ROWS


def test_measured_layout__of_one_block() -> None:
    shape = make_shape((25, 25), 3, 2**18, n_candidates=30)
    layout = measured_layout(shape, Processes("threads", 1, 4, 2**30, 2**30))
    assert (layout.n_rows, layout.n_blocks) == (50, 1)


def test_plan__counts_the_reading_of_what_is_not_kept(data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = calibration.Calibration(1e-6, 0.01, 1e3, True, 1.0)
    monkeypatch.setattr(calibration, "calibrate", lambda *_: measured)
    for memory, evaluation_bytes in ((1, data.n_rows * data.metadata.row_bytes), (2**30, 0)):
        with thread_engine(1, memory) as engine:
            planned = planning.plan(data, FitConfig.of("source", n_candidates=30), engine)
        assert planned.evaluation_bytes == evaluation_bytes
        assert planned.seconds is not None
        assert planned.seconds.evaluation == pytest.approx(0.01 + 1e-6 * data.n_rows + evaluation_bytes / 1e3)
