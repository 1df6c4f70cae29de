from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from support.errors import refused
from typer.testing import CliRunner, Result

from protodask.cli.detach import arguments_of_job
from protodask.cli.errors import WrongUseError
from protodask.cli.grouping import grouped
from protodask.cli.options import Computing, Connection

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
    with refused("not-secure", "tcp://10.0.0.1:8786", "tls://", "insecure=True", kind=WrongUseError):
        Computing(scheduler="tcp://10.0.0.1:8786").check()
    Computing(scheduler="tcp://10.0.0.1:8786", connection=Connection(insecure=True)).check()
    Computing(scheduler="tls://10.0.0.1:8786").check()


@pytest.mark.parametrize(
    ("environment", "arguments", "expected"),
    [
        ({"SCHEDULER": "tls://a:1"}, (), Computing(scheduler="tls://a:1")),
        ({"SCHEDULER": "tls://a:1"}, ("--scheduler", "tls://b:2"), Computing(scheduler="tls://b:2")),
        ({"SCHEDULER": "tls://a:1"}, ("--workers", "2"), Computing(workers=2)),
        ({"SCHEDULER": "tls://a:1"}, ("--threads", "1"), Computing(threads=1)),
        ({"SCHEDULER": "tls://a:1"}, ("--memory-limit", "1GiB"), Computing(memory_limit=2**30)),
        ({"TLS_CA": "a", "TLS_CERT": "b", "TLS_KEY": "c", "INSECURE": "1"}, (), Computing()),
        ({"TLS_CA": "a", "TLS_CERT": "b", "TLS_KEY": "c"}, ("--scheduler", "tcp://127.0.0.1:1"),
         Computing(scheduler="tcp://127.0.0.1:1")),
        ({"TLS_CA": "a", "TLS_CERT": "b", "TLS_KEY": "c"}, ("--scheduler", "tls://a:1", "--tls-key", "mine"),
         Computing(scheduler="tls://a:1", connection=Connection("a", "b", "mine"))),
        ({}, ("--workers", "2", "--scheduler", "tls://a:1"), Computing(workers=2, scheduler="tls://a:1")),
    ],
)  # fmt: skip
def test_computing__is_said_by_the_environment_unless_options_say_otherwise(
    environment: dict[str, str], arguments: tuple[str, ...], expected: Computing, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Computing] = []
    app = typer.Typer()

    @app.command()
    @grouped
    def command(computing: Computing) -> None:
        seen.append(computing)

    for name, value in environment.items():
        monkeypatch.setenv(f"PROTODASK_{name}", value)
    assert CliRunner().invoke(app, list(arguments)).exit_code == 0
    assert seen == [expected]


def test_detach__hands_on_what_the_environment_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["protodask", "fit", "d", "--tls-ca=mine.pem", "--detach", "slurm", "--", "-m"])
    computing = Computing(scheduler="tls://a:1", connection=Connection("mine.pem", "cert.pem", "key.pem", True))
    added = ("--scheduler", "tls://a:1", "--tls-cert", "cert.pem", "--tls-key", "key.pem", "--insecure")
    assert arguments_of_job(computing, "slurm") == ("fit", "d", "--tls-ca=mine.pem", *added, "--", "-m")
    of_container = ("fit", "d", "--tls-ca=mine.pem", "--scheduler", "tls://a:1", "--", "-m")
    assert arguments_of_job(computing, "kubernetes") == of_container


def test_quiet__leaves_the_result_and_warnings(call: Call, example: Any, tmp_path: Path) -> None:
    settings = ("--recipe", "source", "--candidates", "20", "--max-iterations", "3")
    told = call("fit", example.data, "--out", tmp_path / "told.zarr", *settings)
    quiet = call("fit", example.data, "--out", tmp_path / "quiet.zarr", *settings, "--quiet")
    assert told.exit_code == quiet.exit_code == 0
    assert "round 1 of 1 begins" in told.stderr
    assert "`protodask tune`" in told.stdout
    (warning,) = quiet.stderr.splitlines()
    assert warning.startswith("Warning: Round 1 stopped early")
    (result,) = quiet.stdout.splitlines()
    assert result.startswith("The model")


def test_quiet__of_a_pipeline_leaves_results_and_warnings(call: Call, example: Any, tmp_path: Path) -> None:
    fit = f"data: {example.data}, out: {tmp_path}/m.zarr, recipe: source, candidates: 20, max-iterations: 3"
    (tmp_path / "p.yaml").write_text(f"state: {tmp_path}/state\nsteps: [fit: {{{fit}}}]\n")
    quiet = call("run", tmp_path / "p.yaml", "--quiet")
    assert quiet.exit_code == 0, quiet.output
    (warning,) = quiet.stderr.splitlines()
    assert warning.startswith("Warning: Round 1 stopped early")
    assert quiet.stdout.startswith("The model")
    fresh = call("run", tmp_path / "p.yaml", "--quiet")
    assert (fresh.stderr, fresh.exit_code) == ("", 0)
