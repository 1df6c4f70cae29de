"""Taking what is new: every row of every source is there exactly once, in the order in which it came."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.errors import refused

from protodask.data import Column, Dataset, write_dataset
from protodask.data.format import segments as segments_module
from protodask.data.format import writer as writer_module
from protodask.data.format.segments import Segment, read_segments, stored_segments, write_segments
from protodask.data.news import ingest_news
from protodask.data.news.new_sources import news_for
from protodask.data.places import bounded as bounded_module
from protodask.data.tables import ingest_sources
from protodask.data.tables.ingest import ingest
from protodask.data.tables.source_files import content_digest
from protodask.engine import Engine, array_source
from protodask.errors import Code, FormatError, InputError, OutputExistsError, StorageError

Rows = list[tuple[float, str]]

SCHEMA: dict[str, Any] = {"target": "y", "categorical": ["colour"]}
COLOURS = ("blue", "red")


def lines(numbers: Sequence[float]) -> str:
    """A table whose rows are told apart by their first column."""
    rows = [f"{number},{COLOURS[int(number) % 2]},{'yes' if number % 3 else 'no'}" for number in numbers]
    return "\n".join(["x,colour,y", *rows]) + "\n"


def put(path: Path, numbers: Sequence[float], age: float = 3600.0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(lines(numbers))
    os.utime(path, (time.time() - age,) * 2)
    return path


def find_waiting(inbox: Path, out: Path) -> tuple[str, ...]:
    return news_for(str(out), [str(inbox)], new=True, unless_in=None, settle=3600.0).waiting


def numbers_of(dataset: Dataset) -> list[float]:
    """The first column of all rows, once all others are what they should be."""
    found: list[float] = []
    for number in range(dataset.layout.n_blocks):
        block = dataset.read(number)
        rows = block["features"][:, 0].tolist()
        assert dataset.feature_names == ("x", "colour=blue", "colour=red")
        assert block["features"][:, 2].tolist() == [value % 2 for value in rows]
        labels = [dataset.classes[code] for code in block["target"].tolist()]
        assert labels == ["yes" if value % 3 else "no" for value in rows]
        found += rows
    return found


def take(inbox: Path | list[str], out: Path, engine: Engine, **more: Any) -> Dataset:
    sources = inbox if isinstance(inbox, list) else str(inbox)
    return ingest(sources, out, engine=engine, **{"new": True, **SCHEMA, **more})


@pytest.fixture
def inbox(tmp_path: Path) -> Path:
    put(tmp_path / "inbox" / "a.csv", range(6))
    put(tmp_path / "inbox" / "b.csv", range(10, 19))
    return tmp_path / "inbox"


def test_ingest__makes_a_dataset_and_adds_what_is_new(inbox: Path, tmp_path: Path, engine: Engine) -> None:
    out = tmp_path / "data.zarr"
    first = take(inbox, out, engine)
    assert numbers_of(first) == [*range(6), *range(10, 19)]
    assert [(segment.name, segment.rows) for segment in first.segments] == [("a.csv", 6), ("b.csv", 9)]
    assert [segment.digest for segment in first.segments] == [
        content_digest(str(inbox / name)) for name in ("a.csv", "b.csv")
    ]
    before = (out / "zarr.json").read_bytes()
    assert take(inbox, out, engine).key == first.key
    assert (out / "zarr.json").read_bytes() == before
    put(inbox / "late" / "0.csv", [30, 31])
    shutil.copy(inbox / "a.csv", inbox / "z.csv")  # repeated under another name
    again = take(inbox, out, engine)
    assert numbers_of(again) == [*range(6), *range(10, 19), 30, 31]
    assert [segment.name for segment in again.segments] == ["a.csv", "b.csv", "late/0.csv"]
    assert first.segments == again.segments[:2]  # opened before, its list is the beginning of the longer one


def test_segments__of_a_dataset_that_was_replaced_say_so(inbox: Path, tmp_path: Path, engine: Engine) -> None:
    out = tmp_path / "data.zarr"
    first = take(inbox, out, engine)
    shutil.rmtree(out)
    put(inbox / "b.csv", range(20, 24))
    assert [segment.rows for segment in take(inbox, out, engine).segments] == [6, 4]
    with refused("changed-meanwhile", out, kind=StorageError):
        _ = first.segments


def test_ingest__leaves_out_further_columns_of_some_new_files(inbox: Path, tmp_path: Path, engine: Engine) -> None:
    out = tmp_path / "data.zarr"
    take(inbox, out, engine)
    put(inbox / "c.csv", [30, 31])
    wider = [f"{line},{'more' if line.startswith('x') else 'z'}" for line in lines([40, 41]).splitlines()]
    (inbox / "d.csv").write_text("\n".join([*wider, ""]))
    os.utime(inbox / "d.csv", (time.time() - 3600,) * 2)
    with pytest.warns(UserWarning, match="left out: 'more'"):
        found = take(inbox, out, engine)
    assert numbers_of(found) == [*range(6), *range(10, 19), 30, 31, 40, 41]
    (inbox / "e.csv").write_text(lines([50, 51]).replace("colour", "color"))
    with refused("columns-differ", "lacks 'colour'", "has 'color' besides"):
        take(inbox, out, engine)


def test_ingest__counts_one_content_once_in_one_call(inbox: Path, tmp_path: Path, engine: Engine) -> None:
    shutil.copy(inbox / "a.csv", inbox / "copy.csv")
    found = take([str(inbox), str(inbox / "a.csv")], tmp_path / "data.zarr", engine)
    assert numbers_of(found) == [*range(6), *range(10, 19)]


def test_ingest__of_a_name_with_another_content_warns(inbox: Path, tmp_path: Path, engine: Engine) -> None:
    out = tmp_path / "data.zarr"
    take(inbox, out, engine)
    put(inbox / "a.csv", range(40, 44))
    with pytest.warns(UserWarning, match=r"another content .* beside the new ones: a\.csv"):
        found = take(inbox, out, engine)
    assert numbers_of(found) == [*range(6), *range(10, 19), *range(40, 44)]


def test_ingest__takes_nothing_of_a_file_that_was_written_anew_within_a_tick_of_the_clock(
    inbox: Path, tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the file system does not tell, the content does."""
    out, read = tmp_path / "data.zarr", ingest_news._read_files

    def swapped(*arguments: Any) -> Any:
        put(inbox / "a.csv", range(20, 26), age=0.0)
        return read(*arguments)

    put(inbox / "a.csv", range(6), age=0.0)
    monkeypatch.setattr(ingest_news, "is_unchanged", lambda file: True)
    monkeypatch.setattr(ingest_news, "_read_files", swapped)
    with pytest.warns(UserWarning, match="a.csv"):
        found = take(inbox, out, engine)
    assert numbers_of(found) == [*range(10, 19)]
    monkeypatch.undo()
    assert numbers_of(take(inbox, out, engine)) == [*range(10, 19), *range(20, 26)]


