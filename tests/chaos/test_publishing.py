"""Writers that are killed at any moment: readers see the old state or the new one, and a repetition cleans up."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from chaos._readers import State, reader, state_of
from support.commands import run_command
from support.kills import PAUSE, Ended, Strike, run_command_process, seen_in, small_blocks, spread, what_kills_leave

from protodask.data.places.local_files import lock_place
from protodask.data.tables.ingest import ingest
from protodask.prototypes import FitConfig, fit
from protodask.prototypes.persistence import save_model

MOST_ROUNDS = 50
"""Commands after which there must have been enough kills."""


@dataclass(frozen=True)
class Command:
    """A command line that turns one state of a place into another; `{place}` stands for the place."""

    arguments: tuple[str, ...]
    again: Literal["same", "refused", "more"]
    """What it does when it has succeeded before: the same, nothing, or something more."""

    def of(self, place: Path) -> list[str]:
        return [argument.format(place=place) for argument in self.arguments]

    def run_here(self, place: Path) -> int:
        with small_blocks():
            return run_command(*self.of(place)).exit_code

    def run(self, place: Path, strike: Strike | None = None, pause: float = 0.0) -> Ended:
        return run_command_process(self.of(place), strike, pause)


def check_clean(place: Path) -> None:
    assert os.listdir(place.parent) == [place.name]
    assert not list(place.rglob("*.partial"))


def check_what_kills_leave(kind: str, commands: list[Command], folder: Path, repeated: int) -> None:
    """What a kill before any operation of the commands leaves is the old state or the new one; some are repeated."""
    place = folder / "place" / f"out.{kind}"
    place.parent.mkdir()
    before: State | None = None
    for number, command in enumerate(commands):

        def work(command: Command = command) -> None:
            assert command.run_here(place) == 0

        copies = what_kills_leave(work, place.parent, folder / f"copies-{number}")
        wanted = state_of(kind, place)
        assert wanted is not None
        assert wanted != before
        check_clean(place)
        found = seen_in(copies, lambda copy: state_of(kind, copy / place.name))
        assert set(found.values()) == {before, wanted}, "kills come before and after it counts, and see nothing else"
        for copy in spread(copies, repeated):
            left = copy / place.name
            done = found[copy] == wanted and command.again != "same"
            if not done or command.again == "refused":
                assert command.run_here(left) == int(done)
                check_clean(left)
            assert state_of(kind, left) == wanted
        before = wanted


def check_kills(kind: str, commands: list[Command], folder: Path, kills: int, each: int, seed: int) -> None:
    """Carry out the commands, each killed up to `each` times before it may end, and those after the first over and
    over until there were `kills` of them.
    """
    random_moment = random.Random(seed)
    (folder / "calm").mkdir()
    (folder / "stormy").mkdir()
    calm, stormy = folder / "calm" / f"out.{kind}", folder / "stormy" / f"out.{kind}"
    in_all = in_mid_write = 0
    for rounds, command in enumerate(itertools.chain(commands[:1], itertools.cycle(commands[1:]))):
        if rounds >= len(commands) and in_all >= kills:
            break
        assert rounds < MOST_ROUNDS
        before = state_of(kind, calm)
        undisturbed = command.run(calm)
        assert undisturbed.code == 0
        wanted = state_of(kind, calm)
        assert wanted is not None
        assert wanted != before
        with reader(kind, stormy, {state for state in (before, wanted) if state is not None}):
            struck, found = 0, before
            while struck < each:
                operation = random_moment.randrange(undisturbed.operations)
                ended = command.run(stormy, Strike(operation, random_moment.uniform(0, 2 * PAUSE)), PAUSE)
                found = state_of(kind, stormy)
                assert found in (before, wanted)
                # Near its end it may be done before the signal comes, and done twice it is refused.
                assert ended.killed or found == wanted
                struck += ended.killed
                in_mid_write += os.path.exists(lock_place(str(stormy)))
                if found == wanted and command.again != "same":
                    break
            done = found == wanted and command.again != "same"
            if not done or command.again == "refused":
                assert command.run(stormy).code == int(done)
                check_clean(stormy)
        assert state_of(kind, stormy) == wanted
        in_all += struck
    assert in_mid_write >= kills // 2, "too few kills struck in the middle of writing"


@pytest.fixture
def tables(tmp_path: Path) -> Callable[[int, int], str]:
    """A file of so many rows in two columns and two classes."""

    def make(rows: int, seed: int) -> str:
        generator = np.random.default_rng(seed)
        path = tmp_path / f"rows-{seed}.npz"
        np.savez(path, features=generator.normal(size=(rows, 3)), target=generator.integers(2, size=rows))
        return str(path)

    return make


def dataset_commands(tables: Callable[[int, int], str]) -> list[Command]:
    out = ("--target", "target", "--out", "{place}")
    first, second, more = tables(300, 0), tables(450, 1), tables(250, 2)
    return [
        Command(("ingest", first, *out), "refused"),
        Command(("ingest", more, *out, "--append"), "more"),
        Command(("ingest", second, *out, "--overwrite"), "same"),
    ]


def prediction_commands(tables: Callable[[int, int], str], folder: Path) -> list[Command]:
    data = ingest(tables(300, 0), folder / "data.zarr", target="target", block_rows=32)
    models = [str(folder / f"model-{seed}.zarr") for seed in range(2)]
    for seed, model in enumerate(models):
        save_model(fit(data, FitConfig.of("source", n_candidates=20, tolerance=1e-2, seed=seed)).model, model)
    out = (data.path, "--out", "{place}")
    return [
        Command(("predict", models[0], *out), "refused"),
        Command(("predict", models[1], *out, "--overwrite"), "same"),
        Command(("predict", models[0], *out, "--overwrite"), "same"),
    ]


@pytest.mark.slow
def test_ingest__killed_at_any_operation(tables: Callable[[int, int], str], tmp_path: Path) -> None:
    check_what_kills_leave("dataset", dataset_commands(tables), tmp_path, repeated=6)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["zarr", "parquet"])
def test_predict__killed_at_any_operation(kind: str, tables: Callable[[int, int], str], tmp_path: Path) -> None:
    check_what_kills_leave(kind, prediction_commands(tables, tmp_path)[:2], tmp_path, repeated=6)


@pytest.mark.slow
def test_ingest__whose_process_is_killed_while_another_one_reads(
    tables: Callable[[int, int], str], tmp_path: Path
) -> None:
    first, *_, command = dataset_commands(tables)
    (tmp_path / "place").mkdir()
    place = tmp_path / "place" / "out.zarr"
    assert first.run_here(place) == 0
    before = state_of("dataset", place)
    assert command.run_here(tmp_path / "other.zarr") == 0
    wanted = state_of("dataset", tmp_path / "other.zarr")
    assert before is not None
    assert wanted is not None
    with reader("dataset", place, {before, wanted}):
        assert command.run(place, Strike(20), PAUSE).killed
        assert state_of("dataset", place) == before
        assert os.path.exists(lock_place(str(place)))
        assert command.run(place).code == 0
        check_clean(place)
    assert state_of("dataset", place) == wanted


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_ingest__killed_twenty_times(tables: Callable[[int, int], str], tmp_path: Path) -> None:
    check_kills("dataset", dataset_commands(tables), tmp_path, kills=20, each=5, seed=3)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", ["zarr", "parquet"])
def test_predict__killed_ten_times(kind: str, tables: Callable[[int, int], str], tmp_path: Path) -> None:
    check_kills(kind, prediction_commands(tables, tmp_path), tmp_path, kills=10, each=5, seed=4)
