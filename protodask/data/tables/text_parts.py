"""The text in files, in parts, so that no more than a part of it is in memory.

What is compressed is read as a stream, and how much text comes out is known when it was read only: a megabyte may hold
a gigabyte. Parts end behind a line's end that is not inside of quotes, which takes a look at all of the text.
"""

from __future__ import annotations

import csv
import os
import re
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from protodask.data.places.bounded import PIECE_BYTES, read_up_to
from protodask.data.tables.source_files import PACKED, changed_meanwhile, is_packed, open_file, table_errors
from protodask.errors import InputError
from protodask.places import mask

LONGEST_LINE_BYTES = 2**24
"""A line that is longer is none of a table; it would have to be in memory as a whole."""

QUOTE = ord('"')

BYTE_ORDER_MARK = "\xef\xbb\xbf"
"""At the start of a text in UTF-8, as the letters of its bytes."""

OTHER_FORMS = (
    (b"PK\x03\x04", "a ZIP archive, as workbooks of Excel are", "Save the table as CSV or Parquet."),
    (b"\xd0\xcf\x11\xe0", "an old workbook of Excel", "Save the table as CSV or Parquet."),
    (b"PAR1", "a Parquet file", "Let its name end in .parquet."),
    (b"ARROW1", "a file of Arrow's, or Feather", "Save the table as Parquet."),
    (b"SQLite format 3", "a database of SQLite", "Save the table as CSV or Parquet."),
    (b"\x1f\x8b", "compressed by gzip", "Let its name end in .csv.gz."),
    (b"BZh", "compressed by bzip2", "Let its name end in .csv.bz2."),
    (b"\xfd7zXZ\x00", "compressed by xz", "Let its name end in .csv.xz."),
    (b"\x28\xb5\x2f\xfd", "compressed by Zstandard", "Decompress it, or save the table as Parquet."),
    (b'{"', "JSON", "Save the table as CSV or Parquet."),
    (b'[{"', "JSON", "Save the table as CSV or Parquet."),
)
"""How files begin that are no CSV files whatever they are called, what they are, and what to do."""

OPEN_STREAMS = 16
"""Streams a process keeps open where it stopped reading, since the next part begins there or soon after."""


SEPARATORS = b",\t;|"
"""What may stand between the fields of a file, the usual one first, and what is rarely in a name before the others."""

QUOTED = rb'(?<![^,\t;|])"(?:[^"]|"")*"'
"""A field in quotes; elsewhere quotes are letters like others."""

FIRST_ROW = re.compile(rb"(?:" + QUOTED + rb'|[^"\r\n]+|")*')


def separator_of(path: str, text: bytes) -> str:
    """What stands between the fields of a text: a tab by the ending of its file, or else what its first row has outside
    of quotes, where a comma comes before all others.
    """
    name = path.lower()
    packed = next(filter(name.endswith, PACKED), "")
    if name.removesuffix(packed).endswith(".tsv"):
        return "\t"
    row = FIRST_ROW.match(text.removeprefix(BYTE_ORDER_MARK.encode("latin-1")))
    bare = re.sub(QUOTED, b"", row[0]) if row else b""
    return chr(next((mark for mark in SEPARATORS if mark in bare), SEPARATORS[0]))


