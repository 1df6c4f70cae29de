"""Refreshing under kills: however often a run is ended, the data and the models are those of undisturbed runs."""

import itertools
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from protodask import Dataset, load_model
from protodask.prototypes.persistence import model_fingerprint
from protodask.registry import Registry

FOLDER = Path(__file__).parents[2] / "pipelines"
SETTINGS = ("--set", "candidates=40", "--set", "lambda_v=0.0003")
RUN_SECONDS = 180.0


def _arrive(folder: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(600, 3))
    outcome = np.where(values[:, 0] * values[:, 1] + 0.3 * rng.normal(size=600) > 0, "yes", "no")
    lines = [
        ",".join(map(repr, row)) + f",{label}" for row, label in zip(values.tolist(), outcome.tolist(), strict=True)
    ]
    aside = folder / "coming"
    aside.write_text("\n".join(["a,b,c,outcome", *lines]) + "\n")
    (folder / "history").mkdir(exist_ok=True)
    aside.rename(folder / "history" / f"{seed}.csv")


def _start(folder: Path, name: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "protodask", "run", str(FOLDER / name), "--threads", "1", *SETTINGS],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def _finish(folder: Path, name: str = "refresh.yaml") -> str:
    with _start(folder, name) as run:
        try:
            _, said = run.communicate(timeout=RUN_SECONDS)
        finally:
            run.kill()
    assert run.returncode == 0, said
    return said


def _kill_some_way(folder: Path, generator: random.Random) -> str:
    """Start a run and kill it some time after it told of so many steps; which it had come to, "start" before the first,
    and "nothing" if it had ended before.
    """
    lines, moment = generator.randrange(11), generator.random()
    with _start(folder, "refresh.yaml") as run:
        assert run.stderr is not None
        limit = threading.Timer(RUN_SECONDS, run.kill)
        limit.start()
        try:
            heard = list(itertools.islice((line for line in run.stderr if " of 10: " in line), lines))
            time.sleep(moment)
            ended = run.poll() is not None
            run.kill()
            heard += [line for line in run.stderr if " of 10: " in line]
        finally:
            limit.cancel()
    if ended:
        return "nothing"
    begun = [line for line in heard if "is up to date" not in line]
    return begun[-1].partition(" of 10: ")[2].split(",")[0] if begun else "start"


def _check(tmp_path: Path, arrivals: int, kills: int, different: int) -> Counter[str]:
    """Compare runs with kills and without after each of so many arrivals, or more, until enough steps were hit."""
    calm, stormy = tmp_path / "calm", tmp_path / "stormy"
    calm.mkdir()
    _arrive(calm, 0)
    _finish(calm, "train.yaml")
    shutil.copytree(calm, stormy)
    generator, struck = random.Random(arrivals), Counter[str]()
    for seed in range(1, 4 * arrivals + 1):
        if seed > arrivals and len(_steps(struck)) >= different:
            break
        for folder in (calm, stormy):
            _arrive(folder, seed)
        _finish(calm)
        for _ in range(kills):
            struck[_kill_some_way(stormy, generator)] += 1
        _finish(stormy)
        one, other = (Dataset.open(folder / "train" / "data.zarr") for folder in (calm, stormy))
        assert other.n_rows == 600 * (seed + 1)
        assert one.key == other.key
        first, second = (Registry.open(str(folder / "train" / "models")) for folder in (calm, stormy))
        assert first.aliases == second.aliases
        assert [version.number for version in first.versions()] == [version.number for version in second.versions()]
        names = (str(folder / "train" / "models") + "@champion" for folder in (calm, stormy))
        assert len({model_fingerprint(load_model(name)) for name in names}) == 1
    return struck


def _steps(struck: Counter[str]) -> set[str]:
    return set(struck) - {"start", "nothing"}


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_refresh__under_kills_ends_where_undisturbed_runs_do(tmp_path: Path) -> None:
    struck = _check(tmp_path, arrivals=5, kills=5, different=4)
    assert len(_steps(struck)) >= 4, struck
