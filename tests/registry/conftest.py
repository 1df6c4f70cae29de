"""Models to publish, small ones: what is in them hardly matters to a registry."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support import models

from protodask.prototypes.model import PrototypeSet
from protodask.registry import Registry

Models = Callable[[int], str]
AtOnce = Callable[[str, list[list[str]]], list[int]]


def make_model(number: int, n_batches: int = 0) -> PrototypeSet:
    """The model of a number; different numbers give different ones."""
    fit = {
        "dataset": f"data-{number}",
        "rows": 100 + number,
        "config": {"n_batches": n_batches, "seed": number},
        "environment": {"protodask": "0.1.0", "python": "3.11.0", "numpy": "2.1.0", "processor": "any"},
    }
    model = models.make_model(
        number,
        prototypes=(3,) * n_batches,
        classes=("no", "yes"),
        feature_names=("a", "b", "c"),
        target_name="kind",
        precision="float32",
        provenance={"fits": [fit]},
    )
    return replace(model, batches=tuple(replace(batch, feature_index=np.array([0, 2])) for batch in model.batches))


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


@pytest.fixture(scope="session")
def publish_at_once() -> AtOnce:
    """Publish as several writers do at once, each its models one after the other; the numbers of the versions."""

    def publish(place: str, models: list[list[str]]) -> list[int]:
        def in_turn(paths: list[str]) -> list[int]:
            return [Registry.create(place).publish(path, alias="champion").version.number for path in paths]

        with ThreadPoolExecutor(len(models)) as writers:
            return [number for numbers in writers.map(in_turn, models) for number in numbers]

    return publish
