"""`protodask evaluate`: how good a model's predictions are."""

from __future__ import annotations

from typing import Annotated

import typer

from protodask.cli.computing import COMPUTING_HERE, Computing, perform_step
from protodask.cli.errors import reported
from protodask.cli.options import Debug, Json, Overwrite, grouped
from protodask.cli.predict import Batches, Calibrated, Drop, Model, Rows, UnseenOption
from protodask.cli.show import show_result

TABLES = "For raw tables"

Target = Annotated[
    str | None,
    typer.Option(
        "--target",
        metavar="COL",
        help="Column of the classes; by default, the one of the training data.",
        rich_help_panel=TABLES,
    ),
]
Weight = Annotated[
    str | None, typer.Option("--weight", metavar="COL", help="Column of row weights.", rich_help_panel=TABLES)
]
Inclusion = Annotated[
    str | None,
    typer.Option(
        "--inclusion",
        metavar="COL",
        help="Column of the probabilities with which rows were kept.",
        rich_help_panel=TABLES,
    ),
]


@grouped
def evaluate(
    model: Model,
    data: Rows,
    batches: Batches = None,
    calibrated: Calibrated = False,
    target: Target = None,
    weight: Weight = None,
    inclusion: Inclusion = None,
    unseen: UnseenOption = "error",
    drop: Drop = None,
    roc_auc: Annotated[
        bool, typer.Option("--roc-auc/--no-roc-auc", help="The exact ROC AUC needs memory for each row.")
    ] = True,
    out: Annotated[
        str | None, typer.Option("--out", metavar="FILE", help="Write the scores to a JSON file, too.")
    ] = None,
    overwrite: Overwrite = False,
    computing: Computing = COMPUTING_HERE,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Measure log-loss, accuracy, Brier score, ROC AUC and the confusion matrix on rows of known classes."""
    with reported(debug):
        from protodask.pipeline.steps import EvaluateStep

        step = EvaluateStep(
            model=model,
            data=data,
            batches=batches,
            calibrated=calibrated,
            target=target,
            weight=weight,
            inclusion=inclusion,
            unseen=unseen,
            drop=tuple(drop or ()),
            roc_auc=roc_auc,
            out=out,
            overwrite=overwrite,
        )
        show_result(perform_step(step, computing), as_json)
