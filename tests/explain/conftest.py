"""Models and an engine that the tests of the explain room share."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from protodask.data.schema import Column
from protodask.engine import Engine, thread_engine
from protodask.prototypes.model import Batch, PrototypeSet

MakeModel = Callable[..., PrototypeSet]


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """Two threads."""
    with thread_engine(2, 2**28) as opened:
        yield opened


@pytest.fixture(scope="session")
def make_model() -> MakeModel:
    """A made-up model, whose batches have so many prototypes; a batch of none looks at no feature either."""

    def make(
        seed: int = 0, *, prototypes: tuple[int, ...] = (6, 7), n_features: int = 4, n_classes: int = 3
    ) -> PrototypeSet:
        rng = np.random.default_rng(seed)

        def batch(length: int) -> Batch:
            width = n_features - 1 if length else 0
            return Batch(
                feature_index=np.sort(rng.choice(n_features, width, replace=False)).astype(np.int64),
                feature_weight=rng.uniform(0.1, 2, width),
                center=rng.normal(size=width),
                scale=rng.uniform(0.5, 2, width),
                prototypes=rng.normal(size=(length, width)),
                prototype_class=np.sort(rng.integers(0, n_classes, length)),
                prototype_weight=rng.uniform(0.1, 2, length),
                row=np.sort(rng.choice(1000, length, replace=False)),
            )

        names = tuple(f"x{position}" for position in range(n_features))
        return PrototypeSet(
            marginals=rng.dirichlet(np.ones(n_classes)),
            classes=tuple(f"class {position}" for position in range(n_classes)),
            feature_names=names,
            columns=tuple(Column(name) for name in names),
            batches=tuple(batch(length) for length in prototypes),
            precision="float64",
        )

    return make


@pytest.fixture(scope="session")
def model(make_model: MakeModel) -> PrototypeSet:
    """Two batches of 6 and 7 prototypes, four features, three classes."""
    return make_model()
