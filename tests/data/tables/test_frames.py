"""Data frames of other libraries: what Arrow's streams hand over."""

import sys
from collections.abc import Callable, Iterator
from copy import copy
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from support.errors import refused

from protodask import Dataset, PrototypeSetClassifier, ingest
from protodask.data.tables.frames import column_values, in_pandas

FRUIT = pd.DataFrame(
    {
        "weight": [120.0, 130.0, 5.0, 6.0, np.nan, 4.0] * 10,
        "count": [1, 2, 3, 4, 5, 6] * 10,
        "colour": ["green", "red", "blue", "red", "green", None] * 10,
        "ripe": [True, False, True, True, False, False] * 10,
    }
)
KIND = ["apple", "apple", "berry", "berry", "apple", "berry"] * 10


class Relation:
    """What a library has that gives its columns as columns of its own, and all of them as a stream."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self.columns = table.column_names

    def __getitem__(self, name: str) -> "Relation":
        return Relation(self._table.select([name]))

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._table.__arrow_c_stream__(requested_schema)


class Capsule:
    """What gives a stream, and says nothing else of itself."""

    def __init__(self, given: Any) -> None:
        self._given = given

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._given.__arrow_c_stream__(requested_schema)


class Lazy(Relation):
    """The same of a query that was not run."""

    def collect(self) -> Relation:
        return Relation(self._table)

    def collect_schema(self) -> Any:
        return self._table.schema


SMALL: dict[str, Any] = {"n_candidates": 20, "n_draws": 1, "tolerance": 1e-2}
"""Of fits that are compared with one another."""


@pytest.fixture(scope="module")
def of_fruit() -> PrototypeSetClassifier:
    """What is learnt of the frame of pandas."""
    return PrototypeSetClassifier(**SMALL).fit(FRUIT, KIND)


@pytest.fixture(scope="module")
def fruit_key(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Of the dataset that the frame of pandas becomes."""
    return ingest(FRUIT.assign(kind=KIND), tmp_path_factory.mktemp("fruit") / "d.zarr", **WITH_TEXT).key


WITH_TEXT: dict[str, Any] = {"target": "kind", "text_is_categorical": True}

KINDS: dict[str, Any] = {
    "table": lambda table: table,
    "batch": lambda table: table.combine_chunks().to_batches()[0],
    "reader": lambda table: table.to_reader(max_chunksize=7),
    "relation": Relation,
    "capsule": lambda table: Capsule(table.to_reader(max_chunksize=7)),
    "polars": lambda table: pytest.importorskip("polars").from_arrow(table),
    "duckdb": lambda table: pytest.importorskip("duckdb").from_arrow(table),
}


def in_arrow(frame: pd.DataFrame) -> pa.Table:
    return pa.Table.from_pandas(frame, preserve_index=False)


@pytest.mark.parametrize("kind", KINDS)
def test_ingest__of_frames_of_any_library(kind: str, fruit_key: str, tmp_path: Path) -> None:
    found = ingest(KINDS[kind](in_arrow(FRUIT.assign(kind=KIND))), tmp_path / "found.zarr", **WITH_TEXT)
    assert found.key == fruit_key
    pair = ingest((KINDS[kind](in_arrow(FRUIT)), KIND), tmp_path / "pair.zarr", **WITH_TEXT)
    assert pair.key == fruit_key
    assert Dataset.open(tmp_path / "found.zarr").key == fruit_key


@pytest.mark.parametrize("kind", KINDS)
def test_estimator__of_frames_of_any_library(kind: str, of_fruit: PrototypeSetClassifier) -> None:
    expected = of_fruit
    found = PrototypeSetClassifier(**SMALL).fit(KINDS[kind](in_arrow(FRUIT)), KIND)
    assert found.feature_names_in_.tolist() == FRUIT.columns.tolist()
    np.testing.assert_array_equal(found.predict_proba(FRUIT), expected.predict_proba(FRUIT))

    def few() -> Any:
        return KINDS[kind](in_arrow(FRUIT[:7]))

    np.testing.assert_array_equal(found.predict_proba(few()), expected.predict_proba(FRUIT[:7]))
    assert found.score(few(), KINDS[kind](pa.table({"kind": KIND[:7]}))) == expected.score(FRUIT[:7], KIND[:7])
    explained, wanted = found.explain(few()), expected.explain(FRUIT[:7])
    assert isinstance(explained, list)
    assert isinstance(wanted, list)
    assert [*map(str, explained)] == [*map(str, wanted)]


