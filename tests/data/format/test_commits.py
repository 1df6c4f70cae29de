"""Several writers of one dataset, in any order of their requests: nothing reported is lost, nothing is there twice."""

from __future__ import annotations

import gc
import json
import os
import shutil
import uuid
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from itertools import groupby
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import zarr
from numpy.typing import NDArray
from support.datasets import Make, Write
from support.errors import refused
from support.turns import KilledError, World, turns

from protodask.data import Column, Dataset, write_dataset
from protodask.data.format import commits
from protodask.data.format import dataset as dataset_module
from protodask.data.format.commits import add_empty_segments
from protodask.data.format.parts import APPENDS, Part, fits, grown, part_of
from protodask.data.format.segments import Segment, is_dataset, read_segments
from protodask.data.places import conditional, generations, whole_files
from protodask.data.places.bounded import read_object
from protodask.data.places.locations import list_names, write_object
from protodask.data.places.records import seal
from protodask.engine import array_source, thread_engine
from protodask.errors import FormatError, ProtodaskError, StorageError

# Of Zarr, where one of several requests fails.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

BLOCK_ROWS = 16
BASE = 40
"""Rows that are there from the start: the last block is not full."""

OPTIONS: dict[str, Any] = {"classes": ("p", "q"), "columns": (Column("writer"), Column("row"))}

Rows = tuple[tuple[int, int], ...]
"""Whose rows follow one another, and how many."""


def rows_of(writer: int, rows: int) -> dict[str, NDArray[Any]]:
    features = np.column_stack([np.full(rows, writer), np.arange(rows)]).astype(np.float32)
    return {"features": features, "target": np.arange(rows, dtype=np.int32) % 2}


def put(world: World, name: str, writer: int, rows: int, **options: Any) -> Dataset:
    with thread_engine(1, 2**26) as engine:
        source = array_source(rows_of(writer, rows), 8)
        return write_dataset(source, f"turns://{name}/d.zarr", engine=engine, **OPTIONS, **options)


def whose(dataset: Dataset) -> Rows:
    """Whose rows a dataset has; each writer's must be whole and in their order."""
    found = np.concatenate([dataset.read(number)["features"] for number in range(dataset.layout.n_blocks)])
    parts = []
    for writer, group in groupby(found.tolist(), key=lambda row: row[0]):
        numbers = [row[1] for row in group]
        assert numbers == list(range(len(numbers))), "rows of one writer are all there, in their order, and once"
        parts.append((int(writer), len(numbers)))
    assert len({writer for writer, _ in parts}) == len(parts)
    return tuple(parts)


@cache
def first_objects() -> dict[str, bytes]:
    """What lies in the store where somebody wrote the rows that are there from the start."""
    with turns(0) as world:
        put(world, "first", 0, BASE, block_rows=BLOCK_ROWS)
        return world.objects


