"""Writers that are killed at any moment: readers see the old state or the new one, and a repetition cleans up."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from chaos.publishing_processes import PRELOADED, READERS, State, read_again_and_again, write_slowly

from protodask.data.ingest import ingest
from protodask.data.local_files import lock_place
from protodask.prototypes import FitConfig, fit
from protodask.prototypes.persistence import save_model

START = multiprocessing.get_context("forkserver")
START.set_forkserver_preload(PRELOADED)

PAUSE = 0.01
"""Seconds before each operation on a file: a writer takes a second or so, and readers come in between."""

MOST_ROUNDS = 50
"""Commands after which there must have been enough kills."""

END_SECONDS = 60.0
"""What takes longer hangs."""


@dataclass(frozen=True)
class Command:
    """A command line that turns one state of a place into another; `{place}` stands for the place."""

    arguments: tuple[str, ...]
    again: Literal["same", "refused", "more"]
    """What it does when it has succeeded before: the same, nothing, or something more."""

    def run(self, place: Path, pause: float, fatal: int | None = None, delay: float = 0.0) -> tuple[int, int]:
        """The exit code, and how many operations on files there were if it came to an end."""
        ours, theirs = START.Pipe()
        arguments = [argument.format(place=place) for argument in self.arguments]
        process = START.Process(target=write_slowly, args=(arguments, pause, fatal, delay, theirs))
        process.start()
        theirs.close()
        process.join(END_SECONDS)
        assert process.exitcode is not None, "the command hangs"
        try:
            return ours.recv() if process.exitcode == 0 else (process.exitcode, 0)
        finally:
            process.close()
            ours.close()


@contextmanager
def reader(kind: str, place: Path, allowed: set[State]) -> Iterator[None]:
    """Another process that reads the place all the time, and may see the allowed states only."""
    ours, theirs = START.Pipe()
    process = START.Process(target=read_again_and_again, args=(kind, str(place), theirs))
    process.start()
    theirs.close()
    try:
        yield
        ours.send("enough")
        assert ours.poll(END_SECONDS), "the reader hangs"
        states, errors, reads = ours.recv()
        assert not errors, "\n".join(errors)
        assert reads > 0
        assert states <= allowed
        process.join(END_SECONDS)
    finally:
        process.kill()
        process.join()
        ours.close()


def state_of(kind: str, place: Path) -> State | None:
    return READERS[kind](str(place)) if place.exists() else None


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
        code, steps = command.run(calm, 0.0)
        assert code == 0
        wanted = state_of(kind, calm)
        assert wanted is not None
        assert wanted != before
        with reader(kind, stormy, {state for state in (before, wanted) if state is not None}):
            struck, found = 0, before
            while struck < each:
                fatal, delay = random_moment.randrange(steps), random_moment.uniform(0, 2 * PAUSE)
                code, _ = command.run(stormy, PAUSE, fatal, delay)
                found = state_of(kind, stormy)
                assert found in (before, wanted)
                # Near its end it may be done before the signal comes, and done twice it is refused.
                assert code == -9 or found == wanted
                struck += code == -9
                in_mid_write += os.path.exists(lock_place(str(stormy)))
                if found == wanted and command.again != "same":
                    break
            done = found == wanted and command.again != "same"
            if not done or command.again == "refused":
                code, _ = command.run(stormy, 0.0)
                assert code == int(done)
                assert os.listdir(stormy.parent) == [stormy.name]
                assert not list(stormy.rglob("*.partial"))
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
    first, second, more = tables(600, 0), tables(900, 1), tables(500, 2)
    return [
        Command(("ingest", first, *out), "refused"),
        Command(("ingest", more, *out, "--append"), "more"),
        Command(("ingest", second, *out, "--overwrite"), "same"),
    ]


def prediction_commands(tables: Callable[[int, int], str], folder: Path) -> list[Command]:
    data = ingest(tables(600, 0), folder / "data.zarr", target="target", block_rows=32)
    models = [str(folder / f"model-{seed}.zarr") for seed in range(2)]
    for seed, model in enumerate(models):
        save_model(fit(data, FitConfig(n_candidates=20, tolerance=1e-2, seed=seed)).model, model)
    out = (data.path, "--out", "{place}")
    return [
        Command(("predict", models[0], *out), "refused"),
        Command(("predict", models[1], *out, "--overwrite"), "same"),
        Command(("predict", models[0], *out, "--overwrite"), "same"),
    ]


def test_ingest__killed_at_any_moment(tables: Callable[[int, int], str], tmp_path: Path) -> None:
    check_kills("dataset", dataset_commands(tables), tmp_path, kills=2, each=1, seed=1)


@pytest.mark.parametrize("kind", ["zarr", "parquet"])
def test_predict__killed_at_any_moment(kind: str, tables: Callable[[int, int], str], tmp_path: Path) -> None:
    check_kills(kind, prediction_commands(tables, tmp_path), tmp_path, kills=2, each=1, seed=2)


@pytest.mark.slow
def test_ingest__killed_twenty_times(tables: Callable[[int, int], str], tmp_path: Path) -> None:
    check_kills("dataset", dataset_commands(tables), tmp_path, kills=20, each=5, seed=3)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["zarr", "parquet"])
def test_predict__killed_ten_times(kind: str, tables: Callable[[int, int], str], tmp_path: Path) -> None:
    check_kills(kind, prediction_commands(tables, tmp_path), tmp_path, kills=10, each=5, seed=4)
