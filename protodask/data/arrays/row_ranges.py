"""Ranges of rows of several sources, one after the other, as one source."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from uuid import uuid4

from protodask.data.arrays.rows import join_rows, read_rows
from protodask.engine import Arrays, Block, Layout, Source


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
class RangedRows:
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

    def read(self, number: int) -> Block:
        start, stop = self.layout.bounds(number)
        return Block(number, start, self.rows(start, stop))

    def rows(self, start: int, stop: int) -> Arrays:
        """Any range of rows."""
        parts: list[Arrays] = []
        number, row = bisect.bisect_right(self.edges, start) - 1, start
        while row < stop:
            part, before = self.ranges[number], self.edges[number]
            until = min(stop, self.edges[number + 1])
            parts.append(read_rows(part.source, part.first + row - before, part.first + until - before))
            row, number = until, number + 1
        return join_rows(parts)
