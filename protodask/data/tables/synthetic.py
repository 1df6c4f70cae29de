"""Sample data: made block by block, the same rows for the same seed whatever the blocks are.

`n` rows, `D` features, `K` classes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Literal, cast, get_args

import numpy as np
from numpy.typing import NDArray

from protodask.data.arrays.rows import ReadByRanges, spans
from protodask.data.format.dataset import Dataset
from protodask.data.format.schema import FEATURES, TARGET, Column, check_block_rows, check_dtype
from protodask.data.format.writer import write_dataset
from protodask.engine import Arrays, EngineLike, Layout, choose_block_rows
from protodask.engine.records import Floats
from protodask.errors import InputError

SyntheticName = Literal["checker", "xor", "digits", "blobs"]

GRANULE_ROWS = 2048
"""Rows drawn from one random stream: the stream is keyed by the granule's number, so that any row can be made alone."""

Drawn = tuple[NDArray[np.floating], NDArray[np.int32]]


@dataclass(frozen=True)
class SyntheticSource(ReadByRanges):
    """Rows made when they are read; small to pickle.

    `checker`: uniform on the unit square, the class that of a chess board of 8 x 8 fields. `xor`: uniform(-1, 1), the
    class 1 where the product of all features is positive. `digits`: scikit-learn's digits, each row one of the 1,797
    images shifted, turned, scaled and noisy. `blobs`: normal distributions of unit variance around a centre for each
    class.
    """

    resident: ClassVar = False
    name: SyntheticName
    layout: Layout
    n_features: int
    n_classes: int
    seed: int = 0
    dtype: str = "float32"

    @property
    def key(self) -> str:
        return "/".join(map(str, (self.name, self.layout, self.n_features, self.n_classes, self.seed, self.dtype)))

    @property
    def classes(self) -> tuple[int, ...]:
        return tuple(range(self.n_classes))

    @property
    def columns(self) -> tuple[Column, ...]:
        if self.name == "digits":
            return tuple(Column(f"pixel_{row}_{column}") for row in range(SIDE) for column in range(SIDE))
        return tuple(Column(f"x{number}") for number in range(self.n_features))

    def rows(self, start: int, stop: int) -> Arrays:
        """Any range of rows."""
        features = np.empty((stop - start, self.n_features), dtype=self.dtype)
        target = np.empty(stop - start, dtype=np.int32)
        for granule, first, last in spans(range(0, stop + GRANULE_ROWS, GRANULE_ROWS), start, stop):
            drawn, labels = KINDS[self.name].draw(self, _generator(self.seed, granule))
            own = slice(first - granule * GRANULE_ROWS, last - granule * GRANULE_ROWS)
            features[first - start : last - start] = drawn[own]
            target[first - start : last - start] = labels[own]
        return {FEATURES.name: features, TARGET.name: target}


def _generator(seed: int, stream: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=np.array([seed, stream], dtype=np.uint64)))


def _draw_checker(source: SyntheticSource, generator: np.random.Generator) -> Drawn:
    points = generator.random((GRANULE_ROWS, 2))
    return points, (np.floor(8 * points).sum(axis=1) % 2).astype(np.int32)


def _draw_xor(source: SyntheticSource, generator: np.random.Generator) -> Drawn:
    points = generator.uniform(-1, 1, (GRANULE_ROWS, source.n_features))
    return points, ((points < 0).sum(axis=1) % 2 == 0).astype(np.int32)


def _draw_blobs(source: SyntheticSource, generator: np.random.Generator) -> Drawn:
    labels = generator.integers(source.n_classes, size=GRANULE_ROWS)
    noise = generator.standard_normal((GRANULE_ROWS, source.n_features))
    return _centres(source.seed, source.n_classes, source.n_features)[labels] + noise, labels.astype(np.int32)


CENTRES_STREAM = 2**64 - 1
BLOB_DISTANCE = 4.0
"""About the distance of two centres in standard deviations of a blob: they overlap a little."""


@lru_cache(maxsize=8)
def _centres(seed: int, n_classes: int, n_features: int) -> Floats:
    drawn = _generator(seed, CENTRES_STREAM).standard_normal((n_classes, n_features))
    centres: Floats = drawn * (BLOB_DISTANCE / np.sqrt(2 * n_features))
    return centres


SIDE = 8
MARGIN = 2
"""Empty pixels around an image, so that what moves in from outside is paper."""
TURN = np.deg2rad(15)
SHIFT = 0.8
SCALE = 0.15
NOISE = 0.5
INK = 16.0
"""The darkest pixel; turns up to 15 degrees, shifts up to 0.8 pixels, 15 per cent of size and noise of half a level
leave the digits readable."""


def _draw_digits(source: SyntheticSource, generator: np.random.Generator) -> Drawn:
    images, labels = _digits()
    chosen = generator.integers(len(images), size=GRANULE_ROWS)
    turn = generator.uniform(-TURN, TURN, GRANULE_ROWS)
    zoom = generator.uniform(1 - SCALE, 1 + SCALE, GRANULE_ROWS)
    shift = generator.uniform(-SHIFT, SHIFT, (2, GRANULE_ROWS))
    noise = generator.standard_normal((GRANULE_ROWS, SIDE * SIDE), dtype=np.float32)
    pixels = distort(images, chosen, turn, zoom, shift)
    pixels += NOISE * noise
    np.clip(pixels, 0, INK, out=pixels)
    return pixels, labels[chosen]


