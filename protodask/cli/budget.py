"""`protodask budget`: an index of which features are worth their cost within any budget, and what it answers."""

from __future__ import annotations

from typing import Annotated

import typer

from protodask.cli.computing import COMPUTING_HERE, Computing, perform_step
from protodask.cli.errors import WrongUseError, reported
from protodask.cli.options import Debug, Json, Overwrite, grouped
from protodask.cli.show import show_result
from protodask.cli.training import DEFAULT_SETTINGS, RUN, Data, SettingsOptions

EXPLORING = "The sets of features"

app = typer.Typer(name="budget", no_args_is_help=True)


@app.callback()
def budget() -> None:
    """Choose features by what they cost: the most accurate model within a budget, item by item."""


@app.command("build")
@grouped
def build(
    data: Data,
    costs: Annotated[
        str,
        typer.Option(
            "--costs",
            metavar="FILE.yaml",
            help="What features cost on an item of size n: `sizes: [LOW, HIGH]` and `features:` with a column's "
            "name and the coefficients [c0, c1, ...] of c0 + c1 n + ..., or a name with `columns:` and `cost:`.",
        ),
    ],
    out: Annotated[str, typer.Option("--out", metavar="INDEX", help="Folder for the index and its models.")],
    alpha: Annotated[
        float,
        typer.Option(
            "--alpha",
            metavar="X",
            help="How much less accurate than the best set an answer may be: a larger X saves fits.",
            rich_help_panel=EXPLORING,
        ),
    ] = 0.0,
    monotone_error: Annotated[
        float,
        typer.Option(
            "--monotone-error",
            metavar="X",
            help="How much less accurate a model may become where features are added.",
            rich_help_panel=EXPLORING,
        ),
    ] = 0.0,
    diminishing_returns: Annotated[
        bool,
        typer.Option(
            "--diminishing-returns",
            help="Take it that a feature adds no more to a set than to a part of it, which saves fits; not so for "
            "features that are of use only together.",
            rich_help_panel=EXPLORING,
        ),
    ] = False,
    folds: Annotated[
        int,
        typer.Option("--folds", metavar="K", help="Parts that are held out, one at a time.", rich_help_panel=EXPLORING),
    ] = 5,
    most_fits: Annotated[
        int | None,
        typer.Option(
            "--most-fits",
            metavar="N",
            help="Cross-validate no more than N sets; the result says what it guarantees.",
            rich_help_panel=EXPLORING,
        ),
    ] = None,
    plot: Annotated[
        str | None,
        typer.Option(
            "--plot", metavar="FILE", help="Draw accuracy against budget, into a file ending in .png, .svg or .pdf."
        ),
    ] = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="Make greedy sequences as well, and draw them beside the index.")
    ] = False,
    settings: SettingsOptions = DEFAULT_SETTINGS,
    run_dir: Annotated[
        str | None,
        typer.Option(
            "--run-dir",
            metavar="DIR",
            help="Keep the record from which the same command goes on in this local folder. Without it, that is "
            "INDEX.run, and removed at the end.",
            rich_help_panel=RUN,
        ),
    ] = None,
    overwrite: Overwrite = False,
    computing: Computing = COMPUTING_HERE,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Cross-validate models on sets of features, and index the best ones by size and budget, with their models.

    A set costs what its features cost together. With the same --run-dir, other costs, sizes, --alpha or --most-fits use
    again what is known of the sets.
    """
    with reported(debug):
        from protodask.pipeline.steps import BudgetStep

        step = BudgetStep(
            data=data,
            costs=costs,
            out=out,
            alpha=alpha,
            monotone_error=monotone_error,
            diminishing_returns=diminishing_returns,
            folds=folds,
            most_fits=most_fits,
            plot=plot,
            compare=compare,
            run_dir=run_dir,
            overwrite=overwrite,
            **vars(settings),
        )
        show_result(perform_step(step, computing), as_json)


@app.command("query")
def query(
    index: Annotated[str, typer.Argument(metavar="INDEX", help="What `protodask budget build` wrote.")],
    size: Annotated[float | None, typer.Option("--size", metavar="N", help="Size of an item.")] = None,
    budget: Annotated[float | None, typer.Option("--budget", metavar="B", help="What may be spent on it.")] = None,
    queries: Annotated[
        str | None,
        typer.Option("--queries", metavar="FILE", help="CSV or Parquet with the columns size and budget."),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option("--out", metavar="FILE", help="Where to write the answers to --queries: .csv or .parquet."),
    ] = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Say which features to compute for an item of a size within a budget, and which model is for them."""
    with reported(debug):
        from protodask.cli.show_budget import show_answer, show_answers
        from protodask.pipeline.budget_queries import answer_query, answer_table

        if queries is not None:
            if size is not None or budget is not None:
                raise WrongUseError(
                    "settings-conflict", "Both --queries and a single item are given.", "Choose one of them."
                )
            if out is None:
                raise WrongUseError("setting-missing", "There is no place for the answers.", "Name a file with --out.")
            show_answers(answer_table(index, queries, out, overwrite), as_json)
            return
        if size is None or budget is None:
            raise WrongUseError(
                "setting-missing",
                "The size of an item or the budget is missing.",
                "Give --size and --budget, or --queries and --out.",
            )
        if out is not None:
            raise WrongUseError(
                "settings-conflict", "--out is given for a single item.", "Leave it out, or use --json."
            )
        show_answer(answer_query(index, size, budget), as_json)
