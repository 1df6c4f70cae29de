"""Datasets: reading what was written, and noticing every kind of damage."""

from __future__ import annotations

import errno
import json
import math
import os
import pickle
import shutil
import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.datasets import Make, Write
from support.disk import attributes_of
from support.errors import refused

from protodask.data import Column, Dataset, write_dataset
from protodask.data.arrays.plain_arrays import MAX_CHUNK_BYTES
from protodask.data.format import dataset as dataset_module
from protodask.data.format.metadata import from_attributes, to_attributes
from protodask.data.places import storage as storage_module
from protodask.data.places.records import hash_json
from protodask.engine import Engine, Source, array_source, thread_engine
from protodask.errors import FormatError, StorageError


@pytest.fixture(scope="module")
def original(make_arrays: Make, write: Write, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return write(make_arrays(100), tmp_path_factory.mktemp("original") / "d.zarr", block_rows=32)


@pytest.fixture
def dataset(original: Dataset, tmp_path: Path) -> Dataset:
    """A copy that may be changed and damaged."""
    shutil.copytree(original.path, tmp_path / "d.zarr")
    return Dataset.open(tmp_path / "d.zarr")


def rewrite(dataset: Dataset, change: Callable[[dict[str, Any]], None], sign: bool = False) -> None:
    """Change the attributes on disk; `sign` renews the checksum, as an ill-meaning writer would."""
    path = Path(dataset.path, "zarr.json")
    record = json.loads(path.read_text())
    change(record["attributes"])
    if sign:
        record["attributes"].pop("checksum", None)
        record["attributes"]["checksum"] = hash_json(record["attributes"])
    path.write_text(json.dumps(record))


def test_read__gives_back_what_was_written(make_arrays: Make, dataset: Dataset) -> None:
    arrays = make_arrays(100)
    assert isinstance(dataset, Source)
    assert dataset.layout.n_blocks == 4
    for number in range(4):
        block = dataset.read(number)
        start, stop = dataset.layout.bounds(number)
        assert (block.number, block.start, block.stop) == (number, start, stop)
        assert set(block.arrays) == {"features", "target", "weight", "inclusion"}
        for name, values in block.arrays.items():
            assert values.flags.c_contiguous
            assert values.dtype == arrays[name].dtype
            np.testing.assert_array_equal(values, arrays[name][start:stop])


def test_properties__say_what_was_written(dataset: Dataset) -> None:
    assert (dataset.n_rows, dataset.n_features, dataset.classes) == (100, 3, ("p", "q", "r"))
    assert dataset.feature_names == ("a", "b", "c")
    assert (dataset.has_weight, dataset.has_inclusion, dataset.resident) == (True, True, False)
    assert dataset.dtype == np.float32
    assert json.loads(json.dumps(dataset.describe()))["rows"] == 100


def test_pickle__is_small_and_reads_in_another_process_state(dataset: Dataset) -> None:
    sent = pickle.dumps(dataset)
    assert len(sent) < 4000
    assert pickle.loads(sent) == dataset
    assert len({pickle.loads(sent), dataset}) == 1
    assert len(repr(dataset)) < 500
    np.testing.assert_array_equal(pickle.loads(sent).read(2)["features"], dataset.read(2)["features"])


def test_read__needs_a_block_and_two_chunks_of_memory(engine: Engine, tmp_path: Path) -> None:
    rows = 2**17
    source = array_source(
        {"features": np.ones((rows, 64), dtype=np.float32), "target": np.arange(rows) % 2}, block_rows=rows
    )
    columns = [Column(f"x{number}") for number in range(64)]
    dataset = write_dataset(source, tmp_path / "d", classes=(0, 1), columns=columns, engine=engine, block_rows=rows)
    size = dataset.read(0).nbytes
    assert size > 32 * 2**20
    tracemalloc.start()
    dataset.read(0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # Zarr's own thread may still hold a chunk while the next one is read.
    assert peak < size + 2.2 * MAX_CHUNK_BYTES


@pytest.mark.slow
def test_fingerprint__is_of_the_content_not_the_place(
    make_arrays: Make, write: Write, dataset: Dataset, tmp_path: Path
) -> None:
    arrays = make_arrays(100)
    again = write(arrays, tmp_path / "other.zarr", block_rows=32, cut=8)
    assert again.key == dataset.key
    variants = [
        write(arrays, tmp_path / "1", block_rows=64),
        write(arrays, tmp_path / "2", block_rows=32, classes=("p", "q", "s")),
        write(arrays, tmp_path / "3", block_rows=32, dtype="float64"),
        write(arrays, tmp_path / "4", block_rows=32, columns=(Column("a"), Column("b"), Column("d"))),
        write({**arrays, "target": arrays["target"][::-1]}, tmp_path / "5", block_rows=32),
        write({**arrays, "weight": arrays["weight"] * 2}, tmp_path / "6", block_rows=32),
        write({name: values[:99] for name, values in arrays.items()}, tmp_path / "7", block_rows=32),
    ]
    assert len({variant.key for variant in variants} | {dataset.key}) == len(variants) + 1


@pytest.mark.parametrize("name", ["weight", "class_weight", "mean", "squares", "minimum", "maximum"])
def test_fingerprint__tells_statistics_apart_by_their_last_bit(name: str, dataset: Dataset) -> None:
    changed: Any = np.array(getattr(dataset.summary, name))
    changed.reshape(-1)[-1] = np.nextafter(changed.reshape(-1)[-1], np.inf)
    values: dict[str, Any] = {name: changed if changed.ndim else float(changed)}
    summary = replace(dataset.summary, **values)
    metadata = dataset.metadata
    assert replace(metadata, summary=replace(dataset.summary)).fingerprint == dataset.key
    assert replace(metadata, summary=summary).fingerprint != dataset.key


def test_notes__name_constant_features(make_arrays: Make, write: Write, tmp_path: Path) -> None:
    arrays = make_arrays(50)
    arrays["features"][:, 1] = 7
    dataset = write(arrays, tmp_path / "d", notes=("first",))
    assert dataset.notes == ("first", "Constant features, of which nothing can be learnt: b.")
    assert dataset.summary.scale[1] == 1


@pytest.mark.parametrize("array", ["features", "target", "weight", "inclusion"])
@pytest.mark.parametrize("harm", ["flip", "cut", "remove"])
def test_read__names_the_array_and_block_of_a_damaged_chunk(dataset: Dataset, array: str, harm: str) -> None:
    folder = Path(dataset.path, array, "c")
    chunk = folder / "2" / "0" if array == "features" else folder / "2"
    content = bytearray(chunk.read_bytes())
    match harm:
        case "flip":
            content[len(content) // 2] ^= 1
            chunk.write_bytes(content)
        case "cut":
            chunk.write_bytes(content[: len(content) // 2])
        case "remove":
            chunk.unlink()
    dataset.read(1)
    with refused("damaged", f"'{array}'", "block 2", kind=FormatError):
        dataset.read(2)


def test_read__refuses_codes_of_no_class(dataset: Dataset) -> None:
    import zarr

    target: Any = zarr.open_group(dataset.path, mode="r+")["target"]
    target[40] = 3
    with refused("damaged", "codes of no class", "target", "block 1", kind=FormatError):
        dataset.read(1)


def test_open__refuses_what_is_no_dataset(tmp_path: Path) -> None:
    with refused("not-found", tmp_path / "nowhere", kind=StorageError):
        Dataset.open(tmp_path / "nowhere")
    (tmp_path / "folder").mkdir()
    with refused("wrong-kind", tmp_path / "folder", "`ingest()`", kind=FormatError):
        Dataset.open(tmp_path / "folder")
    (tmp_path / "file.csv").write_text("a,b\n1,2\n")
    with refused("wrong-kind", tmp_path / "file.csv", kind=FormatError):
        Dataset.open(tmp_path / "file.csv")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"zarr_format": 3}', "[" * 100_000, '{"attributes": 5}'])
def test_open__refuses_unreadable_metadata(dataset: Dataset, text: str) -> None:
    Path(dataset.path, "zarr.json").write_text(text)
    with refused("wrong-kind", dataset.path, kind=FormatError):
        Dataset.open(dataset.path)


def test_open__names_both_versions_of_a_newer_format(dataset: Dataset) -> None:
    rewrite(dataset, lambda found: found.update(version=7))
    with refused("newer-format", "version 7", "up to 5", kind=FormatError):
        Dataset.open(dataset.path)


def test_open__notices_any_changed_attribute(dataset: Dataset) -> None:
    for name in attributes_of(dataset.path).keys() - {"format", "version"}:
        shutil.copytree(dataset.path, dataset.path + name)
        copy = Dataset.open(dataset.path + name)
        rewrite(copy, lambda found, name=name: found.pop(name))  # type: ignore[misc]
        with refused("damaged", copy.path, kind=FormatError):
            Dataset.open(copy.path)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def nearly(value: Any) -> st.SearchStrategy[Any]:
    """What the checks of types and lengths let pass: a value of the same kind that differs in one place."""
    match value:
        case bool() | None | [] | {}:
            return json_values
        case int():
            return st.sampled_from([0, value + 1, 2 * value, -value, 2**40, 2**63])
        case float():
            return st.sampled_from([0.0, -value, math.nextafter(value, math.inf), 5e-324, sys.float_info.max])
        case str():
            return st.sampled_from(["", value[:-1], value + "a", value.swapcase(), "0" * len(value)])
        case list():
            inner = st.integers(0, len(value) - 1).flatmap(
                lambda at: nearly(value[at]).map(lambda changed: [*value[:at], changed, *value[at + 1 :]])
            )
            return st.sampled_from([value[:-1], [*value, value[-1]], value[::-1]]) | inner
        case _:
            return st.sampled_from(sorted(value)).flatmap(
                lambda key: nearly(value[key]).map(lambda changed: {**value, key: changed})
            )


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_from_attributes__gives_a_format_error_for_hostile_values(dataset: Dataset, data: st.DataObject) -> None:
    record = to_attributes(dataset.metadata)
    del record["checksum"]
    name = data.draw(st.sampled_from(sorted(record)))
    record[name] = data.draw(json_values | nearly(record[name]))
    try:
        record["checksum"] = hash_json(record)
    except ValueError:
        record["checksum"] = ""
    try:
        found = from_attributes(record, "here")
    except FormatError:
        return
    assert found.fingerprint == dataset.key
    assert list(found.feature_names) == record["feature_names"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n_rows", 10**15),
        ("block_rows", 2**50),
        ("block_rows", 48),
        ("class_rows", [1, 2]),
        ("mean", [1.0, 2.0, None]),
        ("squares", [-1.0, 0.0, 0.0]),
        ("weight", 0.0),
        ("columns", [{"name": "a", "kind": "nominal", "categories": []}]),
        ("columns", []),
        ("classes", ["p", "p", "q"]),
        ("content", "xyz"),
    ],
)
def test_open__refuses_signed_nonsense(dataset: Dataset, field: str, value: Any) -> None:
    record = {**attributes_of(dataset.path), field: value}
    del record["checksum"]
    if field in ("n_rows", "block_rows"):
        # Even with a fingerprint that fits, as only this package's own code could make it.
        record = to_attributes(replace(dataset.metadata, **{field: value}))
    else:
        try:
            record["checksum"] = hash_json(record)
        except ValueError:
            record["checksum"] = ""
    rewrite(dataset, lambda found: found.update(record))
    with refused("damaged", kind=FormatError):
        Dataset.open(dataset.path)


@pytest.mark.parametrize("field", ["shape", "data_type", "chunk_grid", "codecs", "fill_value"])
def test_open__compares_the_arrays_with_the_attributes(dataset: Dataset, field: str) -> None:
    wrong = {
        "shape": [99, 3],
        "data_type": "float64",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [16, 3]}},
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
        "fill_value": 0.0,
    }
    path = Path(dataset.path, "features", "zarr.json")
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, field: wrong[field]}))
    with refused("damaged", "features", dataset.path, kind=FormatError):
        Dataset.open(dataset.path)


