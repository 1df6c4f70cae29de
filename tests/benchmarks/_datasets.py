"""The six datasets that model quality is measured on, and how they are split.

`N` rows, `D` features; the test rows are 30 per cent, stratified by class.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.model_selection import train_test_split

from protodask.data.format.schema import FEATURES, TARGET
from protodask.data.tables.synthetic import synthetic_source

Features = NDArray[np.float64]
Target = NDArray[np.int64]

SYNTHETIC_ROWS = 6400
TEST_SHARE = 0.3


@dataclass(frozen=True)
class Split:
    """Rows to train on and rows to test with."""

    train_features: Features
    train_target: Target
    test_features: Features
    test_target: Target


def synthetic(name: str, rows: int, seed: int = 0, n_features: int | None = None) -> tuple[Features, Target]:
    """Rows of the package's own sample data."""
    arrays = synthetic_source(name, rows, seed=seed, n_features=n_features, dtype="float64").rows(0, rows)
    return arrays[FEATURES.name], arrays[TARGET.name].astype(np.int64)


def _bundled(load: Callable[..., Any], n_features: int | None = None) -> tuple[Features, Target]:
    features, target = load(return_X_y=True)
    return np.asarray(features[:, :n_features], dtype=np.float64), np.asarray(target, dtype=np.int64)


DATASETS: dict[str, Callable[[], tuple[Features, Target]]] = {
    "iris": lambda: _bundled(load_iris, 2),  # all four features separate the classes almost perfectly
    "wine": lambda: _bundled(load_wine),
    "cancer": lambda: _bundled(load_breast_cancer),
    "digits": lambda: _bundled(load_digits),
    "checker": lambda: synthetic("checker", SYNTHETIC_ROWS),
    "xor": lambda: synthetic("xor", SYNTHETIC_ROWS, n_features=6),
}


def split(features: Features, target: Target, seed: int) -> Split:
    """The split of this seed: the same for every method."""
    train_features, test_features, train_target, test_target = train_test_split(
        features, target, test_size=TEST_SHARE, random_state=seed, stratify=target
    )
    return Split(train_features, train_target, test_features, test_target)
