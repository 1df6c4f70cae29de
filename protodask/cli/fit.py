"""`protodask fit`: train a model on a dataset."""

from __future__ import annotations

from typing import Annotated

import typer

from protodask.cli.computing import Computing, perform_step
from protodask.cli.errors import reported
from protodask.cli.options import Debug, Json, MemoryLimit, Overwrite, Scheduler, Threads, Workers
from protodask.cli.show import show_result
from protodask.cli.training import (
    RUN,
    AlphaV,
    AlphaW,
    Candidates,
    Config,
    Data,
    LambdaV,
    LambdaW,
    MaxFraction,
    MaxIterations,
    NewBatches,
    Precision,
    Seed,
    Standardize,
    Start,
    Tolerance,
)


def fit(
    data: Data,
    out: Annotated[str, typer.Option("--out", metavar="MODEL", help="Where to write the model.")],
    batches: NewBatches = None,
    candidates: Candidates = None,
    max_fraction: MaxFraction = None,
    lambda_v: LambdaV = None,
    lambda_w: LambdaW = None,
    alpha_v: AlphaV = None,
    alpha_w: AlphaW = None,
    standardize: Standardize = None,
    precision: Precision = None,
    tolerance: Tolerance = None,
    max_iterations: MaxIterations = None,
    seed: Seed = None,
    config: Config = None,
    run_dir: Annotated[
        str | None,
        typer.Option(
            "--run-dir",
            metavar="DIR",
            help="Keep the record from which the same command goes on here [default: MODEL.run, removed at the end].",
            rich_help_panel=RUN,
        ),
    ] = None,
    start: Start = None,
    overwrite: Overwrite = False,
    memory_limit: MemoryLimit = None,
    threads: Threads = None,
    scheduler: Scheduler = None,
    workers: Workers = None,
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
        show_result(perform_step(step, Computing(memory_limit, threads, scheduler, workers)), as_json)
