"""`--detach`: the command goes on as a job."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from cli._processes import run_python, wait_until
from support.commands import check_failed, json_of

from protodask.errors import Code
from protodask.prototypes.run_progress import read_progress

Call = Callable[..., Any]


def command(folder: Path, *arguments: object) -> dict[str, Any]:
    """What a command of a process of its own prints as JSON."""
    done = run_python("-m", "protodask", *arguments, "--json", folder=folder)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def wait_for(process: psutil.Process) -> None:
    """Wait for the end of a process that is nobody's child, and that nobody may ever collect."""
    with contextlib.suppress(psutil.NoSuchProcess):
        try:
            wait_until(lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE)
        except AssertionError:
            process.kill()
            raise


@pytest.mark.slow
def test_fit__detached_outlives_the_command_and_ends_with_the_same_model(example: Any, tmp_path: Path) -> None:
    options = ("--recipe", "source", "--batches", 2, "--candidates", 40)
    told = command(tmp_path, "fit", example.data, "--out", "m.zarr", *options, "--detach", "local")
    assert told["stop"] == f"kill {told['name']}"
    wait_until((tmp_path / "m.zarr").exists, says=(tmp_path / "m.zarr.run" / ".driver.log").read_text)
    if psutil.pid_exists(int(told["name"])):
        wait_for(psutil.Process(int(told["name"])))
    run = json_of("info", tmp_path / "m.zarr.run")
    assert run["finished"]
    assert Path(run["driver_log"]).read_text().rstrip().endswith("}")  # the job was asked for JSON, too
    made, expected = (json_of("info", place) for place in (tmp_path / "m.zarr", example.model))
    assert made["fingerprint"] == expected["fingerprint"]


@pytest.mark.slow
def test_fit__detached_is_stopped_and_goes_on(call: Call, example: Any, tmp_path: Path) -> None:
    arguments = ("fit", example.data, "--out", "m.zarr", "--recipe", "source", "--candidates", 100, "--batches", 30)
    told = command(tmp_path, *arguments, "--detach", "local")
    process = psutil.Process(int(told["name"]))
    try:
        assert os.getsid(process.pid) == process.pid  # no terminal's hang-up reaches it
        run = tmp_path / "m.zarr.run"
        # A log is there before its first evaluation is.
        wait_until(lambda: any(run.glob("batch-*.log")) and read_progress(str(run)).evaluations > 0)
        assert "not finished: the same command continues it" in call("info", run).stdout
    finally:
        process.terminate()
        wait_for(process)
    shown = call("info", run)
    assert shown.exit_code == 0, shown.output
    assert "of the run's 30 rounds" in shown.stdout
    assert " UTC, " in shown.stdout
    before = json_of("info", run)["progress"]["evaluations"]
    assert before > 0
    again = psutil.Process(int(command(tmp_path, *arguments, "--detach", "local")["name"]))
    again.terminate()
    wait_for(again)
    assert json_of("info", run)["progress"]["evaluations"] >= before


@pytest.mark.parametrize(
    ("options", "code", "facts"),
    [
        (("--lambda-v", "-1"), "bad-setting", ["--lambda-v", "-1.0"]),
        (("--workers", "2", "--threads", "2"), "settings-conflict", ["--threads", "--workers"]),
    ],
)
def test_fit__wrong_use_is_refused_before_anything_is_handed_over(
    options: tuple[str, ...], code: Code, facts: list[str], call: Call, example: Any, tmp_path: Path
) -> None:
    done = call("fit", example.data, "--out", tmp_path / "m.zarr", *options, "--detach", "local")
    check_failed(done, 2, code, *facts)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_run__detached(example: Any, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("steps:\n  - sample-data: {kind: checker, rows: 100, out: made.zarr}\n")
    told = command(tmp_path, "run", "p.yaml", "--detach", "local")
    log = tmp_path / "p.yaml.log"
    wait_until(lambda: log.exists() and log.read_text().rstrip().endswith("}"), says=log.read_text)
    if psutil.pid_exists(int(told["name"])):
        wait_for(psutil.Process(int(told["name"])))
    assert json.loads(log.read_text()[log.read_text().index("\n{") :])["steps"][0]["step"] == "sample-data"
