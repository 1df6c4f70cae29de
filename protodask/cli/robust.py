"""`protodask robust`: planes of largest margin from features that are known only roughly."""

from __future__ import annotations

import typer

from protodask.cli.steps import step_command
from protodask.pipeline.steps import RobustEvaluateStep, RobustFitStep, RobustPredictStep

app = typer.Typer(name="robust", no_args_is_help=True)


@app.callback()
def robust() -> None:
    """Train and apply classifiers where features are known only roughly: by bounds, means and spreads."""


app.command("fit")(step_command(RobustFitStep))
app.command("predict")(step_command(RobustPredictStep))
app.command("evaluate")(step_command(RobustEvaluateStep))
