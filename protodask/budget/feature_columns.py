"""Features as columns of a dataset: each a few columns that are computed together, at one cost."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from protodask.budget.costs import CostCurves, padded
from protodask.budget.expansions import FeatureSet
from protodask.data.format.schema import FEATURES, Column
from protodask.engine import Block
from protodask.engine.records import Integers
from protodask.engine.sources import ViewedSource
from protodask.errors import InputError, refusing, some
from protodask.prototypes.training_data import TrainingData

Costed = tuple[Sequence[str], Sequence[float]]
"""The columns of a feature, and the coefficients of what it costs, constant first."""


@dataclass(frozen=True)
class FeatureColumns:
    """Features that a budget is spent on: names, columns of raw tables and costs."""

    names: tuple[str, ...]
    columns: tuple[tuple[str, ...], ...]
    curves: CostCurves

    @property
    def n_features(self) -> int:
        return len(self.names)

    def columns_of(self, features: FeatureSet) -> frozenset[str]:
        """The columns of a set."""
        return frozenset(column for number in features for column in self.columns[number])


def feature_columns(
    columns: Sequence[Column],
    features: Mapping[str, Costed],
    sizes: tuple[float, float] = (0.0, math.inf),
    without: Sequence[str] = (),
) -> FeatureColumns:
    """Features by name, checked against the columns of a dataset.

    Every column belongs to one feature, or is left out by being named in `without`.
    """
    given: Any = features
    if not isinstance(given, Mapping) or not given:
        raise InputError("setting-missing", "No feature has a cost.", "Give each feature its columns and its cost.")
    costed = {name: _columns_and_cost(name, each) for name, each in given.items()}
    without = [without] if isinstance(without, str) else without
    known = [column.name for column in columns]
    owner: dict[str, str] = {}
    for name, (own, _) in costed.items():
        if not own:
            raise InputError("setting-missing", f"The feature {name!r} has no columns.", "Name at least one for it.")
        for column in own:
            if column in owner:
                raise InputError(
                    "named-twice",
                    f"The column {column!r} belongs to the feature {owner[column]!r} and to {name!r}.",
                    "Let each column belong to one feature.",
                )
            owner[column] = name
    if both := [column for column in without if column in owner]:
        raise InputError(
            "settings-conflict",
            f"The column {both[0]!r} has a cost and is to be left out.",
            "Take it out of `without`, or its cost away.",
        )
    if unknown := [column for column in (*owner, *without) if column not in known]:
        raise InputError(
            "column-missing",
            f"The dataset has no column {', '.join(map(repr, unknown[:5]))}.",
            f"Its columns are {some(known, 20)}.",
        )
    if costless := [column for column in known if column not in owner and column not in without]:
        raise InputError(
            "setting-missing",
            f"Columns of the dataset have no cost: {some(costless, 20)}.",
            "Give each a cost, 0 where it is free, or leave it out by listing it under `without`.",
        )
    CostCurves.of([[0.0]], sizes)  # so that no feature is blamed for them
    for name, (_, cost) in costed.items():
        if not cost:
            raise InputError(
                "setting-missing", f"The feature {name!r} has no cost.", "Give a list of coefficients, constant first."
            )
        try:
            CostCurves.of([cost], sizes)
        except InputError as error:
            raise InputError(
                error.code,
                f"The cost {cost} of the feature {name!r} cannot be used for sizes from {sizes[0]:.15g} to "
                f"{sizes[1]:.15g}.",
                error.remedy,
            ) from error
    owned, costs = zip(*costed.values(), strict=True)
    return FeatureColumns(tuple(costed), owned, CostCurves.of(padded(costs), sizes))


def _columns_and_cost(name: str, given: Any) -> tuple[tuple[str, ...], list[float]]:
    seen, remedy = f"The feature {name!r} is given no columns and cost", "Give them such as (['age'], [2.0, 0.1])."
    with refusing((TypeError, ValueError), "wrong-type", seen, remedy):
        own, cost = given
        return (own,) if isinstance(own, str) else tuple(own), [float(value) for value in cost]


def _take_columns(block: Block, kept: Integers) -> Block:
    """A block with some of its encoded features only."""
    # `take` makes rows that lie one after the other, as they would in a dataset of these columns alone.
    features = np.take(block[FEATURES.name], kept, axis=1)
    return Block(block.number, block.start, {**block.arrays, FEATURES.name: features})


def restricted(data: TrainingData, columns: frozenset[str]) -> TrainingData:
    """The same rows with some columns of raw tables only, in the order they have.

    What is known of the others is cut away: the statistics of the features that are left are not computed again.
    """
    if all(column.name in columns for column in data.columns):
        return data
    kept = encoded_positions(data.columns, columns)
    digest = hashlib.blake2b(kept.tobytes(), digest_size=8).hexdigest()
    summary = data.summary
    return replace(
        data,
        source=ViewedSource(data.source, partial(_take_columns, kept=kept), f"columns-{digest}"),
        summary=replace(
            summary,
            mean=summary.mean[kept],
            squares=summary.squares[kept],
            minimum=summary.minimum[kept],
            maximum=summary.maximum[kept],
        ),
        feature_names=tuple(data.feature_names[position] for position in kept.tolist()),
        columns=tuple(column for column in data.columns if column.name in columns),
        other_names=(*data.other_names, *(column.name for column in data.columns if column.name not in columns)),
        whole=None if data.whole is None else restricted(data.whole, columns),
    )


def encoded_positions(columns: Sequence[Column], chosen: frozenset[str]) -> Integers:
    """Which encoded features the chosen columns have, ascending."""
    widths = [len(column.feature_names) for column in columns]
    return np.flatnonzero(np.repeat([column.name in chosen for column in columns], widths))
