"""A scheduler and workers on this machine, started by one command."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import psutil
import pytest
from cluster._started import CLUSTER, FIT, Problem, end, environment, fingerprint, run, wait_until

SCRIPT = CLUSTER / "local" / "train.sh"


def listening(process: psutil.Process) -> set[str]:
    """Addresses on which a process and its descendants listen."""
    family = [process, *process.children(recursive=True)]
    sockets = [entry for one in family for entry in one.net_connections(kind="tcp")]
    return {entry.laddr.ip for entry in sockets if entry.status == psutil.CONN_LISTEN}


@pytest.mark.slow
def test_train__same_model_and_nothing_left(problem: Problem, tmp_path: Path) -> None:
    model = tmp_path / "model.zarr"
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    for name in ("json", "rich", "typer", "multiprocessing"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('somebody put this beside the data')\n")
    done = run(
        [SCRIPT, "--workers", 2, "--memory", "700MiB", "fit", problem.data, "--out", model, *FIT],
        tmp_path,
        {"TMPDIR": str(scratch)},
    )
    assert done.returncode == 0, done.stderr
    assert fingerprint(model) == problem.fingerprint
    assert not list(scratch.iterdir())


@pytest.mark.slow
def test_train__passes_the_exit_code_on(tmp_path: Path) -> None:
    done = run([SCRIPT, "--workers", 1, "fit", tmp_path / "none.zarr", "--out", tmp_path / "m.zarr"], tmp_path)
    assert done.returncode == 1
    assert "Check the path." in done.stderr


def test_train__says_how_it_is_used(tmp_path: Path) -> None:
    done = run([SCRIPT, "--workers", 1], tmp_path)
    assert done.returncode == 2
    assert "COMMAND ARGUMENT" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_train__stopped_ends_what_it_started(how: signal.Signals, problem: Problem, tmp_path: Path) -> None:
    model = tmp_path / "model.zarr"
    command = [SCRIPT, "--workers", "1", "fit", problem.data, "--out", model, "--candidates", "200", "--batches", "50"]
    started = subprocess.Popen(
        list(map(str, command)), cwd=tmp_path, env=environment(), stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_until(lambda: any(Path(f"{model}.run").glob("batch-*.log")), "the first evaluation")
        script = psutil.Process(started.pid)
        assert listening(script) == {"127.0.0.1"}
        family = script.children(recursive=True)
        assert len(family) >= 3  # scheduler, worker, driver
        os.kill(started.pid, how)
        assert started.wait(30) == 128 + how
        assert not psutil.wait_procs(family, timeout=10)[1]
    finally:
        end(started)
    assert not model.exists()
