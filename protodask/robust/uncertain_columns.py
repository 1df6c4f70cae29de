"""Which columns of a table say what of uncertain features.

A feature `x` is either one column `x`, known exactly, or

    x.low, x.high               the support, always
    x.mean                      the mean, or instead of it
    x.mean_low, x.mean_high     bounds of it
    x.second                    an upper bound of the second moment
    x.origin                    what the second moment is about, 0 without it
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protodask.data.format.schema import Column
from protodask.errors import InputError, count, some
from protodask.robust.uncertain_rows import UncertainRows

PARTS = ("low", "high", "mean", "mean_low", "mean_high", "second", "origin")

Places = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class UncertainColumns:
    """The numbers of the columns that hold the bounds of `D` features, each array (D,); -1 where there is none."""

    features: tuple[str, ...]
    lower: Places
    upper: Places
    mean_low: Places
    """That of `lower` where nothing is known of the mean."""
    mean_high: Places
    second_moment: Places
    origin: Places
    n_columns: int

    def rows(self, values: NDArray[Any], first_row: int = 0) -> UncertainRows:
        """The uncertain rows of a block `values` (N, columns); `first_row` is the number of its first row.

        Checking takes about as much memory again as the rows do: give a large block in parts.
        """
        if values.ndim != 2 or values.shape[1] != self.n_columns:
            raise InputError(
                "wrong-shape",
                f"A table of shape {values.shape} was given where "
                f"{count(self.n_columns, 'column was', 'columns were')} named.",
                "Give the table whose columns these are.",
            )
        lower = values[:, self.lower]
        same_support = np.array_equal(self.mean_low, self.lower) and np.array_equal(self.mean_high, self.upper)
        second = _columns(values, self.second_moment, np.inf)
        return UncertainRows(
            lower,
            lower if np.array_equal(self.upper, self.lower) else values[:, self.upper],
            None if same_support else values[:, self.mean_low],
            None if same_support else values[:, self.mean_high],
            second,
            None if second is None else _columns(values, self.origin, 0.0),
            first_row=first_row,
            feature_names=self.features,
        )


def uncertain_columns(names: Sequence[str], exactly: Collection[str] = ()) -> UncertainColumns:
    """What each of the columns of these names says, features in the order of their first column.

    Names that end in one of the parts above belong together by what comes before; all others are features known
    exactly, as are those named in `exactly`, whatever their names end in.
    """
    places: dict[str, dict[str, int]] = {}
    for place, name in enumerate(names):
        feature, dot, part = name.rpartition(".")
        if name in exactly or not (dot and feature and part in PARTS):
            feature, part = name, ""
        parts = places.setdefault(feature, {})
        if part in parts:
            raise InputError("named-twice", f"There are two columns {name}.", "Rename or leave out one of them.")
        parts[part] = place
    for feature, parts in places.items():
        _check(feature, parts)

    def found(*parts: str) -> Places:
        """The column of the first of these parts that a feature has."""
        return np.array(
            [next((has[part] for part in parts if part in has), -1) for has in places.values()], dtype=np.intp
        )

    return UncertainColumns(
        tuple(places),
        lower=found("low", ""),
        upper=found("high", ""),
        mean_low=found("mean", "mean_low", "low", ""),
        mean_high=found("mean", "mean_high", "high", ""),
        second_moment=found("second"),
        origin=found("origin"),
        n_columns=len(names),
    )


def columns_of_table(columns: Sequence[Column]) -> UncertainColumns:
    """What the numbers say that come from the columns of a table: of categories which one it is, exactly."""
    if filled := [column.name for column in columns if column.marked and column.kind != "nominal"]:
        raise InputError(
            "unsupported",
            f"Values are missing in {some(filled)}, where the mean of the others stands in the dataset: nobody knows "
            "them to be so.",
            "Give the least and the largest value that they may have (missing='error' names the rows), or leave the "
            "columns out.",
        )
    names = [name for column in columns for name in column.feature_names]
    return uncertain_columns(names, category_names(columns))


def category_names(columns: Sequence[Column]) -> frozenset[str]:
    """Names of the numbers that say which category it is, or that a value is missing: they may end in anything."""
    return frozenset(
        name for column in columns for name in column.feature_names if column.kind == "nominal" or name != column.name
    )


def _check(feature: str, parts: dict[str, int]) -> None:
    has = set(parts)
    if has == {""}:
        return
    seen = ", ".join(f"{feature}.{part}" if part else feature for part in parts)
    if "" in has:
        raise InputError(
            "named-twice",
            f"Feature {feature} is given both by itself and by its bounds: {seen}.",
            f"Leave out the column {feature}, or call it {feature}.mean.",
        )
    wanted = {"low", "high"}
    if has & {"mean_low", "mean_high"}:
        wanted |= {"mean_low", "mean_high"}
    if "origin" in has:
        wanted.add("second")
    missing = [f"{feature}.{part}" for part in PARTS if part in wanted - has]
    if missing:
        raise InputError(
            "column-missing",
            f"Of feature {feature} there are the columns {seen}, but not {', '.join(missing)}.",
            "Add what is missing, or rename the columns if they are features of their own.",
        )
    if "mean" in has and "mean_low" in has:
        raise InputError(
            "settings-conflict",
            f"Of feature {feature} there are a mean and bounds of the mean: {seen}.",
            "Leave out the one or the other.",
        )


def _columns(values: NDArray[Any], places: Places, missing: float) -> NDArray[Any] | None:
    """The columns at these places, `missing` at a place of -1; None if there is no column at all."""
    absent = places < 0
    if absent.all():
        return None
    taken = values[:, places]
    if absent.any():
        taken = taken.astype(np.result_type(taken, np.float32), copy=False)
        taken[:, absent] = missing
    return taken


def columns_of(rows: UncertainRows, features: Sequence[str]) -> dict[str, NDArray[np.float64]]:
    """The columns of a table that say what `rows` do of their features, of these names: what `uncertain_columns` reads.

    A feature that every row knows exactly is one column. A second moment that is infinite becomes the largest that the
    support allows.
    """
    if len(features) != rows.n_features:
        raise InputError(
            "wrong-shape",
            f"{count(len(features), 'name is', 'names are')} given for {count(rows.n_features, 'feature')}.",
            "Give a name to each feature.",
        )
    found: dict[str, NDArray[np.float64]] = {}
    for place, name in enumerate(features):
        lower, upper = rows.lower[:, place], rows.upper[:, place]
        if np.array_equal(lower, upper):
            found[name] = lower
            continue
        found |= {f"{name}.low": lower, f"{name}.high": upper}
        low, high = rows.mean_low[:, place], rows.mean_high[:, place]
        if np.array_equal(low, high):
            found[f"{name}.mean"] = low
        elif not (np.array_equal(low, lower) and np.array_equal(high, upper)):
            found |= {f"{name}.mean_low": low, f"{name}.mean_high": high}
        if rows.second_moment is not None:
            origin = np.zeros_like(lower) if rows.origin is None else rows.origin[:, place]
            most = np.square(np.maximum(np.abs(lower - origin), np.abs(upper - origin)))
            found[f"{name}.second"] = np.minimum(rows.second_moment[:, place], most)
            if rows.origin is not None:
                found[f"{name}.origin"] = origin
    if uncertain_columns(list(found)).features != tuple(features):
        raise InputError(
            "bad-setting",
            f"Features are called {some(list(features))}, and columns of these names say something else.",
            "Give names that differ, and that do not end in .low, .high, .mean or the like.",
        )
    return found
