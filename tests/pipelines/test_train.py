"""The pipeline from a table to a registry."""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from support.commands import run_command
from typer.testing import Result

from protodask import FitConfig
from protodask.registry import Registry

TRAIN = Path(__file__).parents[2] / "pipelines" / "train.yaml"


def write_rows(path: Path, rows: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    values = random.normal(size=(rows, 2))
    labels = np.where(values.sum(axis=1) + 0.3 * random.normal(size=rows) > 0, "yes", "no")
    lines = [f"{a:.6f},{b:.6f},{label}" for (a, b), label in zip(values.tolist(), labels.tolist(), strict=True)]
    path.write_text("\n".join(["a,b,outcome", *lines]) + "\n")


def run(*options: str) -> Result:
    return run_command("run", TRAIN, "--set", "candidates=30", *options)


@pytest.mark.slow
def test_train__goes_from_a_table_to_the_champion_and_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("history").mkdir()
    write_rows(Path("history/one.csv"), 400, seed=1)
    first = run()
    assert first.exit_code == 0, first.output
    registry = Registry.open("train/models")
    version = registry.version("champion")
    assert (version.number, registry.aliases) == (1, {"champion": 1})
    assert version.metrics is not None
    assert version.metrics["accuracy"] > 0.8
    assert version.files.keys() == {"profile"}
    scored = run_command("evaluate", "train/models@champion", "history", "--json")
    assert scored.exit_code == 0, scored.output
    assert json.loads(scored.stdout)["accuracy"] > 0.8

    # A second run has nothing to do, also after a rollback by hand; new rows make a new champion.
    assert run().exit_code == 0
    assert registry.aliases == {"champion": 1}
    write_rows(Path("history/two.csv"), 500, seed=2)
    again = run()
    assert again.exit_code == 0, again.output
    assert registry.aliases == {"champion": 2, "previous": 1}
    registry.rollback()
    assert run().exit_code == 0
    assert registry.aliases == {"champion": 1, "previous": 2}

    # Nothing that is not good enough is published.
    refused = run("--set", "least_accuracy=1.1")
    assert refused.exit_code == 3, refused.output
    assert [found.number for found in registry.versions()] == [1, 2]


def test_train__later_categories_count_as_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("history").mkdir()
    path = tmp_path / "train.yaml"
    path.write_text(
        TRAIN.read_text().replace("      target: ${target}\n", "      target: ${target}\n      categorical: [c]\n")
    )
    for name, colours, first in (("one", "rb", 0), ("two", "rbg", 600)):
        rows = [f"{(first + row) % 17},{colours[row % len(colours)]},{'yn'[row % 17 > 8]}" for row in range(600)]
        Path(f"history/{name}.csv").write_text("\n".join(["a,c,outcome", *rows]) + "\n")
        done = run_command("run", path, "--set", "candidates=20", "--to", "rows")
        assert done.exit_code == 0, done.output
    assert "'c' (200 rows)" in " ".join(done.output.split())
    refused = run_command("run", path, "--set", "unseen=error", "--set", "folder=again", "--to", "rows")
    assert refused.exit_code == 0, refused.output
    Path("history/three.csv").write_text("a,c,outcome\n1,pink,y\n")
    refused = run_command("run", path, "--set", "unseen=error", "--set", "folder=again", "--to", "rows")
    assert (refused.exit_code, "'pink'" in refused.output) == (1, True), refused.output


def test_pipelines__train_with_the_default_penalty() -> None:
    for name in ("train", "refresh"):
        variables = yaml.safe_load(TRAIN.with_stem(name).read_text())["variables"]
        assert variables["lambda_v"] == FitConfig().lambda_v
