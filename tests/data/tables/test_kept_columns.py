"""Columns of raw tables that are handed on: nothing of them is changed, whatever they are read from."""

import datetime
import decimal
import io
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.errors import refused

from protodask.data import Column, table_source
from protodask.data.tables.kept_columns import KEPT, pack, unpack
from protodask.data.tables.small_files import encode_file

COLUMNS = (Column("x"), Column("c", "nominal", ("a", "b")))


def every_type() -> Any:
    """A table with columns of many types, most with a missing value."""
    day = datetime.datetime(2024, 2, 29, 12, 30, 15, 123456)
    return pyarrow.table(
        {
            "x": [1.0, 2.0, 3.0],
            "c": pyarrow.array(["a", "b", "a"]).dictionary_encode(),
            "whole": pyarrow.array([2**60 + 1, None, -3], pyarrow.int64()),
            "small": pyarrow.array([1, None, 3], pyarrow.int8()),
            "flag": [True, None, False],
            "text": ["007", None, "NA"],
            "long text": pyarrow.array(["q", None, ""], pyarrow.large_string()),
            "time": pyarrow.array([day, None, day], pyarrow.timestamp("us", "UTC")),
            "instant": pyarrow.array([1, None, 3], pyarrow.timestamp("ns")),
            "day": [day.date(), None, day.date()],
            "amount": [decimal.Decimal("1.10"), None, decimal.Decimal("-2.00")],
            "bytes": [b"\x00\xff", None, b""],
            "list": [[1, 2], None, []],
            "record": [{"a": 1, "b": "x"}, None, {"a": None, "b": "y"}],
            "nothing": pyarrow.nulls(3),
        }
    )


def kept_of(source: Any) -> Any:
    return pyarrow.concat_tables([unpack(source.read(number)[KEPT]) for number in range(source.layout.n_blocks)])


@pytest.fixture
def parquet(tmp_path: Path) -> tuple[str, Any]:
    table = every_type()
    pyarrow.parquet.write_table(table, tmp_path / "rows.parquet")
    return str(tmp_path / "rows.parquet"), table


def test_kept__of_parquet_is_of_every_type(parquet: tuple[str, Any]) -> None:
    path, table = parquet
    keep = [name for name in table.column_names if name != "x"]
    source = table_source(path, COLUMNS, keep=keep)
    found = kept_of(source)
    assert found.column_names == keep
    for name in keep:
        assert found[name].to_pylist() == table[name].to_pylist(), name
    plain = {"c": pyarrow.string(), "long text": pyarrow.string(), "nothing": pyarrow.string()}
    assert {name: found[name].type for name in keep} == {name: plain.get(name, table[name].type) for name in keep}
    others = [name for name in table.column_names if name not in ("x", "c")]
    np.testing.assert_array_equal(
        source.read(0)["features"], table_source(path, COLUMNS, dropped=others).read(0)["features"]
    )


@pytest.mark.parametrize("how", ["pandas", "dask"])
def test_kept__of_a_frame(how: str) -> None:
    frame = pd.DataFrame({"x": [1.0, 2.0], "c": ["a", "b"], "id": [5, 6], "t": pd.to_datetime(["2024-01-01", ""])})
    if how == "dask":
        from dask.dataframe import from_pandas

        found = kept_of(table_source(from_pandas(frame, npartitions=2), COLUMNS, keep=["t", "id"]))
    else:
        found = kept_of(table_source(frame, COLUMNS, keep=["t", "id"]))
    assert found["id"].to_pylist() == [5, 6]
    assert found["id"].type == pyarrow.int64()
    assert found["t"].to_pylist() == [datetime.datetime(2024, 1, 1), None]


def test_kept__of_arrays(tmp_path: Path) -> None:
    times = np.array(["2024-01-01", "2024-01-02"], dtype="datetime64[s]")
    np.savez(tmp_path / "a.npz", features=np.eye(2), id=np.array(["p", "q"]), time=times)
    source = table_source(str(tmp_path / "a.npz"), (Column("x0"), Column("x1")), keep=["id", "time", "x1"])
    assert kept_of(source).to_pylist() == [
        {"id": "p", "time": times[0].item(), "x1": 0.0},
        {"id": "q", "time": times[1].item(), "x1": 1.0},
    ]


