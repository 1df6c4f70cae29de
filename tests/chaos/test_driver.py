"""A driver killed at random moments: the same command goes on, and ends with the model of an undisturbed run.

`pytest tests/chaos -m slow` runs the long selection: 50 kills of the driver in training.
"""

import random
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.commands import run_command
from support.kills import (
    Strike,
    command_process,
    run_command_process,
    spread,
    wait_until_stopped,
    what_kills_leave,
)

from protodask import Dataset, FitConfig, PrototypeSet, fit, load_model, sample_data, thread_engine
from protodask.prototypes.persistence import model_fingerprint

CONFIG = FitConfig.of("source", n_batches=2, n_candidates=100, tolerance=1e-5)
OPTIONS = ["--recipe", "source", "--batches", "2", "--candidates", "100", "--tolerance", "1e-5"]
SMALL_CONFIG = FitConfig.of("source", n_batches=2, n_candidates=20, tolerance=1e-3)
SMALL_OPTIONS = ["--recipe", "source", "--batches", "2", "--candidates", "20", "--tolerance", "1e-3"]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return sample_data("checker", 3_000, tmp_path_factory.mktemp("data") / "d.zarr")


@pytest.fixture(scope="module")
def undisturbed(dataset: Dataset) -> PrototypeSet:
    with thread_engine(1) as engine:
        return fit(dataset, CONFIG, engine=engine).model


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return sample_data("checker", 300, tmp_path_factory.mktemp("small") / "d.zarr")


@pytest.fixture(scope="module")
def fingerprint(small: Dataset) -> str:
    """Of the model of an undisturbed fit."""
    with thread_engine(1) as engine:
        return model_fingerprint(fit(small, SMALL_CONFIG, engine=engine).model)


def fitting(dataset: Dataset, folder: Path, options: Sequence[str]) -> list[str]:
    return ["fit", dataset.path, "--out", str(folder / "m.zarr"), *options]


def logged_bytes(run: Path) -> int:
    return sum(path.stat().st_size for path in run.glob("*.log"))


@dataclass
class Struck:
    """What the kills hit."""

    killed: int = 0
    in_training: int = 0
    """After the first evaluation was recorded, and before the model was there."""


def tear(run: Path, generator: random.Random) -> None:
    """Do to a log what a power failure may: cut its end off, or leave blocks of zeros in its place."""
    logs = sorted(run.glob("*.log"))
    if not logs:
        return
    log = logs[-1]
    size = log.stat().st_size
    with log.open("r+b") as file:
        file.truncate(max(0, size - generator.randrange(6_000)))
        if generator.random() < 0.5:
            file.truncate(size + generator.randrange(9_000))


def fit_with_kills(
    dataset: Dataset, folder: Path, seed: int, kills: int, more: Sequence[str] = (), torn: bool = False
) -> tuple[PrototypeSet, Struck]:
    """Repeat `protodask fit` until it ends by itself, the first times with a SIGKILL some way into its training."""
    generator = random.Random(seed)
    model, run = folder / "m.zarr", folder / "m.zarr.run"
    arguments = fitting(dataset, folder, [*OPTIONS, *more])
    struck = Struck()
    for attempt in range(kills + 1):
        # What is on record is not done again: so many operations further every time.
        strike = Strike(generator.randrange(1, 40), generator.uniform(0, 0.1)) if attempt < kills else None
        ended = run_command_process(arguments, strike)
        if not ended.killed:
            assert ended.code == 0
            break
        struck.killed += 1
        struck.in_training += logged_bytes(run) > 0 and not model.exists()
        if torn:
            tear(run, generator)
    check_end(folder)
    return load_model(model), struck


def check_end(folder: Path) -> None:
    assert sorted(path.name for path in folder.iterdir()) == ["m.zarr"], "nothing but the model remains"


def test_fit__whose_driver_is_killed_at_any_operation(small: Dataset, fingerprint: str, tmp_path: Path) -> None:
    def work(folder: Path) -> None:
        done = (folder / "m.zarr").exists() and not (folder / "m.zarr.run").exists()
        ended = run_command(*fitting(small, folder, SMALL_OPTIONS))
        assert ended.exit_code == done
        assert ("[exists]" in ended.output) == done
        check_end(folder)
        assert model_fingerprint(load_model(folder / "m.zarr")) == fingerprint

    folder = tmp_path / "run"
    folder.mkdir()
    copies = what_kills_leave(lambda: work(folder), folder, tmp_path / "copies")
    logged = [logged_bytes(copy / "m.zarr.run") for copy in copies]
    starts = [copy for copy, size in zip(copies, logged, strict=True) if not size and not (copy / "m.zarr").exists()]
    others = [copy for copy in copies if copy not in starts]
    training = [copy for copy in others if not (copy / "m.zarr").exists()]
    assert len(set(logged)) > 20, "there is a copy between any two evaluations"
    assert starts
    assert training != others
    for copy in {*spread(starts, 2), *spread(training, 4), *spread(others, 2)}:
        work(copy)
    for copy in spread(training[1:-1], 2):
        tear(copy / "m.zarr.run", random.Random(1))
        work(copy)


@pytest.mark.slow
def test_fit__whose_process_is_killed_and_then_stopped(small: Dataset, fingerprint: str, tmp_path: Path) -> None:
    arguments = fitting(small, tmp_path, SMALL_OPTIONS)
    assert run_command_process(arguments, Strike(20)).killed
    before = logged_bytes(tmp_path / "m.zarr.run")
    assert before > 0
    with command_process(arguments, Strike(10, signal=signal.SIGSTOP)) as (process, _):
        wait_until_stopped(process)
        assert logged_bytes(tmp_path / "m.zarr.run") > before, "it went on"
        refused = run_command(*arguments)
        assert refused.exit_code == 1
        assert "[written-by-another]" in refused.output
    # The lock went with the process that held it.
    assert run_command(*arguments).exit_code == 0
    check_end(tmp_path)
    assert model_fingerprint(load_model(tmp_path / "m.zarr")) == fingerprint


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_fit__whose_log_is_torn_by_a_power_failure(dataset: Dataset, undisturbed: PrototypeSet, tmp_path: Path) -> None:
    model, struck = fit_with_kills(dataset, tmp_path, seed=2, kills=2, torn=True)
    assert model_fingerprint(model) == model_fingerprint(undisturbed)
    assert struck.in_training >= 1


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_fit__whose_driver_is_killed_with_its_workers(
    dataset: Dataset, undisturbed: PrototypeSet, tmp_path: Path
) -> None:
    model, struck = fit_with_kills(dataset, tmp_path, seed=3, kills=4, more=["--workers", "2"])
    assert model_fingerprint(model) == model_fingerprint(undisturbed)
    assert struck.in_training >= 2


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_fit__with_fifty_kills_of_the_driver(dataset: Dataset, undisturbed: PrototypeSet, tmp_path: Path) -> None:
    in_training = killed = runs = 0
    while in_training < 50:
        assert runs < 40, "the kills do not strike"
        folder = tmp_path / str(runs)
        folder.mkdir()
        model, struck = fit_with_kills(dataset, folder, seed=100 + runs, kills=6, torn=runs % 2 == 1)
        assert model_fingerprint(model) == model_fingerprint(undisturbed), f"run {runs}"
        in_training, killed, runs = in_training + struck.in_training, killed + struck.killed, runs + 1
        print(f"run {runs}: {struck.killed} kills, {struck.in_training} in training; {in_training} in all")
