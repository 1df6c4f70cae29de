"""`protodask plan`."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from support.commands import check_failed

from protodask import sample_data
from protodask.cli import app
from protodask.engine import threads
from protodask.errors import Code

Call = Callable[..., Any]


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data whose candidates need more than a small limit leaves."""
    place = tmp_path_factory.mktemp("wide") / "data.zarr"
    sample_data("blobs", 400, place, n_features=5000, n_classes=2)
    return place


def test_plan__shows_memory_reading_and_time(call: Call, example: Any) -> None:
    done = call("plan", example.data, "--candidates", 40, "--threads", 2, "--memory-limit", "1GiB")
    assert done.exit_code == 0, done.output
    for part in ("300 rows, 5 features", "this process with 2 threads, memory limit 1 GiB", "tiles of the kernel"):
        assert part in done.stdout
    assert "trained in 4 rounds of 40 candidates" in done.stdout
    assert "for each evaluation;" in done.stdout
    assert done.stdout.endswith("It fits.\n")


def test_plan__says_that_workers_use_more_processors(call: Call, example: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "available_threads", lambda: 16)
    arguments = ("plan", example.data, "--candidates", 40, "--no-calibrate", "--memory-limit", "2GiB")
    assert "this process with 4 threads of 16 processors (--workers 16 uses all), memory" in call(*arguments).stdout
    assert "this process with 1 thread, memory limit 2 GiB" in call(*arguments, "--threads", 1).stdout


OPTIONS = ("--recipe", "source", "--candidates", 40, "--batches", 2)


def test_plan__as_json(call: Call, example: Any) -> None:
    arguments = ("plan", example.data, *OPTIONS, "--json", "--memory-limit", "1GiB")
    found = json.loads(call(*arguments).stdout)
    assert (found["kind"], found["fits"], found["candidates"], found["batches"]) == ("plan", True, 40, 2)
    assert found["worker_bytes"] == sum(found["worker_parts"].values()) < 2**30
    assert found["seconds"]["evaluation"] > 0
    quick = json.loads(call(*arguments, "--no-calibrate").stdout)
    assert quick["seconds"] is None
    assert quick["worker_bytes"] == found["worker_bytes"]


@pytest.mark.slow
def test_plan__that_does_not_fit_says_what_would(call: Call, wide: Path) -> None:
    arguments = ("plan", wide, "--candidates", 400, "--threads", 1)
    done = call(*arguments, "--memory-limit", "300MiB")
    assert done.exit_code == 3, done.output
    assert "It does not fit. One of these would do:" in done.stdout
    asked = json.loads(call(*arguments, "--memory-limit", "300MiB", "--json").stdout)
    (remedy,) = (remedy for remedy in asked["remedies"] if remedy["setting"] == "memory")
    assert remedy["text"] in done.stdout
    assert call(*arguments, "--memory-limit", remedy["value"], "--no-calibrate").exit_code == 0
    less = call(*arguments, "--memory-limit", remedy["value"] - 2**20, "--no-calibrate")
    assert less.exit_code == 3


@pytest.mark.slow
def test_fit__that_does_not_fit_leaves_nothing(call: Call, wide: Path, tmp_path: Path) -> None:
    done = call(
        "fit", wide, "--out", tmp_path / "m.zarr", "--candidates", 400, "--threads", 1, "--memory-limit", "300MiB"
    )
    check_failed(done, 1, "over-memory", "300 MiB", "--memory-limit")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_plan__on_workers_tells_driver_and_worker_apart(call: Call, example: Any) -> None:
    done = call("plan", example.data, "--candidates", 40, "--workers", 1, "--memory-limit", "1GiB", "--no-calibrate")
    assert done.exit_code == 0, done.output
    assert "1 worker process with 1 thread, memory limit 1 GiB" in done.stdout
    assert "memory of a worker process, MiB" in done.stdout
    assert "memory of this process, MiB" in done.stdout


def test_plan__reads_settings_and_a_model_to_start_from(call: Call, example: Any, tmp_path: Path) -> None:
    (tmp_path / "settings.yaml").write_text("candidates: 33\nprecision: float64\n")
    arguments = ("plan", example.data, "--no-calibrate", "--json", "--memory-limit", "1GiB")
    found = json.loads(call(*arguments, "--config", tmp_path / "settings.yaml", "--start", example.model).stdout)
    assert (found["candidates"], found["precision"]) == (33, "float64")
    alone = json.loads(call(*arguments, "--config", tmp_path / "settings.yaml").stdout)
    assert found["worker_parts"]["scores of earlier batches"] > alone["worker_parts"]["scores of earlier batches"] == 0


@pytest.mark.parametrize(
    ("options", "exit_code", "code", "facts"),
    [
        (("--lambda-v", "-1"), 2, "bad-setting", ["--lambda-v", "-1.0"]),
        (("--memory-limit", "10MiB"), 2, "bad-setting", ["10 MiB", "180 MiB"]),
        (("--threads", "2", "--workers", "2"), 2, "settings-conflict", ["--threads", "--workers"]),
        (("--config", "none.yaml"), 1, "not-found", ["none.yaml"]),
        (("--start", "none.zarr"), 1, "not-found", ["none.zarr"]),
    ],
)
def test_plan__wrong_use(
    options: tuple[str, ...], exit_code: int, code: Code, facts: list[str], call: Call, example: Any
) -> None:
    done = call("plan", example.data, *options)
    check_failed(done, exit_code, code, *facts)


def test_plan__has_the_settings_of_fit() -> None:
    commands: Any = typer.main.get_command(app)

    def options(name: str) -> dict[str, tuple[Any, Any]]:
        return {option.name: (option.opts, option.help) for option in commands.commands[name].params}

    fit, plan = options("fit"), options("plan")
    assert fit.keys() - plan.keys() == {"out", "run_dir", "overwrite", "detach"}
    assert plan.keys() - fit.keys() == {"calibrate"}
    for name in fit.keys() & plan.keys():
        assert fit[name] == plan[name]
