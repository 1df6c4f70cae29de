"""`protodask fit`."""

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from support.commands import check_failed, fingerprint_of, json_of

from protodask.cli import app
from protodask.engine import connect
from protodask.errors import Code
from protodask.pipeline.steps.training import CONFIG_NAMES
from protodask.pipeline.work.settings import SETTINGS
from protodask.prototypes import FitConfig

Call = Callable[..., Any]

QUICK = ("--recipe", "source", "--candidates", "20", "--max-iterations", "5")


def test_fit__help_states_the_real_defaults() -> None:
    command: Any = typer.main.get_command(app)
    options = {option.name: option for option in command.commands["fit"].params}
    defaults, by_rows = FitConfig(), ("candidates", "most_candidates", "average_draws", "precision")
    assert options["recipe"].show_default == "averaged"
    assert [options[name].show_default for name in by_rows] == [
        "by the numbers of rows and classes, 500 to 8,000",
        "4,000, or fewer of more than 830 features, where candidates are not given and rows are fewer than 12,288",
        "4; 2 of more than 2,000 rows; 1 of more than 48,000, of many classes of fewer",
        "float64 up to 500 rows, float32 beyond",
    ]
    for name in SETTINGS:
        if name in ("recipe", *by_rows):
            continue
        shown, real = options[name].show_default, getattr(defaults, CONFIG_NAMES.get(name, name))
        match real:
            case bool():
                assert (shown.replace("-", "_") == name) == real
            case str():
                assert shown == real
            case _:
                assert float(shown) == pytest.approx(real, rel=1e-3)


