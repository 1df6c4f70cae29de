"""`protodask fit`: train a model on a dataset."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from protodask.cli.computing import COMPUTING_HERE, Computing, perform_step
from protodask.cli.detach import Detach, detach_fit
from protodask.cli.errors import reported
from protodask.cli.options import Debug, Json, Overwrite, grouped
from protodask.cli.show import show_result

TRAINING = "Settings of the training"
RUN = "The run"


def _setting(name: str, default: str, text: str) -> typer.models.OptionInfo:
    # The settings have no default here: what is not given comes from --config, or else from the training itself.
    option: typer.models.OptionInfo = typer.Option(name, show_default=default, help=text, rich_help_panel=TRAINING)
    return option


@grouped
def fit(
    data: Annotated[str, typer.Argument(metavar="DATA", help="A dataset.")],
    out: Annotated[str, typer.Option("--out", metavar="MODEL", help="Where to write the model.")],
    batches: Annotated[int | None, _setting("--batches", "1", "Batches of prototypes to add.")] = None,
    candidates: Annotated[
        int | None, _setting("--candidates", "1000", "Rows tried as prototypes in each batch.")
    ] = None,
    max_fraction: Annotated[
        float | None, _setting("--max-fraction", "0.5", "Largest share of like rows that may become candidates.")
    ] = None,
    lambda_v: Annotated[float | None, _setting("--lambda-v", "0.001", "Penalty on the feature weights.")] = None,
    lambda_w: Annotated[float | None, _setting("--lambda-w", "1e-08", "Penalty on the prototype weights.")] = None,
    alpha_v: Annotated[
        float | None, _setting("--alpha-v", "0.95", "Share of the l2 part in the penalty on feature weights.")
    ] = None,
    alpha_w: Annotated[
        float | None, _setting("--alpha-w", "0.95", "Share of the l2 part in the penalty on prototype weights.")
    ] = None,
    standardize: Annotated[
        bool | None, _setting("--standardize/--raw-units", "standardize", "What the feature weights refer to.")
    ] = None,
    precision: Annotated[
        Literal["float32", "float64"] | None,
        _setting("--precision", "float32", "Of the kernel; sums are float64 in any case."),
    ] = None,
    tolerance: Annotated[
        float | None,
        _setting("--tolerance", "2.22e-09", "Stop when an iteration improves by less, as a share of the objective."),
    ] = None,
    max_iterations: Annotated[
        int | None, _setting("--max-iterations", "5000", "Iterations of a batch at most.")
    ] = None,
    seed: Annotated[int | None, _setting("--seed", "0", "Of the draw of candidates.")] = None,
    config: Annotated[
        str | None,
        typer.Option(
            "--config", metavar="FILE", help="YAML file with such settings; the command line wins.", rich_help_panel=RUN
        ),
    ] = None,
    run_dir: Annotated[
        str | None,
        typer.Option(
            "--run-dir",
            metavar="DIR",
            help="Keep the record from which the same command goes on here [default: MODEL.run, removed at the end].",
            rich_help_panel=RUN,
        ),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option("--start", metavar="MODEL", help="Add the batches to this model.", rich_help_panel=RUN),
    ] = None,
    overwrite: Overwrite = False,
    computing: Computing = COMPUTING_HERE,
    detach: Detach = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Train a model on a dataset, or add batches to a model."""
    with reported(debug):
        from protodask.pipeline.steps import FitStep

        step = FitStep(
            data=data,
            out=out,
            batches=batches,
            candidates=candidates,
            max_fraction=max_fraction,
            lambda_v=lambda_v,
            lambda_w=lambda_w,
            alpha_v=alpha_v,
            alpha_w=alpha_w,
            standardize=standardize,
            precision=precision,
            tolerance=tolerance,
            max_iterations=max_iterations,
            seed=seed,
            config=config,
            run_dir=run_dir,
            start=start,
            overwrite=overwrite,
        )
        if detach is None:
            show_result(perform_step(step, computing), as_json)
        else:
            detach_fit(detach, step, computing, as_json)
