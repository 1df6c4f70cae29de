"""A driver killed at random moments: the same command goes on, and ends with the model of an undisturbed run.

`pytest tests/chaos -m slow` runs the long selection: 50 kills of the driver in training.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from protodask import Dataset, FitConfig, PrototypeSet, fit, load_model, sample_data, thread_engine
from protodask.prototypes.persistence import model_fingerprint

CONFIG = FitConfig(n_batches=2, n_candidates=200, tolerance=1e-7)
OPTIONS = ["--batches", "2", "--candidates", "200", "--tolerance", "1e-7"]
FINISH_SECONDS = 120.0


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return sample_data("checker", 10_000, tmp_path_factory.mktemp("data") / "d.zarr")


@pytest.fixture(scope="module")
def undisturbed(dataset: Dataset) -> PrototypeSet:
    with thread_engine(1) as engine:
        return fit(dataset, CONFIG, engine=engine).model


def start_fit(dataset: Dataset, model: Path, more: Sequence[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "protodask", "fit", dataset.path, "--out", str(model), *OPTIONS, *more],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


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
    struck = Struck()
    for attempt in range(kills + 1):
        before = logged_bytes(run) if run.exists() else 0
        process = start_fit(dataset, model, more)
        try:
            if attempt < kills:
                wait_for_log(process, run, before)
                time.sleep(generator.uniform(0, 0.4))
                if process.poll() is None:
                    process.send_signal(signal.SIGKILL)
            _, errors = process.communicate(timeout=FINISH_SECONDS)
        finally:
            process.kill()
            process.wait()
        if process.returncode == -signal.SIGKILL:
            struck.killed += 1
            struck.in_training += logged_bytes(run) > 0 and not model.exists()
            if torn:
                tear(run, generator)
        else:
            assert process.returncode == 0, errors.decode()
            break
    assert sorted(path.name for path in folder.iterdir()) == ["m.zarr"], "nothing but the model remains"
    return load_model(model), struck


def wait_for_log(process: subprocess.Popen[bytes], run: Path, before: int) -> None:
    """Until this attempt has recorded an evaluation of its own, so that every attempt gets on."""
    deadline = time.monotonic() + FINISH_SECONDS
    while process.poll() is None and (not run.exists() or logged_bytes(run) <= before):
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_fit__whose_driver_is_killed(dataset: Dataset, undisturbed: PrototypeSet, tmp_path: Path) -> None:
    model, struck = fit_with_kills(dataset, tmp_path, seed=1, kills=3)
    assert model_fingerprint(model) == model_fingerprint(undisturbed)
    assert struck.in_training >= 2


@pytest.mark.slow
def test_fit__whose_log_is_torn_by_a_power_failure(dataset: Dataset, undisturbed: PrototypeSet, tmp_path: Path) -> None:
    model, struck = fit_with_kills(dataset, tmp_path, seed=2, kills=2, torn=True)
    assert model_fingerprint(model) == model_fingerprint(undisturbed)
    assert struck.in_training >= 1


@pytest.mark.slow
def test_fit__whose_driver_is_killed_with_its_workers(
    dataset: Dataset, undisturbed: PrototypeSet, tmp_path: Path
) -> None:
    model, struck = fit_with_kills(dataset, tmp_path, seed=3, kills=4, more=["--workers", "2"])
    assert model_fingerprint(model) == model_fingerprint(undisturbed)
    assert struck.in_training >= 2


@pytest.mark.slow
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


def test_fit__killed_before_its_first_evaluation(dataset: Dataset, undisturbed: PrototypeSet, tmp_path: Path) -> None:
    run = tmp_path / "m.zarr.run"
    process = start_fit(dataset, tmp_path / "m.zarr", [])
    deadline = time.monotonic() + FINISH_SECONDS
    while not run.exists() and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    model, _ = fit_with_kills(dataset, tmp_path, seed=0, kills=0)
    assert model_fingerprint(model) == model_fingerprint(undisturbed)


def test_fit__is_refused_while_another_driver_has_the_run_directory(dataset: Dataset, tmp_path: Path) -> None:
    run = tmp_path / "run"
    first = start_fit(dataset, tmp_path / "m.zarr", ["--run-dir", str(run)])
    try:
        wait_for_log(first, run, 0)
        first.send_signal(signal.SIGSTOP)
        second = start_fit(dataset, tmp_path / "m.zarr", ["--run-dir", str(run)])
        _, errors = second.communicate(timeout=FINISH_SECONDS)
        assert second.returncode == 1
        assert b"Someone else is writing" in errors
    finally:
        first.kill()
        first.communicate()
    # The lock went with the process that held it.
    third = start_fit(dataset, tmp_path / "m.zarr", ["--run-dir", str(run)])
    _, errors = third.communicate(timeout=FINISH_SECONDS)
    assert third.returncode == 0, errors.decode()
