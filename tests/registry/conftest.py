"""Models to publish, small ones: what is in them hardly matters to a registry."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from protodask.data.schema import Column
from protodask.prototypes.model import Batch, PrototypeSet

Models = Callable[[int], str]


def make_model(number: int, n_batches: int = 0) -> PrototypeSet:
    """The model of a number; different numbers give different ones."""
    random = np.random.default_rng(number)
    share = 0.1 + 0.8 * random.random()
    fit = {
        "dataset": f"data-{number}",
        "rows": 100 + number,
        "config": {"n_batches": n_batches, "seed": number},
        "environment": {"protodask": "0.1.0", "python": "3.11.0", "numpy": "2.1.0", "processor": "any"},
    }
    return PrototypeSet(
        marginals=np.array([share, 1 - share]),
        classes=("no", "yes"),
        feature_names=("a", "b", "c"),
        columns=(Column("a"), Column("b"), Column("c")),
        target_name="kind",
        other_names=(),
        batches=tuple(_batch(random) for _ in range(n_batches)),
        precision="float32",
        provenance={"fits": [fit]},
    )


def _batch(random: np.random.Generator) -> Batch:
    return Batch(
        feature_index=np.array([0, 2]),
        feature_weight=random.uniform(1, 2, 2),
        center=random.normal(size=2),
        scale=random.uniform(1, 2, 2),
        prototypes=random.normal(size=(3, 2)),
        prototype_class=np.array([0, 1, 1]),
        prototype_weight=random.uniform(1, 2, 3),
        row=np.array([3, 5, 8]),
    )


@pytest.fixture(scope="session")
def model_at(tmp_path_factory: pytest.TempPathFactory) -> Models:
    """Where the model of a number lies."""
    folder = tmp_path_factory.mktemp("models")

    def place(number: int) -> str:
        path: Path = folder / f"{number}.zarr"
        if not path.exists():
            make_model(number, number % 2).save(path)
        return str(path)

    return place
