"""Arrays as sources: any chunks, any blocks, and nothing missing."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.errors import refused

from protodask.data import ZarrArraysSource
from protodask.data.arrays.rows import read_rows
from protodask.data.arrays.zarr_arrays import MOST_ROWS, column_source
from protodask.engine import Block, Reduction, Source, identity, thread_engine
from protodask.errors import FormatError, StorageError


def store(path: Path, name: str, values: Any, chunks: tuple[int, ...]) -> Path:
    zarr.create_array(path / name, data=values, chunks=chunks, compressors=zarr.codecs.Crc32cCodec())
    return path / name


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
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


@pytest.mark.parametrize("dtype", ["<f8", ">f8"])
def test_read__keeps_float64_in_either_byte_order(tmp_path: Path, dtype: str) -> None:
    values = (np.arange(20) / 3).reshape(10, 2)
    zarr.create_array(tmp_path / "X", data=values.astype(dtype), chunks=(4, 2), zarr_format=2)
    block = ZarrArraysSource.open(tmp_path / "X").read(0)
    assert block["features"].dtype == np.dtype(np.float64)
    np.testing.assert_array_equal(block["features"], values)


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
    with refused("wrong-shape", "(0, 2)", "at least one"):
        ZarrArraysSource.open(store(tmp_path, "none", np.zeros((0, 2)), (5, 2)))
    with refused("not-found", tmp_path / "nowhere", kind=StorageError):
        ZarrArraysSource.open(tmp_path / "nowhere")


SCORES = np.random.default_rng(0).normal(size=5000)
COUNTS = np.arange(5000)


def _stored(folder: Path, values: Any) -> Any:
    array = zarr.create_array(str(folder / "array.zarr"), shape=values.shape, dtype=values.dtype, chunks=(700,))
    array[:] = values
    return array


def _saved(folder: Path, values: Any) -> str:
    np.save(folder / "array.npy", values)
    return str(folder / "array.npy")


KINDS: dict[str, Callable[[Path, Any], Any]] = {
    "numpy": lambda folder, values: values,
    "list": lambda folder, values: values.tolist(),
    "pandas": lambda folder, values: pd.Series(values),
    "dask": lambda folder, values: da.from_array(values, chunks=(900,)),
    "dask series": lambda folder, values: dd.from_pandas(pd.Series(values), npartitions=3),
    "zarr": _stored,
    "npy": _saved,
}


def _rows_of(block: Block) -> list[tuple[int, Any, Any]]:
    return [(block.start, block["score"], block["count"])]


def _append(left: list[Any], right: list[Any]) -> list[Any]:
    return left + right


ROWS: Reduction[list[Any], list[Any]] = Reduction(_rows_of, _append, identity)


@pytest.mark.parametrize("kind", KINDS)
def test_column_source__has_the_rows_of_any_kind_of_array(kind: str, tmp_path: Path) -> None:
    source = column_source({"score": KINDS[kind](tmp_path, SCORES), "count": COUNTS}, block_rows=512)
    assert source.layout.n_blocks == 10
    with thread_engine(2) as engine:
        blocks = engine.reduce(source, ROWS)
    assert [start for start, _, _ in blocks] == list(range(0, 5000, 512))
    np.testing.assert_array_equal(np.concatenate([score for _, score, _ in blocks]), SCORES)
    np.testing.assert_array_equal(np.concatenate([count for _, _, count in blocks]), COUNTS)
    np.testing.assert_array_equal(read_rows(source, 500, 1030)["score"], SCORES[500:1030])


def test_column_source__computes_a_dask_array_a_block_at_a_time() -> None:
    longest: list[int] = []

    def seen(values: Any) -> Any:
        longest.append(len(values))
        return values

    lazy = da.from_array(SCORES, chunks=(1000,)).map_blocks(seen, dtype=float, meta=np.empty(0))
    source = column_source({"score": lazy, "count": COUNTS}, block_rows=1024)
    assert not source.resident
    np.testing.assert_array_equal(source.read(1)["score"], SCORES[1024:2048])
    assert max(longest) <= 1000
    assert len(longest) <= 2


def test_column_source__blocks_are_as_large_as_chunks_within_limits() -> None:
    def rows(total: int, chunk: int) -> int:
        return column_source({"x": da.zeros(total, chunks=(chunk,))}).layout.block_rows

    assert rows(2**24, 2**10) == 2**18
    assert rows(2**24, 1_000_000) == 2**20
    assert rows(2**24, 2**24) == MOST_ROWS


@pytest.mark.parametrize("columns", [{"a": np.ones(3), "b": np.ones(4)}, {"a": np.ones(3), "b": np.ones((3, 1))}])
def test_column_source__of_different_shapes(columns: Any) -> None:
    with refused("wrong-shape", "a", "b"):
        column_source(columns)


def test_column_source__of_a_matrix() -> None:
    with refused("wrong-shape", "a", "(3, 2)"):
        column_source({"a": np.ones((3, 2))})


@pytest.mark.parametrize("kind", ["numpy", "dask"])
def test_column_source__of_tables(kind: str) -> None:
    table, labels = np.random.default_rng(0).random((5000, 3)), np.arange(5000)
    given = table if kind == "numpy" else da.from_array(table, chunks=(700, 2))
    source = column_source({"p": given, "y": labels}, tables=["p"])
    blocks = [source.read(number) for number in range(source.layout.n_blocks)]
    np.testing.assert_array_equal(np.concatenate([block["p"] for block in blocks]), table)
    np.testing.assert_array_equal(np.concatenate([block["y"] for block in blocks]), labels)
    with refused("wrong-shape", "y", "(4999,)", "(5000, 3)"):
        column_source({"p": given, "y": labels[:-1]}, tables=["p"])
    with refused("wrong-shape", "p", "(5000,)"):
        column_source({"p": labels}, tables=["p"])