def test_ingest__has_the_fingerprint_of_a_plain_one(inbox: Path, tmp_path: Path, engine: Engine) -> None:
    plain = ingest(str(inbox), tmp_path / "plain.zarr", engine=engine, **SCHEMA)
    found = take(inbox, tmp_path / "new.zarr", engine)
    assert (plain.key, plain.metadata.version, plain.segments) == (found.key, 1, ())
    assert found.metadata.version == 3
    assert plain.describe()["sources"] is None
    assert found.describe()["sources"] == 2


def test_ingest__takes_parquet_and_packed_and_large_files(
    tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest_sources, "CSV_PARTITION_BYTES", 300)
    inbox = tmp_path / "inbox"
    put(inbox / "a.csv", range(12))
    put(inbox / "b.csv", range(12, 20))
    put(inbox / "c.csv", range(20, 100))  # of several partitions
    (inbox / "d.csv").write_text("y,x,colour\nyes,100,blue\n")  # another order of columns
    frame = pd.DataFrame({"x": [102.0, 103.0], "colour": ["blue", "red"], "y": ["no", "yes"]})
    frame.to_parquet(inbox / "e10.parquet")
    frame.assign(x=[104.0, 105.0], y=["yes", "no"], colour=["blue", "red"])[["x", "colour", "y"]].to_parquet(
        inbox / "e9.parquet"
    )
    frame.assign(x=[108.0, 109.0], y=["no", "yes"]).to_csv(inbox / "f.csv.gz", index=False)
    (inbox / "g.csv").write_text("x,colour,y\n")  # without a row
    found = take(inbox, tmp_path / "data.zarr", engine)
    assert numbers_of(found) == [*range(101), 104, 105, 102, 103, 108, 109]
    assert [(segment.name, segment.rows) for segment in found.segments] == [
        *(("a.csv", 12), ("b.csv", 8), ("c.csv", 80), ("d.csv", 1)),
        *(("e9.parquet", 2), ("e10.parquet", 2), ("f.csv.gz", 2), ("g.csv", 0)),
    ]


