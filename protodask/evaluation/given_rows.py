"""Rows as callers give them, arrays or a source of blocks, and what every statistic asks of them."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protodask.data.arrays.zarr_arrays import column_source
from protodask.data.format.schema import INCLUSION, row_weights
from protodask.engine import Block, Engine, EngineLike, Source, open_engine
from protodask.engine.records import Floats
from protodask.errors import InputError


def source_of(given: Mapping[str, Any], needed: Mapping[str, str], *, tables: Collection[str] = ()) -> Source:
    """The arrays that are not None, of one value a row, as a source; or the source that the first of them is.

    `needed` says of those that must not be None what to do; `tables` are (N, K).
    """
    (name, first), *rest = given.items()
    others = {other: array for other, array in rest if array is not None}
    if isinstance(first, Source):
        if others:
            raise InputError(
                "settings-conflict",
                f"A source was given together with arrays: {', '.join(others)}.",
                "Let the source hold them all, or give arrays only.",
            )
        return first
    for other, remedy in needed.items():
        if other not in others:
            raise InputError("setting-missing", f"There is a {name} of each row, and no {other}.", remedy)
    return column_source({name: first, **others}, tables=tables)


@contextmanager
def reading(source: Source, given: object, engine: EngineLike) -> Iterator[Engine]:
    """An engine that forgets the source in the end, unless it is what the caller gave, who may read it again."""
    with open_engine(engine) as opened:
        yield opened
        if source is not given:
            opened.forget(source)


def check_rows(source: Source) -> Source:
    """The source, if it has any rows."""
    if source.layout.n_rows == 0:
        raise InputError("no-rows", "There are no rows to evaluate.", "Give at least one row.")
    return source


def squared(weight: Floats) -> Floats:
    """The squares of weights; `check_weight` refuses infinite ones once all rows are added up."""
    with np.errstate(over="ignore"):
        return np.square(weight)


def check_weight(weight: float, squares: float = 1.0) -> None:
    """Refuse the sums of the weights of all rows, and of their squares, unless one can divide by them."""
    if weight > 0 and math.isfinite(weight):
        if squares > 0 and math.isfinite(squares):
            return
        raise InputError(
            "overflow",
            "The squares of the weights are too large, or too small, to be added up.",
            "Divide all weights by one number.",
        )
    if weight > 0:
        raise too_heavy()
    raise InputError(
        "no-rows",
        f"There is nothing to evaluate: the weights of the rows add up to {weight:g}.",
        "Give at least one row of positive weight.",
    )


def too_heavy() -> InputError:
    """The error of weights whose sum overflows."""
    return InputError(
        "overflow", "The weights add up to more than can be counted.", "Divide all weights by one number."
    )


def require(block: Block, fits: NDArray[np.bool_], seen: str, remedy: str) -> None:
    """Refuse a block unless every row fits; `{row}` in what was seen is the number of the first that does not."""
    if not fits.all():
        raise InputError("bad-value", seen.format(row=block.start + int(np.argmin(fits))), remedy)


def row_numbers(block: Block, name: str) -> NDArray[np.float64]:
    """An array of one number for each row, or an error that says what it is instead."""
    values = block[name]
    if values.ndim == 1 and values.dtype.kind in "biuf":
        return values.astype(np.float64, copy=False)
    raise InputError(
        "wrong-shape" if values.ndim != 1 else "wrong-type",
        f"The {name} has the shape {values.shape} and the type {values.dtype}.",
        f"Give numbers, one {name} for each row.",
    )


def usable_weights(block: Block) -> NDArray[np.float64] | None:
    """The weights of the rows of a block (see `row_weights`), or an error that names the first that is none."""
    if INCLUSION.name in block:
        inclusion = row_numbers(block, INCLUSION.name)
        require(
            block,
            (inclusion > 0) & (inclusion <= 1),
            "The inclusion probability of row {row} is not above 0 and at most 1.",
            "Give the probability with which each row was kept.",
        )
    weight = row_weights(block)
    if weight is not None:
        require(
            block,
            (weight >= 0) & (weight < np.inf),
            "The weight of row {row} is missing, infinite or negative.",
            "Give weights of zero or more, and inclusion probabilities that can be divided by.",
        )
    return weight
