"""Files that are read as one table, by the names of their columns, although they differ from each other."""

from __future__ import annotations

import glob
import itertools
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.errors import refused

from protodask.data import Dataset
from protodask.data.format.schema import FEATURES, TARGET, Column
from protodask.data.news.ingest_news import ingest_news
from protodask.data.tables.ingest import ingest
from protodask.data.tables.ingest_scan import table_source
from protodask.data.tables.ingest_schema import Roles, Wanted
from protodask.data.tables.ingest_sources import tables_by_file
from protodask.data.tables.small_files import encode_file
from protodask.data.tables.source_files import source_files
from protodask.engine import Arrays, Engine

NUMBER, FLAG, CITY = (
    Column("größe in cm", filled=7.5, marked=True),
    Column("flag"),
    Column("city", "nominal", ("B", "O")),
)
COLUMNS = (NUMBER, FLAG, CITY)
FURTHER = ("extra", "a , b", "species")
ENDINGS = (".csv", ".csv.gz", ".tsv", ".parquet")

Rows = list[tuple[int | None, bool, str]]


def features_of(rows: Rows) -> np.ndarray:
    """What the columns make of rows, value by value."""
    numbers: list[list[float]] = [[7.5, 1] if number is None else [number, 0] for number, _, _ in rows]
    others: list[list[float]] = [[flag, city == "B", city == "O"] for _, flag, city in rows]
    return np.array([left + right for left, right in zip(numbers, others, strict=True)], dtype=float).reshape(-1, 5)


def write(path: Path, rows: Rows, order: list[str], number: Any, city: Any) -> None:
    """A file of rows, whose columns have an order and types of their own."""
    frame = pd.DataFrame(rows, columns=[column.name for column in COLUMNS])
    absent = None if path.suffix == ".parquet" else "NA"  # which is a text like any other in Parquet
    if number == "text":
        frame[NUMBER.name] = [absent if value is None else f"{value}.0" for value, _, _ in rows]
    else:
        whole = all(value is not None for value, _, _ in rows) or number == "Int64"
        frame[NUMBER.name] = frame[NUMBER.name].astype(number if whole else "float64")
    frame[CITY.name] = frame[CITY.name].astype(city)
    frame = frame.assign(**{name: f"{path.name}, {name}" for name in FURTHER})[order]
    if path.suffix == ".parquet":
        frame.to_parquet(path)
    else:
        frame.to_csv(path, index=False, sep="\t" if path.suffix == ".tsv" else ",")


file = st.fixed_dictionaries(
    {
        "rows": st.lists(
            st.tuples(st.none() | st.integers(-9, 99), st.booleans(), st.sampled_from(["B", "O"])), max_size=4
        ),
        "order": st.tuples(st.permutations([column.name for column in COLUMNS]), st.sets(st.sampled_from(FURTHER))).map(
            lambda pair: [*sorted(pair[1]), *pair[0]]
        ),
        "number": st.sampled_from(["int64", "float32", "Int64"]),
        "city": st.sampled_from(["str", "object", "category"]),
        "ending": st.sampled_from(ENDINGS),
    }
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=10, deadline=None)
@given(st.lists(file, min_size=1, max_size=5).filter(lambda files: any(each["rows"] for each in files)), st.booleans())
def test_files_that_differ__are_read_by_name_in_their_order(
    engine: Engine, tmp_path_factory: pytest.TempPathFactory, files: list[dict[str, Any]], in_a_folder: bool
) -> None:
    folder = tmp_path_factory.mktemp("files")
    paths = [folder / f"{number}{each['ending']}" for number, each in enumerate(files)]
    for path, each in zip(paths, files, strict=True):
        write(path, each["rows"], each["order"], each["number"], each["city"])
    if not in_a_folder:
        paths, files = paths[::-1], files[::-1]
    expected = features_of(list(itertools.chain.from_iterable(each["rows"] for each in files)))
    said = {"columns": COLUMNS, "target_name": "species", "dtype": "float64"}
    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always")
        source = table_source(str(folder) if in_a_folder else [*map(str, paths)], engine=engine, **said)  # type: ignore[arg-type]
    further = {name for each in files for name in each["order"] if name in FURTHER[:2]}
    assert len(noted) == bool(further)
    assert all(repr(name) in str(noted[0].message) for name in further)
    np.testing.assert_array_equal(source.rows(0, len(expected))[FEATURES.name], expected)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one_by_one = [
            encode_file(path.read_bytes(), str(path), unseen="error", keep=(), dropped=(), **said)[FEATURES.name]  # type: ignore[arg-type]
            for path, each in zip(paths, files, strict=True)
            if each["rows"]
        ]
    np.testing.assert_array_equal(np.concatenate(one_by_one), expected)