def test_ingest__of_files_without_rows(inbox: Path, tmp_path: Path, engine: Engine) -> None:
    out = tmp_path / "data.zarr"
    first = take(inbox, out, engine)
    (inbox / "empty.csv").write_text("x,colour,y\n")
    second = take(inbox, out, engine)
    assert second.key == first.key
    assert [segment.rows for segment in second.segments] == [6, 9, 0]
    before = (out / "zarr.json").read_bytes()
    take(inbox, out, engine)
    assert (out / "zarr.json").read_bytes() == before


def test_ingest__of_nothing(tmp_path: Path, engine: Engine) -> None:
    (tmp_path / "inbox").mkdir()
    with refused("nothing-yet", tmp_path / "inbox", tmp_path / "data.zarr"):
        take(tmp_path / "inbox", tmp_path / "data.zarr", engine)
    put(tmp_path / "inbox" / "young.csv", range(4), age=5.0)
    with refused("nothing-yet", tmp_path / "inbox"):
        take(tmp_path / "inbox", tmp_path / "data.zarr", engine, settle=60)
    assert len(numbers_of(take(tmp_path / "inbox", tmp_path / "data.zarr", engine))) == 4


def test_ingest__does_not_wait_for_files_that_were_only_touched(inbox: Path, tmp_path: Path, engine: Engine) -> None:
    out = tmp_path / "data.zarr"
    take(inbox, out, engine)
    names = sorted(path.name for path in inbox.iterdir())
    for name in names:
        os.utime(inbox / name)
    put(inbox / "young.csv", range(4), age=0.0)
    assert [os.path.basename(path) for path in find_waiting(inbox, out)] == ["young.csv"]
    put(inbox / names[0], range(50, 57), age=0.0)
    assert {os.path.basename(path) for path in find_waiting(inbox, out)} == {names[0], "young.csv"}


@pytest.mark.parametrize(
    ("more", "code", "facts"),
    [
        ({"overwrite": True}, "settings-conflict", ("new", "overwrite")),
        ({"settle": -1.0}, "bad-setting", ("settle", "-1.0")),
        ({"settle": float("nan")}, "bad-setting", ("settle", "nan")),
        ({"new": False, "settle": 5.0}, "settings-conflict", ("`new`",)),
        ({"new": False, "unless_in": "data.zarr", "append": True}, "settings-conflict", ("`new`", "`append`")),
        ({"new": False, "unless_in": "{out}"}, "places-overlap", ("`new`",)),
        ({"feature_names": ["x"]}, "settings-conflict", ("Feature names",)),
        (
            {"categorical": ["colour"], "ordinal": {"colour": ["red", "blue"]}},
            "settings-conflict",
            ("colour", "categorical", "ordinal"),
        ),
    ],
)
def test_ingest__refuses_settings_that_contradict(
    inbox: Path, tmp_path: Path, engine: Engine, more: dict[str, Any], code: Code, facts: tuple[str, ...]
) -> None:
    out = tmp_path / "data.zarr"
    more = {name: str(out) if value == "{out}" else value for name, value in more.items()}
    with refused(code, *facts):
        take(inbox, out, engine, **more)
    assert not out.exists()


