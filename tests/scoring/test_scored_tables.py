"""What models say of tables, as tables."""

from collections.abc import Iterator
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.errors import check_error, refused
from support.models import make_model

from protodask import InputError, PrototypeSet
from protodask.prototypes.splines import Spline, SplineCalibration
from protodask.scoring import scored_tables

MODEL = make_model(
    0,
    classes=("no", "yes"),
    n_features=3,
    calibration=SplineCalibration((Spline(np.array([0.0, 1.0]), np.array([0.2, 0.9])),), 1, 2, False, 10, 10.0),
)
ROWS = 60
COLUMNS = ["number", "row", "predicted", "familiarity", "probability_no", "probability_yes"]


def table_of(rows: int = ROWS) -> pa.Table:
    values = np.random.default_rng(0).normal(size=(ROWS, 3))[:rows]
    named = {f"x{position}": values[:, position] for position in range(3)}
    return pa.table({"number": pa.array(range(rows), pa.int16()), **named})


def features(table: pa.Table) -> Any:
    return table.select(["x0", "x1", "x2"]).to_pandas().to_numpy()


def check_scored(found: pa.Table, table: pa.Table, model: PrototypeSet = MODEL, **options: Any) -> None:
    """That a table of predictions is that of a table, with its column "number"."""
    assert sorted(found.column_names) == sorted(COLUMNS)
    rows = features(table)
    probability = np.column_stack([found[f"probability_{label}"] for label in model.classes])
    np.testing.assert_allclose(probability, model.predict_proba(rows, **options), rtol=1e-12)
    count = 1 if options else None  # as many batches as the calibration is of
    np.testing.assert_allclose(found["familiarity"], model.familiarity(rows, n_batches=count), rtol=1e-12)
    assert found["predicted"].to_pylist() == model.predict(rows, **options).tolist()
    assert found["row"].to_pylist() == found["number"].to_pylist() == list(range(len(table)))


def as_pandas(table: pa.Table) -> Any:
    return table.to_pandas().set_index(pd.Index(["same"] * len(table)))


def as_polars(table: pa.Table) -> Any:
    return pytest.importorskip("polars").from_arrow(table)


def as_relation(table: pa.Table) -> Any:
    return pytest.importorskip("duckdb").from_arrow(table)


