"""Plain Zarr arrays as a source: any chunks, any blocks, and nothing missing."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.errors import refused

from protodask.data import ZarrArraysSource
from protodask.engine import Source
from protodask.errors import FormatError, StorageError


def store(path: Path, name: str, values: Any, chunks: tuple[int, ...]) -> Path:
    zarr.create_array(path / name, data=values, chunks=chunks, compressors=zarr.codecs.Crc32cCodec())
    return path / name


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.integers(1, 200), chunk=st.integers(1, 90), wide=st.integers(1, 3), exponent=st.integers(0, 8))
def test_read__does_not_depend_on_chunks(
    rows: int, chunk: int, wide: int, exponent: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("arrays")
    features = np.random.default_rng(rows).standard_normal((rows, 3))
    target = np.arange(rows) % 2
    source = ZarrArraysSource.open(
        store(folder, "X", features, (chunk, wide)), store(folder, "y", target, (chunk + 1,)), block_rows=2**exponent
    )
    assert isinstance(source, Source)
    assert not source.resident
    again = pickle.loads(pickle.dumps(source))
    assert again.key == source.key
    for number in range(source.layout.n_blocks):
        block = again.read(number)
        np.testing.assert_array_equal(block["features"], features[block.start : block.stop])
        np.testing.assert_array_equal(block["target"], target[block.start : block.stop])


def test_read__makes_numbers_floats(tmp_path: Path) -> None:
    source = ZarrArraysSource.open(store(tmp_path, "X", np.arange(20).reshape(10, 2), (4, 2)))
    block = source.read(0)
    assert block["features"].dtype == np.float32
    assert "target" not in block
    assert (source.n_rows, source.n_features, source.feature_names) == (10, 2, ("x0", "x1"))


def test_of__takes_opened_arrays(tmp_path: Path) -> None:
    features = np.random.default_rng(0).standard_normal((50, 2))
    place = store(tmp_path, "X", features, (7, 2))
    in_memory = zarr.create_array(zarr.storage.MemoryStore(), data=features, chunks=(7, 2))
    for array, resident in ((zarr.open_array(place, mode="r"), False), (in_memory, True)):
        source = ZarrArraysSource.of(array, block_rows=16)
        assert source.resident == resident
        np.testing.assert_array_equal(source.rows(5, 45)["features"], features[5:45])
    target = np.arange(50) % 2
    mixed = ZarrArraysSource.of(zarr.open_array(place, mode="r"), target, block_rows=16)
    assert not mixed.resident
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(mixed)).rows(5, 45)["target"], target[5:45])


def test_read__refuses_missing_values_and_damage(tmp_path: Path) -> None:
    features = np.zeros((40, 3))
    features[33, 2] = np.nan
    path = store(tmp_path, "X", features, (10, 3))
    source = ZarrArraysSource.open(path, block_rows=16)
    assert source.read(0).n_rows == 16
    with refused("bad-value", "x2", "missing or infinite", "row 33"):
        source.read(2)
    chunk = path / "c" / "0" / "0"
    chunk.parent.mkdir(parents=True, exist_ok=True)
    chunk.write_bytes(b"nonsense")
    with refused("damaged", path, "Rows 0 to 16", kind=FormatError):
        source.read(0)


def test_open__refuses_what_does_not_fit(tmp_path: Path) -> None:
    matrix = store(tmp_path, "X", np.zeros((10, 2)), (5, 2))
    with refused("wrong-shape", "(9,)", 10):
        ZarrArraysSource.open(matrix, store(tmp_path, "y", np.zeros(9), (5,)))
    with refused("wrong-shape", "(9,)"):
        ZarrArraysSource.open(store(tmp_path, "z", np.zeros(9), (5,)))
    with refused("not-found", tmp_path / "nowhere", kind=StorageError):
        ZarrArraysSource.open(tmp_path / "nowhere")
