"""`protodask info`: what a dataset, a model, a run directory or the like is."""

from __future__ import annotations

import os
import time
from typing import Annotated, Any

import typer

from protodask.cli.grouping import grouped
from protodask.cli.options import Json
from protodask.cli.showing.console import Answer, give, say
from protodask.cli.showing.description import told_description
from protodask.errors import StorageError
from protodask.pipeline.steps.base import Option
from protodask.pipeline.telling.result import to_json_line


@grouped
def info(
    path: Annotated[
        str,
        typer.Argument(
            metavar="DATA|MODEL|RUN|PIPELINE.yaml",
            help="A dataset, model, run directory, predictions, decisions, budget or pipeline file.",
        ),
    ],
    watch: Annotated[
        float | None,
        Option(
            "Describe it again after so many seconds, until it has finished or Ctrl-C is pressed.", "SECONDS", least=0.1
        ),
    ] = None,
    as_json: Json = False,
) -> Answer | None:
    """Describe what lies at a path, without reading rows; of a pipeline file, how its last run ended."""
    from protodask.data.places.references import split_reference
    from protodask.data.tables.source_files import check_present

    if split_reference(path) is None:
        check_present(path)
    from protodask.pipeline.inspecting.describe import describe_place

    if watch is None:
        return _answer(describe_place(path))
    _watch(path, watch, as_json)
    return None


def _answer(found: dict[str, Any]) -> Answer:
    return Answer(lambda: found, told_description(found))


def _watch(path: str, seconds: float, as_json: bool) -> None:
    from protodask.pipeline.inspecting.describe import describe_place

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
            give(_answer(described), as_json=False)
        if described.get("finished", True):
            return
        time.sleep(seconds)
        if not as_json:
            say()
