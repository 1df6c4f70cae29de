"""`refresh.yaml` on a stream: it learns, it notices a shift, and what it did can be undone."""

import contextlib
import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support.commands import run_command
from typer.testing import Result

from protodask.data import Dataset

FOLDER = Path(__file__).parents[2] / "pipelines"
REFRESH, TRAIN = FOLDER / "refresh.yaml", FOLDER / "train.yaml"
ROWS = 1500


@dataclass
class Stream:
    """Files of labelled rows that arrive, and the commands of who runs the pipeline. `shift` is in standard deviations
    of one of four features.
    """

    folder: Path
    seed: int = 0
    arrived: int = 0

    def arrive(self, shift: float = 0.0, flipped: bool = False) -> None:
        self.seed += 1
        self.arrived += 1
        rng = np.random.default_rng(self.seed)
        features = rng.normal(size=(ROWS, 4))
        outcome = features[:, 0] * features[:, 1] + 0.3 * rng.normal(size=ROWS) > 0
        features[:, 2] += shift
        table = pd.DataFrame(features, columns=list("abcd"))
        table["outcome"] = np.where(outcome != flipped, "yes", "no")
        table.to_csv(self.folder / f"{self.seed:04d}.csv", index=False)

    def refresh(self, *options: str) -> Result:
        settings = ("--set", "candidates=80", "--set", "lambda_v=0.0003")
        return run_command("run", str(REFRESH), *settings, *options)


def _done(*arguments: str) -> Result:
    done = run_command(*arguments)
    assert done.exit_code == 0, done.output
    return done


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a first champion, which has seen little."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "history").mkdir()
    Stream(folder / "history").arrive()
    with contextlib.chdir(folder):
        _done("run", str(TRAIN), "--set", "candidates=2")
    shutil.copytree(folder / "train" / "held-out.zarr", folder / "judged.zarr")
    return folder


@pytest.fixture
def stream(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stream:
    """After the first champion."""
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return Stream(tmp_path / "history", seed=1, arrived=1)


def _champion() -> int:
    state = json.loads(_done("registry", "list", "train/models", "--json").stdout)
    return int(state["aliases"]["champion"])


def _predictions(out: str) -> list[bytes]:
    _done("predict", "train/models@champion", "judged.zarr", "--out", out)
    import zarr

    group = zarr.open_group(out, mode="r")
    return [np.asarray(group[name]).tobytes() for name in ("probability", "familiarity", "predicted")]


def _status(result: Result) -> dict[str, str]:
    return {entry["name"]: entry["status"] for entry in json.loads(result.stdout)["steps"]}


def _check(stream: Stream, calm: int) -> None:
    champions = [_champion()]
    predicted = {champions[0]: _predictions("p0.zarr")}
    for number in range(calm):
        stream.arrive()
        done = stream.refresh("--json")
        assert done.exit_code == 0, done.output  # no false alarm
        assert _status(done)["as-before"] == "done"
        assert Dataset.open("train/data.zarr").n_rows == ROWS * stream.arrived
        if _champion() != champions[-1]:
            champions.append(_champion())
            predicted[champions[-1]] = _predictions(f"p{number + 1}.zarr")
    assert len(champions) > 1  # challengers won

    rows, fired = Dataset.open("train/data.zarr").n_rows, 0
    for _ in range(2):
        stream.arrive(shift=0.5)
        fired += stream.refresh().exit_code == 3
    assert fired >= 1
    assert stream.refresh().exit_code == 3  # it still says no
    assert Dataset.open("train/data.zarr").n_rows <= rows + (2 - fired) * ROWS
    assert _champion() == champions[-1]

    accepted = stream.refresh("--set", "accept=true")
    assert accepted.exit_code == 0, accepted.output
    assert Dataset.open("train/data.zarr").n_rows == ROWS * stream.arrived
    assert stream.refresh().exit_code == 0
    if _champion() != champions[-1]:
        champions.append(_champion())
        predicted[champions[-1]] = _predictions("accepted.zarr")

    _done("registry", "rollback", "train/models")
    assert _champion() == champions[-2]
    assert _predictions("back.zarr") == predicted[champions[-2]]
    assert predicted[champions[-2]] != predicted[champions[-1]]
    again = stream.refresh("--json")  # which does not undo what was undone
    assert again.exit_code == 0
    assert "done" not in _status(again).values()
    assert _champion() == champions[-2]


@pytest.mark.slow
def test_refresh__learns_notices_a_shift_and_can_be_undone(stream: Stream) -> None:
    _check(stream, 1)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_refresh__says_no_to_none_of_twenty_calm_runs(stream: Stream) -> None:
    stream.seed = 100
    _check(stream, 20)


@pytest.mark.slow
def test_refresh__a_turned_relation_is_noticed_though_features_are_as_before(stream: Stream) -> None:
    stream.arrive()
    assert stream.refresh().exit_code == 0
    again = stream.refresh("--json")  # without anything new
    assert again.exit_code == 0
    assert "done" not in _status(again).values()
    stream.arrive(flipped=True)
    refused = stream.refresh()
    assert refused.exit_code == 3
    assert "log_loss.increase" in refused.stdout
    assert "drift.largest" not in refused.stdout
