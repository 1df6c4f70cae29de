"""`protodask publish` and `protodask registry`, and references wherever a model is read."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.commands import check_failed
from typer.testing import Result

from protodask import FitConfig, fit, ingest, load_model
from protodask.errors import Code
from protodask.prototypes.persistence import model_fingerprint

Call = Callable[..., Result]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory, write_table: Callable[..., Path]) -> Path:
    """A folder with a dataset, two models of it, and the scores of both."""
    folder = tmp_path_factory.mktemp("registry")
    table = write_table(folder / "rows.csv")
    data = ingest(
        table,
        folder / "data.zarr",
        target="outcome",
        categorical=["colour"],
        ordinal={"size": ("small", "medium", "large")},
    )
    for number in (1, 2):
        fit(data, FitConfig.of("source", n_candidates=30, tolerance=1e-2, seed=number)).model.save(
            folder / f"m{number}.zarr"
        )
        scores = {"kind": "scores", "log_loss": 0.5 / number, "rows": 300}
        (folder / f"s{number}.json").write_text(json.dumps(scores))
    return folder


@pytest.fixture
def registry(models: Path, tmp_path: Path, call: Call) -> str:
    """A registry with both models; the second is the champion."""
    place = str(tmp_path / "models")
    for number in (1, 2):
        done = call(
            *("publish", models / f"m{number}.zarr", "--registry", place, "--metrics", models / f"s{number}.json"),
            *("--attach", f"scores={models / f's{number}.json'}", "--note", f"the {number}."),
        )
        assert done.exit_code == 0, done.output
    return place


def result(call: Call, *arguments: object) -> Any:
    done = call(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_publish__says_what_it_did(models: Path, tmp_path: Path, call: Call) -> None:
    place = tmp_path / "models"
    publish = ("publish", models / "m1.zarr", "--registry", place)
    first = call(*publish)
    assert first.exit_code == 0, first.output
    assert "Version 1 of the registry" in first.stdout
    assert "is new. It is champion." in first.stdout
    again = call(*publish)
    assert "is this model already; none was added. It is champion." in again.stdout
    other = call("publish", models / "m2.zarr", "--registry", place, "--retain", "1")
    assert "It is champion, in place of version 1." in other.stdout
    found = result(call, "publish", models / "m2.zarr", "--registry", place, "--alias", "trial", "--retain", "1")
    assert (found["kind"], found["version"], found["added"], found["alias"]) == ("publish", 3, True, "trial")
    assert (found["replaced"], found["removed"], found["model"]) == (None, [], "model")
    assert found["fingerprint"] == model_fingerprint(load_model(models / "m2.zarr"))


@pytest.mark.parametrize(
    ("options", "exit_code", "code", "facts"),
    [
        (("--alias", "7"), 2, "bad-setting", ["'7'", "alias"]),
        (("--attach", "x"), 2, "bad-setting", ["--attach x", "profile=profile.json"]),
        (("--attach", "a/b=x"), 2, "bad-setting", ["'a/b'", "file"]),
        (("--attach", "a=x", "--attach", "a=y"), 2, "named-twice", ["'a'"]),
        (("--attach", "a=missing"), 1, "not-found", ["missing"]),
        (("--metrics", "missing"), 1, "not-found", ["missing"]),
        (("--metrics", __file__), 1, "unreadable", [__file__, "`protodask evaluate`"]),
        (("--metrics", os.path.dirname(__file__)), 1, "wrong-kind", ["is a folder"]),
    ],
)
def test_publish__wrong_use(
    models: Path, tmp_path: Path, call: Call, options: tuple[str, ...], exit_code: int, code: Code, facts: list[str]
) -> None:
    done = call("publish", models / "m1.zarr", "--registry", tmp_path / "models", *options)
    check_failed(done, exit_code, code, *facts)
    assert not (tmp_path / "models").exists()


def test_publish__retains_one_version_at_least(models: Path, tmp_path: Path, call: Call) -> None:
    done = call("publish", models / "m1.zarr", "--registry", tmp_path / "models", "--retain", "0")
    assert done.exit_code == 2, done.output
    assert re.search(r"'--retain'.*(>=|equal to )1", done.stderr, re.DOTALL)
    assert not (tmp_path / "models").exists()


def test_registry_list__shows_versions_and_moves(registry: str, call: Call) -> None:
    done = call("registry", "list", registry)
    lines = [line.split() for line in done.stdout.splitlines()]
    assert lines[0] == ["version", "aliases", "published", "kind", "model", "data", "log_loss", "note"]
    assert lines[1][:2] == ["1", "previous"]
    assert lines[2][:2] == ["2", "champion"]
    assert lines[2][-3:] == ["0.25", "the", "2."]
    assert lines[6][2:] == ["previous", "1", "champion", "was", "moved"]
    found = result(call, "registry", "list", registry)
    assert found["aliases"] == {"champion": 2, "previous": 1}
    assert [version["version"] for version in found["versions"]] == [1, 2]
    assert [(move["alias"], move["before"], move["after"]) for move in found["moves"]] == [
        ("champion", None, 1),
        ("champion", 1, 2),
        ("previous", None, 1),
    ]


def test_registry_list__names_what_is_unreadable(registry: str, call: Call) -> None:
    before = result(call, "registry", "list", registry)["versions"]
    record = Path(before[0]["path"]).parent / "version.json"
    record.unlink()
    done = call("registry", "list", registry)
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[1].split()[:2] == ["1", "previous"]
    assert lines[1].split()[-1] == "(unreadable)"
    assert lines[2].split()[-3:] == ["0.25", "the", "2."]
    assert lines[4].startswith(f"Version 1 is unreadable. There is no file {record}.")
    first, second = result(call, "registry", "list", registry)["versions"]
    assert second == before[1]
    assert str(record) in first["unreadable"]
    check_failed(call("registry", "show", registry, "1"), 1, "damaged", record)


def test_registry_show__tells_all_of_a_version(registry: str, models: Path, call: Call) -> None:
    done = call("registry", "show", registry)
    assert "note           the 2." in done.stdout
    assert "log_loss   0.25" in done.stdout
    assert "n_candidates    30" in done.stdout
    found = result(call, "registry", "show", registry, "1")
    assert found["metrics"] == {"kind": "scores", "log_loss": 0.5, "rows": 300}
    assert found["settings"]["seed"] == 1
    assert Path(found["files"]["scores"]).read_text() == (models / "s1.json").read_text()
    missing = call("registry", "show", registry, "best")
    check_failed(missing, 1, "unknown-name", registry, "'best'", "champion, previous")


def test_registry_diff__compares(registry: str, call: Call) -> None:
    done = call("registry", "diff", registry)
    assert "Versions 1 and 2 are different models." in done.stdout
    assert ["log_loss", "0.5", "0.25", "-0.25"] in [line.split() for line in done.stdout.splitlines()]
    found = result(call, "registry", "diff", registry, "2", "1")
    assert (found["first"], found["second"], found["same_model"]) == (2, 1, False)
    assert {"name": "log_loss", "first": 0.25, "second": 0.5, "rise": 0.25} in found["metrics"]
    assert {"name": "seed", "first": 2, "second": 1, "rise": -1} in found["settings"]
    assert "are the same model" in call("registry", "diff", registry, "2", "champion").stdout


def test_registry__promotes_rolls_back_and_prunes(registry: str, models: Path, call: Call) -> None:
    assert "champion is now version 1; it was version 2." in call("registry", "rollback", registry).stdout
    assert result(call, "registry", "rollback", registry, "--why", "again") == {
        "kind": "move",
        "alias": "champion",
        "from": 1,
        "to": 2,
        "aliases": {"champion": 2, "previous": 1},
    }
    moves = result(call, "registry", "list", registry)["moves"]
    assert [move["why"] for move in moves if move["alias"] == "champion"] == [
        "the 1.",
        "the 2.",
        "rolled back",
        "again",
    ]
    assert "trial is now version 1." in call("registry", "promote", registry, "trial", "previous").stdout
    assert "trial is version 1 already" in call("registry", "promote", registry, "trial", "1").stdout
    assert call("registry", "promote", registry, "trial", "2", "--why", "to try it").exit_code == 0
    assert call("registry", "promote", registry, "trial", "1").exit_code == 0
    moves = result(call, "registry", "list", registry)["moves"]
    assert [move["why"] for move in moves if move["alias"] == "trial"] == ["promoted", "to try it", "promoted"]
    for number in (1, 2, 1):
        call("publish", models / f"m{number}.zarr", "--registry", registry, "--note", "x")
    assert result(call, "registry", "prune", registry, "--keep", "1") == {
        "kind": "prune",
        "removed": [2, 3],
        "kept": [1, 4, 5],
    }
    assert "0 versions" in call("registry", "prune", registry, "--keep", "1").stdout
    check_failed(call("registry", "promote", registry, "7", "1"), 1, "bad-setting", "'7'")
    check_failed(call("registry", "promote", registry, "champion", "2"), 1, "unknown-name", registry, "Version 2")
    check_failed(call("registry", "list", models), 1, "not-found", models)


def test_rollback__without_a_former_champion(models: Path, tmp_path: Path, call: Call) -> None:
    call("publish", models / "m1.zarr", "--registry", tmp_path / "models")
    done = call("registry", "rollback", tmp_path / "models")
    check_failed(done, 1, "nothing-yet", tmp_path / "models", "champion")


@pytest.mark.slow
def test_references__work_wherever_a_model_is_read(registry: str, models: Path, tmp_path: Path, call: Call) -> None:
    data = models / "data.zarr"
    champion = f"{registry}@champion"
    fingerprint = model_fingerprint(load_model(models / "m2.zarr"))
    assert result(call, "info", champion)["fingerprint"] == fingerprint
    assert result(call, "info", f"{registry}@1")["fingerprint"] == model_fingerprint(load_model(models / "m1.zarr"))
    assert (
        result(call, "evaluate", champion, data)["log_loss"]
        == result(call, "evaluate", models / "m2.zarr", data)["log_loss"]
    )
    assert result(call, "predict", champion, data, "--out", tmp_path / "p.zarr")["rows"] == 300
    assert result(call, "info", tmp_path / "p.zarr")["model"] == fingerprint
    assert result(call, "calibrate", champion, data, "--out", tmp_path / "c.zarr")["kind"] == "calibrate"
    assert result(call, "explain", champion, data, "--row", "0")
    assert result(call, "export", champion, "--out", tmp_path / "x.csv")
    more = (
        "fit",
        data,
        "--out",
        tmp_path / "more.zarr",
        "--start",
        champion,
        "--recipe",
        "source",
        "--candidates",
        "10",
        "--tolerance",
        "0.1",
    )
    assert result(call, *more)["batches"] == 2
    assert result(call, "report", champion, data, "--out", tmp_path / "r.html")["rows"] == 300
    missing = call("evaluate", f"{registry}@best", data)
    check_failed(missing, 1, "unknown-name", registry, "'best'", "champion, previous")
    refused = call("fit", data, "--out", champion, "--overwrite", "--candidates", "10")
    check_failed(refused, 1, "not-local", champion, "`protodask publish`")
    check_failed(call("info", registry), 1, "wrong-kind", registry, "`protodask registry list`")


def test_registry_unalias__leaves_the_version(registry: str, call: Call) -> None:
    assert call("registry", "promote", registry, "trial", "1").exit_code == 0
    done = call("registry", "unalias", registry, "trial", "--why", "over")
    assert done.exit_code == 0, done.output
    assert "trial names no version now; it was version 1" in done.stdout
    found = result(call, "registry", "list", registry)
    assert found["aliases"] == {"champion": 2, "previous": 1}
    assert [version["version"] for version in found["versions"]] == [1, 2]
    assert {**found["moves"][-1], "time": ""} == {
        "time": "", "alias": "trial", "before": 1, "after": None, "why": "over"
    }  # fmt: skip
    again = call("registry", "unalias", registry, "trial")
    check_failed(again, 1, "unknown-name", "'trial'", "champion")


def test_registry_remove__is_of_a_version_that_no_alias_names(registry: str, call: Call) -> None:
    refused = call("registry", "remove", registry, "1")
    check_failed(refused, 1, "settings-conflict", "Version 1", "previous", "`protodask registry unalias`")
    assert call("registry", "unalias", registry, "previous").exit_code == 0
    found = result(call, "registry", "remove", registry, "1")
    assert (found["removed"], found["kept"]) == ([1], [2])
    gone = call("registry", "show", registry, "1")
    check_failed(gone, 1, "unknown-name", "Version 1", "was removed")
    assert load_model(f"{registry}@champion").n_prototypes
