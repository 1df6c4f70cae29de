"""`protodask run`: the steps of a pipeline file."""

from __future__ import annotations

from typing import Annotated

import typer

from protodask.cli.computing import COMPUTING_HERE, Computing, computing_engine
from protodask.cli.detach import Detach, detach_pipeline
from protodask.cli.errors import reported, wrong_use
from protodask.cli.options import Debug, Json, grouped
from protodask.cli.show import show_pipeline


@grouped
def run(
    pipeline: Annotated[str, typer.Argument(metavar="PIPELINE.yaml", help="A pipeline file.")],
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Set a variable of the file. Repeatable.")
    ] = None,
    computing: Computing = COMPUTING_HERE,
    detach: Detach = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Carry out the steps of a pipeline file in order."""
    with reported(debug):
        from protodask.pipeline.definition import parse_settings, read_pipeline
        from protodask.pipeline.runner import check_pipeline, describe_step, run_pipeline

        with wrong_use():
            definition = read_pipeline(pipeline, parse_settings(settings or ()))
        if detach is not None:
            detach_pipeline(detach, definition, computing, as_json)
            return
        total = len(definition.steps)
        with computing_engine(computing, lambda: check_pipeline(definition)) as (engine, reporter):
            results = run_pipeline(
                definition,
                engine,
                callbacks=(reporter.on_fit,),
                listen=reporter.on_search,
                listen_budget=reporter.on_budget,
                listen_robust=reporter.on_robust,
                started=lambda number, step: reporter.line(f"step {number} of {total}: {describe_step(step)}"),
            )
        show_pipeline(definition, results, as_json)