def test_open__misses_an_array(dataset: Dataset) -> None:
    shutil.rmtree(Path(dataset.path, "weight"))
    with refused("damaged", "no array 'weight'", dataset.path, kind=FormatError):
        Dataset.open(dataset.path)


def test_read__through_a_url_is_the_same(make_arrays: Make, write: Write, tmp_path: Path) -> None:
    arrays = make_arrays(100)
    local = write(arrays, tmp_path / "d.zarr", block_rows=32)
    assert write(arrays, "memory://bucket/same.zarr", block_rows=32).key == local.key
    remote = Dataset.open("memory://bucket/same.zarr")
    np.testing.assert_array_equal(remote.read(3)["features"], local.read(3)["features"])
    assert Dataset.open(f"file://{local.path}").path == local.path


def test_read__of_a_dataset_opened_before_an_append_shows_its_own_rows(
    make_arrays: Make, write: Write, dataset: Dataset
) -> None:
    write(make_arrays(60, seed=1), dataset.path, append=True)
    assert dataset.read(3).n_rows == 4
    np.testing.assert_array_equal(dataset.read(3)["features"], make_arrays(100)["features"][96:])
    assert Dataset.open(dataset.path).n_rows == 160


def test_summary__is_that_of_numpy(make_arrays: Make, dataset: Dataset) -> None:
    arrays = make_arrays(100)
    weight = arrays["weight"] / arrays["inclusion"]
    values = arrays["features"].astype(float)
    mean = np.average(values, axis=0, weights=weight)
    np.testing.assert_allclose(dataset.summary.mean, mean, rtol=1e-12)
    np.testing.assert_allclose(
        dataset.summary.deviation, np.sqrt(np.average((values - mean) ** 2, axis=0, weights=weight)), rtol=1e-12
    )
    np.testing.assert_allclose(dataset.summary.class_weight, np.bincount(arrays["target"], weight), rtol=1e-12)
    np.testing.assert_array_equal(dataset.summary.maximum, values.max(axis=0))


