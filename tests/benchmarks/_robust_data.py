"""Samples that are known only roughly, with their true labels and, where there is one, the source of new readings.

`N` samples, `D` features. Features are divided by the standard deviation of the training means, so that costs mean the
same in all data.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.model_selection import train_test_split

from protodask.robust.replicates import from_replicates
from protodask.robust.uncertain_rows import UncertainRows

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]
Draw = Callable[[np.random.Generator, int], Floats]

TEST_SHARE = 0.4


@dataclass(frozen=True, eq=False)
class Roughly:
    """Samples of which nobody knows the values."""

    bounds: UncertainRows
    """Support, bounds of the means, second moments."""
    exact: UncertainRows
    """The same with exact means; a claim where they are estimated."""
    judged: UncertainRows
    """What certificates are made from, for all methods alike: the best that is known, without a claim."""
    y: Labels
    """-1 or 1."""
    readings: Floats
    """Some of each sample (readings, N, D)."""
    draw: Draw | None
    """New readings (n, N, D) of the samples; None where there is no source of them."""

    def __len__(self) -> int:
        return len(self.y)

    def take(self, rows: NDArray[np.intp]) -> Roughly:
        """Some of the samples, without their source of new readings."""
        return Roughly(
            self.bounds.take(rows),
            self.exact.take(rows),
            self.judged.take(rows),
            self.y[rows],
            self.readings[:, rows],
            None,
        )

    def divided(self, scale: Floats) -> Roughly:
        """The features in other units (D,)."""
        return Roughly(
            divided(self.bounds, scale),
            divided(self.exact, scale),
            divided(self.judged, scale),
            self.y,
            self.readings / scale,
            None if self.draw is None else _divided_draw(self.draw, scale),
        )


def divided(rows: UncertainRows, scale: Floats) -> UncertainRows:
    """Uncertain rows in other units (D,)."""
    second, origin = rows.second_moment, rows.origin
    return UncertainRows(
        rows.lower / scale,
        rows.upper / scale,
        rows.mean_low / scale,
        rows.mean_high / scale,
        None if second is None else second / np.square(scale),
        None if origin is None else origin / scale,
    )


def _divided_draw(draw: Draw, scale: Floats) -> Draw:
    return lambda rng, n: draw(rng, n) / scale


def in_common_units(train: Roughly, test: Roughly) -> tuple[Roughly, Roughly]:
    """Both divided by the standard deviation of the training means."""
    scale = train.bounds.mean_midpoint.std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    return train.divided(scale), test.divided(scale)


# Noise of a known kind -----------------------------------------------------------------------------------------------

RARE = 0.05
"""Probability of the distant one of two points."""

BETA = (0.5, 2.0)

FEATURES, TRAIN, TEST = 8, 120, 300
READINGS = 5
DISTANCE = 3.4
"""Between the centres of the clouds of clean points, in their standard deviations: 4.5 % of them are out of reach."""

UNSURE = 0.2
"""The bounds of a mean are so many standard deviations apart."""


@dataclass(frozen=True)
class Noise:
    """A distribution of mean 0 and variance 1, where it ends, how to draw from it, and of what each has its size."""

    lower: float
    upper: float
    draw: Callable[[np.random.Generator, tuple[int, ...]], Floats]
    differs: Literal["places", "features", "rows", "nowhere"] = "places"


def _uniform() -> Noise:
    end = float(np.sqrt(3.0))
    return Noise(-end, end, lambda rng, shape: rng.uniform(-end, end, shape))


def _beta() -> Noise:
    a, b = BETA
    mean, deviation = a / (a + b), np.sqrt(a * b / ((a + b) ** 2 * (a + b + 1)))
    return Noise(
        -mean / deviation, (1 - mean) / deviation, lambda rng, shape: (rng.beta(a, b, shape) - mean) / deviation
    )


def _two_points() -> Noise:
    near, far = -float(np.sqrt(RARE / (1 - RARE))), float(np.sqrt((1 - RARE) / RARE))
    return Noise(near, far, lambda rng, shape: np.where(rng.random(shape) < RARE, far, near))


NOISES: dict[str, Callable[[], Noise]] = {"uniform": _uniform, "beta": _beta, "two points": _two_points}

CONDITIONS: dict[str, Callable[[], Noise]] = {
    "uniform alike": lambda: replace(_uniform(), differs="nowhere"),
    "uniform by feature": lambda: replace(_uniform(), differs="features"),
    "uniform by row": lambda: replace(_uniform(), differs="rows"),
}
"""The same noise where its size differs otherwise than from place to place."""

ALL_NOISES = {**NOISES, **CONDITIONS}


def noisy(kind: str, size: float, seed: int) -> tuple[Roughly, Roughly]:
    """Two clouds of clean points, to train on and to test with, and independent noise that differs from place to place.

    The standard deviation of the noise is `size` times a lognormal number of mean 1, for each sample and feature, for
    each of either, or `size` itself; which way it is skewed is drawn, too. Support and moments are known exactly, or
    the mean within bounds in which it lies anywhere.
    """
    rng = np.random.default_rng([seed, sorted(ALL_NOISES).index(kind), round(1000 * size)])
    clean = np.random.default_rng(seed)
    direction = clean.normal(size=FEATURES)
    direction *= DISTANCE / 2 / np.linalg.norm(direction)
    noise = ALL_NOISES[kind]()
    of_features = rng.lognormal(-0.5, 1.0, FEATURES) if noise.differs == "features" else np.ones(FEATURES)
    parts = []
    for count in (TRAIN, TEST):
        y = np.where(np.arange(count) % 2 == 0, 1, -1)
        parts.append(
            _with_noise(
                clean.normal(size=(count, FEATURES)) + y[:, None] * direction, y, noise, size * of_features, rng
            )
        )
    return in_common_units(*parts)


def _with_noise(clean: Floats, y: Labels, noise: Noise, size: Floats, rng: np.random.Generator) -> Roughly:
    shape = {"places": clean.shape, "rows": (len(clean), 1)}.get(noise.differs)
    deviation = np.broadcast_to(size * (1.0 if shape is None else rng.lognormal(-0.5, 1.0, shape)), clean.shape)
    side = rng.choice([-1.0, 1.0], clean.shape)
    ends = clean + deviation * np.stack([side * noise.lower, side * noise.upper])
    lower, upper = ends.min(axis=0), ends.max(axis=0)
    low = np.maximum(clean - UNSURE * deviation * rng.random(clean.shape), lower)
    high = np.minimum(low + UNSURE * deviation, upper)
    middle = low + (high - low) / 2
    bounds = UncertainRows(lower, upper, low, high, np.square(deviation) + np.square(clean - middle), middle)
    exact = UncertainRows(lower, upper, clean, clean, np.square(deviation), clean)

    def draw(source: np.random.Generator, n: int) -> Floats:
        drawn: Floats = clean + deviation * side * noise.draw(source, (n, *clean.shape))
        return np.clip(drawn, lower, upper)

    return Roughly(bounds, exact, exact, y, draw(rng, READINGS), draw)


# Replicates ----------------------------------------------------------------------------------------------------------

DIGITS = (3, 8)
REPLICATES = 10
PHOTONS = 60
"""What is counted of a block of pixels in full ink, where digits are dim."""

TURN, SHIFT, STRETCH = 0.15, 0.4, 0.08
"""Most radians, pixels and shares of the scale."""

CONFIDENCE = 0.95


def digit_images() -> tuple[Floats, Labels]:
    """Images (N, 8, 8) of two digits, full ink 1, and which of them each shows."""
    found = load_digits()
    chosen = np.isin(found.target, DIGITS)
    return found.images[chosen] / 16.0, np.where(found.target[chosen] == DIGITS[1], 1, -1)


def blocks(images: Floats) -> Floats:
    """The mean ink (..., 16) of the blocks of 2 by 2 pixels."""
    return np.asarray(
        images.reshape(*images.shape[:-2], 4, 2, 4, 2).mean(axis=(-3, -1)).reshape(*images.shape[:-2], 16)
    )


def dim(images: Floats) -> Draw:
    """Photons counted in each block, independently: the mean is the ink, and values lie in [0, 1]."""
    ink = blocks(images)
    return lambda rng, n: rng.binomial(PHOTONS, ink, (n, *ink.shape)) / PHOTONS


def moved(images: Floats) -> Draw:
    """The digit turned, moved and stretched: the features of a reading depend on each other, which is not assumed."""

    def draw(rng: np.random.Generator, n: int) -> Floats:
        found = np.empty((n, len(images), 16))
        for sample, image in enumerate(images):
            for reading in range(n):
                turn, stretch = TURN * rng.uniform(-1, 1), 1 + STRETCH * rng.uniform(-1, 1)
                matrix = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]]) / stretch
                offset = 3.5 - matrix @ (3.5 + SHIFT * rng.uniform(-1, 1, 2))
                found[reading, sample] = blocks(ndimage.affine_transform(image, matrix, offset, order=1))
        return found

    return draw


def digits(
    way: Callable[[Floats], Draw], seed: int, ends: tuple[float, float] | None = None, readings: int = REPLICATES
) -> tuple[Roughly, Roughly]:
    """Digits of which some readings are known, and perhaps the ends of what is possible; all else is estimated."""
    images, y = digit_images()
    parts = []
    rng = np.random.default_rng(seed)
    for rows in train_test_split(np.arange(len(y)), test_size=TEST_SHARE, random_state=seed, stratify=y):
        draw = way(images[rows])
        parts.append(_replicated(draw(rng, readings), y[rows], draw, ends))
    train, test = in_common_units(*parts)
    return train, test


def _replicated(readings: Floats, y: Labels, draw: Draw, ends: tuple[float, float] | None) -> Roughly:
    n, count, n_features = readings.shape
    lower, upper = (None, None) if ends is None else ends
    bounds, _ = from_replicates(
        readings.reshape(-1, n_features), np.tile(np.arange(count), n), CONFIDENCE, lower=lower, upper=upper
    )
    return Roughly(bounds, exact_of(bounds, readings), bounds, y, readings, draw)


def exact_of(bounds: UncertainRows, readings: Floats) -> UncertainRows:
    """The mean and the mean square of the readings taken for those of the sample, which is a claim."""
    mean = readings.mean(axis=0)
    return UncertainRows(bounds.lower, bounds.upper, mean, mean, readings.var(axis=0, ddof=1), mean)


# Summaries -----------------------------------------------------------------------------------------------------------

N_SUMMARISED = 10


def cancer(seed: int) -> tuple[Roughly, Roughly]:
    """Means of ten features of the nuclei in an image, their standard errors, and the means of the three largest.

    The random point is the mean of as many other nuclei of the same patient. What follows for sure is that it is not
    negative. All else is estimated: its mean within two standard errors of the one seen, its standard deviation as one
    of them, and that it is no further away than the three largest nuclei are, to either side.
    """
    found, target = load_breast_cancer(return_X_y=True)
    mean, error, worst = (found[:, start : start + N_SUMMARISED] for start in (0, N_SUMMARISED, 2 * N_SUMMARISED))
    room = np.maximum(worst - mean, 2 * error)
    lower, upper = np.maximum(mean - room, 0.0), mean + room
    bounds = UncertainRows(
        lower,
        upper,
        np.maximum(mean - 2 * error, lower),
        mean + 2 * error,
        np.square(error) + np.square(2 * error),
        mean,
    )
    exact = UncertainRows(lower, upper, mean, mean, np.square(error), mean)
    whole = Roughly(bounds, exact, bounds, np.where(target == 1, 1, -1), mean[None], None)
    train, test = train_test_split(np.arange(len(whole)), test_size=TEST_SHARE, random_state=seed, stratify=target)
    return in_common_units(whole.take(train), whole.take(test))


REPLICATED: dict[str, Callable[[int], tuple[Roughly, Roughly]]] = {
    "dim digits": lambda seed: digits(dim, seed),
    "limited digits": lambda seed: digits(dim, seed, (0.0, 1.0)),
    "moved digits": lambda seed: digits(moved, seed),
    "cancer": cancer,
}

READ_OFTEN: dict[str, Callable[[int], tuple[Roughly, Roughly]]] = {
    "dim 3 readings": lambda seed: digits(dim, seed, readings=3),
    "dim 30 readings": lambda seed: digits(dim, seed, readings=30),
    "limited 3 readings": lambda seed: digits(dim, seed, (0.0, 1.0), readings=3),
    "moved 3 readings": lambda seed: digits(moved, seed, readings=3),
}
"""Digits of fewer readings, or of more."""

ALL_REPLICATED = {**REPLICATED, **READ_OFTEN}


@dataclass(frozen=True)
class Coverage:
    """How often estimated bounds hold, of all features of all samples."""

    outside: float
    """New readings outside the support."""
    mean: float
    """True means, those of many readings, within their bounds."""
    second: float
    """True second moments below theirs."""


def coverage(samples: Roughly, readings: Floats) -> Coverage:
    """Against readings (n, N, D) that the bounds were not made from; what does not vary counts, too."""
    rows = samples.bounds
    means = readings.mean(axis=0)
    origin = rows.mean_midpoint if rows.origin is None else rows.origin
    # Of so many readings the mean is still off by some standard errors, which is not held against the bounds.
    slack = 3 * readings.std(axis=0) / np.sqrt(len(readings)) + 1e-12
    held = (means >= rows.mean_low - slack) & (means <= rows.mean_high + slack)
    squares = np.square(readings - origin)
    most = np.inf if rows.second_moment is None else rows.second_moment
    beyond = squares.mean(axis=0) > most + 3 * squares.std(axis=0) / np.sqrt(len(readings)) + 1e-12
    outside = (readings < rows.lower - 1e-12) | (readings > rows.upper + 1e-12)
    return Coverage(float(outside.mean()), float(held.mean()), float(1 - beyond.mean()))