def interleaved(seed: int, *, overwriters: int) -> None:
    """Two to four writers and a reader, in an order and with kills that a seed draws."""
    generator = np.random.default_rng(seed)
    kills, losses = float(generator.choice([0, 0.005, 0.02])), float(generator.choice([0, 0, 0.03]))
    sizes = {writer: int(generator.integers(1, 60)) for writer in range(1, int(generator.integers(3, 6)))}
    objects = first_objects()
    with turns(seed, kills, losses) as world:
        world.objects |= objects
        seen: set[Rows] = set()

        def write(writer: int) -> Dataset:
            if writer <= overwriters:
                return put(world, f"w{writer}", writer, sizes[writer], overwrite=True, block_rows=BLOCK_ROWS)
            return put(world, f"w{writer}", writer, sizes[writer], append=True)

        def read() -> None:
            kept: list[tuple[Dataset, Rows]] = []
            while len(world.outcomes) < len(sizes):
                dataset = Dataset.open("turns://reader/d.zarr")
                kept.append((dataset, whose(dataset)))
                seen.add(kept[-1][1])
                earlier, then = kept[int(generator.integers(len(kept)))]
                assert whose(earlier) == then, "who opened it earlier sees the rows of then"

        def read_all() -> None:
            while True:
                try:
                    return read()
                except StorageError:
                    assert overwriters, "only a dataset in place of another one ends a reader"

        world.immortal.add("reader")
        world.run({"reader": read_all, **{f"w{writer}": partial(write, writer) for writer in sizes}})
        outcomes = {writer: world.outcomes[f"w{writer}"] for writer in sizes}
        assert world.outcomes["reader"] is None, world.outcomes["reader"]
        done = {writer for writer, outcome in outcomes.items() if isinstance(outcome, Dataset)}
        dead = {writer for writer, outcome in outcomes.items() if isinstance(outcome, KilledError)}
        for writer in outcomes.keys() - done - dead:
            assert isinstance(outcomes[writer], ProtodaskError) or "no answer" in str(outcomes[writer])
        last = whose(Dataset.open("turns://after/d.zarr"))
        for found in (*seen, last):
            assert found[0][0] <= overwriters
            assert all(writer > overwriters for writer, _ in found[1:])
            assert all(rows == (sizes[writer] if writer else BASE) for writer, rows in found)
            assert {writer for writer, _ in found} <= {0} | done | dead, "nothing is there of who was refused"
        if not overwriters:
            assert done <= {writer for writer, _ in last}, "nothing is lost that was reported"
            assert all(found == last[: len(found)] for found in seen), "rows only come behind those that were there"
        elif last[0][0] == 0:
            assert not done & set(range(1, overwriters + 1))
        final = put(world, "last", 9, 5, append=True)
        assert whose(Dataset.open("turns://after/d.zarr")) == (*last, (9, 5))
        below = final.place.removeprefix("turns://last/") + f"/{APPENDS}/"
        left = {key.removeprefix(below).split("/")[0] for key in world.objects if key.startswith(below)}
        parts = {part.name for part in final.metadata.all_parts if part.name}
        assert left == {"zarr.json", *parts}, "what was killed is removed by those who follow"
        if overwriters:
            put(world, "last", 8, 5, overwrite=True)
        left = {key.split("/")[1] for key in world.objects if key.startswith("d.zarr/generation-")}
        assert len(left) == 1


@pytest.mark.parametrize("seed", range(6))
def test_appends__of_several_at_a_url(seed: int) -> None:
    interleaved(seed, overwriters=0)


@pytest.mark.parametrize("seed", range(6))
def test_appends_and_overwrites__of_several_at_a_url(seed: int) -> None:
    interleaved(1_000 + seed, overwriters=1 + seed % 2)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(0, 500, 25))
def test_writers__of_one_dataset_in_many_orders(seed: int) -> None:
    """A mistake that one order in 87 shows is missed three times in a thousand."""
    for number in range(seed, seed + 25):
        interleaved(10_000 + number, overwriters=max(number % 4 - 1, 0))


def test_turns__leave_nothing_that_warns_in_another_test() -> None:
    with warnings.catch_warnings(record=True) as meanwhile:
        warnings.simplefilter("always")
        interleaved(10_002, overwriters=1)
    with warnings.catch_warnings(record=True) as later:
        warnings.simplefilter("always")
        gc.collect()
    never_awaited = ["never awaited" in str(warning.message) for warning in (*meanwhile, *later)]
    assert any(never_awaited)
    assert not any(never_awaited[len(meanwhile) :])


def test_append__of_whoever_is_first_to_commit_wins(make_arrays: Make, write: Write) -> None:
    path = "memory://first-wins/d.zarr"
    write(make_arrays(50), path, block_rows=16)
    beaten: list[Dataset] = []

    def beat() -> None:
        if not beaten:
            beaten.append(write(make_arrays(20, seed=1), path, append=True))

    with refused("written-by-another", path, kind=StorageError):
        write(make_arrays(30, seed=2), path, append=True, confirm=beat)
    assert Dataset.open(path).n_rows == 70


