"""`protodask ingest`."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., Any]


def test_ingest__encodes_columns_as_told(call: Call, example: Any) -> None:
    done = call("info", example.data, "--json")
    found = json.loads(done.stdout)
    assert found["rows"] == 300
    assert [entry["label"] for entry in found["classes"]] == ["high", "low"]
    names = [entry["name"] for entry in found["feature_summary"]]
    assert names == ["age", "colour=blue", "colour=green", "colour=red", "size"]
    size = next(column for column in found["columns"] if column["name"] == "size")
    assert size == {"name": "size", "kind": "ordinal", "categories": ["small", "medium", "large"]}


def test_ingest__append_adds_rows(call: Call, write_table: Callable[..., Path], tmp_path: Path) -> None:
    table = write_table(tmp_path / "table.csv", rows=50)
    options = ("--out", tmp_path / "data.zarr", "--target", "outcome", "--drop", "colour", "--drop", "size")
    first = call("ingest", table, *options, "--json")
    assert json.loads(first.stdout)["rows"] == 50
    second = call("ingest", table, table, "--out", tmp_path / "data.zarr", "--append", "--json")
    assert second.exit_code == 0, second.output
    assert json.loads(second.stdout)["rows"] == 150


def test_ingest__existing_output_needs_overwrite(call: Call, tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("x,target\n1,a\n2,b\n")
    arguments = ("ingest", table, "--out", tmp_path / "data.zarr")
    assert call(*arguments).exit_code == 0
    again = call(*arguments)
    assert again.exit_code == 1
    assert "exists already" in again.stderr
    assert "--overwrite" in again.stderr
    assert call(*arguments, "--overwrite").exit_code == 0


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("x,target\n1,a\n,b\n", "Column 'x' has a missing or infinite value in row 1"),
        ("x,target\n1,a\n2,a\n", "has one class only"),
        ("x,target\nred,a\nblue,b\n", "not numbers: x"),
        ("x,outcome\n1,a\n2,b\n", "which column is the target"),
    ],
)
def test_ingest__bad_data_leaves_nothing_behind(text: str, seen: str, call: Call, tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text(text)
    done = call("ingest", table, "--out", tmp_path / "data.zarr")
    assert done.exit_code == 1
    assert seen in done.stderr
    assert "Traceback" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["table.csv"]


def test_ingest__missing_file(call: Call, tmp_path: Path) -> None:
    done = call("ingest", tmp_path / "none.csv", "--out", tmp_path / "data.zarr")
    assert done.exit_code == 1
    assert "none.csv" in done.stderr
    assert "Check the path" in done.stderr


@pytest.mark.parametrize(
    ("options", "remedy"),
    [
        (("--ordinal", "size"), "Write it like size=small,medium,large."),
        (("--ordinal", "size=a,b", "--ordinal", "size=b,a"), "Give one."),
        (("--append", "--overwrite"), "Choose one."),
        (("--memory-limit", "much"), "Write it like 1GiB"),
        (("--threads", "0"), "--threads"),
        (("--dtype", "int8"), "float32"),
    ],
)
def test_ingest__wrong_use(options: tuple[str, ...], remedy: str, call: Call, tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("size,target\na,a\nb,b\n")
    done = call("ingest", table, "--out", tmp_path / "data.zarr", *options)
    assert done.exit_code == 2
    assert remedy in done.stderr
    assert not (tmp_path / "data.zarr").exists()


def test_ingest__a_group_column_is_no_feature_from_ingest_to_evaluation(
    call: Call, write_table: Callable[..., Path], tmp_path: Path
) -> None:
    lines = write_table(tmp_path / "plain.csv", rows=200).read_text().splitlines()
    table = tmp_path / "table.csv"
    table.write_text("\n".join([lines[0] + ",ward", *(f"{line},w{row % 9}" for row, line in enumerate(lines[1:]))]))
    options = ("--target", "outcome", "--drop", "colour", "--drop", "size")
    models = []
    for name, extra in (("plain", ()), ("table", ("--group", "ward"))):
        data, model = tmp_path / f"{name}.zarr", tmp_path / f"{name}-model.zarr"
        assert call("ingest", tmp_path / f"{name}.csv", "--out", data, *options, *extra).exit_code == 0
        assert call("fit", data, "--out", model, "--candidates", 30, "--max-iterations", 20).exit_code == 0
        models.append(json.loads(call("info", model, "--json").stdout)["batches"])
    assert models[0] == models[1]
    found = call("info", tmp_path / "table.zarr")
    assert re.search(r"^group +ward", found.stdout, re.MULTILINE)
    assert not re.search(r"^group", call("info", tmp_path / "plain.zarr").stdout, re.MULTILINE)
    model = tmp_path / "table-model.zarr"
    for scored in ("table.csv", "plain.csv", "table.zarr"):
        done = call("evaluate", model, tmp_path / scored, "--json")
        assert done.exit_code == 0, done.output
        predicted = call("predict", model, tmp_path / scored, "--out", tmp_path / f"{scored}.predictions.zarr")
        assert predicted.exit_code == 0, predicted.output
