"""Publishing that is killed at any moment: the registry is as before or as after, and a repetition cleans up."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from support.commands import run_command
from support.kills import PAUSE, Strike, run_command_process, seen_in, spread, what_kills_leave

from protodask import FitConfig, fit, load_model, sample_data
from protodask.prototypes.persistence import model_fingerprint
from protodask.registry import Registry


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("models")
    data = sample_data("checker", 200, folder / "data.zarr")
    for seed in range(3):
        fit(data, FitConfig.of("source", n_candidates=10, tolerance=1e-1, seed=seed)).model.save(
            folder / f"m{seed}.zarr"
        )
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
    numbers = [version.number for version in registry.versions() if version.unreadable is None]
    return registry.aliases, numbers, model_fingerprint(load_model(f"{place}@champion"))


def check_end(place: Path, before: State, after: State) -> None:
    """Nothing is left that no version has, and it can be rolled back to what was there before."""
    assert state_of(place) == after
    registry = Registry.open(place)
    listed = {Path(version.path).parent.name for version in registry.versions() if version.unreadable is None}
    assert {path.name for path in (place / "versions").iterdir()} == listed
    assert {path.name for path in place.iterdir()} == {"registry.json", "versions"}
    assert registry.rollback().number == 2
    assert state_of(place)[2] == before[2]


def publish(place: Path, model: str) -> None:
    assert run_command(*publishing(place, model)).exit_code == 0


@pytest.fixture
def two(models: list[str], tmp_path: Path) -> Path:
    """A registry of two versions; a third publication prunes one of them."""
    place = tmp_path / "two"
    for model in models[:2]:
        publish(place, model)
    return place


@pytest.mark.slow
def test_publish__killed_at_any_operation(models: list[str], two: Path, tmp_path: Path) -> None:
    before = state_of(two)
    copies = what_kills_leave(lambda: publish(two, models[2]), two, tmp_path / "copies")
    after = state_of(two)
    assert after[:2] == ({"champion": 3, "previous": 2}, [2, 3])
    found = list(seen_in(copies, state_of).values())
    assert all(state in (before, after) for state in found)
    assert before in found
    assert after in found
    for copy in spread(copies, 6):
        publish(copy, models[2])
        check_end(copy, before, after)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_publish__killed_twenty_times(models: list[str], two: Path, tmp_path: Path) -> None:
    before = state_of(two)
    shutil.copytree(two, tmp_path / "calm")
    undisturbed = run_command_process(publishing(tmp_path / "calm", models[2]))
    after = state_of(tmp_path / "calm")
    moment, kills = random.Random(2), 0
    for _ in range(40):
        stormy = tmp_path / "stormy"
        shutil.copytree(two, stormy)
        for attempt in range(2):  # killed once more, and then done
            strike = Strike(moment.randrange(undisturbed.operations), moment.uniform(0, PAUSE))
            ended = run_command_process(publishing(stormy, models[2]), strike, PAUSE)
            found = state_of(stormy)
            assert found in (before, after)
            assert ended.killed or found == after
            kills += ended.killed and attempt == 0
        publish(stormy, models[2])
        check_end(stormy, before, after)
        shutil.rmtree(stormy)
        if kills >= 20:
            break
    assert kills >= 20