class Broken:
    """A stream whose query fails before there is a row."""

    schema = ()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        raise RuntimeError("no such column")


def breaking() -> pa.RecordBatchReader:
    def batches() -> Iterator[pa.RecordBatch]:
        yield in_arrow(FRUIT).to_batches()[0]
        raise RuntimeError("connection lost")

    return pa.RecordBatchReader.from_batches(in_arrow(FRUIT).schema, batches())


def test_streams__that_cannot_be_read_are_named(of_fruit: PrototypeSetClassifier, tmp_path: Path) -> None:
    for use in (
        lambda rows: PrototypeSetClassifier().fit(rows, KIND),
        of_fruit.predict,
        of_fruit.model_.predict,
        lambda rows: ingest((rows, KIND), tmp_path / "d.zarr"),
        lambda rows: ingest(rows, tmp_path / "d.zarr", target="kind"),
    ):
        with refused("unreadable", "RecordBatchReader", "connection lost"):
            use(breaking())
        with refused("unreadable", "Broken", "no such column"):
            use(Broken())
    with refused("wrong-type", "Capsule", "no table"):
        PrototypeSetClassifier().fit(Capsule(pa.chunked_array([[1, 2]])), [0, 1])


@given(
    st.lists(
        st.tuples(st.one_of(st.none(), st.integers(-(2**40), 2**40)), st.one_of(st.none(), st.text("ab", max_size=2))),
        min_size=1,
        max_size=8,
    )
)
def test_in_pandas__keeps_values_and_what_is_missing(rows: list[tuple[int | None, str | None]]) -> None:
    numbers, texts = zip(*rows, strict=True)
    table = pa.table({"n": pa.array(numbers, pa.int64()), "t": pa.array(texts, pa.string())})
    frame = in_pandas(table)
    assert [None if pd.isna(value) else int(value) for value in frame["n"]] == list(numbers)
    assert [None if pd.isna(value) else value for value in frame["t"]] == list(texts)


def test_in_pandas__leaves_all_else_as_it_is() -> None:
    for rows in (FRUIT, FRUIT["weight"], np.zeros((2, 2)), [[1.0]], pa.array([1, 2]), pa.chunked_array([[1], [2]])):
        assert in_pandas(rows) is rows


def test_frames__say_what_is_missing_to_read_them(monkeypatch: pytest.MonkeyPatch) -> None:
    relation = Relation(in_arrow(FRUIT))
    model = PrototypeSetClassifier(**SMALL).fit(FRUIT[["weight", "count"]], KIND).model_
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "pyarrow", None)
        for use in (in_pandas, model.predict_proba):
            with refused("package-missing", "Stream", "protodask[tabular]"):
                use(Stream(relation))


class Stream:
    """What has a schema, and no columns."""

    schema = ()

    def __init__(self, relation: Relation) -> None:
        self.__arrow_c_stream__ = relation.__arrow_c_stream__


def test_frames_that_were_not_computed__are_refused(tmp_path: Path) -> None:
    lazy = Lazy(in_arrow(FRUIT))
    with refused("wrong-type", "Lazy", "Collect"):
        ingest(lazy, tmp_path / "d.zarr")
    with refused("wrong-type", "Lazy", "Collect", "ingest"):
        PrototypeSetClassifier().fit(lazy, KIND)
    with refused("wrong-type", "LazyFrame", "Collect"):
        PrototypeSetClassifier().fit(FRUIT, pytest.importorskip("polars").LazyFrame({"kind": KIND}))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["memory", "dask", "zip"])
