"""`protodask prune`: a model of fewer prototypes."""

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
def prune(
    model: Model,
    data: Rows,
    out: Annotated[str, typer.Option("--out", metavar="MODEL", help="Where to write the model that is left.")],
    prototypes: Annotated[int, typer.Option("--prototypes", min=1, help="How many it may have.")],
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
    """Leave a model so many prototypes at most, by rows of known classes: those of its training, or new ones."""
    with reported(debug):
        from protodask.pipeline.steps import PruneStep

        step = PruneStep(
            model=model,
            data=data,
            out=out,
            prototypes=prototypes,
            target=target,
            weight=weight,
            inclusion=inclusion,
            unseen=unseen,
            drop=tuple(drop or ()),
            overwrite=overwrite,
        )
        show_result(perform_step(step, computing), as_json)