def test_ingest__refuses_what_no_digest_tells(inbox: Path, tmp_path: Path, engine: Engine) -> None:
    frame = pd.DataFrame({"x": [1.0, 2.0], "y": ["a", "b"]})
    with refused("unsupported", "unless_in"):
        ingest([frame], tmp_path / "data.zarr", target="y", new=True, engine=engine)
    np.savez(tmp_path / "rows.npz", X=np.ones((4, 2)), y=np.arange(4) % 2)
    with refused("unsupported", tmp_path / "rows.npz", "`new`"):
        take([str(tmp_path / "rows.npz")], tmp_path / "data.zarr", engine)
    (tmp_path / "arrays.zarr").mkdir()
    with refused("wrong-kind", tmp_path / "arrays.zarr", "`new`"):
        take([str(tmp_path / "arrays.zarr")], tmp_path / "data.zarr", engine)
    with refused("not-found", inbox / "absent.csv", kind=StorageError):
        take([str(inbox / "absent.csv")], tmp_path / "data.zarr", engine)


@pytest.mark.parametrize(
    ("more", "code", "facts"),
    [
        ({"target": "x"}, "columns-differ", ("target", "'y'", "'x'")),
        ({"categorical": ["x"]}, "columns-differ", ("'x'", "categorical")),
        ({"categorical": [], "ordinal": {"colour": ["blue", "red"]}}, "columns-differ", ("colour", "ordinal")),
        ({"categorical": ["absent"]}, "columns-differ", ("absent",)),
    ],
)
def test_ingest__refuses_another_schema(
    inbox: Path, tmp_path: Path, engine: Engine, more: dict[str, Any], code: Code, facts: tuple[str, ...]
) -> None:
    out = tmp_path / "data.zarr"
    take(inbox, out, engine)
    put(inbox / "c.csv", [50, 51])
    with refused(code, *facts):
        take(inbox, out, engine, **more)
    assert len(Dataset.open(out).segments) == 2


def test_ingest__refuses_categories_not_seen_before(inbox: Path, tmp_path: Path, engine: Engine) -> None:
    out = tmp_path / "data.zarr"
    take(inbox, out, engine)
    (inbox / "c.csv").write_text("x,colour,y\n50,green,yes\n")
    with refused("bad-value", "colour", "green"):
        take(inbox, out, engine)
    assert Dataset.open(out).n_rows == 15


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("x,colour,y\n1,red,yes\n,blue,no\n", "bad-value", "Column 'x' has a missing or infinite value in row 1 of {}"),
        ("x,colour,y\n1,red,yes\n2,blue,perhaps\n", "bad-value", "was not there at ingest, in row 1 of {}"),
        ("x,y\n1,yes\n", "columns-differ", "{} has other columns than expected: it lacks 'colour'."),
    ],
)
def test_ingest__names_the_file_that_cannot_be_used_if_it_is_the_only_new_one(
    text: str, code: Code, said: str, inbox: Path, tmp_path: Path, engine: Engine
) -> None:
    put(inbox / "1.csv", range(40))
    ingest(inbox, tmp_path / "o.zarr", new=True, engine=engine, **SCHEMA)
    (inbox / "2.csv").write_text(text)
    with refused(code, said.format(inbox / "2.csv")):
        ingest(inbox, tmp_path / "o.zarr", new=True, unseen="zero", missing="fill", engine=engine)


def test_ingest__says_how_a_dataset_takes_missing_values_that_had_none(
    inbox: Path, tmp_path: Path, engine: Engine
) -> None:
    put(inbox / "1.csv", range(40))
    ingest(inbox, tmp_path / "o.zarr", new=True, engine=engine, **SCHEMA)
    (inbox / "2.csv").write_text("x,colour,y\n1,red,yes\n,blue,no\n")
    with pytest.raises(InputError) as caught:
        ingest(inbox, tmp_path / "o.zarr", new=True, missing="fill", engine=engine)
    assert "missing='fill' where the dataset is made (anew with overwrite=True if" in caught.value.remedy
    assert (
        ingest(inbox, tmp_path / "o.zarr", missing="fill", overwrite=True, engine=engine, **SCHEMA).metadata.n_rows
        == 57
    )


