"""`protodask report`."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.commands import check_failed, json_of

Call = Callable[..., Any]


def test_report__writes_one_file_that_says_what_evaluate_says(example: Any, tmp_path: Path) -> None:
    out = tmp_path / "folder" / "report.html"
    found = json_of("report", example.model, example.data, "--out", out, "--title", "Is it <high>?")
    page = out.read_text(encoding="utf-8")
    assert "<title>Is it &lt;high&gt;?</title>" in page
    assert "the rows the model was trained on" in page
    assert str(tmp_path) not in page
    assert str(example.data.parent) not in page
    assert found["bytes"] == out.stat().st_size
    assert found["rows"] == 300
    assert found["drifted_features"] is None
    evaluated = json_of("evaluate", example.model, example.data)
    for name in ("log_loss", "accuracy", "balanced_accuracy", "brier_score", "roc_auc"):
        assert found[name] == pytest.approx(evaluated[name], rel=1e-6), name
    assert [path.name for path in out.parent.iterdir()] == ["report.html"]


@pytest.mark.slow
def test_report__of_raw_tables_measures_drift_from_the_training_data(
    call: Call, example: Any, write_table: Callable[..., Path], tmp_path: Path
) -> None:
    out, later = tmp_path / "report.html", write_table(tmp_path / "later.csv", 200, seed=3)
    lines = later.read_text().splitlines()
    later.write_text(
        "\n".join([lines[0], *(f"{float(line.split(',')[0]) + 6},{line.split(',', 1)[1]}" for line in lines[1:])])
    )
    done = call("report", example.model, later, "--training", example.data, "--out", out, "--batches", 1)
    assert done.exit_code == 0, done.output
    assert "1 feature drifted strongly" in done.stdout
    assert "open it in a browser" in done.stdout
    drifted = call(
        "report", example.model, example.data, "--drift", later, "--out", out, "--overwrite", "--json", "--threads", 1
    )
    assert json.loads(drifted.stdout)["drifted_features"] == 1
    assert "have no classes" in out.read_text(encoding="utf-8")


@pytest.mark.slow
def test_report__of_raw_tables_with_weights_and_columns_of_other_names(
    call: Call, example: Any, write_table: Callable[..., Path], tmp_path: Path
) -> None:
    out, tables = tmp_path / "report.html", [tmp_path / "a.csv", tmp_path / "b.csv"]
    for seed, table in enumerate(tables):
        header, *lines = write_table(table, 200, seed=seed + 5).read_text().splitlines()
        rows = [f"{line},{position % 3 + 1},{0.5 if position % 2 else 1},x" for position, line in enumerate(lines)]
        table.write_text("\n".join([f"{header.replace('outcome', 'was')},times,kept,note", *rows]) + "\n")
    roles = ("--target", "was", "--weight", "times", "--inclusion", "kept", "--drop", "note")
    found = json_of("report", example.model, tables[0], *roles, "--drift", tables[1], "--out", out)
    evaluated = json_of("evaluate", example.model, tables[0], *roles)
    plain = json.loads(
        call(
            "evaluate", example.model, tables[0], *roles[:2], *roles[6:], "--drop", "times", "--drop", "kept", "--json"
        ).stdout
    )
    assert found["log_loss"] == pytest.approx(evaluated["log_loss"], rel=1e-6)
    assert found["log_loss"] != pytest.approx(plain["log_loss"], rel=1e-6)
    assert found["drifted_features"] == 0
    refused = call("report", example.model, example.data, "--weight", "times", "--out", out, "--overwrite")
    check_failed(refused, 1, "settings-conflict", example.data, "--weight")


@pytest.mark.parametrize("words", [("report", "--out", "r.html"), ("monitor", "--out", "p.json")])
def test_report__of_weights_whose_squares_are_too_large_says_so_alone(
    words: tuple[str, ...], call: Call, example: Any, tmp_path: Path
) -> None:
    header, *lines = example.table.read_text().splitlines()[:40]
    (tmp_path / "t.csv").write_text("\n".join([f"{header},w", *(f"{line},1e300" for line in lines)]) + "\n")
    command, *options = words
    check_failed(call(command, example.model, tmp_path / "t.csv", "--weight", "w", *options), 1, "overflow", "squares")


def test_report__keeps_what_is_there_unless_told_otherwise(call: Call, example: Any, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    out.write_text("mine")
    refused = call("report", example.model, example.data, "--out", out)
    check_failed(refused, 1, "exists", out, "--overwrite")
    assert out.read_text() == "mine"


def test_report__that_cannot_be_written_leaves_what_was_there(
    call: Call, example: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    out = tmp_path / "report.html"
    out.write_text("mine")
    monkeypatch.setattr("protodask.data.places.whole_files.flush_handle", full)
    refused = call("report", example.model, example.data, "--out", out, "--overwrite")
    assert refused.exit_code == 1
    assert out.read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


@pytest.mark.parametrize("option", ["--training", "--drift"])
def test_report__refuses_data_of_other_features(option: str, call: Call, example: Any, tmp_path: Path) -> None:
    other = tmp_path / "other.zarr"
    assert call("sample-data", "checker", "--rows", 100, "--out", other).exit_code == 0
    refused = call("report", example.model, example.data, option, other, "--out", tmp_path / "report.html")
    check_failed(refused, 1, "columns-differ", other)


def test_report__training_is_a_dataset(call: Call, example: Any, tmp_path: Path) -> None:
    refused = call("report", example.model, example.data, "--training", example.table, "--out", tmp_path / "r.html")
    check_failed(refused, 1, "wrong-kind", example.table)


def test_report__without_matplotlib_says_what_to_install(
    call: Call, example: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    refused = call("report", example.model, example.data, "--out", tmp_path / "report.html")
    check_failed(refused, 1, "package-missing", "matplotlib", "protodask[report]")