def test_arrays__of_xarray_and_of_any_zarr_store_are_the_rows_they_hold(kind: str, tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    values = generator.normal(size=(300, 4))
    labels = (values[:, 0] > values[:, 1]).astype(int)
    given: Any
    if kind == "zip":
        with zarr.storage.ZipStore(tmp_path / "x.zip", mode="w") as store:
            zarr.create_array(store, name="x", data=values, chunks=(64, 4))
        given = zarr.open_array(zarr.storage.ZipStore(tmp_path / "x.zip", mode="r"), path="x", mode="r")
    else:
        xarray = pytest.importorskip("xarray")
        given = xarray.DataArray(values if kind == "memory" else da.from_array(values, chunks=(100, 4)))
        labels = xarray.DataArray(labels)
    expected = PrototypeSetClassifier(**SMALL).fit(da.from_array(values, chunks=(100, 4)), np.asarray(labels))
    fitted = PrototypeSetClassifier(**SMALL).fit(given, labels)
    assert fitted.score(given, labels) == expected.score(values, labels)
    np.testing.assert_allclose(
        np.asarray(fitted.predict_proba(given)), np.asarray(expected.predict_proba(values)), rtol=1e-5
    )
    written = ingest((given, labels), tmp_path / "d.zarr")
    assert written.key == ingest((values, labels), tmp_path / "e.zarr").key


LENGTHS = pd.DataFrame(np.random.default_rng(0).normal(size=(300, 3)), columns=["length", "width", "height"])
LONGER = np.where(LENGTHS["length"] > LENGTHS["width"], "yes", "no")


def lengths(lazy: bool, labels: list[Any] | None = None) -> Any:
    """The table as a matrix of xarray, with its names, or others, as labels."""
    found = pytest.importorskip("xarray").DataArray(LENGTHS, dims=("row", "kind"))
    found = found if labels is None else found.assign_coords(kind=labels)
    return found.chunk(row=100) if lazy else found


@cache
def of_lengths(lazy: bool) -> PrototypeSetClassifier:
    """What is learnt of the matrix of xarray, which nobody changes."""
    return PrototypeSetClassifier(**SMALL).fit(lengths(lazy), LONGER)


@pytest.mark.parametrize("lazy", [False, True])
def test_labels_of_columns__of_xarray_are_names(lazy: bool, tmp_path: Path) -> None:
    given, names = lengths(lazy), LENGTHS.columns.tolist()
    fitted = copy(of_lengths(lazy))
    expected = PrototypeSetClassifier(**SMALL).fit(LENGTHS, LONGER)
    assert fitted.feature_names_in_.tolist() == names == list(fitted.model_.feature_names)
    found = fitted.predict_proba(given)
    assert hasattr(found, "dask") == lazy
    np.testing.assert_allclose(np.asarray(found), expected.predict_proba(LENGTHS), rtol=1e-5)
    assert fitted.prune(10, given, LONGER).calibrate(given, LONGER).model_.feature_names == tuple(names)
    written = ingest((given, LONGER), tmp_path / "a.zarr")
    assert written.feature_names == tuple(names)
    assert written.key == ingest((LENGTHS, LONGER), tmp_path / "b.zarr").key
    itself = ingest(given.round(), tmp_path / "c.zarr", target="height", drop=["width"])
    assert itself.feature_names == ("length",)
    without = ingest((given, LONGER), tmp_path / "d.zarr", drop=["width"])
    assert without.feature_names == ("length", "height")


@pytest.mark.parametrize("chunks", [50, (150, 100, 50)])
def test_labels_of_columns__beside_targets_that_are_chunked_otherwise(chunks: Any, tmp_path: Path) -> None:
    targets = da.from_array(LONGER, chunks=(chunks,))
    written = ingest((lengths(lazy=True), targets), tmp_path / "a.zarr")
    assert written.key == ingest((LENGTHS, LONGER), tmp_path / "b.zarr").key
    with refused("wrong-shape", 250, 300):
        ingest((lengths(lazy=True), targets[:250]), tmp_path / "c.zarr")


def test_columns_of_a_matrix__are_left_out_by_their_names(tmp_path: Path) -> None:
    written = ingest((LENGTHS.to_numpy(), LONGER), tmp_path / "a.zarr", drop=["x1"])
    assert written.feature_names == ("x0", "x2")
    expected = ingest((LENGTHS[["length", "height"]].to_numpy(), LONGER), tmp_path / "b.zarr")
    np.testing.assert_array_equal(written.read(0)["features"], expected.read(0)["features"])


@pytest.mark.parametrize("lazy", [False, True])
def test_labels_of_columns__in_another_order(lazy: bool, tmp_path: Path) -> None:
    """Models and datasets go by the names, as with tables; scikit-learn wants one order."""
    given = lengths(lazy)
    other = given.sel(kind=["height", "length", "width"])
    fitted = of_lengths(lazy)
    for use in (fitted.predict, fitted.familiarity, lambda rows: fitted.calibrate(rows, LONGER)):
        with pytest.raises(ValueError, match="same order"):
            use(other)
    model = fitted.model_
    expected = model.predict_proba(LENGTHS)
    np.testing.assert_array_equal(model.predict_proba(other), expected)
    np.testing.assert_array_equal(model.predict_table(other)["probability"], expected)
    ingest((given, LONGER), tmp_path / "a.zarr")
    ingest((LENGTHS, LONGER), tmp_path / "b.zarr")
    found = ingest((other, LONGER), tmp_path / "a.zarr", append=True)
    assert found.key == ingest((LENGTHS, LONGER), tmp_path / "b.zarr", append=True).key


@pytest.mark.parametrize("lazy", [False, True])
def test_labels_of_columns__that_are_not_those_of_the_model(lazy: bool, tmp_path: Path) -> None:
    fitted = of_lengths(lazy)
    other = lengths(lazy, ["length", "width", "depth"])
    with pytest.raises(ValueError, match=r"(?s)depth"):
        fitted.predict(other)
    ingest((LENGTHS, LONGER), tmp_path / "b.zarr")
    uses: tuple[Callable[[Any], Any], ...] = (
        fitted.model_.predict,
        fitted.model_.predict_table,
        lambda rows: ingest((rows, LONGER), tmp_path / "b.zarr", append=True),
    )
    for use in uses:
        with refused("columns-differ", "lacks 'height' and has 'depth'"):
            use(other)
    twice = lengths(lazy, ["length", "width", "width"])
    for by_all in (fitted.predict, lambda rows: PrototypeSetClassifier().fit(rows, LONGER), *uses):
        with refused("named-twice", "one label"):
            by_all(twice)
    for rows in (lengths(lazy, ["length", "width", "target"]), lengths(lazy).data):
        with refused("named-twice", "target", "something else"):
            ingest((rows, LONGER), tmp_path / "a.zarr", feature_names=["length", "width", "target"])


@pytest.mark.parametrize("lazy", [False, True])
def test_labels_of_columns__that_are_no_text_are_no_names(lazy: bool, tmp_path: Path) -> None:
    """As scikit-learn takes those of pandas: wave lengths, say."""
    given = lengths(lazy, [400.0, 500.0, 600.0])
    fitted = PrototypeSetClassifier(**SMALL).fit(given, LONGER)
    assert fitted.model_.feature_names == ("x0", "x1", "x2")
    assert not hasattr(fitted, "feature_names_in_")
    np.testing.assert_array_equal(fitted.model_.predict_proba(given), fitted.model_.predict_proba(LENGTHS.to_numpy()))
    assert ingest((given, LONGER), tmp_path / "a.zarr").feature_names == ("x0", "x1", "x2")
    assert ingest((given, LONGER), tmp_path / "b.zarr", feature_names=["a", "b", "c"]).feature_names == ("a", "b", "c")


FORMS_OF_LABELS: dict[str, Any] = {
    "list": list,
    "series": pd.Series,
    "array": pa.array,
    "chunks": lambda labels: pa.chunked_array([labels[:20], labels[20:]]),
    "table": lambda labels: pa.table({"kind": labels}),
    "relation": lambda labels: Relation(pa.table({"kind": labels})),
    "capsule": lambda labels: Capsule(pa.table({"kind": labels})),
    "polars": lambda labels: pytest.importorskip("polars").Series(labels),
    "polars frame": lambda labels: pytest.importorskip("polars").DataFrame({"kind": labels}),
    "xarray": lambda labels: pytest.importorskip("xarray").DataArray(labels),
}
NUMBERS = FRUIT[["weight", "count"]].fillna(7.0)
FORMS_OF_ROWS: dict[str, Any] = {
    "numpy": NUMBERS.to_numpy,
    "polars": lambda: pytest.importorskip("polars").from_pandas(NUMBERS),
    "dask": lambda: da.from_array(NUMBERS.to_numpy(), chunks=(25, 2)),
    "dask frame": lambda: dd.from_pandas(NUMBERS, npartitions=3),
}


@cache
def of_numbers(rows: str) -> tuple[Any, float, str]:
    """What is learnt of rows in a form and labels in a list answers on them, how often that is right, and their key."""
    X = FORMS_OF_ROWS[rows]
    fitted = PrototypeSetClassifier(**SMALL).fit(X(), KIND, sample_weight=[1.0, 2.0] * 30)
    with TemporaryDirectory() as folder:
        key = ingest((X(), KIND), f"{folder}/d.zarr").key
    return np.asarray(fitted.predict_proba(X())), fitted.score(X(), KIND), key


@pytest.mark.parametrize(
    ("rows", "form"),
    [
        *(("numpy", form) for form in FORMS_OF_LABELS),
        *((rows, form) for rows in FORMS_OF_ROWS for form in ("chunks", "relation") if rows != "numpy"),
    ],
)
def test_labels__of_any_library(rows: str, form: str, tmp_path: Path) -> None:
    labels, given, X = FORMS_OF_LABELS[form](KIND), FORMS_OF_LABELS[form], FORMS_OF_ROWS[rows]
    fitted = PrototypeSetClassifier(**SMALL).fit(X(), labels, sample_weight=given([1.0, 2.0] * 30))
    probability, score, key = of_numbers(rows)
    np.testing.assert_array_equal(np.asarray(fitted.predict_proba(X())), probability)
    assert fitted.score(X(), labels) == score
    assert ingest((X(), labels), tmp_path / "a.zarr").key == key


def test_tables__of_arrow_that_pandas_made_of_its_columns_of_arrow() -> None:
    categories = pd.Series(KIND, dtype=pd.ArrowDtype(pa.dictionary(pa.int32(), pa.string())))
    frame = pd.DataFrame({"kind": categories, "day": [0, 1, 2] * 20}).set_index("day")
    assert in_pandas(pa.Table.from_pandas(frame))["kind"].tolist() == KIND


def test_tables__with_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    for second in (["q"] * 60, [0.5] * 60):
        table = pa.Table.from_arrays([pa.array(range(60)), pa.array(second), pa.array(KIND)], names=["c", "c", "kind"])
        with refused("named-twice", "Table", "one name"):
            PrototypeSetClassifier().fit(table, KIND)
        with refused("named-twice", "Table", "one name"):
            ingest(table, tmp_path / "d.zarr", target="kind")


def test_tables__of_arrow_may_have_a_column_without_a_type(tmp_path: Path) -> None:
    table = pa.table({"x": pa.nulls(60), "z": list(range(60)), "kind": KIND})
    for place, source in enumerate((table, Capsule(table))):
        found = ingest(source, tmp_path / f"{place}.zarr", target="kind")
        assert found.feature_names == ("x", "x is missing", "z")


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA])
def test_tables__of_objects_without_any_value_are_as_those_without_a_type(missing: Any, tmp_path: Path) -> None:
    objects = pd.DataFrame({"x": pd.Series([missing] * 60, dtype=object), "z": range(60), "kind": KIND})
    arrow = pa.table({"x": pa.nulls(60), "z": list(range(60)), "kind": KIND})
    one, other = (
        ingest(rows, tmp_path / f"{name}.zarr", target="kind")
        for name, rows in (("objects", objects), ("arrow", arrow))
    )
    assert one.metadata.columns == other.metadata.columns
    assert one.metadata.fingerprint == other.metadata.fingerprint
    several = ingest([objects.assign(x=1.0), objects], tmp_path / "several.zarr", target="kind")
    assert several.feature_names == one.feature_names
    with refused("wrong-type", "'x'", "'a'", "not numbers: x;", "`categorical`"):
        ingest([objects.assign(x="a"), objects], tmp_path / "text.zarr", target="kind")
    ways: list[dict[str, Any]] = [{"categorical": ["x"]}, {"text_is_categorical": True}]
    for wanted in ways:
        declared = ingest(objects, tmp_path / "declared.zarr", target="kind", overwrite=True, **wanted)
        assert [column.kind for column in declared.metadata.columns] == ["nominal", "numeric"]


