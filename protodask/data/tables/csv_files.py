"""Tables from CSV files, in parts of their text; compressed or not.

pandas is optional and imported where it is used.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from protodask.data.format.schema import NUMBER_TEXT
from protodask.data.places.bounded import PIECE_BYTES
from protodask.data.tables.encoding import Table
from protodask.data.tables.ingest_frames import partition_columns
from protodask.data.tables.kept_columns import Kept
from protodask.data.tables.source_files import open_file, table_errors
from protodask.data.tables.tables import Partitions
from protodask.data.tables.text_parts import TextParts, separator_of
from protodask.errors import InputError, named_twice, some
from protodask.places import mask

HEAD_ROWS = 1000
"""Rows that tell numbers from text. A column that turns out otherwise further down is an error that names the row."""


@dataclass(frozen=True)
class CsvColumns:
    """The columns of a CSV file that are read, as which types of pandas, and what separates them."""

    types: Mapping[str, str]
    separator: str
    has_rows: bool
    left_out: frozenset[str]
    """Those that are not read."""
    decimal: str = "."
    """What numbers have for a decimal point."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.types)

    @property
    def text(self) -> frozenset[str]:
        # Without rows there is no text either.
        return frozenset(name for name, dtype in self.types.items() if dtype == "str" and self.has_rows)

    @property
    def flags(self) -> frozenset[str]:
        """Columns of truth values."""
        return frozenset(name for name, dtype in self.types.items() if dtype == "boolean")

    def read(self, text: bytes, kept: Kept, as_text: bool = False) -> Any:
        """The columns of a text as a frame of pandas, with points in numbers that are read `as_text`."""
        import pandas

        types = dict.fromkeys(self.types, "str") if as_text else dict(self.types)
        said: dict[str, Any] = {"sep": self.separator, "decimal": self.decimal, "usecols": list(types), "dtype": types}
        if kept.alone:  # in a column that is merely handed on, nothing but no text is a missing value
            missing = {name: [""] if name in kept.alone else MISSING_TEXTS for name in types}
            said |= {"keep_default_na": False, "na_values": missing}
        frame = pandas.read_csv(io.BytesIO(text), **said)
        if as_text and self.decimal == ",":
            for name in (name for name, dtype in self.types.items() if dtype == "float64"):
                frame[name] = frame[name].map(_with_point, na_action="ignore")
        return frame


DECIMAL_COMMA = re.compile(r"[-+]?(?:\d+(?:,\d*)?|,\d+)(?:[eE][-+]?\d+)?")
"""A number with a comma for a decimal point, or a whole one."""


def _with_point(text: str) -> str:
    """A number with a decimal comma as Python has it; one with a point, which may set thousands apart, is none."""
    if DECIMAL_COMMA.fullmatch(text.strip()):
        return text.replace(",", ".")
    return f"{text} (beside decimal commas)" if NUMBER_TEXT.fullmatch(text.strip()) else text


def csv_columns(path: str, labels: frozenset[str], dropped: frozenset[str], opened: Callable[[], Any]) -> CsvColumns:
    """The columns of a CSV file, by its first rows; `opened` makes a file of its content, decompressed. Those among
    `labels` are text.

    Where commas are not what separates columns, and are decimal commas in one of them, they are so in all.
    """
    import pandas

    with table_errors(path, "Check that it is a CSV file."), opened() as file:
        separator = separator_of(path, file.read(PIECE_BYTES))

        def read(rows: int, **said: Any) -> Any:
            file.seek(0)
            return pandas.read_csv(file, sep=separator, nrows=rows, **said)

        head, decimal = read(HEAD_ROWS), "."
        given = read(1, header=None, dtype=str, keep_default_na=False).iloc[0]
        if twice := named_twice(filter(None, map(str, given))):
            raise InputError("named-twice", f"{mask(path)} has several columns called {twice[0]!r}.", "Rename them.")
        present = [str(name) for name in head.columns]
        names = [name for name in present if name not in dropped]
        if not names:
            raise InputError("column-missing", f"All columns of {mask(path)} are dropped.", "Keep some.")
        typed = [name for name in names if name not in labels]
        commas = None if separator == "," else next((name for name in typed if _has_decimal_commas(head[name])), None)
        if commas is not None:
            with_points, head, decimal = head, read(HEAD_ROWS, decimal=","), ","
            for name in typed:
                if _type_of(with_points[name]) == "float64" and _type_of(head[name]) == "str":
                    raise _points_beside(path, commas, name, head[name])
    types = {name: "str" if name in labels else _type_of(head[name]) for name in names}
    return CsvColumns(types, separator, len(head) > 0, dropped.intersection(present), decimal)


