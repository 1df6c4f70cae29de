"""Several writers of one dataset, in any order of their requests: nothing reported is lost, nothing is there twice."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from numpy.typing import NDArray
from support.datasets import Make, Write
from support.errors import refused
from support.turns import KilledError, World, turns

from protodask.data import Column, Dataset, write_dataset
from protodask.data.format.commits import add_empty_segments
from protodask.data.format.parts import APPENDS, Part, fits, grown, part_of
from protodask.data.format.segments import Segment
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


def interleaved(seed: int, *, overwriters: int) -> None:
    """Two to four writers and a reader, in an order and with kills that a seed draws."""
    generator = np.random.default_rng(seed)
    kills = float(generator.choice([0, 0.005, 0.02]))
    sizes = {writer: int(generator.integers(1, 60)) for writer in range(1, int(generator.integers(3, 6)))}
    with turns(seed, kills) as world:
        put(world, "first", 0, BASE, block_rows=BLOCK_ROWS)
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
            assert isinstance(outcomes[writer], ProtodaskError), outcomes[writer]
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
        named = len(dict.fromkeys(key.split("/")[1] for key in world.objects if key.startswith("d.zarr/generation-")))
        put(world, "last", 9, 5, append=True)
        assert whose(Dataset.open("turns://after/d.zarr")) == (*last, (9, 5))
        put(world, "last", 8, 5, overwrite=True)
        left = {key.split("/")[1] for key in world.objects if key.startswith("d.zarr/generation-")}
        assert len(left) == 1, "what was killed is removed by those who follow"
        assert named >= 1


@pytest.mark.parametrize("seed", range(30))
def test_appends__of_several_at_a_url(seed: int) -> None:
    interleaved(seed, overwriters=0)


@pytest.mark.parametrize("seed", range(15))
def test_appends_and_overwrites__of_several_at_a_url(seed: int) -> None:
    interleaved(1_000 + seed, overwriters=1 + seed % 2)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(0, 600, 50))
def test_writers__of_one_dataset_in_many_orders(seed: int) -> None:
    for number in range(seed, seed + 50):
        interleaved(10_000 + number, overwriters=max(number % 4 - 1, 0))


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
    grown_one = write(make_arrays(30, seed=1), path, append=True)
    left = set(list_names(dataset.place, APPENDS)) - {"zarr.json"}
    assert left == {grown_one.metadata.parts[-1].name, "00000002-0123abcd"}


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
        ({"part_names": [], "part_rows": [], "part_first_blocks": []}, False),
        ({"segments_in": "../elsewhere"}, False),
        ({"commit": 0}, False),
    ],
)
def test_open__refuses_parts_that_are_not_those_of_its_rows(
    change: dict[str, Any], right: bool, make_arrays: Make, write: Write, tmp_path: Path
) -> None:
    write(make_arrays(40), tmp_path / "d", block_rows=16)
    dataset = write(make_arrays(30, seed=1), tmp_path / "d", append=True)
    path = tmp_path / "d" / "zarr.json"
    record = json.loads(path.read_text())
    record["attributes"] |= change
    sealed = {name: value for name, value in record["attributes"].items() if name != "checksum"}
    record["attributes"] = seal(sealed, "dataset")
    path.write_text(json.dumps(record))
    if right:
        assert Dataset.open(tmp_path / "d").key == dataset.key
    else:
        with refused("damaged", tmp_path / "d", kind=FormatError):
            Dataset.open(tmp_path / "d")


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
