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
    commas: frozenset[str] = frozenset()
    """Columns of numbers that have commas for decimal points."""

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
        """The columns of a text as a frame of pandas."""
        import pandas

        if as_text:
            frame = pandas.read_csv(io.BytesIO(text), **self._options(self.names, kept, as_text))
            return frame.assign(**{name: frame[name].str.replace(",", ".") for name in self.commas})
        plain = [name for name in self.names if name not in self.commas]
        read = [(plain, "."), (sorted(self.commas), ",")]
        frames = [
            pandas.read_csv(io.BytesIO(text), decimal=point, **self._options(names, kept))
            for names, point in read
            if names
        ]
        return frames[0] if len(frames) == 1 else pandas.concat(frames, axis=1)

    def _options(self, names: Sequence[str], kept: Kept, as_text: bool = False) -> dict[str, Any]:
        types = {name: "str" if as_text else self.types[name] for name in names}
        said: dict[str, Any] = {"sep": self.separator, "usecols": list(names), "dtype": types}
        if kept.alone:  # in a column that is merely handed on, nothing but no text is a missing value
            missing = {name: [""] if name in kept.alone else MISSING_TEXTS for name in names}
            said |= {"keep_default_na": False, "na_values": missing}
        return said


DECIMAL_COMMAS = re.compile(r"[-+]?(?:\d+(?:,\d*)?|,\d+)(?:[eE][-+]?\d+)?")
"""A number with a comma for a decimal point, or a whole one."""


def csv_columns(path: str, labels: frozenset[str], dropped: frozenset[str], opened: Callable[[], Any]) -> CsvColumns:
    """The columns of a CSV file, by its first rows; `opened` makes a file of its content, decompressed. Those among
    `labels` are text.
    """
    import pandas

    with table_errors(path, "Check that it is a CSV file."):
        with opened() as file:
            separator = separator_of(path, file.read(PIECE_BYTES))
        with opened() as file:
            head = pandas.read_csv(file, sep=separator, nrows=HEAD_ROWS)
        with opened() as file:
            header = pandas.read_csv(file, sep=separator, nrows=1, header=None, dtype=str, keep_default_na=False)
    given = [str(name) for name in header.iloc[0]]
    if twice := named_twice(filter(None, given)):
        raise InputError("named-twice", f"{mask(path)} has several columns called {twice[0]!r}.", "Rename them.")
    present = [str(name) for name in head.columns]
    names = [name for name in present if name not in dropped]
    if not names:
        raise InputError("column-missing", f"All columns of {mask(path)} are dropped.", "Keep some.")
    types: dict[str, str] = {}
    commas: set[str] = set()
    for name in names:
        kind = head[name].dtype.kind if isinstance(head[name].dtype, np.dtype) else "O"
        if kind == "O" and pandas.api.types.infer_dtype(head[name], skipna=True) == "boolean":
            kind = "b"  # truth values with some missing
        if kind == "O" and separator != "," and name not in labels and _has_decimal_commas(head[name]):
            kind = "f"
            commas.add(name)
        # Integers are read as floats, so that a missing value further down is a missing value and no failure.
        types[name] = (
            "str"
            if name in labels
            else {"b": "boolean", "i": "float64", "u": "float64", "f": "float64"}.get(kind, "str")
        )
    floats = [
        name for name in names if types[name] == "float64" and name not in commas and head[name].dtype.kind == "f"
    ]
    if separator != "," and (floats or commas):
        with opened() as file:
            texts = pandas.read_csv(file, sep=separator, nrows=HEAD_ROWS, usecols=[*floats, *commas], dtype=str)
        known = {name: texts[name].dropna() for name in (*floats, *sorted(commas))}
        with_commas = {name: known.pop(name) for name in sorted(commas)}
        _check_points(path, known, separator, with_commas)
    return CsvColumns(types, separator, len(head) > 0, dropped.intersection(present), frozenset(commas))


THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2}[.,]\d{3}")
"""What is more than a thousand to some, and a little more than one to others."""


def _check_points(path: str, columns: Mapping[str, Any], separator: str, commas: Mapping[str, Any]) -> None:
    """Refuse numbers with points beside columns with decimal `commas`, and warn of what may be thousands."""
    pointed, with_commas = _marked(columns, "."), _marked(commas, ",")
    if commas and pointed:
        name = next(iter(pointed))
        raise InputError(
            "unreadable",
            f"{mask(path)} has decimal commas in {min(commas)!r} and points in {name!r}, as in {pointed[name][0]!r}.",
            "Write all numbers with one of the two, and thousands without a mark; or say that such a column is not a "
            f"number (categorical=[{name!r}]).",
        )
    for marks, mark, texts_of in (("Points", "points", pointed), ("Commas", "commas", with_commas)):
        thousands = [
            f"{name!r} ({texts[0]})" for name, texts in texts_of.items() if all(map(THOUSANDS.fullmatch, texts))
        ]
        if thousands and (commas or separator == ";"):
            warnings.warn(
                f"{marks} in {mask(path)} are decimal {mark}, though they may be meant to set thousands apart: "
                f"{some(thousands)}. Write thousands without a mark.",
                stacklevel=2,
            )


def _marked(columns: Mapping[str, Any], mark: str) -> dict[str, list[str]]:
    """The values of columns that have such a mark, of columns that have any."""
    found = {name: [text.strip() for text in texts if mark in text] for name, texts in columns.items()}
    return {name: texts for name, texts in found.items() if texts}


def _has_decimal_commas(values: Any) -> bool:
    """Whether a column of text holds numbers with commas for decimal points."""
    texts = [str(value).strip() for value in values.dropna()]
    return all(map(DECIMAL_COMMAS.fullmatch, texts)) and any("," in text for text in texts)


def csv_table(texts: Sequence[TextParts], labels: frozenset[str], dropped: frozenset[str], kept: Kept) -> Partitions:
    """The table in files of one header, in their order; the first one tells the types of its columns."""
    first = texts[0]
    opened = (
        partial(io.BytesIO, first.header + first.read(0)) if first.packed else partial(open_file, first.path, "infer")
    )
    columns = csv_columns(first.path, labels, dropped, opened)
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
