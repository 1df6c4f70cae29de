"""Streams of Arrow's, as sources of datasets."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.errors import refused

from protodask import Dataset, ingest
from protodask.data.arrays.rows import read_rows
from protodask.data.tables import streams
from protodask.data.tables.streams import is_stream, stored_streams
from protodask.engine import Engine
from protodask.engine.scheduling import Scheduler
from protodask.errors import OutputExistsError

ROWS = 600
FRAME = pd.DataFrame(
    {
        "number": np.arange(ROWS) / 8,
        "colour": np.where(np.arange(ROWS) % 3, "red", "green"),
        "kind": np.where(np.arange(ROWS) % 2, "yes", "no"),
    }
)
TABLE = pa.Table.from_pandas(FRAME, preserve_index=False)
OPTIONS: dict[str, Any] = {"target": "kind", "text_is_categorical": True}


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The system's place for temporary files."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place


def test_is_stream__of_what_has_no_rows_in_memory() -> None:
    batch = TABLE.to_batches()[0]
    for held in (FRAME, FRAME["number"], TABLE, batch, TABLE.column(0), np.zeros((2, 2)), "t.csv", (TABLE, [1])):
        assert not is_stream(held)
    assert is_stream(TABLE.to_reader())


def test_is_stream__of_other_libraries() -> None:
    polars, duckdb = pytest.importorskip("polars"), pytest.importorskip("duckdb")
    frame = polars.from_arrow(TABLE)
    assert not any(map(is_stream, (frame, frame["number"], frame.lazy())))
    connection = duckdb.connect()
    connection.register("given", TABLE)
    assert is_stream(connection.sql("select * from given"))


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Of the frame."""
    return ingest(FRAME, tmp_path_factory.mktemp("expected") / "d.zarr", **OPTIONS)


@settings(max_examples=20)
@given(length=st.integers(1, ROWS), group=st.integers(1, 10_000))
def test_ingest__of_a_stream_whatever_its_batches(expected: Dataset, length: int, group: int) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(streams, "GROUP_BYTES", group)
        found = ingest(TABLE.to_reader(max_chunksize=length), f"{folder}/found.zarr", **OPTIONS)
    assert found.key == expected.key


@pytest.mark.slow
def test_ingest__holds_no_stream_as_a_whole(tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "GROUP_BYTES", 2**16)
    held = []
    before = pa.total_allocated_bytes()

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(200):
            values = pa.array(np.arange(5_000) + number).cast(pa.float64())  # which Arrow allocates, 40 kB
            held.append(pa.total_allocated_bytes() - before)
            yield pa.record_batch({"x": values, "kind": pa.array(["yes", "no"] * 2_500).dictionary_encode()})

    schema = pa.schema({"x": pa.float64(), "kind": pa.dictionary(pa.int32(), pa.string())})
    dataset = ingest(pa.RecordBatchReader.from_batches(schema, batches()), tmp_path / "d.zarr", target="kind")
    assert dataset.n_rows == 10**6
    assert max(held) < 200 * 40_000 / 4
    assert not list(temporary.iterdir())


def test_ingest__of_streams_among_others_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "GROUP_BYTES", 2**10)
    sources = [FRAME[:100], TABLE.slice(100, 200).to_reader(), FRAME[300:400], TABLE.slice(400).to_reader(7)]
    expected = ingest(FRAME, tmp_path / "expected.zarr", **OPTIONS)
    assert ingest(sources, tmp_path / "found.zarr", **OPTIONS).key == expected.key


def test_ingest__appends_a_stream(tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "GROUP_BYTES", 2**12)
    ingest(FRAME[:100], tmp_path / "d.zarr", **OPTIONS)
    found = ingest(TABLE.slice(100).to_reader(50), tmp_path / "d.zarr", append=True)
    expected = ingest(FRAME, tmp_path / "expected.zarr", **OPTIONS)
    rows, wanted = (read_rows(dataset, 0, ROWS) for dataset in (found, expected))
    for name in ("features", "target"):
        np.testing.assert_array_equal(rows[name], wanted[name])
    assert not list(temporary.iterdir())


