"""`protodask report`: one HTML file on a model and the rows it is tried on."""

from __future__ import annotations

from typing import Annotated

import typer

from protodask.cli.computing import COMPUTING_HERE, Computing, perform_step
from protodask.cli.errors import reported
from protodask.cli.evaluate import Inclusion, Target, Weight
from protodask.cli.options import Debug, Json, Overwrite, grouped
from protodask.cli.predict import Batches, Drop, Model, UnseenOption
from protodask.cli.show import show_result


@grouped
def report(
    model: Model,
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA", help="Rows of known classes, best held-out ones: a dataset, or raw tables or arrays."
        ),
    ],
    out: Annotated[str, typer.Option("--out", metavar="FILE.html", help="Where to write the report.")],
    training: Annotated[
        str | None,
        typer.Option("--training", metavar="TRAIN", help="The dataset of the training, to measure drift from."),
    ] = None,
    drift: Annotated[
        str | None,
        typer.Option(
            "--drift",
            metavar="OTHER",
            help="Rows whose drift is measured, from TRAIN if it is given, else from DATA. By default, those of DATA.",
        ),
    ] = None,
    title: Annotated[str | None, typer.Option("--title", metavar="TEXT", help="Headline of the report.")] = None,
    batches: Batches = None,
    target: Target = None,
    weight: Weight = None,
    inclusion: Inclusion = None,
    unseen: UnseenOption = "error",
    drop: Drop = None,
    overwrite: Overwrite = False,
    computing: Computing = COMPUTING_HERE,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Write a report for people: quality, errors explained, features, prototypes, calibration, drift and costs.

    One HTML file that loads nothing from anywhere and opens from disk.
    """
    with reported(debug):
        from protodask.pipeline.steps import ReportStep

        step = ReportStep(
            model=model,
            data=data,
            out=out,
            training=training,
            drift=drift,
            title=title,
            batches=batches,
            target=target,
            weight=weight,
            inclusion=inclusion,
            unseen=unseen,
            drop=tuple(drop or ()),
            overwrite=overwrite,
        )
        show_result(perform_step(step, computing), as_json)
