"""`protodask fit`: train a model on a dataset."""

from __future__ import annotations

from typing import Annotated

import typer

from protodask.cli.computing import COMPUTING_HERE, Computing, perform_step
from protodask.cli.console import say
from protodask.cli.detach import Detach, detach_fit
from protodask.cli.errors import reported
from protodask.cli.options import Debug, Json, Overwrite, grouped
from protodask.cli.show import show_result
from protodask.cli.training import NOTHING_SAID, Data, RunDir, TrainingOptions

GUESSED = ("lambda_v", "lambda_w", "batches")
"""Settings that `tune` chooses, and the same for all data where nobody says them."""


@grouped
def fit(
    data: Data,
    out: Annotated[str, typer.Option("--out", metavar="MODEL", help="Where to write the model.")],
    training: TrainingOptions = NOTHING_SAID,
    run_dir: RunDir = None,
    overwrite: Overwrite = False,
    computing: Computing = COMPUTING_HERE,
    detach: Detach = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Train a model on a dataset, or add batches to a model."""
    with reported(debug):
        from protodask.pipeline.steps import FitStep

        step = FitStep(data=data, out=out, run_dir=run_dir, overwrite=overwrite, **vars(training))
        if detach is None:
            show_result(perform_step(step, computing), as_json)
            if not as_json and all(getattr(step, name) is None for name in ("config", "start", *GUESSED)):
                say("Its penalties and the number of batches are guesses: `protodask tune` chooses them by these data.")
        else:
            detach_fit(detach, step, computing, as_json)
