"""`protodask gate`."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.commands import check_failed, json_of

from protodask.errors import Code

Call = Callable[..., Any]


@pytest.fixture
def scores(call: Call, example: Any, tmp_path: Path) -> Path:
    out = tmp_path / "scores.json"
    assert call("evaluate", example.model, example.data, "--out", out).exit_code == 0
    return out


def other_model(call: Call, example: Any, folder: Path, *options: str) -> tuple[Path, Path]:
    """The table of the example as a dataset of other columns, and a model of that."""
    data, model = folder / "data.zarr", folder / "model.zarr"
    made = call("ingest", example.table, "--out", data, "--target", "outcome", *options)
    assert made.exit_code == 0, made.output
    assert call("fit", data, "--out", model, "--recipe", "source", "--candidates", 10).exit_code == 0
    return data, model


def test_gate__says_yes_and_no_to_figures(call: Call, scores: Path) -> None:
    yes = call("gate", "--results", scores, "--limit", "accuracy>=0.5", "--limit", "confusion.0.0>=1")
    assert yes.exit_code == 0, yes.output
    assert "The gate says yes." in yes.stdout
    assert "All 2 figures are within their limits." in yes.stdout
    no = call("gate", "--results", scores, "--limit", "accuracy>=0.5", "--limit", "log_loss<=0.001")
    assert no.exit_code == 3
    assert "The gate says no." in no.stdout
    assert "above its largest value 0.001." in no.stdout


def test_gate__writes_its_answer_and_may_accept_a_no(call: Call, scores: Path, tmp_path: Path) -> None:
    out = tmp_path / "answer.json"
    found = json_of("gate", "--results", scores, "--limit", "no.such<=1", "--accept", "--out", out)
    assert found == json.loads(out.read_text())
    assert (found["kind"], found["passed"], found["accepted"]) == ("gate", False, True)
    assert found["figures"] == [{"name": "no.such", "value": None, "least": None, "most": 1.0, "passed": False}]
    again = call("gate", "--results", scores, "--limit", "no.such<=1", "--out", out)
    check_failed(again, 1, "exists", out, "--overwrite")
    yes = call("gate", "--results", scores, "--limit", "accuracy>=0.5", "--accept", "--json")
    assert (yes.exit_code, json.loads(yes.stdout)["accepted"]) == (0, False), "there was no no to accept"


def test_gate__keeps_the_champion_unless_the_challenger_is_better(call: Call, example: Any, tmp_path: Path) -> None:
    weak = tmp_path / "weak.zarr"
    assert (
        call("fit", example.data, "--out", weak, "--batches", 1, "--recipe", "source", "--candidates", 3).exit_code == 0
    )
    better = call("gate", "--model", example.model, "--champion", weak, "--data", example.data, "--json")
    assert better.exit_code == 0, better.output
    found = json.loads(better.stdout)["comparison"]
    assert found["rows"] == 300
    assert 0 < found["gain_low"] < found["gain"] == pytest.approx(found["champion_loss"] - found["challenger_loss"])
    for share, code in ((0.9, 0), (1.1, 3)):  # it is the lower end that has to be above, not the gain
        margin = share * found["gain_low"]
        assert margin < found["gain"]
        asked = call("gate", "--model", example.model, "--champion", weak, "--data", example.data, "--margin", margin)
        assert asked.exit_code == code, asked.output
    table = call("gate", "--model", example.model, "--champion", weak, "--data", example.table, "--json")
    assert json.loads(table.stdout)["comparison"] == found | {"data": str(example.table)}
    lines = example.table.read_text().splitlines()
    wide = tmp_path / "wide.csv"
    wide.write_text("\n".join([lines[0] + ",times,note", *(f"{line},{n % 2},x" for n, line in enumerate(lines[1:]))]))
    half = call(
        "gate", "--model", example.model, "--champion", weak, "--data", wide, "--weight", "times", "--drop", "note",
        "--json",
    )  # fmt: skip
    assert json.loads(half.stdout)["comparison"]["rows"] == 150
    worse = call("gate", "--model", weak, "--champion", example.model, "--data", example.data)
    assert worse.exit_code == 3
    assert "not above the margin of 0" in worse.stdout
    same = call("gate", "--model", example.model, "--champion", example.model, "--data", example.data)
    assert same.exit_code == 3, "a model is not better than itself"
    newest = call(
        "gate", "--model", example.model, "--champion", weak, "--data", example.data, "--newest", 120, "--json"
    )
    assert json.loads(newest.stdout)["comparison"]["rows"] == 120


def test_gate__refuses_models_that_look_at_other_columns(call: Call, example: Any, tmp_path: Path) -> None:
    data, model = other_model(call, example, tmp_path, "--drop", "colour", "--ordinal", "size=small,medium,large")
    done = call("gate", "--model", model, "--champion", example.model, "--data", data)
    check_failed(done, 1, "columns-differ", "lacks colour=blue, colour=green, colour=red")
    assert "besides" not in done.stderr
    done = call("gate", "--model", example.model, "--champion", model, "--data", example.data)
    check_failed(done, 1, "columns-differ", "has colour=blue, colour=green, colour=red besides")
    assert "lacks" not in done.stderr
    shutil.rmtree(model)
    gone = call("gate", "--model", example.model, "--champion", model, "--data", example.data)
    check_failed(gone, 1, "not-found", model)  # a place with a slip in it is no champion that is not there yet


@pytest.mark.parametrize(
    ("arguments", "code", "facts"),
    [
        ([], "setting-missing", ["results", "model, champion and data"]),
        (["--results", "x.json"], "setting-missing", ["x.json", "--limit"]),
        (["--limit", "a<=1"], "setting-missing", ["limits", "--results"]),
        (["--results", "x.json", "--limit", "a<1"], "bad-setting", ["'a<1'", "accuracy>=0.8"]),
        (
            ["--results", "x.json", "--limit", "a>=2", "--limit", "a<=1"],
            "settings-conflict",
            ["'a'", "at least 2", "at most 1"],
        ),
        (["--model", "m", "--data", "d"], "setting-missing", ["champion is missing"]),
        (
            ["--model", "m", "--champion", "c", "--data", "d", "--confidence", "1"],
            "bad-setting",
            ["confidence", "1.0", "between 0 and 1"],
        ),
        (
            ["--model", "m", "--champion", "c", "--data", "d", "--draws", "3"],
            "bad-setting",
            ["draws", "3", "100 to 100,000"],
        ),
        (["--model", "m", "--champion", "c", "--data", "d", "--newest", "0"], "bad-setting", ["newest", "0", "1"]),
        (["--model", "m", "--champion", "c", "--data", "d", "--margin", "nan"], "bad-setting", ["margin", "nan"]),
    ],
)
def test_gate__wrong_use(arguments: list[str], code: Code, facts: list[str], call: Call) -> None:
    done = call("gate", *arguments)
    check_failed(done, 2, code, *facts)


def test_gate__of_a_registry_without_a_champion_says_yes(call: Call, example: Any, tmp_path: Path) -> None:
    alias = f"{tmp_path}/models@champion"
    first = call("gate", "--model", example.model, "--champion", alias, "--data", example.data)
    assert first.exit_code == 0, first.output
    assert "There is no champion at" in first.stdout
    profile = tmp_path / "profile.json"
    assert call("monitor", example.model, example.data, "--out", profile).exit_code == 0
    made = call("publish", example.model, "--registry", tmp_path / "models", "--attach", f"profile={profile}")
    assert made.exit_code == 0, made.output
    second = call("gate", "--model", example.model, "--champion", alias, "--data", example.data)
    assert second.exit_code == 3, "the champion is the same model"
    now = tmp_path / "now.json"
    done = call("monitor", alias, example.data, "--reference", f"{alias}:profile", "--out", now)
    assert done.exit_code == 0, done.output
    assert "Nothing changed" in done.stdout
    assert call("gate", "--results", f"{alias}:profile", "--limit", "log_loss.value<=5").exit_code == 0


@pytest.mark.slow
def test_gate__compares_on_classes_that_only_the_challenger_knows(call: Call, example: Any, tmp_path: Path) -> None:
    lines = example.table.read_text().splitlines()
    table, data, model = tmp_path / "table.csv", tmp_path / "data.zarr", tmp_path / "model.zarr"
    table.write_text("\n".join([*lines[:241], *(f"{line.rpartition(',')[0]},middle" for line in lines[241:])]))
    made = call(
        "ingest", table, "--out", data, "--target", "outcome", "--categorical", "colour",
        "--ordinal", "size=small,medium,large",
    )  # fmt: skip
    assert made.exit_code == 0, made.output
    assert call("fit", data, "--out", model, "--recipe", "source", "--candidates", 40).exit_code == 0
    for place in (data, table):
        found = json_of("gate", "--model", model, "--champion", example.model, "--data", place)["comparison"]
        assert 0.2 * 13.8 < found["champion_loss"] < 0.2 * 13.82 + 0.7
    other = call("gate", "--model", example.model, "--champion", example.model, "--data", data)
    check_failed(other, 1, "columns-differ", data, "'middle'")


def test_gate__takes_whole_groups_of_rows_together(call: Call, example: Any, tmp_path: Path) -> None:
    lines = example.table.read_text().splitlines()
    table, data = tmp_path / "table.csv", tmp_path / "data.zarr"
    table.write_text("\n".join([f"{lines[0]},site", *(f"{line},{n % 20}" for n, line in enumerate(lines[1:]))]))
    made = call(
        "ingest", table, "--out", data, "--target", "outcome", "--group", "site", "--categorical", "colour",
        "--ordinal", "size=small,medium,large",
    )  # fmt: skip
    assert made.exit_code == 0, made.output
    for place, blocks in ((data, "groups"), (example.data, "neighbouring rows")):
        done = call("gate", "--model", example.model, "--champion", example.model, "--data", place, "--json")
        assert json.loads(done.stdout)["comparison"]["blocks_of"] == blocks


def test_gate__refuses_a_model_with_categories_in_another_order(call: Call, example: Any, tmp_path: Path) -> None:
    data, model = other_model(
        call, example, tmp_path, "--categorical", "colour", "--ordinal", "size=large,medium,small"
    )
    done = call("gate", "--model", model, "--champion", example.model, "--data", data)
    check_failed(done, 1, "columns-differ", "'size' in another order than the champion")
