"""Digits drawn at several resolutions, and eight ways to look at one, of very different cost.

An image is a square of `n` pixels a side. All extractors give as many numbers for every `n`, and numbers that hardly
depend on it, so that one model serves all resolutions. They are plain NumPy and SciPy, none is slowed down on purpose:
what is dear is dear because it computes more for each pixel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import fft, ndimage
from sklearn.datasets import load_digits

Floats = NDArray[np.float64]
Image = NDArray[np.float64]

RESOLUTIONS = (8, 16, 32, 64, 128)
"""Pixels a side. Every image is drawn at one of them."""

TURN, SHIFT, STRETCH, NOISE = 0.25, 0.07, 0.12, 0.06
"""Most radians, most of the side, most of the scale, and the standard deviation of a pixel where full ink is 1.

Without them the pixels alone tell nearly all digits, and no other feature would be worth anything.
"""


@dataclass(frozen=True)
class Digits:
    """Images of several resolutions, and which digit each shows."""

    images: list[Image]
    target: NDArray[np.int64]

    @property
    def sides(self) -> NDArray[np.int64]:
        return np.array([len(image) for image in self.images])


def draw_digits(seed: int, most: int | None = None) -> Digits:
    """scikit-learn's digits in random order, each turned, moved and stretched a little, at a resolution of its own."""
    found = load_digits()
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(found.target))[:most]
    images = [
        _drawn(found.images[row] / 16.0, int(side), rng)
        for row, side in zip(order, rng.choice(RESOLUTIONS, len(order)), strict=True)
    ]
    return Digits(images, found.target[order].astype(np.int64))


def _drawn(image: Floats, side: int, rng: np.random.Generator) -> Image:
    turn, stretch = rng.uniform(-TURN, TURN), 1 + rng.uniform(-STRETCH, STRETCH)
    shift = rng.uniform(-SHIFT, SHIFT, 2)
    # A pixel of the drawing at p, from -1/2 to 1/2, shows the original at M (p - shift); 0.8 leaves a margin.
    cos, sin = np.cos(turn), np.sin(turn)
    matrix = np.array([[cos, -sin], [sin, cos]]) / (0.8 * stretch) * len(image) / side
    centre = (side - 1) / 2
    offset = (len(image) - 1) / 2 - matrix @ (np.full(2, centre) + shift * side)
    drawn = ndimage.affine_transform(image, matrix, offset, output_shape=(side, side), order=1)
    drawn += NOISE * rng.standard_normal(drawn.shape)
    return np.asarray(np.clip(drawn, 0.0, 1.0))


def intensities(image: Image) -> Floats:
    """How much of the image is how dark: shares of eight levels."""
    levels = np.minimum((image * 8).astype(np.int64), 7)
    return np.bincount(levels.ravel(), minlength=8) / image.size


def projections(image: Image) -> Floats:
    """Ink by row and by column, in eight strips each."""
    return np.concatenate([image.mean(axis=axis).reshape(8, -1).mean(axis=1) for axis in (0, 1)])


def moments(image: Image) -> Floats:
    """Central moments up to the fourth order, scaled so that the size of a figure does not matter."""
    place = np.linspace(-1.0, 1.0, len(image))
    total = image.sum() + 1e-9
    row, column = image.sum(axis=1) @ place / total, image.sum(axis=0) @ place / total
    powers = np.arange(5)
    down, along = (place - row)[:, None] ** powers, (place - column)[:, None] ** powers
    central = down.T @ image @ along / total
    spread = np.sqrt(central[2, 0] + central[0, 2] + 1e-9)
    scaled = central / spread ** np.add.outer(powers, powers)
    rest = [(p, q) for p in powers for q in powers if 2 <= p + q <= 4]
    return np.array([total / image.size, row, column, spread, *(scaled[pair] for pair in rest)])


def pixels(image: Image) -> Floats:
    """The image on a grid of 8 x 8, smoothed before that as resampling asks for."""
    step = len(image) // 8
    smooth = ndimage.gaussian_filter(image, 0.4 * step) if step > 1 else image
    return np.asarray(smooth.reshape(8, step, 8, step).mean(axis=(1, 3))).ravel()


def spectrum(image: Image) -> Floats:
    """Magnitudes of the low frequencies, which do not depend on where the figure is."""
    found = np.abs(fft.rfft2(image, norm="forward"))
    low = np.concatenate([found[:4, :4], found[-3:, :4]])
    return np.log(low.ravel() + 1e-3)


