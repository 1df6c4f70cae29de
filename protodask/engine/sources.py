"""Sources: anything that can hand out its rows block by block."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from protodask.engine.blocks import Arrays, Block, Layout, choose_block_rows


@runtime_checkable
class Source(Protocol):
    """Rows in fixed blocks. A source that names a store is small to pickle and can be read anywhere."""

    @property
    def layout(self) -> Layout: ...

    @property
    def key(self) -> str:
        """Identifies the content: sources of one key hold the same blocks."""
        ...

    @property
    def resident(self) -> bool:
        """Whether the rows are in this process's memory already, so that caching them would only double them."""
        ...

    def read(self, number: int) -> Block: ...


@dataclass(frozen=True)
class ArraySource:
    """Arrays in memory, cut into blocks without a copy."""

    resident: ClassVar = True
    arrays: Arrays
    layout: Layout
    key: str = field(default_factory=lambda: uuid.uuid4().hex)

    def read(self, number: int) -> Block:
        start, stop = self.layout.bounds(number)
        return Block(number, start, {name: array[start:stop] for name, array in self.arrays.items()})


ROWS_AT_HAND = 4096
"""Fewest rows of a block of arrays: nothing waits for them to be read, and a fit to a few thousand rows takes up to 1.8
times as long in blocks of 1,024."""


def array_source(arrays: Arrays, block_rows: int | None = None) -> ArraySource:
    """Cut named arrays of equal length into blocks."""
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) != 1:
        raise ValueError(f"the arrays of a source must have one length, not {lengths}")
    n_rows = next(iter(lengths.values()))
    if block_rows is None:
        row_bytes = sum(array.nbytes for array in arrays.values()) // max(n_rows, 1)
        block_rows = choose_block_rows(n_rows, row_bytes, ROWS_AT_HAND)
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    return ArraySource(contiguous, Layout(n_rows, block_rows))


@dataclass(frozen=True)
class ZippedSource:
    """Several sources of one layout, side by side; their array names must differ.

    Those that are kept `apart` may share names: `part` takes the block of one out again.
    """

    parts: tuple[Source, ...]
    apart: bool = False

    @property
    def layout(self) -> Layout:
        return self.parts[0].layout

    @property
    def key(self) -> str:
        return "+".join(part.key for part in self.parts)

    @property
    def resident(self) -> bool:
        return all(part.resident for part in self.parts)

    def read(self, number: int) -> Block:
        return assemble(self, lambda leaf: leaf.read(number))


View = Callable[[Block], Block]
"""Turns a block into another of the same rows; pickled by name or value like all that travels."""


@dataclass(frozen=True)
class DerivedSource:
    """A source whose blocks are made of those of `base` by a function at each reading, and cached as they were made."""

    base: Source
    view: View
    name: str
    """Tells what this view makes from what others make of the same source."""

    @property
    def layout(self) -> Layout:
        return self.base.layout

    @property
    def key(self) -> str:
        return f"{self.base.key}/{self.name}"

    @property
    def resident(self) -> bool:
        return self.base.resident

    def read(self, number: int) -> Block:
        return self.view(self.base.read(number))


class ViewedSource(DerivedSource):
    """A source whose blocks are looked at through a function: what is read, and cached, are those of `base`."""


def part(block: Block, position: int) -> Block:
    """What one part of a zipped source, whose parts are kept apart, has in a block of it."""
    prefix = f"{position}/"
    own = {name[len(prefix) :]: array for name, array in block.arrays.items() if name.startswith(prefix)}
    return Block(block.number, block.start, own)


@dataclass(frozen=True)
class PlaceHolder:
    """Stands in for a source whose blocks, where they are needed, are in memory already."""

    resident: ClassVar = True
    key: str
    layout: Layout
    blocks: Mapping[int, Block] = field(default_factory=dict)

    def read(self, number: int) -> Block:
        return self.blocks[number]


def zip_sources(*sources: Source) -> Source:
    """Several sources as one, row by row."""
    parts: list[Source] = []
    for source in sources:
        parts += source.parts if isinstance(source, ZippedSource) and not source.apart else (source,)
    layouts = {one.layout for one in parts}
    if len(layouts) != 1:
        raise ValueError(f"sources of different layouts cannot be zipped: {sorted(map(str, layouts))}")
    return parts[0] if len(parts) == 1 else ZippedSource(tuple(parts))


def leaves(source: Source) -> tuple[Source, ...]:
    """The sources that are read for a source, each once: itself, if it is made of no others."""
    match source:
        case ZippedSource(parts):
            found = {leaf.key: leaf for one in parts for leaf in leaves(one)}
            return tuple(found.values())
        case ViewedSource():
            return leaves(source.base)
    return (source,)


def assemble(source: Source, read: Callable[[Source], Block]) -> Block:
    """A block of a source, of those that `read` gives of its leaves."""
    match source:
        case ZippedSource(parts, apart):
            blocks = [assemble(one, read) for one in parts]
            return _keep_apart(blocks) if apart else join_blocks(blocks)
        case ViewedSource():
            return source.view(assemble(source.base, read))
    return read(source)


def with_leaves(source: Source, replace: Callable[[Source], Source]) -> Source:
    """The same source made of other leaves."""
    match source:
        case ZippedSource(parts, apart):
            return ZippedSource(tuple(with_leaves(one, replace) for one in parts), apart)
        case ViewedSource():
            return ViewedSource(with_leaves(source.base, replace), source.view, source.name)
    return replace(source)


def _keep_apart(blocks: Sequence[Block]) -> Block:
    """The same rows of several sources as one block, each array under the number of its source and its name."""
    arrays = {
        f"{position}/{name}": array for position, block in enumerate(blocks) for name, array in block.arrays.items()
    }
    return Block(blocks[0].number, blocks[0].start, arrays)


def join_blocks(blocks: Sequence[Block]) -> Block:
    """The same rows of several sources as one block."""
    if len(blocks) == 1:
        return blocks[0]
    arrays: dict[str, NDArray[Any]] = {}
    for block in blocks:
        if clash := arrays.keys() & block.arrays.keys():
            raise ValueError(f"zipped sources share the array names {sorted(clash)}")
        arrays.update(block.arrays)
    return Block(blocks[0].number, blocks[0].start, arrays)
