"""Penalties to try: drawn at random, or on a grid."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from protodask.data.arrays.keyed import stream_key
from protodask.errors import InputError
from protodask.prototypes.config import FitConfig

_STREAM = 0x73706163
"""What tells the draws here from others of the same seed."""


@dataclass(frozen=True)
class Setting:
    """The penalties of a fit."""

    lambda_v: float
    lambda_w: float

    def __post_init__(self) -> None:
        FitConfig(lambda_v=self.lambda_v, lambda_w=self.lambda_w)  # refuses what no fit can have
        # A whole number is the same setting, and has the same name.
        object.__setattr__(self, "lambda_v", float(self.lambda_v))
        object.__setattr__(self, "lambda_w", float(self.lambda_w))

    def of(self, config: FitConfig) -> FitConfig:
        """`config` with these penalties."""
        return replace(config, lambda_v=self.lambda_v, lambda_w=self.lambda_w)


@dataclass(frozen=True)
class Space:
    """Ranges of the penalties, each from its smallest to its largest value; two equal ends fix one."""

    lambda_v: tuple[float, float] = (1e-4, 1e-1)
    lambda_w: tuple[float, float] = (1e-9, 1e-4)

    def __post_init__(self) -> None:
        for entry in fields(self):
            low, high = _check_range(entry.name, getattr(self, entry.name))
            object.__setattr__(self, entry.name, (float(low), float(high)))

    def fixes(self, name: Literal["lambda_v", "lambda_w"]) -> bool:
        """Whether there is one value only of this penalty."""
        low, high = getattr(self, name)
        return bool(low == high)

    def draw(self, n_settings: int, seed: int = 0) -> tuple[Setting, ...]:
        """So many settings, log-uniform over both ranges.

        They are points of a Sobol sequence, shifted digit by digit by random bits of the seed. Of independent draws, or
        of a Latin hypercube, a few leave large parts of the square empty; of the first `2^m` points here, each of the
        `2^m` equal boxes of any shape `2^-i x 2^(i-m)` holds exactly one. And unlike a hypercube the sequence goes on:
        more settings are the same ones and further ones, so that a longer search can build on a shorter one.
        """
        shares = _shifted_points(n_settings, seed)
        return _settings(_between(self.lambda_v, shares[:, 0]), _between(self.lambda_w, shares[:, 1]))

    def grid(self, n_lambda_v: int, n_lambda_w: int) -> tuple[Setting, ...]:
        """All pairs of so many values of each penalty, from end to end in equal ratios; one value is the middle."""
        first = _between(self.lambda_v, _steps(n_lambda_v))
        second = _between(self.lambda_w, _steps(n_lambda_w))
        return _settings(np.repeat(first, n_lambda_w), np.tile(second, n_lambda_v))


def _check_range(name: str, limits: object) -> tuple[Any, Any]:
    remedy = "Give the smallest and the largest value to try, both above zero, or one value twice."
    if not isinstance(limits, (tuple, list)) or len(limits) != 2:
        raise InputError("bad-setting", f"The range of `{name}` is {limits!r}.", remedy)
    low, high = limits
    FitConfig(**{name: low})
    FitConfig(**{name: high})
    if low > high or (low == 0 and high > 0):
        raise InputError("bad-setting", f"The range of `{name}` is from {low} to {high}.", remedy)
    return low, high


def _settings(lambda_v: NDArray[np.float64], lambda_w: NDArray[np.float64]) -> tuple[Setting, ...]:
    return tuple(Setting(v, w) for v, w in zip(lambda_v.tolist(), lambda_w.tolist(), strict=True))


def _steps(number: int) -> NDArray[np.float64]:
    return np.linspace(0.0, 1.0, number) if number > 1 else np.array([0.5])


def _between(limits: tuple[float, float], shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """`low (high / low)^share`, the ends exactly."""
    low, high = limits
    if low == high:
        return np.full(len(shares), low)
    values = np.exp(math.log(low) + shares * (math.log(high) - math.log(low)))
    values[shares == 0], values[shares == 1] = low, high
    return np.clip(values, low, high)


def _shifted_points(number: int, seed: int) -> NDArray[np.float64]:
    """The first points of the Sobol sequence in the unit square, each bit of them flipped or not as the seed says."""
    from scipy.stats import qmc  # half a second

    # SciPy would scramble the points itself, with other bits in other versions of NumPy or SciPy.
    points = qmc.Sobol(2, scramble=False, bits=32).random_base2((number - 1).bit_length())[:number]
    shift = stream_key(seed, _STREAM, np.arange(2)) >> np.uint64(32)
    whole = np.asarray(points * 2.0**32).astype(np.uint64) ^ shift
    return (whole + 0.5) / 2.0**32
