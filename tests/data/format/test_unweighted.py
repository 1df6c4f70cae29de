"""The blocks of a dataset without its weights."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protodask.data import Column, write_dataset
from protodask.data.format.dataset import unweighted
from protodask.engine import Source, array_source

Arrays = dict[str, NDArray[Any]]


def test_unweighted_source__has_all_but_the_weights(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays: Arrays = {
        "features": rng.random((70, 2)).astype(np.float32),
        "target": rng.integers(0, 2, 70).astype(np.int32),
        "weight": rng.random(70),
        "inclusion": rng.uniform(0.1, 1, 70),
        "group": np.arange(70) // 7,
    }
    columns = (Column("a"), Column("b"))
    data = write_dataset(array_source(arrays, 32), tmp_path / "data", classes=(0, 1), columns=columns, block_rows=32)
    source: Source = pickle.loads(pickle.dumps(unweighted(data)))  # as it comes to a worker
    assert source == unweighted(data)
    assert source.layout == data.layout
    assert source.key != data.key, "cached blocks of one must not be taken for those of the other"
    assert not source.resident
    for number in range(3):
        block, whole = source.read(number), data.read(number)
        assert (block.number, block.start, set(block.arrays)) == (number, 32 * number, {"features", "target", "group"})
        for name in block.arrays:
            assert np.array_equal(block[name], whole[name])
