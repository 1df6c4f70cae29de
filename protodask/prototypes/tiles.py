"""How many rows a kernel takes at a time, and the memory it takes them in.

A thread keeps that memory from one tile, one block and one evaluation to the next: mapping megabytes anew costs as much
as a small evaluation. Letters are those of `kernel`; `W` is the width of the class sums, `S` the rows of a stretch.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from protodask.engine.records import Floats

Precision = Literal["float32", "float64"]
Array = NDArray[Any]

TILE_ENTRIES = 2**21
"""Numbers a tile holds (8 MiB in float32). With half as many its kernel matrix and class sums stay in smaller caches,
but threads wait for each other twice as often, and two of them take a fifth longer."""

LONGEST_TILE = 4096
SHORTEST_TILE = 32
MOST_ENTRIES = 2**22
"""Numbers a tile may hold before it gets shorter than `SHORTEST_TILE` (16 MiB in float32)."""

STRETCH_ENTRIES = 2**20
"""Numbers that an evaluation holds of the rows of a stretch, unless those of one tile are more."""

UNPACKED_PRODUCT = 10**6
"""Multiplications up to which OpenBLAS computes a product without packing its operands first, a quarter faster."""

SHORTEST_STRIP = 128
"""Rows below which the calls for more strips cost more than unpacked products save."""

ALIASED_BYTES = 2048
"""Rows of a matrix that lie a multiple of this apart share the same few cache sets: up to 2.7 times as slow."""

SUMMED_ROWS = 32
"""Rows whose products are summed in float32: with all of them the error of the gradient by feature weights, in which
much cancels, is 30 times as large, and fewer take longer."""

LANES = 16
"""Widths of the right-hand operand that keep the BLAS in its fast path: multiples of a vector register."""

ALIGNMENT = 64
"""Bytes of a cache line and of the widest vector register."""


def tile_rows(n_rows: int, entries_per_row: int) -> int:
    """Rows of a tile, so that `n_rows` fall into tiles of nearly equal length."""
    rows = min(max(TILE_ENTRIES // max(entries_per_row, 1), SHORTEST_TILE), LONGEST_TILE)
    if rows * entries_per_row > MOST_ENTRIES:
        rows = max(1, MOST_ENTRIES // entries_per_row)
    n_tiles = max(1, round(n_rows / rows))
    return max(1, -(-n_rows // n_tiles))


def longest_tile(n_rows: int, entries_per_row: int) -> int:
    """Rows of a tile at most, of up to so many rows: the only one of a short block is half as long again as others."""
    return min(n_rows, int(1.5 * tile_rows(MOST_ENTRIES * 2**20, entries_per_row)) + 1)


def strips(rows: int, multiplications: int) -> list[slice]:
    """The rows of a tile in strips of which each, at so many multiplications a row, makes an unpacked product."""
    step = UNPACKED_PRODUCT // max(multiplications, 1)
    if step < SHORTEST_STRIP:
        return [slice(0, rows)]
    return [slice(first, min(first + step, rows)) for first in range(0, rows, step)]


@dataclass(frozen=True)
class TileBuffers:
    """Memory of one tile of the kernel: its left operand (T, D + 2), `z` (T, D) and its values (T, columns)."""

    left: Array
    standardized: Array
    values: Array


def kernel_tile(rows: int, n_features: int, columns: int, dtype: Precision) -> TileBuffers:
    """This thread's memory for tiles of the kernel alone; what the thread was given before is overwritten."""
    return TileBuffers(*_carve([(rows, width, dtype) for width in (n_features + 2, n_features, columns)]))