@dataclass(frozen=True)
class TextParts:
    """The lines of a file in parts, without its first row; small to pickle."""

    path: str = field(repr=False)  # tasks are logged with their arguments, and a URL may hold a secret
    header: bytes
    """The first row; nothing of a text without a line's end, which is one part."""
    cuts: tuple[int, ...]
    """Bytes of the text before each part, and in all of it."""
    size: int
    """Bytes of the file as it lies there."""
    key: str = field(default_factory=lambda: uuid4().hex)

    @property
    def packed(self) -> bool:
        return is_packed(self.path)

    @property
    def form(self) -> object:
        """What files have in common that are read as one table; None of one without rows, which tells no types."""
        has_rows = bool(self.header) and self.cuts[-1] > self.cuts[0]
        return (self.header, separator_of(self.path, self.header)) if has_rows else None

    @property
    def n_parts(self) -> int:
        return len(self.cuts) - 1

    def read(self, part: int) -> bytes:
        """The lines of a part."""
        start, stop = self.cuts[part : part + 2]
        with table_errors(self.path):
            if self.packed:
                return _STREAMS.read(self, start, stop)
            with open_file(self.path) as file:
                self._check(file)
                file.seek(start)
                return read_up_to(file, stop - start)

    def unpacked(self) -> Any:
        """The text from its beginning, of a compressed file that is as it was."""
        with open_file(self.path) as file:
            self._check(file)
        return open_file(self.path, "infer")

    def _check(self, file: Any) -> None:
        if file.seek(0, os.SEEK_END) != self.size:
            raise changed_meanwhile(self.path)


def text_parts(path: str, part_bytes: int) -> TextParts:
    """Cut the text in a file into parts of about so many bytes each."""
    with table_errors(path):
        with open_file(path) as file:
            size = file.seek(0, os.SEEK_END)
        with open_file(path, "infer") as file:
            header = header_of(file, path)
        if not is_packed(path) and size <= len(header) + part_bytes:
            cuts: tuple[int, ...] = (len(header), size)
        else:
            with open_file(path, "infer") as file:
                read_up_to(file, len(header))
                cuts = _cut(file, path, part_bytes, header)
        found = TextParts(path, header, cuts, size)
        check_header(header or found.read(0), path)
    return found


def check_header(line: bytes, path: str) -> None:
    """Refuse a file whose first line is blank."""
    if not line.strip():
        raise InputError(
            "unreadable",
            f"{mask(path)} has no header line.",
            "Put the names of the columns into its first line.",
        )


def header_of(file: Any, path: str) -> bytes:
    """The lines of the first row of a text: one, unless there is a line's end in a name that is in quotes.

    Refused where it is no text, or the next row has more values than there are names.
    """
    taken = bytearray()
    begun = file.read(PIECE_BYTES)
    for start, what, remedy in OTHER_FORMS:
        if begun.startswith(start):
            raise InputError("unreadable", f"{mask(path)} is {what}, and no CSV file.", remedy)

    def lines() -> Iterator[str]:
        ahead = begun
        while True:
            while b"\n" not in ahead and len(ahead) < LONGEST_LINE_BYTES and (piece := file.read(PIECE_BYTES)):
                ahead += piece
            line, end, ahead = ahead.partition(b"\n")
            text = (line + end).decode("latin-1")  # any byte is a letter of it
            text = text if taken else text.removeprefix(BYTE_ORDER_MARK)
            taken.extend(line + end if end else b"")
            yield text
            if not end:
                return

    header, names, values = b"", list[str](), list[str]()
    with suppress(csv.Error, StopIteration):  # a parser that knows more will say what is wrong with it
        reader = csv.reader(lines(), delimiter=separator_of(path, begun))
        names = next(reader)
        while not values:
            header = header or bytes(taken)
            values = next(reader)
    if "".join(names).strip() and any(value.strip() for value in values[len(names) :]):
        raise InputError(
            "unreadable",
            f"{mask(path)} has more values in its first row than names of columns.",
            "Give each column a name; R's write.table does so with col.names=NA.",
        )
    return header


