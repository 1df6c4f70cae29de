"""Blocks: what a kernel sees, what is cached, and the leaf of every reduction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = Mapping[str, NDArray[Any]]

TARGET_BLOCK_BYTES = 32 * 2**20
"""Bytes of a block of a large dataset: long enough to read at full speed, short enough to hold several."""

WANTED_BLOCKS = 64
"""Blocks a smaller dataset is cut into, so that it can keep many threads busy and show progress."""

SMALLEST_BLOCK_ROWS = 1024
"""Below this many rows the fixed cost of a block (about 50 microseconds) would show."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How `n_rows` rows are cut into blocks of `block_rows`; only the last block may be shorter."""

    n_rows: int
    block_rows: int

    def __post_init__(self) -> None:
        if self.n_rows < 0:
            raise ValueError(f"a layout cannot have {self.n_rows} rows")
        if self.block_rows < 1 or self.block_rows & (self.block_rows - 1):
            raise ValueError(f"block_rows must be a power of two, not {self.block_rows}")

    @property
    def n_blocks(self) -> int:
        return -(-self.n_rows // self.block_rows)

    def bounds(self, number: int) -> tuple[int, int]:
        """First row of a block and the row after its last."""
        if not 0 <= number < self.n_blocks:
            raise IndexError(f"block {number} of {self.n_blocks}")
        start = number * self.block_rows
        return start, min(start + self.block_rows, self.n_rows)

    def block_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Number of the block that holds each row."""
        return rows // self.block_rows


@dataclass(frozen=True, slots=True)
class Block:
    """The rows `start .. stop` of a source, as named arrays of equal length."""

    number: int
    start: int
    arrays: Arrays

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.arrays[name]

    def __contains__(self, name: str) -> bool:
        return name in self.arrays

    @property
    def n_rows(self) -> int:
        return len(next(iter(self.arrays.values())))

    @property
    def stop(self) -> int:
        return self.start + self.n_rows

    @property
    def rows(self) -> NDArray[np.int64]:
        """Global row numbers."""
        return np.arange(self.start, self.stop, dtype=np.int64)

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.arrays.values())


def choose_block_rows(n_rows: int, row_bytes: int, fewest: int = SMALLEST_BLOCK_ROWS) -> int:
    """Rows of a block: a power of two, about 32 MiB, less where that would leave too few blocks of `fewest` rows.

    It depends on the data alone, never on the machine, so that the same data is cut alike everywhere.
    """
    largest = _power_of_two_below(TARGET_BLOCK_BYTES // max(row_bytes, 1))
    fair = _power_of_two_below(n_rows // WANTED_BLOCKS)
    return max(1, min(largest, max(fair, fewest)))


def _power_of_two_below(value: int) -> int:
    return 1 << (max(value, 1).bit_length() - 1)
