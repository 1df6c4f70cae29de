"""`protodask info`: what a dataset, a model, a run directory or the like is."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from protodask.cli.errors import reported
from protodask.cli.options import Debug, Json
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
        from protodask.data.references import split_reference
        from protodask.pipeline.state.checks import check_present

        if split_reference(path) is None:
            check_present(path)
        from protodask.pipeline.inspecting.describe import describe_place

        while True:
            described = describe_place(path)
            show_description(described, as_json)
            if watch is None or described.get("finished", True):
                return
            time.sleep(watch)
            typer.echo("")
