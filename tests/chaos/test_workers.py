"""Workers killed, late or slow: the answer is that of an undisturbed run, to the last bit.

`pytest tests/chaos -m slow` runs the long selection: 50 kills of workers in training, in at least 10 runs.
"""

import logging
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
import zarr
from chaos.faults import Killer, PassWatch, killed_in_pass, worker_processes
from distributed import Client, LocalCluster
from support.errors import refused
from support.passes import FILL, NoiseSource
from support.workers import cluster_of_processes

from protodask import FitConfig, PrototypeSet, fit, ingest, predict, sample_data
from protodask.data import Dataset
from protodask.engine import Engine, Layout, open_engine, thread_engine
from protodask.errors import LostTaskError
from protodask.evaluation.model_scores import evaluate_model
from protodask.prototypes.history import IterationDone
from protodask.prototypes.persistence import model_fingerprint

pytestmark = pytest.mark.slow

TWO_BATCHES = FitConfig.of("source", n_batches=2, n_candidates=200, tolerance=1e-5)
SMALL_CONFIG = FitConfig.of("source", n_batches=2, n_candidates=30, tolerance=1e-4)


@contextmanager
def cluster_of(n_workers: int, allowed_failures: int = 100) -> Iterator[LocalCluster]:
    """Worker processes that are started again when they die; by default many in turn may have died with one task."""
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": allowed_failures}),
        cluster_of_processes(n_workers, silence_logs=logging.CRITICAL) as cluster,
    ):
        yield cluster


@contextmanager
def engine_of(cluster: LocalCluster) -> Iterator[Engine]:
    with Client(cluster, set_as_default=False) as client, open_engine(client) as engine:
        yield engine


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return sample_data("checker", 8_000, tmp_path_factory.mktemp("data") / "d.zarr")


@pytest.fixture(scope="module")
def undisturbed(dataset: Dataset) -> PrototypeSet:
    with thread_engine(2) as engine:
        return fit(dataset, TWO_BATCHES, engine=engine).model


def fit_under_fire(dataset: Dataset, seed: int, kills: int, all_at_once: bool = False) -> tuple[PrototypeSet, Killer]:
    """A fit on three workers, of which random ones die."""
    watch = PassWatch()
    with cluster_of(3) as cluster, engine_of(cluster) as engine, watch.over_all_passes():
        killer = Killer(lambda: worker_processes(cluster), seed, kills, (0.2, 2.0), watch, all_at_once=all_at_once)
        with killer.at_work():
            model = fit(dataset, TWO_BATCHES, engine=engine).model
    return model, killer


@pytest.fixture(scope="module")
def cluster(no_process_left_behind: None) -> Iterator[LocalCluster]:
    """Two workers, which tests may kill."""
    with cluster_of(2) as started:
        yield started


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return sample_data("checker", 2_000, tmp_path_factory.mktemp("small") / "d.zarr", block_rows=128)


@pytest.fixture(scope="module")
def small_model(small: Dataset) -> PrototypeSet:
    with thread_engine(1) as engine:
        return fit(small, SMALL_CONFIG, engine=engine).model


def test_fit__whose_worker_is_killed(small: Dataset, small_model: PrototypeSet, cluster: LocalCluster) -> None:
    with engine_of(cluster) as engine, killed_in_pass(cluster, 5) as killed:
        model = fit(small, SMALL_CONFIG, engine=engine).model
    assert killed
    assert model_fingerprint(model) == model_fingerprint(small_model)


@pytest.mark.timeout(1800)
def test_fit__while_workers_are_killed(dataset: Dataset, undisturbed: PrototypeSet) -> None:
    model, killer = fit_under_fire(dataset, seed=1, kills=3)
    assert model_fingerprint(model) == model_fingerprint(undisturbed)
    assert killer.killed >= 2
    assert killer.in_mid_pass >= 1


@pytest.mark.timeout(1800)
def test_fit__while_all_workers_are_killed_at_once(dataset: Dataset, undisturbed: PrototypeSet) -> None:
    model, killer = fit_under_fire(dataset, seed=2, kills=6, all_at_once=True)
    assert model_fingerprint(model) == model_fingerprint(undisturbed)
    assert killer.in_mid_pass >= 3


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", [100, 200])
def test_fit__with_fifty_kills_of_workers(dataset: Dataset, undisturbed: PrototypeSet, seed: int) -> None:
    """In halves, which may run side by side."""
    killed = in_mid_pass = runs = 0
    while killed < 25 or runs < 5:
        assert runs < 20, "the kills do not strike"
        model, killer = fit_under_fire(dataset, seed=seed + runs, kills=6)
        assert model_fingerprint(model) == model_fingerprint(undisturbed), f"run {runs}"
        killed, in_mid_pass, runs = killed + killer.killed, in_mid_pass + killer.in_mid_pass, runs + 1
        print(f"run {runs}: {killer.killed} kills, {killer.in_mid_pass} in mid-pass; {killed} in all")
    assert in_mid_pass >= runs


@pytest.mark.timeout(1800)
def test_fit__with_a_worker_that_joins_late(dataset: Dataset, undisturbed: PrototypeSet) -> None:
    with cluster_of(1) as cluster, engine_of(cluster) as engine:
        threads: list[int] = []

        def scale(event: object) -> None:
            threads.append(engine.scheduler.n_threads)
            if len(threads) == 5:
                cluster.scale(2)

        model = fit(dataset, TWO_BATCHES, engine=engine, callbacks=(scale,)).model
    assert (threads[0], threads[-1]) == (1, 2)
    assert model_fingerprint(model) == model_fingerprint(undisturbed)


