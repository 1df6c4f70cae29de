"""`protodask tune`."""

import csv
import json
import os
import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli._processes import start_command, wait_until
from support.commands import check_failed, fingerprint_of, json_of

from protodask.cli.progress import LogReporter
from protodask.engine.progress import Progress
from protodask.prototypes import FitConfig, load_model
from protodask.prototypes.objective import Objective
from protodask.prototypes.persistence import model_fingerprint
from protodask.prototypes.runs import RunDirectory
from protodask.selection import SearchConfig, read_search
from protodask.selection import tuning as tuning_module

Call = Callable[..., Any]

QUICK = (
    "--recipe", "source", "--candidates", 20, "--trials", 3, "--folds", 3, "--max-batches", 2, "--tolerance", 1e-3,
    "--lambda-v-range", 1e-3, 1e-1, "--search-tolerance", 2e-2, "--draws", 2,
)  # fmt: skip


def tune(call: Call, data: Path, out: Path, *more: object) -> dict[str, Any]:
    done = call("tune", data, "--out", out, *QUICK, "--json", *more)
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def tuned(call: Call, example: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what an undisturbed search leaves: model.zarr, its run directory and table."""
    folder = tmp_path_factory.mktemp("tuned")
    more = ("--run-dir", folder / "run", "--table", folder / "trials.csv")
    (folder / "said.json").write_text(json.dumps(tune(call, example.data, folder / "model.zarr", *more)))
    return folder


def test_tune__options_reach_the_search(call: Call, example: Any, tmp_path: Path) -> None:
    tune(
        call, example.data, tmp_path / "m.zarr", "--run-dir", tmp_path / "run", "--strategy", "two-stage",
        "--method", "random", "--lambda-v-range", 1e-4, 1e-2, "--lambda-w-range", 1e-7, 1e-5, "--max-batches", 1,
        "--patience", 3, "--least-gain", 0.5, "--rule", "best", "--search-tolerance", 1e-2, "--draws", 1, "--seed", 7,
        "--raw-units", "--alpha-v", 0.5,
    )  # fmt: skip
    found = json_of("info", tmp_path / "run")
    search = SearchConfig(
        strategy="two-stage", method="random", n_trials=3, lambda_v=(1e-4, 1e-2), lambda_w=(1e-7, 1e-5), max_batches=1,
        patience=3, least_gain=0.5, n_folds=3, rule="best", tolerance=1e-2, n_draws=1,
    )  # fmt: skip
    assert found["search"] == json.loads(json.dumps(search.as_dict()))
    config = FitConfig.of(
        "source", n_batches=0, n_candidates=20, tolerance=1e-3, seed=7, standardize=False, alpha_v=0.5
    )
    assert found["config"] == config.as_dict()
    assert {(entry["lambda_v"], entry["lambda_w"]) for entry in found["settings"]} == {
        (setting.lambda_v, setting.lambda_w) for setting in search.settings(1e-8, 7)
    }


@pytest.mark.slow
def test_tune__json_is_what_the_model_keeps(tuned: Path) -> None:
    said = json.loads((tuned / "said.json").read_text())
    model = load_model(tuned / "model.zarr")
    found = read_search(model)
    assert found is not None
    assert read_search(said) == found
    assert said["kind"] == "tune"
    assert said["batches"] == model.n_batches == said["chosen"]["batches"] == len(said["history"])
    chosen = found.trials[found.selected]
    assert said["chosen"] == {
        "lambda_v": chosen.lambda_v,
        "lambda_w": chosen.lambda_w,
        "batches": chosen.n_batches,
        "seed": found.seed,
    }
    assert model.provenance["fits"][-1]["config"]["lambda_v"] == chosen.lambda_v
    assert model.provenance["fits"][-1]["config"]["tolerance"] == 1e-3


def test_tune__table_has_every_trial_to_the_last_bit(tuned: Path) -> None:
    found = read_search(load_model(tuned / "model.zarr"))
    assert found is not None
    with (tuned / "trials.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(found.trials)
    for position, (row, trial) in enumerate(zip(rows, found.trials, strict=True)):
        assert float(row["lambda_v"]) == trial.lambda_v
        assert int(row["batches"]) == trial.n_batches
        assert tuple(float(row[f"fold_{number}"]) for number in (1, 2, 3)) == trial.fold_losses
        assert (row["selected"] == "True") == (position == found.selected)


def test_tune__shows_trials_the_chosen_one_and_the_model(call: Call, example: Any, tuned: Path, tmp_path: Path) -> None:
    shutil.copytree(tuned / "run", tmp_path / "m.zarr.run")  # so that nothing is computed again
    done = call("tune", example.data, "--out", tmp_path / "m.zarr", *QUICK, "--table", tmp_path / "t.csv")
    assert done.exit_code == 0, done.output
    found = read_search(load_model(tmp_path / "m.zarr"))
    assert found is not None
    lines = done.stdout.splitlines()
    (marked,) = (line for line in lines if "chosen" in line and line.split()[0] == "1")
    chosen = found.trials[found.selected]
    assert marked.split()[1:4] == [f"{chosen.lambda_v:.3g}", f"{chosen.lambda_w:.3g}", str(chosen.n_batches)]
    assert "It is fitted to all 300 rows" in done.stdout
    assert "t.csv" in lines[-1] or lines[-1].startswith("Note: ")
    assert "joint search: 3 settings with 3 folds each, 9 fits" in done.stderr
    log = [line for line in done.stderr.splitlines() if "  setting " in line]
    assert [line.split("  ")[1] for line in log] == [f"setting {number} of 3" for number in (1, 2, 3)]
    assert {re.findall("lambda_v ([^ ]+)", line)[0] for line in log} == {
        f"{trial.lambda_v:.3g}" for trial in found.trials
    }
    assert not (tmp_path / "m.zarr.run").exists()


def test_tune__model_is_that_of_a_fit_with_what_was_chosen(call: Call, example: Any, tuned: Path) -> None:
    chosen = json.loads((tuned / "said.json").read_text())["chosen"]
    done = call(
        "fit", example.data, "--out", tuned / "alone.zarr", "--recipe", "source", "--candidates", 20,
        "--tolerance", 1e-3, "--lambda-v",
        repr(chosen["lambda_v"]), "--batches", chosen["batches"], "--seed", chosen["seed"],
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert fingerprint_of(tuned / "alone.zarr") == fingerprint_of(tuned / "model.zarr")


def test_tune__repeated_evaluates_nothing_again(
    call: Call, example: Any, tuned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def evaluated(*_: object) -> Any:
        raise AssertionError("an evaluation that is on record")

    before = json_of("info", tuned / "run")
    monkeypatch.setattr(Objective, "__call__", evaluated)
    said = tune(call, example.data, tmp_path / "again.zarr", "--run-dir", tuned / "run")
    assert (said["resumed"], json.loads((tuned / "said.json").read_text())["resumed"]) == (True, False)
    assert read_search(said) == read_search(load_model(tuned / "model.zarr"))
    assert model_fingerprint(load_model(tmp_path / "again.zarr")) == model_fingerprint(load_model(tuned / "model.zarr"))
    after = json_of("info", tuned / "run")
    assert after["evaluations"] == before["evaluations"] > 0


@pytest.mark.slow
def test_tune__stopped_goes_on_to_the_same_model(
    call: Call, example: Any, tuned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, run = tmp_path / "m.zarr", tmp_path / "m.zarr.run"
    heard = []

    def stop(_: object, event: object) -> None:
        if isinstance(event, Progress):
            return
        heard.append(event)
        if len(heard) == 8:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(LogReporter, "hear", stop)
        done = call("tune", example.data, "--out", out, *QUICK)
    assert done.exit_code == 130
    halfway = json_of("info", run)
    assert 0 < halfway["evaluations"] < json_of("info", tuned / "run")["evaluations"]
    assert not halfway["finished"]
    calls = []
    plain = Objective.__call__

    def counted(self: Objective, theta: Any) -> Any:
        calls.append(theta)
        return plain(self, theta)

    with monkeypatch.context() as patch:
        patch.setattr(Objective, "__call__", counted)
        said = tune(call, example.data, out)
    whole = json_of("info", tuned / "run")
    assert (
        len(calls)
        == whole["evaluations"] + sum(fit["evaluations"] for fit in whole["final_fits"]) - halfway["evaluations"]
    )
    assert said["search"] == json.loads((tuned / "said.json").read_text())["search"]
    assert fingerprint_of(out) == fingerprint_of(tuned / "model.zarr")
    assert not run.exists()


@pytest.mark.slow
def test_tune__killed_goes_on_to_the_same_model(call: Call, example: Any, tuned: Path, tmp_path: Path) -> None:
    out, run = tmp_path / "m.zarr", tmp_path / "run"
    with start_command("tune", example.data, "--out", out, *QUICK, "--run-dir", run, "--threads", 1) as process:
        try:
            # In the middle of the search: a second setting has evaluations.
            wait_until(lambda: len({log.parent for log in run.rglob("*.log")}) >= 4, process)
        finally:
            process.kill()
    assert process.returncode == -signal.SIGKILL, "it was done before it could be killed"
    assert not out.exists()
    halfway, whole = json_of("info", run), json_of("info", tuned / "run")
    assert 0 < halfway["evaluations"] < whole["evaluations"]
    said = tune(call, example.data, out, "--run-dir", run)
    assert read_search(said) == read_search(load_model(tuned / "model.zarr"))
    assert fingerprint_of(out) == fingerprint_of(tuned / "model.zarr")
    after = json_of("info", run)
    assert after["evaluations"] == whole["evaluations"]
    assert after["settings"] == whole["settings"]


@pytest.mark.slow
def test_tune__is_done_when_all_it_makes_is_there(call: Call, example: Any, tuned: Path, tmp_path: Path) -> None:
    arguments = (call, example.data, tmp_path / "m.zarr", "--run-dir", tmp_path / "run", "--table", tmp_path / "t.csv")
    shutil.copytree(tuned / "run", tmp_path / "run")
    tune(*arguments)
    written = (tmp_path / "m.zarr" / "zarr.json").stat()
    # As a job does that was lost after its last word was written and before it had ended.
    tune(*arguments)
    assert os.path.samestat(written, (tmp_path / "m.zarr" / "zarr.json").stat())
    (tmp_path / "t.csv").write_text("another table\n")
    refused = call("tune", example.data, "--out", tmp_path / "m.zarr", *QUICK, *arguments[3:])
    check_failed(refused, 1, "exists", tmp_path / "t.csv", "--overwrite")
    assert (tmp_path / "t.csv").read_text() == "another table\n"
    tune(*arguments, "--overwrite")
    assert (tmp_path / "t.csv").read_text() == (tuned / "trials.csv").read_text()


@pytest.mark.parametrize("what", ["model", "table"])
def test_tune__existing_output_is_refused_before_any_work(
    what: str, call: Call, example: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begun(*_: object, **__: object) -> Any:
        raise AssertionError("the search was begun")

    monkeypatch.setattr(tuning_module, "tuned", begun)
    (tmp_path / "t.csv").write_text("mine\n")
    out = example.model if what == "model" else tmp_path / "m.zarr"
    table = ("--table", tmp_path / "t.csv") if what == "table" else ()
    done = call("tune", example.data, "--out", out, *QUICK, *table)
    check_failed(done, 1, "exists", out if what == "model" else tmp_path / "t.csv", "--overwrite")
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]


@pytest.mark.slow
def test_tune__config_gives_the_other_settings(call: Call, example: Any, tmp_path: Path) -> None:
    config = tmp_path / "settings.yaml"
    config.write_text("lambda-w: 1e-5\nalpha-v: 0.5\ncandidates: 99\n")
    said = tune(call, example.data, tmp_path / "m.zarr", "--config", config, "--max-batches", 1, "--trials", 2)
    used = load_model(tmp_path / "m.zarr").provenance["fits"][-1]["config"]
    assert (used["lambda_w"], used["alpha_v"], used["n_candidates"]) == (1e-5, 0.5, 20)
    assert {trial["lambda_w"] for trial in said["search"]["trials"]} == {1e-5}


def test_tune__more_folds_than_rows_of_a_class(call: Call, tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("x,y\n" + "".join(f"{n},{'rare' if n < 4 else 'common'}\n" for n in range(60)))
    assert call("ingest", tmp_path / "table.csv", "--target", "y", "--out", tmp_path / "d.zarr").exit_code == 0
    done = call("tune", tmp_path / "d.zarr", "--out", tmp_path / "m.zarr", "--folds", 5)
    check_failed(done, 1, "too-few", "'rare' has 4 rows", "5 folds", "4 folds")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["d.zarr", "table.csv"]


@pytest.mark.slow
def test_tune__too_little_memory_is_refused_with_what_would_do(call: Call, tmp_path: Path) -> None:
    assert call("sample-data", "blobs", "--rows", 400, "--features", 3000, "--out", tmp_path / "d.zarr").exit_code == 0
    done = call("tune", tmp_path / "d.zarr", "--out", tmp_path / "m.zarr", "--memory-limit", "300MB")
    check_failed(done, 1, "over-memory", "memory limit", "--memory-limit")
    assert [path.name for path in tmp_path.iterdir()] == ["d.zarr"]


@pytest.mark.slow
def test_tune__keeps_groups_together_and_says_so(call: Call, tmp_path: Path) -> None:
    # Each patient's rows lie close together, and the class is the patient's: it can be known again, not predicted.
    random = np.random.default_rng(0)
    places, classes = random.normal(size=(30, 2)), random.permutation(30) % 2
    lines = [
        f"{u:.4f},{v:.4f},{patient},{'ab'[classes[patient]]}\n"
        for patient in range(30)
        for u, v in places[patient] + random.normal(scale=0.01, size=(8, 2))
    ]
    (tmp_path / "table.csv").write_text("u,v,patient,y\n" + "".join(lines))
    lowest, few = {}, ("--candidates", 90, "--trials", 2, "--max-batches", 1, "--draws", 1)
    for role in ("--group", "--drop"):
        data = tmp_path / f"{role[2:]}.zarr"
        made = call("ingest", tmp_path / "table.csv", "--target", "y", role, "patient", "--out", data)
        assert made.exit_code == 0, made.output
        done = call("tune", data, "--out", tmp_path / f"m{role}.zarr", *QUICK, *few, "--json")
        assert done.exit_code == 0, done.output
        said = json.loads(done.stdout)
        assert said["group"] == ("patient" if role == "--group" else None)
        assert ("rows of the same 'patient' stay together" in done.stderr) == (role == "--group")
        trials = [trial for trial in said["search"]["trials"] if trial["n_batches"]]
        lowest[role] = min(sum(trial["fold_losses"]) / 3 for trial in trials)
    assert lowest["--drop"] < 0.4
    assert lowest["--group"] > 0.6


def test_tune__names_the_ranges_that_may_be_too_narrow(call: Call, example: Any, tmp_path: Path) -> None:
    said = tune(
        call, example.data, tmp_path / "m.zarr", "--lambda-v-range", 1e-3, 1e3, "--trials", 2, "--max-batches", 1
    )
    assert len(said["notes"]) == 2
    assert "--max-batches" in said["notes"][0]
    assert "the smallest that was tried; widen --lambda-v-range" in said["notes"][1]


def test_tune__says_that_nothing_was_learnt(call: Call, example: Any, tmp_path: Path) -> None:
    said = tune(call, example.data, tmp_path / "m.zarr", "--lambda-v-range", 1e4, 1e5, "--trials", 2)
    assert said["chosen"]["batches"] == 0
    (note,) = said["notes"]
    assert "the shares of the classes alone" in note


def test_info__shows_the_search_of_a_model(call: Call, tuned: Path) -> None:
    found = read_search(load_model(tuned / "model.zarr"))
    assert found is not None
    shown = call("info", tuned / "model.zarr").stdout
    assert f"{found.trials[found.selected].mean:.5f}" in shown
    assert f"{found.strategy} search, chosen by: {found.rule}" in shown


def test_info__run_of_a_search(call: Call, tuned: Path) -> None:
    found = json_of("info", tuned / "run")
    result = read_search(load_model(tuned / "model.zarr"))
    assert result is not None
    assert found["kind"] == "search"
    assert found["finished"]
    assert (found["fits"], found["fits_begun"]) == (9, 9)
    means = {(trial.lambda_v, trial.n_batches): trial.mean for trial in result.trials if trial.n_batches}
    recorded = {
        (entry["lambda_v"], n_batches): loss
        for entry in found["settings"]
        for n_batches, loss in enumerate(entry["losses"], start=1)
    }
    assert recorded == pytest.approx(means)
    assert sum(entry["evaluations"] for entry in found["settings"]) == found["evaluations"]
    assert found["final_fits"][0]["of_batches"] == result.trials[result.selected].n_batches
    shown = call("info", tuned / "run").stdout
    assert "9 of 9 have recorded evaluations" in shown
    assert "Final fit" in shown
    fit = next((tuned / "run" / "fits").iterdir())
    assert json_of("info", fit)["kind"] == "run"


def test_info__run_of_a_search_that_has_not_begun(call: Call, tuned: Path, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text((tuned / "run" / "run.json").read_text())
    found = json_of("info", tmp_path / "run")
    assert (found["fits"], found["evaluations"], found["final_fits"], found["finished"]) == (0, 0, [], False)
    done = call("info", tmp_path / "run")
    assert done.exit_code == 0, done.output
    assert "not finished: the same command continues it" in done.stdout
    # A fit that has its settings and no evaluation yet.
    settings = {"config": {"lambda_v": 1e-3, "lambda_w": 1e-8}, "fold": 0}
    RunDirectory.open(tmp_path / "run" / "fits" / "first", settings)
    found = json_of("info", tmp_path / "run")
    assert (found["fits"], found["fits_begun"], found["last_recorded"]) == (1, 0, None)


def test_info__run_of_a_search_with_other_things_among_its_fits(call: Call, tuned: Path, tmp_path: Path) -> None:
    shutil.copytree(tuned / "run", tmp_path / "run")
    fits = tmp_path / "run" / "fits"
    before = json_of("info", tmp_path / "run")
    (fits / "empty").mkdir()
    (fits / "file").touch()
    for number, penalty in enumerate(["1e-3", 10**400, None, [1.0]]):
        RunDirectory.open(fits / f"odd-{number}", {"config": {"lambda_v": penalty, "lambda_w": 1e-8}, "fold": 0})
    assert json_of("info", tmp_path / "run") == {**before, "path": str(tmp_path / "run")}
    # A record that is torn is none: the fit computes it again.
    torn = next(fits.glob("*/batch-1-held-out.arrays"))
    torn.write_bytes(torn.read_bytes()[:-1])
    after = json_of("info", tmp_path / "run")["settings"]
    assert sorted(len(entry["losses"]) for entry in after)[0] == 0
    assert call("info", tmp_path / "run").exit_code == 0
