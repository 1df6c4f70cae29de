"""`protodask run`."""

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cli._processes import start_command, wait_until
from support.commands import check_failed, json_of
from typer.testing import Result

from protodask.errors import Code
from protodask.prototypes.model import load_model
from protodask.prototypes.persistence import model_fingerprint

Call = Callable[..., Result]

TEXT = """
variables: {rows: 400, least: 0.1, candidates: 20}
steps:
  - {name: data, sample-data: {kind: checker, rows: "${rows}", out: d.zarr}}
  - {name: model, fit: {data: "${data}", out: m.zarr, candidates: "${candidates}", tolerance: 0.01, recipe: source}}
  - {name: scores, evaluate: {data: "${data}", model: "${model}", out: s.json}}
  - {name: good, gate: {results: "${scores}", limits: {accuracy: {least: "${least}"}}}}
  - {name: guesses, predict: {data: "${data.out}", model: "${model}", out: p.zarr}}
"""


@pytest.fixture(autouse=True)
def _in_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    path = tmp_path / "p.yaml"
    path.write_text(TEXT)
    return path


def test_run__then_nothing_then_what_changed(call: Call, pipeline: Path) -> None:
    first = call("run", pipeline)
    assert first.exit_code == 0, first.output
    assert "step 5 of 5: predict" in first.stderr
    assert "The predictions p.zarr have 400 rows." in first.stdout
    second = call("run", pipeline)
    assert second.exit_code == 0
    assert second.stdout == "There is nothing to do: everything is up to date.\n"
    third = json_of("run", pipeline, "--set", "candidates=25")
    assert third["status"] == "done"
    assert [entry["status"] for entry in third["steps"]] == ["fresh", "done", "done", "done", "done"]
    assert third["steps"][2]["result"]["rows"] == 400


def test_run__names_settings_as_the_file_has_them(call: Call, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("name,n,y\nann,1,a\nbob,2,b\n")
    (tmp_path / "p.yaml").write_text("steps: [{ingest: {sources: t.csv, target: y, out: d.zarr}}]\n")
    done = call("run", tmp_path / "p.yaml")
    check_failed(done, 1, "wrong-type", "step 1 (ingest)", "`categorical`", "`drop`", "`text-is-categorical`")
    assert "--" not in done.stderr.partition("Error: ")[2]
    alone = call("ingest", tmp_path / "t.csv", "--target", "y", "--out", "d.zarr")
    check_failed(alone, 1, "wrong-type", "--categorical", "--drop", "--text-is-categorical")


def test_run__says_which_files_it_leaves_for_the_next(call: Call, tmp_path: Path) -> None:
    path, inbox = tmp_path / "p.yaml", tmp_path / "in"
    inbox.mkdir()
    path.write_text("steps:\n  - ingest: {sources: [in], out: d.zarr, target: y, new: true, settle: 3600}\n")
    for name, age in (("old.csv", 7200), ("young.csv", 0)):
        rows = "".join(f"{age + row},{row % 2}\n" for row in range(20))
        (inbox / name).write_text(f"x,y\n{rows}")
        os.utime(inbox / name, (time.time() - age,) * 2)
    first = call("run", path)
    assert "Left for the next time, as they changed just now: 1 file." in " ".join(first.stdout.split())
    again = call("run", path)
    assert "is up to date; 1 file changed a moment ago: left for the next run" in again.stderr
    assert "up to date; 1 file changed a moment ago: left for the next run." in " ".join(again.stdout.split())
    described = json_of("run", path)
    assert [(entry["status"], entry["waiting"]) for entry in described["steps"]] == [("fresh", 1)]


def test_run__says_what_became_of_each_step_where_one_fails(call: Call, pipeline: Path) -> None:
    pipeline.write_text(TEXT.replace('data: "${data.out}", model', "data: none.csv, model"))
    failed = call("run", pipeline, "--json")
    assert failed.exit_code == 1
    found = json.loads(failed.stdout)
    assert (found["status"], found["code"]) == ("failed", "not-found")
    assert "none.csv" in found["message"]
    assert [entry["status"] for entry in found["steps"]] == ["done"] * 4 + ["failed"]
    assert "none.csv" in failed.stderr


def test_run__a_no_of_a_gate_is_exit_code_3(call: Call, pipeline: Path) -> None:
    for _ in range(2):
        done = call("run", pipeline, "--set", "least=1.5")
        assert done.exit_code == 3
        assert "A gate said no: " in done.stdout
        assert "accuracy" in done.stdout
        assert not Path("p.zarr").exists()
    assert call("run", pipeline).exit_code == 0
    assert Path("p.zarr").exists()


def test_run__a_no_of_a_gate_that_stops_is_no_failure(call: Call, pipeline: Path) -> None:
    pipeline.write_text(TEXT.replace('least: "${least}"}}', 'least: "${least}"}}, if-no: stop'))
    for _ in range(2):
        done = call("run", pipeline, "--set", "least=1.5", "--json")
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout)["status"] == "stopped"
        assert not Path("p.zarr").exists()


