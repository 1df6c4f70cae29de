"""The block kernel: rows against prototypes, and the scores that come of it, tile by tile.

Letters: `T` rows of a tile, `J` prototypes, `D` features with positive weight, `K` classes, `C` panels.

With `z` the standardised rows and `s` the standardised prototypes, one product yields the exponent of the kernel,

    -1/2 sum_d (v_d (z_d - s_d))^2 = [v z, |v z|^2, 1] . [v s, -1/2, -|v s|^2 / 2],

to base 2 or e, whichever is faster here (see `exponential`): the factor goes into both operands. Nothing larger than
`T x J` is built. Sums of tiles are kept in float64 whatever the precision of the kernel; the kernel itself is float32
or float64 as asked for, and float64 where float32 would not do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.introspect import opt_func_info
from numpy.typing import NDArray

from protodask.engine.records import Floats
from protodask.prototypes.panels import Panels, arrange
from protodask.prototypes.tiles import Array, Precision, TileBuffers, alias_padding, kernel_tile, tile_rows

FLOAT32_REACH = 177.0
"""Largest `|v s|^2` of a prototype at which float32 is precise enough. The terms of the exponent, and those of the
gradient by `v`, grow to this size and cancel to small numbers, with an error of about this many times 2^-24. Weights
that large come with few features, where float64 costs least."""

STEEPEST = 1e6
"""Largest weight of a feature at which the squares of what is farthest stay finite in float32."""

LEAST_NEAR = 60
"""Prototypes in float32 that pay for what a `ScoreKernel` does once more for each row if others are apart."""

FARTHEST = 1e12
"""Standard deviations from the mean at which a feature is cut off."""


class Line(NamedTuple):
    """What the values of a feature are turned into: linear between knots, constant beyond them (Q,)."""

    values: Floats
    """Ascending."""
    scores: Floats
    is_level: bool = False
    """Whether these are levels; else they are normal scores."""


@dataclass(frozen=True)
class Knots:
    """Normal scores and levels of features, linear between knots and constant beyond them (D, Q).

    A feature of fewer knots repeats its last one; of one that is as it is, all are NaN.
    """

    values: Floats
    scores: Floats
    levels: NDArray[np.bool_] | None = None
    """Which are levels (D,); None where none are."""

    @classmethod
    def of(cls, lines: Sequence[Line | None], most: int) -> Knots | None:
        """Of each feature, None for one that is as it is; None where all are."""
        if all(line is None for line in lines):
            return None
        found = np.full((2, len(lines), most), np.nan)
        levels = np.zeros(len(lines), dtype=np.bool_)
        for place, line in enumerate(lines):
            if line is not None:
                for row, values in zip(found[:, place], (line.values, line.scores), strict=True):
                    row[: len(values)], row[len(values) :] = values, values[-1]
                levels[place] = line.is_level
        return cls(found[0], found[1], levels if levels.any() else None)

    def line(self, place: int) -> Line:
        """Of one feature."""
        return Line(self.values[place], self.scores[place], self.is_level(place))

    def is_level(self, place: int) -> bool:
        return self.levels is not None and bool(self.levels[place])

    @cached_property
    def places(self) -> list[int]:
        """Features that are scored."""
        return [int(place) for place in np.flatnonzero(~np.isnan(self.values[:, 0]))]

    @cached_property
    def keys(self) -> list[bytes]:
        """What tells the map of a feature from others."""
        pairs = zip(self.values, self.scores, strict=True)
        return [blake2b(values.tobytes() + scores.tobytes(), digest_size=16).digest() for values, scores in pairs]

    def score(self, place: int, values: NDArray[Any]) -> Floats:
        """Normal scores, or levels, of some values of a feature."""
        scores: Floats = np.interp(values, self.values[place], self.scores[place])
        return scores

    def select(self, index: NDArray[np.int64]) -> Knots | None:
        """Of some features; None where all of them are as they are."""
        levels = None if self.levels is None or not self.levels[index].any() else self.levels[index]
        found = Knots(self.values[index], self.scores[index], levels)
        return found if found.places else None


@dataclass(frozen=True)
class Differences:
    """Features that are what one column has beyond another, `u = x_i - f x_j` (D,).

    `others` are the columns `j` of the rows, -1 of a feature that is of one column alone; `factor` is 0 there.
    """

    others: NDArray[np.int64]
    factor: Floats

    @cached_property
    def places(self) -> list[int]:
        """Features that are differences."""
        return [int(place) for place in np.flatnonzero(self.others >= 0)]

    def value(self, place: int, features: NDArray[Any], column: int) -> Floats:
        """`u` of rows with all columns (..., all), in float64, since what is left of alike columns is little."""
        first, second = (features[..., index].astype(np.float64) for index in (column, self.others[place]))
        with np.errstate(over="ignore"):
            difference: Floats = first - self.factor[place] * second
        return difference

    def of(self, place: int) -> tuple[int, float]:
        """The other column of a feature and the factor, -1 and 0 where it is of one alone."""
        return int(self.others[place]), float(self.factor[place])

    def compared(self, features: NDArray[Any]) -> Floats:
        """Of rows with all columns, the other one of each difference (..., differences)."""
        found: Floats = features[..., self.others[self.places]].astype(np.float64)
        return found

    def select(self, index: NDArray[np.int64]) -> Differences | None:
        """Of some features; None where all of them are of one column."""
        found = Differences(self.others[index], self.factor[index])
        return found if found.places else None


class ScoredColumns:
    """Normal scores and levels of some rows, found once for all batches that look at them.

    They are those of the values in the `precision` of the kernel: a level may rise between two of these.
    """

    def __init__(self, features: Array, precision: Precision) -> None:
        self._features = features
        self._precision = precision
        self._known: dict[tuple[int, bytes], Floats] = {}

    def scores(self, column: int, knots: Knots, place: int) -> Floats:
        """Of a column of the rows, by the knots at a place."""
        key = column, knots.keys[place]
        if key not in self._known:
            with np.errstate(over="ignore"):  # beyond the last knot it does not matter how far
                values = self._features[:, column].astype(self._precision, copy=False)
            self._known[key] = knots.score(place, values)
        return self._known[key]


@dataclass(frozen=True)
class Standardization:
    """`z = (x - center) / scale`, or the normal score or level of a feature that has `knots`.

    Centring is needed in any case: without it large offsets cancel in float32. Of `differences`, `x` is `u`.
    """

    center: Floats
    scale: Floats
    knots: Knots | None = None
    differences: Differences | None = None

    @property
    def scored(self) -> list[int]:
        """Places of normal scores and levels."""
        return [] if self.knots is None else self.knots.places

    def values(self, rows: NDArray[Any], columns: NDArray[np.int64]) -> NDArray[Any]:
        """Of rows with all columns (..., all), those that the features are of, and differences (..., D)."""
        if self.differences is None:
            return rows[..., columns]
        found = rows[..., columns].astype(np.float64)
        for place in self.differences.places:
            found[..., place] = self.differences.value(place, rows, int(columns[place]))
        return found

    def apply(self, features: NDArray[Any]) -> Floats:
        """Of `values` (N, D)."""
        standardized: Floats = (features.astype(np.float64) - self.center) / self.scale
        if self.knots is not None:
            for place in self.knots.places:
                standardized[:, place] = self.knots.score(place, features[:, place])
        return standardized

    def select(self, index: NDArray[np.int64]) -> Standardization:
        knots = None if self.knots is None else self.knots.select(index)
        differences = None if self.differences is None else self.differences.select(index)
        return Standardization(self.center[index], self.scale[index], knots, differences)


def product(left: Array, right: Array, out: Array | None = None) -> Array:
    """`left @ right` of finite numbers, where `right` may be a single column.

    The BLAS is not believed that an operation was invalid: OpenBLAS's kernel for five float32 columns and one vector
    (AVX-512) also calculates with whatever is in the lanes that it then drops.
    """
    with np.errstate(invalid="ignore"):
        multiplied: Array = np.matmul(left, right, out=out)
    return multiplied


@dataclass(frozen=True)
class Exponential:
    """`function(root^2 x) = exp(x)`, with what is below `floor` clamped: that is 0 for the model, and would become
    denormal numbers, which make the function ten times and products fifty times slower. So would what becomes of it
    with a small factor: it is 2^25 times the smallest normal number or more.
    """

    function: np.ufunc
    root: float
    floor: float


@cache
def exponential(dtype: Precision) -> Exponential:
    """To base 2 or e: `exp2` takes half the time of `exp` where NumPy has it in vectors; on processors without AVX-512
    it has only `exp` of float32 so, which takes half the time of `exp2` then.
    """
    known = opt_func_info(func_name="^exp2?$")
    current = {name: str(known.get(name, {}).get("ff", {}).get("current", "baseline")) for name in ("exp", "exp2")}
    natural = current["exp2"].startswith("baseline") and not current["exp"].startswith("baseline")
    if dtype == "float32" and natural:
        return Exponential(np.exp, 1.0, -70.0)
    # The smallest normal numbers are 2^-126 and 2^-1022.
    return Exponential(np.exp2, math.log2(math.e) ** 0.5, -100.0 if dtype == "float32" else -990.0)


def exponentiate(exponents: Array, dtype: Precision, low: bool) -> Array:
    """Kernel values in the place of exponents, of which some may be below the floor if they are `low`."""
    exp = exponential(dtype)
    if low:
        # Three times as fast as `maximum` with a number; no exponent is above 0 by more than rounding.
        np.clip(exponents, exp.floor, 1.0, out=exponents)
    exp.function(exponents, out=exponents)
    return exponents


@dataclass(frozen=True)
class RowSide:
    """What standardises the rows that meet prototypes, `active` features only."""

    dtype: Precision
    active: NDArray[np.int64]
    columns: NDArray[np.int64]
    """Columns of the rows that these features are in."""
    knots: Knots | None
    """Of all features, active or not."""
    differences: Differences | None
    """Among these features."""
    center: Array
    inverse_scale: Array

    @cached_property
    def in_order(self) -> bool:
        """Whether the features are the first columns of the rows, as they come."""
        return np.array_equal(self.columns, np.arange(len(self.columns)))

    @cached_property
    def scored(self) -> list[tuple[int, int, int]]:
        """Normal scores and levels among the features: place, column of the rows, and place among all features."""
        known = set() if self.knots is None else set(self.knots.places)
        triples = zip(range(len(self.active)), self.columns.tolist(), self.active.tolist(), strict=True)
        return [triple for triple in triples if triple[2] in known]

    def standardize(self, features: Array, out: Array, scored: ScoredColumns | None = None, first: int = 0) -> Array:
        """Rows in standardised units (T, D), in `out`.

        `scored` knows normal scores and levels of rows of which these are those from `first` on.
        """
        as_they_are = self.in_order and len(self.columns) == features.shape[1]
        selected = features if as_they_are else features[:, self.columns]
        with np.errstate(over="ignore"):
            np.subtract(selected, self.center, out=out, casting="same_kind")
            if self.differences is not None:
                for place in self.differences.places:
                    found = self.differences.value(place, features, int(self.columns[place]))
                    out[:, place] = found - self.center[place]
            np.multiply(out, self.inverse_scale, out=out)
        # Squares must stay finite; a row that far away is far from every prototype as it is.
        np.clip(out, -FARTHEST, FARTHEST, out=out)
        if self.knots is not None:
            scored = ScoredColumns(features, self.dtype) if scored is None else scored
            for place, column, number in self.scored:
                out[:, place] = scored.scores(column, self.knots, number)[first : first + len(features)]
        return out


def row_side(
    active: NDArray[np.int64], standardization: Standardization, columns: NDArray[np.int64], dtype: Precision
) -> RowSide:
    """The rows' side for some of the features that are in these `columns`."""
    return RowSide(
        dtype=dtype,
        active=active,
        columns=columns[active],
        knots=standardization.knots,
        differences=None if standardization.differences is None else standardization.differences.select(active),
        center=standardization.center[active].astype(dtype),
        inverse_scale=(1 / standardization.scale[active]).astype(dtype),
    )


