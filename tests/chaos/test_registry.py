"""Publishing that is killed at any moment: the registry is as before or as after, and a repetition cleans up."""

from __future__ import annotations

import multiprocessing
import random
import shutil
from pathlib import Path

import pytest
from chaos.publishing_processes import PRELOADED, write_slowly

from protodask import FitConfig, fit, load_model, sample_data
from protodask.prototypes.persistence import model_fingerprint
from protodask.registry import Registry

START = multiprocessing.get_context("forkserver")
START.set_forkserver_preload([*PRELOADED, "protodask.registry.registry"])

PAUSE = 0.01
"""Seconds before each operation on a file."""

END_SECONDS = 60.0
"""What takes longer hangs."""


def run(arguments: list[str], pause: float = 0.0, fatal: int | None = None, delay: float = 0.0) -> tuple[int, int]:
    """The exit code of a command line, and how many operations on files there were if it came to an end."""
    ours, theirs = START.Pipe()
    process = START.Process(target=write_slowly, args=(arguments, pause, fatal, delay, theirs))
    process.start()
    theirs.close()
    process.join(END_SECONDS)
    assert process.exitcode is not None, "the command hangs"
    try:
        return ours.recv() if process.exitcode == 0 else (process.exitcode, 0)
    finally:
        process.close()
        ours.close()


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("models")
    data = sample_data("checker", 200, folder / "data.zarr")
    for seed in range(3):
        fit(data, FitConfig(n_candidates=10, tolerance=1e-1, seed=seed)).model.save(folder / f"m{seed}.zarr")
    return [str(folder / f"m{seed}.zarr") for seed in range(3)]


def publishing(place: Path, model: str) -> list[str]:
    attached = f"settings={model}/zarr.json"
    return ["publish", model, "--registry", str(place), "--attach", attached, "--retain", "1"]


State = tuple[dict[str, int], list[int], str]


def state_of(place: Path) -> State:
    """What a reader sees; whatever an alias names can be read."""
    registry = Registry.open(place)
    for alias in registry.aliases:
        load_model(f"{place}@{alias}")
    numbers = [version.number for version in registry.versions()]
    return registry.aliases, numbers, model_fingerprint(load_model(f"{place}@champion"))


def check_kills(models: list[str], folder: Path, kills: int, seed: int) -> None:
    """Kill the third publication, which also prunes, at random operations, each time on a registry of two versions."""
    calm = folder / "calm"
    for model in models[:2]:
        assert run(publishing(calm, model))[0] == 0
    before = state_of(calm)
    shutil.copytree(calm, folder / "two")
    code, steps = run(publishing(calm, models[2]))
    assert code == 0
    after = state_of(calm)
    assert after[:2] == ({"champion": 3, "previous": 2}, [2, 3])
    moment, struck, seen = random.Random(seed), 0, set()
    for _ in range(2 * kills):
        stormy = folder / "stormy"
        shutil.copytree(folder / "two", stormy)
        code, _ = run(publishing(stormy, models[2]), PAUSE, moment.randrange(steps), moment.uniform(0, PAUSE))
        found = state_of(stormy)
        assert found in (before, after)
        assert code == -9 or found == after
        struck += code == -9
        seen.add(found == after)
        # Killed once more, and then done.
        run(publishing(stormy, models[2]), PAUSE, moment.randrange(steps), moment.uniform(0, PAUSE))
        assert state_of(stormy) in (before, after)
        assert run(publishing(stormy, models[2]))[0] == 0
        assert state_of(stormy) == after
        registry = Registry.open(stormy)
        listed = {Path(version.path).parent.name for version in registry.versions()}
        assert {path.name for path in (stormy / "versions").iterdir()} == listed
        assert {path.name for path in stormy.iterdir()} == {"registry.json", "versions"}
        assert registry.rollback().number == 2
        assert state_of(stormy)[2] == before[2]
        shutil.rmtree(stormy)
        if struck >= kills:
            break
    assert struck >= kills


def test_publish__killed_at_any_moment(models: list[str], tmp_path: Path) -> None:
    check_kills(models, tmp_path, kills=1, seed=1)


@pytest.mark.slow
def test_publish__killed_thirty_times(models: list[str], tmp_path: Path) -> None:
    check_kills(models, tmp_path, kills=30, seed=2)
