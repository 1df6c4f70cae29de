"""Plans: what they say, against what happens, and the refusal of what does not fit."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.errors import refused
from support.shapes import make_shape

from protodask import plan
from protodask.data import Dataset, write_dataset
from protodask.data.format.schema import Column
from protodask.data.tables.ingest import ingest_arrays
from protodask.engine import Block, Engine, Layout, array_source, thread_engine
from protodask.engine.groups import Pass
from protodask.engine.reduction import Node
from protodask.engine.scheduling import Processes
from protodask.prototypes import ConvergenceWarning, FitConfig, fit, planning
from protodask.prototypes.config import FeatureWeights
from protodask.prototypes.footprint import Shape, fits
from protodask.prototypes.planning import (
    FINISHING_EVALUATIONS,
    HELD_OUT_EVALUATIONS,
    Change,
    Plan,
    misfit,
    plan_shape,
    remedies,
)

MIB = 2**20

QUICK = FitConfig.of("source", n_candidates=30, max_iterations=11, tolerance=1.0)


@pytest.fixture(scope="module")
def small(make_rows: Callable[..., dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    columns = tuple(Column(f"x{position}") for position in range(3))
    path = tmp_path_factory.mktemp("small") / "data.zarr"
    return write_dataset(array_source(make_rows(500, 1), 64), path, classes=(0, 1), columns=columns, block_rows=64)


WIDE = 4000
"""Features whose candidates take more memory than small limits leave."""


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    random = np.random.default_rng(0)
    rows: dict[str, NDArray[Any]] = {
        "features": random.normal(size=(600, WIDE)),
        "target": np.arange(600, dtype=np.int32) % 2,
    }
    columns = tuple(Column(f"x{position}") for position in range(WIDE))
    path = tmp_path_factory.mktemp("wide") / "data.zarr"
    return write_dataset(array_source(rows, 64), path, classes=(0, 1), columns=columns, block_rows=64)


class CountingScheduler:
    """Counts tasks on their way to another scheduler."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.tasks: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def run(self, work: Pass, groups: Sequence[Sequence[int]], advance: Callable[[int], None]) -> list[Node[Any]]:
        self.tasks.append(len(groups))
        nodes: list[Node[Any]] = self._inner.run(work, groups, advance)
        return nodes


