"""Rows, tables and engines that the tests of the data room share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support.datasets import Write, rows_of

from protodask.data import Column, Dataset, write_dataset
from protodask.engine import Engine, array_source

Arrays = dict[str, NDArray[Any]]


@pytest.fixture(scope="session")
def make_arrays() -> Callable[..., Arrays]:
    """Encoded rows of three features and three classes, with weights."""

    def make(rows: int, seed: int = 0, dtype: str = "float32") -> Arrays:
        generator = np.random.default_rng(seed)
        return {
            "features": (generator.standard_normal((rows, 3)) * [1, 100, 0.01] + [0, 1e4, 5]).astype(dtype),
            "target": generator.integers(3, size=rows).astype(np.int32),
            "weight": generator.random(rows),
            "inclusion": generator.uniform(0.1, 1, rows),
        }

    return make


@pytest.fixture(scope="session")
def write(engine: Engine) -> Write:
    """Write arrays as a dataset of the columns a, b and c and the classes p, q and r."""

    def run(arrays: Arrays, path: Path | str, *, cut: int | None = None, **options: Any) -> Dataset:
        return write_dataset(
            array_source(arrays, cut),
            path,
            classes=options.pop("classes", ("p", "q", "r")),
            columns=options.pop("columns", (Column("a"), Column("b"), Column("c"))),
            engine=engine,
            **options,
        )

    return run


@pytest.fixture(scope="session")
def all_rows() -> Callable[[Dataset], Arrays]:
    """Everything a dataset holds."""

    return rows_of