def test_labels__missing_among_categories_of_arrow_are_no_category(tmp_path: Path) -> None:
    labels = pa.chunked_array([pa.array([None, *KIND[1:]]).dictionary_encode()])
    assert column_values(labels).tolist() == [None, *KIND[1:]]
    with refused("bad-value", "labels are missing", "row 0"):
        PrototypeSetClassifier().fit(NUMBERS, labels)
    with refused("bad-value", "row 0"):
        ingest((NUMBERS, pa.table({"kind": labels})), tmp_path / "a.zarr")


def test_labels__of_several_columns_are_refused(tmp_path: Path) -> None:
    with refused("wrong-shape", "Relation", "2 columns"):
        PrototypeSetClassifier().fit(NUMBERS, Relation(pa.table({"kind": KIND, "more": KIND})))


def test_data_sets_of_xarray__are_tables_along_one_dimension(
    fruit_key: str, of_fruit: PrototypeSetClassifier, tmp_path: Path
) -> None:
    xarray = pytest.importorskip("xarray")
    frame = FRUIT.assign(kind=KIND)
    given = xarray.Dataset(frame.rename_axis("row")).assign_coords(day=("row", np.arange(60)))
    assert ingest(given, tmp_path / "b.zarr", **WITH_TEXT).key == fruit_key
    fitted = PrototypeSetClassifier(**SMALL).fit(given.drop_vars("kind"), given["kind"])
    np.testing.assert_array_equal(fitted.predict_proba(given.drop_vars("kind")), of_fruit.predict_proba(FRUIT))
    with refused("wrong-shape", "row", "stack"):
        ingest(given.expand_dims(place=2), tmp_path / "c.zarr", **WITH_TEXT)
    with refused("wrong-type", "to_dask_dataframe"):
        ingest(given[["weight", "count"]].chunk(row=20), tmp_path / "c.zarr", **WITH_TEXT)


