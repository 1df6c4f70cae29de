"""`protodask export`: what a model consists of, as tables."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from protodask.cli.computing import COMPUTING_HERE, Computing, computing_engine
from protodask.cli.errors import reported
from protodask.cli.grouping import grouped
from protodask.cli.options import Debug, Json
from protodask.cli.showing.console import say, show_json
from protodask.pipeline.steps.base import Overwrite
from protodask.pipeline.steps.rows import Model
from protodask.pipeline.telling.wording import count, shorten


@grouped
def export(
    model: Model,
    out: Annotated[
        str, typer.Option("--out", metavar="FILE", help="Where to write: a file that ends in .csv, .parquet or .xlsx.")
    ],
    what: Annotated[
        Literal["prototypes", "weights"] | None,
        typer.Option(
            "--table", help="Prototypes or feature weights; by default, prototypes, and in an Excel file both."
        ),
    ] = None,
    training: Annotated[
        str | None,
        typer.Option("--training", metavar="DATA", help="The training dataset: prototypes as they were there."),
    ] = None,
    overwrite: Overwrite = False,
    computing: Computing = COMPUTING_HERE,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Write the prototypes and feature weights of a model to a table.

    In an Excel file all text stays text. In a CSV file it is written as it is: what begins with = + - or @ may be taken
    for a formula by a spreadsheet.
    """
    with reported(debug):
        from protodask.explain.exports import check_export
        from protodask.explain.requests import export_model

        with computing_engine(computing, lambda: check_export(out, overwrite=True)) as (engine, _):
            found = export_model(model, out, what=what, training=training, overwrite=overwrite, engine=engine)
        if as_json:
            show_json(found.describe())
            return
        tables = " and ".join(f"{table.name} ({count(table.n_rows, 'row')})" for table in found.tables)
        say(f"The file {shorten(found.path)} has the {tables}.")
