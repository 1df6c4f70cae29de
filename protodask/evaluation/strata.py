"""What rows of a dataset are drawn by: their class, or the value of a column."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protodask.data.format.dataset import Dataset
from protodask.data.format.schema import FEATURES, TARGET, Column, Label
from protodask.data.tables.encoding import label_codes
from protodask.engine import Block
from protodask.errors import InputError, some

Integers = NDArray[np.int64]

OTHERS = "(other)"
"""Rows of a value that nobody named."""


@dataclass(frozen=True)
class Strata:
    """Parts of the rows of a dataset, one for each of the labels; small to pickle."""

    kind: str
    """What a part is called: "class" or "value"."""
    name: str
    """Of the column."""
    labels: tuple[Label | float, ...]
    column: Column | None = None
    """None where it is the target."""
    first: int = 0
    """Of the features that the column has become."""

    def codes(self, block: Block) -> Integers:
        """The part that each row of a block is of (n,)."""
        if self.column is None:
            codes: Integers = block[TARGET.name]
            return codes
        values = block[FEATURES.name][:, self.first]
        named = len(self.named)
        if self.column.kind == "nominal":
            features = block[FEATURES.name][:, self.first : self.first + named]
            return np.where(features.any(axis=1), features.argmax(axis=1), named)
        found = np.full(block.n_rows, named)
        for code in range(named):
            wanted = code if self.column.kind == "ordinal" else values.dtype.type(self.labels[code])
            found[values == wanted] = code
        return found

    @property
    def named(self) -> tuple[Label | float, ...]:
        """Those of the parts that can be named."""
        return self.labels if self.column is None else self.labels[:-1]

    def places(self, given: Sequence[Any]) -> list[int]:
        """Which parts are meant by labels or values; -1 for none."""
        if self.column is not None and self.column.kind == "numeric":
            return [self.labels.index(float(value)) for value in given]
        labels = np.empty(len(given), dtype=object)
        labels[:] = list(given)
        known = [label for label in self.named if not isinstance(label, float)]
        found: list[int] = label_codes(labels, known).tolist()
        return found

    @property
    def what(self) -> str:
        """A part, in a message."""
        return "class" if self.column is None else f"value of {self.name!r}"


def of_classes(dataset: Dataset) -> Strata:
    """A part for each class."""
    return Strata("class", dataset.target_name, tuple(dataset.classes))


def of_values(dataset: Dataset, name: str, named: Iterable[Any]) -> Strata:
    """A part for each category of a column, or for each of the values of it that are `named`; and the last for the
    rest.
    """
    if name == dataset.target_name:
        return of_classes(dataset)
    first = 0
    for column in dataset.columns:
        if column.name == name:
            labels: tuple[Label | float, ...] = column.categories
            if column.kind == "numeric":
                labels = _numbers(name, named)
            return Strata("value", name, (*labels, OTHERS), column, first)
        first += len(column.feature_names)
    known = some([column.name for column in dataset.columns])
    raise InputError("column-missing", f"The dataset has no column {name!r}.", f"Its columns are {known}.")


def _numbers(name: str, named: Iterable[Any]) -> tuple[float, ...]:
    found: list[float] = []
    for value in named:
        try:
            found.append(float(value))
        except (TypeError, ValueError):
            raise InputError(
                "bad-setting", f"The value {value!r} of {name!r} is no number.", "The column holds numbers: name some."
            ) from None
    return tuple(dict.fromkeys(found))