@pytest.mark.parametrize("kind", ["file", "table", "stream", "pandas"])
def test_ingest__tells_large_integers_apart_where_some_are_missing(kind: str, tmp_path: Path) -> None:
    known = [2**53, 2**53 + 1, -(2**62) - 1]
    columns: dict[str, list[Any]] = {"code": [*known, None], "large": [*known, None], "y": [0, 1, 0, 1]}
    table = pa.table({name: pa.array(values, pa.int64()) for name, values in columns.items()})
    pq.write_table(table, tmp_path / "t.parquet")
    source = {
        "file": tmp_path / "t.parquet",
        "table": table,
        "stream": Capsule(table),
        "pandas": pd.DataFrame({name: pd.array(values, "Int64") for name, values in columns.items()}),
    }[kind]
    found = ingest(source, tmp_path / "d.zarr", target="y", categorical=["code"], dtype="float64")
    assert found.columns[0].categories == tuple(sorted(known))
    rows = found.read(0)["features"]
    assert rows[:, :4].tolist() == [[0, 1, 0, 0], [0, 0, 1, 0], [1, 0, 0, 0], [0, 0, 0, 1]]
    assert rows[:3, 4].tolist() == [float(number) for number in known]
    assert rows[:, 5].tolist() == [0, 0, 0, 1]
