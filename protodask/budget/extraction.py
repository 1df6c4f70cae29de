"""Running extractors: functions that make a number or a vector of an item, which is a feature."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from protodask.budget.polynomials import Floats
from protodask.engine import one_blas_thread
from protodask.errors import InputError

Extractor = Callable[[Any], Any]
Clock = Callable[[], float]

COLLECT_EVERY = 100
"""Items between collections of garbage."""


@dataclass(frozen=True)
class Extracted:
    """What extractors made of items, and how long that took."""

    matrix: Floats
    """(items, columns): the columns of a feature beside each other, features in order."""
    widths: tuple[int, ...]
    """Columns of each feature."""
    seconds: Floats
    """(features, items, repeats)."""


def check_extractors(extractors: object) -> None:
    """Refuse what cannot be run."""
    if not isinstance(extractors, Mapping) or not extractors:
        raise InputError(
            "bad-setting",
            f"extractors is {type(extractors).__name__ if extractors else 'empty'}.",
            "Give a mapping from the name of each feature to a function of an item.",
        )
    for name, function in extractors.items():
        if not isinstance(name, str) or not callable(function):
            raise InputError(
                "wrong-type",
                f"The extractor {name!r} is a {type(function).__name__}.",
                "Give functions of an item, by text names.",
            )


def extract(extractors: Mapping[str, Extractor], items: Sequence[Any], repeats: int, clock: Clock) -> Extracted:
    """Run every extractor on every item, `repeats` times; values are those of the last time.

    Each runs once on the first item before it is timed, and all items are gone through before any is repeated.
    """
    with undisturbed():
        first = [_value(function, next(iter(items)), name, 0) for name, function in extractors.items()]
        widths = tuple(len(value) for value in first)
        ends = np.cumsum(widths)
        matrix = np.empty((len(items), int(ends[-1])))
        seconds = np.empty((len(widths), len(items), repeats))
        for repeat in range(repeats):
            for number, item in enumerate(items):
                for row, (name, function) in enumerate(extractors.items()):
                    start = clock()
                    value = _value(function, item, name, number)
                    seconds[row, number, repeat] = clock() - start
                    if len(value) != widths[row]:
                        raise InputError(
                            "user-code",
                            f"The extractor {name!r} gave {len(value)} numbers for item {number}, and "
                            f"{widths[row]} for item 0.",
                            "Have it give as many for every item.",
                        )
                    matrix[number, ends[row] - widths[row] : ends[row]] = value
                if number % COLLECT_EVERY == COLLECT_EVERY - 1:
                    gc.collect(1)  # what is young: garbage is not collected by itself, and not while anything is timed
    return Extracted(matrix, widths, seconds)


@contextmanager
def undisturbed() -> Iterator[None]:
    """One BLAS thread, and no garbage collection."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        with one_blas_thread():
            yield
    finally:
        if collecting:
            gc.enable()


def _value(function: Extractor, item: Any, name: str, number: int) -> Floats:
    try:
        found = function(item)
    except Exception as error:
        raise InputError(
            "user-code",
            f"The extractor {name!r} failed on item {number} ({type(error).__name__}: {error}).",
            "Mend it, or leave that item out.",
        ) from error
    try:
        return vector(found)
    except ValueError as error:
        raise InputError(
            "user-code",
            f"The extractor {name!r} gave {error} for item {number}.",
            "Have it give a finite number, or a one-dimensional array of a fixed number of them.",
        ) from error


def vector(value: Any) -> Floats:
    """A feature as its columns; a ValueError says what it is where it is not one."""
    try:
        found = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"a {type(value).__name__} that is no number") from None
    if found.ndim == 0:
        found = found[None]
    if found.ndim != 1 or not len(found):
        raise ValueError(f"an array of shape {found.shape}")
    if not np.isfinite(found).all():
        raise ValueError("a number that is not finite")
    return found