@dataclass(frozen=True)
class KernelSide:
    """The prototypes' side of the kernel for given feature weights, ready to meet rows.

    `active` are the features with positive weight; the others drop out. Of several batches `u` is the largest `v` of
    each feature, and the exponent

        [u z, |v_1 z|^2, .., |v_B z|^2, 1] . [(v/u) v s, -1/2 where the batch is b, -|v s|^2 / 2]
    """

    dtype: Precision
    active: NDArray[np.int64]
    weight: Array
    """`u` (D,), times the root of the `exponential`; of one batch it is `v`."""
    shares: Array | None
    """`(v/u)^2` of several batches (D, B)."""
    operand: Array
    """`[v s, -1/2, -|v s|^2 / 2]`, (D + B + 1, columns), `v` times that root; zeros in further columns."""
    n_prototypes: int
    """Columns of the operand but for those that keep rows of the kernel matrix out of the same cache sets."""
    longest: float
    """Largest `|v s|`, `v` times that root: bounds the exponent from below without looking at it."""

    def tile(self, rows: int) -> TileBuffers:
        """This thread's memory for tiles of so many rows."""
        return kernel_tile(rows, len(self.active), self.operand.shape[1], self.dtype)

    def left_operand(self, standardized: Array, out: Array) -> bool:
        """`[u z, |v_b z|^2, 1]` of rows, `u` and `v` times the root, in `out` (T, D + B + 1); whether an exponent of
        theirs may be below the floor of the `exponential`.
        """
        width = standardized.shape[1]
        scaled, squared = out[:, :width], out[:, width:-1]
        np.multiply(standardized, self.weight, out=scaled)
        out[:, -1] = 1
        if self.shares is None:
            np.einsum("nd,nd->n", scaled, scaled, out=squared[:, 0])
        else:
            np.matmul(np.square(scaled), self.shares, out=squared)
        farthest: float = float(squared.max(initial=0.0)) ** 0.5 + self.longest
        return -0.5 * farthest**2 < exponential(self.dtype).floor

    def kernel(self, standardized: Array, tile: TileBuffers) -> Array:
        """Kernel values (T, prototypes)."""
        left, values = tile.left[: len(standardized)], tile.values[: len(standardized)]
        low = self.left_operand(standardized, left)
        return exponentiate(product(left, self.operand, out=values), self.dtype, low)[:, : self.n_prototypes]


