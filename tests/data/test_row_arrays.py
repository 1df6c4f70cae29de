"""Arrays read by ranges of rows: what is opened anew is read anew, and what is not in memory is not called so."""

from __future__ import annotations

import pickle
from pathlib import Path

import dask.array
import numpy as np
import zarr

from protodask.data.row_arrays import ZarrRows, row_array
from protodask.data.tables import ArraysTable, JoinedTable


def test_zarr_rows__of_an_array_that_was_written_anew(tmp_path: Path) -> None:
    path = str(tmp_path / "x.zarr")
    for rows, value in ((10, 1.0), (30, 2.0), (30, 3.0)):
        stored = zarr.create_array(path, data=np.full((rows, 2), value), chunks=(rows // 2, 2), overwrite=True)
        for opened in (ZarrRows.open(path), row_array(stored), row_array(path)):
            assert opened.shape == (rows, 2)
            np.testing.assert_array_equal(opened.slice(1, rows), np.full((rows - 1, 2), value))


def test_zarr_rows__are_told_apart_by_their_opening(tmp_path: Path) -> None:
    path = str(tmp_path / "x.zarr")
    zarr.create_array(path, data=np.zeros((10, 2)))
    opened = ZarrRows.open(path)
    assert pickle.loads(pickle.dumps(opened)) == opened
    assert ZarrRows.open(path) != opened


def test_table__is_in_memory_where_its_features_are() -> None:
    features, target = np.zeros((100, 2)), np.arange(100)
    names = ("a", "b")
    lazy = ArraysTable(names, row_array(dask.array.from_array(features, chunks=(30, 2))), {"y": row_array(target)})
    resident = ArraysTable(names, row_array(features), {"y": row_array(dask.array.from_array(target, chunks=40))})
    assert (lazy.resident, resident.resident) == (False, True)
    assert not JoinedTable((lazy, resident)).resident
    assert JoinedTable((resident, resident)).resident
    sent = pickle.loads(pickle.dumps(lazy))
    np.testing.assert_array_equal(sent.read(1)["y"], target[30:60])
