"""`protodask evaluate`: how good a model's predictions are, or what its actions are worth."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from protodask.cli.computing import COMPUTING_HERE, Computing, perform_step
from protodask.cli.errors import reported
from protodask.cli.options import Debug, Json, Overwrite, grouped
from protodask.cli.predict import Batches, Calibrated, Drop, UnseenOption
from protodask.cli.show import show_result

TABLES = "For raw tables"
POLICIES = "For the value of a policy"

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
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model; with --policy and --match, leave it out.")],
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="DATA",
            help="A dataset, or raw tables or arrays: files, a glob or a folder. With --policy, a log.",
            show_default=False,
        ),
    ] = None,
    batches: Batches = None,
    calibrated: Calibrated = False,
    target: Target = None,
    weight: Weight = None,
    inclusion: Inclusion = None,
    unseen: UnseenOption = "error",
    drop: Drop = None,
    roc_auc: Annotated[
        bool,
        typer.Option("--roc-auc/--no-roc-auc", help="The ROC AUC; where not all scores fit into memory, with a bound."),
    ] = True,
    policy: Annotated[
        bool,
        typer.Option(
            "--policy",
            help="DATA is a log of actions: estimate what those of the model (its classes) would have earned there.",
            rich_help_panel=POLICIES,
        ),
    ] = False,
    action: Annotated[
        str | None,
        typer.Option(
            "--action",
            metavar="COL",
            help="Column of the logged action; by default, the target of the training data. Of a dataset, its target.",
            rich_help_panel=POLICIES,
        ),
    ] = None,
    match: Annotated[
        str | None,
        typer.Option(
            "--match",
            metavar="COL",
            help="In place of a model: column that says with 0 or 1, or with a probability, whether the policy takes "
            "the logged action.",
            rich_help_panel=POLICIES,
        ),
    ] = None,
    reward: Annotated[
        str, typer.Option("--reward", metavar="COL", help="Column of the rewards.", rich_help_panel=POLICIES)
    ] = "reward",
    propensity: Annotated[
        str,
        typer.Option(
            "--propensity",
            metavar="COL",
            help="Column of the probabilities with which the logged actions were taken.",
            rich_help_panel=POLICIES,
        ),
    ] = "propensity",
    estimator: Annotated[
        Literal["ips", "snips"],
        typer.Option(
            "--estimator", help="Inverse propensity scoring, plain or self-normalised.", rich_help_panel=POLICIES
        ),
    ] = "ips",
    dropped_zeros: Annotated[
        int | None,
        typer.Option(
            "--dropped-zeros",
            metavar="N",
            help="Records of reward zero that were dropped from the log, if they were counted (for ips).",
            rich_help_panel=POLICIES,
        ),
    ] = None,
    confidence: Annotated[
        float, typer.Option("--confidence", metavar="P", help="Of the interval.", rich_help_panel=POLICIES)
    ] = 0.95,
    out: Annotated[
        str | None, typer.Option("--out", metavar="FILE", help="Write the scores to a JSON file, too.")
    ] = None,
    overwrite: Overwrite = False,
    computing: Computing = COMPUTING_HERE,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Measure log-loss, accuracy, Brier score, ROC AUC and the confusion matrix on rows of known classes.

    With --policy: the value of the model's actions, or of a policy that the log knows, on a log of logged actions.
    """
    with reported(debug):
        from protodask.pipeline.steps import EvaluateStep

        step = EvaluateStep(
            # One place alone is that of the data.
            data=model if data is None else data,
            model=None if data is None else model,
            batches=batches,
            calibrated=calibrated,
            target=target,
            weight=weight,
            inclusion=inclusion,
            unseen=unseen,
            drop=tuple(drop or ()),
            roc_auc=roc_auc,
            policy=policy,
            action=action,
            match=match,
            reward=reward,
            propensity=propensity,
            estimator=estimator,
            dropped_zeros=dropped_zeros,
            confidence=confidence,
            out=out,
            overwrite=overwrite,
        )
        show_result(perform_step(step, computing), as_json)