@pytest.mark.parametrize("place", ["disk", "memory"])
def test_append__writes_what_is_new_and_no_file_again(
    place: str, make_arrays: Make, write: Write, tmp_path: Path, all_rows: Callable[[Dataset], Any]
) -> None:
    path = str(tmp_path / "d") if place == "disk" else "memory://what-is-new/d.zarr"
    arrays = [make_arrays(rows, seed=rows) for rows in (40, 3, 30, 16, 1)]
    dataset = write(arrays[0], path, block_rows=16)
    opened = [dataset]
    for added in arrays[1:]:
        before = {name: os.stat(name).st_mtime_ns for name in _files(dataset.place)} if place == "disk" else {}
        dataset = write(added, path, append=True)
        opened.append(dataset)
        for name, changed in before.items():
            if os.path.exists(name) and name != os.path.join(path, "zarr.json"):
                assert os.stat(name).st_mtime_ns == changed
    assert [part.first_block for part in dataset.metadata.all_parts] == [0, 2, 4, 5]
    assert dataset.metadata.commit == 4
    for number, one in enumerate(opened):
        for name, values in all_rows(one).items():
            np.testing.assert_array_equal(values, np.concatenate([part[name] for part in arrays[: number + 1]]))


def _files(place: str) -> list[str]:
    return [os.path.join(folder, name) for folder, _, names in os.walk(place) for name in names]


def test_append__to_less_than_a_block_leaves_nothing_of_the_first_writing(
    make_arrays: Make, write: Write, tmp_path: Path
) -> None:
    first = write(make_arrays(10), tmp_path / "d", block_rows=16)
    write(make_arrays(30, seed=1), tmp_path / "d", append=True)
    assert set(os.listdir(tmp_path / "d")) == {"zarr.json", APPENDS}, "who reads with Zarr alone finds no old rows"
    np.testing.assert_array_equal(first.read(0)["features"], make_arrays(10)["features"])


def test_append__is_read_by_zarr_alone(make_arrays: Make, write: Write, tmp_path: Path) -> None:
    first, second = make_arrays(40), make_arrays(30, seed=1)
    write(first, tmp_path / "d", block_rows=16)
    dataset = write(second, tmp_path / "d", append=True)
    attributes: Any = zarr.open_group(tmp_path / "d", mode="r").attrs.asdict()
    found = np.empty((0, 3), dtype=np.float32)
    for name, block in zip(attributes["part_names"], attributes["part_first_blocks"], strict=True):
        part = zarr.open_group(tmp_path / "d" / APPENDS / name if name else tmp_path / "d", mode="r")
        found = np.concatenate([found[: block * attributes["block_rows"]], np.asarray(part["features"])])
    np.testing.assert_array_equal(found, np.concatenate([first["features"], second["features"]]))
    assert dataset.describe()["parts"] == 2


def test_append__removes_what_killed_ones_left(make_arrays: Make, write: Write, tmp_path: Path) -> None:
    write(make_arrays(40), tmp_path / "d", block_rows=16)
    for name in ("00000001-0123abcd", "00000007-0123abcd"):
        (tmp_path / "d" / APPENDS / name).mkdir(parents=True)
    (tmp_path / "d" / APPENDS / "mine").mkdir()
    dataset = write(make_arrays(30, seed=1), tmp_path / "d", append=True)
    kept = {dataset.metadata.parts[-1].name, "mine", "zarr.json"}
    assert set(os.listdir(tmp_path / "d" / APPENDS)) == kept, "nobody else writes while the lock is held"


def test_append__at_a_url_spares_what_may_be_at_work(make_arrays: Make, write: Write) -> None:
    path = "memory://at-work/d.zarr"
    dataset = write(make_arrays(40), path, block_rows=16)
    for name in ("00000001-0123abcd", "00000002-0123abcd"):
        write_object(dataset.place, f"{APPENDS}/{name}/zarr.json", b"{}")
    # That a commit is the only one of its number is not certain in such a store.
    for others in ({"00000001-0123abcd", "00000002-0123abcd"}, {"00000002-0123abcd"}, set()):
        write(make_arrays(16), path, append=True)
        left = set(list_names(dataset.place, APPENDS))
        assert {name for name in left if "0123abcd" in name} == others


