"""Bit for bit the same model, however it is computed; and what else takes a cluster, so that one does."""

import os
import shutil
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client
from numpy.typing import NDArray

from protodask import plan
from protodask.data import Dataset, write_dataset
from protodask.data.format.schema import Column
from protodask.engine import Engine, array_source, open_engine, thread_engine
from protodask.engine.memory import cache_budget
from protodask.engine.threads import ThreadScheduler
from protodask.prototypes import FitConfig, PrototypeSet, fit
from protodask.prototypes.draws import Fitting
from protodask.prototypes.fitting import score_keeper
from protodask.prototypes.history import BatchRecord, FitEvent
from protodask.prototypes.scores import MemoryScores, ScoreKeeper
from protodask.prototypes.training_data import TrainingData

Arrays = dict[str, NDArray[Any]]
SameBits = Callable[[PrototypeSet, PrototypeSet], None]
StartCluster = Callable[[int], Any]

# Rounds end after some iterations, which are as good as many to tell bits apart.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Round . stopped early:protodask.prototypes.convergence.ConvergenceWarning"
)

BLOCK_ROWS = 64
Expected = dict[str, tuple[PrototypeSet, list[BatchRecord]]]

KINDS: dict[str, dict[str, Any]] = {
    "float32": {"lambda_w": 1e-3, "precision": "float32"},
    "float64": {"lambda_w": 1e-3, "precision": "float64"},
    "class": {"lambda_w": 1e-4, "precision": "float32", "feature_weights": "class", "feature_forms": "all"},
    "draws": {
        "lambda_w": 1e-4,
        "hold_out": 0.25,
        "n_draws": 2,
        "feature_weights": "both",
        "leave_one_out": True,
        "finish": True,
        "max_iterations": 24,
        "seed": 5,
    },
}
"""Settings of fits that are computed in different ways."""


def config(kind: str, n_batches: int = 2) -> FitConfig:
    settings = {"n_candidates": 30, "tolerance": 1e-5, "max_iterations": 6, "seed": 3, **KINDS[kind]}
    return FitConfig.of("source", n_batches=n_batches, **settings)


@pytest.fixture(scope="module")
def rows(make_rows: Callable[..., Arrays]) -> Arrays:
    """Weighted rows of three classes in 64-row blocks, the last of which is short: 7 blocks, no power of two. The last
    feature goes together with the one before.
    """
    made = make_rows(440, 4, n_classes=3, weights="weight inclusion", dtype="float32")
    made["features"][:, 2] = made["features"][:, 1] + made["features"][:, 2] / 4
    return made


@pytest.fixture(scope="module")
def dataset(rows: Arrays, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return write(rows, tmp_path_factory.mktemp("data") / "data.zarr")


def write(rows: Arrays, path: Path, block_rows: int = BLOCK_ROWS) -> Dataset:
    columns = tuple(Column(f"x{position}") for position in range(3))
    with thread_engine(1, 2**26) as engine:
        return write_dataset(
            array_source(rows, block_rows),
            path,
            classes=(0, 1, 2),
            columns=columns,
            engine=engine,
            block_rows=block_rows,
        )


@pytest.fixture(scope="module")
def expected(dataset: Dataset) -> Expected:
    """The models of one thread that keeps nothing of what it reads."""
    found: Expected = {}
    with thread_engine(1, 2**28) as engine:
        for kind in KINDS:
            run = fit(dataset, config(kind), engine=engine)
            assert all(record.prototypes > 4 and record.iterations > 4 for record in run.history), [
                (record.prototypes, record.iterations) for record in run.history
            ]
            ends = [record.on_all_rows > 5 for record in run.history]
            assert ends == ([False, True] * 2 if kind == "draws" else [False] * 2)
            assert run.model.rounds == {"class": (3, 3), "draws": (4, 4)}.get(kind)
            assert any(batch.differences is not None for batch in run.model.batches) == (kind == "class")
            found[kind] = run.model, run.history
    return found


@pytest.mark.parametrize(
    ("threads", "kinds"),
    [(4, ["float32", "float64", "class", "draws"]), pytest.param(1, ["draws", "class"], marks=pytest.mark.slow)],
)
def test_fit__is_the_same_for_any_number_of_threads_cold_and_warm(
    dataset: Dataset, expected: Expected, assert_same_bits: SameBits, threads: int, kinds: list[str]
) -> None:
    # fit() lets go of its dataset at the end, so those after the first read nothing only if it is spared that.
    scheduler = KeepingScheduler(threads, 2**31)
    with Engine(scheduler) as engine:
        for kind in kinds:
            run = fit(dataset, config(kind), engine=engine)
            assert_same_bits(run.model, expected[kind][0])
            assert_same_history(run.history, expected[kind][1])
            assert kind == "draws" or scheduler.blocks_held(dataset) == dataset.layout.n_blocks


class KeepingScheduler(ThreadScheduler):
    """Forgets no source, so that a second fit finds its blocks in the cache."""

    def forget(self, key: str) -> None:
        pass

    def blocks_held(self, source: Dataset) -> int:
        cache = self._reader.cache
        return sum(cache.get(source.key, number) is not None for number in range(source.layout.n_blocks))


def assert_same_history(found: list[BatchRecord], expected: list[BatchRecord]) -> None:
    for one, other in zip(found, expected, strict=True):
        assert (one.status, one.iterations, one.evaluations) == (other.status, other.iterations, other.evaluations)
        assert (one.value, one.gradient_norm) == (other.value, other.gradient_norm)
        assert one.values == other.values
        assert one.candidates.tolist() == other.candidates.tolist()


# Where rows are held out, what is cached are blocks that say which.
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "draws"])
def test_fit__is_the_same_with_a_cache_that_holds_a_part(
    dataset: Dataset, expected: Expected, assert_same_bits: SameBits, kind: str
) -> None:
    scheduler = KeepingScheduler(2, memory_for_cache(dataset.read(0).nbytes * dataset.layout.n_blocks // 2, 2))
    with Engine(scheduler) as engine:
        assert_same_bits(fit(dataset, config(kind), engine=engine).model, expected[kind][0])
        assert 0 < scheduler.blocks_held(dataset) < dataset.layout.n_blocks


def memory_for_cache(cache_bytes: int, threads: int) -> int:
    """The smallest memory limit that leaves so much for cached blocks."""
    return bisect_left(range(2**32), cache_bytes, key=lambda limit: cache_budget(limit, threads))


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "kinds"), [(2, ["float64", "class", "float64"]), (3, ["float32", "class"])])
def test_fit__is_the_same_on_a_cluster_cold_and_warm(
    address: str,
    start_cluster: StartCluster,
    dataset: Dataset,
    expected: Expected,
    assert_same_bits: SameBits,
    workers: int,
    kinds: list[str],
) -> None:
    with open_engine(address if workers == 2 else str(start_cluster(workers).scheduler_address)) as engine:
        assert engine.scheduler.n_threads == workers
        for kind in kinds:
            run = fit(dataset, config(kind), engine=engine)
            assert_same_bits(run.model, expected[kind][0])
            assert_same_history(run.history, expected[kind][1])


