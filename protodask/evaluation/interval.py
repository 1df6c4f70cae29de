"""An estimate and the interval that goes with it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import TypeGuard

import numpy as np

from protodask.errors import InputError

CONFIDENCE = 0.95
"""Of intervals of which nobody says otherwise."""


@dataclass(frozen=True)
class Interval:
    """An estimate between the ends of its confidence interval, all in the unit of the estimate; NaN is not known."""

    value: float
    low: float
    high: float


UNKNOWN = Interval(math.nan, math.nan, math.nan)


def is_real(value: object) -> TypeGuard[float]:
    """Whether a value is a number of Python or NumPy, which True and False are not."""
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def is_share(value: object) -> bool:
    """Whether a value is a number between 0 and 1, both excluded."""
    return isinstance(value, float | np.floating) and bool(0 < value < 1)


def check_confidence(confidence: float) -> float:
    """The confidence, if it is a probability between 0 and 1."""
    if not is_share(confidence):
        raise InputError(
            "bad-setting", f"confidence is {confidence!r}.", "Give a probability between 0 and 1, such as 0.95."
        )
    return confidence


def normal_quantile(confidence: float) -> float:
    """`z` of the two-sided interval `value -+ z * standard error` that a normal estimate has with this confidence."""
    return NormalDist().inv_cdf(0.5 + check_confidence(confidence) / 2)
