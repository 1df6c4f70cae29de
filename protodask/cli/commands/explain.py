"""`protodask explain`: why a model says what it says of a row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from protodask.cli.console import Answer, Part, Piece, apart, output_console, plain
from protodask.cli.errors import wrong_use
from protodask.cli.grouping import grouped
from protodask.cli.options import Computing, computing_engine
from protodask.errors import count
from protodask.pipeline.steps.base import Option, Overwrite
from protodask.pipeline.steps.rows import Batches, Drop, Model, Rows, Unseen
from protodask.pipeline.telling.result import MOST_LINES, shorten

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from protodask.explain.explanation import Lines
    from protodask.explain.requests import RowsExplained
    from protodask.explain.tables import Explained

app = typer.Typer(add_completion=False)


@dataclass(frozen=True)
class Explaining:
    """What there is to say of a request for explanations."""

    model: Model
    data: Rows
    rows: Annotated[
        tuple[int, ...], Option("A row to explain, counted from 0. Repeatable.", "I", least=0, flag="--row")
    ]
    training: Annotated[
        str | None, Option("The training dataset: shows the prototypes as they were there.", "DATA")
    ] = None
    reference: Annotated[
        str | None, Option("Held-out rows to compare the familiarity with: a dataset or tables.", "HELDOUT")
    ] = None
    most: Annotated[int, Option("Prototypes to list at most, by impact.", least=0)] = 10
    batches: Batches = None
    unseen: Unseen = "error"
    drop: Drop = ()
    out: Annotated[str | None, Option("Write the explanations to a .csv, .parquet or .xlsx file, too.", "FILE")] = None
    overwrite: Overwrite = False


@app.command("explain")
@grouped
def explain(request: Explaining, computing: Computing) -> Answer:
    """Show why a model says what it says of some rows: its prototypes by impact, and what would change its mind."""
    from protodask.explain.requests import ExplainRequest, check_request, explain_data
    from protodask.pipeline.file.places import check_all_outside, check_apart

    asked = ExplainRequest(**vars(request))
    with wrong_use():
        computing.check()
        check_request(asked)
        if asked.out is not None:
            given = [place for place in (asked.data, asked.reference) if place is not None]
            check_apart([asked.out], given)
            check_all_outside([asked.out], [*given, *filter(None, (asked.model, asked.training))])
    with computing_engine(computing) as (engine, _):
        found = explain_data(asked, engine)
    return Answer(found.describe, apart(_told(found)))


def _told(found: RowsExplained) -> Iterator[Part]:
    for entry in found.explained:
        yield from _told_row(found, entry)
    if found.model.calibration is not None:
        yield _wrapped("Note: These are raw probabilities: the model's calibration is left aside.")
    if found.path is not None:
        yield f"The explanations are in {shorten(found.path)}."


def _told_row(found: RowsExplained, entry: Explained) -> Iterator[Part]:
    from protodask.explain.explanation import (
        COMPARED,
        class_lines,
        feature_lines,
        prototype_lines,
        said_of_dominance,
        said_of_prediction,
    )

    explanation = entry.explanation
    known = "" if entry.actual is None else _verdict(explanation.predicted, entry.actual)
    predicted = f"Row {entry.row} of {shorten(found.data)}: {said_of_prediction(explanation)}{known}."
    yield [_wrapped(text) for text in (predicted, _said_of_familiarity(found, entry), said_of_dominance(explanation))]
    yield _first(class_lines(explanation), "class", "classes", _table)
    if not explanation.contributions:
        return
    yield _table(prototype_lines(explanation))
    features = feature_lines(explanation)  # heaviest first
    yield [COMPARED, *_first(features, "feature", "features", _beside)] if features else []
    if entry.originals:
        yield _told_originals(found, entry)


def _verdict(predicted: Any, actual: Any) -> str:
    from protodask.explain.explanation import visible

    same = (type(predicted), predicted) == (type(actual), actual)
    return ", and so it is" if same else f", but it is {visible(actual)}"


def _said_of_familiarity(found: RowsExplained, entry: Explained) -> str:
    value = entry.explanation.familiarity
    said = f"Familiarity: {value:.4g}"
    held_out = found.reference
    if held_out is None:
        return f"{said} (0 is far from every prototype; --reference compares it with held-out rows)."
    share, p_value = held_out.quantile(value), held_out.p_value(value)
    return (
        f"{said}. Of {count(len(held_out.familiarity), 'held-out row')} {share:.2%} are as unfamiliar or more: the "
        f"p-value for a row of their kind is {p_value:.3g}."
    )


def _told_originals(found: RowsExplained, entry: Explained) -> list[Piece]:
    """Row and strongest prototypes as they are in the tables they come from."""
    from protodask.explain.explanation import SIDE_BY_SIDE, value_of

    shown = entry.originals[:SIDE_BY_SIDE]
    values = found.values(entry)
    names = dict.fromkeys([name for original in shown for name in original.values])
    lines = [
        ("column", "this row", *(f"#{rank}" for rank in range(1, len(shown) + 1))),
        *(
            (name, value_of(values.get(name, "")), *(value_of(original.values.get(name, "")) for original in shown))
            for name in names
        ),
    ]
    told: list[Piece] = ["In the training data", *_first(lines, "column", "columns", _beside)]
    if partly := [f"#{rank}" for rank, original in enumerate(shown, start=1) if not original.complete]:
        ranks = ", ".join(partly)
        told.append(_wrapped(f"{ranks}: of a batch that was trained on other data, as far as the model holds it."))
    return told


def _first(lines: Lines, one: str, many: str, table: Callable[[Lines], Table]) -> list[Piece]:
    """A table of the lines that are shown, the header among them, and how many more there are."""
    more = len(lines) - 1 - MOST_LINES
    rest = [f"and {count(more, one, many)} more; --json has all"] if more > 0 else []
    return [table(lines[: MOST_LINES + 1]), *rest]


def _beside(lines: Lines) -> Table:
    """Name, value of the row, and values of as many prototypes as there is room for beside each other; one at least."""
    console = output_console()
    # Asked with all the room there is, a table says what it takes without breaking a line.
    unbounded = console.options.update(width=100 * console.width)
    columns = len(lines[0])
    while True:
        table = _table([line[:columns] for line in lines])
        if columns <= 3 or console.measure(table, options=unbounded).maximum <= console.width:
            return table
        columns -= 1


def _table(lines: Lines) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for position, name in enumerate(lines[0]):
        justify: Any = "left" if position == 0 or name == "class" else "right"
        table.add_column(Text(plain(name)), justify=justify, overflow="fold")
    for line in lines[1:]:
        table.add_row(*(Text(plain(cell.replace("\n", " "))) for cell in line))
    return table


def _wrapped(text: str) -> Text:
    from rich.text import Text

    return Text(plain(text))
