"""Those rows of a dataset that are chosen, as a source."""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from protodask.data.format.dataset import Dataset
from protodask.engine import Arrays, Block, Layout


class Choice(Protocol):
    """Says of each row of a block (n,) whether it is chosen; small to pickle."""

    def __call__(self, block: Block) -> NDArray[np.bool_]: ...


@dataclass(frozen=True)
class ChosenRows:
    """The rows of a dataset that a choice takes, in their order; small to pickle."""

    dataset: Dataset
    choice: Choice
    edges: tuple[int, ...]
    """Rows that are chosen before each block of the dataset, and in all of them."""
    layout: Layout

    @property
    def key(self) -> str:
        return f"{self.dataset.key}/{self.choice}/{self.layout.block_rows}"

    @property
    def resident(self) -> bool:
        return False

    @property
    def array_names(self) -> tuple[str, ...]:
        return self.dataset.array_names

    def read(self, number: int) -> Block:
        start, stop = self.layout.bounds(number)
        return Block(number, start, self.rows(start, stop))

    def rows(self, start: int, stop: int) -> Arrays:
        """Any range of rows; blocks that have none of them are not read."""
        known, count = self.dataset.metadata, stop - start
        arrays = {
            variable.name: np.empty(known.shape_of(variable, count), dtype=known.dtype_of(variable))
            for variable in known.variables
        }
        number, row = bisect.bisect_right(self.edges, start) - 1, start
        while row < stop:
            first, last = self.edges[number : number + 2]
            until = min(last, stop)
            if until > row:
                block = self.dataset.read(number)
                chosen = np.flatnonzero(self.choice(block))[row - first : until - first]
                for name, values in block.arrays.items():
                    arrays[name][row - start : until - start] = values[chosen]
                row = until
            number += 1
        return arrays
