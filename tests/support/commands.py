"""Command lines run in this process, and what they say."""

import json
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import typer.main
from typer.testing import CliRunner, Result

from protodask.cli import app
from protodask.errors import Code
from support.errors import states


@cache
def _built() -> Any:
    return typer.main.get_command(app)


def run_command(*arguments: object, columns: int = 400) -> Result:
    """Run a command line, on a terminal so wide that no message is broken over lines.

    The runner would build all commands anew for each call, which takes longer than most of them.
    """
    runner = CliRunner(env={"COLUMNS": str(columns), "TERMINAL_WIDTH": str(columns)})
    with mock.patch("typer.testing._get_command", return_value=_built()):
        return runner.invoke(app, list(map(str, arguments)))


def json_of(*arguments: object) -> Any:
    """What a command line that does not fail prints with `--json`."""
    done = run_command(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def fingerprint_of(place: Path) -> str:
    """Of the model or dataset at a place."""
    return str(json_of("info", place)["fingerprint"])


def check_failed(done: Result, exit_code: int, code: Code, *facts: object) -> None:
    """The command failed with this error alone, which states all of these facts, and without a traceback."""
    assert done.exit_code == exit_code, done.output
    assert done.stderr.count("Error: ") == 1, done.stderr
    said = done.stderr.partition("Error: ")[2]
    assert f" [{code}]\n" in said, said
    missing = [fact for fact in facts if not states(said, fact)]
    assert not missing, f"{missing} not in: {said}"
    assert "Traceback" not in done.output
