"""`protodask calibrate`: a calibration of a model, kept with it."""

from __future__ import annotations

from typing import Annotated

import typer

from protodask.cli.computing import COMPUTING_HERE, Computing, perform_step
from protodask.cli.errors import reported
from protodask.cli.evaluate import Inclusion, Target, Weight
from protodask.cli.options import Debug, Json, Overwrite, grouped
from protodask.cli.predict import Drop, Model, Rows, UnseenOption
from protodask.cli.show import show_result


@grouped
def calibrate(
    model: Model,
    data: Rows,
    out: Annotated[str, typer.Option("--out", metavar="MODEL", help="Where to write the model with its calibration.")],
    bins: Annotated[
        int, typer.Option("--bins", min=1, help="Bins of equal weight; each gives the spline a point.")
    ] = 20,
    monotone: Annotated[
        bool, typer.Option("--monotone", help="Let no spline fall: higher raw probabilities keep their order.")
    ] = False,
    batches: Annotated[
        int | None,
        typer.Option(
            "--batches",
            min=0,
            help="Calibrate so many batches of the model, those trained together counted as one; by default, all.",
        ),
    ] = None,
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
    """Calibrate a model's probabilities on rows of known classes that it was not trained on."""
    with reported(debug):
        from protodask.pipeline.steps import CalibrateStep

        step = CalibrateStep(
            model=model,
            data=data,
            out=out,
            bins=bins,
            monotone=monotone,
            batches=batches,
            target=target,
            weight=weight,
            inclusion=inclusion,
            unseen=unseen,
            drop=tuple(drop or ()),
            overwrite=overwrite,
        )
        show_result(perform_step(step, computing), as_json)
