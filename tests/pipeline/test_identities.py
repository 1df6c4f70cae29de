"""What lies at a place, told by a short text."""

import os
from pathlib import Path
from uuid import uuid4

import fsspec
import numpy as np
import pytest
import zarr

from protodask.data import sample_data
from protodask.pipeline.state import identities
from protodask.pipeline.state.identities import identity


def test_identity__nothing(tmp_path: Path) -> None:
    assert identity(str(tmp_path / "none")) is None
    assert identity(str(tmp_path / "*.csv")) is None
    assert identity(str(tmp_path / "models@champion")) is None


def test_identity__a_small_file_is_told_by_its_content(tmp_path: Path) -> None:
    place = tmp_path / "costs.yaml"
    place.write_text("a: 1\n")
    before = identity(str(place))
    os.utime(place, (1, 1))
    assert identity(str(place)) == before
    place.write_text("a: 2\n")
    assert identity(str(place)) != before


def test_identity__a_large_file_is_told_by_size_and_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identities, "READ_BYTES", 3)
    place = tmp_path / "large.bin"
    found = []
    for size, time in ((4, 10**18), (5, 10**18), (5, 10**18 + 10**6)):
        place.write_bytes(bytes(size))
        os.utime(place, ns=(time, time))
        found.append(identity(str(place)))
    assert len(set(found)) == 3
    assert identity(str(place)) == found[-1]


def test_identity__a_folder_of_others_by_where_its_files_are(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / "d" / name).mkdir(parents=True)
    (tmp_path / "d" / "a" / "notes.md").write_text("x")
    before = identity(str(tmp_path / "d"))
    (tmp_path / "d" / "a" / "notes.md").rename(tmp_path / "d" / "b" / "notes.md")
    assert identity(str(tmp_path / "d")) != before is not None


def test_identity__a_folder_of_tables_by_names_and_times(tmp_path: Path) -> None:
    table = tmp_path / "a.csv"
    table.write_text("x\n1\n")
    found = [identity(str(tmp_path))]
    (tmp_path / "notes.md").write_text("no table")
    assert identity(str(tmp_path)) == found[0]
    os.utime(table, (1, 1))
    found.append(identity(str(tmp_path)))
    table.rename(tmp_path / "b.csv")
    found.append(identity(str(tmp_path)))
    assert len(set(found)) == 3


@pytest.mark.parametrize("place", [".", "*.csv"])
def test_identity__small_tables_by_their_content_too(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for most in (100, 5):
        monkeypatch.setattr(identities, "READ_BYTES", most)
        for content in ("x\n1\n", "x\n2\n"):
            for name in ("a.csv", "b.csv"):
                (tmp_path / name).write_text(content)
                os.utime(tmp_path / name, (1, 1))
            found.append(identity(str(tmp_path / place)))
    assert found[0] != found[1]
    assert found[2] == found[3], "together they are too large to be read each time"


def test_identity__a_dataset_by_its_fingerprint(tmp_path: Path) -> None:
    dataset = sample_data("checker", 200, str(tmp_path / "one.zarr"))
    sample_data("checker", 200, str(tmp_path / "two.zarr"))
    sample_data("checker", 200, str(tmp_path / "three.zarr"), seed=1)
    one, two, three = (identity(str(tmp_path / f"{name}.zarr")) for name in ("one", "two", "three"))
    assert one == two == f"dataset {dataset.key}"
    assert three != one


@pytest.mark.parametrize("title", [None, "rows of others"])
def test_identity__arrays_of_others_by_what_changes_in_them(title: str | None, tmp_path: Path) -> None:
    place = tmp_path / "arrays.zarr"
    group = zarr.open_group(place, mode="w", attributes=None if title is None else {"title": title})
    features = group.create_array("features", data=np.zeros((10, 2)))
    before = identity(str(place))
    assert identity(str(place)) == before is not None
    features[:] = np.arange(20).reshape(10, 2)
    assert identity(str(place)) != before


def test_identity__objects_of_others_at_a_url() -> None:
    place = f"memory://{uuid4().hex}"
    assert identity(f"{place}/x.npy") is None
    with fsspec.open(f"{place}/x.npy", "wb") as file:
        file.write(b"12345")
    before, above = identity(f"{place}/x.npy"), identity(place)
    assert identity(f"{place}/x.npy") == before is not None
    with fsspec.open(f"{place}/x.npy", "wb") as file:
        file.write(b"54321")
    assert identity(f"{place}/x.npy") != before
    assert identity(place) != above is not None
