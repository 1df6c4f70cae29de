"""Arrays read by ranges of rows: what is opened anew is read anew, and what is not in memory is not called so."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import dask.array
import numpy as np
import pytest
import zarr

from protodask.data.arrays.row_arrays import row_array, zarr_rows
from protodask.data.tables.tables import arrays_table, join_tables
from protodask.evaluation import auc


def test_zarr_rows__of_an_array_that_was_written_anew(tmp_path: Path) -> None:
    path = str(tmp_path / "x.zarr")
    for rows, value in ((10, 1.0), (30, 2.0), (30, 3.0)):
        stored = zarr.create_array(path, data=np.full((rows, 2), value), chunks=(rows // 2, 2), overwrite=True)
        for opened in (zarr_rows(path), row_array(stored), row_array(path)):
            assert opened.shape == (rows, 2)
            np.testing.assert_array_equal(opened.slice(1, rows), np.full((rows - 1, 2), value))


def test_zarr_rows__are_told_apart_by_their_opening(tmp_path: Path) -> None:
    path = str(tmp_path / "x.zarr")
    zarr.create_array(path, data=np.zeros((10, 2)))
    opened = zarr_rows(path)
    assert pickle.loads(pickle.dumps(opened)) == opened
    assert zarr_rows(path) != opened


def edited(path: Path, mode: Literal["c", "r+"]) -> Any:
    array = np.load(path, mmap_mode=mode)
    array[3:5] = -1
    return array


def replaced(path: Path) -> Any:
    array = np.load(path, mmap_mode="r")
    path.unlink()
    return array


VIEWS: dict[str, Callable[[Path], Any]] = {
    "whole": lambda path: np.load(path, mmap_mode="r"),
    "reversed": lambda path: np.load(path, mmap_mode="r")[::-1],
    "columns reversed": lambda path: np.load(path, mmap_mode="r")[:, ::-1],
    "transposed": lambda path: np.load(path, mmap_mode="r").T,
    "of another type": lambda path: np.load(path, mmap_mode="r").view(np.int64),
    "of bytes swapped": lambda path: np.load(path, mmap_mode="r").view(">f8"),
    "sliced": lambda path: np.load(path, mmap_mode="r")[4:],
    "edited in memory": lambda path: edited(path, "c"),
    "edited in the file": lambda path: edited(path, "r+"),
    "with an offset": lambda path: np.memmap(path, dtype=np.float64, mode="r", offset=120, shape=(9, 9)),
    "taken away": replaced,
}


@pytest.mark.parametrize("view", list(VIEWS))
def test_row_array__of_a_memory_map_is_what_it_shows(view: str, tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.random.default_rng(0).standard_normal((9, 9)))
    array = VIEWS[view](path)
    found = row_array(array)
    np.testing.assert_array_equal(found.slice(1, 8), np.array(array)[1:8])
    assert found.dtype == array.dtype
    assert (not found.resident) == (view == "whole")  # tasks elsewhere open the file themselves


@pytest.mark.parametrize("view", ["whole", "reversed", "edited in memory"])
def test_auc__of_a_memory_map_is_that_of_what_it_shows(view: str, tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    label = generator.integers(0, 2, 500)
    path = tmp_path / "score.npy"
    np.save(path, label + generator.standard_normal(500))
    score = VIEWS[view](path)
    assert auc(score, label) == auc(np.array(score), label)


def test_table__is_in_memory_where_its_features_are() -> None:
    features, target = np.zeros((100, 2)), np.arange(100)
    names = ("a", "b")
    lazy = arrays_table(names, row_array(dask.array.from_array(features, chunks=(30, 2))), {"y": row_array(target)})
    resident = arrays_table(names, row_array(features), {"y": row_array(dask.array.from_array(target, chunks=40))})
    assert (lazy.resident, resident.resident) == (False, True)
    assert not join_tables([lazy, resident]).resident
    assert join_tables([resident, resident]).resident
    sent = pickle.loads(pickle.dumps(lazy))
    np.testing.assert_array_equal(sent.read(1)["y"], target[30:60])


def test_row_array__of_a_zip_file_is_read_by_ranges_and_travels(tmp_path: Path) -> None:
    values = np.arange(60.0).reshape(20, 3)
    with zarr.storage.ZipStore(tmp_path / "a.zip", mode="w") as store:
        zarr.create_array(store, name="x", data=values, chunks=(8, 3))
    with zarr.storage.ZipStore(tmp_path / "a.zip", mode="r") as store:
        opened = row_array(zarr.open_array(store, path="x", mode="r"))
        assert not opened.resident
        assert (opened.shape, opened.edges) == ((20, 3), (0, 20))
        again = pickle.loads(pickle.dumps(opened))
        for one in (opened, again):
            np.testing.assert_array_equal(one.slice(7, 13), values[7:13])


@pytest.mark.parametrize("mode", ["w", "a"])
def test_row_array__of_a_zip_file_that_is_written_to_does_not_open_it_anew(
    mode: Literal["w", "a"], tmp_path: Path
) -> None:
    values = np.arange(60.0).reshape(20, 3)
    with zarr.storage.ZipStore(tmp_path / "a.zip", mode=mode) as store:
        array = zarr.create_array(store, name="x", data=values)
        opened = row_array(array)
        again = pickle.loads(pickle.dumps(opened))
        assert again.resident
        np.testing.assert_array_equal(again.slice(7, 13), values[7:13])
    with zarr.storage.ZipStore(tmp_path / "a.zip", mode="r") as store:
        np.testing.assert_array_equal(np.asarray(zarr.open_array(store, path="x", mode="r")), values)


def test_row_array__of_a_store_in_memory_is_in_memory() -> None:
    values = np.arange(60.0).reshape(20, 3)
    opened = row_array(zarr.create_array(zarr.storage.MemoryStore(), name="x", data=values))
    assert opened.resident
    np.testing.assert_array_equal(opened.slice(7, 13), values[7:13])
