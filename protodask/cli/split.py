"""`protodask split`: rows to train on, and rows held out."""

from __future__ import annotations

from typing import Annotated

import typer

from protodask.cli.computing import COMPUTING_HERE, Computing, perform_step
from protodask.cli.errors import reported
from protodask.cli.options import Debug, Json, Overwrite, grouped
from protodask.cli.show import show_result
from protodask.cli.training import Data


@grouped
def split(
    data: Data,
    out: Annotated[str, typer.Option("--out", metavar="DATA", help="Where to write the rows to train on.")],
    held_out: Annotated[str, typer.Option("--held-out", metavar="DATA", help="Where to write the rows held out.")],
    share: Annotated[
        float, typer.Option("--share", metavar="X", help="Share of the rows, or of the groups, to hold out.")
    ] = 0.2,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Other seeds hold out other rows.")] = 0,
    overwrite: Overwrite = False,
    computing: Computing = COMPUTING_HERE,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Divide a dataset into rows to train on and rows held out; a row stays in its part when the dataset grows."""
    with reported(debug):
        from protodask.pipeline.steps import SplitStep

        step = SplitStep(data, out, held_out, share, seed, overwrite)
        show_result(perform_step(step, computing), as_json)
