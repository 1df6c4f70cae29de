"""`protodask explain`: why a model says what it says of a row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from protodask.cli.console import plain, say, show_json
from protodask.cli.errors import wrong_use
from protodask.cli.grouping import grouped
from protodask.cli.options import COMPUTING_HERE, Computing, Json, computing_engine
from protodask.pipeline.steps.base import Option, Overwrite
from protodask.pipeline.steps.rows import Batches, Drop, Model, Rows, Unseen
from protodask.pipeline.telling.wording import MOST_LINES, count, shorten

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from protodask.explain.explanation import Lines
    from protodask.explain.requests import RowsExplained
    from protodask.explain.tables import Explained


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
        str | None,
        Option("Held-out rows to compare the familiarity with: a dataset or tables.", "HELDOUT"),
    ] = None
    most: Annotated[int, Option("Prototypes to list at most, by impact.", least=0)] = 10
    batches: Batches = None
    unseen: Unseen = "error"
    drop: Drop = ()
    out: Annotated[str | None, Option("Write the explanations to a .csv, .parquet or .xlsx file, too.", "FILE")] = None
    overwrite: Overwrite = False


@grouped
def explain(request: Explaining, computing: Computing = COMPUTING_HERE, as_json: Json = False) -> None:
    """Show why a model says what it says of some rows: its prototypes by impact, and what would change its mind."""
    from protodask.explain.requests import ExplainRequest, check_request, explain_data

    asked = ExplainRequest(**vars(request))
    with wrong_use():
        computing.check()
        check_request(asked)
    with computing_engine(computing) as (engine, _):
        found = explain_data(asked, engine)
    if as_json:
        show_json(found.describe())
    else:
        _show(found)


def _show(found: RowsExplained) -> None:
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False)
    for number, entry in enumerate(found.explained):
        if number:
            say()
        _show_row(console, found, entry)
    if found.path is not None:
        say()
        say(f"The explanations are in {shorten(found.path)}.")


def _show_row(console: Console, found: RowsExplained, entry: Explained) -> None:
    from protodask.explain.explanation import class_lines, prototype_lines, said_of_dominance, said_of_prediction

    explanation = entry.explanation
    known = "" if entry.actual is None else _verdict(explanation.predicted, entry.actual)
    where = f"Row {entry.row} of {shorten(found.data)}"
    _wrapped(console, f"{where}: {said_of_prediction(explanation)}{known}.")
    _wrapped(console, _said_of_familiarity(found, entry))
    _wrapped(console, said_of_dominance(explanation))
    say()
    classes = class_lines(explanation)
    console.print(_table(classes[: MOST_LINES + 1]))
    _say_rest(len(classes) - 1, "class", "classes")
    if not explanation.contributions:
        return
    say()
    console.print(_table(prototype_lines(explanation)))
    say()
    _show_features(console, entry)
    if entry.originals:
        say()
        _show_originals(console, found, entry)


def _verdict(predicted: Any, actual: Any) -> str:
    same = (type(predicted), predicted) == (type(actual), actual)
    return ", and so it is" if same else f", but it is {actual}"


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


def _show_features(console: Console, entry: Explained) -> None:
    """Row and strongest prototypes feature by feature, heaviest features first."""
    from protodask.explain.explanation import COMPARED, feature_lines

    lines = feature_lines(entry.explanation)
    if not lines:
        return
    say(COMPARED)
    _print_beside(console, lines)
    _say_rest(len(lines) - 1, "feature", "features")


def _show_originals(console: Console, found: RowsExplained, entry: Explained) -> None:
    """Row and strongest prototypes as they are in the tables they come from."""
    from protodask.explain.explanation import SIDE_BY_SIDE, value_of

    shown = entry.originals[:SIDE_BY_SIDE]
    values = found.values(entry)
    names = dict.fromkeys([name for original in shown for name in original.values])
    say("In the training data")
    lines = [
        ("column", "this row", *(f"#{rank}" for rank in range(1, len(shown) + 1))),
        *(
            (name, value_of(values.get(name, "")), *(value_of(original.values.get(name, "")) for original in shown))
            for name in names
        ),
    ]
    _print_beside(console, lines)
    _say_rest(len(names), "column", "columns")
    if partly := [f"#{rank}" for rank, original in enumerate(shown, start=1) if not original.complete]:
        _wrapped(
            console, f"{', '.join(partly)}: of a batch that was trained on other data, as far as the model holds it."
        )


def _print_beside(console: Console, lines: Lines) -> None:
    """Name, value of the row, and values of as many prototypes as stand beside each other; one at least."""
    for columns in range(len(lines[0]), 2, -1):
        table = _table([line[:columns] for line in lines[: MOST_LINES + 1]])
        if columns == 3 or _fits(console, table):
            console.print(table)
            return


def _fits(console: Console, table: Table) -> bool:
    # Asked with all the room there is, a table says what it takes without breaking a line.
    unbounded = console.options.update(width=100 * console.width)
    return console.measure(table, options=unbounded).maximum <= console.width


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


def _wrapped(console: Console, text: str) -> None:
    from rich.text import Text

    console.print(Text(plain(text)))


def _say_rest(lines: int, one: str, many: str) -> None:
    if lines > MOST_LINES:
        say(f"and {count(lines - MOST_LINES, one, many)} more; --json has all")
