"""What every step leaves behind, and how it is told: to people, with numbers and places put the same wherever they are
said, and as JSON, in files whole or not at all.
"""

from __future__ import annotations

import json
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, ClassVar

from protodask.errors import InputError
from protodask.places import mask


@dataclass(frozen=True)
class Pairs:
    """Names and values, a pair a line."""

    pairs: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Table:
    """A table of texts."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    whole: bool = False
    """Whether all rows are shown, however many there are."""


Piece = str | Pairs | Table
"""A part of what a person is told: a line, or more."""

MOST_LINES = 20
"""Lines of a list that are shown; --json has all."""


def value_text(value: Any) -> str:
    """A value of no special kind."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def number(value: float) -> str:
    """A weight or a count: without decimals where it is whole or so large that they say nothing."""
    if abs(value) >= 1e15:  # there digits say nothing either
        return f"{value:.6g}"
    return f"{value:,.0f}" if float(value).is_integer() or abs(value) >= 1000 else f"{value:,.4g}"


def size(amount: int) -> str:
    """Bytes to read."""
    units = ("bytes", "KiB", "MiB", "GiB", "TiB")
    power = min(max(amount.bit_length() - 1, 0) // 10, len(units) - 1)
    return f"{amount / 1024**power:.4g} {units[power]}"


def describe_seconds(seconds: float) -> str:
    """A duration to read."""
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def shorten(path: str) -> str:
    """A path as seen from the current folder, where that is shorter; of a URL, what may be shown."""
    if "://" in path:
        return mask(path)
    relative = os.path.relpath(path)
    return relative if len(relative) < len(path) and not relative.startswith("..") else path


def plain(value: Any) -> Any:
    """Plain values: records by their fields, places, also those that are keys, without the secrets of their URLs."""
    match value:
        case str():
            return mask(value)
        case Mapping():
            return {plain(key): plain(item) for key, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case _ if is_dataclass(value):
            return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
        case _:
            return value


def told_note(note: str) -> str:
    """A note in one line, whatever names are in it."""
    return "Note: " + note.replace("\n", "\\n")


def refuse_hidden(kind: type, base: type) -> None:
    """Refuse a field without a default that is called like a method: it would have that for its default."""
    for name in vars(kind).get("__annotations__", {}):
        hidden = getattr(base, name, None)
        if (callable(hidden) or isinstance(hidden, property)) and name not in vars(kind):
            raise TypeError(f"The field {name!r} of {kind.__name__} hides what {base.__name__} calls so.")


@dataclass(frozen=True)
class Result(ABC):
    """What a step left behind."""

    def __init_subclass__(cls, **others: Any) -> None:
        super().__init_subclass__(**others)
        refuse_hidden(cls, Result)

    kind: ClassVar[str]
    """What it is called in files."""

    def describe(self) -> dict[str, Any]:
        """Plain values, for files: its kind and its fields, where a result says no more."""
        return {"kind": self.kind, **plain(self)}

    def file_content(self) -> dict[str, Any]:
        """What a file of it holds."""
        return self.describe()

    @abstractmethod
    def summary(self) -> str:
        """In one line."""

    def told(self) -> Iterator[Piece]:
        """To a person who asked for this step alone."""
        yield self.summary()
        yield from self.told_notes()

    def told_notes(self) -> Iterator[str]:
        """What is to be known about it, a line each."""
        return map(told_note, self.notes)

    def told_place(self, what: str, path: str | None) -> Iterator[str]:
        """Where it was written, too, if it was."""
        if path is not None:
            yield ""
            yield f"{what} in {shorten(path)}."

    def place(self) -> str | None:
        """Where it lies, in the account of a whole run; None if it lies nowhere."""
        return self.summary()

    def judgement(self) -> str | None:
        """What it amounts to, at the end of such an account, where that is more than what lies where."""
        return None

    @property
    def notes(self) -> tuple[str, ...]:
        """What is to be known about it."""
        return ()

    @property
    def refused(self) -> tuple[str, ...]:
        """Why the answer is a no that ends a run, of a step that gives one."""
        return ()


@dataclass(frozen=True)
class Measured(Result):
    """What was measured of a model on some rows, and where that lies, if it lies anywhere."""

    model: str
    data: str
    path: str | None = field(default=None, kw_only=True)

    def place(self) -> str | None:
        if self.path is None:
            return None
        return f"The scores {shorten(self.path)} are those of {shorten(self.model)} on {shorten(self.data)}."

    def judgement(self) -> str | None:
        return self.summary()


class FilesFailedError(InputError):
    """Some files cannot be used; `result` says which, and what was done with the others."""

    result: Result | None = None


def to_json(value: Any) -> str:
    """JSON as the standard has it: what is not finite becomes null."""
    return json.dumps(_finite(value), indent=2, allow_nan=False, ensure_ascii=True)


def to_json_line(value: Any) -> str:
    """The same without line breaks and spaces to read it by; values that JSON does not have are written as text."""
    return json.dumps(_finite(value), separators=(",", ":"), allow_nan=False, ensure_ascii=True, default=str)


def to_wide_json(value: Any, width: int = 120, indent: str = "") -> str:
    """The same with whatever fits into a line in one."""
    text = json.dumps(value, allow_nan=False, ensure_ascii=True)
    if len(indent) + len(text) < width or not isinstance(value, Mapping | list):
        return text
    within = f"{indent}  "
    if isinstance(value, Mapping):
        parts = [f"{json.dumps(key)}: {to_wide_json(item, width, within)}" for key, item in value.items()]
    else:
        parts = [to_wide_json(item, width, within) for item in value]
    opening, closing = "{}" if isinstance(value, Mapping) else "[]"
    return f"{opening}\n{within}" + f",\n{within}".join(parts) + f"\n{indent}{closing}"


def _finite(value: Any) -> Any:
    match value:
        case float():
            return value if math.isfinite(value) else None
        case Mapping():
            return {str(key): _finite(item) for key, item in value.items()}
        case list() | tuple():
            return [_finite(item) for item in value]
        case _:
            return value


def write_json(path: str, value: Any, overwrite: bool) -> None:
    """Write a JSON file, whole or not at all."""
    from protodask.data.places.whole_files import check_file_free, replace_file

    check_file_free(path, overwrite)
    replace_file(path, to_json(value) + "\n")