def _cut(file: Any, path: str, part_bytes: int, header: bytes) -> tuple[int, ...]:
    """Where parts begin, from the end of the header on: behind a line's end, though not behind one inside of quotes.

    Where quotes do not end any line's end will do, once there has been none outside of them for long.
    """
    cuts, position = [len(header)], len(header)
    due, quotes = position + part_bytes, _Quotes(separator_of(path, header))
    while piece := file.read(PIECE_BYTES):
        inside, turns = quotes.inside, quotes.turns(piece)
        first = max(due - position, 0)
        while first < len(piece) and (end := piece.find(b"\n", first)) >= 0:
            before = int(np.searchsorted(turns, end))
            at_last = due + LONGEST_LINE_BYTES - position
            if (before + inside) % 2 == 0 or end >= at_last:
                cuts.append(position + end + 1)
                due = cuts[-1] + part_bytes
                first = due - position
            else:  # on to where the quotes end
                first = max(end + 1, min([at_last, *turns[before : before + 1].tolist()]))
        position += len(piece)
        if position > due + 2 * LONGEST_LINE_BYTES:
            raise InputError(
                "over-limit",
                f"{mask(path)} has a line of more than {LONGEST_LINE_BYTES:,} bytes.",
                "Check that it is a CSV file, and that its lines end.",
            )
    return (*cuts, position) if cuts[-1] < position or len(cuts) == 1 else tuple(cuts)


class _Quotes:
    """Where the quotes in a text open and close, as it comes in pieces.

    They open at the start of a field alone, or right behind one that closed, of which two are one that is meant;
    elsewhere outside of quotes they are letters like others. Inside any one closes.
    """

    def __init__(self, separator: str) -> None:
        self.inside = False
        self._fields = np.frombuffer(f"{separator}\n\r".encode(), dtype=np.uint8)
        self._before = b"\n"
        """What came last; a quote only if it closed."""

    def turns(self, piece: bytes) -> NDArray[np.int64]:
        """Those of the next piece that open or close, ascending."""
        text = np.frombuffer(self._before + piece, dtype=np.uint8)
        quotes = np.flatnonzero(text[1:] == QUOTE)
        # Of those that would open if none were a letter, what comes before.
        before = text[quotes[int(self.inside) :: 2]]
        if not (np.isin(before, self._fields) | (before == QUOTE)).all():
            quotes = self._without_letters(quotes, text)
        self.inside ^= len(quotes) % 2 == 1
        closed = not self.inside and len(quotes) and quotes[-1] == len(piece) - 1
        self._before = b'"' if closed else piece[-1:].replace(b'"', b" ")
        return quotes

    def _without_letters(self, quotes: NDArray[np.int64], text: NDArray[np.uint8]) -> NDArray[np.int64]:
        fields, inside, last = set(self._fields.tolist()), self.inside, -1
        found: list[int] = []
        for place, before in zip(quotes.tolist(), text[quotes].tolist(), strict=True):
            if inside or before in fields or (before == QUOTE and last == place - 1):
                found.append(place)
                inside, last = not inside, place
        return np.array(found, dtype=np.int64)


@dataclass(frozen=True)
class _Stream:
    """A file that was read up to a position of its text."""

    key: str
    position: int
    file: Any


class _Streams:
    """Files that are open where they were read last."""

    def __init__(self) -> None:
        self._idle: list[_Stream] = []
        self._lock = threading.Lock()

    def read(self, text: TextParts, start: int, stop: int) -> bytes:
        """A range of the text: of all streams that are not beyond it the farthest goes on, or a new one begins."""
        with self._lock:
            fit = [stream for stream in self._idle if stream.key == text.key and stream.position <= start]
            found = max(fit, key=lambda stream: stream.position, default=None)
            if found is not None:
                self._idle.remove(found)
        position, file = (0, text.unpacked()) if found is None else (found.position, found.file)
        try:
            while position < start and (skipped := len(file.read(min(PIECE_BYTES, start - position)))):
                position += skipped
            content = read_up_to(file, stop - start)
        except BaseException:
            file.close()
            raise
        if stop == text.cuts[-1]:
            file.close()
            return content
        with self._lock:
            self._idle.append(_Stream(text.key, stop, file))
            closed, self._idle = self._idle[:-OPEN_STREAMS], self._idle[-OPEN_STREAMS:]
        for stream in closed:
            stream.file.close()
        return content


_STREAMS = _Streams()
