"""Sources: anything that can hand out its rows block by block."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np

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

    arrays: Arrays
    layout: Layout
    key: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def resident(self) -> bool:
        return True

    def read(self, number: int) -> Block:
        start, stop = self.layout.bounds(number)
        return Block(number, start, {name: array[start:stop] for name, array in self.arrays.items()})


def array_source(arrays: Arrays, block_rows: int | None = None) -> ArraySource:
    """Cut named arrays of equal length into blocks."""
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) != 1:
        raise ValueError(f"the arrays of a source must have one length, not {lengths}")
    n_rows = next(iter(lengths.values()))
    if block_rows is None:
        row_bytes = sum(array.nbytes for array in arrays.values()) // max(n_rows, 1)
        block_rows = choose_block_rows(n_rows, row_bytes)
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    return ArraySource(contiguous, Layout(n_rows, block_rows))


@dataclass(frozen=True)
class ZippedSource:
    """Several sources of one layout, side by side; their array names must differ."""

    parts: tuple[Source, ...]

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
        return join_blocks([part.read(number) for part in self.parts])


def zip_sources(*sources: Source) -> Source:
    """Several sources as one, row by row."""
    parts = tuple(leaf for source in sources for leaf in leaves(source))
    layouts = {part.layout for part in parts}
    if len(layouts) != 1:
        raise ValueError(f"sources of different layouts cannot be zipped: {sorted(map(str, layouts))}")
    return parts[0] if len(parts) == 1 else ZippedSource(parts)


def leaves(source: Source) -> tuple[Source, ...]:
    """The sources a source is zipped from, itself if it is not."""
    return source.parts if isinstance(source, ZippedSource) else (source,)


def join_blocks(blocks: Sequence[Block]) -> Block:
    """The same rows of several sources as one block."""
    if len(blocks) == 1:
        return blocks[0]
    arrays: dict[str, object] = {}
    for block in blocks:
        if clash := arrays.keys() & block.arrays.keys():
            raise ValueError(f"zipped sources share the array names {sorted(clash)}")
        arrays.update(block.arrays)
    joined: Mapping[str, np.ndarray[tuple[int, ...], np.dtype[np.generic]]] = arrays  # type: ignore[assignment]
    return Block(blocks[0].number, blocks[0].start, joined)