@pytest.mark.timeout(1800)
def test_fit__with_a_worker_that_stands_still_for_a_while(dataset: Dataset, undisturbed: PrototypeSet) -> None:
    watch = PassWatch()
    stopped: list[bool] = []
    with cluster_of(2) as cluster, engine_of(cluster) as engine, watch.over_all_passes():

        def stop_one(event: object) -> None:
            if isinstance(event, IterationDone) and event.iteration == 5 and not stopped:
                number = worker_processes(cluster)[0]
                stopped.append(True)
                os.kill(number, signal.SIGSTOP)
                resume = threading.Timer(4, os.kill, (number, signal.SIGCONT))
                resume.daemon = True
                resume.start()

        model = fit(dataset, replace(TWO_BATCHES, n_batches=1), engine=engine, callbacks=(stop_one,)).model
    assert stopped == [True]
    assert model.batches[0].prototype_weight.tobytes() == undisturbed.batches[0].prototype_weight.tobytes()
    assert model.batches[0].feature_weight.tobytes() == undisturbed.batches[0].feature_weight.tobytes()


@pytest.mark.timeout(1800)
def test_reduce__that_fills_the_memory_of_its_workers_says_so() -> None:
    with (
        cluster_of(2, allowed_failures=1) as cluster,
        engine_of(cluster) as engine,
        refused("task-lost", "give workers more", kind=LostTaskError),
    ):
        engine.reduce(NoiseSource(Layout(16, 16), "filler"), FILL, 2**30)


def write_table(path: Path, n_rows: int) -> Path:
    generator = np.random.default_rng(0)
    numbers = generator.normal(size=(n_rows, 4)).round(6)
    labels = np.array(["no", "yes"])[(numbers[:, 0] * numbers[:, 1] > 0).astype(int)]
    lines = [",".join([*map(str, row), label]) for row, label in zip(numbers, labels, strict=True)]
    path.write_text("\n".join(["a,b,c,d,y", *lines]) + "\n")
    return path


def zarr_bytes(path: Path) -> bytes:
    group: Any = zarr.open_group(path, mode="r")
    return b"".join(np.asarray(group[name][...]).tobytes() for name in sorted(group.array_keys()))


Work = Callable[[Engine, Path], Any]


def make_works(dataset: Dataset, model: PrototypeSet, table: Path) -> dict[str, Work]:
    """What is done in passes besides training, as functions of an engine and an empty folder."""

    def ingest_table(engine: Engine, folder: Path) -> Any:
        made = ingest(str(table), folder / "d.zarr", target="y", engine=engine, block_rows=dataset.layout.block_rows)
        return made.key, zarr_bytes(folder / "d.zarr")

    def predict_rows(engine: Engine, folder: Path) -> Any:
        predict(model, dataset, folder / "p.zarr", engine=engine)
        return zarr_bytes(folder / "p.zarr")

    def evaluate_rows(engine: Engine, folder: Path) -> Any:
        return evaluate_model(model, dataset, np.arange(2), engine).describe()

    return {"ingest": ingest_table, "predict": predict_rows, "evaluate": evaluate_rows}


@pytest.fixture(scope="module")
def works(dataset: Dataset, undisturbed: PrototypeSet, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Work]:
    return make_works(dataset, undisturbed, write_table(tmp_path_factory.mktemp("table") / "t.csv", 60_000))


@pytest.fixture(scope="module")
def small_works(small: Dataset, small_model: PrototypeSet, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Work]:
    return make_works(small, small_model, write_table(tmp_path_factory.mktemp("table") / "t.csv", 2_000))


def leftovers(folder: Path) -> list[str]:
    """Files and folders that only an unfinished writing has."""
    return sorted(path.name for path in folder.rglob("*") if "partial" in path.name or path.name.startswith("."))


def under_fire(work: Work, folder: Path, expected: Any, seed: int, kills: int) -> Killer:
    """Repeat some work while workers die, until enough have."""
    watch = PassWatch()
    with cluster_of(3) as cluster, engine_of(cluster) as engine, watch.over_all_passes():
        killer = Killer(
            lambda: worker_processes(cluster), seed, kills, (0.05, 1.0), watch, least_in_mid_pass=kills // 2
        )
        with killer.at_work():
            for attempt in range(200):
                place = folder / str(attempt)
                place.mkdir()
                assert work(engine, place) == expected, f"attempt {attempt}"
                assert leftovers(place) == []
                shutil.rmtree(place)
                if killer.done:
                    break
    return killer


NAMES = ["ingest", "predict", "evaluate"]


@pytest.mark.parametrize("name", NAMES)
def test_passes__whose_worker_is_killed(
    small_works: dict[str, Work], name: str, cluster: LocalCluster, tmp_path: Path
) -> None:
    calm, stormy = tmp_path / "calm", tmp_path / "stormy"
    calm.mkdir()
    stormy.mkdir()
    with thread_engine(2) as engine:
        expected = small_works[name](engine, calm)
    with engine_of(cluster) as engine, killed_in_pass(cluster, 1) as killed:
        assert small_works[name](engine, stormy) == expected
    assert killed
    assert leftovers(stormy) == []


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", NAMES)
def test_passes__while_workers_are_killed(works: dict[str, Work], name: str, tmp_path: Path) -> None:
    (tmp_path / "expected").mkdir()
    with thread_engine(2) as engine:
        expected = works[name](engine, tmp_path / "expected")
    killer = under_fire(works[name], tmp_path, expected, seed=8, kills=12)
    assert killer.killed >= 12
    assert killer.in_mid_pass >= 6
