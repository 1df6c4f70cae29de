"""The pipeline files that come with the package."""

import json
from pathlib import Path

import pytest
from support.commands import check_failed, run_command
from typer.testing import Result

from protodask.errors import Code
from protodask.pipeline.file.definition import read_pipeline
from protodask.pipeline.state.runner import check_pipeline

FOLDER = Path(__file__).parents[2] / "pipelines"
QUICKSTART = FOLDER / "quickstart.yaml"

SMALL = ("--set", "rows=1500", "--set", "held_out_rows=1000", "--set", "candidates=200")

PRODUCTS = {"training.zarr", "held-out.zarr", "model.zarr", "scores.json", "predictions.zarr"}


def _run(*options: str) -> Result:
    return run_command("run", QUICKSTART, *SMALL, *options)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda path: path.name)
def test_pipelines__can_be_read(path: Path) -> None:
    check_pipeline(read_pipeline(str(path)))


def test_quickstart__does_the_main_job_and_can_be_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first = _run()
    assert first.exit_code == 0, first.output
    assert {path.name for path in (tmp_path / "quickstart").iterdir()} == PRODUCTS
    for name in PRODUCTS:
        assert f"quickstart/{name}" in first.stdout
    scores = json.loads((tmp_path / "quickstart" / "scores.json").read_text())
    assert scores["rows"] == 1000
    assert scores["log_loss"] < 0.9 * scores["marginal_log_loss"]
    assert f"right on {scores['accuracy']:.1%} of the 1,000 rows" in first.stdout
    assert all(letter.isprintable() or letter == "\n" for letter in first.output)
    for number in range(1, 6):
        assert f"step {number} of 5" in first.stderr

    again = _run("--json")
    assert again.exit_code == 0, again.output
    found = json.loads(again.stdout)
    assert found["status"] == "fresh"
    assert [entry["step"] for entry in found["steps"]] == ["sample-data", "sample-data", "fit", "evaluate", "predict"]
    assert {entry["status"] for entry in found["steps"]} == {"fresh"}
    assert found["steps"][3]["result"] == scores
    assert json.loads((tmp_path / "quickstart" / "scores.json").read_text()) == scores


@pytest.mark.parametrize(
    ("options", "exit_code", "code", "facts"),
    [
        (("--set", "row=5"), 2, "unknown-name", ["'row'", "folder, rows"]),
        (("--set", "rows"), 2, "bad-setting", ["'rows'", "rows=1000"]),
        (("--set", "rows=many"), 2, "bad-setting", ["rows", "'many'"]),
        (("--set", "candidates=-1"), 2, "bad-setting", ["candidates", "-1"]),
        (("--workers", "1", "--threads", "1"), 2, "settings-conflict", ["--threads", "--workers"]),
    ],
)
def test_quickstart__wrong_use(
    options: tuple[str, ...],
    exit_code: int,
    code: Code,
    facts: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run_command("run", QUICKSTART, *options)
    check_failed(done, exit_code, code, *facts)
    assert list(tmp_path.iterdir()) == []


def test_run__missing_file(tmp_path: Path) -> None:
    done = run_command("run", tmp_path / "none.yaml")
    check_failed(done, 1, "not-found", tmp_path / "none.yaml")
