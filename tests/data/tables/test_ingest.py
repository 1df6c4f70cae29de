"""Ingest: every kind of input becomes the same dataset, and every fault a clear error that leaves nothing behind."""

from __future__ import annotations

import gc
import gzip
import itertools
import os
import pickle
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask.array
import dask.dataframe
import numpy as np
import pandas as pd
import pyarrow
import pyarrow.parquet
import pytest
import zarr
from distributed import Client, LocalCluster
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.errors import refused

from protodask.data import Column, Dataset, table_source
from protodask.data.places import records as records_module
from protodask.data.tables import csv_files, ingest_scan, ingest_schema, ingest_sources
from protodask.data.tables.ingest import ingest, ingest_arrays
from protodask.data.tables.ingest_frames import frame_beside
from protodask.data.tables.small_files import encode_file
from protodask.engine import Arrays, Engine, Progress
from protodask.errors import Code, FormatError, InputError, OutputExistsError, StorageError

ROWS = 250
SETTINGS: dict[str, Any] = {
    "target": "y",
    "categorical": ["colour", "zone"],
    "ordinal": {"size": ["small", "middle", "big"]},
    "weight": "w",
    "inclusion": "p",
    "drop": ["id"],
    "block_rows": 64,
}


def make_frame(rows: int = ROWS, seed: int = 0) -> pd.DataFrame:
    generator = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "id": [f"row {number}" for number in range(rows)],
            "length": generator.standard_normal(rows).round(6),
            "count": generator.integers(0, 100, rows),
            "colour": generator.choice(["red", "green", "dark blue"], rows),
            "flag": generator.random(rows) < 0.5,
            "size": generator.choice(["small", "middle", "big"], rows),
            "zone": generator.choice([3, 10, 200], rows),
            "w": generator.random(rows).round(6),
            "y": generator.choice(["yes", "no", "it depends"], rows),
            "p": generator.uniform(0.1, 1, rows).round(6),
        }
    )


def given_as(kind: str, frame: pd.DataFrame, folder: Path, group_rows: int) -> Any:
    """A frame as a file of some kind in a folder, as one of dask, or as it is."""
    match kind:
        case "csv":
            frame.to_csv(path := folder / "t.csv", index=False)
            return path
        case "parquet":
            frame.to_parquet(path := folder / "t.parquet", row_group_size=group_rows)
            return path
        case "dask":
            return dask.dataframe.from_pandas(frame, npartitions=3)
    return frame


