"""Taking new files while the process that does it is killed again and again: every row is there exactly once."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from chaos.test_publishing import Command
from support.kills import PAUSE, Strike, spread, what_kills_leave

from protodask.data import Dataset
from protodask.evaluation.splitting import Part

INGEST = ("ingest", "{place}/inbox", "--target", "y")

STEPS = [
    Command((*INGEST, "--unless-in", "{place}/data.zarr", "--out", "{place}/new.zarr", "--overwrite"), "same"),
    Command(("ingest", "{place}/new.zarr", "--new", "--out", "{place}/data.zarr"), "same"),
    Command(
        ("split", "{place}/data.zarr", "--out", "{place}/t.zarr", "--held-out", "{place}/h.zarr", "--overwrite"), "same"
    ),
]
DIRECT = [Command((*INGEST, "--new", "--out", "{place}/data.zarr"), "same"), STEPS[2]]

OPERATIONS = 40
"""Of a command on files, about: kills strike in one of these, or miss."""


class Inbox:
    """Files that arrive: most of them new, some of them repeated, renamed, or with another content."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.folder = folder
        self.rows: Counter[int] = Counter()
        self._chance = chance
        self._contents: list[str] = []
        folder.mkdir()

    def arrive(self) -> None:
        name = self.folder / f"{self._chance.randrange(10**6)}.csv"
        if self._contents and self._chance.random() < 0.3:
            text = self._chance.choice(self._contents)
        else:
            first = 1000 * len(self._contents)
            numbers = range(first, first + self._chance.randrange(1, 200))
            text = "x,z,y\n" + "".join(f"{number},0.5,{'yes' if number % 3 else 'no'}\n" for number in numbers)
            if not self._contents:
                text += "100000,0.5,yes\n100002,0.5,no\n"  # both classes are known from the first file on
                self.rows.update([100000, 100002])
            self._contents.append(text)
            self.rows.update(numbers)
        # As a careful producer does it: the file is whole when it gets its name.
        aside = self.folder / ".partial"
        aside.write_text(text)
        os.utime(aside, (time.time() - 600,) * 2)
        os.replace(aside, name)


def rows_of(dataset: Dataset) -> list[int]:
    return [int(value) for number in range(dataset.layout.n_blocks) for value in dataset.read(number)["features"][:, 0]]


def check_rows(folder: Path, inbox: Inbox, commands: list[Command]) -> None:
    """Every row that arrived is there exactly once, those of a file together, and divided by number."""
    data = Dataset.open(folder / "data.zarr")
    rows = rows_of(data)
    assert Counter(rows) == inbox.rows
    assert sum(segment.rows for segment in data.segments) == data.n_rows
    assert len({segment.digest for segment in data.segments}) == len(data.segments)
    first = 0
    for segment in data.segments:  # the rows of a file are together, in its order
        part = rows[first : first + segment.rows]
        assert part == sorted(part)
        first += segment.rows
    training, held_out = (rows_of(Dataset.open(folder / name)) for name in ("t.zarr", "h.zarr"))
    chosen = Part(0.2, 0, True, False).of(np.arange(len(rows)))
    assert held_out == [row for row, out in zip(rows, chosen.tolist(), strict=True) if out]
    assert training == [row for row, out in zip(rows, chosen.tolist(), strict=True) if not out]
    assert sorted(path.name for path in folder.iterdir() if ".digests" not in path.name) == sorted(
        {"inbox", "data.zarr", "t.zarr", "h.zarr", *(["new.zarr"] if len(commands) == 3 else [])}
    )


def check_rounds(commands: list[Command], folder: Path, rounds: int, kills: int, seed: int) -> None:
    """In each round files arrive, and each command is killed so many times before it may end."""
    chance = random.Random(seed)
    folder.mkdir()
    inbox = Inbox(folder / "inbox", chance)
    struck = 0
    for _ in range(rounds):
        for _ in range(chance.randrange(1, 4)):
            inbox.arrive()
        for command in commands:
            for _ in range(kills):
                strike = Strike(chance.randrange(OPERATIONS), chance.uniform(0, 2 * PAUSE))
                ended = command.run(folder, strike, PAUSE)
                assert ended.killed or ended.code == 0
                struck += ended.killed
            assert command.run(folder).code == 0
        check_rows(folder, inbox, commands)
    assert struck >= max(1, rounds * kills * len(commands) // 4), "too few kills struck"


@pytest.mark.slow
@pytest.mark.parametrize("commands", [DIRECT, STEPS], ids=["direct", "by way of another"])
def test_ingest__of_new_files_killed_at_any_operation(commands: list[Command], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    inbox = Inbox(folder / "inbox", random.Random(5))

    def work() -> None:
        for command in commands:
            assert command.run_here(folder) == 0

    inbox.arrive()
    work()
    for _ in range(3):
        inbox.arrive()
    copies = what_kills_leave(work, folder, tmp_path / "copies")
    check_rows(folder, inbox, commands)
    for copy in spread(copies, 5):
        for command in commands:
            assert command.run_here(copy) == 0
        check_rows(copy, inbox, commands)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("commands", [DIRECT, STEPS], ids=["direct", "by way of another"])
def test_ingest__of_new_files_killed_again_and_again(commands: list[Command], seed: int, tmp_path: Path) -> None:
    check_rounds(commands, tmp_path / "run", rounds=5, kills=4, seed=seed)