def test_fit__reports_each_batch_and_the_model(call: Call, example: Any, tmp_path: Path) -> None:
    done = call("fit", example.data, "--out", tmp_path / "model.zarr", "--batches", 2, *QUICK, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert [record["batch"] for record in found["history"]] == [1, 2]
    assert found["prototypes"] == sum(record["prototypes"] for record in found["history"])
    lines = done.stderr.splitlines()
    for record in found["history"]:
        (line,) = (line for line in lines if f"round {record['batch']}  {record['status']}" in line)
        for part in (
            f"iterations {record['iterations']}",
            f"evaluations {record['evaluations']}",
            f"objective {record['value']:.6g}",
            f"gradient {record['gradient_norm']:.2g}",
            f"features {record['active_features']}",
            f"prototypes {record['prototypes']}",
        ):
            assert part in line


def test_fit__says_where_its_defaults_were_guesses(call: Call, example: Any, tmp_path: Path) -> None:
    for options, said in (((), True), (("--lambda-v", "0.1"), False)):
        done = call("fit", example.data, "--out", tmp_path / "model.zarr", *QUICK, *options, "--overwrite")
        assert done.exit_code == 0, done.output
        assert ("`protodask tune`" in done.stdout) == said


@pytest.mark.slow
def test_fit__with_feature_weights_by_class(call: Call, example: Any, tmp_path: Path) -> None:
    model, page, scores = tmp_path / "model.zarr", tmp_path / "page.html", tmp_path / "scores.zarr"
    done = call("fit", example.data, "--out", model, "--feature-weights", "class", "--batches", 2, *QUICK, "--json")
    assert done.exit_code == 0, done.output
    assert [record["batch"] for record in json.loads(done.stdout)["history"]] == [1, 2]
    found = json_of("info", model)
    assert found["rounds"] == [2, 2]
    assert [batch["class"] for batch in found["batches"]] == ["high", "low"] * 2
    assert found["provenance"]["fits"][0]["config"]["feature_weights"] == "class"
    told = call("info", model).stdout
    assert "4, trained in 2 rounds" in told
    assert f"batch 2: {found['batches'][1]['prototypes']} prototypes of class low" in told
    # All that looks into a model takes its batches as they come.
    assert call("report", model, example.data, "--out", page).exit_code == 0
    assert "Batch 2, low" in page.read_text()
    for command in (("explain", model, example.data, "--row", 7), ("export", model, "--out", tmp_path / "table.csv")):
        assert call(*command).exit_code == 0
    assert call("predict", model, example.data, "--out", scores, "--batches", 2).exit_code == 0
    check_failed(call("evaluate", model, example.data, "--batches", 3), 1, "bad-setting", "2 batches", "together")
    grown = tmp_path / "grown.zarr"
    more = call("fit", example.data, "--out", grown, "--start", model, "--feature-weights", "class", *QUICK)
    assert more.exit_code == 0, more.output
    assert json_of("info", grown)["rounds"] == [2, 2, 2]


def test_fit__not_converging_is_one_line(call: Call, example: Any, tmp_path: Path) -> None:
    done = call("fit", example.data, "--out", tmp_path / "model.zarr", *QUICK)
    assert done.exit_code == 0
    (line,) = (line for line in done.stderr.splitlines() if "Warning" in line)
    assert "--max-iterations" in line
    assert "training.py" not in done.stderr


def test_fit__command_line_wins_over_config(call: Call, example: Any, tmp_path: Path) -> None:
    config = tmp_path / "settings.yaml"
    config.write_text(
        "recipe: source\ncandidates: 30\nmax-iterations: 3\nlambda_v: 1e-2\nn_batches: 1\nstandardize: false\n"
    )
    done = call(
        "fit", example.data, "--out", tmp_path / "model.zarr", "--run-dir", tmp_path / "run", "--config", config,
        "--max-iterations", 4, "--seed", 7,
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    used = json_of("info", tmp_path / "run")["config"]
    wanted = FitConfig.of("source", n_candidates=30, max_iterations=4, lambda_v=0.01, standardize=False, seed=7)
    assert used == wanted.as_dict()


@pytest.mark.parametrize(
    ("text", "code", "facts"),
    [
        (
            "candidats: 30\n",
            "unknown-key",
            ["'candidats'", "candidates", "batches, lambda-v, recipe"],
        ),
        ("candidates: many\n", "bad-setting", ["candidates", "'many'"]),
        ("candidates: 2.5\n", "bad-setting", ["candidates", "2.5"]),
        ("standardize: 1\n", "bad-setting", ["standardize", "true or false"]),
        ("precision: float16\n", "unknown-name", ["precision", "'float16'", "float32 or float64"]),
        ("batches: 1\nn_batches: 2\n", "named-twice", ["batches"]),
        ("seed: 1\nseed: 2\n", "unreadable", ["'seed'", "second time, line 2"]),
        ("- 1\n", "wrong-kind", ["`name: value`"]),
        ("alpha-v: [\n", "unreadable", ["line 2"]),
        ("alpha-v: 2\n", "bad-setting", ["--alpha-v", "2.0", "0 to 1"]),
    ],
)
def test_fit__bad_config(text: str, code: Code, facts: list[str], call: Call, example: Any, tmp_path: Path) -> None:
    config = tmp_path / "settings.yaml"
    config.write_text(text)
    done = call("fit", example.data, "--out", tmp_path / "model.zarr", "--config", config)
    check_failed(done, 2, code, *facts)
    assert not (tmp_path / "model.zarr").exists()


def test_fit__missing_config(call: Call, example: Any, tmp_path: Path) -> None:
    done = call("fit", example.data, "--out", tmp_path / "model.zarr", "--config", tmp_path / "none.yaml")
    check_failed(done, 1, "not-found", tmp_path / "none.yaml")


def test_fit__start_adds_batches(call: Call, example: Any, tmp_path: Path) -> None:
    done = call("fit", example.data, "--out", tmp_path / "more.zarr", "--start", example.model, *QUICK, "--json")
    assert done.exit_code == 0, done.output
    before = json_of("info", example.model)["batches"]
    after = json_of("info", tmp_path / "more.zarr")["batches"]
    assert after[:2] == before
    assert len(after) == 3


def test_fit__existing_model_is_refused_before_training(call: Call, example: Any) -> None:
    before = fingerprint_of(example.model)
    done = call("fit", example.data, "--out", example.model, *QUICK)
    check_failed(done, 1, "exists", example.model, "--overwrite")
    assert "round 1" not in done.stderr
    assert fingerprint_of(example.model) == before


def test_fit__a_dataset_is_not_overwritten_by_a_model(call: Call, example: Any) -> None:
    done = call("fit", example.data, "--out", example.data, "--overwrite", *QUICK)
    check_failed(done, 2, "places-overlap", example.data)
    assert call("info", example.data).exit_code == 0


def test_fit__run_dir_is_continued(call: Call, example: Any, tmp_path: Path) -> None:
    arguments = (
        "fit",
        example.data,
        "--run-dir",
        tmp_path / "run",
        "--recipe",
        "source",
        "--candidates",
        20,
        "--max-iterations",
        8,
    )
    first, second = (call(*arguments, "--out", tmp_path / f"{name}.zarr") for name in ("one", "two"))
    assert (first.exit_code, second.exit_code) == (0, 0)
    assert re.search(r"training took [0-9.]+ s\.", first.stdout)
    assert re.search(r"training took [0-9.]+ s since it was taken up again\.", second.stdout)
    assert fingerprint_of(tmp_path / "one.zarr") == fingerprint_of(tmp_path / "two.zarr")
    other = call(*arguments, "--out", tmp_path / "three.zarr", "--seed", 9)
    check_failed(other, 1, "other-run", tmp_path / "run", "config.seed was 0 and is 9")


def test_fit__of_draws_says_how_long_it_took_and_not_each_of_them(call: Call, example: Any, tmp_path: Path) -> None:
    began = time.perf_counter()
    ended = call(
        "fit",
        example.data,
        "--out",
        tmp_path / "m",
        "--average-draws",
        4,
        "--candidates",
        20,
        "--max-iterations",
        8,
        "--json",
    )
    waited = time.perf_counter() - began
    found = json.loads(ended.stdout)
    assert len(found["history"]) == 4
    assert max(record["seconds"] for record in found["history"]) <= found["seconds"] <= waited


@pytest.mark.parametrize(
    ("options", "code", "facts"),
    [
        (("--scheduler", "tcp://127.0.0.1:1", "--workers", "2"), "settings-conflict", ["--scheduler and --workers"]),
        (("--threads", "2", "--workers", "2"), "settings-conflict", ["--threads", "--workers"]),
        (("--threads", "2", "--scheduler", "tcp://127.0.0.1:1"), "settings-conflict", ["--threads", "--scheduler"]),
        (
            ("--memory-limit", "1GiB", "--scheduler", "tcp://127.0.0.1:1"),
            "settings-conflict",
            ["--memory-limit", "--scheduler"],
        ),
        (("--scheduler", "tcp://10.0.0.1:8786"), "not-secure", ["tcp://10.0.0.1:8786", "tls://"]),
        (("--scheduler", "nowhere://x"), "bad-setting", ["'nowhere://x'", "tls://"]),
        (("--scheduler", "tcp://127.0.0.1:1", "--tls-ca", "ca.pem"), "setting-missing", ["--tls-cert and --tls-key"]),
        (("--tls-ca", "a", "--tls-cert", "b", "--tls-key", "c"), "settings-conflict", ["--scheduler", "--tls-ca"]),
        (("--insecure",), "settings-conflict", ["--scheduler", "--insecure"]),
        (("--insecure", "--scheduler", "tls://127.0.0.1:1"), "settings-conflict", ["tls://127.0.0.1:1", "insecure"]),
        (("--lambda-v", "-1"), "bad-setting", ["--lambda-v", "-1.0"]),
        (("--max-fraction", "1"), "bad-setting", ["--max-fraction", "1.0", "between 0 and 1"]),
    ],
)
def test_fit__wrong_use(
    options: tuple[str, ...], code: Code, facts: list[str], call: Call, example: Any, tmp_path: Path
) -> None:
    done = call("fit", example.data, "--out", tmp_path / "model.zarr", *options)
    check_failed(done, 2, code, *facts)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "named"), [(("--precision", "float16"), "float32"), (("--lambda_v", "1"), "--lambda")]
)
def test_fit__options_that_do_not_exist(
    options: tuple[str, ...], named: str, call: Call, example: Any, tmp_path: Path
) -> None:
    done = call("fit", example.data, "--out", tmp_path / "model.zarr", *options)
    assert done.exit_code == 2
    assert named in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_fit__unreachable_scheduler(call: Call, example: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "CONNECT_SECONDS", 1)
    address = "tcp://127.0.0.1:1"
    done = call("fit", example.data, "--out", tmp_path / "model.zarr", "--scheduler", address)
    check_failed(done, 1, "no-answer", address)
    assert list(tmp_path.iterdir()) == []


def test_fit__raw_table_is_sent_to_ingest(call: Call, example: Any, tmp_path: Path) -> None:
    done = call("fit", example.table, "--out", tmp_path / "model.zarr")
    check_failed(done, 1, "wrong-kind", example.table, "`protodask ingest`")


def test_fit__workers_and_threads_give_the_same_model(call: Call, example: Any, tmp_path: Path) -> None:
    arguments = ("fit", example.data, *QUICK)
    here = call(*arguments, "--out", tmp_path / "here.zarr", "--threads", 1, "--memory-limit", "500MB")
    there = call(*arguments, "--out", tmp_path / "there.zarr", "--workers", 1, "--memory-limit", "1GiB")
    assert here.exit_code == 0, here.output
    assert there.exit_code == 0, there.output
    assert fingerprint_of(tmp_path / "here.zarr") == fingerprint_of(tmp_path / "there.zarr")
