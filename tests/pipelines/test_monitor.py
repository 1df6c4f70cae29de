"""pipelines/monitor.yaml."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.commands import run_command

PIPELINE = Path(__file__).parents[2] / "pipelines" / "monitor.yaml"


def write(path: Path, seed: int, n_rows: int = 600, shift: float = 0.0) -> Path:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n_rows, 3)) + np.array([0, shift, 0])
    label = np.where(rng.random(n_rows) < 1 / (1 + np.exp(-2 * x[:, 0])), "yes", "no")
    lines = [",".join([*(f"{value:.5f}" for value in row), label]) for row, label in zip(x, label, strict=True)]
    path.write_text("\n".join(["x,y,z,outcome", *lines]))
    return path


@pytest.mark.slow
def test_monitor__says_no_once_the_stream_has_shifted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    training, held_out = write(tmp_path / "training.csv", 1), write(tmp_path / "held-out.csv", 2, 1500)
    assert run_command("ingest", training, "--target", "outcome", "--out", "training.zarr").exit_code == 0
    assert (
        run_command("fit", "training.zarr", "--out", "model.zarr", "--candidates", 50, "--tolerance", 0.01).exit_code
        == 0
    )
    assert run_command("monitor", "model.zarr", held_out, "--out", "profile.json").exit_code == 0

    def run(shift: float, seed: int) -> tuple[int, dict[str, Any]]:
        write(tmp_path / "new.csv", seed, shift=shift)
        done = run_command("run", PIPELINE, "--set", "data=new.csv", "--json")
        found: dict[str, Any] = json.loads(done.stdout)
        return done.exit_code, found

    for seed in (3, 4):
        code, found = run(0.0, seed)
        assert code == 0, found
        assert [entry["status"] for entry in found["steps"]] == ["done", "done"]
    assert run_command("run", PIPELINE, "--set", "data=new.csv", "--json").stdout.count('"fresh"') == 3
    code, found = run(0.5, 5)
    assert code == 3
    assert any("'drift.largest' is" in reason for reason in found["reasons"])