def patterns(image: Image) -> Floats:
    """Local binary patterns: which neighbours of a pixel are darker, by kind of pattern in each quarter."""
    smooth = ndimage.gaussian_filter(image, max(0.6, len(image) / 32))
    inner = smooth[1:-1, 1:-1] + 0.02
    side = len(image)
    code = np.zeros(inner.shape, dtype=np.int64)
    for bit, (down, along) in enumerate(((0, 0), (0, 1), (0, 2), (1, 2), (2, 2), (2, 1), (2, 0), (1, 0))):
        code |= (smooth[down : down + side - 2, along : along + side - 2] > inner).astype(np.int64) << bit
    quarter = np.arange(side - 2) * 2 // (side - 2)
    kinds = pattern_kinds()
    cells = (2 * quarter[:, None] + quarter) * KINDS + kinds[code]
    return np.bincount(cells.ravel(), minlength=4 * KINDS) / code.size


KINDS = 18
"""Patterns whose darker neighbours lie together, by how many and where in steps of a half turn; and all others."""


@lru_cache(maxsize=1)
def pattern_kinds() -> NDArray[np.int64]:
    """The kind of each of the 256 patterns: none, all, runs of 1 to 7 starting in one half or the other, and others."""
    kinds = np.full(256, KINDS - 1, dtype=np.int64)
    kinds[0], kinds[255] = 0, 1
    for length in range(1, 8):
        for begin in range(8):
            code = sum(1 << (begin + step) % 8 for step in range(length))
            kinds[code] = 2 + 2 * (length - 1) + begin // 4
    return kinds


def gradients(image: Image) -> Floats:
    """Histograms of oriented gradients: in each of 4 x 4 cells how steep the image is in which of eight directions."""
    side = len(image)
    smooth = ndimage.gaussian_filter(image, max(0.5, side / 32))
    down, along = np.gradient(smooth)
    steep = np.hypot(down, along)
    direction = np.minimum(((np.arctan2(down, along) + np.pi) * (8 / (2 * np.pi))).astype(np.int64), 7)
    cell = np.arange(side) * 4 // side
    bins = (4 * cell[:, None] + cell) * 8 + direction
    found = np.bincount(bins.ravel(), weights=steep.ravel(), minlength=128).reshape(16, 8)
    return np.asarray(found / (np.linalg.norm(found) + 1e-9)).ravel()


SCALES, ANGLES = (1 / 16, 1 / 9), 6


def filters(image: Image) -> Floats:
    """Answers to Gabor filters of two scales and six directions, in each of 4 x 4 cells.

    The filters grow with the image, and each is as wide as a stroke of the pen: this is what costs.
    """
    side = len(image)
    spectrum_of_image = fft.rfft2(image, (2 * side, 2 * side))
    found = []
    for transformed in _gabor(side):
        answer = fft.irfft2(spectrum_of_image * transformed, (2 * side, 2 * side))
        answer = np.abs(answer[side // 2 : side // 2 + side, side // 2 : side // 2 + side])
        found.append(answer.reshape(4, side // 4, 4, side // 4).mean(axis=(1, 3)).ravel())
    return np.concatenate(found)


@lru_cache(maxsize=len(RESOLUTIONS))
def _gabor(side: int) -> tuple[NDArray[np.complex128], ...]:
    """The filters of a resolution, transformed once for all images of it."""
    place = np.arange(side) - side // 2
    made = []
    for scale in SCALES:
        width = max(scale * side, 0.8)
        for angle in np.arange(ANGLES) * np.pi / ANGLES:
            across = place[:, None] * np.cos(angle) + place * np.sin(angle)
            envelope = np.exp(-0.5 * (place[:, None] ** 2 + place**2) / width**2)
            wave = np.cos(np.pi * across / (1.5 * width)) * envelope
            wave -= envelope * wave.sum() / envelope.sum()
            wave /= np.abs(wave).sum()
            made.append(fft.rfft2(wave, (2 * side, 2 * side)))
    return tuple(made)


EXTRACTORS: dict[str, Callable[[Image], Floats]] = {
    "intensities": intensities,
    "projections": projections,
    "moments": moments,
    "pixels": pixels,
    "spectrum": spectrum,
    "patterns": patterns,
    "gradients": gradients,
    "filters": filters,
}
