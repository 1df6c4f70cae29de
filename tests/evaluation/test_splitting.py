"""Dividing a dataset: every row in one part, groups whole, and each where it was when the dataset grows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from support.errors import refused

import protodask
from protodask.data import Column, Dataset, write_dataset
from protodask.data.arrays.keyed import keyed_draws, stream_key
from protodask.engine import Engine, array_source, thread_engine
from protodask.errors import OutputExistsError
from protodask.evaluation import splitting
from protodask.evaluation.splitting import Part, split


def write(path: Path, rows: int, engine: Engine, *, first: int = 0, groups: int = 0, **options: Any) -> Dataset:
    """Rows that are told apart by their only feature."""
    numbers = np.arange(first, first + rows)
    arrays: dict[str, Any] = {"features": numbers[:, None].astype(np.float64), "target": (numbers % 2).astype(np.int32)}
    if groups:
        arrays["group"] = (numbers * 7919) % groups
    return write_dataset(
        array_source(arrays),
        path,
        classes=("a", "b"),
        columns=(Column("x"),),
        dtype="float64",
        engine=engine,
        **({"block_rows": 64, **options} if not options.get("append") else options),
    )


def rows_of(dataset: Dataset) -> list[int]:
    return [int(value) for number in range(dataset.layout.n_blocks) for value in dataset.read(number)["features"][:, 0]]


def groups_of(dataset: Dataset) -> set[int]:
    return {int(value) for number in range(dataset.layout.n_blocks) for value in dataset.read(number)["group"]}


@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.integers(40, 300),
    more=st.integers(1, 200),
    share=st.floats(0.1, 0.9),
    seed=st.integers(0, 2**64 - 1),
    groups=st.sampled_from([0, 25, 1000]),
)
@example(rows=40, more=1, share=0.875, seed=69, groups=25)  # all groups would be held out
def test_split__leaves_rows_where_they_are_when_the_dataset_grows(
    rows: int, more: int, share: float, seed: int, groups: int, tmp_path_factory: pytest.TempPathFactory, engine: Engine
) -> None:
    folder = tmp_path_factory.mktemp("split")
    data = write(folder / "data.zarr", rows, engine, groups=groups)
    units = np.arange(rows) * 7919 % groups if groups else np.arange(rows)
    taken = np.count_nonzero(Part(share, seed, True, bool(groups)).of(units))
    if taken in (0, rows):
        with refused("too-few", rows, "all" if taken else "none"):
            split(data, folder / "t.zarr", folder / "h.zarr", share=share, seed=seed, engine=engine)
        return
    parts = []
    for name in ("before", "after"):
        found = split(data, folder / name / "t.zarr", folder / name / "h.zarr", share=share, seed=seed, engine=engine)
        training, held_out = map(rows_of, found)
        assert sorted(training + held_out) == list(range(data.n_rows))
        assert training == sorted(training)
        assert held_out == sorted(held_out)
        if groups:
            assert not groups_of(found[0]) & groups_of(found[1])
        parts.append((training, held_out))
        if name == "before":
            data = write(folder / "data.zarr", more, engine, first=rows, groups=groups, append=True)
    for before, after in zip(*parts, strict=True):
        assert after[: len(before)] == before


def test_part__is_the_draw_below_the_share() -> None:
    """Against the formula, row by row."""
    numbers = np.arange(5000)
    for by_group, stream in ((False, splitting._ROWS), (True, splitting._GROUPS)):
        draws = [int(keyed_draws(stream_key(3, stream), np.array([number]))[0]) / 2**64 for number in numbers.tolist()]
        expected = np.array(draws) < 0.3
        np.testing.assert_array_equal(Part(0.3, 3, True, by_group).of(numbers), expected)
        np.testing.assert_array_equal(Part(0.3, 3, False, by_group).of(numbers), ~expected)


@given(low=st.floats(0.01, 0.98), high=st.floats(0.02, 0.99), seed=st.integers(0, 2**64 - 1))
def test_part__of_a_larger_share_has_all_of_a_smaller_one(low: float, high: float, seed: int) -> None:
    low, high = sorted((low, high))
    numbers = np.arange(500)
    assert not (Part(low, seed, True, False).of(numbers) & ~Part(high, seed, True, False).of(numbers)).any()


def test_part__holds_out_about_the_share() -> None:
    found = np.count_nonzero(Part(0.2, 0, True, False).of(np.arange(100_000)))
    assert abs(found - 20_000) < 5 * np.sqrt(100_000 * 0.2 * 0.8)


def test_split__is_the_same_with_other_threads(tmp_path: Path, engine: Engine) -> None:
    data = write(tmp_path / "data.zarr", 600, engine, groups=100)
    keys = []
    for threads in (1, 2):
        with thread_engine(threads) as other:
            parts = split(data, tmp_path / f"t{threads}", tmp_path / f"h{threads}", engine=other)
        keys.append([part.key for part in parts])
    assert keys[0] == keys[1]


def test_split__again_leaves_what_is_there(tmp_path: Path, engine: Engine) -> None:
    data = write(tmp_path / "data.zarr", 500, engine)
    places = tmp_path / "t.zarr", tmp_path / "h.zarr"
    split(data, *places, engine=engine)
    before = [os.stat(place / "zarr.json").st_ino for place in places]
    for overwrite in (False, True):
        split(data, *places, engine=engine, overwrite=overwrite)
    assert [os.stat(place / "zarr.json").st_ino for place in places] == before
    with refused("exists", "overwrite=True", kind=OutputExistsError):
        split(data, *places, seed=1, engine=engine)
    data = write(tmp_path / "data.zarr", 50, engine, first=500, append=True)
    with refused("exists", "overwrite=True", kind=OutputExistsError):
        split(data, *places, engine=engine)
    assert [os.stat(place / "zarr.json").st_ino for place in places] == before
    training, held_out = split(data, *places, engine=engine, overwrite=True)
    assert training.n_rows + held_out.n_rows == 550


def test_split__does_not_take_a_part_that_was_added_to_for_one_that_is_done(tmp_path: Path, engine: Engine) -> None:
    data = write(tmp_path / "data.zarr", 500, engine)
    split(data, tmp_path / "t.zarr", tmp_path / "h.zarr", engine=engine)
    write(tmp_path / "h.zarr", 5, engine, first=900, append=True)
    with refused("exists", "overwrite=True", kind=OutputExistsError):
        split(data, tmp_path / "t.zarr", tmp_path / "h.zarr", engine=engine)
    _, held_out = split(data, tmp_path / "t.zarr", tmp_path / "h.zarr", engine=engine, overwrite=True)
    assert max(rows_of(held_out)) < 500


def test_split__takes_no_other_part_of_as_many_rows_for_the_one_that_is_asked_for(
    tmp_path: Path, engine: Engine
) -> None:
    data = write(tmp_path / "data.zarr", 60, engine)
    places = tmp_path / "t.zarr", tmp_path / "h.zarr"
    drawn = [np.flatnonzero(Part(0.2, seed, True, False).of(np.arange(60))).tolist() for seed in range(40)]
    other = next(seed for seed in range(1, 40) if len(drawn[seed]) == len(drawn[0]) and drawn[seed] != drawn[0])
    split(data, *places, engine=engine)
    with refused("exists", "overwrite=True", kind=OutputExistsError):
        split(data, *places, seed=other, engine=engine)
    assert rows_of(Dataset.open(places[1])) == drawn[0]
    training, held_out = split(data, *places, seed=other, engine=engine, overwrite=True)
    assert rows_of(held_out) == drawn[other]
    assert rows_of(training) == [row for row in range(60) if row not in drawn[other]]


@pytest.mark.slow
def test_split__killed_between_the_parts_is_completed(
    tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = write(tmp_path / "data.zarr", 500, engine)
    places = tmp_path / "t.zarr", tmp_path / "h.zarr"
    code = f"""
