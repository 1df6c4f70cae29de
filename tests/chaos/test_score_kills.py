"""After `train.yaml`, runs of `score.yaml` killed at any moment while files arrive: every row is scored once."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet
import pytest
from support.commands import run_command
from support.kills import Strike, run_command_process, what_kills_leave

from protodask.pipeline.each_file.ledger import LEDGER, leftovers, read_ledger
from protodask.prototypes import load_model
from protodask.prototypes.scoring import predict_features

FOLDER = Path(__file__).parents[2] / "pipelines"
TRAIN, SCORE = FOLDER / "train.yaml", FOLDER / "score.yaml"

MODEL, OUT = "train/models@champion", "out.parquet"

PAUSE = 0.004
"""Seconds before each operation on a file, so that a run takes long enough for files to arrive in it."""

OPERATIONS_A_FILE = 2
"""About those of a run for each file that waits, so that kills strike anywhere in it."""

FILES_A_RUN = 8
"""So many have come for each run, however fast the machine is."""

END_SECONDS = 120.0
"""What takes longer hangs."""


@dataclass
class Arrivals(threading.Thread):
    """Brings files: most by renaming, some named as if they were early, some with the content of others, and some
    written where they are to be in two steps.
    """

    inbox: Path
    seed: int
    in_steps: bool
    most: int
    most_seconds: float = 0.2
    """From one file to the next."""
    enough: threading.Event = field(default_factory=threading.Event)
    contents: dict[str, list[str]] = field(default_factory=dict)
    """Names by content."""

    def __post_init__(self) -> None:
        super().__init__(daemon=True)

    def __hash__(self) -> int:
        return id(self)

    def run(self) -> None:
        rng = random.Random(self.seed)
        for number in range(self.most):
            if self.enough.wait(rng.uniform(0.0, self.most_seconds)):
                return
            kind = rng.choices(("usual", "late", "repeated", "steps"), (60, 15, 15, 10 * self.in_steps))[0]
            if kind == "repeated" and self.contents:
                content = rng.choice(list(self.contents))
            else:
                rows = range(rng.randint(1, 30))
                lines = (f"{number}-{row},{rng.uniform(0, 1)!r},{rng.uniform(0, 1)!r}\n" for row in rows)
                content = "".join(["id,x0,x1\n", *lines])
            name = f"{'a' if kind == 'late' else 'b'}-{number:05d}.csv"
            self.contents.setdefault(content, []).append(name)
            place = self.inbox / name
            if kind == "steps":
                with place.open("w") as file:
                    file.write(content[: len(content) // 2])
                    file.flush()
                    time.sleep(0.05)
                    file.write(content[len(content) // 2 :])
            else:
                aside = self.inbox / f".{name}"
                aside.write_text(content)
                aside.rename(place)


@dataclass
class Struck:
    """What kills left behind, summed over all of them."""

    kills: int = 0
    noted: int = 0
    """Parts that were noted and not in their places."""
    aside: int = 0
    """Parts that were not noted."""


def arguments(settle: float) -> list[str]:
    settings = {"model": MODEL, "inbox": "inbox", "out": OUT, "settle": settle}
    return ["run", str(SCORE), "--threads", "2", *(f"--set={name}={value}" for name, value in settings.items())]


def score() -> None:
    assert run_command(*arguments(0.0)).exit_code == 0


def train(history: Path) -> None:
    """A model of points on a board of 8 x 8 fields, by the colour of the field."""
    history.mkdir()
    points = np.random.default_rng(0).uniform(size=(2000, 2))
    colour = np.floor(points * 8).sum(axis=1).astype(int) % 2
    table = pd.DataFrame({"x0": points[:, 0], "x1": points[:, 1], "outcome": np.where(colour, "black", "white")})
    table.to_csv(history / "board.csv", index=False)
    settings = ["--set=candidates=50", "--set=least_accuracy=0.4"]
    assert run_command("run", TRAIN, "--threads", 2, *settings).exit_code == 0


def take_away(out: Path, rng: random.Random, taken: list[pd.DataFrame]) -> None:
    """A consumer reads some parts and removes them."""
    for part in sorted(out.glob("*.parquet")):
        if rng.random() < 0.3:
            taken.append(pd.read_parquet(part))
            part.unlink()


def check_scores(found: pd.DataFrame, contents: dict[str, list[str]]) -> None:
    """Every row of every content exactly once, under a name of it, with what the model says of it."""
    names, rows, values = {}, {}, {}
    for content, files in contents.items():
        for number, line in enumerate(content.splitlines()[1:]):
            identifier, *features = line.split(",")
            names[identifier], rows[identifier] = set(files), number
            values[identifier] = list(map(float, features))
    assert Counter(found["id"]) == dict.fromkeys(values, 1)
    assert [rows[identifier] for identifier in found["id"]] == found["row"].tolist()
    assert all(file in names[identifier] for identifier, file in zip(found["id"], found["source"], strict=True))
    model = load_model(MODEL)
    matrix = np.array([values[identifier] for identifier in found["id"]], dtype=model.precision)
    ((probability, familiarity),) = predict_features(matrix, model, [model.n_batches])
    columns = [f"probability_{label}" for label in model.classes]
    np.testing.assert_allclose(found[columns].to_numpy(), probability, rtol=1e-5)
    np.testing.assert_allclose(found["familiarity"].to_numpy(), familiarity, rtol=1e-4)
    assert (found["predicted"].to_numpy() == np.array(model.classes)[probability.argmax(axis=1)]).all()


def check_end(out: Path, taken: list[pd.DataFrame], contents: dict[str, list[str]]) -> None:
    """Everything is scored, what was taken away included, and nothing else is left."""
    parts = [pyarrow.parquet.read_table(out).to_pandas()] if list(out.glob("*.parquet")) else []
    check_scores(pd.concat([*parts, *taken]), contents)
    left = set(os.listdir(out)) - {path.name for path in out.glob("*.parquet")}
    assert left == {"_protodask.json", LEDGER}


def check_kills(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    runs: int,
    files: int,
    seed: int,
    settle: float,
) -> Struck:
    """Score under kills while files arrive, then once without, and compare."""
    monkeypatch.chdir(folder)
    train(folder / "history")
    inbox, out = folder / "inbox", folder / OUT
    inbox.mkdir()
    rng = random.Random(seed)
    taken: list[pd.DataFrame] = []
    struck = Struck()
    arrivals = Arrivals(inbox, seed, in_steps=settle > 0, most=files)
    arrivals.start()
    try:
        for number in range(1, runs + 1):
            while len(arrivals.contents) < number * FILES_A_RUN:
                time.sleep(0.02)
            waiting = len(arrivals.contents) - len(read_ledger(str(out)).scored)
            strike = Strike(rng.randrange(10 + OPERATIONS_A_FILE * waiting), rng.uniform(0, 2 * PAUSE))
            ended = run_command_process(arguments(settle), strike, PAUSE)
            assert ended.killed or ended.code == 0
            struck.kills += ended.killed
            if out.exists():
                noted, others = leftovers(str(out), read_ledger(str(out)))
                struck.noted += len(noted)
                struck.aside += len(others)
                take_away(out, rng, taken)
    finally:
        arrivals.enough.set()
        arrivals.join()
    time.sleep(settle + 0.1)
    assert run_command_process(arguments(settle)).code == 0
    assert len(arrivals.contents) > runs
    check_end(out, taken, arrivals.contents)
    return struck


@pytest.mark.slow
def test_score__killed_at_any_operation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    monkeypatch.chdir(folder)
    train(folder / "history")
    (folder / "inbox").mkdir()
    arrivals = Arrivals(folder / "inbox", seed=3, in_steps=False, most=6, most_seconds=0.0)
    arrivals.run()
    copies = what_kills_leave(score, folder, tmp_path / "copies")
    check_end(folder / OUT, [], arrivals.contents)
    rng = random.Random(4)
    seen: dict[tuple[bool, bool, int], Path] = {}
    for copy in copies:
        out = copy / OUT
        if out.exists():
            noted, others = leftovers(str(out), read_ledger(str(out)))
            seen[bool(noted), bool(others), len(read_ledger(str(out)).scored)] = copy
    assert {noted for noted, *_ in seen} == {others for _, others, _ in seen} == {True, False}
    for copy in [copies[0], *seen.values()]:  # of all that a run leaves behind, in every combination
        monkeypatch.chdir(copy)
        taken: list[pd.DataFrame] = []
        take_away(copy / OUT, rng, taken)
        score()
        check_end(copy / OUT, taken, arrivals.contents)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_score__killed_fifty_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    struck = check_kills(tmp_path, monkeypatch, runs=50, files=2000, seed=1, settle=2.0)
    command = [sys.executable, "-m", "protodask", *arguments(2.0)]
    again = subprocess.run(command, capture_output=True, text=True, timeout=END_SECONDS, check=False)
    assert (again.returncode, again.stdout.strip()) == (0, "There is nothing to do: everything is up to date.")
    assert struck.kills >= 40
    assert struck.noted > 20, "too few kills struck between a note and its parts"
    assert struck.aside > 20, "too few kills struck before a note"