def test_engine__reads_a_dataset_as_any_source(make_arrays: Make, dataset: Dataset) -> None:
    with thread_engine(2, 2**28) as engine:
        taken = engine.take(dataset, np.array([99, 0, 40]), ["features", "target"])
    np.testing.assert_array_equal(taken["features"], make_arrays(100)["features"][[99, 0, 40]])


def _chunk(dataset: Dataset, array: str, number: int) -> Path:
    folder = Path(dataset.path, array, "c", str(number))
    return folder / "0" if array == "features" else folder


@pytest.mark.parametrize("array", ["features", "target", "weight"])
def test_read__notices_whole_chunks_in_each_others_place(dataset: Dataset, array: str) -> None:
    one, other = (_chunk(dataset, array, number) for number in (0, 2))
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)
    dataset.read(1)
    for number in (0, 2):
        with refused("damaged", "other rows", dataset.path, kind=FormatError):
            dataset.read(number)


def test_read__notices_arrays_of_another_dataset(
    make_arrays: Make, write: Write, dataset: Dataset, tmp_path: Path
) -> None:
    other = write(make_arrays(100, seed=1), tmp_path / "other.zarr", block_rows=32)
    shutil.rmtree(Path(dataset.path, "target"))
    shutil.copytree(Path(other.path, "target"), Path(dataset.path, "target"))
    with refused("damaged", kind=FormatError):
        Dataset.open(dataset.path).read(0)