def test_ingest__into_another_dataset_unless_it_is_there(inbox: Path, tmp_path: Path, engine: Engine) -> None:
    data, fresh = tmp_path / "data.zarr", tmp_path / "new.zarr"
    first = take(inbox, fresh, engine, new=False, unless_in=data)
    assert len(numbers_of(first)) == 15
    assert take([str(fresh)], data, engine).key == first.key
    # Nothing new: it stays.
    assert take(inbox, fresh, engine, new=False, unless_in=data).key == first.key
    # A day without blue and without "no" is encoded like what it is compared with.
    put(inbox / "c.csv", [23, 25])
    with refused("exists", "overwrite=True", fresh, kind=OutputExistsError):
        take(inbox, fresh, engine, new=False, unless_in=data)
    second = take(inbox, fresh, engine, new=False, unless_in=data, overwrite=True)
    assert numbers_of(second) == [23, 25]
    for _ in range(2):
        grown = take([str(fresh)], data, engine)
        assert numbers_of(grown) == [*range(6), *range(10, 19), 23, 25]
    assert [segment.name for segment in grown.segments] == ["a.csv", "b.csv", "c.csv"]


def test_ingest__of_a_dataset_that_grows(inbox: Path, tmp_path: Path, engine: Engine) -> None:
    source, out = tmp_path / "source.zarr", tmp_path / "data.zarr"
    take(inbox, source, engine)
    take([str(source)], out, engine)
    ingest(put(tmp_path / "hand.csv", [60, 61]), source, append=True, engine=engine)
    put(inbox / "c.csv", [70])
    take(inbox, source, engine)
    assert [segment.name for segment in Dataset.open(source).segments] == ["a.csv", "b.csv", "", "c.csv"]
    for _ in range(2):
        found = take([str(source), str(inbox)], out, engine)
        assert numbers_of(found) == [*range(6), *range(10, 19), 60, 61, 70]
    assert found.segments == Dataset.open(source).segments


def test_ingest__of_datasets_that_do_not_say_where_their_rows_are_from(
    inbox: Path, tmp_path: Path, engine: Engine
) -> None:
    plain, out = tmp_path / "plain.zarr", tmp_path / "data.zarr"
    ingest(str(inbox / "a.csv"), plain, engine=engine, **SCHEMA)
    for _ in range(2):
        assert numbers_of(take([str(plain)], out, engine)) == [*range(6)]
    assert Dataset.open(out).segments == (Segment("plain.zarr", Dataset.open(plain).key, 6),)
    assert take([str(out)], plain, engine).metadata.version == 1  # its rows are there
    with pytest.warns(UserWarning, match="does not say from which files"):
        found = take([str(inbox / "b.csv")], plain, engine)
    assert [segment.name for segment in found.segments] == ["plain.zarr", "b.csv"]
    assert numbers_of(take([str(plain)], out, engine)) == [*range(6), *range(10, 19)]


def test_ingest__of_datasets_encoded_otherwise(inbox: Path, tmp_path: Path, engine: Engine) -> None:
    ingest(str(inbox), tmp_path / "other.zarr", target="y", drop=["colour"], engine=engine)
    take(inbox, tmp_path / "data.zarr", engine)
    with refused("columns-differ"):
        take([str(tmp_path / "other.zarr")], tmp_path / "data.zarr", engine)


