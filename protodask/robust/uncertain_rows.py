"""Samples whose features are known only in part: a support, bounds on the mean, a bound on the second moment.

Feature `j` of a sample is a random number `X` with `l <= X <= u`, `m- <= E X <= m+` and `E (X - o)^2 <= S2` about an
origin `o`, 0 unless given; the features of a sample are independent of each other, and nothing else is known of them.
`N` samples, `D` features.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from protodask.data.arrays.values import unmasked
from protodask.engine.records import Floats
from protodask.errors import InputError, count, refusing

NEAREST = 1e-10
"""What lies closer to an end of the support, in half widths of it, has too few digits left of its distance."""

UPWARD = 1 + 4 * float(np.finfo(np.float64).eps)

ROUNDING = 8
"""Statements may contradict each other by so many units of the last place of the coarsest type they were given in.

A mean and a second moment are sums, squared and rounded on their own: of a feature that is known exactly, the square of
the mean can exceed the second moment by a few units. As much may have been lost from a variance, which is their
difference: far from the origin that is all of it.
"""

BOUNDS = ("lower", "upper", "mean_low", "mean_high", "second_moment", "origin")
"""The arrays of uncertain rows; the last two need not be there."""

LARGEST = 1e150
"""Larger numbers have squares that are not finite, and their reciprocals have squares that are 0."""


@dataclass(frozen=True, eq=False, init=False)
class UncertainRows:
    """What is known of `N` samples of `D` features, in the units of the features, each array (N, D).

    Without bounds of the means they are the support. Without a second moment, or where it is infinite, it is what the
    support implies, `E (X - l) (u - X) >= 0`. A second moment rules out means with `(m - o)^2 > S2`, so that `mean_low`
    and `mean_high` may lie closer together here than they were given. If no mean is left, and wherever else the
    statements contradict each other, the error names sample and feature; a contradiction that rounding explains is
    mended to the side that claims less.

    The `origin` (N, D), (D,) or one number is what the second moment is about. A second moment about a point far from
    the mean says little of the variance: if the mean is not exact, it allows for the lesser means; and digits are lost,
    which the variances allow for. The middle of the means, or of the support, is a better origin than 0.
    """

    lower: Floats
    upper: Floats
    mean_low: Floats
    mean_high: Floats
    second_moment: Floats | None
    origin: Floats | None
    """None for 0."""
    first_row: int
    """The number of the first sample, for errors."""
    feature_names: tuple[str, ...] | None
    """For errors, too."""
    rounding: float
    """What each of the numbers may be off by, relative to it."""

    def __init__(
        self,
        lower: ArrayLike,
        upper: ArrayLike,
        mean_low: ArrayLike | None = None,
        mean_high: ArrayLike | None = None,
        second_moment: ArrayLike | None = None,
        origin: ArrayLike | None = None,
        *,
        first_row: int = 0,
        feature_names: tuple[str, ...] | None = None,
        rounding: float | None = None,
    ) -> None:
        """`rounding` is that of the coarsest type given, unless the numbers were of another type before."""
        further = {"mean_low": mean_low, "mean_high": mean_high, "second_moment": second_moment}
        tables = {"lower": lower, "upper": upper} | {
            name: given for name, given in further.items() if given is not None
        }
        _check_order(tables)
        arrays = {name: _numbers(name, given) for name, given in tables.items()}
        shape = arrays["lower"].shape
        if origin is not None:
            if second_moment is None:
                raise InputError(
                    "setting-missing", "There is an origin without a second moment.", "Give the second moment about it."
                )
            arrays["origin"] = _origin(origin, shape)
        if rounding is None:
            rounding = ROUNDING * max(_unit(values) for values in arrays.values())
        floats = {name: np.asarray(values, dtype=np.float64) for name, values in arrays.items()}
        names = None if feature_names is None else tuple(feature_names)
        self._set(first_row=int(first_row), feature_names=names, rounding=float(rounding))
        if self.feature_names is not None and shape[1] != len(self.feature_names):
            raise InputError(
                "wrong-shape",
                f"{count(len(self.feature_names), 'feature name is', 'feature names are')} given for "
                f"{count(shape[1], 'feature')}.",
                "Give a name to each.",
            )
        for name, values in floats.items():
            self._check_numbers("the value" if upper is lower else name, values, shape)
        low, high = floats["lower"], floats["upper"]
        self._refuse(low > high, "lower is above upper", "Give the least and the largest possible value.")
        self._refuse(
            (low < high) & (high - low < 1 / LARGEST),
            f"the support is narrower than {1 / LARGEST:g}, but not a point",
            "Give the feature in a smaller unit.",
        )
        mean_low_, mean_high_ = floats.get("mean_low", low), floats.get("mean_high", high)
        self._refuse(mean_low_ > mean_high_, "mean_low is above mean_high", "Give bounds of the mean in this order.")
        slack = rounding * np.maximum(np.abs(low), np.abs(high))
        self._refuse(
            (mean_high_ < low - slack) | (mean_low_ > high + slack),
            "no mean within its bounds lies in the support",
            "A mean lies between the least and the largest possible value: mend the bounds.",
        )
        if "mean_low" in floats:
            mean_low_ = np.clip(mean_low_, low, high)
        if "mean_high" in floats:
            mean_high_ = np.clip(mean_high_, low, high)
        second, zero = floats.get("second_moment"), floats.get("origin")
        if second is not None:
            about = np.zeros(()) if zero is None else zero
            least = np.square(np.clip(about, mean_low_, mean_high_) - about)
            # The mean and the origin are rounded as well as the second moment.
            size = least if zero is None else np.square(np.sqrt(least) + np.abs(zero))
            self._refuse(
                least - second > 2 * rounding * size,
                "second_moment is below the square of every mean that the bounds allow",
                "The mean of the squares is never below the square of the mean: mend either.",
            )
            second = np.maximum(second, least)
            largest = np.sqrt(second) * (1 + rounding)
            mean_low_ = np.clip(about - largest, mean_low_, mean_high_)
            mean_high_ = np.clip(about + largest, mean_low_, mean_high_)
        self._set(lower=low, upper=high, mean_low=mean_low_, mean_high=mean_high_, second_moment=second, origin=zero)

    @classmethod
    def point(cls, values: ArrayLike) -> UncertainRows:
        """Samples that are known exactly."""
        table = _numbers("The table", values)
        return cls(table, table)

    def __len__(self) -> int:
        return len(self.lower)

    def __getitem__(self, key: Any) -> UncertainRows:
        """Some of the samples, as `take` gives them: scikit-learn asks so for those of a fold, and of all features."""
        rows = key[0] if isinstance(key, tuple) and len(key) == 2 and key[1] is Ellipsis else key
        if isinstance(rows, slice):
            return self.take(rows)
        wanted: NDArray[Any] = np.zeros(()) if isinstance(rows, tuple) else np.asarray(rows)
        if wanted.ndim != 1 or wanted.dtype.kind not in "iub":
            raise InputError(
                "wrong-type",
                f"{key!r} is no choice of samples.",
                "Give a slice, or numbers or truth values of samples.",
            )
        return self.take(wanted)

    @property
    def shape(self) -> tuple[int, int]:
        """`(N, D)`."""
        return len(self), self.n_features

    @property
    def n_features(self) -> int:
        return int(self.lower.shape[1])

    @property
    def mean_midpoint(self) -> Floats:
        """The middle of the bounds of the mean (N, D): what stands for the sample where one point must."""
        return np.clip(self.mean_low / 2 + self.mean_high / 2, self.mean_low, self.mean_high)

    @property
    def center(self) -> Floats:
        """`c = (l + u) / 2` (N, D)."""
        return np.clip(self.lower / 2 + self.upper / 2, self.lower, self.upper)

    @property
    def half_width(self) -> Floats:
        """`s = (u - l) / 2` (N, D), 0 where the feature is known exactly."""
        return self.upper / 2 - self.lower / 2

    def take(self, rows: slice | NDArray[np.intp] | NDArray[np.bool_]) -> UncertainRows:
        """Some of the samples; errors then count from the first of these."""
        arrays = {name: getattr(self, name) for name in BOUNDS}
        return self._with(**{name: None if array is None else array[rows] for name, array in arrays.items()})

    def exact_means(self) -> UncertainRows:
        """The same, taking the middle of the bounds of each mean for the mean itself: a claim, where they differ."""
        mean = self.mean_midpoint
        return self._with(mean_low=mean, mean_high=mean)

    def without_second_moment(self) -> UncertainRows:
        """The same, with no more known of the second moments than the support implies."""
        return self._with(second_moment=None, origin=None)

    @property
    def largest_second_moment(self) -> Floats | None:
        """The second moment about the origin, and what rounding may have taken from a variance made with it, (N, D).

        It is off by itself; and a mean that is off by `d`, at most its rounding, changes `(m - o)^2` by `2 d |m - o|`.
        """
        if self.second_moment is None:
            return None
        origin = np.zeros(()) if self.origin is None else self.origin
        size = np.maximum(np.abs(self.mean_low), np.abs(self.mean_high))
        apart = np.maximum(np.abs(self.mean_low - origin), np.abs(self.mean_high - origin))
        return np.asarray(self.second_moment + self.rounding * (self.second_moment + 2 * size * apart))

    def largest_variance(self, mean: Floats) -> Floats:
        """The largest variance (N, D) at a mean `m`, `min((u - m) (m - l), S2 - (m - o)^2)`; below 0 if there is none.

        Not by way of `E (X - c)^2`: where the support is far wider than the deviation, nothing of that would be left.
        """
        natural = (self.upper - mean) * (mean - self.lower)
        second = self.largest_second_moment
        if second is None:
            return natural
        return np.minimum(natural, second - np.square(mean - (0.0 if self.origin is None else self.origin)))

    def normalised(self) -> tuple[Floats, Floats, Floats]:
        """`(mhat-, mhat+, sighat)`: the moments of `(X - c) / s`, each (N, D); 0 where `s` is 0.

        `mhat = (m - c) / s`, and

            sighat^2 = min(1, max over m in [m-, m+] of (S2 - 2 c m + c^2) / s^2)     for S2 about 0,

        never below the squares of the `mhat`. Values lie in [-1, 1] and [0, 1]. Next to an end of the support `mhat` is
        `NEAREST` away from it, and `sighat` is rounded up: a distance, or a variance, that is there stays.
        """
        known = self.half_width == 0
        scale = np.where(known, 1.0, self.half_width)
        low, high = (np.where(known, 0.0, self._scaled(mean, scale)) for mean in (self.mean_low, self.mean_high))
        if self.second_moment is None:
            return low, high, np.where(known, 0.0, 1.0)
        # `E (X - c)^2` is linear in m, so that the maximum is at an end.
        variances = [self.largest_variance(mean) for mean in (self.mean_low, self.mean_high)]
        certain = (self.mean_low == self.mean_high) & (variances[0] <= 0)
        squares = (
            np.square(mean) + np.minimum((1 - mean) * (1 + mean), found / scale / scale)
            for mean, found in zip((low, high), variances, strict=True)
        )
        deviation = np.sqrt(np.maximum(np.maximum(*squares), 0.0)) * np.where(certain, 1.0, UPWARD)
        largest = np.maximum(np.minimum(deviation, 1.0), np.maximum(np.abs(low), np.abs(high)))
        return low, high, np.where(known, 0.0, largest)

    def _scaled(self, mean: Floats, scale: Floats) -> Floats:
        least = np.where(mean > self.lower, NEAREST - 1, -1.0)
        return np.clip((mean - self.center) / scale, least, np.where(mean < self.upper, 1 - NEAREST, 1.0))

    def name(self, row: int, feature: int) -> str:
        """How errors call a feature of a sample."""
        called = str(feature) if self.feature_names is None else self.feature_names[feature]
        return f"sample {self.first_row + row}, feature {called}"

    def _check_numbers(self, name: str, values: Floats, shape: tuple[int, ...]) -> None:
        if values.shape != shape:
            raise InputError(
                "wrong-shape",
                f"lower is of shape {shape}, {name} is of shape {values.shape}.",
                "Give a number for each sample and feature in each of them.",
            )
        if name == "second_moment":
            self._refuse(~(values >= 0), f"{name} is not a number of 0 or more", "Replace it, or leave out the sample.")
        else:
            self._refuse(
                ~(np.abs(values) < LARGEST),
                f"{name} is not a finite number below {LARGEST:g}",
                "Replace it, or leave out the sample.",
            )

    def _refuse(self, wrong: NDArray[np.bool_], what: str, remedy: str) -> None:
        if wrong.any():
            row, feature = (int(place) for place in np.argwhere(wrong)[0])
            more = int(wrong.sum()) - 1
            besides = f", and in {more:,} more places" if more else ""
            raise InputError("bad-value", f"In {self.name(row, feature)}, {what}{besides}.", remedy)

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _with(self, **changed: Floats | None) -> UncertainRows:
        # What was checked once is not checked again.
        new = object.__new__(UncertainRows)
        new._set(**(self.__dict__ | changed))
        return new


def _unit(values: NDArray[Any]) -> float:
    return float(np.finfo(values.dtype if values.dtype.kind == "f" else np.float64).eps)


def _check_order(tables: Mapping[str, ArrayLike]) -> None:
    """Refuse tables of which one has the columns of another in another order: they are taken by position."""
    columns = {name: list(getattr(table, "columns", ())) for name, table in tables.items() if hasattr(table, "dtypes")}
    for (first, known), (name, own) in combinations(columns.items(), 2):
        if own != known and sorted(map(repr, own)) == sorted(map(repr, known)):
            raise InputError(
                "columns-differ",
                f"The columns of {name} are those of {first} in another order: {own} and {known}.",
                f"Give them in the same order, as {name}[list({first}.columns)].",
            )


def _numbers(name: str, values: ArrayLike) -> NDArray[Any]:
    seen = f"The rows of {name.lower()} differ in length"
    with refusing(ValueError, "wrong-shape", seen, "Give a number for each feature."):
        array = np.asarray(unmasked(values))
    # Frames of columns of several types give objects. What is missing among them is no finite number.
    if array.dtype.kind == "O" and all(value is None or isinstance(value, Real | np.bool_) for value in array.flat):
        with refusing(OverflowError, "bad-value", f"{name} has numbers beyond floats", "Give them in a larger unit."):
            array = array.astype(np.float64)
    if array.dtype.kind not in "fiub":
        raise InputError("wrong-type", f"{name} is of type {array.dtype}.", "Give numbers.")
    if array.ndim != 2 or not array.shape[1]:
        raise InputError(
            "wrong-shape",
            f"{name} is of shape {array.shape}.",
            "Give a table: a row for each sample, a column for each feature.",
        )
    return array


def _origin(origin: ArrayLike, shape: tuple[int, ...]) -> NDArray[Any]:
    array = np.asarray(unmasked(origin))
    if array.dtype.kind not in "fiub":
        raise InputError("wrong-type", f"The origin is of type {array.dtype}.", "Give numbers.")
    seen = f"The origin is of shape {array.shape}, the samples are of shape {shape}"
    remedy = "Give one number, one for each feature, or one for each sample and feature."
    with refusing(ValueError, "wrong-shape", seen, remedy):
        return np.broadcast_to(array, shape)
