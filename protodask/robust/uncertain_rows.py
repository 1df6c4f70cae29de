"""Samples whose features are known only in part: a support, bounds on the mean, a bound on the second moment.

Feature `j` of a sample is a random number `X` with `l <= X <= u`, `m- <= E X <= m+` and `E X^2 <= S2`; the features of
a sample are independent of each other, and nothing else is known of them. `N` samples, `D` features.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from protodask.errors import InputError

Floats = NDArray[np.float64]

ROUNDING = 8
"""Statements may contradict each other by so many units of the last place of the coarsest type they were given in.

A mean and a second moment are sums, squared and rounded on their own: of a feature that is known exactly, the square of
the mean can exceed the second moment by a few units.
"""


@dataclass(frozen=True, eq=False, init=False)
class UncertainRows:
    """What is known of `N` samples of `D` features, in the units of the features, each array (N, D).

    Without bounds of the means they are the support, without a second moment it is what the support implies,
    `E X^2 <= (l + u) E X - l u`. A second moment rules out means beyond `abs(m) = sqrt(S2)`, so that `mean_low` and
    `mean_high` may lie closer together here than they were given. If no mean is left, and wherever else the statements
    contradict each other, the error names sample and feature; a contradiction that rounding explains is mended to the
    side that claims less.

    A second moment that is small next to the square of the mean carries few digits of the variance: features whose
    means are large next to their spread should be centred first.
    """

    lower: Floats
    upper: Floats
    mean_low: Floats
    mean_high: Floats
    second_moment: Floats | None
    first_row: int
    """The number of the first sample, for errors."""
    feature_names: tuple[str, ...] | None
    """For errors, too."""

    def __init__(
        self,
        lower: ArrayLike,
        upper: ArrayLike,
        mean_low: ArrayLike | None = None,
        mean_high: ArrayLike | None = None,
        second_moment: ArrayLike | None = None,
        *,
        first_row: int = 0,
        feature_names: tuple[str, ...] | None = None,
    ) -> None:
        given = {"lower": lower, "upper": upper, "mean_low": mean_low, "mean_high": mean_high}
        arrays = {name: np.asarray(value) for name, value in given.items() if value is not None}
        if second_moment is not None:
            arrays["second_moment"] = np.asarray(second_moment)
        rounding = ROUNDING * max(_unit(values) for values in arrays.values())
        floats = {name: _floats(name, values) for name, values in arrays.items()}
        low, high = floats["lower"], floats["upper"]
        if feature_names is not None and len(feature_names) != low.shape[1]:
            raise InputError(
                f"There are {len(feature_names)} feature names for {low.shape[1]} features.", "Give a name to each."
            )
        for name, value in (
            ("first_row", first_row),
            ("feature_names", feature_names),
            ("lower", low),
            ("upper", high),
        ):
            object.__setattr__(self, name, value)
        for name, values in floats.items():
            if values.shape != low.shape:
                raise InputError(
                    f"lower is of shape {low.shape}, {name} is of shape {values.shape}.",
                    "Give a number for each sample and feature in each of them.",
                )
            self._refuse(~np.isfinite(values), f"{name} is not a finite number", "Replace or leave out such samples.")
        self._refuse(low > high, "lower is above upper", "Give the least and the largest possible value.")
        mean_low_, mean_high_ = floats.get("mean_low", low), floats.get("mean_high", high)
        self._refuse(
            mean_low_ > mean_high_, "mean_low is above mean_high", "Give a lower and an upper bound of the mean."
        )
        size = np.maximum(np.abs(low), np.abs(high))
        if "mean_low" in floats:
            self._refuse(
                (mean_low_ < low - rounding * size) | (mean_low_ > high + rounding * size),
                "mean_low lies outside the support",
                "A mean lies between the least and the largest possible value: mend the bounds.",
            )
            mean_low_ = np.clip(mean_low_, low, high)
        if "mean_high" in floats:
            self._refuse(
                (mean_high_ < low - rounding * size) | (mean_high_ > high + rounding * size),
                "mean_high lies outside the support",
                "A mean lies between the least and the largest possible value: mend the bounds.",
            )
            mean_high_ = np.clip(mean_high_, low, high)
        second = floats.get("second_moment")
        if second is not None:
            least = np.square(np.clip(0.0, mean_low_, mean_high_))
            self._refuse(
                second < least * (1 - 2 * rounding),
                "second_moment is below the square of every mean that the bounds allow",
                "The mean of the squares is never below the square of the mean: mend either.",
            )
            second = np.maximum(second, least)
            largest_mean = np.sqrt(second) * (1 + rounding)
            mean_low_, mean_high_ = np.maximum(mean_low_, -largest_mean), np.minimum(mean_high_, largest_mean)
        object.__setattr__(self, "mean_low", mean_low_)
        object.__setattr__(self, "mean_high", mean_high_)
        object.__setattr__(self, "second_moment", second)

    @classmethod
    def point(cls, values: ArrayLike) -> UncertainRows:
        """Samples that are known exactly."""
        return cls(values, values)

    def __len__(self) -> int:
        return len(self.lower)

    @property
    def n_features(self) -> int:
        return int(self.lower.shape[1])

    @property
    def mean_midpoint(self) -> Floats:
        """The middle of the bounds of the mean (N, D): what stands for the sample where one point must."""
        return self.mean_low + (self.mean_high - self.mean_low) / 2

    @property
    def center(self) -> Floats:
        """`c = (l + u) / 2` (N, D)."""
        return self.lower + (self.upper - self.lower) / 2

    @property
    def half_width(self) -> Floats:
        """`s = (u - l) / 2` (N, D), 0 where the feature is known exactly."""
        return (self.upper - self.lower) / 2

    def take(self, rows: slice | NDArray[np.intp] | NDArray[np.bool_]) -> UncertainRows:
        """Some of the samples; errors then count from the first of these."""
        return self._with(
            lower=self.lower[rows],
            upper=self.upper[rows],
            mean_low=self.mean_low[rows],
            mean_high=self.mean_high[rows],
            second_moment=None if self.second_moment is None else self.second_moment[rows],
        )

    def exact_means(self) -> UncertainRows:
        """The same, taking the middle of the bounds of each mean for the mean itself.

        This claims more than is known where the bounds differ. Second moments below its square are raised to it.
        """
        mean = self.mean_midpoint
        second = None if self.second_moment is None else np.maximum(self.second_moment, np.square(mean))
        return self._with(mean_low=mean, mean_high=mean, second_moment=second)

    def without_second_moment(self) -> UncertainRows:
        """The same, with no more known of the second moments than the support implies."""
        return self._with(second_moment=None)

    def normalised(self) -> tuple[Floats, Floats, Floats]:
        """`(mhat-, mhat+, sighat)`: the moments of `(X - c) / s`, each (N, D); 0 where `s` is 0.

        `mhat = (m - c) / s`, and

            sighat^2 = min(1, max over m in [m-, m+] of (S2 - 2 c m + c^2) / s^2),

        never below the squares of the `mhat`. Values lie in [-1, 1] and [0, 1].
        """
        center, half = self.center, self.half_width
        known = half == 0
        scale = np.where(known, 1.0, half)
        mean_low, mean_high = self.mean_low, self.mean_high
        low = np.where(known, 0.0, np.clip((mean_low - center) / scale, -1.0, 1.0))
        high = np.where(known, 0.0, np.clip((mean_high - center) / scale, -1.0, 1.0))
        if self.second_moment is None:
            return low, high, np.where(known, 0.0, 1.0)
        # (S2 - 2 c m + c^2) is E (X - c)^2; it is linear in m, so that its maximum is at an end.
        largest = np.maximum(
            (self.second_moment - np.square(mean_low)) + np.square(mean_low - center),
            (self.second_moment - np.square(mean_high)) + np.square(mean_high - center),
        )
        with np.errstate(over="ignore"):
            squared = np.where(known, 0.0, np.minimum(1.0, largest / scale / scale))
        squared = np.maximum(squared, np.maximum(np.square(low), np.square(high)))
        return low, high, np.sqrt(squared)

    def name(self, row: int, feature: int) -> str:
        """How errors call a feature of a sample."""
        called = str(feature) if self.feature_names is None else self.feature_names[feature]
        return f"sample {self.first_row + row}, feature {called}"

    def _refuse(self, wrong: NDArray[np.bool_], what: str, remedy: str) -> None:
        if wrong.any():
            row, feature = np.argwhere(wrong)[0]
            more = int(wrong.sum()) - 1
            besides = f", and in {more:,} more places" if more else ""
            raise InputError(f"In {self.name(int(row), int(feature))}, {what}{besides}.", remedy)

    def _with(self, **changed: Floats | None) -> UncertainRows:
        # What was checked once is not checked again.
        new = object.__new__(UncertainRows)
        new.__dict__.update(self.__dict__ | changed)
        return new


def _unit(values: NDArray[Any]) -> float:
    return float(np.finfo(values.dtype if values.dtype.kind == "f" else np.float64).eps)


def _floats(name: str, values: NDArray[Any]) -> Floats:
    if values.ndim != 2:
        raise InputError(
            f"{name} has {values.ndim} dimensions.", "Give a table: a row for each sample, a column for each feature."
        )
    if values.dtype.kind not in "fiub":
        raise InputError(f"{name} is of type {values.dtype}.", "Give numbers.")
    return np.asarray(values, dtype=np.float64)
