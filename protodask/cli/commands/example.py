"""`protodask example`: the files that come with the package."""

from __future__ import annotations

from typing import Annotated

import typer

from protodask.cli.errors import reported, wrong_use
from protodask.cli.options import Debug
from protodask.cli.showing.console import say
from protodask.pipeline.telling.result import Table


def example(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Which one to print, such as train; else all are listed.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Print a pipeline to begin with: protodask example train > train.yaml.

    There are files for schedulers, too: systemd, cron, Prefect and Airflow.
    """
    with reported(debug):
        from protodask.pipeline.file.shipped import described, shipped_file, shipped_files

        if name is None:
            rows = [[name, described(path)] for name, path in shipped_files().items()]
            say(Table(["name", "what for"], rows, whole=True))
            return
        with wrong_use():
            path = shipped_file(name)
        typer.echo(path.read_text(encoding="utf-8"), nl=False)
