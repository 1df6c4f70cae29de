"""Probabilities as they are given, checked."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from protodask.engine.records import Floats
from protodask.errors import InputError, refusing


def read_probabilities(probability: ArrayLike) -> Floats:
    """One probability of being positive an item (n,)."""
    values = _as_array(probability)
    check_shape(values.shape, values.dtype)
    return _within(values.astype(np.float64))


def check_shape(shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Refuse what is not one number for each item."""
    _check_numbers(dtype)
    if len(shape) != 1:
        of_two = len(shape) == 2 and shape[1] == 2
        wanted = "those of being positive, such as probability[:, 1]" if of_two else "one for each item, of shape (n,)"
        raise InputError(
            "wrong-shape",
            f"The probabilities are of shape {shape}.",
            f"Give {wanted}; for a set of classes or labels for each row use decide_sets or decide_rows.",
        )
    if shape[0] == 0:
        raise InputError("no-rows", "There are no items to decide on.", "Give at least one probability.")


def check_any(n_rows: int) -> None:
    """Refuse to decide on nothing."""
    if n_rows == 0:
        raise InputError("no-rows", "There are no rows to decide on.", "Give at least one row with a probability.")


def read_rows(probability: ArrayLike, columns: str) -> Floats:
    """Probabilities of some rows (N, columns); there may be no row."""
    values = _as_array(probability)
    _check_numbers(values.dtype)
    if values.ndim != 2 or values.shape[1] == 0:
        raise InputError(
            "wrong-shape",
            f"The probabilities are of shape {values.shape}.",
            f"Give a row for each item and a column for each {columns}; for one decision on all items use decide.",
        )
    return _within(values.astype(np.float64))


def _as_array(probability: ArrayLike) -> NDArray[Any]:
    if np.ma.is_masked(probability):
        raise InputError(
            "bad-value", "Some of the probabilities are masked.", "Fill them in, or leave those items out."
        )
    remedy = "Give numbers between 0 and 1, in rows of one length."
    with refusing(ValueError, "wrong-shape", "The probabilities are no array", remedy):
        return np.asarray(probability)


def _check_numbers(dtype: np.dtype[Any]) -> None:
    if dtype.kind not in "fiub":
        raise InputError("wrong-type", f"The probabilities are of type {dtype}.", "Give numbers between 0 and 1.")


def _within(values: Floats) -> Floats:
    for place in _places_of_others(values):
        at = ", ".join(map(str, place))
        raise InputError(
            "bad-value",
            f"Probability [{at}] is {float(values[tuple(place)])!r}.",
            "Give probabilities between 0 and 1, none missing; scores become probabilities by calibration.",
        )
    return values


def check_probabilities(values: NDArray[np.floating[Any]], first_row: int) -> None:
    """Refuse what is no probability; `first_row` is the number of the first value's row."""
    for place in _places_of_others(values):
        raise InputError(
            "bad-value",
            f"Row {first_row + int(place[0])} (counted from 0) has {values[tuple(place)]} for a probability.",
            "Give numbers from 0 to 1, none missing; scores become probabilities by calibration.",
        )


def _places_of_others(values: NDArray[np.floating[Any]]) -> NDArray[np.intp]:
    """Where the first value is that is no probability, if there is one."""
    return np.argwhere(~((values >= 0) & (values <= 1)))[:1]