def test_ingest__leaves_a_file_that_changes_while_it_is_read(
    inbox: Path, tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, tables = tmp_path / "data.zarr", ingest_sources.tables_by_file
    changed: list[str] = []

    def changing(*arguments: Any) -> Any:
        found = tables(*arguments)
        if not changed:
            changed.append(str(put(inbox / "a.csv", [99], age=0.0)))
        return found

    monkeypatch.setattr(ingest_news, "tables_by_file", changing)
    with pytest.warns(UserWarning, match=r"left for the next time: .*a\.csv"):
        found = take(inbox, out, engine)
    assert numbers_of(found) == [*range(10, 19)]
    assert numbers_of(take(inbox, out, engine)) == [*range(10, 19), 99]


def test_ingest__of_a_damaged_file_names_it_and_takes_nothing(inbox: Path, tmp_path: Path, engine: Engine) -> None:
    (inbox / "c.csv").write_text("")
    with refused("unreadable", "header line", tmp_path / "inbox" / "c.csv"):
        take(inbox, tmp_path / "data.zarr", engine)
    assert not (tmp_path / "data.zarr").exists()


def test_ingest__to_a_taken_place_is_refused_before_anything_is_read(
    inbox: Path, tmp_path: Path, engine: Engine
) -> None:
    data, fresh = tmp_path / "data.zarr", tmp_path / "new.zarr"
    take(inbox, fresh, engine, new=False, unless_in=data)
    (inbox / "c.csv").write_text("")  # which is an error of its own, once it is read
    with refused("exists", "overwrite=True", fresh, kind=OutputExistsError):
        take(inbox, fresh, engine, new=False, unless_in=data)


@pytest.mark.parametrize("late", [False, True])
def test_ingest__of_what_is_new_never_asks_to_overwrite_what_another_made(
    late: bool, inbox: Path, tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "d.zarr"
    place = "write_dataset" if late else "find_news"
    usual = getattr(ingest_news, place)

    def with_another(*values: Any, **named: Any) -> Any:
        monkeypatch.setattr(ingest_news, place, usual)
        found = None if late else usual(*values, **named)
        take(inbox, out, engine)
        return usual(*values, **named) if late else found

    monkeypatch.setattr(ingest_news, place, with_another)
    with refused("written-by-another", out, "Repeat", kind=StorageError):
        take(inbox, out, engine)
    assert numbers_of(take(inbox, out, engine)) == numbers_of(take(inbox, tmp_path / "other.zarr", engine))


def test_write_dataset__refuses_segments_that_came_to_be_there_meanwhile(
    inbox: Path, tmp_path: Path, engine: Engine
) -> None:
    found = take(inbox, tmp_path / "data.zarr", engine)
    rows = array_source({"features": np.ones((6, 3), np.float32), "target": np.zeros(6, np.int32)})
    with refused("written-by-another", found.path, kind=StorageError):
        write_dataset(
            rows,
            found.path,
            classes=found.classes,
            columns=found.columns,
            target_name="y",
            append=True,
            segments=found.segments[:1],
            engine=engine,
        )
    assert Dataset.open(found.path).segments == found.segments


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("arrive"), st.integers(0, 5), st.integers(0, 9)),
        st.tuples(st.just("rename"), st.integers(0, 5), st.integers(0, 5)),
        st.tuples(st.just("remove"), st.integers(0, 5), st.just(0)),
        st.tuples(st.just("hand"), st.just(0), st.integers(0, 9)),
        st.tuples(st.just("take"), st.just(0), st.just(0)),
        st.tuples(st.just("pass on"), st.just(0), st.just(0)),
    ),
    max_size=9,
)


@pytest.mark.filterwarnings("ignore:Files have another content")
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(events=EVENTS)
def test_ingest__takes_every_content_once_whatever_happens(
    events: list[tuple[str, int, int]], tmp_path_factory: pytest.TempPathFactory, engine: Engine
) -> None:
    """Content `k` is the rows 100 k ... 100 k + k; the oracle is a list of rows and a set of contents."""
    folder = tmp_path_factory.mktemp("run")
    inbox, out, copy = folder / "inbox", folder / "data.zarr", folder / "copy.zarr"
    inbox.mkdir()
    present: dict[str, int] = {}
    taken: list[float] = []
    known: set[int] = set()
    passed: list[float] = []
    for what, first, second in [("arrive", 0, 3), ("take", 0, 0), *events, ("take", 0, 0), ("pass on", 0, 0)]:
        rows = [100.0 * second + number for number in range(second + 1)]
        if what == "arrive":
            put(inbox / f"{first}.csv", rows)
            present[f"{first}.csv"] = second
        elif what in ("rename", "remove") and present:
            name = sorted(present)[first % len(present)]
            content = present.pop(name)
            if what == "rename":
                os.replace(inbox / name, inbox / f"{second}.csv")
                present[f"{second}.csv"] = content
            else:
                (inbox / name).unlink()
        elif what == "hand":
            ingest(put(folder / "hand.csv", rows), out, append=True, engine=engine)
            taken += rows
        elif what == "take":
            for name in sorted(present):
                if present[name] not in known:
                    known.add(present[name])
                    taken += [100.0 * present[name] + number for number in range(present[name] + 1)]
            assert numbers_of(take(inbox, out, engine)) == taken
        elif what == "pass on":
            passed = list(taken)
            assert numbers_of(take([str(out)], copy, engine)) == passed
    stored = stored_segments(out)
    assert stored is not None
    assert stored == Dataset.open(out).segments == Dataset.open(copy).segments


def damage(path: Path, change: Callable[[str], str]) -> None:
    (found,) = path.glob("segments-*")
    text = (found / "zarr.json").read_text()
    (found / "zarr.json").write_text(change(text))


