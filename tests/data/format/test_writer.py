"""Writing and appending: whole or not at all, the same however the rows come."""

from __future__ import annotations

import errno
import itertools
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.datasets import Make, Write
from support.disk import attributes_of
from support.errors import refused

from protodask.data import Column, Dataset, DatasetSink, write_dataset
from protodask.data.arrays import array_store as array_store_module
from protodask.data.format import metadata as metadata_module
from protodask.data.format import writer as writer_module
from protodask.data.format.metadata import Metadata, require_storable, to_attributes
from protodask.data.format.summary import Summary, empty_summary
from protodask.data.places import records as records_module
from protodask.data.places.bounded import MAX_JSON_BYTES
from protodask.data.places.records import canonical_json
from protodask.engine import Arrays, ArraySource, Block, Engine, Layout, array_source
from protodask.errors import Code, OutputExistsError, StorageError


@dataclass(frozen=True)
class FailingSource:
    """Breaks down at one of its blocks."""

    inner: ArraySource
    at: int
    error: Exception

    @property
    def layout(self) -> Layout:
        return self.inner.layout

    @property
    def key(self) -> str:
        return self.inner.key

    @property
    def resident(self) -> bool:
        return True

    def read(self, number: int) -> Block:
        if number == self.at:
            raise self.error
        return self.inner.read(number)


def options(**changes: Any) -> dict[str, Any]:
    return {"classes": ("p", "q", "r"), "columns": (Column("a"), Column("b"), Column("c")), **changes}


def same_bits(left: Summary, right: Summary) -> bool:
    return all(
        np.asarray(getattr(left, field.name)).tobytes() == np.asarray(getattr(right, field.name)).tobytes()
        for field in fields(Summary)
    )


