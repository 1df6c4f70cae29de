"""What a calibration measures: passes like those of the fit, timed here by a clock that the passes themselves move."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from protodask import plan
from protodask.data import Dataset, write_dataset
from protodask.data.format.schema import Column
from protodask.engine import Engine, Layout, array_source, thread_engine
from protodask.engine.groups import Pass, split_blocks
from protodask.engine.reduction import Node
from protodask.engine.scheduling import Processes, thread_tasks
from protodask.engine.sources import leaves
from protodask.prototypes import FitConfig, calibration, planning
from protodask.prototypes.calibration import BLOCK_SECONDS, EvenScores, Excerpt, excerpt, with_scores
from protodask.prototypes.candidates import SCORES
from protodask.prototypes.footprint import Shape, shape_of, streamed_row_bytes
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
        source = with_scores(Excerpt(data, tuple(range(shape.layout.n_blocks)), BLOCK_ROWS), shape, stored=False)
        assert source.layout == data.layout
        before = clock.seconds
        problem = calibration.synthetic_problem(shape, Standardization(np.zeros(3), np.ones(3)))
        theta = np.ones(shape.n_features + problem.n_candidates)
        Engine(scheduler).reduce(source, LIKELIHOOD, problem, theta)
    # All blocks but one are of one length, so that the busiest thread's rows are known up to a block.
    assert found.seconds.evaluation == pytest.approx(clock.seconds - before, abs=(ROW_COST + SCORE_COST) * BLOCK_ROWS)
    if n_batches == 2:
        assert found.seconds.pair_nanoseconds * sum(shape.drawn) == pytest.approx(1e9 * (ROW_COST + SCORE_COST))


def test_excerpt__has_rows_of_the_data_for_every_thread(data: Dataset) -> None:
    shape = shape_of(data, FitConfig.of("source", n_candidates=30))
    for threads in (1, 4, 60):
        part = excerpt(data, shape, Processes("threads", 1, threads, 2**30, 2**30))
        assert min(threads, 40) <= part.layout.n_blocks <= 40
        assert list(part.numbers) == sorted(set(part.numbers))
        for number, original in enumerate(part.numbers):
            block, expected = part.read(number), data.read(original)
            assert (block.number, block.start) == (number, number * BLOCK_ROWS)
            for name, array in expected.arrays.items():
                np.testing.assert_array_equal(block[name], array)


def test_excerpt__takes_the_first_rows_of_long_blocks(data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "FEWEST_ROWS", 8)
    shape = replace(shape_of(data, FitConfig.of("source", n_candidates=30)), n_features=10**8)
    part = excerpt(data, shape, Processes("workers", 2, 1, 2**30, 2**30))
    assert (part.rows, part.layout) == (8, Layout(16, 8))
    np.testing.assert_array_equal(part.read(1)["features"], data.read(part.numbers[1])["features"][:8])
    assert part.read(1)["features"].base is None


@pytest.mark.parametrize("memory", [300, 600, 1200, 2**16])
@pytest.mark.parametrize("candidates", [100, 1000, 20_000])
def test_excerpt__is_kept_by_the_caches_or_is_a_block_a_thread(data: Dataset, memory: int, candidates: int) -> None:
    shape = Shape((10**7,) * 2, 30, candidates, 2, Layout(2 * 10**7, 2**18), 4, 0, 0.5, "float32", True)
    for processes in (
        Processes("threads", 1, 4, memory * MIB, memory * MIB),
        Processes("workers", 3, 2, memory * MIB, memory * MIB),
    ):
        part = excerpt(data, shape, processes)
        each = len(part.numbers) / processes.n_threads
        assert each >= 1
        if each > 1:
            block_bytes = part.rows * streamed_row_bytes(shape, stored=True)
            assert each * processes.threads * block_bytes <= processes.cache_bytes
        assert part.rows == 2**18 or 2e-9 * candidates * part.rows <= BLOCK_SECONDS


def test_excerpt__of_one_block(make_rows: Callable[..., dict[str, NDArray[Any]]], tmp_path: Path) -> None:
    columns = tuple(Column(f"x{position}") for position in range(3))
    data = write_dataset(array_source(make_rows(50, 1), 64), tmp_path / "d.zarr", classes=(0, 1), columns=columns)
    part = excerpt(data, shape_of(data, FitConfig.of("source")), Processes("threads", 1, 4, 2**30, 2**30))
    assert part.layout.n_rows == part.read(0).n_rows == 50


@pytest.mark.parametrize("stored", [False, True])
def test_with_scores__are_where_those_of_the_fit_are(data: Dataset, stored: bool) -> None:
    shape = shape_of(data, FitConfig.of("source", n_candidates=30, n_batches=2))
    part = excerpt(data, shape, Processes("threads", 1, 2, 2**30, 2**30))
    source = with_scores(part, shape, stored)
    _, scores = leaves(source)
    assert scores.resident != stored
    assert isinstance(scores, EvenScores) == stored
    np.testing.assert_array_equal(source.read(1)[SCORES], np.full((BLOCK_ROWS, 2), 0.5))
    assert with_scores(part, replace(shape, scored=False), stored) is part


def test_plan__counts_reading_once(data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = calibration.Calibration(1e-6, 1e-6, 0.01, False, 1e3, True, 1.0)
    processes = Processes("threads", 1, 1, 1, 1)  # no block can be kept
    found: dict[bool, float] = {}
    for counted in (False, True):
        result = replace(measured, reading_counted=counted)
        monkeypatch.setattr(calibration, "calibrate", lambda *_, result=result: result)
        with thread_engine(1, 1) as engine:
            planned = planning.plan(data, FitConfig.of("source", n_candidates=30), engine)
        assert planned.processes == processes
        assert planned.seconds is not None
        found[counted] = planned.seconds.evaluation
    assert found[False] - found[True] == pytest.approx(data.n_rows * data.metadata.row_bytes / 1e3)
