"""`protodask monitor`: rows as a model sees them, and what changed."""

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
def monitor(
    model: Model,
    data: Annotated[
        str,
        typer.Argument(metavar="DATA", help="Rows, of known classes or not: a dataset, or raw tables or arrays."),
    ],
    out: Annotated[
        str, typer.Option("--out", metavar="FILE", help="JSON file to write; itself a reference for later.")
    ],
    reference: Annotated[
        str | None,
        typer.Option(
            "--reference",
            metavar="FILE",
            help="What `monitor` wrote for this model and earlier rows, best rows that it was not trained on.",
        ),
    ] = None,
    batches: Batches = None,
    target: Target = None,
    weight: Weight = None,
    inclusion: Inclusion = None,
    unseen: UnseenOption = "error",
    drop: Drop = None,
    significance: Annotated[
        float,
        typer.Option(
            "--significance",
            metavar="P",
            help="A change counts where chance makes it with less than this probability, for each kind of figure.",
        ),
    ] = 5e-5,
    overwrite: Overwrite = False,
    computing: Computing = COMPUTING_HERE,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Describe rows as a model sees them: features, familiarity, classes, calibration, loss.

    With a reference, say what changed since then, by figures that allow for noise: see `protodask gate`.
    """
    with reported(debug):
        from protodask.pipeline.steps import MonitorStep

        step = MonitorStep(
            model=model,
            data=data,
            out=out,
            reference=reference,
            batches=batches,
            target=target,
            weight=weight,
            inclusion=inclusion,
            unseen=unseen,
            drop=tuple(drop or ()),
            significance=significance,
            overwrite=overwrite,
        )
        show_result(perform_step(step, computing), as_json)