@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    cuts=st.lists(st.integers(1, 40), min_size=1, max_size=4),
    exponent=st.integers(2, 6),
    source_exponent=st.integers(0, 6),
)
def test_append__equals_writing_at_once(
    cuts: list[int],
    exponent: int,
    source_exponent: int,
    make_arrays: Make,
    write: Write,
    all_rows: Callable[[Dataset], Arrays],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("append")
    edges = np.cumsum([0, *cuts])
    arrays = make_arrays(int(edges[-1]))
    at_once = write(arrays, folder / "once", block_rows=2**exponent)
    for position, (first, last) in enumerate(itertools.pairwise(edges)):
        part = {name: values[first:last] for name, values in arrays.items()}
        grown = write(part, folder / "grown", cut=2**source_exponent, block_rows=2**exponent, append=position > 0)
    assert grown.metadata.content == at_once.metadata.content
    assert (grown.key == at_once.key) == same_bits(grown.summary, at_once.summary)
    for name, values in all_rows(grown).items():
        np.testing.assert_array_equal(values, arrays[name])
    np.testing.assert_array_equal(grown.summary.class_rows, at_once.summary.class_rows)
    np.testing.assert_allclose(grown.summary.mean, at_once.summary.mean, rtol=1e-12)
    np.testing.assert_allclose(grown.summary.squares, at_once.summary.squares, rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal(grown.summary.minimum, at_once.summary.minimum)


def test_write__has_chunks_that_divide_blocks(engine: Engine, tmp_path: Path) -> None:
    rows = 2**16
    source = array_source({"features": np.ones((rows, 40), np.float32), "target": np.arange(rows) % 2}, rows)
    columns = [Column(f"x{number}") for number in range(40)]
    dataset = write_dataset(source, tmp_path / "d", classes=(0, 1), columns=columns, engine=engine, block_rows=rows)
    features: Any = zarr.open_group(dataset.path, mode="r")["features"]
    assert features.chunks == (2**15, 40)
    assert 2**15 * 40 * 4 <= 8 * 2**20 < 2**16 * 40 * 4


@pytest.mark.parametrize("place", ["local", "url"])
def test_write__leaves_nothing_when_the_source_fails(
    place: str, make_arrays: Make, engine: Engine, tmp_path: Path
) -> None:
    path = str(tmp_path / "d.zarr") if place == "local" else "memory://failing/d.zarr"
    source = FailingSource(array_source(make_arrays(64), 8), 5, RuntimeError("no more"))
    with pytest.raises(RuntimeError, match="no more"):
        write_dataset(source, path, engine=engine, block_rows=8, **options())
    assert os.listdir(tmp_path) == []
    if place == "url":
        import fsspec

        assert fsspec.filesystem("memory").find("failing") == []


@pytest.mark.parametrize(
    ("number", "code", "fact"),
    [(errno.ENOSPC, "disk-full", ""), (errno.EDQUOT, "disk-full", ""), (errno.EFBIG, "unwritable", "ulimit -f")],
)
def test_write__says_that_there_is_no_space(
    number: int,
    code: Code,
    fact: str,
    make_arrays: Make,
    write: Write,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened = array_store_module._open_writable

    class Full:
        def __setitem__(self, rows: slice, values: object) -> None:
            if rows.start >= 16:
                raise OSError(number, os.strerror(number))

    monkeypatch.setattr(array_store_module, "_open_writable", lambda *args: {**opened(*args), "features": Full()})
    with refused(code, tmp_path, fact, kind=StorageError):
        write(make_arrays(64), tmp_path / "d.zarr", block_rows=8)
    assert os.listdir(tmp_path) == []


def test_append__remembers_the_columns_that_were_dropped(make_arrays: Make, engine: Engine, tmp_path: Path) -> None:
    source = array_source(make_arrays(60), 16)
    write_dataset(source, tmp_path / "d", engine=engine, dropped=("id", "note"), **options())
    for dropped in ((), ("note", "page")):
        write_dataset(source, tmp_path / "d", engine=engine, append=True, dropped=dropped, **options())
    assert Dataset.open(tmp_path / "d").metadata.dropped == ("id", "note", "page")


def test_append__that_fails_leaves_the_dataset_as_it_was(
    make_arrays: Make, write: Write, engine: Engine, tmp_path: Path, all_rows: Callable[[Dataset], Arrays]
) -> None:
    before = write(make_arrays(60), tmp_path / "d", block_rows=16)
    source = FailingSource(array_source(make_arrays(100, seed=1), 16), 4, RuntimeError("no more"))
    with pytest.raises(RuntimeError, match="no more"):
        write_dataset(source, tmp_path / "d", engine=engine, append=True, **options())
    after = Dataset.open(tmp_path / "d")
    assert after.key == before.key
    np.testing.assert_array_equal(all_rows(after)["features"], make_arrays(60)["features"])
    features: Any = zarr.open_group(after.path, mode="r")["features"]
    assert features.shape == (60, 3)


def test_append__over_what_a_killed_one_of_an_earlier_version_left(
    make_arrays: Make, write: Write, tmp_path: Path
) -> None:
    arrays = make_arrays(90)
    whole = write(arrays, tmp_path / "whole", block_rows=16)
    part = write({name: values[:50] for name, values in arrays.items()}, tmp_path / "d", block_rows=16)
    group = zarr.open_group(part.path, mode="r+")
    for name in arrays:  # what such an append did before it committed
        array: Any = group[name]
        array.resize((200, *array.shape[1:]))
        array[50:200] = 0
    assert Dataset.open(part.path).key == part.key
    np.testing.assert_array_equal(Dataset.open(part.path).read(3)["target"], arrays["target"][48:50])
    rest = write({name: values[50:] for name, values in arrays.items()}, part.path, append=True)
    assert rest.metadata.content == whole.metadata.content
    assert rest.read(5).n_rows == 10


def test_append__is_safe_from_workers_of_one_that_was_killed(
    make_arrays: Make, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays = make_arrays(48)
    place = write({name: values[:32] for name, values in arrays.items()}, tmp_path / "d", block_rows=16).path
    sinks: list[DatasetSink] = []
    write_blocks = writer_module._write_blocks

    def remember(source: Any, writer: Any, *rest: Any) -> Any:
        sinks.append(writer.sink)
        if len(sinks) == 1:
            raise KeyboardInterrupt
        written = write_blocks(source, writer, *rest)
        # A worker of the first one wakes up when the second one has written, and has not committed.
        with refused("changed-meanwhile", "is gone", kind=StorageError):
            sinks[0].write(2, 32, {name: values[:16] for name, values in arrays.items()})
        return written

    monkeypatch.setattr(writer_module, "_write_blocks", remember)
    more = {name: values[32:] for name, values in arrays.items()}
    with pytest.raises(KeyboardInterrupt):
        write(more, tmp_path / "d", append=True)
    grown = write(more, tmp_path / "d", append=True)
    np.testing.assert_array_equal(grown.read(2)["features"], arrays["features"][32:])
    assert {path.name for path in Path(place, "appends").iterdir()} == {"zarr.json", grown.metadata.parts[-1].name}


def test_overwrite__removes_what_killed_ones_left_beside(make_arrays: Make, write: Write, tmp_path: Path) -> None:
    write(make_arrays(40), tmp_path / "d")
    for name in (".d.partial-00000000", ".d.replaced-11111111"):
        (tmp_path / name).mkdir()
    (tmp_path / ".other.partial-00000000").mkdir()
    with refused("exists", "overwrite=True", tmp_path / "d", kind=OutputExistsError):
        write(make_arrays(50), tmp_path / "d")
    assert sorted(os.listdir(tmp_path)) == [".other.partial-00000000", "d"]
    (tmp_path / "d").rename(tmp_path / ".d.replaced-11111111")  # killed between two renamings
    with refused("exists", "overwrite=True", tmp_path / "d", kind=OutputExistsError):
        write(make_arrays(50), tmp_path / "d")
    assert Dataset.open(tmp_path / "d").n_rows == 40


def interrupt_writing(monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], object]) -> None:
    """Have something happen once, when the next writing has written its rows and has not committed them."""
    write_blocks, interruptions = writer_module._write_blocks, [meanwhile]

    def interrupted(*args: Any, **keywords: Any) -> Any:
        written = write_blocks(*args, **keywords)
        if interruptions:
            interruptions.pop()()
        return written

    monkeypatch.setattr(writer_module, "_write_blocks", interrupted)


def test_append__is_refused_while_another_one_lasts(
    make_arrays: Make,
    write: Write,
    tmp_path: Path,
    all_rows: Callable[[Dataset], Arrays],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = make_arrays(60), make_arrays(50, seed=1)
    write(first, tmp_path / "d", block_rows=16)

    def append_too() -> None:
        with refused("written-by-another", tmp_path / "d", kind=StorageError):
            write(make_arrays(40, seed=2), tmp_path / "d", append=True)

    interrupt_writing(monkeypatch, append_too)
    grown = write(second, tmp_path / "d", append=True)
    for name, values in all_rows(grown).items():
        np.testing.assert_array_equal(values, np.concatenate([first[name], second[name]]))
    assert write(make_arrays(40, seed=2), tmp_path / "d", append=True).n_rows == 150
    assert os.listdir(tmp_path) == ["d"]


def test_append__is_not_held_up_by_the_lock_of_one_that_was_killed(
    make_arrays: Make, write: Write, tmp_path: Path
) -> None:
    write(make_arrays(60), tmp_path / "d", block_rows=16)
    lock = tmp_path / ".d.lock"
    code = (
        "import fcntl, os, sys; fcntl.flock(os.open(sys.argv[1], os.O_RDWR | os.O_CREAT), 2); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code, str(lock)], check=False)
    assert lock.exists()
    assert write(make_arrays(40, seed=2), tmp_path / "d", append=True).n_rows == 100


def test_overwrite__is_refused_during_an_append(
    make_arrays: Make,
    write: Write,
    tmp_path: Path,
    all_rows: Callable[[Dataset], Arrays],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = make_arrays(60), make_arrays(50, seed=1)
    write(first, tmp_path / "d", block_rows=16)

    def overwrite() -> None:
        with refused("written-by-another", tmp_path / "d", kind=StorageError):
            write(make_arrays(200, seed=2), tmp_path / "d", overwrite=True)

    interrupt_writing(monkeypatch, overwrite)
    grown = write(second, tmp_path / "d", append=True)
    for name, values in all_rows(grown).items():
        np.testing.assert_array_equal(values, np.concatenate([first[name], second[name]]))
    assert os.listdir(tmp_path) == ["d"]


def test_append__through_a_link_takes_the_lock_of_the_dataset(
    make_arrays: Make, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(make_arrays(60), tmp_path / "d")
    (tmp_path / "link").symlink_to("d")

    def append_too() -> None:
        with refused("written-by-another", tmp_path / "d", kind=StorageError):
            write(make_arrays(40, seed=2), tmp_path / "link", append=True)

    interrupt_writing(monkeypatch, append_too)
    assert write(make_arrays(50, seed=1), tmp_path / "d", append=True).n_rows == 110


def test_append__at_a_url_spares_what_another_one_committed(
    make_arrays: Make, write: Write, all_rows: Callable[[Dataset], Arrays], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, theirs = make_arrays(60), make_arrays(40, seed=2)
    path = "memory://appended/d.zarr"
    write(first, path, block_rows=16)
    interrupt_writing(monkeypatch, lambda: write(theirs, path, append=True))
    with refused("written-by-another", path, kind=StorageError):
        write(make_arrays(70, seed=1), path, append=True)
    for name, values in all_rows(Dataset.open(path)).items():
        np.testing.assert_array_equal(values, np.concatenate([first[name], theirs[name]]))


def test_append__that_fails_spares_what_another_one_committed(
    make_arrays: Make, write: Write, all_rows: Callable[[Dataset], Arrays], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, theirs = make_arrays(60), make_arrays(40, seed=2)
    path = "memory://failed/d.zarr"
    write(first, path, block_rows=16)

    def commit_and_fail() -> None:
        write(theirs, path, append=True)
        raise RuntimeError("no more")

    interrupt_writing(monkeypatch, commit_and_fail)
    with pytest.raises(RuntimeError, match="no more"):
        write(make_arrays(70, seed=1), path, append=True)
    for name, values in all_rows(Dataset.open(path)).items():
        np.testing.assert_array_equal(values, np.concatenate([first[name], theirs[name]]))


def test_append__refuses_another_schema(make_arrays: Make, write: Write, tmp_path: Path) -> None:
    arrays = make_arrays(40)
    write(arrays, tmp_path / "d")
    with refused("columns-differ", "classes", "z"):
        write(arrays, tmp_path / "d", append=True, classes=("p", "q", "z"))
    with refused("columns-differ", "columns", "z"):
        write(arrays, tmp_path / "d", append=True, columns=(Column("a"), Column("b"), Column("z")))
    del arrays["weight"]
    with refused("columns-differ", "weight"):
        write(arrays, tmp_path / "d", append=True)
    with refused("not-found", tmp_path / "nowhere", kind=StorageError):
        write(arrays, tmp_path / "nowhere", append=True)


def test_overwrite__needs_to_be_asked_for(make_arrays: Make, write: Write, tmp_path: Path) -> None:
    first = write(make_arrays(40), tmp_path / "d")
    with refused("exists", "overwrite=True", tmp_path / "d", kind=OutputExistsError):
        write(make_arrays(50), tmp_path / "d")
    assert Dataset.open(tmp_path / "d").key == first.key
    assert write(make_arrays(50), tmp_path / "d", overwrite=True).n_rows == 50
    assert os.listdir(tmp_path) == ["d"]


def test_overwrite__keeps_the_old_one_until_the_new_one_is_complete(
    make_arrays: Make, write: Write, engine: Engine, tmp_path: Path
) -> None:
    first = write(make_arrays(40), tmp_path / "d")
    source = FailingSource(array_source(make_arrays(64), 8), 7, RuntimeError("no more"))
    with pytest.raises(RuntimeError, match="no more"):
        write_dataset(source, tmp_path / "d", engine=engine, overwrite=True, **options())
    assert Dataset.open(tmp_path / "d").key == first.key
    assert os.listdir(tmp_path) == ["d"]


def test_overwrite__through_a_link_replaces_what_it_points_to(make_arrays: Make, write: Write, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    write(make_arrays(40), tmp_path / "disk" / "real")
    (tmp_path / "d").symlink_to(Path("disk", "real"))
    assert write(make_arrays(50), tmp_path / "d", overwrite=True).n_rows == 50
    assert (tmp_path / "d").is_symlink()
    assert Dataset.open(tmp_path / "disk" / "real").n_rows == 50
    assert sorted(os.listdir(tmp_path)) == ["d", "disk"]
    assert os.listdir(tmp_path / "disk") == ["real"]


def test_overwrite__spares_what_is_no_dataset(make_arrays: Make, write: Write, tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("x")
    with refused("wrong-kind", tmp_path / "precious", kind=OutputExistsError):
        write(make_arrays(40), tmp_path / "precious", overwrite=True)
    zarr.open_group(tmp_path / "foreign", mode="w", attributes={"a": 1})
    with refused("wrong-kind", tmp_path / "foreign", kind=OutputExistsError):
        write(make_arrays(40), tmp_path / "foreign", overwrite=True)
    assert (tmp_path / "precious" / "file").read_text() == "x"


def test_write__at_a_url_counts_as_unfinished_until_the_end(make_arrays: Make, write: Write) -> None:
    path = "memory://urls/d.zarr"
    write(make_arrays(40), path, block_rows=8)
    with refused("exists", "overwrite=True", path, kind=OutputExistsError):
        write(make_arrays(40), path)
    assert write(make_arrays(50), path, overwrite=True).n_rows == 50
    assert write(make_arrays(7), path, append=True).n_rows == 57


@pytest.mark.parametrize(
    ("name", "value", "code", "facts"),
    [
        ("features", np.nan, "bad-value", ("'b'", "missing or infinite", "row 37")),
        ("features", -np.inf, "bad-value", ("'b'", "missing or infinite", "row 37")),
        ("target", 3, "bad-value", ("Row 37", "target code", "0 to 2")),
        ("target", -1, "bad-value", ("Row 37", "target code")),
        ("weight", -1.0, "bad-value", ("Row 37", "weight")),
        ("weight", np.nan, "bad-value", ("Row 37", "weight")),
        ("inclusion", 0.0, "bad-value", ("Row 37", "inclusion probability")),
        ("inclusion", 1.5, "bad-value", ("Row 37", "inclusion probability")),
        ("inclusion", np.nan, "bad-value", ("Row 37", "inclusion probability")),
    ],
)
def test_write__lets_only_legal_values_pass(
    name: str, value: float, code: Code, facts: tuple[str, ...], make_arrays: Make, write: Write, tmp_path: Path
) -> None:
    arrays = make_arrays(64)
    if name == "features":
        arrays[name][37, 1] = value
    else:
        arrays[name][37] = value
    with refused(code, *facts):
        write(arrays, tmp_path / "d", block_rows=8)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("changes", "code", "facts"),
    [
        ({"block_rows": 100}, "bad-setting", ("block_rows", "100")),
        ({"block_rows": 2**40}, "over-limit", ("block_rows",)),
        ({"dtype": "float16"}, "bad-setting", ("float32", "float64")),
        ({"classes": ("p",)}, "one-class", ("target",)),
        ({"columns": (Column("a"), Column("b"), Column("b"))}, "named-twice", ("b",)),
        ({"columns": (Column("a"), Column("b"))}, "wrong-shape", ("(20, 3)", "2 features")),
    ],
)
def test_write__refuses_settings_that_cannot_be(
    changes: dict[str, Any], code: Code, facts: tuple[str, ...], make_arrays: Make, engine: Engine, tmp_path: Path
) -> None:
    rows = 2**29 if changes.get("block_rows") == 2**40 else 20
    small = array_source(make_arrays(20), 32)
    source = ArraySource(small.arrays, Layout(rows, 32)) if rows > 20 else small
    with refused(code, *facts):
        write_dataset(source, tmp_path / "d", engine=engine, **options(**changes))
    assert os.listdir(tmp_path) == []


def test_write__refuses_what_its_attributes_cannot_hold_before_rows_are_read(
    make_arrays: Make, write: Write, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(make_arrays(64), tmp_path / "d", block_rows=8)
    monkeypatch.setattr(records_module, "MAX_JSON_ITEMS", records_module.HEAD + 20)
    source = FailingSource(array_source(make_arrays(64), 8), 1, RuntimeError("a row was read"))
    for place, append in (("other", False), ("d", True)):
        with refused("over-limit", "dataset"):
            write_dataset(source, tmp_path / place, engine=engine, append=append, **options())
    assert os.listdir(tmp_path) == ["d"]


def test_write__with_a_block_check_for_each_of_too_many_rows_allocates_little(tmp_path: Path, engine: Engine) -> None:
    rows = 2**40
    source = ArraySource(
        array_source({"features": np.ones((20, 3)), "target": np.zeros(20, int)}, 32).arrays, Layout(rows, 32)
    )
    tracemalloc.start()
    try:
        with refused("over-limit", "dataset"):
            write_dataset(source, tmp_path / "d", engine=engine, block_rows=1, **options())
        assert tracemalloc.get_traced_memory()[1] < 10 * MAX_JSON_BYTES
    finally:
        tracemalloc.stop()


@settings(max_examples=30)
@given(data=st.data())
def test_require_storable__refuses_whatever_could_be_refused_at_the_end(data: st.DataObject) -> None:
    def floats(size: int, least: float = -sys.float_info.max) -> Any:
        elements = st.floats(least, sys.float_info.max, allow_nan=False)
        return np.array(data.draw(st.lists(elements, min_size=size, max_size=size)))

    columns = (Column("a"), Column("b", "nominal", ("x", "y")))
    before = Metadata(
        n_rows=data.draw(st.integers(1, 100)),
        block_rows=8,
        dtype="float64",
        classes=("p", "q"),
        columns=columns,
        target_name="t",
        weight_name=None,
        inclusion_name=None,
        dropped=(),
        summary=empty_summary(3, 2),
        content=0,
        block_checks=b"",
    )
    summary = Summary(
        rows=before.n_rows,
        class_rows=np.array([before.n_rows, 0]),
        class_weight=floats(2, 0),
        weight=float(floats(1, 1)[0]),
        mean=floats(3),
        squares=floats(3, 0),
        minimum=floats(3),
        maximum=floats(3),
    )
    checks = data.draw(st.binary(min_size=8 * -(-before.n_rows // 8), max_size=8 * -(-before.n_rows // 8)))
    lengths: list[int] = []

    def measure(record: dict[str, Any], _: str) -> dict[str, Any]:
        lengths.append(len(canonical_json(record)))
        return record

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metadata_module, "seal", measure)
        to_attributes(replace(before, summary=summary, content=2**128 - 1, block_checks=checks))
        require_storable(before)
    most, longest = lengths
    assert most <= longest


def test_write__refuses_weights_that_are_all_zero(make_arrays: Make, write: Write, tmp_path: Path) -> None:
    arrays = make_arrays(20)
    arrays["weight"][:] = 0
    with refused("no-rows", "weight"):
        write(arrays, tmp_path / "d")
    assert os.listdir(tmp_path) == []


def identity(block: Block) -> Arrays:
    return block.arrays


def test_sink__takes_the_blocks_of_a_map(make_arrays: Make, write: Write, engine: Engine, tmp_path: Path) -> None:
    arrays = make_arrays(100)
    dataset = write(arrays, tmp_path / "d", block_rows=32)
    metadata = dataset.metadata
    steps = {variable.name: metadata.spec_of(variable).chunk_rows(32) for variable in metadata.variables}
    other = {name: values[::-1].copy() for name, values in arrays.items()}
    sink = DatasetSink(dataset.path, steps)
    assert engine.map(array_source(other, 32), identity, sink=sink) == 100
    stored: Any = zarr.open_array(dataset.path, path="features", mode="r")
    np.testing.assert_array_equal(stored[...], other["features"])


def test_sink__does_not_bring_back_what_was_given_up(make_arrays: Make, tmp_path: Path) -> None:
    sink = DatasetSink(str(tmp_path / "gone"), {"features": 8})
    with refused("changed-meanwhile", tmp_path / "gone", kind=StorageError):
        sink.write(0, 0, make_arrays(8))
    assert os.listdir(tmp_path) == []


def test_attributes__say_what_the_format_promises(make_arrays: Make, write: Write, tmp_path: Path) -> None:
    dataset = write(make_arrays(40), tmp_path / "d")
    found = attributes_of(dataset.path)
    assert (found["format"], found["version"], found["n_rows"]) == ("protodask-dataset", 1, 40)
    assert found["feature_names"] == ["a", "b", "c"]
    assert found["fingerprint"] == dataset.key
    np.testing.assert_allclose(found["deviation"], dataset.summary.deviation)


def test_append__takes_groups_where_the_dataset_has_them(
    make_arrays: Make, write: Write, tmp_path: Path, all_rows: Callable[[Dataset], Any]
) -> None:
    first, second = make_arrays(50) | {"group": np.arange(50)}, make_arrays(30, seed=1) | {"group": np.arange(30)}
    write(first, tmp_path / "d", block_rows=16)
    grown = write(second, tmp_path / "d", append=True)
    np.testing.assert_array_equal(all_rows(grown)["group"], np.concatenate([first["group"], second["group"]]))
    with refused("columns-differ", "group", "None"):
        write(make_arrays(30), tmp_path / "d", append=True)
    write(make_arrays(30), tmp_path / "without", block_rows=16)
    with refused("columns-differ", "group"):
        write(second, tmp_path / "without", append=True)


@pytest.mark.parametrize(
    ("group", "code", "facts"),
    [
        (np.where(np.arange(64) == 37, -1, 5), "bad-value", ("Row 37", "group code")),
        (np.zeros(64), "wrong-type", ("float64", "int64")),
        (np.zeros(64, dtype=np.uint64), "wrong-type", ("uint64",)),
    ],
)
def test_write__lets_only_codes_of_groups_pass(
    group: Any, code: Code, facts: tuple[str, ...], make_arrays: Make, write: Write, tmp_path: Path
) -> None:
    with refused(code, *facts):
        write(make_arrays(64) | {"group": group}, tmp_path / "d", block_rows=8)
    assert os.listdir(tmp_path) == []
