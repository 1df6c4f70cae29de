"""Data frames of other libraries: what Arrow's streams hand over."""

import sys
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from support.errors import refused

from protodask import Dataset, PrototypeSetClassifier, ingest
from protodask.data.tables.frames import in_pandas

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


class Lazy(Relation):
    """The same of a query that was not run."""

    def collect(self) -> Relation:
        return Relation(self._table)

    def collect_schema(self) -> Any:
        return self._table.schema


KINDS: dict[str, Any] = {
    "table": lambda table: table,
    "batch": lambda table: table.combine_chunks().to_batches()[0],
    "reader": lambda table: table.to_reader(max_chunksize=7),
    "relation": Relation,
}


def in_arrow(frame: pd.DataFrame) -> pa.Table:
    return pa.Table.from_pandas(frame, preserve_index=False)


@pytest.mark.parametrize("kind", KINDS)
def test_ingest__of_frames_of_any_library(kind: str, tmp_path: Path) -> None:
    frame = FRUIT.assign(kind=KIND)
    options: dict[str, Any] = {"target": "kind", "text_is_categorical": True}
    expected = ingest(frame, tmp_path / "expected.zarr", **options)
    found = ingest(KINDS[kind](in_arrow(frame)), tmp_path / "found.zarr", **options)
    assert found.key == expected.key
    pair = ingest((KINDS[kind](in_arrow(FRUIT)), KIND), tmp_path / "pair.zarr", **options)
    assert pair.key == expected.key
    assert Dataset.open(tmp_path / "found.zarr").feature_names == expected.feature_names


@pytest.mark.parametrize("kind", KINDS)
def test_estimator__of_frames_of_any_library(kind: str) -> None:
    expected = PrototypeSetClassifier(random_state=0).fit(FRUIT, KIND)
    found = PrototypeSetClassifier(random_state=0).fit(KINDS[kind](in_arrow(FRUIT)), KIND)
    assert found.feature_names_in_.tolist() == FRUIT.columns.tolist()
    np.testing.assert_array_equal(found.predict_proba(FRUIT), expected.predict_proba(FRUIT))
    np.testing.assert_array_equal(
        found.predict_proba(KINDS[kind](in_arrow(FRUIT[:7]))), expected.predict_proba(FRUIT[:7])
    )


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
    model = PrototypeSetClassifier(random_state=0).fit(FRUIT[["weight", "count"]], KIND).model_
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
    with refused("wrong-type", "Lazy", "Collect"):
        PrototypeSetClassifier().fit(lazy, KIND)
    assert not list(tmp_path.iterdir())


class DataArray:
    """What an array of xarray has: its values, and names of its dimensions."""

    dims = ("row", "feature")

    def __init__(self, data: Any) -> None:
        self.data = data
        self.shape = data.shape

    def __dask_graph__(self) -> Any:
        """It is there also of those in memory."""
        return self.data.__dask_graph__() if hasattr(self.data, "dask") else None


DataArray.__module__ = "xarray.core.dataarray"


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
        given = DataArray(values if kind == "memory" else da.from_array(values, chunks=(100, 4)))
    settings: dict[str, Any] = {"n_candidates": 20, "n_draws": 1}
    expected = PrototypeSetClassifier(**settings).fit(da.from_array(values, chunks=(100, 4)), labels)
    fitted = PrototypeSetClassifier(**settings).fit(given, labels if kind == "zip" else DataArray(labels))
    assert fitted.score(given, labels) == expected.score(values, labels)
    np.testing.assert_allclose(
        np.asarray(fitted.predict_proba(given)), np.asarray(expected.predict_proba(values)), rtol=1e-5
    )
    written = ingest((given, labels), tmp_path / "d.zarr")
    assert written.key == ingest((values, labels), tmp_path / "e.zarr").key