ROWS: Rows = [(1, True, "B"), (None, False, "O"), (3, True, "O")]
ORDER = [column.name for column in COLUMNS]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with files that are alike, but for the order of columns and text in place of numbers."""
    write(tmp_path / "a.csv", ROWS, ORDER, "float64", "str")
    write(tmp_path / "b.csv", ROWS, ORDER[::-1], "text", "str")
    write(tmp_path / "c.csv", ROWS, ORDER, "text", "str")
    write(tmp_path / "d.parquet", ROWS, ORDER, "text", "category")
    write(tmp_path / "e.parquet", ROWS, ORDER, "Int64", "str")
    return tmp_path


@pytest.mark.parametrize("name", ["a.csv", "b.csv", "c.csv", "d.parquet", "e.parquet"])
def test_a_file_that_lacks_a_column__is_named(name: str, place: Path, engine: Engine) -> None:
    write(place / name, ROWS, [NUMBER.name, CITY.name], "float64", "str")
    with refused("columns-differ", f"{place}/{name} has other columns than expected: it lacks 'flag'."):
        table_source(str(place), COLUMNS, engine=engine)


@pytest.mark.parametrize("name", ["a.csv", "b.csv", "c.csv", "d.parquet", "e.parquet"])
def test_a_value_that_cannot_be_used__is_found_in_its_file(name: str, place: Path, engine: Engine) -> None:
    write(place / name, [*ROWS, (4, True, "Rome")], ORDER, "float64", "str")
    with refused(
        "bad-value", f"Column 'city' has the category 'Rome', which was not there at ingest, in row 3 of {place}/{name}"
    ):
        table_source(str(place), COLUMNS, engine=engine)
    zero = table_source(str(place), COLUMNS, unseen="zero", engine=engine)
    assert zero.layout.n_rows == 16
    assert table_source(str(place), COLUMNS, bad_rows="mark", engine=engine).marked == 1


def test_a_file_that_cannot_be_read__is_named(place: Path, engine: Engine) -> None:
    (place / "c.csv").write_text((place / "c.csv").read_text() + "1,2,3,4,5\n")
    with refused("unreadable", f"{place}/c.csv"):
        table_source(str(place), COLUMNS, engine=engine)


def test_a_role__is_had_by_all_files_or_by_none(place: Path, engine: Engine) -> None:
    for name in ("a.csv", "c.csv"):
        write(place / name, ROWS, [*ORDER, "species"], "float64", "str")
    assert table_source(str(place), COLUMNS, target_name="species", engine=engine).layout.n_rows == 15
    with refused("columns-differ", f"Column 'species' is in {place}/a.csv and not in {place}/b.csv, {place}/d.parquet"):
        table_source(str(place), COLUMNS, target_name="species", classes=("x",), engine=engine)


def labelled(path: Path, first: int, order: list[str]) -> None:
    rows = pd.DataFrame({"x": np.arange(first, first + 4.0), "y": np.arange(4) % 2, "z": 1.0})
    rows[order].to_csv(path, index=False)


@pytest.mark.parametrize("new", [False, True])
def test_ingest__keeps_the_order_of_files_whatever_that_of_columns(
    new: bool, tmp_path: Path, engine: Engine, all_rows: Callable[[Dataset], Arrays]
) -> None:
    for number, order in enumerate(["xyz", "zyx", "xyz"]):
        labelled(tmp_path / f"{number}.csv", 4 * number, list(order))
    if new:
        data = ingest_news(
            str(tmp_path),
            tmp_path / "d",
            Wanted(Roles("y")),
            new=True,
            unless_in=None,
            settle=0,
            overwrite=False,
            block_rows=None,
            engine=engine,
        ).dataset
    else:
        data = ingest(str(tmp_path), tmp_path / "d", target="y", engine=engine)
    found = all_rows(data)
    np.testing.assert_array_equal(found[FEATURES.name][:, 0], np.arange(12))
    np.testing.assert_array_equal(found[TARGET.name], np.arange(12) % 2)


def test_ingest__names_the_file_with_other_columns(tmp_path: Path, engine: Engine) -> None:
    for number, order in enumerate(["xyz", "zyx", "xy"]):
        labelled(tmp_path / f"{number}.csv", 0, list(order))
    with refused("columns-differ", f"{tmp_path}/2.csv has other columns than expected: it lacks 'z'."):
        ingest(str(tmp_path), tmp_path / "d", target="y", engine=engine)


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
@pytest.mark.parametrize("by_file", [False, True])
def test_files_with_odd_names__are_read_themselves_in_the_order_given(
    ending: str, by_file: bool, tmp_path: Path, engine: Engine
) -> None:
    names = ["d[1]", "d1", "d10", "d2", "s*", "ü b#", "a"]
    paths = [tmp_path / f"{name}{ending}" for name in names]
    for number, path in enumerate(paths):
        write(path, [(number, True, "B")] * (number + 1), ORDER, "int64", "str")
    expected = [number for number in range(len(names)) for _ in range(number + 1)]
    if by_file:
        files = [each.path for path in paths for each in source_files(glob.escape(str(path)))]
        table = tables_by_file(files, ["city"], ())
        assert [table.place(number) for number in range(table.n_partitions)] == [*map(str, paths)]
        assert table.counts == (1,) * len(names)
        found = np.concatenate([table.read(number)[NUMBER.name] for number in range(table.n_partitions)])
    else:
        source = table_source([glob.escape(str(path)) for path in paths], COLUMNS, engine=engine)
        found = source.rows(0, len(expected))[FEATURES.name][:, 0]
    np.testing.assert_array_equal(found, expected)


def test_parquet_files_of_a_folder__come_as_they_are_numbered(tmp_path: Path, engine: Engine) -> None:
    for number in range(12):
        write(tmp_path / f"part.{number}.parquet", [(number, True, "B")], ORDER, "int64", "str")
    found = table_source(str(tmp_path), COLUMNS, engine=engine).rows(0, 12)[FEATURES.name]
    np.testing.assert_array_equal(found[:, 0], np.arange(12))
