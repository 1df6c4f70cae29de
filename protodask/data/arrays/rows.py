"""Rows of a source by range rather than by block, and sources laid out anew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from protodask.engine import Arrays, Block, Layout, Source
from protodask.errors import InputError

CHECK_ROWS = 8192
"""Rows looked at together, so that no mask of a whole block is made."""


@runtime_checkable
class RowRanges(Protocol):
    """A source that can read any range of rows without reading whole blocks around it."""

    def rows(self, start: int, stop: int) -> Arrays: ...


@runtime_checkable
class NamedArrays(Protocol):
    """A source that says which arrays its blocks have, so that none need be read to know."""

    @property
    def array_names(self) -> tuple[str, ...]: ...


def read_rows(source: Source, start: int, stop: int) -> Arrays:
    """The rows `start .. stop` of a source."""
    if isinstance(source, RowRanges):
        return source.rows(start, stop)
    parts: list[Arrays] = []
    row = start
    while row < stop:
        block = source.read(row // source.layout.block_rows)
        last = min(stop, block.stop)
        parts.append({name: values[row - block.start : last - block.start] for name, values in block.arrays.items()})
        row = last
    return join_rows(parts)


def join_rows(parts: Sequence[Arrays]) -> Arrays:
    """The rows of the parts, one after the other; names that are not in all parts are left out."""
    if len(parts) == 1:
        return parts[0]
    names = [name for name in parts[0] if all(name in part for part in parts)]
    joined: dict[str, NDArray[Any]] = {name: np.concatenate([part[name] for part in parts]) for name in names}
    return joined


def check_finite(features: NDArray[Any], names: Sequence[str], first_row: int) -> None:
    """Refuse features (n, D) with a missing or infinite value; `first_row` is the number of their first row."""
    if (place := first_unusable(features)) is not None:
        row, column = place
        raise InputError(
            "bad-value",
            f"Column {names[column]!r} has a missing or infinite value in row {first_row + row} (counted from 0).",
            FILL_IN,
        )


FILL_IN = "Fill in or remove such rows first."


def first_unusable(features: NDArray[Any]) -> tuple[int, int] | None:
    """Row and column of the first missing or infinite value of features (n, D)."""
    for first in range(0, len(features), CHECK_ROWS):
        finite = np.isfinite(features[first : first + CHECK_ROWS])
        if not finite.all():
            row, column = (int(index) for index in np.argwhere(~finite)[0])
            return first + row, column
    return None


@dataclass(frozen=True)
class BlockNumbers:
    """Block numbers without rows, for a pass whose tasks read by themselves.

    Rows that are needed once, to be written or counted, would only fill the caches that training lives on.
    """

    layout: Layout
    key: str = field(default_factory=lambda: uuid4().hex)

    @property
    def resident(self) -> bool:
        return False

    def read(self, number: int) -> Block:
        return Block(number, self.layout.bounds(number)[0], {"number": np.array([number])})
