"""Command lines run in this process."""

from functools import cache
from typing import Any
from unittest import mock

import typer.main
from typer.testing import CliRunner, Result

from protodask.cli import app


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
