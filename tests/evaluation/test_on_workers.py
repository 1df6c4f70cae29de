"""Worker processes come to the same as threads; one cluster for all of the room."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client, LocalCluster
from support.models import make_model

from protodask.data import Column, write_dataset
from protodask.engine import Engine, array_source, open_engine, thread_engine
from protodask.evaluation import subsample
from protodask.evaluation.challenging import Rival, compare_models
from protodask.evaluation.stream import Watch, learn_bins, watch_stream

ROWS = 700
CLASSES = ("a", "b", "c")
RATES = {"a": 0.1, "b": 0.5}
RNG = np.random.default_rng(0)
ARRAYS: dict[str, Any] = {
    "features": RNG.normal(size=(ROWS, 2)),
    "target": RNG.integers(0, 3, ROWS).astype(np.int32),
    "weight": RNG.integers(0, 4, ROWS).astype(np.float64),
}


@pytest.fixture(scope="module")
def workers(start_cluster: Callable[[int], LocalCluster]) -> Iterator[Engine]:
    with Client(start_cluster(2)) as client, open_engine(client) as opened:
        yield opened


def test_passes__are_the_same_to_the_last_bit(workers: Engine) -> None:
    champion, challenger = (
        make_model(seed, prototypes=(9,), n_features=2, n_active=2, classes=classes)
        for seed, classes in ((1, ("c", "b")), (0, CLASSES))
    )
    source = array_source(ARRAYS, 64)
    rivals = Rival(champion, np.array([2, 1])), Rival(challenger, np.arange(3))

    def run(engine: Engine) -> list[Any]:
        bins, familiarity = learn_bins(engine, source, challenger, 1)
        sums = watch_stream(engine, source, Watch(challenger, 1, bins, familiarity, np.arange(3)))
        compared = compare_models(*rivals, source, np.arange(3), engine, draws=200)
        return [compared, *(each.tobytes() for each in (sums.figures.mean, sums.probability, sums.counts.weight))]

    with thread_engine(1) as one, thread_engine(3) as three:
        assert run(one) == run(three) == run(workers)


@pytest.mark.slow
def test_subsample__keeps_the_same_rows(workers: Engine, tmp_path: Path) -> None:
    columns = (Column("x"), Column("y"))
    data = write_dataset(array_source(ARRAYS), tmp_path / "all", classes=CLASSES, columns=columns, block_rows=64)
    with thread_engine(2) as engine:
        here = subsample(data, tmp_path / "here", rates=RATES, engine=engine)
    assert subsample(data, tmp_path / "there", rates=RATES, engine=workers).key == here.key