def distort(
    images: NDArray[np.float32], chosen: NDArray[np.int64], turn: Floats, zoom: Floats, shift: Floats
) -> NDArray[np.float32]:
    """Turned (radians), scaled and shifted (pixels) copies of images with margin, by bilinear interpolation (n, 64).

    The pixel at `p` shows the original at `R(turn) (p - shift) / zoom`, positions taken from the centre of the image.
    """
    width = SIDE + 2 * MARGIN
    axis = np.arange(SIDE, dtype=np.float32) - (SIDE - 1) / 2
    down, across = (grid.reshape(1, -1) for grid in np.meshgrid(axis, axis, indexing="ij"))
    sine = (np.sin(turn) / zoom).astype(np.float32)[:, None]
    cosine = (np.cos(turn) / zoom).astype(np.float32)[:, None]
    moved_down = down - shift[0].astype(np.float32)[:, None]
    moved_across = across - shift[1].astype(np.float32)[:, None]
    middle = np.float32((width - 1) / 2)
    # Beyond the margin there is only paper; the last cell is left out so that every corner of a cell is an index.
    row = np.clip(cosine * moved_down - sine * moved_across + middle, 0, width - 1.001)
    column = np.clip(sine * moved_down + cosine * moved_across + middle, 0, width - 1.001)
    top, left = row.astype(np.int32), column.astype(np.int32)
    row -= top
    column -= left
    flat = images.reshape(-1)
    corner = top * width + left + (chosen * (width * width)).astype(np.int32)[:, None]
    upper = flat[corner] * (1 - column) + flat[corner + 1] * column
    lower = flat[corner + width] * (1 - column) + flat[corner + width + 1] * column
    mixed: NDArray[np.float32] = upper * (1 - row) + lower * row
    return mixed


@lru_cache(maxsize=1)
def _digits() -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    from sklearn.datasets import load_digits  # scikit-learn takes a second to import

    found = load_digits()
    images = np.pad(found.images.astype(np.float32), ((0, 0), (MARGIN, MARGIN), (MARGIN, MARGIN)))
    return images, found.target.astype(np.int32)


@dataclass(frozen=True)
class _Kind:
    draw: Callable[[SyntheticSource, np.random.Generator], Drawn]
    n_features: int
    n_classes: int
    any_features: bool
    any_classes: bool


KINDS = {
    "checker": _Kind(_draw_checker, 2, 2, False, False),
    "xor": _Kind(_draw_xor, 6, 2, True, False),
    "digits": _Kind(_draw_digits, SIDE * SIDE, 10, False, False),
    "blobs": _Kind(_draw_blobs, 2, 3, True, True),
}


def synthetic_source(
    name: str,
    rows: int,
    *,
    seed: int = 0,
    n_features: int | None = None,
    n_classes: int | None = None,
    dtype: str = "float32",
    block_rows: int | None = None,
) -> SyntheticSource:
    """A source of sample data. `n_features` can be chosen for xor and blobs, `n_classes` for blobs."""
    kind = KINDS.get(name)
    if kind is None:
        raise InputError(
            "unknown-name", f"There is no sample data {name!r}.", f"Choose {', '.join(get_args(SyntheticName))}."
        )
    if rows < 1:
        raise InputError("bad-setting", f"{rows} rows of sample data were asked for.", "Ask for at least one.")
    if not 0 <= seed < 2**64:
        raise InputError("bad-setting", f"The seed is {seed}.", "Give a number from 0 to 2**64 - 1.")
    if n_features not in (None, kind.n_features) and not (kind.any_features and n_features > 0):
        raise InputError(
            "bad-setting", f"{name} has {kind.n_features} features, not {n_features}.", "Leave n_features out."
        )
    if n_classes not in (None, kind.n_classes) and not (kind.any_classes and n_classes > 1):
        raise InputError(
            "bad-setting", f"{name} has {kind.n_classes} classes, not {n_classes}.", "Leave n_classes out."
        )
    check_dtype(dtype)
    width = n_features or kind.n_features
    if block_rows is None:
        block_rows = choose_block_rows(rows, width * np.dtype(dtype).itemsize + 4)
    check_block_rows(block_rows)
    return SyntheticSource(
        cast(SyntheticName, name), Layout(rows, block_rows), width, n_classes or kind.n_classes, seed, dtype
    )


def sample_data(
    name: str,
    rows: int,
    out: str | os.PathLike[str],
    *,
    seed: int = 0,
    n_features: int | None = None,
    n_classes: int | None = None,
    engine: EngineLike = None,
    overwrite: bool = False,
    dtype: str = "float32",
    block_rows: int | None = None,
) -> Dataset:
    """Write sample data as a dataset; of any number of rows, a block is in memory at a time."""
    source = synthetic_source(
        name, rows, seed=seed, n_features=n_features, n_classes=n_classes, dtype=dtype, block_rows=block_rows
    )
    return write_dataset(
        source,
        out,
        classes=source.classes,
        columns=source.columns,
        target_name="class",
        engine=engine,
        dtype=dtype,
        block_rows=source.layout.block_rows,
        overwrite=overwrite,
        notes=(f"Sample data {name}, seed {seed}.",),
    )