def test_run__dry(call: Call, pipeline: Path) -> None:
    done = call("run", pipeline, "--dry-run")
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["step", "verdict", "cost", "why"]
    assert [line.split()[1] for line in lines[1:]] == ["data", "model", "scores", "good", "guesses"]
    assert not Path(".protodask").exists()
    call("run", pipeline)
    planned = json_of("run", pipeline, "--dry-run", "--set", "candidates=30")
    assert [plan["verdict"] for plan in planned] == ["fresh", "to do", "depends", "depends", "depends"]
    assert planned[1]["why"] == "its setting candidates has changed"
    assert planned[1]["seconds_from"] == "estimate"
    assert planned[2]["seconds_from"] == "last time"
    shown = call("run", pipeline, "--dry-run", "--set", "candidates=30").stdout
    assert " of memory, reads " in shown
    assert " last time " in shown


def test_run__parts(call: Call, pipeline: Path) -> None:
    call("run", pipeline)
    again = json_of("run", pipeline, "--from", "scores")
    assert [entry["status"] for entry in again["steps"]] == ["not looked at", "not looked at", "done", "done", "done"]
    Path("p.zarr").rename("away")
    only = json_of("run", pipeline, "--only", "fit")
    assert only["status"] == "fresh"
    assert not Path("p.zarr").exists()


@pytest.mark.parametrize(
    ("options", "code", "facts"),
    [
        (("--from", "nothing"), "unknown-name", ["'nothing'", "data, model, scores, good, guesses"]),
        (("--only", "7"), "unknown-name", ["'7'", "data, model, scores, good, guesses"]),
        (("--from", "1", "--only", "2"), "settings-conflict", ["--from and --only"]),
        (("--set", "row=5"), "unknown-name", ["'row'", "rows, least, candidates"]),
        (("--set", "candidates=-1"), "bad-setting", ["step 2 (fit)", "candidates", "-1"]),
        (("--workers", 1, "--threads", 1), "settings-conflict", ["--threads", "--workers"]),
    ],
)
def test_run__wrong_use_leaves_nothing(
    call: Call, pipeline: Path, options: tuple[object, ...], code: Code, facts: list[str]
) -> None:
    done = call("run", pipeline, *options)
    check_failed(done, 2, code, *facts)
    assert [path.name for path in Path.cwd().iterdir()] == ["p.yaml"]


@pytest.mark.slow
def test_run__goes_on_inside_a_fit_that_was_killed(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(
        "steps:\n  - sample-data: {kind: checker, rows: 4000, out: d.zarr}\n"
        "  - fit: {data: d.zarr, out: m.zarr, run-dir: run, recipe: source, candidates: 100, tolerance: 1e-7}\n"
    )
    call("sample-data", "checker", "--rows", 4000, "--out", "expected.zarr")
    settings = ("--recipe", "source", "--candidates", 100, "--tolerance", 1e-7)
    fitted = call("fit", "expected.zarr", "--out", "expected-model.zarr", *settings)
    assert fitted.exit_code == 0, fitted.output
    with start_command("run", path, "--threads", 1) as run:
        try:
            wait_until(lambda: sum(len(log.read_bytes().splitlines()) for log in Path("run").glob("*.log")) >= 10, run)
        finally:
            run.kill()
    assert run.returncode == -signal.SIGKILL, "it was done before it could be killed"
    before = {log: (log.stat().st_ino, log.read_bytes()) for log in Path("run").glob("*.log")}
    assert not Path("m.zarr").exists()
    done = call("run", path, "--json")
    assert done.exit_code == 0, done.output
    assert "it had begun, and did not end" in done.stderr
    for log, (inode, content) in before.items():  # what was computed stands there still: nothing began again
        assert log.stat().st_ino == inode
        assert log.read_bytes().startswith(content.rpartition(b"\n")[0])
    assert model_fingerprint(load_model("m.zarr")) == model_fingerprint(load_model("expected-model.zarr"))