def far_out(prototypes: Floats, weights: Floats, batch: NDArray[np.int64]) -> NDArray[np.bool_]:
    """For which prototypes (J, D) float32 would not do, given weights `v` (B, D) and the batch of each (J,).

    `kernel_side`, which decides, sums in another order: at the bound to the last bit it may take float64 for all.
    """
    active = np.flatnonzero(weights.any(axis=0))
    if len(active) < weights.shape[1]:
        prototypes, weights = prototypes.take(active, axis=1), weights[:, active]
    scaled = prototypes * (weights[0] if len(weights) == 1 else weights[batch])
    steep: NDArray[np.bool_] = weights.max(axis=1, initial=0.0) > STEEPEST
    return steep[batch] | (_squared_lengths(scaled) > FLOAT32_REACH)


def _squared_lengths(rows: Floats) -> Floats:
    lengths: Floats = np.einsum("jd,jd->j", rows, rows)
    return lengths


def kernel_side(
    prototypes: Floats, feature_weight: Floats, precision: Precision, batch: NDArray[np.int64] | None = None
) -> KernelSide:
    """The prototypes' side for standardised `prototypes` (J, features of positive weight) and weights `v` of all
    features; of several batches (B, all features), given the `batch` of each prototype (J,).
    """
    weights = np.atleast_2d(feature_weight)
    active = np.flatnonzero((weights > 0).any(axis=0))
    weights = weights[:, active]
    weight = weights.max(axis=0)
    scaled = prototypes * (weight if batch is None else weights[batch])
    longest = float(_squared_lengths(scaled).max(initial=0.0))
    steep = longest > FLOAT32_REACH or weight.max(initial=0.0) > STEEPEST
    dtype: Precision = "float64" if steep else precision
    root = exponential(dtype).root
    count = len(prototypes)
    operand = np.zeros((len(active) + len(weights) + 1, count + alias_padding(count, dtype)), dtype=dtype)
    of_features = operand[: len(active)]
    np.multiply(scaled.T, root, out=of_features[:, :count], casting="same_kind")
    del scaled
    # From the rounded numbers, so that the exponent of a row that equals a prototype rounds to about 0.
    rounded = of_features.astype(np.float64, copy=False)
    operand[-1] = -0.5 * np.einsum("dj,dj->j", rounded, rounded)
    del rounded
    shares = None
    if batch is None:
        operand[-2] = -0.5
    else:
        operand[len(active) + batch, np.arange(count)] = -0.5
        shares = (weights / weight).T
        of_features[:, :count] *= shares[:, batch]
        shares = np.square(shares).astype(dtype)
    return KernelSide(
        dtype=dtype,
        active=active,
        weight=(root * weight).astype(dtype),
        shares=shares,
        operand=operand,
        n_prototypes=count,
        longest=root * longest**0.5,
    )