def test_plan__counts_are_those_of_the_fit(small: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    with thread_engine(2, 2**30) as engine:
        found = plan(small, QUICK, engine, calibrate=False)
        scheduler: Any = CountingScheduler(engine.scheduler)
        read: list[int] = []
        original = Dataset.read

        def counted(self: Dataset, number: int) -> Block:
            block = original(self, number)
            read.append(block.nbytes)
            return block

        monkeypatch.setattr(Dataset, "read", counted)
        fit(small, QUICK, engine=Engine(scheduler))
    assert found.tasks == max(scheduler.tasks) == scheduler.tasks[-1]
    assert sum(read) == found.first_evaluation_bytes == small.n_rows * small.metadata.row_bytes
    assert found.evaluation_bytes == 0
    assert found.evaluations == 12
    assert found.seconds is None


def test_plan__describes_itself_in_plain_values(small: Dataset) -> None:
    with thread_engine(1, 2**30) as engine:
        found = plan(small, engine=engine, calibrate=False)
        described = found.describe()
    assert described["worker_bytes"] == sum(described["worker_parts"].values()) == described["driver_bytes"]
    assert (described["rows"], described["blocks"], described["candidates"]) == (500, 8, 500)
    assert (described["fits"], described["remedies"], described["seconds"]) == (True, [], None)
    assert described["assumed_evaluations"] == HELD_OUT_EVALUATIONS + FINISHING_EVALUATIONS
    assert described["rounds"] == 4, "a round of each of four draws"


@pytest.mark.parametrize("feature_weights", ["shared", "class", "both"])
def test_plan__counts_batches_as_the_model_does(small: Dataset, feature_weights: FeatureWeights) -> None:
    config = FitConfig(2, feature_weights, n_candidates=30, n_draws=3, hold_out=0.0, max_iterations=2)
    with warnings.catch_warnings(), thread_engine(1, 2**30) as engine:
        warnings.simplefilter("ignore", ConvergenceWarning)
        described = plan(small, config, engine, calibrate=False).describe()
        found = fit(small, config, engine=engine)
    assert described["batches"] == found.model.n_batches
    assert described["rounds"] == len(found.history) == 6


def test_plan__says_how_many_batches_there_may_be_by_region(tmp_path: Path) -> None:
    """Nothing was said of them."""
    rank = np.random.default_rng(0).integers(0, 3, (2500, 4)).astype(np.float64)
    target = (rank[:, 0] + rank[:, 1] >= 2) * 2 + (rank[:, 2] + rank[:, 3] >= 2)
    data = ingest_arrays(rank, target, tmp_path / "data.zarr")
    config = FitConfig(n_candidates=1200, n_draws=2, max_iterations=2)
    with warnings.catch_warnings(), thread_engine(1, 2**30) as engine:
        warnings.simplefilter("ignore", ConvergenceWarning)
        described = plan(data, config, engine, calibrate=False).describe()
        found = fit(data, config, engine=engine)
        by_class = plan(data, replace(config, feature_weights="class"), engine, calibrate=False).describe()
        few = plan(data, replace(config, n_candidates=60), engine, calibrate=False).describe()
    assert found.history[0].by_region
    batches = sum(record.batches or 0 for record in found.history)
    assert described["batches"] == 5 < batches <= described["most_batches"] == 1208 // 16 + 1
    assert by_class["batches"] == by_class["most_batches"] == 8
    assert few["batches"] == few["most_batches"] == 5


def check_seconds(found: Plan) -> None:
    assert found.seconds is not None
    assert 0 < found.seconds.evaluation < found.seconds.batch < np.inf
    assert found.seconds.read_bytes_per_second > 0
    assert found.seconds.calibration > 0


def test_plan__calibrated_on_threads(small: Dataset) -> None:
    heard: list[Any] = []
    with thread_engine(2, 2**30) as engine:
        check_seconds(plan(small, QUICK, engine.with_progress(heard.append)))
        # Its own passes stay silent, and leave an engine that works.
        assert heard == []
        assert fit(small, QUICK, engine=engine).model.n_batches == 1


def test_plan__one_block_is_read_warm(make_rows: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    columns = tuple(Column(f"x{position}") for position in range(3))
    data = write_dataset(array_source(make_rows(50, 1), 64), tmp_path / "d.zarr", classes=(0, 1), columns=columns)
    with thread_engine(2, 2**30) as engine:
        seconds = plan(data, QUICK, engine).seconds
    assert seconds is not None
    assert seconds.read_warm


def test_plan__of_something_else_is_refused() -> None:
    data: Any = np.zeros((3, 3))
    with refused("wrong-type", "ndarray", "`ingest`", "`Dataset.open`"):
        plan(data)


def test_fit__that_does_not_fit_is_refused_before_anything_is_read(
    wide: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = FitConfig.of("source", n_candidates=600, max_iterations=1)

    def read(self: Dataset, number: int) -> Block:
        raise AssertionError("a row was read")

    monkeypatch.setattr(Dataset, "read", read)
    with thread_engine(1, 300 * MIB) as engine:
        found = plan(wide, config, engine)
        assert not found.fits
        run = tmp_path / "run"
        with refused("over-memory", "300 MiB", "`plan()`", *(remedy.text for remedy in found.remedies)):
            fit(wide, config, run_dir=run, engine=engine)
        assert not run.exists()
        would_do = {remedy.setting: remedy for remedy in found.remedies}
        fewer = int(would_do["candidates"].value)
        assert plan(wide, replace(config, n_candidates=fewer), engine, calibrate=False).fits
        # It is let through, as far as to the reading.
        with pytest.raises(AssertionError, match="a row was read"):
            fit(wide, replace(config, n_candidates=fewer), engine=engine)
    with (
        thread_engine(1, int(would_do["memory"].value)) as engine,
        pytest.raises(AssertionError, match="a row was read"),
    ):
        fit(wide, config, engine=engine)


def test_fit__small_problems_run_whatever_the_limit(small: Dataset) -> None:
    with thread_engine(2, 1) as engine:
        assert fit(small, QUICK, engine=engine).model.n_batches == 1


@pytest.mark.slow
def test_plan__scores_go_where_there_is_room() -> None:
    shape = make_shape((10**6,) * 2, 30, 2**18, n_batches=2)
    plans = [plan_shape(shape, Processes("threads", 1, 2, size * MIB, size * MIB)) for size in range(600, 2000, 4)]
    allowed = [shape.score_bytes <= found.processes.resident_bytes for found in plans]
    assert not any(found.scores_stored for found, may in zip(plans, allowed, strict=True) if may and found.fits)
    assert all(found.scores_stored for found, may in zip(plans, allowed, strict=True) if not may)
    assert {found.scores_stored for found in plans if found.fits} == {True, False}


shapes = st.builds(
    lambda rows, classes, features, candidates, batches, power, wide, precision: make_shape(
        (rows,) * classes,
        features,
        2**power,
        8 if wide else 4,
        n_candidates=candidates,
        n_batches=batches,
        precision=precision,
    ),
    st.integers(1000, 10**7),
    st.integers(2, 10),
    st.integers(1, 1000),
    st.integers(10, 10**5),
    st.integers(1, 2),
    st.integers(10, 20),
    st.booleans(),
    st.sampled_from(["float32", "float64"]),
)
computing = st.builds(
    lambda kind, count, threads, memory, driver: Processes(
        kind,
        count if kind == "workers" else 1,
        threads,
        memory * MIB,
        memory * MIB if kind == "threads" else driver * MIB,
    ),
    st.sampled_from(["threads", "workers"]),
    st.integers(1, 4),
    st.integers(1, 16),
    st.integers(256, 2**12),
    st.integers(256, 2**12),
)


@st.composite
def tight(draw: st.DrawFn) -> tuple[Shape, Processes]:
    """A fit and processes of which one has hardly the memory that it takes, or less."""
    shape, processes = draw(shapes), draw(computing)
    needed, share = plan_shape(shape, processes), draw(st.floats(0.2, 1.3))
    if processes.kind == "threads":
        memory = int(needed.worker.total * share)
        return shape, replace(processes, memory_bytes=memory, driver_bytes=memory)
    if draw(st.booleans()):
        return shape, replace(processes, memory_bytes=int(needed.worker.total * share))
    return shape, replace(processes, driver_bytes=int(needed.driver.total * share))


@settings(max_examples=100)
@given(tight())
def test_remedies__each_makes_it_fit(case: tuple[Shape, Processes]) -> None:
    shape, processes = case
    found = plan_shape(shape, processes)
    event(f"fits: {found.fits}")
    assert found.fits == fits(shape, processes)
    if found.fits:
        assert found.remedies == ()
        return
    changes = list(remedies(shape, processes))
    assert found.remedies == tuple(remedy for remedy, _, _ in changes) != ()
    for remedy, changed, on in changes:
        assert fits(changed, on)
        assert (changed, on) != (shape, processes)
        assert remedy.text in str(misfit(found))


def changes_for(shape: Shape, processes: Processes) -> dict[str, Change]:
    """What would do, by the setting."""
    return {change[0].setting: change for change in remedies(shape, processes)}


BIG_BLOCKS = make_shape((10**7,) * 2, 32, 2**19, 8, n_candidates=300, precision="float64")
"""130 MiB of float64."""

MANY_CANDIDATES = make_shape((10**6,) * 2, 100, 2**16, n_candidates=10**5)
"""A driver needs half a gibibyte for them and more."""


@pytest.mark.parametrize("machine", [5 * 1170, 2**20])
def test_remedies__workers_get_what_the_machine_has(machine: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "process_memory_limit", lambda: machine * MIB)
    for limit in (1150, 2000):
        processes = Processes("threads", 1, 4, limit * MIB, limit * MIB)
        changes = changes_for(BIG_BLOCKS, processes)
        assert ("workers" in changes) == (limit > 1158)
    remedy, _, workers = changes["workers"]
    assert (workers.kind, workers.count, workers.threads) == ("workers", 4, 1)
    assert workers.memory_bytes == min(2000, machine // 5) * MIB
    assert workers.count * workers.memory_bytes + workers.driver_bytes <= machine * MIB
    assert f"(n_workers=4, memory_limit={workers.memory_bytes})" in remedy.text


def test_remedies__of_threads_say_when_the_machine_has_too_little(monkeypatch: pytest.MonkeyPatch) -> None:
    processes = Processes("threads", 1, 4, 1280 * MIB, 1280 * MIB)
    enough = plan_shape(BIG_BLOCKS, processes).remedies[-1]
    assert enough.text.endswith(f"(memory_bytes={enough.value})")
    monkeypatch.setattr(planning, "process_memory_limit", lambda: 1280 * MIB)
    short = plan_shape(BIG_BLOCKS, processes).remedies[-1]
    assert (short.value, short.setting) == (enough.value, "memory")
    assert short.text.endswith(f"(memory_bytes={short.value}), on a machine with more memory")


def test_remedies__fewer_threads_make_no_new_workers() -> None:
    processes = Processes("workers", 3, 4, 1280 * MIB, 2**37)
    remedy, _, fewer = changes_for(BIG_BLOCKS, processes)["threads"]
    assert fewer == replace(processes, threads=int(remedy.value))


@pytest.mark.parametrize(("worker", "settings"), [(2**16, "driver_memory"), (512, "memory")])
def test_remedies__of_a_driver_with_too_little_memory(worker: int, settings: str) -> None:
    found = plan_shape(MANY_CANDIDATES, Processes("workers", 2, 1, worker * MIB, 300 * MIB))
    assert found.driver.total > 300 * MIB
    remedy = found.remedies[-1]
    assert remedy.setting == settings
    assert f"{-(-found.driver.total // MIB):,} MiB of memory for this process, which drives" in remedy.text
    assert str(misfit(found)).count(" do: ") == 1
    assert ". ." not in str(misfit(found))
    _, _, enough = changes_for(MANY_CANDIDATES, found.processes)[settings]
    assert fits(MANY_CANDIDATES, enough)
    assert not fits(MANY_CANDIDATES, replace(enough, driver_bytes=found.driver.total - 1))


def test_remedies__name_every_setting_that_helps() -> None:
    found = plan_shape(BIG_BLOCKS, Processes("threads", 1, 4, 1280 * MIB, 1280 * MIB))
    assert {remedy.setting for remedy in found.remedies} == {"threads", "workers", "block_rows", "memory"}
    more = replace(found.processes, memory_bytes=1900 * MIB, driver_bytes=1900 * MIB)
    nearly = plan_shape(replace(BIG_BLOCKS, layout=Layout(2 * 10**7, 2**18)), more)
    assert "feature_bytes" in {remedy.setting for remedy in nearly.remedies}


def test_remedies__fewer_candidates_and_float32() -> None:
    shape = make_shape((10**5,) * 2, 1000, 2**12, n_candidates=12_000, precision="float64")
    found = plan_shape(shape, Processes("threads", 1, 1, 2**31, 2**31))
    assert "candidates" in {remedy.setting for remedy in found.remedies}
    for size in range(2**31, 2**33, 2**25):
        nearly = plan_shape(shape, Processes("threads", 1, 1, size, size))
        if "precision" in {remedy.setting for remedy in nearly.remedies}:
            break
    else:
        pytest.fail("float32 never helped")
