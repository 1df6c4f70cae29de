"""`protodask info`: what a dataset, a model, a run directory or the like is."""

from __future__ import annotations

import os
import time
from typing import Annotated, Any

import typer

from protodask.cli.errors import reported
from protodask.cli.options import Debug, Json
from protodask.cli.showing.console import say
from protodask.cli.showing.description import show_description


def info(
    path: Annotated[
        str,
        typer.Argument(
            metavar="DATA|MODEL|RUN", help="A dataset, model, run directory, predictions, decisions or budget."
        ),
    ],
    watch: Annotated[
        float | None,
        typer.Option(
            "--watch",
            metavar="SECONDS",
            min=0.1,
            help="Describe it again after so many seconds, until it has finished or Ctrl-C is pressed.",
        ),
    ] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Describe a dataset, a model, a run directory, predictions, decisions or a budget, without reading rows."""
    with reported(debug):
        from protodask.data.places.references import split_reference
        from protodask.data.tables.source_files import check_present

        if split_reference(path) is None:
            check_present(path)
        from protodask.pipeline.inspecting.describe import describe_place

        if watch is None:
            show_description(describe_place(path), as_json)
        else:
            _watch(path, watch, as_json)


def _watch(path: str, seconds: float, as_json: bool) -> None:
    from protodask.errors import StorageError
    from protodask.pipeline.inspecting.describe import describe_place
    from protodask.pipeline.telling.json_file import to_json_line

    described: dict[str, Any] = {}
    while True:
        try:
            described = describe_place(path)
        except StorageError:
            if not described or os.path.lexists(path):
                raise
            typer.echo("The run directory is gone: the run has ended, or was removed.", err=True)
            return
        if as_json:
            typer.echo(to_json_line(described))
        else:
            show_description(described, as_json=False)
        if described.get("finished", True):
            return
        time.sleep(seconds)
        if not as_json:
            say()