KINDS: dict[str, tuple[Any, str]] = {
    "pandas": (as_pandas, "DataFrame"),
    "polars": (as_polars, "DataFrame"),
    "table": (lambda table: table, "Table"),
    "batch": (lambda table: table.combine_chunks().to_batches()[0], "Table"),
    "reader": (lambda table: table.to_reader(7), "RecordBatchReader"),
    "relation": (as_relation, "RecordBatchReader"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_predict_table__is_of_the_kind_of_the_rows(kind: str) -> None:
    make, name = KINDS[kind]
    given = make(table_of())
    found = MODEL.predict_table(given, keep=["number"])
    library = "pyarrow" if name != "DataFrame" else kind
    assert (type(found).__name__, type(found).__module__.partition(".")[0]) == (name, library)
    if kind == "pandas":
        assert found.index.equals(given.index)
        assert found["number"].dtype == np.int16
    check_scored(pa.table(found.reset_index(drop=True) if kind == "pandas" else found), table_of())


@given(length=st.integers(1, ROWS + 1), step=st.integers(1, ROWS + 1), rows=st.integers(0, ROWS))
def test_predict_table__whatever_the_batches_of_a_stream(length: int, step: int, rows: int) -> None:
    table = table_of(rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scored_tables, "BATCH_ROWS", step)
        found = MODEL.predict_table(table.to_reader(length), keep=["number"]).read_all()
    check_scored(found, table)
    assert found.schema == MODEL.predict_table(table, keep=["number"]).schema


def test_predict_table__calibrated_or_of_some_batches() -> None:
    check_scored(MODEL.predict_table(table_of(), keep=["number"], calibrated=True), table_of(), calibrated=True)
    found = MODEL.predict_table(table_of(), keep=["number"], n_batches=1)
    expected = MODEL.predict_proba(features(table_of()), n_batches=1)
    np.testing.assert_allclose(found["probability_yes"], expected[:, 1], rtol=1e-12)


def test_predict_table__reads_a_stream_as_it_is_read() -> None:
    read = []

    def batches() -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(table_of().to_batches(max_chunksize=5)):
            read.append(number)
            yield batch

    reader = pa.RecordBatchReader.from_batches(table_of().schema, batches())
    found = MODEL.predict_table(reader, keep=["number"])
    assert read == []
    assert found.read_next_batch().num_rows == 5
    assert read == [0]
    assert found.read_all().num_rows == ROWS - 5


def test_predict_table__keeps_columns_as_they_are() -> None:
    kinds = {
        "text": pa.array(["a", None, "c"], pa.large_string()),
        "kind": pa.array(["a", "b", "a"]).dictionary_encode(),
        "list": pa.array([[1], [], None]),
        "time": pa.array([1, 2, 3], pa.timestamp("ns", "UTC")),
    }
    table = pa.table({**kinds, **{f"x{position}": [0.0, 1.0, 2.0] for position in range(3)}})
    found = MODEL.predict_table(table, keep=list(kinds))
    assert found.column_names[:5] == ["row", *kinds]
    assert found.select(list(kinds)).equals(table.select(list(kinds)))


def test_predict_table__names_the_row_that_cannot_be_used() -> None:
    table = table_of().set_column(2, "x1", pa.array([0.0] * 40 + [np.inf] * 20))
    with refused("bad-value", "'x1'", "row 40"):
        MODEL.predict_table(table.to_pandas(), keep=["number"])
    found = MODEL.predict_table(table.to_reader(25), keep=["number"])
    assert found.read_next_batch().num_rows == 25
    with pytest.raises(InputError) as caught:
        found.read_all()
    check_error(caught.value, "bad-value", "'x1'", "row 40")


def test_predict_table__warns_of_other_columns_and_refuses_what_lacks_some() -> None:
    for kind in ("pandas", "table", "reader"):
        with pytest.warns(UserWarning, match="'number'") as said:
            MODEL.predict_table(KINDS[kind][0](table_of()))
        assert len(said) == 1
        with refused("columns-differ", "'x1'"):
            MODEL.predict_table(KINDS[kind][0](table_of().drop_columns("x1")), keep=["number"])
        with refused("column-missing", "'id'"):
            MODEL.predict_table(KINDS[kind][0](table_of()), keep=["number", "id"])


def test_predict_table__of_columns_of_polars_keeps_their_types_and_errors() -> None:
    polars = pytest.importorskip("polars")
    given = as_polars(table_of()).with_columns(
        colour=polars.Series(["red", "green"] * (ROWS // 2), dtype=polars.Enum(["red", "green", "blue"])),
        price=polars.Series(["1.5"] * ROWS).cast(polars.Decimal(5, 2)),
        x0=polars.Series(["1", "2"] * (ROWS // 2), dtype=polars.Categorical),
    )
    kept = ["number", "colour", "price"]
    for rows in (given, given[:0]):
        found = MODEL.predict_table(rows, keep=kept)
        assert found.select(kept).equals(rows.select(kept))
        assert found.select(kept).schema == rows.select(kept).schema
        assert found["predicted"].dtype == polars.String
    expected = MODEL.predict_proba(given.select("x0", "x1", "x2"))
    np.testing.assert_allclose(found_probability(MODEL.predict_table(given, keep=kept)), expected, rtol=1e-12)
    with refused("bad-value", "'x1'", "row 0"):
        MODEL.predict_table(as_polars(table_of()).with_columns(x1=np.inf), keep=["number"])


def found_probability(found: Any) -> Any:
    return np.column_stack([found[f"probability_{label}"] for label in MODEL.classes])


def test_predict_table__of_frames_derived_from_those_of_pandas_or_without_rows() -> None:
    class Derived(pd.DataFrame):
        """As those of GeoPandas."""

    found = MODEL.predict_table(Derived(as_pandas(table_of())), keep=["number"])
    assert type(found) is pd.DataFrame
    assert found.index.equals(as_pandas(table_of()).index)
    assert MODEL.predict_table(as_pandas(table_of(0)), keep=["number"]).dtypes.equals(found.dtypes)


def test_predict_table__hands_on_errors_of_the_stream_as_they_are() -> None:
    class Stopped(BaseException):
        pass

    def batches() -> Iterator[pa.RecordBatch]:
        yield from table_of().to_batches()
        raise Stopped

    found = MODEL.predict_table(pa.RecordBatchReader.from_batches(table_of().schema, batches()), keep=["number"])
    with pytest.raises(Stopped):
        found.read_all()


def test_predict_table__refuses_columns_of_one_name() -> None:
    table = table_of().append_column("number", table_of()["number"])
    frame = as_pandas(table_of()).assign(other=1).set_axis(["number", "x0", "x1", "x2", "number"], axis=1)
    for rows in (table, table.to_reader(), frame):
        with refused("named-twice", "Rename"):
            MODEL.predict_table(rows, keep=["number"])
    for rows in (table, table.to_reader()):
        with pytest.warns(UserWarning, match="'number'"), refused("named-twice", "Rename"):
            MODEL.predict_table(rows)


def test_predict_table__refuses_what_is_no_table_and_names_of_its_own() -> None:
    for rows in (features(table_of()), [[0.0, 1.0, 2.0]], {"x0": 1.0}):
        with refused("wrong-type", type(rows).__name__, "predict_proba"):
            MODEL.predict_table(rows)
    for column in (table_of()["x0"], as_polars(table_of())["x0"]):
        with refused("wrong-type", type(column).__name__, "no table"):
            MODEL.predict_table(column)
    with refused("named-twice", "'familiarity'"):
        MODEL.predict_table(table_of(), keep=["familiarity"])
    with refused("wrong-type", "LazyFrame", "Collect"):
        MODEL.predict_table(as_polars(table_of()).lazy())


@pytest.mark.parametrize("chunks", [None, 25])
def test_predict_table__of_an_array_of_xarray(chunks: int | None) -> None:
    xarray = pytest.importorskip("xarray")
    values = features(table_of())
    coordinates = {"row": np.arange(ROWS) * 10, "day": ("row", np.arange(ROWS)), "feature": ["x0", "x1", "x2"]}
    given = xarray.DataArray(
        values if chunks is None else da.from_array(values, chunks=(chunks, 3)), coordinates, ("row", "feature")
    )
    found = MODEL.predict_table(given)
    assert bool(found.chunks) == (chunks is not None)
    assert found["probability"].dims == ("row", "class")
    assert set(found.coords) == {"row", "day", "class"}
    found = found.compute()
    np.testing.assert_allclose(found["probability"], MODEL.predict_proba(values), rtol=1e-12)
    np.testing.assert_allclose(found["familiarity"], MODEL.familiarity(values), rtol=1e-12)
    assert found["predicted"].values.tolist() == MODEL.predict(values).tolist()
    assert float(found["probability"].sel({"row": 30, "class": "yes"})) == found["probability"].values[3, 1]
    np.testing.assert_array_equal(MODEL.predict_proba(given), MODEL.predict_proba(values))
    with refused("settings-conflict", "set_coords"):
        MODEL.predict_table(given, keep=["day"])


@pytest.mark.parametrize("lazy", [False, True])
def test_predict_table__refuses_arrays_of_xarray_that_are_no_tables(lazy: bool) -> None:
    xarray = pytest.importorskip("xarray")
    table = xarray.DataArray(features(table_of()), dims=("row", "feature"))
    table = table.chunk() if lazy else table
    for rows in (table[0], table.expand_dims("time"), table[0, 0]):
        with refused("wrong-shape", str(rows.ndim), "stack"):
            MODEL.predict_table(rows)
    for name in ("class", "predicted", "familiarity", "probability"):
        for rows in (table.rename(row=name), table.assign_coords({name: ("row", np.arange(ROWS))})):
            with refused("named-twice", repr(name), "rename"):
                MODEL.predict_table(rows)


def test_predict_table__of_stacked_dimensions_of_xarray() -> None:
    xarray = pytest.importorskip("xarray")
    values = features(table_of()).reshape(6, 10, 3)
    given = xarray.DataArray(values, {"y": range(6), "x": range(10)}, ("y", "x", "feature")).stack(row=["y", "x"])
    found = MODEL.predict_table(given.transpose("row", "feature")).unstack("row")
    assert found["probability"].sizes == {"y": 6, "x": 10, "class": 2}
    expected = MODEL.predict_proba(values.reshape(-1, 3)).reshape(6, 10, 2)
    np.testing.assert_allclose(found["probability"].transpose("y", "x", "class"), expected, rtol=1e-12)


def test_predict_table__of_a_data_set_of_xarray() -> None:
    xarray = pytest.importorskip("xarray")
    given = xarray.Dataset(table_of().to_pandas()).rename(dim_0="row").set_coords("number")
    found = MODEL.predict_table(given)
    np.testing.assert_allclose(found["probability"], MODEL.predict_proba(features(table_of())), rtol=1e-12)
    assert found["number"].dims == ("row",)


def test_predict_table__of_the_partitions_of_a_frame_of_dask() -> None:
    dataframe = pytest.importorskip("dask.dataframe")
    given = as_pandas(table_of()).reset_index(drop=True).drop(columns="number")
    frame = dataframe.from_pandas(given.assign(x0=given["x0"].map(repr)), npartitions=3)
    found = frame.map_partitions(MODEL.predict_table, meta=MODEL.predict_table(frame.head(0))).compute()
    np.testing.assert_allclose(found_probability(found), MODEL.predict_proba(given), rtol=1e-12)