import os, signal
from protodask.evaluation import splitting
from protodask.data import Dataset
whole = splitting.write_chosen
def once(*values, **named):
    whole(*values, **named)
    os.kill(os.getpid(), signal.SIGKILL)
splitting.write_chosen = once
splitting.split(Dataset.open({str(data.path)!r}), {str(places[0])!r}, {str(places[1])!r})
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], check=False, timeout=120, env=environment)
    assert done.returncode == -9
    assert not places[0].exists()
    training, held_out = split(data, *places, engine=engine)
    assert sorted(rows_of(training) + rows_of(held_out)) == list(range(500))


def test_split__keeps_weights_and_groups_and_says_what_it_did(tmp_path: Path, engine: Engine) -> None:
    arrays = {
        "features": np.arange(400.0)[:, None],
        "target": np.arange(400, dtype=np.int32) % 2,
        "weight": np.linspace(1, 2, 400),
        "inclusion": np.full(400, 0.5),
        "group": np.arange(400) // 4,
    }
    data = write_dataset(
        array_source(arrays), tmp_path / "d", classes=("a", "b"), columns=(Column("x"),), dtype="float64", engine=engine
    )
    for part in protodask.split(data, tmp_path / "t", tmp_path / "h", engine=engine):
        block = part.read(0)
        rows = block["features"][:, 0].astype(int)
        for name in ("target", "weight", "inclusion", "group"):
            np.testing.assert_array_equal(block[name], arrays[name][rows])
        assert f"of 400 of the dataset {data.key}: by groups, share 0.2, seed 0" in part.notes[0]
        places = [tmp_path / f"{part.n_rows}-{name}" for name in ("t", "h")]
        for half in protodask.split(part, *places, share=0.5, seed=1, engine=engine):
            assert len(half.notes) == 2
            assert half.notes[0] == part.notes[0]
            assert f"the dataset {part.key}" in half.notes[1]


@pytest.mark.parametrize("share", [0, 1, -0.1, float("nan"), "0.2", True, None])
def test_split__refuses_what_is_no_share(tmp_path: Path, engine: Engine, share: Any) -> None:
    data = write(tmp_path / "data.zarr", 50, engine)
    with refused("bad-setting", "between 0 and 1", "share", repr(share)):
        split(data, tmp_path / "t", tmp_path / "h", share=share, engine=engine)


def test_split__refuses_empty_parts_and_places_that_meet(tmp_path: Path, engine: Engine) -> None:
    data = write(tmp_path / "data.zarr", 5, engine)
    with refused("too-few", 5, "none", "share", "seed", "row"):
        split(data, tmp_path / "t", tmp_path / "h", share=1e-9, engine=engine)
    with refused("too-few", 50, "none", "group"):
        split(write(tmp_path / "one", 50, engine, groups=1), tmp_path / "t", tmp_path / "h", engine=engine)
    for places in ((tmp_path / "t", tmp_path / "t"), (tmp_path / "t", tmp_path / "t" / "h")):
        with refused("places-overlap"):
            split(data, *places, engine=engine)
    with refused("places-overlap", tmp_path / "data.zarr" / "h", tmp_path / "data.zarr"):
        split(data, tmp_path / "t", tmp_path / "data.zarr" / "h", engine=engine)
    (tmp_path / "h").mkdir()
    (tmp_path / "h" / "mine").write_text("precious")
    with refused("wrong-kind", tmp_path / "h", kind=OutputExistsError):
        split(data, tmp_path / "t", tmp_path / "h", share=0.4, engine=engine, overwrite=True)
    assert not (tmp_path / "t").exists()