def _type_of(values: Any) -> str:
    """As what a column is read. Integers are floats, so that a missing value further down is one, and no failure."""
    import pandas

    kind = values.dtype.kind if isinstance(values.dtype, np.dtype) else "O"
    if kind == "O" and pandas.api.types.infer_dtype(values, skipna=True) == "boolean":
        kind = "b"  # truth values with some missing
    return {"b": "boolean", "i": "float64", "u": "float64", "f": "float64"}.get(kind, "str")


def _has_decimal_commas(values: Any) -> bool:
    """Whether a column is text of numbers with commas for decimal points."""
    if _type_of(values) != "str":
        return False
    texts = [str(value).strip() for value in values.dropna()]
    return all(map(DECIMAL_COMMA.fullmatch, texts)) and any("," in text for text in texts)


def _points_beside(path: str, commas: str, name: str, values: Any) -> InputError:
    shown = next(text for text in map(str, values) if "." in text)
    return InputError(
        "unreadable",
        f"{mask(path)} has decimal commas in {commas!r} and points in {name!r}, as in {shown!r}.",
        "Write all numbers with one of the two, and thousands without a mark; or say that such a column is not a "
        f"number (categorical=[{name!r}]).",
    )


THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2}[.,]\d{3}")
"""What is more than a thousand to some, and a little more than one to others."""


def _warn_of_thousands(path: str, columns: CsvColumns, opened: Callable[[], Any]) -> None:
    """Say which numbers of the first rows may be meant to be thousands, where decimal commas are usual."""
    import pandas

    numbers = [name for name, dtype in columns.types.items() if dtype == "float64"]
    if not numbers or (columns.separator != ";" and columns.decimal != ","):
        return
    with table_errors(path), opened() as file:
        texts = pandas.read_csv(file, sep=columns.separator, nrows=HEAD_ROWS, usecols=numbers, dtype=str)
    found = []
    for name in numbers:
        marked = [text.strip() for text in texts[name].dropna() if columns.decimal in text]
        if marked and all(map(THOUSANDS.fullmatch, marked)):
            found.append(f"{name!r} ({marked[0]})")
    if found:
        marks = "commas" if columns.decimal == "," else "points"
        warnings.warn(
            f"{marks.capitalize()} in {mask(path)} are decimal {marks}, though they may be meant to set thousands "
            f"apart: {some(found)}. Write thousands without a mark.",
            stacklevel=2,
        )


def csv_table(texts: Sequence[TextParts], labels: frozenset[str], dropped: frozenset[str], kept: Kept) -> Partitions:
    """The table in files of one header, in their order; the first one tells the types of its columns."""
    first = texts[0]
    opened = (
        partial(io.BytesIO, first.header + first.read(0)) if first.packed else partial(open_file, first.path, "infer")
    )
    columns = csv_columns(first.path, labels, dropped, opened)
    _warn_of_thousands(first.path, columns, opened)  # not of each of thousands of small files to be scored
    pieces = [(text, part) for text in texts for part in range(text.n_parts)]
    return Partitions(
        columns.names,
        columns.text,
        pieces,
        partial(_read_part, columns, kept),
        columns.left_out,
        tuple(mask(text.path) for text, _ in pieces),
        tuple(text.n_parts for text in texts),
        untyped=True,
    )


def _read_part(columns: CsvColumns, kept: Kept, piece: tuple[TextParts, int]) -> Table:
    text, part = piece
    return csv_text_table(text.header + text.read(part), text.path, columns, kept)


def csv_text_table(text: bytes, path: str, columns: CsvColumns, kept: Kept) -> Table:
    """The columns in the text of a CSV file that is in memory."""
    try:
        return partition_columns(columns.read(text, kept), columns.names, kept, untyped=True)
    except ValueError:
        pass  # a value belies its column: as text it will be found
    with table_errors(path, "Check that all its lines have the columns of its first."):
        frame = columns.read(text, kept, as_text=True)
        return partition_columns(frame, columns.names, kept, untyped=True, flags=columns.flags)


MISSING_TEXTS = (
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA"),
    *("NULL", "NaN", "None", "n/a", "nan", "null"),
)
"""What pandas takes for a missing value by default."""