def test_read__of_all_blocks_after_appends_of_parts_of_blocks(
    make_arrays: Make, write: Write, all_rows: Callable[..., Any], tmp_path: Path
) -> None:
    arrays = make_arrays(150)
    edges = [0, 20, 33, 64, 100, 150]
    for first, last in pairwise(edges):
        part = {name: values[first:last] for name, values in arrays.items()}
        write(part, tmp_path / "d.zarr", **({"append": True} if first else {"block_rows": 32}))
    found = all_rows(Dataset.open(tmp_path / "d.zarr"))
    for name, values in arrays.items():
        np.testing.assert_array_equal(found[name], values)


@pytest.mark.parametrize("place", ["zarr.json", "features", "features/zarr.json", "target/c/1", "features/c/1/0"])
def test_open_or_read__follows_no_link_inside_a_dataset(dataset: Dataset, place: str, tmp_path: Path) -> None:
    path = Path(dataset.path, place)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with refused("wrong-kind", "symbolic link", kind=FormatError):
        Dataset.open(dataset.path).read(1)


def test_open__through_a_link_to_a_dataset(dataset: Dataset, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(dataset.path)
    assert Dataset.open(tmp_path / "link").read(1).n_rows == 32


def test_read__of_a_dataset_that_was_replaced_hands_out_no_row_of_the_other(
    make_arrays: Make, write: Write, dataset: Dataset
) -> None:
    sent = pickle.dumps(dataset)
    dataset.read(0)
    other = write(make_arrays(100, seed=1), dataset.path, block_rows=32, overwrite=True)
    for stale in (dataset, pickle.loads(sent)):  # with arrays that were opened before, and without
        with refused("changed-meanwhile", dataset.path, kind=StorageError):
            stale.read(1)
    np.testing.assert_array_equal(other.read(1)["features"], make_arrays(100, seed=1)["features"][32:64])
    # The same content again is still another writing: what was opened before is told so, what is opened now reads.
    again = write(make_arrays(100), dataset.path, block_rows=32, overwrite=True)
    assert again.key == dataset.key
    np.testing.assert_array_equal(again.read(1)["features"], make_arrays(100)["features"][32:64])
    with refused("changed-meanwhile", dataset.path, kind=StorageError):
        dataset.read(1)
    shutil.rmtree(dataset.path)
    with refused("changed-meanwhile", dataset.path, kind=StorageError):
        again.read(0)


def test_open__of_a_dataset_that_is_replaced_meanwhile_opens_the_new_one(
    make_arrays: Make, write: Write, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = storage_module.find_group
    replacements = [make_arrays(70, seed=2), make_arrays(50, seed=1)]

    def find_and_replace(path: str) -> tuple[str, object]:
        before = found(path)
        if replacements:
            arrays = replacements.pop()
            monkeypatch.setattr(dataset_module, "find_group", found)
            write(arrays, dataset.path, block_rows=8, overwrite=True)
            monkeypatch.setattr(dataset_module, "find_group", find_and_replace)
        return before

    monkeypatch.setattr(dataset_module, "find_group", find_and_replace)
    assert Dataset.open(dataset.path).n_rows == 70
    assert not replacements


def test_open__follows_a_generation_that_was_copied_to_a_disk(dataset: Dataset, tmp_path: Path) -> None:
    name = "generation-0123456789abcdef"
    shutil.copytree(dataset.path, tmp_path / "copy" / name)
    root = {
        "zarr_format": 3,
        "node_type": "group",
        "attributes": {"format": "protodask-dataset", "generation": name},
    }
    (tmp_path / "copy" / "zarr.json").write_text(json.dumps(root))
    copy = Dataset.open(tmp_path / "copy")
    assert copy.key == dataset.key
    np.testing.assert_array_equal(copy.read(2)["features"], dataset.read(2)["features"])


def break_once(monkeypatch: pytest.MonkeyPatch, place: Path, error: BaseException) -> None:
    """Have the next look at a file fail, and no later one."""
    look, errors = os.lstat, [error]

    def lstat(path: Any, *rest: Any, **options: Any) -> os.stat_result:
        if os.fspath(path) == str(place) and errors:
            raise errors.pop()
        return look(path, *rest, **options)

    monkeypatch.setattr(os, "lstat", lstat)


@pytest.mark.parametrize("error", [OSError(errno.EIO, "disk"), OSError(errno.ESTALE, "stale"), MemoryError()])
def test_read__after_a_failure_that_passed_reads(
    error: Exception, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset.read(0)
    place = Path(dataset.path, "zarr.json")
    os.utime(place)  # so that it is looked at again
    break_once(monkeypatch, place, error)
    expected = MemoryError if isinstance(error, MemoryError) else StorageError
    with pytest.raises(expected) as caught:
        dataset.read(0)
    assert "replaced" not in str(caught.value)
    assert dataset.read(0).n_rows == 32
    assert Dataset.open(dataset.path).key == dataset.key


def test_read__after_the_attributes_were_missing_for_a_moment_reads(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Path(dataset.path, "zarr.json")
    os.utime(place)
    break_once(monkeypatch, place, FileNotFoundError(errno.ENOENT, "gone"))
    assert dataset.read(0).n_rows == 32, "looked at once more"


@pytest.mark.parametrize("error", [OSError(errno.EIO, "disk"), PermissionError(errno.EACCES, "not yours")])
def test_version_of__says_what_cannot_be_looked_at(
    error: OSError, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> int:
        raise error

    monkeypatch.setattr(os, "open", fail)
    with refused("unreadable", dataset.path, kind=StorageError):
        storage_module.version_of(dataset.path)


@pytest.mark.parametrize("name", ["zarr.json", "features/zarr.json"])
def test_open__of_a_disk_that_does_not_answer_does_not_advise_to_ingest_again(
    name: str, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_once(monkeypatch, Path(dataset.path, name), OSError(errno.EIO, "disk"))
    with refused("unreadable", dataset.path, "disk", kind=StorageError):
        Dataset.open(dataset.path)
    assert Dataset.open(dataset.path).n_rows == 100


def test_dataset__without_groups_is_what_it_always_was(write: Write, tmp_path: Path) -> None:
    arrays = {
        "features": (np.arange(120.0).reshape(40, 3) % 8).astype(np.float32),
        "target": (np.arange(40) % 3).astype(np.int32),
        "weight": np.ones(40),
        "inclusion": np.full(40, 0.5),
    }
    dataset = write(arrays, tmp_path / "d.zarr", block_rows=16)
    # As it was before there were groups: models and runs name such datasets by it.
    assert dataset.key == "79700b20ffa352d99b381a84a0577aac"
    attributes = attributes_of(dataset.path)
    assert attributes["version"] == 1
    assert "group_name" not in attributes
    assert not (tmp_path / "d.zarr" / "group").exists()
    assert not dataset.has_group
    assert dataset.describe()["group"] is None
    assert dataset.describe()["format_version"] == 1


def test_dataset__with_groups_hands_them_out(
    make_arrays: Make, write: Write, tmp_path: Path, all_rows: Callable[[Dataset], Any]
) -> None:
    arrays = make_arrays(100) | {"group": np.arange(100) // 7 + 2**62}
    dataset = write(arrays, tmp_path / "d.zarr", block_rows=32, group_name="patient")
    assert dataset.has_group
    assert dataset.array_names == ("features", "target", "weight", "inclusion", "group")
    assert all_rows(dataset)["group"].dtype == np.int64
    np.testing.assert_array_equal(all_rows(dataset)["group"], arrays["group"])
    assert (dataset.describe()["group"], dataset.describe()["format_version"]) == ("patient", 2)
    del arrays["group"]
    assert write(arrays, tmp_path / "without.zarr", block_rows=32).key != dataset.key


def test_dataset__of_other_groups_has_another_fingerprint(make_arrays: Make, write: Write, tmp_path: Path) -> None:
    one, other = (
        write(make_arrays(50) | {"group": np.arange(50) // size}, tmp_path / f"{size}.zarr", block_rows=16)
        for size in (2, 3)
    )
    assert one.key != other.key


def test_read__notices_a_missing_chunk_of_groups(make_arrays: Make, write: Write, tmp_path: Path) -> None:
    dataset = write(make_arrays(64) | {"group": np.arange(64)}, tmp_path / "d.zarr", block_rows=16)
    (tmp_path / "d.zarr" / "group" / "c" / "2").unlink()
    assert dataset.read(1).n_rows == 16
    with refused("damaged", "group", "block 2", kind=FormatError):
        dataset.read(2)
