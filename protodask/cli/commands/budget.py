"""`protodask budget`: what an index of features answers; `build` is a step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from protodask.cli.console import Answer
from protodask.cli.errors import WrongUseError
from protodask.cli.grouping import grouped
from protodask.errors import count
from protodask.pipeline.steps.base import Option, Overwrite
from protodask.pipeline.steps.budget import guarantee_text, names_of
from protodask.pipeline.telling.result import Pairs, Piece, shorten

if TYPE_CHECKING:
    from protodask.budget.queries import Answer as Answered
    from protodask.budget.queries import TableAnswered

ABOUT = "Choose features by what they cost: the most accurate model within a budget, item by item."

app = typer.Typer(name="budget", help=ABOUT, no_args_is_help=True, add_completion=False)


@app.command("query")
@grouped
def query(
    index: Annotated[str, typer.Argument(metavar="INDEX", help="What `protodask budget build` wrote.")],
    size: Annotated[float | None, Option("Size of an item.", "N")] = None,
    budget: Annotated[float | None, Option("What may be spent on it.", "B")] = None,
    queries: Annotated[str | None, Option("CSV or Parquet with the columns size and budget.", "FILE")] = None,
    out: Annotated[str | None, Option("Where to write the answers to --queries: .csv or .parquet.", "FILE")] = None,
    overwrite: Overwrite = False,
) -> Answer:
    """Say which features to compute for an item of a size within a budget, and which model is for them."""
    from protodask.budget.queries import answer_query, answer_table

    if queries is not None:
        if size is not None or budget is not None:
            raise WrongUseError(
                "settings-conflict", "Both --queries and a single item are given.", "Choose one of them."
            )
        if out is None:
            raise WrongUseError("setting-missing", "There is no place for the answers.", "Name a file with --out.")
        answered = answer_table(index, queries, out, overwrite)
        return Answer(answered.describe, _told_choices(answered))
    if size is None or budget is None:
        raise WrongUseError(
            "setting-missing",
            "The size of an item or the budget is missing.",
            "Give --size and --budget, or --queries and --out.",
        )
    if out is not None:
        raise WrongUseError("settings-conflict", "--out is given for a single item.", "Leave it out, or use --json.")
    found = answer_query(index, size, budget)
    return Answer(found.describe, _told_choice(found))


def _told_choice(answer: Answered) -> Iterator[Piece]:
    yield Pairs(
        [
            ("features", names_of(answer.features)),
            ("columns", names_of(answer.columns)),
            ("accuracy", f"{answer.accuracy:.4f}"),
            ("cost", f"{answer.cost:.6g}"),
            ("gives", guarantee_text(answer.describe())),
            ("model", _shares(answer) if answer.model is None else shorten(answer.model)),
        ]
    )


def _shares(answer: Answered) -> str:
    label, share = max(answer.shares, key=lambda one: one[1])
    return f"none: without features, {label} is the most frequent class, of {share:.1%} of the rows"


def _told_choices(result: TableAnswered) -> Iterator[Piece]:
    yield f"The answers {shorten(result.path)} have {count(result.rows, 'row')}."
    if result.unaffordable:
        yield f"{count(result.unaffordable, 'row')} have a budget that no set of features is within."
