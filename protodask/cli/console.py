"""Writing to the terminal: results to standard output, everything else to standard error."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO, Union

import typer

from protodask.errors import ProtodaskError
from protodask.pipeline.telling import result
from protodask.pipeline.telling.result import MOST_LINES, Pairs, Table, to_json, value_text
from protodask.places import mask_text

if TYPE_CHECKING:
    from rich.console import Console, ConsoleRenderable

Piece = Union[result.Piece, "ConsoleRenderable"]
"""A part of what a person is told: a line, or more; what is no text, names and values, or table is rich's."""

Part = Piece | list[Piece]
"""What stands together: one piece, or a list of several."""

WIDEST = 60
"""Places of a cell up to which the column is as wide as it: a row that wraps leaves the others rows."""

WOULD_FAIL = ("strict", "surrogateescape")
"""How streams treat letters that they do not have, unless somebody set it; both end in an error."""


def is_terminal() -> bool:
    """Whether standard error is a terminal that can move its cursor."""
    return sys.stderr.isatty() and os.environ.get("TERM", "") not in ("", "dumb", "unknown")


def open_streams() -> None:
    """Lose what is written to standard output or error where they are closed, as some that start programs have them.

    A file that is opened later must not get their numbers either: who writes by number would write into it.
    Letters that the encoding of a stream does not have, such as those of classes in a locale of Latin-1, are escaped.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)  # to programs that are started from here
    os.close(number)
    for number, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w", encoding="utf-8", errors="backslashreplace"))
        elif isinstance(stream := getattr(sys, name), io.TextIOWrapper) and stream.errors in WOULD_FAIL:
            stream.reconfigure(errors="backslashreplace")


def plain(text: str) -> str:
    """The text without control characters: names in data may hold any, and some make a terminal do things."""
    return "".join(letter if letter.isprintable() or letter == "\n" else repr(letter)[1:-1] for letter in text)


@dataclass(frozen=True)
class Answer:
    """What a command found."""

    describe: Callable[[], Any]
    """As plain values, for programs."""
    told: Iterable[Piece]
    """For people to read."""
    code: int = 0
    """The exit code."""
    error: ProtodaskError | None = None
    """What went wrong besides."""


def apart(parts: Iterable[Part]) -> Iterator[Piece]:
    """The pieces of all parts, with an empty line between a part and the next."""
    for number, part in enumerate(parts):
        if number:
            yield ""
        yield from part if isinstance(part, list) else [part]


def known(pairs: Iterable[tuple[str, Any]]) -> Pairs:
    """Names and values, but for those that are not known: whole numbers with commas, lists in a line."""

    def text(value: Any) -> str:
        if isinstance(value, list | tuple):
            return ", ".join(map(str, value))
        return f"{value:,}" if type(value) is int else value_text(value)

    return Pairs([(name, text(value)) for name, value in pairs if value is not None])


def give(answer: Answer, as_json: bool) -> None:
    """Print what a command found, and end it."""
    if as_json:
        typer.echo(to_json(answer.describe()))
    else:
        for piece in answer.told:
            say(piece)
    if answer.error is not None:
        raise answer.error
    if answer.code:
        raise typer.Exit(answer.code)


def say(piece: Piece = "") -> None:
    """A part of the result: names and values with the values in one column, tables with columns as wide as need be."""
    match piece:
        case Pairs(pairs):
            names = _aligned([name for name, _ in pairs])
            lines = [f"{name}  {_in_a_line(value)}".rstrip() for name, (_, value) in zip(names, pairs, strict=True)]
        case Table(header, rows, whole):
            shown = rows if whole else rows[:MOST_LINES]
            columns = zip(header, *shown, strict=True)
            lines = ["  ".join(line).rstrip() for line in zip(*map(_aligned, columns), strict=True)]
            if len(shown) < len(rows):
                lines.append(f"and {len(rows) - len(shown):,} more")
        case str():
            lines = [piece]
        case _:
            output_console().print(piece)
            return
    for line in lines:
        typer.echo(plain(line))


def output_console() -> Console:
    """Standard output, for what is to be broken into lines as wide as it."""
    from rich.console import Console

    return Console(highlight=False, markup=False, emoji=False)


class Unheeded:
    """A stream of text whose reader may go away, as a terminal does that is closed: what is written then is lost."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with suppress(OSError, ValueError):  # ValueError: the stream is closed
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def remark(text: str) -> None:
    """Say something on standard error."""
    write_line(plain(text))


def write_line(line: str) -> None:
    """A line on standard error, as it is. That its reader went away, or its disk is full, ends nothing."""
    typer.echo(line, file=Unheeded(sys.stderr))  # type: ignore[arg-type]


def complain(seen: str, remedy: str, code: str) -> None:
    """What went wrong, of what kind it is, and what to do about it."""
    remark(mask_text(f"Error: {seen} [{code}]\n{remedy}"))


def _aligned(column: Sequence[str]) -> list[str]:
    """Cells of one width; numbers stand to the right, and those that are longer than most leave the others in place."""
    cells = [_in_a_line(cell) for cell in column]
    widths = list(map(_width, cells))
    widest = max((width for width in widths if width <= WIDEST), default=0)
    space = [" " * (widest - width) for width in widths]
    to_the_right = all(map(_is_number, column[1:]))
    return [rest + cell if to_the_right else cell + rest for cell, rest in zip(cells, space, strict=True)]


def _width(text: str) -> int:
    """Places on the terminal: two of a Chinese letter, none of an accent that follows its letter."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _in_a_line(text: str) -> str:
    return plain(text).replace("\n", "\\n")


def _is_number(cell: str) -> bool:
    try:
        float(cell.replace(",", ""))
    except ValueError:
        return False
    return True
