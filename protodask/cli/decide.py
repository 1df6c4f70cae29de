"""`protodask decide`: which rows to select, for the loss they are judged by."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from protodask.cli.computing import COMPUTING_HERE, Computing, perform_step
from protodask.cli.errors import reported
from protodask.cli.options import Debug, Json, Overwrite, grouped
from protodask.cli.show import show_result

LOSS = "The loss"
ROWS = "The rows"


@grouped
def decide(
    predictions: Annotated[
        str,
        typer.Argument(
            metavar="PRED", help="Predictions of `protodask predict`, or Parquet files with a column of probabilities."
        ),
    ],
    out: Annotated[
        str,
        typer.Option(
            "--out", metavar="DECISIONS", help="Where to write: Parquet if it ends in .parquet, otherwise Zarr."
        ),
    ],
    loss: Annotated[
        str | None,
        typer.Option(
            "--loss",
            metavar="NAME",
            help="am, f1, jaccard, g_tp_pr, g_mean, h_mean, auc, or f and a number such as f2; by default, f1.",
            rich_help_panel=LOSS,
        ),
    ] = None,
    beta: Annotated[
        float | None,
        typer.Option("--beta", help="F-beta: recall counts beta squared times as much.", rich_help_panel=LOSS),
    ] = None,
    coefficients: Annotated[
        str | None,
        typer.Option(
            "--coefficients",
            metavar="C0,C1,C2,C3/D0,D1,D2,D3",
            help="(c0 + c1 u + c2 v + c3 p) / (d0 + d1 u + d2 v + d3 p), where u, v and p are the shares of true "
            "positives, selected and positive rows.",
            rich_help_panel=LOSS,
        ),
    ] = None,
    positive: Annotated[
        str | None,
        typer.Option(
            "--positive",
            metavar="LABEL",
            help="Class that is told from the others; of two, the second by default.",
            rich_help_panel=ROWS,
        ),
    ] = None,
    probability: Annotated[
        list[str] | None,
        typer.Option(
            "--probability",
            metavar="COL",
            help="Column of probabilities in Parquet files that are not predictions; several with --per-row.",
            rich_help_panel=ROWS,
        ),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            metavar="COL",
            help="Column that says which item set a row belongs to: one decision for each.",
            rich_help_panel=ROWS,
        ),
    ] = None,
    per_row: Annotated[
        Literal["classes", "labels"] | None,
        typer.Option(
            "--per-row",
            help="One decision for each row: which classes to name, of which one is true, or which labels, true "
            "independently of each other.",
            rich_help_panel=ROWS,
        ),
    ] = None,
    method: Annotated[
        Literal["auto", "exact", "normal"],
        typer.Option("--method", help="Exact sums, nearly normal counts for many rows, or what suits."),
    ] = "auto",
    overwrite: Overwrite = False,
    computing: Computing = COMPUTING_HERE,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Select the rows that make the expected loss the least: F1, Jaccard, AM and others, or your own."""
    with reported(debug):
        from protodask.pipeline.steps import DecideStep

        step = DecideStep(
            predictions=predictions,
            out=out,
            loss=loss,
            beta=beta,
            coefficients=coefficients,
            positive=positive,
            probability=tuple(probability or ()),
            group=group,
            per_row=per_row,
            method=method,
            overwrite=overwrite,
        )
        show_result(perform_step(step, computing), as_json)