@dataclass(frozen=True)
class ScoreKernel:
    """Unscaled class sums `sum_j [y_j = k] w_j K_v(z - s_j)` of one fitted batch, for many tiles."""

    prototypes: Floats
    """Standardised, features of the batch only (J, D)."""
    prototype_class: NDArray[np.int64]
    prototype_weight: Floats
    feature_weight: Floats
    feature_index: NDArray[np.int64]
    standardization: Standardization
    """Of the features of the batch."""
    n_classes: int
    precision: Precision

    @cached_property
    def _matrices(self) -> list[ScoreMatrix]:
        """One, or two where prototypes that need float64 are apart from others that are many enough."""
        everyone = np.arange(len(self.prototype_class))
        if self.precision == "float64":
            return [self._matrix(everyone)]
        far = far_out(self.prototypes, self.feature_weight[None], np.zeros_like(everyone))
        parts = [everyone[~far], everyone[far]]
        if len(parts[0]) < LEAST_NEAR or not far.any():
            parts = [everyone]
        return [self._matrix(members) for members in parts]

    def _matrix(self, members: NDArray[np.int64]) -> ScoreMatrix:
        panels = arrange(members, self.prototype_class, len(self.feature_index))
        prototypes = panels.spread(self.prototypes[:, self.feature_weight > 0])
        side = kernel_side(prototypes, self.feature_weight, self.precision)
        weight = panels.spread(self.prototype_weight).astype(side.dtype).reshape(panels.n_panels, panels.width, 1)
        rows = row_side(side.active, self.standardization, self.feature_index, side.dtype)
        return ScoreMatrix(panels, side, rows, weight, np.eye(self.n_classes)[panels.panel_class])

    def add(self, features: Array, scores: Floats, scored: ScoredColumns | None = None) -> None:
        """Add the class sums of rows with all features (N, ...) to `scores` (N, K)."""
        for matrix in self._matrices:
            matrix.add(features, scores, scored)


@dataclass(frozen=True)
class ScoreMatrix:
    """Some prototypes of a `ScoreKernel`, ready to meet rows."""

    panels: Panels
    side: KernelSide
    rows: RowSide
    weight: Array
    """`w` by panel (C, width, 1)."""
    to_class: Floats
    """1 where a panel is of a class (C, K)."""

    def add(self, features: Array, scores: Floats, scored: ScoredColumns | None) -> None:
        """Add their class sums of rows with all features (N, ...) to `scores` (N, K)."""
        panels, side = self.panels, self.side
        if panels.n_panels == 0:
            return
        length = tile_rows(len(features), panels.n_columns)
        tile = side.tile(length)
        for first in range(0, len(features), length):
            rows = features[first : first + length]
            out = tile.standardized[: len(rows)]
            standardized = self.rows.standardize(rows, out, scored, first if scored is not None else 0)
            sums = product(panels.apart(side.kernel(standardized, tile)), self.weight)[:, :, 0]
            scores[first : first + length] += sums.T @ self.to_class
