"""`protodask info`."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli._processes import run_python
from support.commands import check_failed, json_of

from protodask.budget.column_folder import BUDGET
from protodask.data.places.storage import DATASET
from protodask.data.tables.ingest import ingest_arrays
from protodask.decisions.decision_store import DECISIONS
from protodask.pipeline.each_file.ledger import SCORED_FILES
from protodask.pipeline.inspecting.describe import BY_FORMAT
from protodask.pipeline.state.records import State
from protodask.prototypes.persistence import MODEL
from protodask.prototypes.prediction import PREDICTIONS
from protodask.robust.kept_terms import TERMS
from protodask.robust.model import ROBUST_MODEL
from protodask.robust.prediction import ROBUST_PREDICTIONS

Call = Callable[..., Any]


STEPS = "steps:\n  - {name: made, sample-data: {kind: xor, rows: '${rows}', out: d.zarr}}\n"


def test_info__tells_the_kinds_apart(call: Call, example: Any, tmp_path: Path) -> None:
    call("predict", example.model, example.data, "--out", tmp_path / "predictions.zarr")
    call("predict", example.model, example.data, "--out", tmp_path / "predictions.parquet")
    call(
        "fit", example.data, "--out", tmp_path / "m.zarr", "--run-dir", tmp_path / "run", "--candidates", 10,
        "--max-iterations", 2,
    )  # fmt: skip
    places = {
        example.data: "dataset",
        example.model: "model",
        tmp_path / "run": "run",
        tmp_path / "predictions.zarr": "predictions",
        tmp_path / "predictions.parquet": "predictions",
    }
    for place, kind in places.items():
        assert json_of("info", place)["kind"] == kind
        done = call("info", place)
        assert done.exit_code == 0, done.output
        assert done.stdout.startswith(("dataset", "model", "run", "kind"))


def test_info__knows_the_formats_of_all_rooms() -> None:
    kinds = DATASET, MODEL, PREDICTIONS, SCORED_FILES, DECISIONS, BUDGET, ROBUST_MODEL, ROBUST_PREDICTIONS, TERMS
    assert set(BY_FORMAT) == {kind.format for kind in kinds}


@pytest.mark.parametrize("kind", ["model", "data"])
def test_info__imports_nothing_that_it_does_not_need(kind: str, example: Any) -> None:
    code = (
        "import sys\n"
        "from protodask.cli import app\n"
        f"app(['info', {str(getattr(example, kind))!r}], standalone_mode=False)\n"
        "print(sorted({'zarr', 'dask', 'scipy', 'pandas', 'yaml', 'sklearn'} & set(sys.modules)))"
    )
    done = run_python("-c", code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


def test_info__model_lists_its_features(call: Call, example: Any) -> None:
    found = json_of("info", example.model)
    assert found["target"] == "outcome"
    assert sum(entry["share"] for entry in found["classes"]) == pytest.approx(1)
    for batch in found["batches"]:
        weights = [feature["weight"] for feature in batch["features"]]
        assert weights == sorted(weights, reverse=True)
        assert sum(batch["prototypes_by_class"]) == batch["prototypes"]
    shown = call("info", example.model).stdout
    for feature in found["batches"][0]["features"]:
        assert feature["name"] in shown


def test_info__run_that_was_interrupted(call: Call, example: Any, tmp_path: Path) -> None:
    run = tmp_path / "run"
    call("fit", example.data, "--out", tmp_path / "m.zarr", "--run-dir", run, "--candidates", 10, "--max-iterations", 2)
    assert "finished" in call("info", run).stdout
    (run / "history.json").unlink()
    done = call("info", run)
    assert done.exit_code == 0
    assert "not finished: the same command continues it" in done.stdout
    (run / "history.json").write_text("{")
    damaged = call("info", run)
    check_failed(damaged, 1, "damaged", run / "history.json")


@pytest.mark.parametrize("which", ["data", "model"])
def test_info__damaged(which: str, call: Call, example: Any, tmp_path: Path) -> None:
    copy = tmp_path / "copy.zarr"
    shutil.copytree(getattr(example, which), copy)
    text = (copy / "zarr.json").read_text()
    assert '"high"' in text
    (copy / "zarr.json").write_text(text.replace('"high"', '"hihg"'))
    done = call("info", copy)
    check_failed(done, 1, "damaged", copy, "checksum")


def test_info__newer_format(call: Call, example: Any, tmp_path: Path) -> None:
    copy = tmp_path / "copy.zarr"
    shutil.copytree(example.model, copy)
    record = json.loads((copy / "zarr.json").read_text())
    record["attributes"]["version"] = 99
    (copy / "zarr.json").write_text(json.dumps(record))
    done = call("info", copy)
    check_failed(done, 1, "newer-format", copy, 99)


def test_info__something_else(call: Call, tmp_path: Path) -> None:
    done = call("info", tmp_path)
    check_failed(done, 1, "wrong-kind", tmp_path, "--out or --run-dir")


def test_info__names_cannot_control_the_terminal(call: Call, tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("\x1b[31mred,target\n1,a\n2,b\n")
    call("ingest", table, "--out", tmp_path / "data.zarr")
    done = call("info", tmp_path / "data.zarr")
    assert done.exit_code == 0, done.output
    assert "\x1b" not in done.output
    assert "\\x1b[31mred" in done.stdout


def test_info__notes_are_lines(call: Call, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('x,"a\nb",y\n1,2,u\n2,,v\n')
    made = call("ingest", tmp_path / "t.csv", "--target", "y", "--out", tmp_path / "d.zarr")
    for told in (made, call("info", tmp_path / "d.zarr")):
        assert "\nNote: Values are missing in a\\nb: they" in told.stdout


def test_info__watches_a_run_until_it_has_finished(
    call: Call, example: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    call("fit", example.data, "--out", tmp_path / "m.zarr", "--run-dir", run, "--candidates", 10, "--max-iterations", 2)
    history = (run / "history.json").read_bytes()
    (run / "history.json").unlink()
    waited: list[float] = []

    def finish(seconds: float) -> None:
        waited.append(seconds)
        (run / "history.json").write_bytes(history)

    monkeypatch.setattr("time.sleep", finish)
    done = call("info", run, "--watch", "2.5")
    assert done.exit_code == 0, done.output
    assert waited == [2.5]
    assert [" ".join(line.split()) for line in done.stdout.splitlines() if line.startswith("state")] == [
        "state not finished: the same command continues it",
        "state finished",
    ]
    call("info", example.model, "--watch", "1")
    assert waited == [2.5]


def test_info__watches_a_run_until_its_directory_is_gone(
    call: Call, example: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    call("fit", example.data, "--out", tmp_path / "m.zarr", "--run-dir", run, "--candidates", 10, "--max-iterations", 2)
    (run / "history.json").unlink()
    monkeypatch.setattr("time.sleep", lambda seconds: shutil.rmtree(run, ignore_errors=True))
    done = call("info", run, "--watch", "1", "--json")
    assert done.exit_code == 0, done.output
    assert "has ended" in done.stderr
    (line,) = done.stdout.splitlines()
    assert json.loads(line)["finished"] is False
    check_failed(call("info", run, "--watch", "1"), 1, "not-found", run)


def test_info__of_a_pipeline_is_how_its_last_run_ended(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.yaml").write_text("variables: {rows: 50}\n" + STEPS)
    check_failed(call("info", "p.yaml"), 1, "not-found", "p.yaml", ".protodask", "--dry-run")
    assert call("run", "p.yaml").exit_code == 0
    done = call("info", "p.yaml")
    assert done.exit_code == 0, done.output
    assert "last run      done, " in done.stdout
    assert done.stdout.splitlines()[-1].split()[:3] == ["1", "made", "done"]
    assert done.stdout.endswith("  50\n")
    (tmp_path / "d.zarr").rename(tmp_path / "away.zarr")
    (tmp_path / "d.zarr").write_text("in the way")
    assert call("run", "p.yaml", "--set", "rows=60").exit_code == 1
    found = json_of("info", "p.yaml")
    assert (found["kind"], found["status"], found["code"]) == ("pipeline", "failed", "exists")
    assert found["succeeded"] < found["ended"]
    assert [(step["name"], step["status"], step["result"]["rows"]) for step in found["steps"]] == [
        ("made", "failed", 50)
    ]
    assert "last run      failed" in call("info", "p.yaml").stdout


@pytest.mark.parametrize("state", ["", "state: elsewhere\n"])
@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("--set", "row=60"), "unknown-name"),
        (("--to", "nothing"), "unknown-name"),
        (("--threads", "1", "--workers", "1"), "settings-conflict"),
        (("--notify", "none"), "bad-setting"),
    ],
)
def test_info__of_a_run_that_did_not_come_to_its_steps(
    options: tuple[str, ...], code: str, state: str, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.yaml").write_text(f"{state}variables: {{rows: 50}}\n{STEPS}")
    assert call("run", "p.yaml", *options).exit_code == 2
    check_failed(call("info", "p.yaml"), 1, "not-found", "Nothing is known")
    assert call("run", "p.yaml").exit_code == 0
    before = json_of("info", "p.yaml")
    failed = call("run", "p.yaml", *options)
    assert failed.exit_code == 2
    found = json_of("info", "p.yaml")
    assert (found["status"], found["code"]) == ("failed", code)
    assert found["message"].split()[0] in failed.stderr
    assert (found["succeeded"], found["steps"]) == (before["succeeded"], before["steps"])
    for more in ((), ("--watch", "1")):
        shown = call("info", "p.yaml", *more).stdout
        assert "last run      failed, " in shown
        assert found["message"] in shown
    assert call("run", "p.yaml").exit_code == 0
    call("run", "p.yaml", "--dry-run", *options)  # no run: nothing is noted
    assert json_of("info", "p.yaml")["status"] == "fresh"


def test_info__of_a_run_that_did_not_come_to_its_steps_beside_another(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one notes its own end, and must be able to: two at a time would be refused."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.yaml").write_text(f"variables: {{rows: 50}}\n{STEPS}")
    assert call("run", "p.yaml").exit_code == 0
    with State(str(tmp_path / ".protodask" / "p"), "p.yaml").sole_run(wait=False) as alone:
        assert alone
        assert call("run", "p.yaml", "--set", "row=60").exit_code == 2
        assert json_of("info", "p.yaml")["status"] == "done"
    assert call("run", "p.yaml", "--set", "row=60").exit_code == 2
    assert json_of("info", "p.yaml")["status"] == "failed"


def test_info__of_a_run_whose_file_could_not_be_read(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    place = tmp_path / "p.yaml"
    place.write_text(STEPS.replace("'${rows}'", "50"))
    assert call("run", "p.yaml").exit_code == 0
    place.write_text("steps: [\n")
    assert call("run", "p.yaml").exit_code == 2
    found = json_of("info", "p.yaml")
    assert (found["status"], found["code"], found["steps"][0]["status"]) == ("failed", "unreadable", "done")
    assert "p.yaml is not valid YAML" in found["message"]
    shutil.rmtree(".protodask")  # or it is elsewhere: then there is only the file to tell of
    check_failed(call("info", "p.yaml"), 1, "unreadable", "p.yaml is not valid YAML")


def test_info__of_a_model_of_several_draws(call: Call, example: Any, tmp_path: Path) -> None:
    settings = ("--average-draws", 2, "--candidates", 20, "--max-iterations", 2)
    call("fit", example.data, "--out", tmp_path / "m.zarr", *settings)
    found = json_of("info", tmp_path / "m.zarr")
    assert f"{len(found['batches'])}, trained in 1 round of each draw" in call("info", tmp_path / "m.zarr").stdout


def test_info__of_a_run_by_region_says_so_and_what_was_left_out(call: Call, tmp_path: Path) -> None:
    """Of one draw of two rounds it was said that two draws were left out, and of regions nothing."""
    rank = np.random.default_rng(0).integers(0, 3, (3000, 8))
    large = (rank[:, 1] + rank[:, 2] >= 2) * 1 + (rank[:, 3:6].sum(axis=1) >= 3) + (rank[:, 6] + rank[:, 7] >= 3)
    target = np.where(rank[:, 0] == 2, 0, 1 + np.minimum(large, 2))
    ingest_arrays(np.eye(3)[rank].reshape(3000, 24), target, tmp_path / "data.zarr")
    settings = ("--average-draws", 2, "--candidates", 500, "--max-iterations", 30, "--batches", 2)
    planned = call("plan", tmp_path / "data.zarr", *settings, "--no-calibrate")
    assert "10 batches (up to 44 where rules decide), trained in 4 rounds of 500 candidates" in planned.stdout
    run = tmp_path / "run"
    done = call("fit", tmp_path / "data.zarr", "--out", tmp_path / "m.zarr", "--run-dir", run, *settings)
    assert "1 draw was left out: the best one loses clearly less on rows held out." in done.output
    told = call("info", run).stdout
    assert "Note: by region, as rules over several features decide: rounds 1, 2." in told
    assert "Note: not in the model, as other draws lose clearly less on rows held out: rounds 3, 4." in told
    records = json_of("info", run)["batches"]
    assert [record.get("by_region", False) for record in records] == [True, True, False, False]
    assert records[0]["batches"] > 4
    assert records[2]["batches"] == 1
