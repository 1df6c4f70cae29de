"""What rows of a dataset are drawn by: their class, or the value of a column."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from protodask.data.format.dataset import Dataset
from protodask.data.format.schema import FEATURES, TARGET, Column, Label
from protodask.data.tables.encoding import label_codes
from protodask.engine import Block
from protodask.engine.records import Integers
from protodask.errors import InputError, some

OTHERS = "(other)"
"""What rows of a value that nobody named are called, and those of which none is known."""


@dataclass(frozen=True)
class Strata:
    """Parts of the rows of a dataset, one for each label, and of a column one more for all other rows; small to
    pickle.
    """

    name: str
    """Of the column."""
    labels: tuple[Label | float, ...]
    column: Column | None = None
    """None where it is the target."""
    first: int = 0
    """Of the features that the column has become."""

    @property
    def shown(self) -> tuple[Label | float, ...]:
        """What all parts are called."""
        return self.labels if self.column is None else (*self.labels, OTHERS)

    @property
    def kind(self) -> str:
        """What a part is called."""
        return "class" if self.column is None else "value"

    @property
    def what(self) -> str:
        """A part, in a message."""
        return "class" if self.column is None else f"value of {self.name!r}"

    def codes(self, block: Block) -> Integers:
        """The part that each row of a block is of (n,)."""
        if self.column is None:
            return block[TARGET.name]
        features, others = block[FEATURES.name], len(self.labels)
        values = features[:, self.first]
        found = np.full(block.n_rows, others)
        if self.column.kind == "nominal":
            values = features[:, self.first : self.first + others]
            return np.where(values.any(axis=1), values.argmax(axis=1), others)
        for code, label in enumerate(self.labels):
            wanted = code if self.column.kind == "ordinal" else values.dtype.type(label)
            found[values == wanted] = code
        if self.column.marked:  # what is missing stands there as the mean
            found[features[:, self.first + 1] == 1] = others
        return found

    def places(self, given: Sequence[Any]) -> list[int]:
        """Which parts are meant by labels or values; -1 for none."""
        if self.column is not None and self.column.kind == "numeric":
            return [self.labels.index(float(value)) for value in given]
        values = np.empty(len(given), dtype=object)
        values[:] = list(given)
        found: list[int] = label_codes(values, cast("Sequence[Label]", self.labels)).tolist()
        return found


def of_classes(dataset: Dataset) -> Strata:
    """A part for each class."""
    return Strata(dataset.target_name, tuple(dataset.classes))


def of_values(dataset: Dataset, name: str, named: Iterable[Any]) -> Strata:
    """A part for each category of a column, or for each of the values of it that are `named`, and one for the rest."""
    if name == dataset.target_name:
        return of_classes(dataset)
    first = 0
    for column in dataset.columns:
        if column.name == name:
            labels: tuple[Label | float, ...] = column.categories
            if column.kind == "numeric":
                labels = _numbers(name, named)
            return Strata(name, labels, column, first)
        first += len(column.feature_names)
    known = some([column.name for column in dataset.columns])
    raise InputError("column-missing", f"The dataset has no column {name!r}.", f"Its columns are {known}.")


def _numbers(name: str, named: Iterable[Any]) -> tuple[float, ...]:
    found: list[float] = []
    for value in named:
        number = math.nan
        with suppress(TypeError, ValueError):
            number = float(value)
        if not math.isfinite(number):
            raise InputError(
                "bad-setting", f"The value {value!r} of {name!r} is no number.", "The column holds numbers: name some."
            )
        found.append(number)
    return tuple(dict.fromkeys(found))