def sums_width(n_features: int) -> int:
    """Columns of the class sums: of each feature and of the weights, filled up to a multiple of `LANES`."""
    return -(-(n_features + 1) // LANES) * LANES


@dataclass(frozen=True)
class LikelihoodShape:
    """What the memory of a batch in an evaluation of the likelihood depends on."""

    n_features: int
    columns: int
    n_panels: int
    sums_width: int
    dtype: Precision
    n_batches: int = 1
    """That are met together."""

    @property
    def entries(self) -> int:
        """Of its kernel matrix and class sums, for each row of a tile."""
        return self.columns + self.n_panels * self.sums_width

    @property
    def squares(self) -> int:
        """Numbers of a row of a stretch that batches which are met together need more: its squares, and their sums."""
        return 0 if self.n_batches == 1 else self.n_features * (1 + -(-self.n_batches // SUMMED_ROWS))


@dataclass(frozen=True)
class RowShape:
    """What the memory for the rows of an evaluation depends on, whatever batches they meet."""

    n_classes: int
    row_width: int
    """Numbers of a row as it comes."""
    n_features: Mapping[Precision, int]
    """That any batch of a precision looks at."""


@dataclass(frozen=True)
class Lengths:
    """Rows that an evaluation takes at a time.

    What has to be done for each of them whatever they meet, it does for a *stretch* of several tiles at once: threads
    wait for each other wherever a call gives the interpreter lock back, and many short calls leave them no time.
    """

    tile: int
    stretch: int


def likelihood_lengths(n_rows: int, rows: RowShape, batches: Sequence[LikelihoodShape]) -> Lengths:
    """Tiles by the kernel matrices, class sums and rows of all batches; stretches by all there is of a row."""
    tile = tile_rows(n_rows, sum(shape.entries + shape.n_features for shape in batches))
    tiles = STRETCH_ENTRIES // (tile * sum(stretch_widths(rows, batches)))
    return Lengths(tile, tile * max(1, min(tiles, -(-n_rows // tile))))


def stretch_widths(rows: RowShape, batches: Sequence[LikelihoodShape]) -> list[int]:
    """Numbers for each row of a stretch, about: of what batches share, of the row as it comes and, in each precision,
    in standard units, some of them scored; and of each batch, or of those that are met together.
    """
    widest = max(shape.n_features for shape in batches)
    standardized = 2 * sum(rows.n_features.values())
    of_batches = [shape.n_features + 3 * shape.n_batches + shape.squares for shape in batches]
    return [2 * rows.n_classes + 4, widest, rows.row_width, standardized, *of_batches]


@dataclass(frozen=True)
class BatchMemory:
    """Of one batch."""

    left: Array
    """Its left operands of the kernel (S, D + B + 1)."""
    pull: Floats
    """`sum_k c_nk u_bnk` (B, S)"""
    sums: Array
    """Class sums of every panel of a tile (C, T, W)."""


@dataclass(frozen=True)
class LikelihoodMemory:
    """Of a stretch of `S` rows, and of a tile of it."""

    unscaled: Floats
    """(K, S)"""
    scratch: Array
    """(S, D), for one batch after another; so is the next."""
    weighted: Array
    """`A s` (T, D)"""
    rows: dict[Precision, Array]
    """In standard units (S, features)."""
    values: dict[Precision, Array]
    """Kernel matrices of all batches of a precision, one after the other: to be exponentiated in one call."""
    batches: list[BatchMemory]


def likelihood_memory(lengths: Lengths, rows: RowShape, batches: Sequence[LikelihoodShape]) -> LikelihoodMemory:
    """This thread's memory for the batches of a round; what the thread was given before is overwritten."""
    tile, stretch = lengths.tile, lengths.stretch
    widest = max(shape.n_features for shape in batches)
    precise: Precision = "float64" if any(shape.dtype == "float64" for shape in batches) else "float32"
    columns = {dtype: sum(shape.columns for shape in batches if shape.dtype == dtype) for dtype in rows.n_features}
    wanted: list[tuple[int, int, Precision]] = [
        (rows.n_classes, stretch, "float64"),
        (stretch, widest, precise),
        (tile, widest, precise),
        *((stretch, width, dtype) for dtype, width in rows.n_features.items()),
        *((tile, width, dtype) for dtype, width in columns.items()),
    ]
    for shape in batches:
        wanted.append((stretch, shape.n_features + shape.n_batches + 1, shape.dtype))
        wanted.append((shape.n_batches, stretch, "float64"))
        wanted.append((shape.n_panels * tile, shape.sums_width, shape.dtype))
    found = iter(_carve(wanted))
    return LikelihoodMemory(
        unscaled=next(found),
        scratch=next(found),
        weighted=next(found),
        rows={dtype: next(found) for dtype in rows.n_features},
        values={dtype: next(found).reshape(-1) for dtype in columns},
        batches=[
            BatchMemory(next(found), next(found), next(found).reshape(shape.n_panels, tile, shape.sums_width))
            for shape in batches
        ],
    )


def matrix_in(numbers: Array, rows: int, width: int, dtype: Precision) -> Array:
    """The first numbers of some memory as a matrix."""
    matrix: Array = numbers.reshape(-1).view(dtype)[: rows * width].reshape(rows, width)
    return matrix


def alias_padding(columns: int, dtype: Precision) -> int:
    """Further columns of a kernel matrix that keep its rows out of the same cache sets."""
    number_bytes = np.dtype(dtype).itemsize
    return ALIGNMENT // number_bytes if columns and columns * number_bytes % ALIASED_BYTES == 0 else 0


class _Memory(threading.local):
    """Bytes of one thread, as many as any of its tiles needed so far, and how they were cut last."""

    def __init__(self) -> None:
        self.bytes = np.empty(0, dtype=np.uint8)
        self.cut: tuple[object, list[Array]] = None, []


_memory = _Memory()


def _carve(matrices: Sequence[tuple[int, int, Precision]]) -> list[Array]:
    """Matrices of so many rows and columns side by side in this thread's memory, each at the start of a cache line."""
    wanted, carved = _memory.cut
    if wanted == matrices:
        return carved
    sizes = [rows * width * np.dtype(dtype).itemsize for rows, width, dtype in matrices]
    steps = [-(-size // ALIGNMENT) * ALIGNMENT for size in sizes]
    _memory.cut = None, (carved := [])  # so that nothing keeps what there was before
    if len(_memory.bytes) < sum(steps) + ALIGNMENT:
        _memory.bytes = np.empty(0, dtype=np.uint8)  # let go before there is more
        _memory.bytes = np.empty(sum(steps) + ALIGNMENT, dtype=np.uint8)
    first = -_memory.bytes.ctypes.data % ALIGNMENT
    for (rows, width, dtype), size, step in zip(matrices, sizes, steps, strict=True):
        carved.append(_memory.bytes[first : first + size].view(dtype).reshape(rows, width))
        first += step
    _memory.cut = matrices, carved
    return carved
