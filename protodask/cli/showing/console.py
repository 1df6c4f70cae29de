"""Writing to the terminal: results to standard output, everything else to standard error."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

import typer

from protodask.pipeline.telling.result import Pairs, Piece, Table
from protodask.pipeline.telling.wording import MOST_LINES
from protodask.places import mask_text


def is_terminal() -> bool:
    """Whether standard error is a terminal that can move its cursor."""
    import os

    return sys.stderr.isatty() and os.environ.get("TERM", "") not in ("", "dumb", "unknown")


def plain(text: str) -> str:
    """The text without control characters: names in data may hold any, and some make a terminal do things."""
    return "".join(letter if letter.isprintable() or letter == "\n" else repr(letter)[1:-1] for letter in text)


def say(text: str = "") -> None:
    """A line of the result."""
    typer.echo(plain(text))


def complain(seen: str, remedy: str, code: str) -> None:
    """What went wrong, of what kind it is, and what to do about it."""
    typer.echo(plain(mask_text(f"Error: {seen} [{code}]\n{remedy}")), err=True)


def say_pairs(pairs: Sequence[tuple[str, str]]) -> None:
    """Names and values, one pair a line, the values in one column."""
    width = max((len(name) for name, _ in pairs), default=0)
    for name, value in pairs:
        say(f"{name:<{width}}  {value}".rstrip())


def say_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table with columns as wide as they need to be; numbers stand to the right."""
    columns = zip(*[tuple(map(plain, line)) for line in (header, *rows)], strict=True)
    for line in zip(*map(_aligned, columns), strict=True):
        say("  ".join(line).rstrip())


def say_some(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table, of many rows the first ones."""
    say_table(header, rows[:MOST_LINES])
    if len(rows) > MOST_LINES:
        say(f"and {len(rows) - MOST_LINES:,} more")


def show(told: Iterable[Piece]) -> None:
    """What a person is told of a result."""
    for part in told:
        match part:
            case Pairs():
                say_pairs(part.pairs)
            case Table():
                (say_table if part.whole else say_some)(part.header, part.rows)
            case _:
                say(part)


def show_json(value: Any) -> None:
    """A value as JSON on standard output."""
    from protodask.pipeline.telling.json_file import to_json

    typer.echo(to_json(value))


def _aligned(column: Sequence[str]) -> list[str]:
    width = max(map(len, column))
    to_the_right = all(map(_is_number, column[1:]))
    return [cell.rjust(width) if to_the_right else cell.ljust(width) for cell in column]


def _is_number(cell: str) -> bool:
    try:
        float(cell.replace(",", ""))
    except ValueError:
        return False
    return True
