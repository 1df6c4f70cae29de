from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.commands import check_failed
from support.errors import refused
from typer.testing import Result

from protodask.cli.computing import Computing
from protodask.cli.detach import arguments_of_job
from protodask.cli.errors import WrongUseError
from protodask.cli.options import Connection

Call = Callable[..., Result]


def test_check__refuses_a_memory_limit_that_nothing_fits_into() -> None:
    with refused("bad-setting", "10 MiB", "250 MiB", kind=WrongUseError):
        Computing(memory_limit=10 * 2**20).check()
    Computing(memory_limit=2**30).check()


@pytest.mark.parametrize(
    ("computing", "options"),
    [
        (Computing(scheduler="tcp://a:1", workers=2), ("--scheduler", "--workers")),
        (Computing(scheduler="tcp://a:1", threads=2), ("--scheduler", "--threads")),
        (Computing(workers=2, threads=2), ("--workers", "--threads")),
        (Computing(scheduler="tcp://a:1", memory_limit=2**30), ("--scheduler", "--memory-limit")),
    ],
)
def test_check__refuses_options_that_contradict_each_other(computing: Computing, options: tuple[str, ...]) -> None:
    with refused("settings-conflict", *options, kind=WrongUseError):
        computing.check()


@pytest.mark.parametrize("connection", [Connection(insecure=True), Connection("ca.pem", "client.pem", "key.pem")])
def test_check__refuses_options_on_a_connection_without_a_scheduler(connection: Connection) -> None:
    with refused("settings-conflict", "--scheduler", "--insecure", kind=WrongUseError):
        Computing(connection=connection).check()


def test_check__refuses_schedulers_in_the_clear_elsewhere() -> None:
    with refused("not-secure", "tcp://10.0.0.1:8786", "tls://", "--insecure", kind=WrongUseError):
        Computing(scheduler="tcp://10.0.0.1:8786").check()
    Computing(scheduler="tcp://10.0.0.1:8786", connection=Connection(insecure=True)).check()
    Computing(scheduler="tls://10.0.0.1:8786").check()


def test_computing__is_said_by_the_environment(
    call: Call, example: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROTODASK_SCHEDULER", "tls://10.0.0.1:8786")
    monkeypatch.setenv("PROTODASK_TLS_CA", "ca.pem")
    done = call("fit", example.data, "--out", tmp_path / "m.zarr")
    check_failed(done, 2, "setting-missing", "--tls-cert", "--tls-key")
    monkeypatch.delenv("PROTODASK_TLS_CA")
    done = call("fit", example.data, "--out", tmp_path / "m.zarr", "--workers", "2")
    check_failed(done, 2, "settings-conflict", "--scheduler", "--workers", "PROTODASK_SCHEDULER")


def test_detach__hands_on_what_the_environment_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["protodask", "fit", "d", "--tls-ca=mine.pem", "--detach", "slurm", "--", "-m"])
    computing = Computing(scheduler="tls://a:1", connection=Connection("mine.pem", "cert.pem", "key.pem", True))
    added = ("--scheduler", "tls://a:1", "--tls-cert", "cert.pem", "--tls-key", "key.pem", "--insecure")
    assert arguments_of_job(computing) == ("fit", "d", "--tls-ca=mine.pem", *added, "--", "-m")


def test_quiet__leaves_the_result_alone(call: Call, example: Any, tmp_path: Path) -> None:
    settings = ("--candidates", "20", "--tolerance", "1e-2")
    told = call("fit", example.data, "--out", tmp_path / "told.zarr", *settings)
    quiet = call("fit", example.data, "--out", tmp_path / "quiet.zarr", *settings, "--quiet")
    assert told.exit_code == quiet.exit_code == 0
    assert "batch 1" in told.stderr
    assert quiet.stderr == ""
    assert quiet.stdout.startswith("The model")
    failed = call("predict", tmp_path / "quiet.zarr", example.table, "--out", tmp_path / "p.csv", "--quiet")
    assert failed.exit_code == 0, failed.output
