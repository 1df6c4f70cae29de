"""Probabilities that are not in memory, such as a dask or Zarr array, as a source of items."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

from protodask.data.arrays.row_arrays import RowArray, row_array
from protodask.decisions.decision import Cut, Flags
from protodask.decisions.probabilities import check_shape
from protodask.engine import Block, Layout, Source, choose_block_rows
from protodask.engine.lazy import is_lazy
from protodask.evaluation.outcomes import PROBABILITY


def is_outside_memory(probability: object) -> bool:
    """Whether probabilities have to be computed, or read from a store, to be looked at."""
    return is_lazy(probability) or isinstance(probability, (zarr.Array, np.memmap))


@dataclass(frozen=True)
class ItemRows:
    """A source whose blocks hold "probability" (rows,)."""

    rows: RowArray
    layout: Layout
    key: str = field(default_factory=lambda: uuid.uuid4().hex)

    @classmethod
    def of(cls, probability: Any) -> ItemRows:
        """Those of a dask array or series, a Zarr array or a memory map."""
        if is_lazy(probability) and not hasattr(probability, "chunks"):
            probability = probability.to_dask_array(lengths=True)
        rows = row_array(probability)
        check_shape(rows.shape, rows.dtype)
        return cls(rows, Layout(rows.shape[0], choose_block_rows(rows.shape[0], rows.dtype.itemsize)))

    @property
    def resident(self) -> bool:
        return self.rows.resident

    def read(self, number: int) -> Block:
        start, stop = self.layout.bounds(number)
        return Block(number, start, {PROBABILITY: self.slice(start, stop)})

    def slice(self, start: int, stop: int) -> NDArray[Any]:
        """Any range of rows, read by chunks."""
        values = np.empty(stop - start, dtype=self.rows.dtype)
        for first, last in pairwise(self.rows.edges):
            low, high = max(first, start), min(last, stop)
            if low < high:
                values[low - start : high - start] = self.rows.slice(low, high)
        return values


def select_items(source: Source, cut: Cut) -> Flags:
    """Which items of a source are above the cut (n,), read block by block."""
    selected = np.zeros(source.layout.n_rows, dtype=np.bool_)
    tied_before = 0
    for number in range(source.layout.n_blocks):
        block = source.read(number)
        values = block[PROBABILITY]
        selected[block.start : block.start + len(values)] = cut.select(values, tied_before)
        tied_before += int(np.count_nonzero(values == cut.threshold))
    return selected
