"""Rows, datasets and engines that the tests of the selection room share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from protodask.data import Dataset, write_dataset
from protodask.data.format.schema import Column
from protodask.engine import Engine, array_source, thread_engine

Arrays = dict[str, NDArray[Any]]
BLOCK_ROWS = 64


def make_arrays(n_rows: int, weights: str = "") -> Arrays:
    """A noisy board of three classes; the last feature says nothing."""
    rng = np.random.default_rng(n_rows)
    features = np.round(rng.uniform(size=(n_rows, 3)) * [3.0, 1.0, 1.0] * 1024) / 1024
    squares = np.floor(features[:, 0]) + np.floor(2 * features[:, 1])
    noisy = np.where(rng.random(n_rows) < 0.1, rng.integers(0, 3, n_rows), squares)
    arrays: Arrays = {"features": features.astype(np.float32), "target": (noisy % 3).astype(np.int32)}
    if "weight" in weights:
        arrays["weight"] = rng.integers(0, 4, n_rows) / 2
    if "inclusion" in weights:
        arrays["inclusion"] = rng.integers(1, 5, n_rows) / 4
    return arrays


def write(arrays: Arrays, path: Path, block_rows: int = BLOCK_ROWS) -> Dataset:
    columns = tuple(Column(f"x{position}") for position in range(arrays["features"].shape[1]))
    with thread_engine(1, 2**26) as engine:
        return write_dataset(
            array_source(arrays, block_rows),
            path,
            classes=(0, 1, 2),
            columns=columns,
            engine=engine,
            block_rows=block_rows,
        )


@pytest.fixture(scope="session")
def rows() -> Arrays:
    return make_arrays(300, "weight inclusion")


@pytest.fixture(scope="session")
def dataset(rows: Arrays, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Five blocks, the last of them short."""
    return write(rows, tmp_path_factory.mktemp("data") / "data.zarr")


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    with thread_engine(2, 2**30) as opened:  # room to keep what they read
        yield opened


@pytest.fixture(scope="session")
def write_rows() -> Callable[..., Dataset]:
    return write