def test_fit__of_draws_is_the_same_on_a_cluster(
    address: str, engine: Engine, dataset: Dataset, assert_same_bits: SameBits
) -> None:
    expected = fit(dataset, config("draws", 1), engine=engine)
    assert any(record.on_all_rows for record in expected.history)
    with open_engine(address) as cluster:
        found = fit(dataset, config("draws", 1), engine=cluster)
    assert_same_bits(found.model, expected.model)
    assert_same_history(found.history, expected.history)


@pytest.mark.slow
def test_steps__are_taken_by_the_driver_of_a_cluster(
    address: str,
    engine: Engine,
    dataset: Dataset,
    assert_same_bits: SameBits,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("protodask.prototypes.config.STEPPED_ROWS", 300)
    monkeypatch.setattr("protodask.prototypes.steps.FEWEST_STEPS", 16)
    monkeypatch.setattr("protodask.prototypes.staging.STAGE_BLOCK_ROWS", 64)
    settings = FitConfig(n_candidates=20, n_draws=1, precision="float64", max_iterations=6, seed=3)
    with open_engine(address) as cluster:
        run = fit(dataset, settings, engine=cluster)
    assert run.history[0].stages
    assert_same_bits(run.model, fit(dataset, settings, engine=engine).model)


@pytest.mark.slow
def test_plan__calibrated_on_workers(address: str, dataset: Dataset) -> None:
    with Client(address, set_as_default=False) as client:
        found = plan(dataset, FitConfig.of("source", n_candidates=30, max_iterations=11, tolerance=1.0), client)
    assert found.seconds is not None
    assert 0 < found.seconds.evaluation < found.seconds.batch < np.inf
    assert min(found.seconds.read_bytes_per_second, found.seconds.calibration) > 0
    assert (found.processes.kind, found.processes.count, found.tasks) == ("workers", 2, 2)
    assert found.driver != found.worker


def in_memory(dataset: Dataset, rows: Arrays, block_rows: int = BLOCK_ROWS) -> TrainingData:
    return TrainingData(
        array_source(rows, block_rows),
        tuple(rows),
        dataset.summary,
        dataset.classes,
        dataset.feature_names,
        dataset.columns,
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_training__of_the_same_rows_in_memory_is_the_same(
    engine: Engine, dataset: Dataset, rows: Arrays, expected: Expected, assert_same_bits: SameBits, kind: str
) -> None:
    fitting = Fitting(config(kind), engine, lambda draw: MemoryScores())
    model, history = fitting.run(in_memory(dataset, rows), False, "side by side", 2)
    assert_same_bits(model, expected[kind][0])
    assert_same_history(history, expected[kind][1])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["float64", "draws"])
def test_training__with_scores_in_a_store_is_the_same(
    engine: Engine, dataset: Dataset, rows: Arrays, assert_same_bits: SameBits, kind: str, tmp_path: Path
) -> None:
    # Three batches, so that the scores of the second are made from those of the first.
    data, settings = in_memory(dataset, rows), replace(config(kind, 3), max_iterations=4)

    def model(scores: Callable[[int], ScoreKeeper]) -> PrototypeSet:
        return Fitting(settings, engine, scores).run(data, False, "side by side", 2)[0]

    held = model(lambda draw: MemoryScores())
    assert_same_bits(model(partial(score_keeper, len(dataset.classes), str(tmp_path))), held)


@pytest.mark.slow
def test_fit__of_another_block_size_draws_the_same_candidates_and_agrees_within_rounding(
    engine: Engine, rows: Arrays, expected: Expected, tmp_path: Path
) -> None:
    _, history = expected["float64"]
    for block_rows in (16, 512):
        run = fit(write(rows, tmp_path / f"{block_rows}.zarr", block_rows), config("float64"), engine=engine)
        assert run.history[0].candidates.tolist() == history[0].candidates.tolist()
        assert run.history[0].value == pytest.approx(history[0].value, rel=1e-3)


def test_fit__another_seed_gives_another_model(dataset: Dataset, engine: Engine, expected: Expected) -> None:
    other = replace(config("float32", 1), seed=4, max_iterations=1)
    assert fit(dataset, other, engine=engine).history[0].candidates.tolist() != (
        expected["float32"][1][0].candidates.tolist()
    )


class Interrupted(Exception):
    pass


def stop_after(iterations: int) -> Callable[[FitEvent], None]:
    seen = 0

    def callback(event: FitEvent) -> None:
        nonlocal seen
        seen += 1
        if seen == iterations:
            raise Interrupted

    return callback


@pytest.mark.parametrize("kind", KINDS)
def test_fit__resumed_after_interruptions_is_the_same(
    dataset: Dataset,
    engine: Engine,
    expected: Expected,
    assert_same_bits: SameBits,
    kind: str,
    tmp_path: Path,
) -> None:
    iterations = sum(record.iterations for record in expected[kind][1])
    for stop in (1, 2, iterations // 3, iterations - 3, iterations + 2):
        with pytest.raises(Interrupted):
            fit(dataset, config(kind), run_dir=tmp_path / "run", engine=engine, callbacks=[stop_after(stop)])
    run = fit(dataset, config(kind), run_dir=tmp_path / "run", engine=engine)
    assert_same_bits(run.model, expected[kind][0])
    assert_same_history(run.history, expected[kind][1])


@pytest.fixture(scope="module")
def finished(dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a whole run in float64."""
    folder = tmp_path_factory.mktemp("run") / "run"
    with thread_engine(1, 2**30) as engine:
        fit(dataset, config("float64"), run_dir=folder, engine=engine)
    return folder


@pytest.mark.parametrize("seed", range(6))
def test_fit__resumed_from_a_torn_log_is_the_same(
    dataset: Dataset,
    engine: Engine,
    expected: Expected,
    assert_same_bits: SameBits,
    finished: Path,
    tmp_path: Path,
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    shutil.copytree(finished, tmp_path / "run")
    logs = sorted((tmp_path / "run").glob("batch-*.log"))
    assert [log.name for log in logs] == ["batch-1-float64.log", "batch-2-float64.log"]
    log = logs[seed % 2]
    size = log.stat().st_size
    os.truncate(log, int(rng.integers(0, size)))
    if seed >= 4:
        with log.open("ab") as file:
            file.write(rng.bytes(100))
    if seed % 2 == 0:
        logs[1].unlink()
    for _ in range(2):
        run = fit(dataset, config("float64"), run_dir=tmp_path / "run", engine=engine)
        assert_same_bits(run.model, expected["float64"][0])
        assert_same_history(run.history, expected["float64"][1])
    assert [other.stat().st_size for other in logs] == [(finished / other.name).stat().st_size for other in logs]


def test_fit__with_a_damaged_record_computes_it_again(
    dataset: Dataset, engine: Engine, expected: Expected, assert_same_bits: SameBits, finished: Path, tmp_path: Path
) -> None:
    shutil.copytree(finished, tmp_path / "run")
    log = tmp_path / "run" / "batch-1-float64.log"
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 1
    log.write_bytes(content)
    run = fit(dataset, config("float64"), run_dir=tmp_path / "run", engine=engine)
    assert_same_bits(run.model, expected["float64"][0])
    assert log.read_bytes() == (finished / log.name).read_bytes()


def test_fit__that_has_ended_evaluates_nothing_again(
    dataset: Dataset, expected: Expected, assert_same_bits: SameBits, finished: Path
) -> None:
    labels: list[str] = []
    with thread_engine(1, 2**30) as engine:
        watched = engine.with_progress(lambda event: labels.append(event.label))
        run = fit(dataset, config("float64"), run_dir=finished, engine=watched)
    assert_same_bits(run.model, expected["float64"][0])
    assert {"score"} == set(labels)