@pytest.mark.parametrize(
    "change",
    [
        lambda _: "",
        lambda _: "[" * 1000,
        lambda text: text.replace("a.csv", "x.csv"),
        lambda text: text.replace('"rows": [6, 9]', '"rows": [7, 8]'),
        lambda text: text.replace('"rows": [6, 9]', '"rows": [true, 9]'),
        lambda text: text.replace('"rows": [6, 9]', '"rows": [6]'),
        lambda text: text.replace('"names": ["a.csv", "b.csv"]', '"names": {"a": 1, "b": 2}'),
        lambda text: text.replace("protodask-segments", "something"),
    ],
)
def test_segments__that_are_damaged(inbox: Path, tmp_path: Path, engine: Engine, change: Callable[[str], str]) -> None:
    out = tmp_path / "data.zarr"
    found = take(inbox, out, engine)
    damage(out, change)
    with refused("damaged", out, kind=FormatError):
        _ = found.segments
    with refused("damaged", out, kind=FormatError):
        stored_segments(out)
    with refused("damaged", out, kind=FormatError):
        take(inbox, out, engine)
    assert numbers_of(Dataset.open(out)) == [*range(6), *range(10, 19)]


@pytest.mark.parametrize(("limit", "value"), [("MAX_SEGMENTS", 2), ("MAX_JSON_BYTES", 300), ("MAX_JSON_ITEMS", 16)])
def test_ingest__refuses_more_sources_than_can_be_read_again(
    limit: str, value: int, inbox: Path, tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = take(inbox, tmp_path / "d", engine)
    put(inbox / "with, commas, and more.csv", range(3, 8))
    monkeypatch.setattr(segments_module, limit, value)
    monkeypatch.setattr(writer_module, "_write_blocks", None)  # before the rows are written
    for out in (tmp_path / "d", tmp_path / "other"):
        with refused("over-limit", 3):
            take(inbox, out, engine)
    monkeypatch.undo()
    assert Dataset.open(tmp_path / "d").key == before.key
    assert take(inbox, tmp_path / "d", engine).n_rows == 20


@pytest.mark.parametrize("limit", ["MAX_JSON_ITEMS", "MAX_JSON_BYTES"])
def test_write_segments__writes_what_can_be_read_again(
    limit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (bounded_module, segments_module):
        monkeypatch.setattr(module, limit, 5000)
    segments: list[Segment] = []
    with refused("over-limit"):
        for _ in range(1000):
            segments.append(Segment("a, [b] {c}", f"{len(segments):032x}", 1))
            digest = write_segments(str(tmp_path), segments)
    assert len(segments) > 50
    assert read_segments(str(tmp_path), digest, "d") == tuple(segments[:-1])


def test_segments__that_are_gone_or_a_link(inbox: Path, tmp_path: Path, engine: Engine) -> None:
    out = tmp_path / "data.zarr"
    take(inbox, out, engine)
    (found,) = out.glob("segments-*")
    elsewhere = tmp_path / "elsewhere"
    os.rename(found, elsewhere)
    with refused("damaged", out, kind=FormatError):
        stored_segments(out)
    found.symlink_to(elsewhere)
    with refused("wrong-kind", found, kind=FormatError):
        stored_segments(out)


def test_stored_segments__of_other_places(tmp_path: Path) -> None:
    assert stored_segments(tmp_path / "absent.zarr") is None
    with refused("wrong-kind", tmp_path, kind=FormatError):
        stored_segments(tmp_path)


@pytest.mark.parametrize("rows", [5_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_segments__of_one_row_each(rows: int, tmp_path: Path) -> None:
    segments = [Segment(f"{number // 100}/{number}.csv", f"{number:032x}", 1) for number in range(rows)]
    written = write_dataset(
        array_source({"features": np.ones((rows, 1), np.float32), "target": np.arange(rows, dtype=np.int32) % 2}),
        tmp_path / "data.zarr",
        classes=["a", "b"],
        columns=[Column("x")],
        segments=segments,
    )
    assert written.segments == tuple(segments)
    stored = stored_segments(tmp_path / "data.zarr")
    assert stored is not None
    assert stored == tuple(segments)
