"""Rows of sources by range rather than by block, and ranges of several, one after the other, as one source."""

from __future__ import annotations

import bisect
import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Protocol, runtime_checkable
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from protodask.engine import Arrays, Block, Layout, Source
from protodask.errors import InputError

CHECK_ROWS = 8192
"""Rows looked at together, so that no mask of a whole block is made."""


class ReadByRanges(ABC):
    """A source that can read any range of rows without reading whole blocks around it, and so reads its blocks, too."""

    layout: Layout

    @abstractmethod
    def rows(self, start: int, stop: int) -> Arrays: ...

    def read(self, number: int) -> Block:
        start, stop = self.layout.bounds(number)
        return Block(number, start, self.rows(start, stop))


@runtime_checkable
class NamedArrays(Protocol):
    """A source that says which arrays its blocks have, so that none need be read to know."""

    @property
    def array_names(self) -> tuple[str, ...]: ...


def read_rows(source: Source, start: int, stop: int) -> Arrays:
    """The rows `start .. stop` of a source."""
    if isinstance(source, ReadByRanges):
        return source.rows(start, stop)
    parts: list[Arrays] = []
    step = source.layout.block_rows
    for number, first, last in spans(range(0, stop + step, step), start, stop):
        block = source.read(number)
        parts.append({name: values[first - block.start : last - block.start] for name, values in block.arrays.items()})
    return join_rows(parts)


def spans(edges: Sequence[int], start: int, stop: int) -> Iterator[tuple[int, int, int]]:
    """The rows `start .. stop` between edges: the number of each part that has some, its first of them and its last."""
    number = bisect.bisect_right(edges, start) - 1
    while start < stop:
        last = min(edges[number + 1], stop)
        if start < last:
            yield number, start, last
        start, number = last, number + 1


def join_rows(parts: Sequence[Arrays]) -> Arrays:
    """The rows of the parts, one after the other; names that are not in all parts are left out."""
    if len(parts) == 1:
        return parts[0]
    names = [name for name in parts[0] if all(name in part for part in parts)]
    return {name: np.concatenate([part[name] for part in parts]) for name in names}


def check_finite(features: NDArray[Any], names: Sequence[str], first_row: int) -> None:
    """Refuse features (n, D) with a missing or infinite value; `first_row` is the number of their first row."""
    if (place := first_unusable(features)) is not None:
        row, column = place
        raise InputError(
            "bad-value",
            f"Column {names[column]!r} has a missing or infinite value in row {first_row + row} (counted from 0).",
            REMOVE,
        )


REMOVE = "Fill in or remove such rows first."


def first_unusable(features: NDArray[Any]) -> tuple[int, int] | None:
    """Row and column of the first missing or infinite value of features (n, D)."""
    for first in range(0, len(features), CHECK_ROWS):
        finite = np.isfinite(features[first : first + CHECK_ROWS])
        if not finite.all():
            row, column = (int(index) for index in np.argwhere(~finite)[0])
            return first + row, column
    return None


@dataclass(frozen=True)
class RowRange:
    """So many rows of a source, from a row on."""

    source: Source
    first: int
    rows: int


def joined_ranges(ranges: Sequence[RowRange]) -> tuple[RowRange, ...]:
    """The same rows in as few ranges as can be: neighbours of one source become one, and empty ones go."""
    found: list[RowRange] = []
    for part in ranges:
        last = found[-1] if found else None
        if last is not None and last.source is part.source and last.first + last.rows == part.first:
            found[-1] = RowRange(last.source, last.first, last.rows + part.rows)
        elif part.rows:
            found.append(part)
    return tuple(found)


@dataclass(frozen=True)
class RangedRows(ReadByRanges):
    """The rows of the ranges; all of their sources have the arrays `array_names`."""

    ranges: tuple[RowRange, ...]
    array_names: tuple[str, ...]
    layout: Layout
    key: str = field(default_factory=lambda: uuid4().hex)

    @cached_property
    def edges(self) -> tuple[int, ...]:
        """Rows before each range, and in all of them."""
        return (0, *itertools.accumulate(part.rows for part in self.ranges))

    @property
    def resident(self) -> bool:
        # Tasks read what lies in stores themselves, but cannot reach what is in this process.
        return any(part.source.resident for part in self.ranges)

    def rows(self, start: int, stop: int) -> Arrays:
        """Any range of rows."""
        parts: list[Arrays] = []
        for number, first, last in spans(self.edges, start, stop):
            part = self.ranges[number]
            shift = part.first - self.edges[number]
            parts.append(read_rows(part.source, first + shift, last + shift))
        return join_rows(parts)


@dataclass(frozen=True)
class BlockNumbers:
    """Block numbers without rows, for a pass whose tasks read by themselves.

    Rows that are needed once, to be written or counted, would only fill the caches that training lives on.
    """

    resident: ClassVar = False
    layout: Layout
    key: str = field(default_factory=lambda: uuid4().hex)

    def read(self, number: int) -> Block:
        return Block(number, self.layout.bounds(number)[0], {"number": np.array([number])})
