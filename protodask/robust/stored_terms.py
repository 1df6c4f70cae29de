"""The brackets of a source's samples, computed once and kept: a pass reads them, and nothing else.

The spread takes far longer to find than a pass over the terms does. What is kept is that of one unit, so that it serves
any `eps`, in the precision of the data and rounded outward: a bracket may grow by rounding and never shrinks. A single
number for the mean is rounded to the nearest, which only changes the middles of SVM and M: an exact mean is a number of
the data. Arrays that a formulation has no use for are not there.

`N` samples, `D` features.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protodask.data.arrays.array_store import ArraySpec
from protodask.data.format.schema import TARGET, WEIGHT
from protodask.engine import Arrays, Block
from protodask.evaluation.given_rows import usable_weights
from protodask.robust.formulations import Formulation, named, unit_terms
from protodask.robust.passes import Samples, tiles
from protodask.robust.terms import Floats, Terms
from protodask.robust.uncertain_rows import UncertainRows

RowsOfBlock = Callable[[Block], UncertainRows]
"""What a block's arrays say of its samples. Picklable: it travels to the workers."""

MEAN, MEAN_LOW, MEAN_HIGH, SPREAD, LOWER, UPPER = "mean", "mean_low", "mean_high", "spread", "lower", "upper"


@dataclass(frozen=True)
class TermsForm:
    """Which arrays hold the brackets of a formulation, and how."""

    formulation: Formulation
    n_features: int
    dtype: str = "float64"

    @classmethod
    def of(cls, formulation: str, n_features: int, dtype: str = "float64") -> TermsForm:
        return cls(named(formulation), n_features, dtype)

    @property
    def names(self) -> tuple[str, ...]:
        """The arrays (N, D)."""
        means = (MEAN,) if self.formulation in ("SVM", "M", "SMV", "SMV-I", "SM", "SM-I") else (MEAN_LOW, MEAN_HIGH)
        spread = () if self.formulation in ("SVM", "M", "S") else (SPREAD,)
        support = (LOWER, UPPER) if self.formulation.endswith("-I") else ()
        return (*means, *spread, *support)

    @property
    def specs(self) -> tuple[ArraySpec, ...]:
        """All arrays that are kept, with the class and the weight of each sample."""
        return (
            *(ArraySpec(name, self.dtype, self.n_features) for name in self.names),
            ArraySpec(TARGET.name, "int32"),
            ArraySpec(WEIGHT.name, "float64"),
        )

    @property
    def row_bytes(self) -> int:
        """Of a sample, as it is kept."""
        return len(self.names) * self.n_features * np.dtype(self.dtype).itemsize + 4 + 8

    def pack(self, terms: Terms) -> dict[str, NDArray[Any]]:
        """Terms of one unit of spread as they are kept."""
        dtype = np.dtype(self.dtype)
        bounds = {
            MEAN: lambda: terms.mean_low.astype(dtype),
            MEAN_LOW: lambda: rounded_down(terms.mean_low, dtype),
            MEAN_HIGH: lambda: rounded_up(terms.mean_high, dtype),
            SPREAD: lambda: rounded_up(terms.spread, dtype),
            LOWER: lambda: rounded_down(_there(terms.lower), dtype),
            UPPER: lambda: rounded_up(_there(terms.upper), dtype),
        }
        return {name: bounds[name]() for name in self.names}

    def unpack(self, arrays: Arrays, multiple: float) -> Terms:
        """The terms with so many units of spread."""

        def floats(name: str) -> Floats:
            return np.asarray(arrays[name], dtype=np.float64)

        low = floats(MEAN if MEAN in self.names else MEAN_LOW)
        high = low if MEAN in self.names else floats(MEAN_HIGH)
        spread = floats(SPREAD) * multiple if SPREAD in self.names else np.zeros_like(low)
        if LOWER in self.names:
            return Terms(low, high, spread, floats(LOWER), floats(UPPER))
        return Terms(low, high, spread)


def _there(support: Floats | None) -> Floats:
    if support is None:
        raise ValueError("terms without a support")
    return support


def rounded_down(values: Floats, dtype: np.dtype[Any]) -> NDArray[Any]:
    """The largest numbers of a type that are not above the values."""
    rounded = values.astype(dtype)
    return np.where(rounded > values, np.nextafter(rounded, np.asarray(-np.inf, dtype)), rounded)


def rounded_up(values: Floats, dtype: np.dtype[Any]) -> NDArray[Any]:
    """The smallest numbers of a type that are not below the values."""
    return -rounded_down(-values, dtype)


def pack_block(block: Block, rows_of: RowsOfBlock, form: TermsForm) -> Arrays:
    """The arrays of a block of samples as they are kept; the weight is 1 where the block has none."""
    specs = form.specs
    kept = {spec.name: np.empty(spec.shape(block.n_rows), dtype=spec.dtype) for spec in specs}
    for tile in tiles(block):
        rows = slice(tile.start - block.start, tile.stop - block.start)
        packed = form.pack(unit_terms(rows_of(tile), form.formulation))
        weight = usable_weights(tile)
        packed[TARGET.name] = tile[TARGET.name]
        packed[WEIGHT.name] = np.ones(tile.n_rows) if weight is None else weight
        for spec in specs:
            kept[spec.name][rows] = packed[spec.name]
    return kept


@dataclass(frozen=True)
class ClassAgainstRest:
    """What the kept arrays of a block ask of the plane of one class: a `SamplesOfBlock`."""

    form: TermsForm
    multiple: float
    """Units of spread."""
    positive: int
    """Code of the class that is 1."""
    cost: float
    """`C`, of a sample of weight 1."""

    def __call__(self, block: Block) -> Samples:
        sign = np.where(block[TARGET.name] == self.positive, 1.0, -1.0)
        return Samples(self.form.unpack(block.arrays, self.multiple), sign, self.cost * block[WEIGHT.name])
