"""How many rows a kernel takes at a time, and the memory it takes them in.

A thread keeps that memory from one tile, one block and one evaluation to the next: mapping megabytes anew costs as much
as a small evaluation. Letters are those of `kernel`; `W` is the width of the class sums.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Precision = Literal["float32", "float64"]
Floats = NDArray[np.float64]
Array = NDArray[Any]

TILE_ENTRIES = 2**20
"""Numbers a tile holds: the kernel matrix and the class sums stay in the last cache level (4 MiB in float32)."""

LONGEST_TILE = 2048
SHORTEST_TILE = 32
MOST_ENTRIES = 2**22
"""Numbers a tile may hold before it gets shorter than `SHORTEST_TILE` (16 MiB in float32)."""

UNPACKED_PRODUCT = 10**6
"""Multiplications up to which OpenBLAS computes a product without packing its operands first, a quarter faster."""

SHORTEST_STRIP = 128
"""Rows below which the calls for more strips cost more than unpacked products save."""

ALIASED_BYTES = 2048
"""Rows of a matrix that lie a multiple of this apart share the same few cache sets: up to 2.7 times as slow."""

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


@dataclass(frozen=True)
class Workspace:
    """Memory of one tile of the likelihood for one batch of a round."""

    tile: TileBuffers
    sums: Array
    """Class sums of every panel (C, T, W)."""
    squares: Floats
    """`z^2` (T, D); all batches share what it lies in."""
    weighted: Array
    """`A s` (T, D), likewise; and so is the left operand of the kernel."""


def kernel_tile(rows: int, n_features: int, columns: int, dtype: Precision) -> TileBuffers:
    """This thread's memory for tiles of the kernel alone; what the thread was given before is overwritten."""
    left, standardized, values = _carve(rows, [n_features + 2, n_features, _stride(columns, dtype)], [dtype] * 3)
    return TileBuffers(left, standardized, values[:, :columns])


def sums_width(n_features: int) -> int:
    """Columns of the class sums: of each feature and of the weights, filled up to a multiple of `LANES`."""
    return -(-(n_features + 1) // LANES) * LANES


@dataclass(frozen=True)
class LikelihoodShape:
    """What the memory of a batch in a tile of the likelihood depends on."""

    n_features: int
    columns: int
    n_panels: int
    sums_width: int
    dtype: Precision

    @property
    def entries(self) -> int:
        """Of its kernel matrix and class sums, for each row."""
        return self.columns + self.n_panels * self.sums_width


def likelihood_tile_rows(n_rows: int, shapes: Sequence[LikelihoodShape]) -> int:
    """Rows of a tile of the likelihood: by its kernel matrices, class sums and, of further batches, `z`."""
    return tile_rows(n_rows, sum(shape.entries for shape in shapes) + sum(shape.n_features for shape in shapes[1:]))


def workspace_widths(shapes: Sequence[LikelihoodShape]) -> list[int]:
    """Numbers for each row of a tile in the arrays of `likelihood_workspaces`: of the three that all batches share, in
    float64, and of three more of each batch, in its own precision.
    """
    widest = max(shape.n_features for shape in shapes)
    own = [
        (shape.n_features, _stride(shape.columns, shape.dtype), shape.n_panels * shape.sums_width) for shape in shapes
    ]
    return [widest + 2, widest, widest, *chain(*own)]


def likelihood_workspaces(rows: int, shapes: Sequence[LikelihoodShape]) -> list[Workspace]:
    """This thread's memory for tiles of the batches of a round; what the thread was given before is overwritten."""
    dtypes: list[Precision] = ["float64"] * 3
    for shape in shapes:
        dtypes += [shape.dtype] * 3
    left, weighted, squares, *own = _carve(rows, workspace_widths(shapes), dtypes)
    return [
        Workspace(
            TileBuffers(
                _matrix(left, rows, shape.n_features + 2, shape.dtype), standardized, values[:, : shape.columns]
            ),
            sums.reshape(shape.n_panels, rows, shape.sums_width),
            _matrix(squares, rows, shape.n_features, "float64"),
            _matrix(weighted, rows, shape.n_features, shape.dtype),
        )
        for shape, standardized, values, sums in zip(shapes, own[::3], own[1::3], own[2::3], strict=True)
    ]


def _matrix(numbers: Floats, rows: int, width: int, dtype: Precision) -> Array:
    """The first numbers of some memory as a matrix."""
    matrix: Array = numbers.reshape(-1).view(dtype)[: rows * width].reshape(rows, width)
    return matrix


def _stride(columns: int, dtype: Precision) -> int:
    """Columns of a kernel matrix with what keeps its rows out of the same cache sets."""
    number_bytes = np.dtype(dtype).itemsize
    return columns + (ALIGNMENT // number_bytes if columns * number_bytes % ALIASED_BYTES == 0 else 0)


class _Memory(threading.local):
    """Bytes of one thread, as many as any of its tiles needed so far."""

    def __init__(self) -> None:
        self.bytes = np.empty(0, dtype=np.uint8)


_memory = _Memory()


def _carve(rows: int, widths: Sequence[int], dtypes: Sequence[Precision]) -> list[Array]:
    """Matrices side by side in this thread's memory, each at the start of a cache line."""
    sizes = [rows * width * np.dtype(dtype).itemsize for width, dtype in zip(widths, dtypes, strict=True)]
    steps = [-(-size // ALIGNMENT) * ALIGNMENT for size in sizes]
    if len(_memory.bytes) < sum(steps) + ALIGNMENT:
        _memory.bytes = np.empty(sum(steps) + ALIGNMENT, dtype=np.uint8)
    first = -_memory.bytes.ctypes.data % ALIGNMENT
    carved: list[Array] = []
    for width, dtype, size, step in zip(widths, dtypes, sizes, steps, strict=True):
        carved.append(_memory.bytes[first : first + size].view(dtype).reshape(rows, width))
        first += step
    return carved