def test_ingest__of_a_stream_that_ends_with_an_error(tmp_path: Path, temporary: Path) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield TABLE.to_batches()[0]
        raise ValueError("the connection was lost")

    reader = pa.RecordBatchReader.from_batches(TABLE.schema, batches())
    with refused("unreadable", "RecordBatchReader", "the connection was lost"):
        ingest(reader, tmp_path / "d.zarr", **OPTIONS)
    assert not list(temporary.iterdir())
    assert not (tmp_path / "d.zarr").exists()


@pytest.mark.parametrize("group", [1, 2**25])
def test_ingest__of_a_stream_that_is_interrupted(group: int, tmp_path: Path, temporary: Path) -> None:
    class Stopped(BaseException):
        pass

    def batches() -> Iterator[pa.RecordBatch]:
        yield from TABLE.to_batches(max_chunksize=50)
        raise Stopped

    reader = pa.RecordBatchReader.from_batches(TABLE.schema, batches())
    with mock.patch.object(streams, "GROUP_BYTES", group), pytest.raises(Stopped):
        ingest(reader, tmp_path / "d.zarr", **OPTIONS)
    assert not list(temporary.iterdir())
    assert not (tmp_path / "d.zarr").exists()


@pytest.mark.parametrize("group", [1, 2**25])
def test_ingest__of_a_stream_has_the_categories_of_its_table(group: int, tmp_path: Path) -> None:
    numbers = pa.array([3, 5, None] * (ROWS // 3)).dictionary_encode()
    table = pa.table({"level": numbers, "text": pa.array(["a", "b"] * (ROWS // 2)).dictionary_encode()})
    table = table.append_column("kind", TABLE["kind"]).append_column("number", TABLE["number"])
    expected = ingest(table, tmp_path / "expected.zarr", **OPTIONS)
    assert [column.categories for column in expected.columns] == [(3, 5), ("a", "b"), ()]
    with mock.patch.object(streams, "GROUP_BYTES", group):
        assert ingest(table.to_reader(50), tmp_path / "found.zarr", **OPTIONS).key == expected.key


@pytest.mark.parametrize("group", [1, 2**25])
def test_ingest__refuses_a_stream_of_columns_of_one_name(group: int, tmp_path: Path) -> None:
    reader = TABLE.append_column("number", TABLE["number"]).to_reader(50)
    with mock.patch.object(streams, "GROUP_BYTES", group), refused("named-twice", "RecordBatchReader"):
        ingest(reader, tmp_path / "d.zarr", **OPTIONS)


def test_ingest__looks_at_its_place_before_it_reads_a_stream(tmp_path: Path) -> None:
    ingest(FRAME, tmp_path / "d.zarr", **OPTIONS)
    reader = TABLE.to_reader()
    with refused("exists", kind=OutputExistsError):
        ingest(reader, tmp_path / "d.zarr", **OPTIONS)
    assert reader.read_all().num_rows == ROWS
    assert Dataset.open(tmp_path / "d.zarr").n_rows == ROWS


def test_ingest__refuses_a_stream_of_types_that_no_file_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = pa.array([(1, 2, 3)], pa.month_day_nano_interval())
    monkeypatch.setattr(streams, "GROUP_BYTES", 1)
    reader = pa.table({"x": pa.chunked_array([pairs, pairs]), "kind": ["yes", "no"]}).to_reader()
    with refused("wrong-type", "RecordBatchReader"):
        ingest(reader, tmp_path / "d.zarr", **OPTIONS)


def test_stored_streams__are_left_to_clusters_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their workers have no access to the place."""
    monkeypatch.setattr(streams, "GROUP_BYTES", 2**12)
    sources = [TABLE.to_reader(max_chunksize=50), FRAME, TABLE[:9].to_reader()]
    with Engine() as engine, stored_streams(sources, engine) as found:
        assert [type(source) for source in found] == [str, pd.DataFrame, pa.Table]
    reader = TABLE.to_reader()
    with Engine(mock.create_autospec(Scheduler, instance=True)) as engine, stored_streams(reader, engine) as found:
        assert found is reader
