"""What counts is on the disk before it counts: a power failure at any moment leaves the old state or the new one."""

import os
from pathlib import Path

import pytest
from support.datasets import Make, Write
from support.disk import files_below, watch_disk

from protodask.data.format.segments import Segment, write_segments
from protodask.pipeline.each_file.ledger import LEDGER, Repeated, Scored, publish, read_ledger


def flushed_below(events: list[tuple[str, str]], folder: str) -> set[str]:
    return {os.path.relpath(path, folder) for what, path in events if what == "flush" and path.startswith(folder)}


def test_write__flushes_all_of_a_dataset_before_it_has_its_name(
    make_arrays: Make, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "d.zarr"
    events = watch_disk(monkeypatch)
    write(make_arrays(50), place)
    named = events.index(("name", str(place)))
    (aside,) = {
        tmp_path / Path(path).relative_to(tmp_path).parts[0] for _, path in events[:named] if ".d.zarr.partial-" in path
    }
    assert files_below(place) <= flushed_below(events[:named], str(aside))
    assert ("flush", str(tmp_path)) in events[named:], "the name itself"


def test_append__flushes_the_rows_before_they_count(
    make_arrays: Make, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "d.zarr"
    write(make_arrays(50), place)
    before = files_below(place)
    events = watch_disk(monkeypatch)
    write(make_arrays(40, seed=1), place, append=True)
    counts = max(number for number, event in enumerate(events) if event == ("name", str(place / "zarr.json")))
    added = files_below(place) - before
    assert added
    assert added <= flushed_below(events[:counts], str(place))
    folders = {str(Path(place, name).parent) for name in added}
    assert {("flush", folder) for folder in (*folders, str(place))} <= set(events[:counts])
    assert ("flush", str(place)) in events[counts:]


def test_write_segments__is_on_the_disk_before_anything_refers_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = watch_disk(monkeypatch)
    digest = write_segments(str(tmp_path), [Segment("a.csv", "0" * 32, 3)])
    folder = tmp_path / f"segments-{digest}"
    assert [path for what, path in events] == [str(folder / "zarr.json"), str(folder), str(tmp_path)]


def test_publish__notes_a_part_that_is_on_the_disk_and_names_it_when_the_note_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = f"a-{'0' * 32}.parquet"
    entry = Scored("a.csv", "0" * 32, 9, 3, part, "0" * 8, "m", 1, False, "2026-01-01T00:00:00+00:00", "1")
    (tmp_path / entry.aside).write_bytes(b"rows")
    events = watch_disk(monkeypatch)
    publish(str(tmp_path), [entry, Repeated("b.csv", entry.digest, "a.csv", entry.time)])
    folder, note = ("flush", str(tmp_path)), ("flush", str(tmp_path / LEDGER))
    named = events.index(("name", str(tmp_path / part)))
    assert events[0] == folder, "the name that the part has so far"
    assert note in events[:named]
    assert folder in events[events.index(note) : named], "the name of the ledger, which is new"
    assert events[-1] == folder
    assert set(read_ledger(str(tmp_path)).scored) == {entry.digest}