def test_append__that_was_refused_leaves_what_was_there(make_arrays: Make, write: Write, tmp_path: Path) -> None:
    write(make_arrays(40), tmp_path / "d", block_rows=16)
    write(make_arrays(30, seed=1), tmp_path / "d", append=True)
    before = {name: Path(name).read_bytes() for name in _files(str(tmp_path / "d"))}

    def refuse() -> None:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        write(make_arrays(5, seed=2), tmp_path / "d", append=True, confirm=refuse)
    assert {name: Path(name).read_bytes() for name in _files(str(tmp_path / "d"))} == before


def test_sources__without_rows_are_a_commit(make_arrays: Make, write: Write, tmp_path: Path) -> None:
    write(make_arrays(40), tmp_path / "d", block_rows=16)
    first = add_empty_segments(str(tmp_path / "d"), [Segment("empty.csv", "0" * 32, 0)])
    second = add_empty_segments(str(tmp_path / "d"), [Segment("also.csv", "1" * 32, 0)])
    assert [one.metadata.commit for one in (first, second)] == [1, 2]
    assert [segment.name for segment in second.segments] == ["d", "empty.csv", "also.csv"]
    assert [segment.name for segment in first.segments] == ["d", "empty.csv"], "the list was removed since"
    assert len(os.listdir(tmp_path / "d" / APPENDS)) == 2


@pytest.fixture(scope="module")
def two_parts(make_arrays: Make, write: Write, tmp_path_factory: pytest.TempPathFactory) -> tuple[Dataset, bytes]:
    """A dataset, and its record."""
    path = tmp_path_factory.mktemp("parts") / "d"
    write(make_arrays(40), path, block_rows=16)
    return write(make_arrays(30, seed=1), path, append=True), (path / "zarr.json").read_bytes()


@pytest.mark.parametrize(
    ("change", "right"),
    [
        ({}, True),
        ({"part_rows": [40, 37]}, False),
        ({"part_rows": [31, 38]}, False),
        ({"part_first_blocks": [1, 2]}, False),
        ({"part_first_blocks": [0, 0]}, False),
        ({"part_names": ["", ""]}, False),
        ({"part_names": ["", "../../other"]}, False),
        ({"part_names": ["", "1" * 5_000 + "-0123abcd"]}, False),
        ({"part_names": [], "part_rows": [], "part_first_blocks": []}, False),
        ({"segments_in": "../elsewhere"}, False),
        ({"commit": 0}, False),
    ],
)
def test_open__refuses_parts_that_are_not_those_of_its_rows(
    change: dict[str, Any], right: bool, two_parts: tuple[Dataset, bytes]
) -> None:
    dataset, content = two_parts
    record = json.loads(content)
    record["attributes"] |= change
    sealed = {name: value for name, value in record["attributes"].items() if name != "checksum"}
    record["attributes"] = seal(sealed, "dataset")
    Path(dataset.path, "zarr.json").write_text(json.dumps(record))
    if right:
        assert Dataset.open(dataset.path).key == dataset.key
    else:
        with refused("damaged", dataset.path, kind=FormatError):
            Dataset.open(dataset.path)


def test_parts__cover_each_block_once() -> None:
    parts: tuple[Part, ...] = (Part("", 0, 40),)
    for first, rows, name in ((2, 10, "00000001-00000000"), (2, 60, "00000002-00000000"), (5, 16, "00000003-00000000")):
        parts = grown(parts, Part(name, first, rows))
    assert fits(parts, 5 * 16 + 16, 16)
    assert [part_of(parts, block).first_block for block in range(6)] == [0, 0, 2, 2, 2, 5]


