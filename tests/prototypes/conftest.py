"""Rows, sources, engines and comparisons that the tests of the prototypes room share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support import models

from protodask.data.format.schema import Column
from protodask.data.format.summary import summarize
from protodask.engine import Engine, array_source, thread_engine
from protodask.prototypes.model import PrototypeSet
from protodask.prototypes.splines import Spline, SplineCalibration
from protodask.prototypes.training_data import TrainingData

Arrays = dict[str, NDArray[Any]]

BATCH_FIELDS = (
    "feature_index",
    "feature_weight",
    "center",
    "scale",
    "prototypes",
    "prototype_class",
    "prototype_weight",
    "row",
)


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """Two threads, with room to keep what they read."""
    with thread_engine(2, 2**30) as opened:
        yield opened


@pytest.fixture(scope="session")
def make_rows() -> Callable[..., Arrays]:
    """A noisy board of squares, four classes if asked; the last feature says nothing. Weights and inclusions on demand.

    All features are multiples of 1/1024, so that they are the same numbers in float32 and float64.
    """

    def make(
        n_rows: int,
        seed: int = 0,
        *,
        n_classes: int = 2,
        n_features: int = 3,
        dtype: str = "float64",
        weights: str = "",
    ) -> Arrays:
        rng = np.random.default_rng(seed)
        x = np.round(rng.uniform(size=(n_rows, n_features)) * [3.0, *[1.0] * (n_features - 1)] * 1024) / 1024
        squares = np.floor(x[:, 0]) + np.floor(2 * x[:, 1])
        noisy = np.where(rng.random(n_rows) < 0.1, rng.integers(0, n_classes, n_rows), squares)
        arrays: Arrays = {"features": x.astype(dtype), "target": (noisy % n_classes).astype(np.int32)}
        if "weight" in weights:
            arrays["weight"] = rng.integers(0, 3, n_rows) * 0.75
        if "inclusion" in weights:
            arrays["inclusion"] = rng.uniform(0.2, 1.0, n_rows)
        return arrays

    return make


@pytest.fixture(scope="session")
def training_data(engine: Engine) -> Callable[..., TrainingData]:
    """Arrays in memory as data to train on."""

    def make(arrays: Arrays, block_rows: int = 64, n_classes: int = 2) -> TrainingData:
        source = array_source(arrays, block_rows)
        names = tuple(f"x{position}" for position in range(arrays["features"].shape[1]))
        return TrainingData(
            source=source,
            array_names=tuple(arrays),
            summary=summarize(engine, source, n_classes),
            classes=tuple(range(n_classes)),
            feature_names=names,
            columns=tuple(Column(name) for name in names),
        )

    return make


@pytest.fixture(scope="session")
def make_model() -> Callable[..., PrototypeSet]:
    """A made-up model of so many batches; the second of three or more is empty."""

    def make(seed: int = 0, *, n_batches: int = 2, **others: Any) -> PrototypeSet:
        lengths = [0 if number == 1 and n_batches > 2 else 5 + number for number in range(n_batches)]
        provenance = {"fits": [{"rows": 3, "config": {"seed": 1}}]}
        return models.make_model(seed, prototypes=lengths, other_names=("weight",), provenance=provenance, **others)

    return make


@pytest.fixture(scope="session")
def make_calibration() -> Callable[..., SplineCalibration]:
    """A made-up calibration of a model of so many classes."""

    def make(seed: int = 0, *, n_batches: int = 2, n_classes: int = 3) -> SplineCalibration:
        rng = np.random.default_rng(seed)
        splines = tuple(
            Spline(np.sort(rng.random(length)), rng.random(length))
            for length in range(1, 2 if n_classes == 2 else n_classes + 1)
        )
        return SplineCalibration(splines, n_batches, n_bins=4, monotone=bool(seed % 2), rows=40, weight=40.5)

    return make


@pytest.fixture(scope="session")
def assert_same_bits() -> Callable[[PrototypeSet, PrototypeSet], None]:
    """Fail unless two models are the same to the last bit of every array of every batch."""

    def check(found: PrototypeSet, expected: PrototypeSet) -> None:
        assert (found.n_batches, found.round_ends) == (expected.n_batches, expected.round_ends)
        assert found.marginals.tobytes() == expected.marginals.tobytes()
        assert (found.classes, found.precision) == (expected.classes, expected.precision)
        for number, (left, right) in enumerate(zip(found.batches, expected.batches, strict=True), start=1):
            for name in BATCH_FIELDS:
                one, other = getattr(left, name), getattr(right, name)
                assert (one.dtype, one.shape) == (other.dtype, other.shape), f"{name} of batch {number}"
                assert one.tobytes() == other.tobytes(), f"{name} of batch {number}"
            assert (left.differences is None) == (right.differences is None), f"differences of batch {number}"
            if left.differences is not None and right.differences is not None:
                assert left.differences.others.tobytes() == right.differences.others.tobytes()
                assert left.differences.factor.tobytes() == right.differences.factor.tobytes()
                assert left.compared is not None
                assert right.compared is not None
                assert left.compared.tobytes() == right.compared.tobytes(), f"compared of batch {number}"

    return check
