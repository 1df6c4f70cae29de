"""One table, whatever it is kept in: files, frames of any library and streams become the same dataset."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.errors import refused

from protodask import Dataset, ingest

# Of dask, where a Parquet file was not written by pandas.
pytestmark = pytest.mark.filterwarnings("ignore:The inplace keyword in DataFrame.reset_index")

ROWS = 9

VALUES: dict[str, tuple[st.SearchStrategy[Any], pa.DataType]] = {
    "float": (st.floats(-1e6, 1e6).filter(lambda value: value == 0 or abs(value) > 1e-6), pa.float64()),
    "integer": (st.integers(-(2**40), 2**40), pa.int64()),
    "small": (st.integers(-100, 100), pa.int8()),
    "boolean": (st.booleans(), pa.bool_()),
    "decimal": (st.integers(-9999, 9999).map(lambda cents: Decimal(cents).scaleb(-2)), pa.decimal128(8, 2)),
    "text": (st.sampled_from(["red", "green", "deep blue", "a,b", 'q"']), pa.string()),
    "date": (st.dates(datetime.date(1990, 1, 1), datetime.date(2030, 1, 1)), pa.date32()),
}

LATER = {"float": 0.5, "integer": 3, "small": 4, "boolean": True, "decimal": Decimal("1.25"), "text": "red"}
"""A value that is there in any case: of a column without one nobody can tell the type."""


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """Columns of some types, in which values may be missing, and two classes."""
    columns: dict[str, pa.Array] = {}
    for number, kind in enumerate(draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=4, max_size=8))):
        values, dtype = VALUES[kind]
        missing = draw(st.booleans())
        found = draw(st.lists(st.none() | values if missing else values, min_size=ROWS, max_size=ROWS))
        known = LATER.get(kind, datetime.date(2024, 2, 29))
        columns[f"{kind}{number}"] = pa.array([known, *found], dtype)
    columns["kind"] = pa.array(["yes", "no"] * ((ROWS + 1) // 2), pa.string())
    return pa.table(columns)


def as_csv(table: pa.Table, folder: Path) -> str:
    table.to_pandas().to_csv(folder / "t.csv", index=False)
    return str(folder / "t.csv")


def as_parquet(table: pa.Table, folder: Path) -> str:
    pyarrow.parquet.write_table(table, folder / "t.parquet")
    return str(folder / "t.parquet")


def as_polars(table: pa.Table, folder: Path) -> Any:
    return pytest.importorskip("polars").from_arrow(table)


def as_relation(table: pa.Table, folder: Path) -> Any:
    return pytest.importorskip("duckdb").from_arrow(table)


FORMS: dict[str, Callable[[pa.Table, Path], Any]] = {
    "csv": as_csv,
    "parquet": as_parquet,
    "pandas": lambda table, folder: table.to_pandas(),
    "stream": lambda table, folder: table.to_reader(max_chunksize=4),
    "polars": as_polars,
    "duckdb": as_relation,
}


@settings(max_examples=6, deadline=None)
@given(table=tables())
def test_ingest__of_one_table_in_any_form(tmp_path_factory: pytest.TempPathFactory, table: pa.Table) -> None:
    folder = tmp_path_factory.mktemp("trip")
    options: dict[str, Any] = {"target": "kind", "text_is_categorical": True, "dtype": "float64"}
    expected = ingest(table, folder / "expected.zarr", **options)
    for form, given_as in FORMS.items():
        found = ingest(given_as(table, folder), folder / f"{form}.zarr", **options)
        assert found.columns == expected.columns, form
        assert Dataset.open(folder / f"{form}.zarr").key == expected.key, form


@pytest.mark.parametrize("form", ["parquet", "pandas", "stream"])
@pytest.mark.parametrize("values", [[[1, 2]], [{"a": 1}]])
def test_ingest__refuses_columns_with_parts(form: str, values: list[Any], tmp_path: Path) -> None:
    table = pa.table({"x": values * 4, "kind": ["yes", "no"] * 2})
    with refused("wrong-type", "'x'", "lists"):
        ingest(FORMS[form](table, tmp_path), tmp_path / "d.zarr", target="kind", text_is_categorical=True)


def test_ingest__of_truth_values_that_are_said_to_be_categories_keeps_them(tmp_path: Path) -> None:
    table = pa.table({"x": [True, None, False, True], "kind": ["yes", "no"] * 2})
    for form in ("pandas", "csv", "parquet"):
        source = FORMS[form](table, tmp_path)
        dataset = ingest(source, tmp_path / f"{form}.zarr", target="kind", categorical=["x"])
        assert dataset.columns[0].categories == (False, True), form


def test_ingest__of_objects_that_are_numbers(tmp_path: Path) -> None:
    values: dict[str, list[Any]] = {
        "whole": [1, pd.NA, 3, None],
        "mixed": [1, 2.5, None, 4],
        "flag": [True, pd.NA, False, None],
        "decimal": [Decimal("1.5"), Decimal("NaN"), None, Decimal(2)],
    }
    frame = pd.DataFrame({name: pd.Series(column, dtype=object) for name, column in values.items()})
    plain = frame.apply(lambda column: [float("nan") if pd.isna(value) else float(value) for value in column])
    kind = ["yes", "no"] * 2
    expected = ingest(plain.assign(kind=kind), tmp_path / "plain.zarr", target="kind")
    assert ingest(frame.assign(kind=kind), tmp_path / "objects.zarr", target="kind").key == expected.key
    large = pd.DataFrame({"x": pd.Series([10**400, 1], dtype=object), "kind": ["yes", "no"]})
    with refused("bad-value", "'x'", "not a number"):
        ingest(large, tmp_path / "large.zarr", target="kind")


def test_ingest__of_several_frames_of_which_one_has_no_value_in_a_column(tmp_path: Path) -> None:
    frames = [pd.DataFrame({"x": [True, None, False, True], "kind": ["yes", "no"] * 2})]
    frames.append(frames[0].assign(x=pd.Series([None] * 4, dtype=object)))
    dataset = ingest(frames, tmp_path / "d.zarr", target="kind", text_is_categorical=True)
    assert dataset.columns[0].categories == (False, True)
    assert ingest(frames[0], tmp_path / "d.zarr", append=True).n_rows == 12