def test_change__is_given_up_where_the_attributes_are_others_by_now(
    make_arrays: Make, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On file systems without locks, where two may have begun."""
    write(make_arrays(40), tmp_path / "d", block_rows=16)
    monkeypatch.setattr("protodask.data.places.locks.fcntl", None)

    def append_too() -> None:
        write(make_arrays(10, seed=2), tmp_path / "d", append=True)

    with refused("written-by-another", tmp_path / "d", kind=StorageError):
        write(make_arrays(30, seed=1), tmp_path / "d", append=True, confirm=append_too)
    assert Dataset.open(tmp_path / "d").n_rows == 50


@pytest.mark.parametrize(
    ("module", "moment", "place", "error"),
    [
        (whole_files, "flush", "disk", OSError("no answer")),
        (whole_files, "flush", "disk", KeyboardInterrupt()),
        (commits, "remove_unnamed", "disk", KeyboardInterrupt()),
        (commits, "remove_unnamed", "memory", OSError("no answer")),
        (commits, "replace_object", "memory", OSError("no answer")),
        (commits, "replace_object", "memory", KeyboardInterrupt()),
    ],
)
def test_append__that_fails_once_it_counts_keeps_its_rows(
    module: ModuleType,
    moment: str,
    place: str,
    error: BaseException,
    make_arrays: Make,
    write: Write,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = str(tmp_path / "d") if place == "disk" else f"memory://{uuid.uuid4().hex}/d.zarr"
    write(make_arrays(40), path, block_rows=16)
    write(make_arrays(3, seed=1), path, append=True)
    done, failed = getattr(module, moment), list[int]()

    def fail(*arguments: Any) -> Any:
        found = done(*arguments)
        if Dataset.open(path).n_rows == 73:
            failed.append(1)
            raise error
        return found

    with monkeypatch.context() as patch:
        patch.setattr(module, moment, fail)
        with suppress(StorageError, KeyboardInterrupt):
            write(make_arrays(30, seed=2), path, append=True)
    assert failed
    dataset = Dataset.open(path)
    assert dataset.n_rows == 73
    assert [dataset.read(number).n_rows for number in range(5)] == [16, 16, 16, 16, 9]
    assert write(make_arrays(1, seed=3), path, append=True).n_rows == 74


def test_append__whose_commit_was_followed_by_another_one_counts(
    make_arrays: Make, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = "memory://followed/d.zarr"
    write(make_arrays(40), path, block_rows=16)
    replace, rounds = conditional.replace_object, list[int]()

    def replace_and_let_another_one(*arguments: Any) -> bool:
        replace(*arguments)
        if not rounds:
            rounds.append(1)
            write(make_arrays(7, seed=2), path, append=True)
        return False

    monkeypatch.setattr(commits, "replace_object", replace_and_let_another_one)
    assert write(make_arrays(5, seed=1), path, append=True).n_rows == 52


def test_append__where_nothing_is_certain_spares_what_has_its_number(
    make_arrays: Make, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of which both saw that nobody had written: one is lost, and the dataset is that of the other."""
    path = "memory://both/d.zarr"
    write(make_arrays(40), path, block_rows=16)
    replace, rounds = conditional.replace_object, list[int]()

    def replace_late(place: str, name: str, before: bytes, content: bytes, tag: Any) -> bool:
        if not rounds:
            rounds.append(1)
            write(make_arrays(7, seed=2), path, append=True)
            before = read_object(place, name) or b""
        return replace(place, name, before, content, tag)

    monkeypatch.setattr(commits, "replace_object", replace_late)
    assert write(make_arrays(5, seed=1), path, append=True).n_rows == 45
    dataset = Dataset.open(path)
    assert [dataset.read(number).n_rows for number in range(3)] == [16, 16, 13]


def test_links__inside_of_a_dataset_are_not_followed(make_arrays: Make, write: Write, tmp_path: Path) -> None:
    write(make_arrays(40), tmp_path / "victim", block_rows=16)
    victim = write(make_arrays(30, seed=1), tmp_path / "victim", append=True)
    write(make_arrays(40), tmp_path / "hostile", block_rows=16)
    (tmp_path / "hostile" / APPENDS).symlink_to(tmp_path / "victim" / APPENDS)
    with refused("wrong-kind", "symbolic link", kind=FormatError):
        write(make_arrays(1), tmp_path / "hostile", append=True)
    assert Dataset.open(tmp_path / "victim").read(4).n_rows == 6
    part = tmp_path / "victim" / APPENDS / victim.metadata.parts[-1].name
    part.rename(tmp_path / "elsewhere")
    part.symlink_to(tmp_path / "elsewhere")
    with refused("wrong-kind", "symbolic link", kind=FormatError):
        Dataset.open(tmp_path / "victim")


def test_append__refuses_blocks_that_would_be_too_large(
    make_arrays: Make, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(make_arrays(40), tmp_path / "d", block_rows=1024)
    monkeypatch.setattr("protodask.data.format.metadata.MAX_BLOCK_BYTES", 4096)
    with refused("over-limit", "1024 rows"):
        write(make_arrays(600, seed=1), tmp_path / "d", append=True)
    assert Dataset.open(tmp_path / "d").n_rows == 40


def test_read__of_a_block_whose_part_was_replaced_by_that_of_a_copy_notices(
    make_arrays: Make, write: Write, tmp_path: Path
) -> None:
    write(make_arrays(40), tmp_path / "d", block_rows=16)
    shutil.copytree(tmp_path / "d", tmp_path / "copy")
    dataset = write(make_arrays(5, seed=1), tmp_path / "d", append=True)
    assert dataset.read(2).n_rows == 13
    shutil.rmtree(tmp_path / "d")
    (tmp_path / "copy").rename(tmp_path / "d")
    write(make_arrays(5, seed=2), tmp_path / "d", append=True)
    with refused("damaged", "other rows", kind=FormatError):
        dataset.read(2)


def test_open__at_a_url_looks_again_while_others_append(
    make_arrays: Make, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = "memory://looks-again/d.zarr"
    write(make_arrays(40), path, block_rows=16)
    write(make_arrays(3, seed=1), path, append=True)
    load, rounds = dataset_module._load_part, list[int]()

    def append_before(*arguments: Any) -> Any:
        if not rounds:
            rounds.append(1)
            write(make_arrays(2, seed=2), path, append=True)
        return load(*arguments)

    monkeypatch.setattr(dataset_module, "_load_part", append_before)
    assert Dataset.open(path).n_rows == 45


def test_sources__are_found_while_others_append(
    make_arrays: Make, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(make_arrays(40), tmp_path / "d", block_rows=16)
    dataset = add_empty_segments(str(tmp_path / "d"), [Segment("empty.csv", "0" * 32, 0)])
    add_empty_segments(str(tmp_path / "d"), [])
    read, rounds, busy = read_segments, list[int](), list[int]()

    def append_before(*arguments: Any) -> Any:
        if len(rounds) < 2 and not busy:
            rounds.append(1)
            busy.append(1)
            add_empty_segments(str(tmp_path / "d"), [Segment(f"{len(rounds)}.csv", f"{len(rounds)}" * 32, 0)])
            busy.clear()
        return read(*arguments)

    monkeypatch.setattr(dataset_module, "read_segments", append_before)
    assert [segment.name for segment in dataset.segments] == ["d", "empty.csv"]
    shutil.rmtree(tmp_path / "d")
    with refused("changed-meanwhile", tmp_path / "d", kind=StorageError):
        dataset.segments  # noqa: B018


def test_append__into_what_was_overwritten_meanwhile_does_not_count(
    make_arrays: Make, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = "memory://overwritten/d.zarr"
    write(make_arrays(40), path, block_rows=16)

    def overwrite_before(*arguments: Any) -> bool:
        monkeypatch.setattr(generations, "_remove_up_to", lambda *_: None)  # which takes its time
        write(make_arrays(7, seed=2), path, overwrite=True)
        return conditional.replace_object(*arguments)

    monkeypatch.setattr(commits, "replace_object", overwrite_before)
    with refused("written-by-another", path, kind=StorageError):
        write(make_arrays(5, seed=1), path, append=True)
    assert Dataset.open(path).n_rows == 7


def test_is_dataset__of_a_folder_whose_marker_is_a_link(tmp_path: Path) -> None:
    (tmp_path / "_protodask.json").symlink_to(tmp_path / "elsewhere.json")
    assert not is_dataset(str(tmp_path))
