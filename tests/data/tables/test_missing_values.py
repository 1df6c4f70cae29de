"""Missing values at an ingest: what they count as, where that is said, and when they are refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask.dataframe
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.errors import refused

from protodask.data.format.dataset import Dataset
from protodask.data.format.metadata import from_attributes, to_attributes
from protodask.data.format.schema import Column
from protodask.data.tables.encoding import MatrixTable, encode_features
from protodask.data.tables.ingest import ingest
from protodask.data.tables.ingest_scan import MAX_LABELS
from protodask.errors import FormatError
from protodask.explain.original_rows import decode_row

SIZES = ("s", "m", "l")
SETTINGS: dict[str, Any] = {"target": "y", "categorical": ["colour"], "ordinal": {"size": SIZES}, "dtype": "float64"}


def make_frame(rows: int = 300, share: float = 0.2, seed: int = 0) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "whole": random.standard_normal(rows),
            "length": random.standard_normal(rows),
            "count": random.integers(0, 9, rows).astype(float),
            "colour": random.choice(["red", "green"], rows).astype(object),
            "size": random.choice(SIZES, rows).astype(object),
            "y": random.choice(["a", "b"], rows),
        }
    )
    for name in ("length", "count", "colour", "size"):
        frame.loc[random.random(rows) < share, name] = None
    return frame


def expected_of(frame: pd.DataFrame) -> np.ndarray:
    """The features, value by value."""
    position = {size: float(place) for place, size in enumerate(SIZES)}
    known = {
        "length": [value for value in frame["length"] if not pd.isna(value)],
        "count": [value for value in frame["count"] if not pd.isna(value)],
        "size": [position[value] for value in frame["size"] if not pd.isna(value)],
    }
    mean = {name: math.fsum(values) / len(values) for name, values in known.items()}
    rows = []
    for row in frame.to_dict("records"):
        gone = {name: pd.isna(row[name]) for name in ("length", "count", "colour", "size")}
        rows.append(
            [
                row["whole"],
                *(
                    value
                    for name in ("length", "count")
                    for value in (mean[name] if gone[name] else row[name], gone[name])
                ),
                row["colour"] == "green",
                row["colour"] == "red",
                gone["colour"],
                mean["size"] if gone["size"] else position[row["size"]],
                gone["size"],
            ]
        )
    return np.array(rows, dtype=float)


NAMES = (
    "whole", "length", "length is missing", "count", "count is missing", "colour=green", "colour=red",
    "colour is missing", "size", "size is missing",
)  # fmt: skip


def as_csv(frame: pd.DataFrame, folder: Path) -> Any:
    frame.to_csv(folder / "t.csv", index=False)
    return folder / "t.csv"


def as_parquet(frame: pd.DataFrame, folder: Path) -> Any:
    frame.to_parquet(folder / "t.parquet", row_group_size=70)
    return folder / "t.parquet"


def as_frame(frame: pd.DataFrame, _: Path) -> Any:
    return frame


def as_nullable(frame: pd.DataFrame, _: Path) -> Any:
    return frame.astype({"length": "Float64", "count": "Int64", "colour": "category"})


def as_dask(frame: pd.DataFrame, _: Path) -> Any:
    return dask.dataframe.from_pandas(frame, npartitions=3)


@pytest.mark.parametrize("form", [as_csv, as_parquet, as_frame, as_nullable, as_dask], ids=lambda form: form.__name__)
def test_ingest__fills_in_what_is_missing_and_marks_it(
    form: Callable[[pd.DataFrame, Path], Any], tmp_path: Path
) -> None:
    frame = make_frame()
    found = ingest(form(frame, tmp_path), tmp_path / "d", block_rows=64, **SETTINGS)
    assert found.feature_names == NAMES
    features = np.concatenate([found.read(number)["features"] for number in range(found.layout.n_blocks)])
    np.testing.assert_allclose(features, expected_of(frame), rtol=1e-12)
    again = Dataset.open(tmp_path / "d")
    assert again.columns == found.columns
    assert again.metadata.version == 4
    assert any("length, count, colour, size" in note for note in again.notes)


def test_ingest__says_nothing_where_nothing_is_missing(tmp_path: Path) -> None:
    frame = make_frame(share=0.0)
    found = ingest(frame, tmp_path / "d", **SETTINGS)
    assert found.metadata.version == 1
    assert all(column.filled is None and not column.marked for column in found.columns)
    assert found.key == ingest(frame, tmp_path / "e", missing="error", **SETTINGS).key


def test_ingest__collects_no_labels_of_numbers(tmp_path: Path) -> None:
    random = np.random.default_rng(2)
    frame = pd.DataFrame({"a": random.standard_normal(MAX_LABELS + 1), "y": random.choice(["n", "p"], MAX_LABELS + 1)})
    dataset = ingest(dask.dataframe.from_pandas(frame, npartitions=2), tmp_path / "d.zarr", target="y")
    assert dataset.layout.n_rows == MAX_LABELS + 1


@pytest.mark.parametrize("name", ["length", "colour", "size"])
def test_ingest__takes_a_column_without_any_value(name: str, tmp_path: Path) -> None:
    frame = make_frame()
    frame[name] = None if name != "length" else np.nan
    found = ingest(frame, tmp_path / "d", **SETTINGS)
    assert (name in found.notes[0], name in found.notes[1]) == (True, True)
    again = Dataset.open(tmp_path / "d")
    assert again.columns == found.columns
    (column,) = (column for column in found.columns if column.name == name)
    assert (column.filled, column.marked) == (0.0, True)
    own = [place for place, feature in enumerate(found.feature_names) if feature in column.feature_names]
    rows = again.read(0)["features"][:, own]
    assert (rows[:, -1] == 1).all()
    assert (rows[:, :-1] == 0).all()
    with refused("bad-value", name, "row 0"):
        ingest(frame, tmp_path / "e", missing="error", **SETTINGS)


def test_append__takes_missing_values_where_there_were_some(tmp_path: Path) -> None:
    first, more = make_frame(), make_frame(seed=1)
    found = ingest(first, tmp_path / "d", **SETTINGS)
    more.loc[~more["size"].isna(), "size"] = "m"
    ingest(more, tmp_path / "d", append=True)
    again = Dataset.open(tmp_path / "d")
    assert again.columns == found.columns
    last = again.read(again.layout.n_blocks - 1)
    absent = more["length"].isna().to_numpy()
    np.testing.assert_array_equal(last["features"][-len(more) :, 2], absent[-len(last["features"]) :])
    filled = dict(zip(NAMES, last["features"][-len(more) :][absent].T, strict=True))["length"]
    assert set(filled) == {found.columns[1].filled}
    more.loc[3, "whole"] = np.nan
    with refused("bad-value", "whole", "row 3"):
        ingest(more, tmp_path / "d", append=True)


def test_ingest__takes_all_text_as_categories_on_one_word(tmp_path: Path) -> None:
    frame = make_frame()
    with refused("wrong-type", "`text_is_categorical`", "`drop`", "colour, size"):
        ingest(frame, tmp_path / "d", target="y")
    found = ingest(frame, tmp_path / "d", target="y", ordinal={"size": SIZES}, text_is_categorical=True)
    assert [column.kind for column in found.columns] == ["numeric"] * 3 + ["nominal", "ordinal"]


def test_ingest__refuses_another_word_for_missing(tmp_path: Path) -> None:
    with refused("bad-setting", "'guess'", "'fill'", "'error'"):
        ingest(make_frame(), tmp_path / "d", missing="guess", **SETTINGS)  # type: ignore[arg-type]


def test_decode_row__says_what_is_missing(tmp_path: Path) -> None:
    frame = make_frame(20)
    found = ingest(frame, tmp_path / "d", **SETTINGS)
    for features, row in zip(found.read(0)["features"], frame.to_dict("records"), strict=True):
        decoded = decode_row(found.columns, features)
        assert decoded == {name: None if pd.isna(row[name]) else row[name] for name in decoded}


@pytest.mark.parametrize(("name", "value"), [("filled", "x"), ("filled", 10**400), ("marked", 1), ("filled", None)])
def test_open__notices_damage_in_what_is_said_of_missing_values(name: str, value: Any, tmp_path: Path) -> None:
    found = ingest(make_frame(), tmp_path / "d", **SETTINGS)
    attributes = to_attributes(found.metadata)
    attributes["columns"][1][name] = value
    from protodask.data.places.records import seal

    sealed = seal({key: kept for key, kept in attributes.items() if key != "checksum"}, "dataset")
    with refused("damaged", "length", kind=FormatError):
        from_attributes(sealed, "d")


@given(
    cells=st.lists(st.tuples(*[st.sampled_from([0.0, 1.0, -2.5, math.nan])] * 3), min_size=1, max_size=12),
    marked=st.tuples(*[st.booleans()] * 3),
)
@settings(max_examples=60)
def test_encode_features__of_a_matrix_are_those_of_its_columns(
    cells: list[tuple[float, ...]], marked: tuple[bool, ...]
) -> None:
    matrix = np.array(cells)
    columns = tuple(replace(Column(name), filled=0.25, marked=mark) for name, mark in zip("abc", marked, strict=True))
    width = 3 + sum(marked)
    whole, apart = np.full((len(cells), width), 7.0), np.full((len(cells), width), 8.0)
    table = {name: matrix[:, place] for place, name in enumerate("abc")}
    assert encode_features(MatrixTable(("a", "b", "c"), matrix, {}), columns, whole) is None
    assert encode_features(table, columns, apart) is None
    np.testing.assert_array_equal(whole, apart)
    place = 0
    for column, values in zip(columns, matrix.T, strict=True):
        gone = np.isnan(values)
        np.testing.assert_array_equal(whole[:, place], np.where(gone, 0.25, values))
        if column.marked:
            np.testing.assert_array_equal(whole[:, place + 1], gone)
        place += 1 + column.marked
