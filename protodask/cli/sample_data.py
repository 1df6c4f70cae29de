"""`protodask sample-data`: datasets to try things on."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from protodask.cli.computing import COMPUTING_HERE, Computing, perform_step
from protodask.cli.errors import reported
from protodask.cli.options import Debug, Json, Overwrite, grouped
from protodask.cli.show import show_result


@grouped
def sample_data(
    kind: Annotated[
        Literal["checker", "xor", "digits", "blobs"],
        typer.Argument(
            metavar="checker|xor|digits|blobs",
            help="checker: 8 x 8 fields of the unit square. xor: sign of the product of all features. digits: "
            "distorted images of digits. blobs: a normal distribution for each class.",
        ),
    ],
    rows: Annotated[int, typer.Option("--rows", min=1, help="Rows to make.")],
    out: Annotated[str, typer.Option("--out", metavar="DATA", help="Where to write the dataset.")],
    seed: Annotated[int, typer.Option("--seed", min=0, help="Other seeds make other rows.")] = 0,
    features: Annotated[int | None, typer.Option("--features", min=1, help="Features of xor or blobs.")] = None,
    classes: Annotated[int | None, typer.Option("--classes", min=2, help="Classes of blobs.")] = None,
    overwrite: Overwrite = False,
    computing: Computing = COMPUTING_HERE,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Make a dataset of sample data, of any number of rows."""
    with reported(debug):
        from protodask.pipeline.steps import SampleDataStep

        step = SampleDataStep(kind, rows, out, seed, features, classes, overwrite)
        show_result(perform_step(step, computing), as_json)