@pytest.fixture(autouse=True)
def small_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Partitions of a few dozen rows, which do not fit the blocks."""
    monkeypatch.setattr(ingest_sources, "CSV_PARTITION_BYTES", 3000)
    monkeypatch.setattr(ingest_sources, "PARQUET_PARTITION_BYTES", 1024)


@pytest.fixture(scope="module")
def expected(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """What every test reads and none writes to."""
    return ingest(make_frame(), tmp_path_factory.mktemp("expected") / "d.zarr", engine=engine, **SETTINGS)


def test_ingest__encodes_as_said(expected: Dataset, all_rows: Callable[[Dataset], Arrays]) -> None:
    frame = make_frame()
    assert expected.classes == ("it depends", "no", "yes")
    assert expected.feature_names == (
        "length", "count", "colour=dark blue", "colour=green", "colour=red", "flag", "size",
        "zone=3", "zone=10", "zone=200",
    )  # fmt: skip
    rows = all_rows(expected)
    wanted = np.column_stack(
        [frame["length"], frame["count"], *(frame["colour"] == name for name in ("dark blue", "green", "red"))]
        + [frame["flag"], frame["size"].map({"small": 0, "middle": 1, "big": 2})]
        + [frame["zone"] == zone for zone in (3, 10, 200)]
    )
    np.testing.assert_array_equal(rows["features"], wanted.astype(np.float32))
    np.testing.assert_array_equal(np.array(expected.classes)[rows["target"]], frame["y"].to_numpy(dtype=str))
    np.testing.assert_array_equal(rows["weight"], frame["w"])
    np.testing.assert_array_equal(rows["inclusion"], frame["p"])
    assert expected.target_name == "y"


FORMS = [
    "csv",
    "tsv",
    "gzip",
    "tsv, packed",
    "csv parts",
    "csv orders",
    "parquet",
    "parquet parts",
    "folder",
    "glob",
    "dask",
    "several",
]


@pytest.mark.parametrize("form", FORMS)
def test_ingest__is_the_same_from_every_kind_of_table(
    form: str, expected: Dataset, engine: Engine, tmp_path: Path
) -> None:
    frame = make_frame()
    data = tmp_path / "data"
    data.mkdir()
    parts = [frame[:61], frame[61:68], frame[68:]]
    source: Any
    match form:
        case "csv":
            frame.to_csv(source := data / "t.csv", index=False)
        case "tsv":
            frame.to_csv(source := data / "t.tsv", index=False, sep="\t")
        case "gzip":
            frame.to_csv(source := data / "t.csv.gz", index=False)
        case "tsv, packed":
            frame.to_csv(source := data / "t.TSV.bz2", index=False, sep="\t")
        case "csv parts" | "csv orders":
            source = []
            for number, part in enumerate(parts):
                path = data / f"{number}.csv"
                # Files with another order of columns must not be misread.
                names = list(part.columns)[:: -1 if form == "csv orders" and number == 2 else 1]
                part[names].to_csv(path, index=False)
                source.append(str(path))
        case "parquet":
            frame.to_parquet(source := data / "t.parquet", row_group_size=37)
        case "parquet parts" | "folder" | "glob":
            for number, part in enumerate(parts):
                part.to_parquet(data / f"{number}.parquet", row_group_size=50)
            source = data if form == "folder" else str(data / "*.parquet")
            if form == "parquet parts":
                source = sorted(data.iterdir())
        case "dask":
            source = dask.dataframe.from_pandas(frame, npartitions=7)
        case _:
            source = [parts[0], dask.dataframe.from_pandas(parts[1], npartitions=2), parts[2]]
    found = ingest(source, tmp_path / "found", engine=engine, **SETTINGS)
    assert found.key == expected.key
    np.testing.assert_array_equal(found.summary.mean, expected.summary.mean)


@pytest.mark.parametrize("new", [False, True])
@pytest.mark.parametrize("ending", ["csv", "csv.gz", "parquet"])
def test_ingest__of_files_whose_names_look_like_globs(ending: str, new: bool, engine: Engine, tmp_path: Path) -> None:
    names = ["data1", "data[1]", "a*b", "aXb", "a?b", "[!a]", "[[]", "c::d", "t]u"]
    for number, name in enumerate(names):
        frame = pd.DataFrame({"x": [number, number], "y": ["p", "q"]})
        path = tmp_path / "data" / f"{name}.{ending}"
        path.parent.mkdir(exist_ok=True)
        text = frame.to_csv(index=False).encode()
        path.write_bytes({"csv": text, "csv.gz": gzip.compress(text), "parquet": frame.to_parquet()}[ending])
    found = ingest(tmp_path / "data", tmp_path / "d", target="y", new=new, engine=engine)
    assert sorted(found.read(0)["features"][:, 0].tolist()) == sorted([*range(len(names)), *range(len(names))])
    one = ingest(tmp_path / "data" / f"data[1].{ending}", tmp_path / "one", target="y", new=new, engine=engine)
    assert one.read(0)["features"][:, 0].tolist() == [1, 1]


NUMBERED = ["b.parquet", "a.csv", "p10.parquet", "p2.parquet", "z.csv.gz", "c.csv", "p3.parquet", "other.csv"]


def put_numbered(folder: Path, names: list[str]) -> list[str]:
    """Files of two rows each, whose values say the place of their name in the list."""
    folder.mkdir()
    for number, name in enumerate(names):
        frame = pd.DataFrame({"x": [number, number], "w": 1.0, "y": ["p", "q"]})
        if "other" in name:
            frame = frame[["y", "x", "w"]]
        frame.to_parquet(folder / name) if name.endswith("parquet") else frame.to_csv(folder / name, index=False)
    return [str(folder / name) for name in names]


@pytest.mark.parametrize("names", [NUMBERED, NUMBERED[::-1]])
def test_ingest__keeps_the_order_of_the_files_that_are_given(names: list[str], engine: Engine, tmp_path: Path) -> None:
    paths = put_numbered(tmp_path / "data", names)
    wanted = np.repeat(np.arange(len(names)), 2)
    for new in (False, True):
        found = ingest(paths, tmp_path / f"{new}", target="y", new=new, engine=engine)
        np.testing.assert_array_equal(found.read(0)["features"][:, 0], wanted)
    scored = table_source(paths, found.columns, dropped=["y"], engine=engine)
    np.testing.assert_array_equal(scored.read(0)["features"][:, 0], wanted)


def test_ingest__keeps_the_order_of_files_and_frames(engine: Engine, tmp_path: Path) -> None:
    paths = put_numbered(tmp_path / "data", ["b.csv", "a.csv", "c.parquet"])
    frame = pd.DataFrame({"x": [7.0], "w": 1.0, "y": ["p"]})
    found = ingest([frame, *paths[:2], frame, paths[2]], tmp_path / "d", target="y", engine=engine)
    assert found.read(0)["features"][:, 0].tolist() == [7, 0, 0, 1, 1, 7, 2, 2]


def test_ingest__takes_the_files_of_a_folder_in_natural_order(engine: Engine, tmp_path: Path) -> None:
    names = ["1.csv", "02.csv", "2.parquet", "3-other.csv", "10.csv", "10b.csv", "11.parquet", "a1.csv", "a9.csv"]
    put_numbered(tmp_path / "data", names)
    for source in (tmp_path / "data", tmp_path / "data" / "*"):
        found = ingest(source, tmp_path / "d", target="y", overwrite=True, engine=engine)
        np.testing.assert_array_equal(found.read(0)["features"][:, 0], np.repeat(np.arange(len(names)), 2))


@pytest.mark.parametrize("form", ["csv", "parquet", "matrix"])
def test_ingest__warns_of_values_that_float32_merges(form: str, engine: Engine, tmp_path: Path) -> None:
    rows = 3000
    seconds = 1.7e9 + np.sort(np.random.default_rng(0).choice(86_400, rows, replace=False))
    frame = pd.DataFrame({"x": np.arange(rows) * 0.1, "time": seconds, "y": np.arange(rows) % 2})
    source: Any = tmp_path / f"t.{form}"
    match form:
        case "csv":
            frame.to_csv(source, index=False)
        case "parquet":
            frame.astype({"time": np.int64}).to_parquet(source, row_group_size=500)
        case _:
            source = (frame[["x", "time"]].to_numpy(), frame["y"].to_numpy())
    target = "target" if form == "matrix" else "y"
    with pytest.warns(UserWarning, match=f"'{'x1' if form == 'matrix' else 'time'}' .*Subtract.*dtype=") as said:
        ingest(source, tmp_path / "d", target=target, engine=engine)
    assert len(said) == 1
    assert "'x'" not in str(said[0].message)
    ingest(source, tmp_path / "exact", target=target, dtype="float64", engine=engine)  # no warning


@pytest.mark.parametrize(
    "values",
    [
        np.random.default_rng(0).random(5000),
        np.append(np.arange(2500) * 0.1 + 0.2, (np.arange(2500) + 2) * 0.1),  # twice each, but for rounding errors
        np.arange(5000) * 1e-3 + 1e3,
        np.random.default_rng(0).integers(0, 2**30, 5000),
        np.full(5000, 1.7e9),
        np.array([np.nan, 0.1] * 2500),
    ],
)
def test_ingest__does_not_warn_of_values_that_stay_apart(values: Any, engine: Engine, tmp_path: Path) -> None:
    ingest((values[:, None], np.arange(5000) % 2), tmp_path / "d", engine=engine)


@pytest.mark.parametrize("row", [1, 700, 1400])
@pytest.mark.parametrize("new", [False, True])
def test_ingest__blames_the_column_that_has_the_bad_value(new: bool, row: int, engine: Engine, tmp_path: Path) -> None:
    flags = [None, *[True, False] * 749, None]
    frame = pd.DataFrame({"flag": flags, "x": [f"{n}" for n in range(1500)], "y": ["p", "q"] * 750})
    typed = frame.astype({"x": float, "flag": "boolean"})
    good = ingest(typed, tmp_path / "good", target="y", block_rows=2048, engine=engine)
    frame.loc[row, "x"] = "oops"
    frame.to_csv(path := tmp_path / "t.csv", index=False)
    with refused("bad-value", "'x'", "'oops'", f"row {row}"):
        ingest(path, tmp_path / "good", new=new, append=not new, engine=engine)
    marked = table_source(path, good.columns, dropped=["y"], bad_rows="mark", engine=engine)
    reading: dict[str, Any] = {"keep": (), "dropped": (), "unseen": "error", "dtype": "float32", "bad_rows": "mark"}
    small = encode_file(path.read_bytes(), "t.csv", good.columns, target_name="y", **reading)
    for rows in (marked.rows(0, 1500), small):
        assert np.flatnonzero(rows["marked"]).tolist() == [row]
        kept = np.arange(1500) != row
        np.testing.assert_array_equal(rows["features"][kept], good.read(0)["features"][kept])


@pytest.mark.parametrize("kind", ["frame", "dask", "parquet", "parquet of others", "arrow", "csv"])
def test_ingest__takes_categories_for_what_they_are_beside_missing_ones(
    kind: str, engine: Engine, tmp_path: Path
) -> None:
    flags = pd.array([None, *[True, False] * 30], dtype="boolean")
    places = pd.array([None, *[10**17, 10**17 + 1] * 30], dtype="Int64")
    frame = pd.DataFrame({"flag": flags, "place": places, "y": [0, *[0, 1] * 30]})
    source: Any
    match kind:
        case "parquet of others":
            pyarrow.parquet.write_table(pyarrow.table(dict(frame.items())), source := tmp_path / "t.parquet")
        case "arrow":
            source = pyarrow.table(dict(frame.items()))
        case _:
            source = given_as(kind, frame, tmp_path, 20)
    found = ingest(source, tmp_path / "d", target="y", categorical=["flag", "place"], engine=engine)
    assert [column.categories for column in found.columns] == [(False, True), (10**17, 10**17 + 1)]


MATRIX, LABELS = np.random.default_rng(0).standard_normal((90, 2)), np.arange(90) % 3


@pytest.fixture(scope="module")
def whole(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return ingest((MATRIX, LABELS), tmp_path_factory.mktemp("whole") / "d.zarr", engine=engine, block_rows=32)


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cuts=st.lists(st.integers(0, 90), min_size=1, max_size=5).map(sorted))
def test_ingest__does_not_depend_on_partitions(
    cuts: list[int], whole: Dataset, engine: Engine, tmp_path_factory: pytest.TempPathFactory
) -> None:
    edges = [0, *cuts, 90]
    sizes = tuple(last - first for first, last in itertools.pairwise(edges))
    arrays = (
        dask.array.from_array(MATRIX, chunks=(sizes, (2,))),
        dask.array.from_array(LABELS, chunks=(sizes[::-1],)),
    )
    out = tmp_path_factory.mktemp("cut") / "d.zarr"
    assert ingest(arrays, out, engine=engine, block_rows=32).key == whole.key


@pytest.mark.parametrize("form", ["npy", "memmap", "npz", "mapping", "zarr paths", "zarr group", "zarr arrays", "dask"])
def test_ingest__is_the_same_from_every_kind_of_array(form: str, engine: Engine, tmp_path: Path) -> None:
    features = np.random.default_rng(0).standard_normal((ROWS, 4)).astype(np.float32)
    target = np.arange(ROWS) % 3 - 1
    weight = np.random.default_rng(1).random(ROWS)
    weighted = form in ("npz", "mapping", "zarr group")
    arrays: dict[str, Any] = {"X": features, "y": target, **({"weight": weight} if weighted else {})}
    role: dict[str, Any] = {"weight": "weight"} if weighted else {}
    whole = ingest(arrays, tmp_path / "whole", engine=engine, block_rows=64, **role)
    source: Any
    if form in ("npy", "memmap"):
        np.save(tmp_path / "X.npy", features)
        np.save(tmp_path / "y.npy", target)
        source = (tmp_path / "X.npy", tmp_path / "y.npy")
        if form == "memmap":
            source = tuple(np.load(path, mmap_mode="r") for path in source)
    elif form == "npz":
        np.savez(source := tmp_path / "a.npz", **arrays)
    elif form == "mapping":
        source = {"features": pd.DataFrame(features).to_numpy(), "target": target.tolist(), "weight": weight}
    elif form == "dask":
        source = (dask.array.from_array(features, chunks=(101, 3)), dask.array.from_array(target, chunks=77))
    else:
        group = zarr.open_group(tmp_path / "g.zarr", mode="w")
        for name, values in arrays.items():
            group.create_array(name, data=values, chunks=(33, *values.shape[1:]))
        source = {
            "zarr paths": (tmp_path / "g.zarr" / "X", tmp_path / "g.zarr" / "y"),
            "zarr group": tmp_path / "g.zarr",
            "zarr arrays": (group["X"], group["y"]),
        }[form]
    found = ingest(source, tmp_path / "found", engine=engine, block_rows=64, **role)
    assert found.key == whole.key
    assert found.classes == (-1, 0, 1)
    assert found.feature_names == ("x0", "x1", "x2", "x3")
    assert found.has_weight == weighted


@pytest.mark.parametrize("labels", [("01", "1"), ("9007199254740992", "9007199254740993"), ("1e3", "1000"), ("2", "3")])
def test_ingest__of_the_usual_target_is_that_of_a_named_one(labels: Any, engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x,target\n" + "".join(f"{row},{labels[row % 2]}\n" for row in range(8)))
    found = ingest(tmp_path / "t.csv", tmp_path / "d.zarr", engine=engine)
    assert [str(label) for label in found.classes] == sorted(labels)
    assert found.key == ingest(tmp_path / "t.csv", tmp_path / "e.zarr", target="target", engine=engine).key
    ingest(tmp_path / "t.csv", tmp_path / "d.zarr", append=True, engine=engine)
    assert Dataset.open(tmp_path / "d.zarr").layout.n_rows == 16


def test_ingest__takes_only_those_arrays_beside_features_that_are_named(engine: Engine, tmp_path: Path) -> None:
    features = np.random.default_rng(0).standard_normal((6, 2))
    beside = {
        "weight": np.arange(1.0, 7),
        "inclusion": np.full(6, 0.5),
        "group": np.arange(6),
        "cost": np.arange(2.0, 8),
    }
    arrays = {"features": features, "target": [0, 1] * 3, **beside}
    plain = ingest(arrays, tmp_path / "0", engine=engine)
    assert (plain.feature_names, plain.array_names) == (("x0", "x1"), ("features", "target"))
    weighted = ingest(arrays, tmp_path / "1", weight="cost", inclusion="inclusion", engine=engine)
    assert weighted.feature_names == ("x0", "x1")
    rows = weighted.read(0)
    assert (rows["weight"].tolist(), rows["inclusion"].tolist()) == ([2, 3, 4, 5, 6, 7], [0.5] * 6)
    ingest(arrays, tmp_path / "1", append=True, engine=engine)
    assert Dataset.open(tmp_path / "1").layout.n_rows == 12


def test_ingest__of_dask_arrays_of_unknown_length(engine: Engine, tmp_path: Path) -> None:
    features = np.random.default_rng(0).standard_normal((100, 2))
    target = (features[:, 0] > 0.3).astype(int)
    lazy = dask.array.from_array(features, chunks=(30, 2))
    kept = lazy[lazy[:, 1] > 0]
    labels = dask.array.from_array(target, chunks=30)[lazy[:, 1] > 0]
    found = ingest((kept, labels), tmp_path / "d", engine=engine)
    np.testing.assert_array_equal(found.read(0)["features"], features[features[:, 1] > 0].astype(np.float32))


@pytest.mark.slow
def test_ingest__holds_no_data_of_a_frame_after_it(engine: Engine, tmp_path: Path) -> None:
    held = pd.DataFrame({"x": np.arange(40) / 8, "y": np.arange(40) % 2})
    alive = weakref.ref(held)
    lazy = dask.dataframe.from_map(lambda number, rows: rows[20 * number :][:20], range(2), rows=held, meta=held[:0])
    ingest(lazy, tmp_path / "d", target="y", engine=engine)
    del lazy, held
    gc.collect()
    assert alive() is None


def _lazy_parts(values: Any, edges: tuple[int, ...] = (0, 36, 60)) -> Any:
    """What concat() makes of parts with an index each, which begins anew."""
    parts = [values.iloc[first:last].reset_index(drop=True) for first, last in itertools.pairwise(edges)]
    return dask.dataframe.concat([dask.dataframe.from_pandas(part, npartitions=2) for part in parts])


@pytest.fixture(scope="module")
def held_in_memory(
    engine: Engine, tmp_path_factory: pytest.TempPathFactory
) -> tuple[pd.DataFrame, pd.Series[Any], str]:
    """Rows, their labels, and the fingerprint of the dataset that they become."""
    held = pd.DataFrame({"x": np.arange(60.0), "colour": ["red", "green", "blue"] * 20})
    labels = pd.Series(np.where(held["x"] % 7 > 2, "yes", "no"))
    dataset = ingest((held, labels), tmp_path_factory.mktemp("held") / "d", categorical=["colour"], engine=engine)
    return held, labels, dataset.metadata.fingerprint


@pytest.mark.slow
@pytest.mark.parametrize("form", ["list", "array", "chunks", "series", "other partitions", "column"])
def test_ingest__of_labels_beside_concatenated_dask_frames(
    form: str, held_in_memory: tuple[pd.DataFrame, pd.Series[Any], str], engine: Engine, tmp_path: Path
) -> None:
    held, labels, key = held_in_memory
    lazy = _lazy_parts(held)
    beside = {
        "list": labels.tolist(),
        "array": labels.to_numpy(),
        "chunks": dask.array.from_array(labels.to_numpy(), chunks=25),
        "series": _lazy_parts(labels),
        "other partitions": _lazy_parts(labels, (0, 10, 30, 60)),
        "column": lazy["x"].map_partitions(lambda x: (x % 7 > 2).map({True: "yes", False: "no"})),
    }[form]
    found = ingest((lazy, beside), tmp_path / "lazy", categorical=["colour"], engine=engine)
    assert found.metadata.fingerprint == key
    fitted = ingest_arrays(lazy, beside, tmp_path / "arrays", engine=engine)
    assert fitted.metadata.fingerprint == key


@pytest.mark.parametrize("partitions", [2, 3])
def test_ingest__of_whole_labels_of_pandas_own_type_beside_text(
    partitions: int, engine: Engine, tmp_path: Path
) -> None:
    held = pd.DataFrame({"x": np.arange(40.0), "colour": ["red", "green"] * 20})
    lazy = dask.dataframe.from_pandas(held, npartitions=2)
    labels = dask.dataframe.from_pandas(pd.Series([3, 4] * 20, dtype="Int64"), npartitions=partitions)
    assert ingest((lazy, labels), tmp_path / "d", categorical=["colour"], engine=engine).classes == (3, 4)
    assert ingest_arrays(lazy, labels, tmp_path / "a", engine=engine).classes == (3, 4)


def test_ingest__leaves_dask_arrays_of_unknown_length_as_they_are(engine: Engine, tmp_path: Path) -> None:
    features = np.random.default_rng(0).standard_normal((60, 2))
    lazy = dask.array.from_array(features, chunks=(30, 2))
    kept = lazy[lazy[:, 1] > -9]
    labels = dask.array.from_array((features[:, 0] > 0).astype(int), chunks=30)[lazy[:, 1] > -9]
    ingest((kept, labels), tmp_path / "d", engine=engine)
    frame_beside(dask.dataframe.from_pandas(pd.DataFrame(features), npartitions=2), ["a", "b"], {"y": labels})
    assert np.isnan([kept.shape[0], labels.shape[0]]).all()


@pytest.mark.parametrize("kind", ["csv", "frame", "parquet"])
def test_append__equals_one_ingest(kind: str, expected: Dataset, engine: Engine, tmp_path: Path) -> None:
    frame = make_frame()
    out = tmp_path / "grown"
    for number, (first, last) in enumerate([(0, 100), (100, 101), (101, ROWS)]):
        part: Any = frame[first:last]
        if kind == "csv":
            part.to_csv(tmp_path / f"{number}.csv", index=False)
            part = tmp_path / f"{number}.csv"
        elif kind == "parquet":
            part.to_parquet(tmp_path / f"{number}.parquet")
            part = tmp_path / f"{number}.parquet"
        options = SETTINGS if number == 0 else {"append": True}
        found = ingest(part, out, engine=engine, **options)
    assert found.metadata.content == expected.metadata.content
    np.testing.assert_allclose(found.summary.mean, expected.summary.mean, rtol=1e-12)
    np.testing.assert_allclose(found.summary.squares, expected.summary.squares, rtol=1e-10)


@pytest.mark.parametrize(
    ("column", "value", "code", "facts"),
    [
        ("colour", "pink", "bad-value", ("colour", "pink", "row 7")),
        ("size", "huge", "bad-value", ("size", "huge", "row 7")),
        ("y", "perhaps", "bad-value", ("'y'", "perhaps", "row 7", "classes")),
        ("length", np.nan, "bad-value", ("length", "missing or infinite", "row 7")),
        ("w", -1.0, "bad-value", ("'w'", "negative weight", "row 7")),
    ],
)
def test_append__refuses_what_the_dataset_does_not_know(
    column: str, value: Any, code: Code, facts: tuple[str, ...], expected: Dataset, engine: Engine
) -> None:
    frame = make_frame(20)
    frame.loc[7, column] = value
    with refused(code, *facts):
        ingest(frame, expected.path, append=True, engine=engine)
    with refused("columns-differ", "lacks 'count'", "has 'more' besides"):
        ingest(make_frame(20).rename(columns={"count": "more"}), expected.path, append=True, engine=engine)
    with refused("columns-differ", "lacks 'w'"):
        ingest(make_frame(20).drop(columns="w"), expected.path, append=True, engine=engine)
    with refused("columns-differ", "flag", "'y'"):
        ingest(make_frame(20), expected.path, append=True, target="flag", engine=engine)
    assert Dataset.open(expected.path).key == expected.key


@pytest.mark.parametrize("taken", ["append", "new"])
def test_append__takes_what_is_no_category_for_none_where_it_is_told_to(
    taken: str, engine: Engine, tmp_path: Path
) -> None:
    first, later, out = tmp_path / "1.csv", tmp_path / "2.csv", tmp_path / "grown"
    first.write_text("x,colour,y\n" + "".join(f"{row},{('red', 'blue')[row % 2]},{row % 3}\n" for row in range(30)))
    later.write_text("x,colour,y\n1,pink,0\n2,red,1\n3,grey,2\n")
    before = ingest(first, out, target="y", categorical=["colour"], new=True, engine=engine)
    told: Any = {taken: True}
    unknown: Any = "skip"
    with refused("bad-value", "colour", "pink", "unseen='zero'"):
        ingest(later, out, **told, engine=engine)
    with pytest.warns(UserWarning, match=r"no categories of the dataset count as none: 'colour' \(2 rows\)"):
        found = ingest(later, out, **told, unseen="zero", engine=engine)
    assert found.columns == before.columns
    rows = found.read(0)["features"][30:]
    assert rows.tolist() == [[1, 0, 0], [2, 0, 1], [3, 0, 0]]
    with refused("bad-value", "'y'", "class"):
        (tmp_path / "3.csv").write_text("x,colour,y\n1,red,7\n")
        ingest(tmp_path / "3.csv", out, **told, unseen="zero", engine=engine)
    with refused("bad-setting", "unseen"):
        ingest(later, out, **told, unseen=unknown, engine=engine)


@pytest.mark.parametrize("kind", ["csv", "parquet", "frame", "dask"])
@pytest.mark.parametrize(
    ("column", "value", "code", "facts"),
    [
        ("length", None, "bad-value", ("length", "missing or infinite", "row 83")),
        ("length", np.inf, "bad-value", ("length", "missing or infinite", "row 83")),
        ("count", None, "bad-value", ("count", "missing or infinite", "row 83")),
        ("flag", None, "bad-value", ("flag", "missing or infinite", "row 83")),
        ("colour", None, "bad-value", ("colour", "missing", "row 83")),
        ("zone", None, "bad-value", ("zone", "missing", "row 83")),
        ("size", None, "bad-value", ("size", "missing", "row 83")),
        ("size", "huge", "bad-value", ("size", "huge", "row 83")),
        ("y", None, "bad-value", ("'y'", "missing", "row 83")),
        ("w", -0.5, "bad-value", ("'w'", "negative weight", "row 83")),
        ("w", None, "bad-value", ("'w'", "missing or infinite", "row 83")),
        ("p", 0.0, "bad-value", ("'p'", "inclusion probability", "0.0", "row 83")),
        ("p", 1.01, "bad-value", ("'p'", "inclusion probability", "1.01", "row 83")),
    ],
)
def test_ingest__names_the_column_and_first_row_of_a_bad_value(
    kind: str, column: str, value: Any, code: Code, facts: tuple[str, ...], engine: Engine, tmp_path: Path
) -> None:
    frame = make_frame(120)
    if column == "flag":
        frame["flag"] = frame["flag"].astype("boolean")
    elif column in ("count", "zone"):
        frame[column] = frame[column].astype("Int64")
    frame.loc[[83, 110], column] = value
    source = given_as(kind, frame, tmp_path, 30)
    before = sorted(os.listdir(tmp_path))
    with refused(code, *facts):
        ingest(source, tmp_path / "out", engine=engine, missing="error", **SETTINGS)
    assert sorted(os.listdir(tmp_path)) == before


@pytest.mark.parametrize("late", [400, 1400])
def test_ingest__of_a_csv_whose_numbers_turn_out_to_be_text(late: int, engine: Engine, tmp_path: Path) -> None:
    lines = [f"{number},{number % 7},{'ab'[number % 2]}" for number in range(1500)]
    lines[late] = f"{late},unknown,a"
    (tmp_path / "t.csv").write_text("\n".join(["a,b,y", *lines]))
    seen_at_once = late < csv_files.HEAD_ROWS
    with refused(
        "wrong-type" if seen_at_once else "bad-value",
        *(["not numbers: b.", "`categorical`"] if seen_at_once else ["categorical=['b']", "unknown", f"row {late}"]),
    ):
        ingest(tmp_path / "t.csv", tmp_path / "out", target="y", engine=engine)
    found = ingest(tmp_path / "t.csv", tmp_path / "out", target="y", categorical=["b"], engine=engine)
    assert found.columns[1].categories == ("0", "1", "2", "3", "4", "5", "6", "unknown")


def test_ingest__of_integers_that_turn_into_fractions_late(engine: Engine, tmp_path: Path) -> None:
    values = [*map(str, range(2000)), "0.5"]
    (tmp_path / "t.csv").write_text("a,y\n" + "\n".join(f"{value},{n % 2}" for n, value in enumerate(values)))
    found = ingest(tmp_path / "t.csv", tmp_path / "out", target="y", engine=engine, block_rows=4096)
    assert found.read(0)["features"][[1999, 2000], 0].tolist() == [1999, 0.5]
    assert found.classes == (0, 1)


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (["1", "0", "1"], (0, 1)),
        (["0.0", "1.0", "1.0"], (0, 1)),
        (["True", "False", "True"], (False, True)),
        (["a", "b", "a"], ("a", "b")),
        (["01", "1", "1"], ("01", "1")),
        (["9007199254740993", "9007199254740992", "9007199254740993"], (9007199254740992, 9007199254740993)),
    ],
)
def test_ingest__finds_the_type_of_labels_in_text(
    labels: list[str], classes: tuple[Any, ...], engine: Engine, tmp_path: Path
) -> None:
    (tmp_path / "t.csv").write_text("a,y\n" + "".join(f"{n},{label}\n" for n, label in enumerate(labels)))
    found = ingest(tmp_path / "t.csv", tmp_path / "out", target="y", engine=engine)
    assert found.classes == classes
    assert list(map(type, found.classes)) == list(map(type, classes))
    assert len({int(code) for code in found.read(0)["target"]}) == 2


@pytest.mark.parametrize(
    ("changes", "code", "facts"),
    [
        (
            {"categorical": []},
            "wrong-type",
            (
                "colour",
                "`categorical`",
            ),
        ),
        (
            {"drop": []},
            "wrong-type",
            (
                "id",
                "`drop`",
            ),
        ),
        ({"target": None}, "setting-missing", ("`target`",)),
        ({"target": "z"}, "column-missing", ("'z'", "the target")),
        ({"weight": "z"}, "column-missing", ("'z'", "the weight")),
        ({"categorical": ["colour", "z"]}, "column-missing", ("'z'",)),
        ({"drop": ["id", "z"]}, "column-missing", ("'z'", "The columns are")),
        ({"categorical": ["colour", "size"]}, "settings-conflict", ("size", "categorical", "ordinal")),
        ({"ordinal": {"size": ["small"]}}, "bad-setting", ("size",)),
        ({"weight": "p"}, "settings-conflict", ("weight", "inclusion")),
        (
            {"target": "length", "categorical": ["colour", "y"]},
            "bad-value",
            ("length", "no class", "row 0"),
        ),
        ({"block_rows": 3}, "bad-setting", ("block_rows", "3")),
        ({"append": True, "overwrite": True}, "settings-conflict", ("append", "overwrite")),
    ],
)
def test_ingest__refuses_settings_that_do_not_fit(
    changes: dict[str, Any], code: Code, facts: tuple[str, ...], engine: Engine, tmp_path: Path
) -> None:
    with refused(code, *facts):
        ingest(make_frame(50), tmp_path / "out", engine=engine, **{**SETTINGS, **changes})
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("form", ["csv", "parquet", "pandas", "dask", "arrays"])
def test_ingest__leaves_out_a_column_that_some_table_has_and_refuses_one_that_none_has(
    form: str, engine: Engine, tmp_path: Path
) -> None:
    frame = pd.DataFrame({"x0": range(20), "x1": 1.5, "target": [0, 1] * 10})
    sources: Any = [frame, frame.drop(columns="x1")]
    match form:
        case "csv" | "parquet":
            for number, each in enumerate(sources):
                path = tmp_path / f"{number}.{form}"
                each.to_csv(path, index=False) if form == "csv" else each.to_parquet(path)
            sources = str(tmp_path / f"*.{form}")
        case "dask":
            sources = [dask.dataframe.from_pandas(each, npartitions=2) for each in sources]
        case "arrays":
            sources = (frame[["x0", "x1"]].to_numpy(), frame["target"].to_numpy())
    with refused("column-missing", "There is no column 'x2'."):
        ingest(sources, tmp_path / "out", drop=["x1", "x2"], engine=engine)
    assert ingest(sources, tmp_path / "out", drop=["x1"], engine=engine).feature_names == ("x0",)


def test_ingest__refuses_one_class_and_too_many(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = pd.DataFrame({"a": range(200), "y": "same"})
    with refused("one-class", "same", "classes", "'y'"):
        ingest(frame, tmp_path / "out", target="y", engine=engine)

    monkeypatch.setattr(ingest_scan, "MAX_LABELS", 100)
    with refused("over-limit", "'a'", "than 100"):
        ingest(frame, tmp_path / "out", target="a", categorical=["y"], engine=engine)
    with refused("no-rows", "There are no rows"):
        ingest(frame[:0], tmp_path / "out", target="y", engine=engine)
    assert os.listdir(tmp_path) == []


def test_ingest__keeps_constant_columns_with_a_note(engine: Engine, tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": range(10), "same": 3, "y": [0, 1] * 5})
    found = ingest(frame, tmp_path / "out", target="y", engine=engine)
    assert found.notes == ("Constant features, of which nothing can be learnt: same.",)
    assert found.summary.scale[1] == 1


def test_ingest__needs_the_place_to_be_free(engine: Engine, tmp_path: Path) -> None:
    ingest(make_frame(50), tmp_path / "d", engine=engine, **SETTINGS)
    with refused("exists", "overwrite=True", tmp_path / "d", kind=OutputExistsError):
        ingest(make_frame(50), tmp_path / "d", engine=engine, **SETTINGS)
    assert ingest(make_frame(90), tmp_path / "d", engine=engine, overwrite=True, **SETTINGS).n_rows == 90


def test_ingest__of_missing_or_broken_files(engine: Engine, tmp_path: Path) -> None:
    for name in ("no.csv", "no*.parquet"):
        with refused("not-found", tmp_path / name):
            ingest(str(tmp_path / name), tmp_path / "out", target="y", engine=engine)
    for name in ("no.npy", "no.npz"):
        with refused("not-found", tmp_path / name, kind=StorageError):
            ingest(str(tmp_path / name), tmp_path / "out", target="y", engine=engine)
    for name in ("t.parquet", "t.npy", "t.npz", "t.csv"):
        (tmp_path / name).write_bytes(b"")
        with refused("unreadable", tmp_path / name):
            ingest(str(tmp_path / name), tmp_path / "out", target="y", engine=engine)
    (tmp_path / "ragged.csv").write_text("a,y\n1,2\n3,4,5,6\n")
    with refused("unreadable", tmp_path / "ragged.csv"):
        ingest(tmp_path / "ragged.csv", tmp_path / "out", target="y", engine=engine)
    with refused("wrong-shape", 3, 4):
        ingest((np.zeros((3, 2)), np.zeros(4)), tmp_path / "out", engine=engine)
    with refused("wrong-type", "int"):
        ingest(7, tmp_path / "out", engine=engine)
    with refused("not-found", tmp_path / "out", kind=StorageError):
        ingest(make_frame(9), tmp_path / "out", append=True, engine=engine)
    with refused("wrong-kind", tmp_path / "t.csv", kind=FormatError):
        ingest(make_frame(9), tmp_path / "t.csv", append=True, engine=engine)


def test_ingest__says_how_far_it_is(engine: Engine, tmp_path: Path) -> None:
    events: list[Progress] = []
    make_frame().to_csv(tmp_path / "t.csv", index=False)
    ingest(tmp_path / "t.csv", tmp_path / "out", engine=engine.with_progress(events.append), **SETTINGS)
    assert list(dict.fromkeys(event.label for event in events)) == ["scan", "ingest"]
    assert events[-1].finished


def test_table_source__encodes_for_scoring_as_at_ingest(
    expected: Dataset, engine: Engine, tmp_path: Path, all_rows: Callable[[Dataset], Arrays]
) -> None:
    frame = make_frame().drop(columns=["y", "w", "p"])
    frame.to_csv(tmp_path / "t.csv", index=False)
    source = table_source(
        tmp_path / "t.csv", expected.columns, dropped=expected.metadata.dropped, block_rows=64, engine=engine
    )
    assert not source.resident
    again = pickle.loads(pickle.dumps(source))
    rows = all_rows(expected)["features"]
    for number in (3, 0, 1, 2):
        block = again.read(number)
        assert set(block.arrays) == {"features"}
        np.testing.assert_array_equal(block["features"], rows[block.start : block.stop])
    with_target = table_source(
        make_frame()[:40], expected.columns, classes=expected.classes, target_name="y", dropped=["id", "w", "p"],
        engine=engine,
    )  # fmt: skip
    np.testing.assert_array_equal(with_target.read(0)["target"], all_rows(expected)["target"][:40])


def test_table_source__warns_where_most_values_are_unseen(engine: Engine) -> None:
    columns = (Column("sex", "nominal", ("f", "m"), 0.0, True), Column("n", "nominal", (), 0.0, True))
    frame = pd.DataFrame({"sex": ["F", "M", None, "f"] * 10, "n": ["x"] * 40})
    table_source(frame, columns, unseen="zero", engine=engine)  # half of them
    frame.loc[0, "sex"], frame.loc[3, "sex"] = "F", "M"
    with pytest.warns(UserWarning, match=r"categories that it had .*: 'sex' \(21 of 40 rows\)\. Check how they are"):
        table_source(frame, columns, unseen="zero", engine=engine)
    table_source(frame[:8], columns, unseen="zero", engine=engine)


def test_table_source__meets_unseen_categories(expected: Dataset, engine: Engine) -> None:
    frame = make_frame(40).drop(columns=["id", "y", "w", "p"])
    frame.loc[30, "colour"] = "pink"
    with refused("bad-value", "pink", "row 30", "unseen='zero'"):
        table_source(frame, expected.columns, engine=engine)
    block = table_source(frame, expected.columns, unseen="zero", engine=engine).read(0)
    assert block["features"][30, 2:5].tolist() == [0, 0, 0]
    with refused("bad-setting", "error", "zero"):
        table_source(frame, expected.columns, unseen="ignore", engine=engine)  # type: ignore[arg-type]
    with refused("columns-differ", "lacks 'flag'", "has 'flog' besides"):
        table_source(frame.rename(columns={"flag": "flog"}), expected.columns, engine=engine)


def test_table_source__reads_further_columns_of_numbers(engine: Engine, tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": range(100), "b": np.linspace(0, 1, 100), "c": [True, False] * 50, "d": "text"})
    frame.to_csv(tmp_path / "t.csv", index=False)
    written = pd.read_csv(tmp_path / "t.csv")  # some versions round the last bit of a number in text
    for columns in ((Column("a"),), ()):
        dropped = ["d"] if columns else ["a", "d"]
        source = table_source(
            tmp_path / "t.csv",
            columns,
            numbers={"x": "b", "y": "c"},
            dropped=dropped,
            block_rows=64,
            engine=engine,
        )
        block = source.read(1)
        assert block["features"].shape == (36, len(columns))
        np.testing.assert_array_equal(block["x"], written.b[64:])
        np.testing.assert_array_equal(block["y"], frame.c[64:].astype(float))
    with refused("columns-differ", "lacks 'z'"):
        table_source(frame, (Column("a"),), numbers={"x": "z"}, dropped=["b", "c", "d"], engine=engine)
    with refused("bad-value", "text", "row 0"):
        table_source(frame, (Column("a"),), numbers={"x": "d"}, dropped=["b", "c"], engine=engine)


def test_table_source__reads_further_arrays(engine: Engine, tmp_path: Path) -> None:
    matrix, further = np.ones((10, 2)), np.arange(10)
    np.savez(tmp_path / "t.npz", X=matrix, y=further % 2, price=further)
    for columns, others in (((Column("x0"), Column("x1")), ()), ((), ("x0", "x1"))):
        source = table_source(
            tmp_path / "t.npz", columns, numbers={"p": "price"}, dropped=["target", *others], engine=engine
        )
        assert source.read(0)["p"].tolist() == further.tolist()
        assert source.read(0)["features"].shape == (10, len(columns))


def test_table_source__notices_a_file_that_changed(engine: Engine, tmp_path: Path) -> None:
    pd.DataFrame({"a": range(100), "y": 0}).to_csv(tmp_path / "t.csv", index=False)
    dataset = ingest(pd.DataFrame({"a": [1, 2], "y": [0, 1]}), tmp_path / "d", target="y", engine=engine)
    source = table_source(tmp_path / "t.csv", dataset.columns, dropped=["y"], engine=engine)
    pd.DataFrame({"a": range(50), "y": 0}).to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises((StorageError, InputError)):
        source.read(0)


def test_ingest__says_which_extra_to_install(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    (tmp_path / "t.csv").write_text("a,y\n1,2\n")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with refused("package-missing", "protodask[tabular]"):
        ingest(tmp_path / "t.csv", tmp_path / "out", target="y", engine=engine)


def test_ingest_arrays__takes_whatever_an_estimator_is_given(engine: Engine, tmp_path: Path) -> None:
    features = np.random.default_rng(0).standard_normal((100, 2))
    labels = np.where(features[:, 0] > 0, "up", "down")
    weight = np.random.default_rng(1).random(100)
    whole = ingest_arrays(features, labels, tmp_path / "0", weight=weight, engine=engine)
    assert whole.array_names == ("features", "target", "weight")
    assert whole.classes == ("down", "up")
    frame = pd.DataFrame(features, columns=["x0", "x1"])
    series = pd.Series(labels)
    lazy = dask.dataframe.from_pandas(frame, npartitions=3)
    nullable = frame.convert_dtypes()
    assert not isinstance(nullable.dtypes.iloc[0], np.dtype)
    rows = dask.array.from_array(weight, chunks=40)
    for number, (X, y, w) in enumerate(
        [
            (frame, series, weight),
            (nullable, series, weight),
            (dask.dataframe.from_pandas(nullable, npartitions=3), labels, weight),
            (lazy, dask.dataframe.from_pandas(series, npartitions=2), rows),
            (dask.array.from_array(features, chunks=(30, 2)), labels, rows),
        ]
    ):
        assert ingest_arrays(X, y, tmp_path / str(number + 1), weight=w, engine=engine).key == whole.key
    clash = frame.set_axis(["target", "b"], axis=1)
    assert ingest_arrays(clash, series, tmp_path / "clash", engine=engine).feature_names[0] == "feature target"
    with refused("named-twice", "'target'"):
        ingest((clash, series), tmp_path / "pair", target="target", engine=engine)


@pytest.mark.parametrize("known", [False, True], ids=["restarting", "known"])
def test_ingest__takes_targets_beside_a_dask_frame_row_by_row(known: bool, engine: Engine, tmp_path: Path) -> None:
    features = np.random.default_rng(0).standard_normal((90, 2)).astype(np.float32)
    y = pd.Series(np.arange(90) % 2)
    one, other = (dask.dataframe.from_pandas(y if n else pd.DataFrame(features), npartitions=3) for n in (0, 1))
    if not known:  # as of files, of which each begins with 0
        one, other = one.reset_index(drop=True), other.reset_index(drop=True)
    for targets in (
        other,
        other.repartition(npartitions=1),
        dask.array.from_array(y.to_numpy(), chunks=((20, 60, 10),)),
    ):
        found = ingest((one, targets), tmp_path / "d", overwrite=True, engine=engine).read(0)
        np.testing.assert_array_equal(found["features"], features)
        np.testing.assert_array_equal(found["target"], y)
    for targets in (dask.dataframe.concat([other, other]), dask.array.zeros(91, chunks=(31, 30, 30))):
        with refused("wrong-shape", "'target' has the shape", "for 90 rows"):
            ingest((one, targets), tmp_path / "d", overwrite=True, engine=engine)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The inplace keyword in DataFrame")
def test_ingest__reads_files_that_dask_joins(engine: Engine, tmp_path: Path) -> None:
    features = np.random.default_rng(0).standard_normal((100, 20)).astype(np.float32)
    wide = pd.DataFrame(features, columns=[f"x{number}" for number in range(20)]).assign(y=np.arange(100) % 2)
    dask.dataframe.from_pandas(wide, npartitions=8).to_parquet(tmp_path / "rows")
    lazy = dask.dataframe.read_parquet(tmp_path / "rows")
    for source in (lazy[["x3", "y"]], (lazy[["x3"]], lazy["y"]), (lazy[["x3"]], wide["y"])):
        found = ingest(source, tmp_path / "d", target="y", overwrite=True, engine=engine)
        np.testing.assert_array_equal(found.read(0)["features"], features[:, 3:4])
        np.testing.assert_array_equal(found.read(0)["target"], wide["y"])


def test_ingest__takes_what_was_persisted_in_this_process(engine: Engine, tmp_path: Path) -> None:
    features = np.random.default_rng(0).standard_normal((100, 2)).astype(np.float32)
    labels = (features[:, 0] > 0).astype(int)
    kept = dask.array.from_array(features, chunks=(30, 2)).persist(scheduler="threads")
    found = ingest((kept * 2, labels), tmp_path / "d", engine=engine)
    np.testing.assert_array_equal(found.read(0)["features"], features * 2)
    frame = pd.DataFrame({"a": features[:, 0], "y": labels})
    table = dask.dataframe.from_pandas(frame, npartitions=2).persist(scheduler="threads")
    assert ingest(table, tmp_path / "t", target="y", engine=engine).n_rows == 100


def test_ingest__of_more_columns_than_a_dataset_can_have_reads_no_row(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scans: list[object] = []
    monkeypatch.setattr(ingest_schema, "run_scan", lambda *arguments: scans.append(arguments))
    monkeypatch.setattr(records_module, "MAX_JSON_ITEMS", records_module.HEAD + 200)
    arrays = np.ones((10, 40)), np.arange(10) % 2
    with refused("over-limit", "dataset"):
        ingest(arrays, tmp_path / "d", engine=engine)
    assert scans == []
    assert os.listdir(tmp_path) == []


GROUP_SETTINGS: dict[str, Any] = {"target": "y", "group": "g", "block_rows": 32}


def grouped_frame(kind: str = "text", rows: int = 200) -> pd.DataFrame:
    generator = np.random.default_rng(5)
    codes = generator.integers(0, 30, rows)
    group = [f"ward {code}" for code in codes] if kind == "text" else codes
    return pd.DataFrame({"x": generator.random(rows).round(6), "g": group, "y": generator.integers(0, 2, rows)})


@pytest.fixture(scope="module", params=["text", "numbers"])
def grouped(
    request: pytest.FixtureRequest, engine: Engine, tmp_path_factory: pytest.TempPathFactory
) -> tuple[pd.DataFrame, Dataset]:
    """Rows of groups named in text or by numbers, and the dataset of them."""
    frame = grouped_frame(request.param)
    return frame, ingest(frame, tmp_path_factory.mktemp("grouped") / "d.zarr", engine=engine, **GROUP_SETTINGS)


@pytest.mark.parametrize("form", ["csv", "parquet", "dask", "arrays", "npz"])
def test_ingest__groups_are_the_same_from_every_kind_of_table(
    form: str,
    grouped: tuple[pd.DataFrame, Dataset],
    engine: Engine,
    tmp_path: Path,
    all_rows: Callable[[Dataset], Arrays],
) -> None:
    frame, expected = grouped
    assert expected.feature_names == ("x",)
    assert expected.metadata.group_name == "g"
    codes = all_rows(expected)["group"]
    pairs = set(zip(frame["g"], codes.tolist(), strict=True))
    assert len(pairs) == len({group for group, _ in pairs}) == len({code for _, code in pairs})
    source: Any
    match form:
        case "csv" | "parquet" | "dask":
            source = given_as(form, frame, tmp_path, 37)
        case "arrays":
            source = {"X": frame[["x"]].to_numpy(), "target": frame["y"].to_numpy(), "g": frame["g"].to_numpy()}
        case _:
            values = frame["g"].to_numpy(dtype=str if frame["g"].dtype.kind not in "iu" else None)
            np.savez(source := tmp_path / "t.npz", X=frame[["x"]], target=frame["y"], g=values, other=np.zeros(3))
    found = ingest(source, tmp_path / "found", engine=engine, **GROUP_SETTINGS)
    np.testing.assert_array_equal(all_rows(found)["group"], codes)


def test_ingest_arrays__takes_groups(engine: Engine, tmp_path: Path, all_rows: Callable[[Dataset], Arrays]) -> None:
    frame = grouped_frame()
    expected = ingest(frame, tmp_path / "expected", engine=engine, **GROUP_SETTINGS)
    codes = all_rows(expected)["group"]
    for number, group in enumerate((frame["g"], frame["g"].to_numpy(), frame["g"].to_numpy(dtype=str))):
        found = ingest_arrays(frame[["x"]], frame["y"], tmp_path / str(number), group=group, engine=engine)
        np.testing.assert_array_equal(all_rows(found)["group"], codes)
        assert found.metadata.group_name == "group"
    named = frame[["x"]].rename(columns={"x": "group"})
    assert ingest_arrays(named, frame["y"], tmp_path / "n", group=frame["g"]).feature_names == ("feature group",)


@pytest.mark.parametrize("form", ["csv", "pandas"])
def test_ingest__names_the_row_without_a_group(form: str, engine: Engine, tmp_path: Path) -> None:
    frame = grouped_frame()
    frame.loc[123, "g"] = None
    frame.to_csv(tmp_path / "t.csv", index=False)
    source = frame if form == "pandas" else tmp_path / "t.csv"
    with refused("bad-value", "'g'", "row 123", "missing"):
        ingest(source, tmp_path / "out", engine=engine, **GROUP_SETTINGS)
    assert not (tmp_path / "out").exists()


def test_ingest__refuses_a_group_column_that_cannot_be_one(engine: Engine, tmp_path: Path) -> None:
    frame = grouped_frame()
    with refused("column-missing", "'h'", "the group", "columns"):
        ingest(frame, tmp_path / "out", target="y", group="h", engine=engine)
    with refused("settings-conflict", "target, weight, inclusion and group"):
        ingest(frame, tmp_path / "out", target="y", group="y", engine=engine)


def test_append__keeps_the_group_column(engine: Engine, tmp_path: Path, all_rows: Callable[[Dataset], Arrays]) -> None:
    frame = grouped_frame("numbers")
    whole = ingest(frame, tmp_path / "whole", engine=engine, **GROUP_SETTINGS)
    ingest(frame[:90], tmp_path / "d", engine=engine, **GROUP_SETTINGS)
    frame[90:].to_csv(tmp_path / "more.csv", index=False)
    grown = ingest(tmp_path / "more.csv", tmp_path / "d", append=True, group="g", engine=engine)
    np.testing.assert_array_equal(all_rows(grown)["group"], all_rows(whole)["group"])
    with refused("columns-differ", "lacks 'g'"):
        ingest(frame.drop(columns="g"), tmp_path / "d", append=True, engine=engine)
    with refused("columns-differ", "group", "'g'", "'x'"):
        ingest(frame, tmp_path / "d", append=True, group="x", engine=engine)
    ingest(frame.drop(columns="g"), tmp_path / "without", target="y", engine=engine)
    with pytest.warns(UserWarning, match="left out: 'g'"):
        more = ingest(frame, tmp_path / "without", append=True, engine=engine)
    assert (more.n_rows, more.has_group) == (2 * len(frame), False)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_append__leaves_out_columns_of_any_type(suffix: str, engine: Engine, tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": [0.5, 1.5, 2.5, 3.5], "y": ["n", "p", "n", "p"]})
    ingest(frame, tmp_path / "d", target="y", engine=engine)
    further = frame.assign(when=pd.Timestamp("2026-01-31"), who="x")
    if suffix == "csv":
        further.to_csv(tmp_path / "t.csv", index=False)
    else:
        further.to_parquet(tmp_path / "t.parquet")
    with pytest.warns(UserWarning, match="left out: 'when', 'who'"):
        grown = ingest(tmp_path / f"t.{suffix}", tmp_path / "d", append=True, engine=engine)
    assert (grown.n_rows, grown.feature_names) == (8, ("a",))
    with refused("wrong-shape", "2 columns"):
        ingest((np.zeros((4, 2)), np.array(["n", "p"] * 2)), tmp_path / "d", append=True, engine=engine)


# The last ones: the cluster is there for no longer than they take.


@pytest.fixture(scope="module")
def client(start_cluster: Callable[[int], LocalCluster]) -> Iterator[Client]:
    with Client(start_cluster(2)) as connected:
        yield connected


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_ingest__on_workers_is_the_same(client: Client, expected: Dataset, tmp_path: Path) -> None:
    make_frame().to_csv(tmp_path / "t.csv", index=False)
    from_file = ingest(tmp_path / "t.csv", tmp_path / "file", engine=client, **SETTINGS)
    from_memory = ingest(make_frame(), tmp_path / "memory", engine=client, **SETTINGS)
    assert from_file.key == from_memory.key == expected.key
    assert ingest(tmp_path / "t.csv", tmp_path / "file", engine=client, append=True).n_rows == 2 * ROWS
    frame = make_frame()
    frame.loc[221, "length"] = np.nan
    frame.to_csv(tmp_path / "bad.csv", index=False)
    with refused("bad-value", "length", "missing or infinite", "row 221"):
        ingest(tmp_path / "bad.csv", tmp_path / "bad", engine=client, missing="error", **SETTINGS)
    assert not (tmp_path / "bad").exists()


@pytest.mark.slow
def test_ingest__of_a_lazy_matrix_reads_it_on_the_workers(
    client: Client, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from protodask.engine.cluster import ClusterScheduler

    features = np.random.default_rng(0).standard_normal((300, 2))
    labels = (features[:, 0] > 0).astype(int)
    lazy = dask.array.from_array(features, chunks=(100, 2))
    whole = ingest((features, labels), tmp_path / "whole", engine=engine, block_rows=64)

    def ship(*_: object) -> None:
        raise AssertionError("rows went through this process")

    monkeypatch.setattr(ClusterScheduler, "_ship", ship)
    found = ingest((lazy, labels), tmp_path / "found", engine=client, block_rows=64)
    assert found.key == whole.key


@pytest.mark.slow
def test_ingest__refuses_what_was_persisted_on_a_cluster(client: Client, tmp_path: Path) -> None:
    features = np.random.default_rng(0).standard_normal((100, 2))
    labels = (features[:, 0] > 0).astype(int)
    frame = dask.dataframe.from_pandas(pd.DataFrame({"a": features[:, 0], "y": labels}), npartitions=2)
    lazy = dask.array.from_array(features, chunks=(30, 2))
    kept, table = lazy.persist(), frame.persist()
    sources = [(kept, labels), (kept + 1, labels), (lazy, table["y"].to_dask_array(lengths=True))]
    for source in sources:
        for engine in (None, client):
            with refused("unsupported", "persist()"):
                ingest(source, tmp_path / "d", engine=engine)
    for rows in (table, table.rename(columns={"a": "b"})):
        with refused("unsupported", "persist()"):
            ingest(rows, tmp_path / "d", target="y", engine=client)
    text = frame[["a"]].assign(t=frame["y"].astype(str))
    with refused("unsupported", "persist()"):
        ingest((text, table["y"]), tmp_path / "d", engine=client)
    with refused("unsupported", "persist()"):
        ingest_arrays(text, table["y"], tmp_path / "d", engine=client)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(("n_categories", "noted"), [(20, False), (30, True)])
def test_ingest__notes_categories_that_are_like_an_identifier(tmp_path: Path, n_categories: int, noted: bool) -> None:
    order = np.arange(50) % n_categories
    frame = pd.DataFrame({"who": [f"u{number}" for number in order], "x": np.arange(50.0), "y": np.arange(50) % 2})
    found = ingest(frame, tmp_path / "d.zarr", target="y", categorical=["who"])
    assert any("'who' has 30 categories in 50 rows" in note for note in found.notes) == noted
    ranked = {"who": [f"u{number}" for number in range(n_categories)]}  # one feature
    assert not ingest(frame, tmp_path / "o.zarr", target="y", ordinal=ranked).notes


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["1.5", "2.5", "-", "n.a."], "numbers but for '-', 'n.a.'. Leave missing values empty"),
        (["12,5", "7"], "numbers such as '12,5'. Write them with a point"),
        (["€ 1.250,00", "€ 900"], "numbers such as '€ 1.250,00'"),
        (
            ["10 %", "12.5 %", "?"],
            "numbers such as '10 %' but for '?'. Leave missing values empty, and write numbers with",
        ),
        ([" 1.5", "2 ", "  "], "numbers but for ''. Leave missing values empty"),
        (["2024-01-05", "2024-02-01 12:30:00"], "times such as '2024-02-01 12:30:00'. Make numbers of them"),
        (["5.1.2024", "01.02.2024"], "times such as '5.1.2024'"),
        (["01067", "10115"], None),
        (["9", "10", "other"], None),
        (["1.2.3", "1.2.4"], None),
        (["-", "?", "red"], None),
    ],
)
def test_ingest__notes_categories_that_are_numbers_or_times(texts: list[str], said: str | None, tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": texts * 6, "b": texts * 6, "y": (["u"] * len(texts) + ["v"] * len(texts)) * 3})
    notes = ingest(frame, tmp_path / "d", target="y", text_is_categorical=True).notes
    assert [f"The categories of 'a', 'b' are {said}" in note for note in notes] == [True] * (said is not None)
    many = pd.DataFrame({"a": [f"{row},5" for row in range(30)], "y": [0, 1] * 15})
    with refused("over-limit", "30 different texts in 30 rows, numbers such as '0,5'", "with a point"):
        ingest(many, tmp_path / "m", target="y", text_is_categorical=True)


def test_ingest__notes_columns_without_a_name(tmp_path: Path) -> None:
    pd.DataFrame({"x": [3.0, 1.0, 2.0], "y": [0, 1, 1]}).to_csv(tmp_path / "t.csv")
    (note,) = ingest(tmp_path / "t.csv", tmp_path / "d", target="y").notes
    assert "without a name are features, too: Unnamed: 0." in note


def test_ingest__notes_labels_that_look_alike(tmp_path: Path) -> None:
    colour = ["e\u0301te\u0301", "\xe9t\xe9", "ETE"] * 4
    frame = pd.DataFrame({"colour": colour, "y": ["ja", "ja ", "nein", "Ja"] * 3})
    found = ingest(frame, tmp_path / "d", target="y", categorical=["colour"])
    assert found.notes == (
        "Classes that differ in spaces or in how their letters are composed: 'ja', 'ja '.",
        "Categories of 'colour' that differ in spaces or in how their letters are composed: "
        r"'e\u0301te\u0301', '\xe9t\xe9'.",
    )


@pytest.mark.parametrize("name", ["categorical", "drop", "feature_names"])
def test_ingest__refuses_a_text_where_names_are_listed(name: str, tmp_path: Path) -> None:
    given: dict[str, Any] = {name: "ab"}
    with refused("wrong-type", name, "['ab']"):
        ingest(pd.DataFrame({"a": [1, 2], "b": [3, 4], "target": ["x", "y"]}), tmp_path / "out", **given)