def test_kept__of_csv_is_the_text_that_stands_there(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text('id,x,c,when\n007,1,a,2024-01-01\nNA,2.5,b,\n"1,5",3,a,null\n,4,b,1e3\n')
    found = kept_of(table_source(str(path), COLUMNS, keep=["id", "when", "x", "c"]))
    assert found.to_pydict() == {
        "id": ["007", "NA", "1,5", None],
        "when": ["2024-01-01", None, "null", "1e3"],
        "x": [1.0, 2.5, 3.0, 4.0],
        "c": ["a", "b", "a", "b"],
    }


def test_kept__missing_features_stay_missing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("id,x,c\n1,NA,a\n")
    with refused("bad-value", "'x'", "missing or infinite", "row 0"):
        table_source(str(path), COLUMNS, keep=["id"])


@settings(max_examples=10)
@given(st.lists(st.integers(1, 7), min_size=1, max_size=5), st.sampled_from([1, 2, 4]))
def test_kept__whatever_the_partitions_and_blocks(lengths: list[int], block_rows: int) -> None:
    from dask.dataframe import concat, from_pandas

    n_rows = sum(lengths)
    frame = pd.DataFrame({"x": np.arange(n_rows) / 8, "c": "a", "id": np.arange(n_rows)})
    edges = np.cumsum([0, *lengths])
    parts = [frame.iloc[first:last] for first, last in pairwise(edges)]
    joined = concat([from_pandas(part, npartitions=1) for part in parts])
    source = table_source(joined, COLUMNS, keep=["id"], block_rows=block_rows)
    for number in range(source.layout.n_blocks):
        block = source.read(number)
        assert unpack(block[KEPT])["id"].to_pylist() == block.rows.tolist()
        np.testing.assert_array_equal(block["features"][:, 0] * 8, block.rows)


def test_kept__long_values_make_small_blocks() -> None:
    frame = pd.DataFrame({"x": np.arange(5000.0), "c": "a", "id": "long" * 10_000})
    source = table_source(frame, COLUMNS, keep=["id"])
    assert source.layout.block_rows * 40_000 < 2**25
    assert table_source(frame.assign(id="s"), COLUMNS, keep=["id"]).layout.block_rows > source.layout.block_rows


def test_kept__column_of_two_types_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,c,id\n1,a,5\n")
    pyarrow.parquet.write_table(pyarrow.table({"x": [1.0], "c": ["a"], "id": [5]}), tmp_path / "b.parquet")
    with refused("wrong-type", "'id'", "int64", "string"):
        table_source(str(tmp_path), COLUMNS, keep=["id"])


def test_kept__column_that_is_not_there_or_named_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,c,id\n1,a,5\n")
    with refused("column-missing", "lacks 'time', a column to keep", "x, c, id"):
        table_source(str(tmp_path / "a.csv"), COLUMNS, keep=["id", "time"])
    with refused("named-twice", "'id'"):
        table_source(str(tmp_path / "a.csv"), COLUMNS, keep=["id", "id"])


def test_kept__values_of_no_one_type_are_refused() -> None:
    frame = pd.DataFrame({"x": [1.0, 2.0], "c": "a", "id": [1, "one"]})
    with refused("wrong-type", "id"):
        table_source(frame, COLUMNS, keep=["id"])


def test_kept__dropped_column_is_kept_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,c,id,note\n1,a,5,n\n")
    source = table_source(str(tmp_path / "a.csv"), COLUMNS, keep=["id"], dropped=["id", "note"])
    assert kept_of(source).to_pydict() == {"id": ["5"]}


def test_pack__is_undone_by_unpack() -> None:
    table = every_type().drop_columns(["c"])
    assert unpack(pack([table.slice(0, 1), table.slice(1)])).equals(table)


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_kept__column_that_a_small_file_lacks_is_named(name: str) -> None:
    frame, buffer = pd.DataFrame({"a": [1.0, 2.0]}), io.BytesIO()
    if name.endswith(".csv"):
        frame.to_csv(buffer, index=False)
    else:
        pyarrow.parquet.write_table(pyarrow.table({"a": [1.0, 2.0]}), buffer)
    options: dict[str, Any] = {"target_name": "y", "dropped": (), "unseen": "error", "dtype": "float32"}
    with refused("column-missing", "'id'"):
        encode_file(buffer.getvalue(), name, (Column("a", "numeric"),), keep=("id",), **options)


@pytest.mark.parametrize("unit", ["ns", "us"])
def test_table_source__reads_times_as_categories_alike_where_others_are_kept(unit: str, tmp_path: Path) -> None:
    days = pd.Series(np.array(["2024-02-29", "2020-01-02"] * 6, dtype=f"datetime64[{unit}]"))
    frame = pd.DataFrame({"day": days, "zone": days.dt.tz_localize("UTC")}).astype("category")
    frame.assign(id=range(12)).to_parquet(tmp_path / "t.parquet")  # which not all versions of Arrow write with a zone
    column = Column("day", "nominal", ("2020-01-02 00:00:00", "2024-02-29 00:00:00"))
    plain, kept = (
        table_source([str(tmp_path / "t.parquet")], [column], dropped=dropped, keep=names)
        for dropped, names in ((["zone", "id"], []), ([], ["id", "zone"]))
    )
    np.testing.assert_array_equal(plain.read(0)["features"], kept.read(0)["features"])
    stored = pyarrow.parquet.read_table(tmp_path / "t.parquet")["zone"]
    assert kept_of(kept)["zone"].to_pylist() == stored.to_pylist()
