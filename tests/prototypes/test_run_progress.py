"""How far a run is: what its directory says, whole, torn or foreign."""

from __future__ import annotations

import json
import os
import shutil
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.errors import refused

from protodask import sample_data
from protodask.data import Dataset
from protodask.data.places.records import seal
from protodask.engine import Engine
from protodask.errors import FormatError
from protodask.prototypes import FitConfig, fit
from protodask.prototypes.history import BatchDone, FitEvent
from protodask.prototypes.run_progress import read_progress
from protodask.prototypes.runs import RunDirectory
from protodask.prototypes.solver import Evaluation

SETTINGS = {"config": {"n_batches": 3}, "dataset": "key", "start": None}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return sample_data("checker", 200, tmp_path_factory.mktemp("data") / "d.zarr")


def record(directory: RunDirectory, batch: int, stage: str, values: list[float], length: int = 3) -> None:
    """Let a stage of a run record evaluations with these values."""
    remaining = iter(values)
    function = directory.recorded(batch, stage, lambda theta: Evaluation(next(remaining), theta))
    for step in range(len(values)):
        function(np.full(length, float(step)))


def test_progress__agrees_with_the_history_of_a_finished_run(dataset: Dataset, engine: Engine, tmp_path: Path) -> None:
    run = fit(dataset, FitConfig.of("source", n_batches=2, n_candidates=20), run_dir=tmp_path / "run", engine=engine)
    found = read_progress(str(tmp_path / "run"))
    assert found.finished
    assert found.n_batches == 2
    assert found.evaluations == sum(batch.evaluations for batch in run.history)
    assert found.current is not None
    assert found.current.batch == 2
    assert found.current.lowest is not None
    assert found.current.lowest <= run.history[-1].value


def test_progress__of_a_run_that_was_interrupted(dataset: Dataset, engine: Engine, tmp_path: Path) -> None:
    class StoppedError(Exception):
        pass

    def stop(event: FitEvent) -> None:
        if isinstance(event, BatchDone) and event.record.batch == 2:
            raise StoppedError

    config = FitConfig.of("source", n_batches=3, n_candidates=20, max_iterations=4)
    with pytest.warns(), pytest.raises(StoppedError):
        fit(dataset, config, run_dir=tmp_path / "run", engine=engine, callbacks=[stop])
    found = read_progress(str(tmp_path / "run"))
    assert not found.finished
    assert (found.position, found.n_batches) == (2, 3)


def test_progress__nothing_evaluated_yet(tmp_path: Path) -> None:
    RunDirectory.open(tmp_path / "run", SETTINGS)
    (tmp_path / "run" / "batch-1-float32.log").touch()
    found = read_progress(str(tmp_path / "run"))
    assert not found.finished
    assert found.current is None
    assert found.evaluations == 0
    assert found.describe()["last_recorded"] is None


def test_progress__stages_in_the_order_of_training(tmp_path: Path) -> None:
    directory = RunDirectory.open(tmp_path / "run", SETTINGS)
    # Of a run that adds batches to a model that has nine.
    record(directory, 11, "float32", [0.9])
    record(directory, 10, "float64", [0.7])
    record(directory, 10, "float32", [1.5, 0.8, 1.1])
    (tmp_path / "run" / "batch-12-float32.log.old").touch()
    found = read_progress(str(tmp_path / "run"))
    assert [(stage.batch, stage.stage, stage.evaluations) for stage in found.stages] == [
        (10, "float32", 3), (10, "float64", 1), (11, "float32", 1),
    ]  # fmt: skip
    assert (found.stages[0].value, found.stages[0].lowest) == (1.1, 0.8)
    assert found.position == 2
    assert found.describe()["evaluations"] == 5


def test_progress__time_of_the_last_evaluation(tmp_path: Path) -> None:
    directory = RunDirectory.open(tmp_path / "run", SETTINGS)
    record(directory, 1, "float32", [0.5])
    moment = datetime(2020, 2, 3, 4, 5, 6, tzinfo=UTC)
    os.utime(tmp_path / "run" / "batch-1-float32.log", (moment.timestamp(),) * 2)
    assert read_progress(str(tmp_path / "run")).describe()["last_recorded"] == "2020-02-03T04:05:06+00:00"


@settings(max_examples=25)
@given(
    values=st.lists(st.floats(0, 1), min_size=1, max_size=5),
    length=st.integers(1, 4),
    cut=st.integers(1, 10_000),
)
def test_progress__a_torn_last_record_does_not_count(
    tmp_path_factory: pytest.TempPathFactory, values: list[float], length: int, cut: int
) -> None:
    folder = tmp_path_factory.mktemp("torn")
    record(RunDirectory.open(folder / "run", SETTINGS), 1, "float32", values, length)
    log = folder / "run" / "batch-1-float32.log"
    size = log.stat().st_size
    each = size // len(values)
    kept = max(0, size - cut)
    with open(log, "ab") as file:
        file.truncate(kept)
    found = read_progress(str(folder / "run"))
    assert found.evaluations == kept // each
    if found.current is not None:
        assert found.current.value == values[kept // each - 1]
        assert found.current.lowest == min(values[: kept // each])
    shutil.rmtree(folder)


def test_progress__settings_of_another_kind(tmp_path: Path) -> None:
    run = tmp_path / "run"
    RunDirectory.open(run, SETTINGS)
    settings_file = run / "run.json"
    kept = json.loads(settings_file.read_text())
    kept.pop("checksum")
    others: list[object] = [None, [], {"n_batches": "3"}, {"n_batches": True}]
    for config in others:
        settings_file.write_text(json.dumps(seal({**kept, "config": config}, "run")))
        assert read_progress(str(run)).n_batches is None
    settings_file.write_text("{")
    with refused("damaged", settings_file, "start the run again", kind=FormatError):
        read_progress(str(run))


def test_progress__a_log_that_is_no_file(tmp_path: Path) -> None:
    RunDirectory.open(tmp_path / "run", SETTINGS)
    (tmp_path / "run" / "batch-1-float32.log").mkdir()
    with refused("wrong-kind", tmp_path / "run" / "batch-1-float32.log", kind=FormatError):
        read_progress(str(tmp_path / "run"))


def test_progress__a_log_of_another_run_does_not_count(tmp_path: Path) -> None:
    record(RunDirectory.open(tmp_path / "one", SETTINGS), 1, "float32", [0.5, 0.4])
    RunDirectory.open(tmp_path / "other", {**SETTINGS, "dataset": "another key"})
    shutil.copy(tmp_path / "one" / "batch-1-float32.log", tmp_path / "other")
    assert read_progress(str(tmp_path / "one")).evaluations == 2
    assert read_progress(str(tmp_path / "other")).evaluations == 0
