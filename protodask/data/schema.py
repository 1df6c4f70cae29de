"""The one place that names what a dataset consists of, for writer, reader, validator and documentation alike.

`N` rows, `D` features, `K` classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from protodask.engine.blocks import Block
from protodask.errors import InputError

FORMAT_VERSION = 3
"""The newest form of a dataset: 3 says where its rows are from, 2 has groups. What has neither is written as version 1,
which older readers know.
"""

Label = str | int | bool
"""A class as the user wrote it."""


@dataclass(frozen=True, slots=True)
class Variable:
    """An array of the dataset."""

    name: str
    dims: tuple[str, ...]
    dtypes: tuple[str, ...]
    fill: float
    """What a missing chunk reads as: never a legal value, so that damage shows."""
    required: bool
    doc: str


FEATURES = Variable("features", ("row", "feature"), ("float32", "float64"), np.nan, True, "encoded features, raw units")
TARGET = Variable("target", ("row",), ("int32",), -1, True, "index into the classes")
WEIGHT = Variable("weight", ("row",), ("float64",), np.nan, False, "sample weight, >= 0")
INCLUSION = Variable("inclusion", ("row",), ("float64",), np.nan, False, "probability that the row was kept, in (0, 1]")
GROUP = Variable("group", ("row",), ("int64",), -1, False, "code of the group the row belongs to, >= 0")
VARIABLES = (FEATURES, TARGET, WEIGHT, INCLUSION, GROUP)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the source table and how it becomes features.

    `numeric`: one feature, as it is. `ordinal`: one feature, the position in `categories`. `nominal`: a feature for
    each of the `categories`, 1 where the value is that category and 0 elsewhere.
    """

    name: str
    kind: Literal["numeric", "nominal", "ordinal"] = "numeric"
    categories: tuple[Label, ...] = ()

    @property
    def feature_names(self) -> tuple[str, ...]:
        if self.kind == "nominal":
            return tuple(f"{self.name}={category}" for category in self.categories)
        return (self.name,)


def row_weights(block: Block) -> NDArray[np.float64] | None:
    """Records each row stands for, `s = weight / inclusion` (N,), or None where every row counts once."""
    weight = block.arrays.get(WEIGHT.name)
    inclusion = block.arrays.get(INCLUSION.name)
    if weight is None and inclusion is None:
        return None
    for name, values in ((WEIGHT.name, weight), (INCLUSION.name, inclusion)):
        if values is not None and values.dtype.kind not in "fiub":
            raise InputError("wrong-type", f"The {name} is of type {values.dtype}.", "Give one number for each row.")
    total = np.ones(block.n_rows) if weight is None else np.asarray(weight, dtype=np.float64)
    with np.errstate(over="ignore"):  # who uses weights refuses infinite ones, and says of which row
        return total if inclusion is None else total / inclusion
