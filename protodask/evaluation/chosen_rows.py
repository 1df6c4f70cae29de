"""Those rows of a dataset that are chosen, as a source, and as a dataset of their own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from protodask.data.arrays.keyed import Draws, keyed_draws
from protodask.data.arrays.rows import ReadByRanges, spans
from protodask.data.format.dataset import Dataset
from protodask.data.format.schema import INCLUSION
from protodask.data.format.writer import write_dataset
from protodask.data.tables.ingest_schema import written_as
from protodask.engine import Arrays, Block, Engine, Layout, choose_block_rows
from protodask.engine.records import Floats

SLAB_ROWS = 2**16
"""Rows drawn together: what is needed to draw is a few times eight bytes a row, and a block may have millions."""


class Choice(Protocol):
    """Says of each row of a block (n,) whether it is chosen; small to pickle."""

    def __call__(self, block: Block) -> NDArray[np.bool_]: ...

    def inclusion(self, block: Block) -> Floats | None:
        """The probability that each row of a block of chosen ones had (n,); None where none is to be stored."""


def uniform_draws(key: Draws, numbers: NDArray[np.integer[Any]]) -> Floats:
    """Draws of a stream, uniform from 0 to below 1; of 53 bits, so that they are exact."""
    return (keyed_draws(key, numbers) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def slabs(n_rows: int) -> Iterator[slice]:
    """The parts in which rows are drawn."""
    for first in range(0, n_rows, SLAB_ROWS):
        yield slice(first, min(first + SLAB_ROWS, n_rows))


@dataclass(frozen=True)
class ChosenRows(ReadByRanges):
    """The rows of a dataset that a choice takes, in their order; small to pickle."""

    resident: ClassVar = False
    dataset: Dataset
    choice: Choice
    edges: tuple[int, ...]
    """Rows that are chosen before each block of the dataset, and in all of them."""
    layout: Layout

    @property
    def key(self) -> str:
        return f"{self.dataset.key}/{self.choice}/{self.layout.block_rows}"

    @property
    def array_names(self) -> tuple[str, ...]:
        return tuple(self.rows(0, 0))

    def rows(self, start: int, stop: int) -> Arrays:
        """Any range of rows; blocks that have none of them are not read."""
        specs = map(self.dataset.metadata.spec_of, self.dataset.metadata.variables)
        arrays = {spec.name: np.empty(spec.shape(stop - start), dtype=spec.dtype) for spec in specs}
        for number, first, last in spans(self.edges, start, stop):
            block, before = self.dataset.read(number), self.edges[number]
            chosen = np.flatnonzero(self.choice(block))[first - before : last - before]
            for name, values in block.arrays.items():
                arrays[name][first - start : last - start] = values[chosen]
        inclusion = self.choice.inclusion(Block(0, start, arrays))
        return arrays if inclusion is None else {**arrays, INCLUSION.name: inclusion}


def choose_rows(
    dataset: Dataset, choice: Choice, counts: NDArray[np.int64], row_bytes: int | None = None
) -> ChosenRows:
    """The chosen rows of a dataset, so many of each block."""
    edges = (0, *np.cumsum(counts).tolist())
    block_rows = choose_block_rows(edges[-1], row_bytes or dataset.metadata.row_bytes)
    return ChosenRows(dataset, choice, edges, Layout(edges[-1], block_rows))


def write_chosen(
    chosen: ChosenRows,
    out: str | os.PathLike[str],
    note: str,
    engine: Engine,
    overwrite: bool,
    inclusion_name: str | None = None,
) -> Dataset:
    """Write chosen rows as a dataset like the one they are of, with a note of how they were chosen."""
    known = chosen.dataset.metadata
    return write_dataset(
        chosen,
        out,
        **written_as(known) | {"inclusion_name": inclusion_name or known.inclusion_name},
        dropped=known.dropped,
        engine=engine,
        block_rows=chosen.layout.block_rows,
        overwrite=overwrite,
        notes=(*known.notes, note),
    )
