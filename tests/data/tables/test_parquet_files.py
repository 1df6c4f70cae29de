"""Tables from Parquet files: parts of row groups, and what the names of folders say."""

from __future__ import annotations

import itertools
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.errors import refused

from protodask.data.format.schema import FEATURES, Column
from protodask.data.tables import parquet_files
from protodask.data.tables import tables as tables_module
from protodask.data.tables.ingest import ingest
from protodask.data.tables.ingest_scan import table_source
from protodask.data.tables.ingest_sources import file_tables
from protodask.data.tables.parquet_files import parquet_columns, parquet_parts
from protodask.data.tables.small_files import encode_file
from protodask.engine import Engine
from protodask.errors import StorageError


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(groups=st.lists(st.integers(1, 50), max_size=8), part=st.integers(1, 3000))
def test_parquet_parts__have_every_row_group_once(groups: list[int], part: int, tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    schema = pyarrow.schema({"x": pyarrow.int64()})
    with pyarrow.parquet.ParquetWriter(path, schema) as writer:
        for number, rows in enumerate(groups):
            writer.write_table(pyarrow.table({"x": np.arange(rows) + 1000 * number}, schema))
    found = parquet_parts(str(path), part)
    assert [group for groups in found.groups for group in groups] == list(range(len(groups)))
    footer = pyarrow.parquet.read_metadata(path)
    sizes = [sum(footer.row_group(group).total_byte_size for group in groups) for groups in found.groups]
    assert all(size <= part or len(own) <= 1 for size, own in zip(sizes, found.groups, strict=True))
    assert all(left + right > part for left, right in itertools.pairwise(sizes) if left <= part)
    (table,) = file_tables([str(path)], (), ())
    table = pickle.loads(pickle.dumps(table))
    read = np.concatenate([np.asarray(table.read(number)["x"]) for number in range(table.n_partitions)])
    assert read.tolist() == [1000 * number + row for number, rows in enumerate(groups) for row in range(rows)]


def test_row_group__that_is_larger_than_what_is_remembered_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pd.DataFrame({"x": np.arange(100.0)}).to_parquet(tmp_path / "t.parquet")
    source = table_source(str(tmp_path / "t.parquet"), (Column("x"),), block_rows=16)
    read: list[int] = []

    def counting(*arguments: Any) -> Any:
        read.append(1)
        return parquet_columns(*arguments)

    monkeypatch.setattr(tables_module, "RECENT_BYTES", 8)
    monkeypatch.setattr(parquet_files, "parquet_columns", counting)
    monkeypatch.setattr(tables_module, "_RECENT", tables_module._RecentTables())
    blocks = [source.read(number)[FEATURES.name] for number in range(source.layout.n_blocks)]
    assert np.concatenate(blocks)[:, 0].tolist() == list(range(100))
    assert len(read) == 1


def test_tables__of_thousands_of_files_are_one(tmp_path: Path) -> None:
    for number in range(30):
        pd.DataFrame({"x": [number]}).to_parquet(tmp_path / f"{number:02}.parquet")
    (table,) = file_tables([str(tmp_path / f"{number:02}.parquet") for number in range(30)], (), ())
    assert table.counts == (1,) * 30


@pytest.mark.parametrize("place", ["year=2024", "year=20%3D24/kind=a", "year=__HIVE_DEFAULT_PARTITION__"])
def test_folders__are_columns(place: str, engine: Engine, tmp_path: Path) -> None:
    for folder, first in ((place, 0), (place.replace("2024", "2025").replace("20%3D24", "2025"), 20)):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        rows = pd.DataFrame({"x": np.arange(20.0) + first, "y": np.arange(20) % 2})
        rows.to_parquet(tmp_path / folder / f"{first}.parquet")
    known: Any = {"target": "y", "text_is_categorical": True, "engine": engine}
    found = ingest(tmp_path, tmp_path / "d.zarr", **known)
    if "HIVE" in place:
        assert found.columns[1] == Column("year", "nominal", filled=0.0, marked=True), "no row says which"
        return
    years = (2024, 2025) if place == "year=2024" else ("2025", "20=24")
    assert found.columns[1] == Column("year", "nominal", years), "numbers where all are such"
    assert found.read(0)[FEATURES.name][:, 1].sum() == 20
    path = next((tmp_path / place).glob("*.parquet"))
    said: Any = {"target_name": "y", "keep": (), "dropped": (), "unseen": "error", "dtype": "float32"}
    whole = encode_file(path.read_bytes(), str(path), found.columns, **said)[FEATURES.name]
    np.testing.assert_array_equal(whole, found.read(0)[FEATURES.name][:20])


def test_folders__of_other_names_are_no_columns(engine: Engine, tmp_path: Path) -> None:
    folder = tmp_path / "a=b=c" / "my%20c=1" / "=5" / "plain"
    folder.mkdir(parents=True)
    pd.DataFrame({"x": np.arange(20.0), "a": 3.0, "y": np.arange(20) % 2}).to_parquet(folder / "t.parquet")
    found = ingest(tmp_path, tmp_path / "d.zarr", target="y", categorical=["my c"], engine=engine)
    assert [column.name for column in found.columns] == ["x", "a", "my c"], "a column of the file itself stays"


def test_columns__without_a_type_are_no_text(engine: Engine, tmp_path: Path) -> None:
    for month, known in ((1, pyarrow.array([1, None, 5])), (2, pyarrow.nulls(3))):
        rows = pyarrow.table({"x": known, "z": [1.0, 2.0, 3.0], "y": [0, 1, 1]})
        pyarrow.parquet.write_table(rows, tmp_path / f"{month}.parquet")
    found = ingest(tmp_path, tmp_path / "d.zarr", target="y", engine=engine)
    assert found.feature_names == ("x", "x is missing", "z")
    assert found.read(0)[FEATURES.name][:, :2].tolist() == [[1, 0], [3, 1], [5, 0], [3, 1], [3, 1], [3, 1]]
    alone = ingest(tmp_path / "2.parquet", tmp_path / "e.zarr", target="y", engine=engine)
    assert alone.feature_names == found.feature_names


def test_files__whose_index_differs_are_read_by_their_columns(engine: Engine, tmp_path: Path) -> None:
    rows = pd.DataFrame({"a": np.arange(20.0), "y": np.arange(20) % 2, "b": np.arange(20.0)})
    rows.to_parquet(tmp_path / "1.parquet")
    rows.set_index("b").to_parquet(tmp_path / "2.parquet")
    with refused("columns-differ", "2.parquet", "'b'"):
        ingest(tmp_path, tmp_path / "d.zarr", target="y", engine=engine)
    found = ingest(tmp_path, tmp_path / "d.zarr", target="y", drop=["b"], engine=engine)
    assert (found.n_rows, found.feature_names) == (40, ("a",))


@pytest.mark.parametrize(
    "values",
    [
        pd.Categorical([3, 1, 2] * 20),
        pd.Categorical([0.5, 1.5, 2.5] * 20),
        pd.Categorical(["a", "b", "c"] * 20),
        pd.Series(["a", "b", "c"] * 20, dtype=pd.ArrowDtype(pa.dictionary(pa.int32(), pa.string()))),
        pd.array([True, None, False] * 20, dtype="boolean"),
        pd.array([1, None, 3] * 20, dtype="Int64"),
        [True, None, False] * 20,
    ],
    ids=["whole numbers", "numbers", "text", "text of Arrow's", "truth values", "nullable", "objects"],
)
def test_files__are_what_the_frame_in_them_is(values: Any, engine: Engine, tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": np.arange(60.0), "c": values, "y": np.arange(60) % 2})
    frame.to_parquet(tmp_path / "t.parquet")
    known: Any = {"target": "y", "text_is_categorical": True, "engine": engine}
    whole = ingest(frame, tmp_path / "whole", **known)
    assert ingest(tmp_path / "t.parquet", tmp_path / "stored", **known).key == whole.key
    named = ingest(frame, tmp_path / "named", categorical=["c"], **known)
    assert ingest(tmp_path / "t.parquet", named.path, append=True, engine=engine).n_rows == 120


def test_files__that_change_while_they_are_read(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pd.DataFrame({"x": np.arange(100)}).to_parquet(path, row_group_size=10)
    (table,) = file_tables([str(path)], (), ())
    for rows in (120, 95, 5):
        pd.DataFrame({"x": np.arange(rows)}).to_parquet(path, row_group_size=10)
        with refused("changed-meanwhile", kind=StorageError):
            table.read(0)


def test_files__of_names_that_are_no_text(engine: Engine, tmp_path: Path) -> None:
    pd.DataFrame({0: np.arange(20.0), 1: 1.5, 2: np.arange(20) % 2}).to_parquet(tmp_path / "t.parquet")
    found = ingest(tmp_path, tmp_path / "d.zarr", target="2", engine=engine)
    assert found.feature_names == ("0", "1")


def test_files__with_a_column_that_nothing_can_be_made_of(engine: Engine, tmp_path: Path) -> None:
    intervals = pd.arrays.IntervalArray.from_breaks(range(21))
    lists = pd.Series([[1]] * 20, dtype=pd.ArrowDtype(pa.list_(pa.int64())))
    fixed = pd.Series([b"ab"] * 20, dtype=pd.ArrowDtype(pa.binary(2)))
    for values in (intervals, lists, fixed):
        pd.DataFrame({"x": np.arange(20.0), "c": values, "y": np.arange(20) % 2}).to_parquet(tmp_path / "t.parquet")
        found = ingest(tmp_path, tmp_path / "d.zarr", target="y", drop=["c"], overwrite=True, engine=engine)
        assert found.feature_names == ("x",)


@pytest.mark.parametrize("small", [False, True])
def test_files__with_columns_of_one_name_are_refused(small: bool, engine: Engine, tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pyarrow.parquet.write_table(pyarrow.table([[1.0], [2.0], [0]], names=["x", "x", "y"]), path)
    said: Any = {"target_name": "y", "keep": (), "dropped": (), "unseen": "error", "dtype": "float32"}
    with refused("named-twice", "t.parquet", "'x'"):
        if small:
            encode_file(path.read_bytes(), str(path), (Column("x"),), **said)
        else:
            ingest(path, tmp_path / "d.zarr", target="y", engine=engine)


def test_small_files__say_nothing_of_their_folders(tmp_path: Path) -> None:
    path = tmp_path / "day=3" / "t.parquet"
    path.parent.mkdir()
    pd.DataFrame({"x": [1.0, 2.0]}).to_parquet(path)
    said: Any = {"target_name": "y", "keep": (), "dropped": (), "unseen": "error", "dtype": "float32"}
    found = encode_file(path.read_bytes(), str(path), (Column("x"),), **said)[FEATURES.name]
    assert found.tolist() == [[1], [2]]
