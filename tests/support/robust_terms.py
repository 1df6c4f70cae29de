"""Terms drawn for tests: features of all kinds, known exactly, roughly or not at all, means at the ends or inside."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from reference.brackets import Sample

from protodask.engine.records import Floats
from protodask.robust.terms import Terms


@dataclass(frozen=True)
class Drawn:
    terms: Terms
    y: NDArray[np.int64]


def draw(seed: int, samples: int, features: int, intersected: bool, confidence: float = 0.1) -> Drawn:
    rng = np.random.default_rng(seed)
    y = rng.choice([-1, 1], samples)
    centre = rng.normal(size=(samples, features)) + y[:, None] * rng.normal(size=features)
    half = rng.exponential(size=(samples, features)) * rng.choice([0.0, 0.1, 1.0], size=(samples, features))
    lower, upper = centre - half, centre + half
    at = np.sort(rng.random((2, samples, features)), axis=0)
    at[0] = np.where(rng.random((samples, features)) < 0.2, 0.0, at[0])
    at[1] = np.where(rng.random((samples, features)) < 0.2, 1.0, at[1])
    at[1] = np.where(rng.random((samples, features)) < 0.3, at[0], at[1])
    mean_low = np.clip(lower + at[0] * (upper - lower), lower, upper)
    mean_high = np.clip(lower + at[1] * (upper - lower), mean_low, upper)
    nu = rng.random((samples, features)) * rng.choice([0.0, 1.0, 1.0, 1.0], size=(samples, features))
    spread = np.sqrt(-2 * np.log(confidence)) * half * nu
    return Drawn(Terms(mean_low, mean_high, spread, *((lower, upper) if intersected else ())), y)


def sample_of(terms: Terms, row: int) -> Sample:
    def numbers(array: Floats) -> list[float]:
        return [float(number) for number in array[row].tolist()]

    ends = (terms.lower, terms.upper)
    lower, upper = (None if array is None else numbers(array) for array in ends)
    return Sample(numbers(terms.mean_low), numbers(terms.mean_high), numbers(terms.spread), lower, upper)
