"""`protodask gate`: yes or no, to figures or to a model beside the champion."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from protodask.cli.computing import COMPUTING_HERE, Computing, perform_step
from protodask.cli.errors import ANSWER_IS_NO, reported, wrong_use
from protodask.cli.evaluate import Inclusion, Target, Weight
from protodask.cli.options import Debug, Json, Overwrite, grouped
from protodask.cli.predict import Drop, UnseenOption
from protodask.cli.show import show_result

FIGURES = "Figures within limits"
MODELS = "A model beside the champion"


@grouped
def gate(
    results: Annotated[
        str | None,
        typer.Option(
            "--results",
            metavar="FILE",
            help="JSON file that evaluate, monitor or another command wrote.",
            rich_help_panel=FIGURES,
        ),
    ] = None,
    limits: Annotated[
        list[str] | None,
        typer.Option(
            "--limit",
            metavar="NAME<=X",
            help="What a figure of it must keep to, such as drift.largest<=0.25 or accuracy>=0.8. Repeatable.",
            rich_help_panel=FIGURES,
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", metavar="MODEL", help="The challenger.", rich_help_panel=MODELS)
    ] = None,
    champion: Annotated[
        str | None,
        typer.Option("--champion", metavar="MODEL", help="The model it would replace.", rich_help_panel=MODELS),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            metavar="DATA",
            help="Rows of known classes that neither was trained on: a dataset, or raw tables or arrays.",
            rich_help_panel=MODELS,
        ),
    ] = None,
    metric: Annotated[
        Literal["log-loss", "error", "brier"],
        typer.Option("--metric", help="What is to be smaller.", rich_help_panel=MODELS),
    ] = "log-loss",
    margin: Annotated[
        float, typer.Option("--margin", metavar="X", help="By more than how much.", rich_help_panel=MODELS)
    ] = 0.0,
    confidence: Annotated[
        float,
        typer.Option("--confidence", metavar="P", help="How sure that has to be.", rich_help_panel=MODELS),
    ] = 0.95,
    draws: Annotated[
        int, typer.Option("--draws", metavar="N", help="Resamples of the bootstrap.", rich_help_panel=MODELS)
    ] = 1000,
    seed: Annotated[int, typer.Option("--seed", help="Of the resamples.", rich_help_panel=MODELS)] = 0,
    newest: Annotated[
        int | None,
        typer.Option("--newest", metavar="N", help="Compare on the last N rows only.", rich_help_panel=MODELS),
    ] = None,
    target: Target = None,
    weight: Weight = None,
    inclusion: Inclusion = None,
    unseen: UnseenOption = "error",
    drop: Drop = None,
    if_no: Annotated[
        Literal["fail", "stop"],
        typer.Option("--if-no", help="In a pipeline: whether a no is a failure of the run, or only its end."),
    ] = "fail",
    accept: Annotated[bool, typer.Option("--accept", help="Say so, and go on with exit code 0 all the same.")] = False,
    out: Annotated[
        str | None, typer.Option("--out", metavar="FILE", help="Write the answer to a JSON file, too.")
    ] = None,
    overwrite: Overwrite = False,
    computing: Computing = COMPUTING_HERE,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Decide: do figures keep to their limits, is a model better than the champion by more than noise?

    Exit code 0 for yes, 3 for no. The models are compared by a paired bootstrap over blocks of rows.
    """
    with reported(debug):
        from protodask.pipeline.gate_results import GateAnswered
        from protodask.pipeline.limits import parse_limits
        from protodask.pipeline.steps import GateStep

        with wrong_use():
            parsed = parse_limits(limits or ())
        step = GateStep(
            results=results,
            limits=parsed,
            model=model,
            champion=champion,
            data=data,
            metric=metric,
            margin=margin,
            confidence=confidence,
            draws=draws,
            seed=seed,
            newest=newest,
            target=target,
            weight=weight,
            inclusion=inclusion,
            unseen=unseen,
            drop=tuple(drop or ()),
            if_no=if_no,
            accept=accept,
            out=out,
            overwrite=overwrite,
        )
        result = perform_step(step, computing)
        show_result(result, as_json)
        if isinstance(result, GateAnswered) and not result.passed and not result.accepted:
            raise typer.Exit(ANSWER_IS_NO)
