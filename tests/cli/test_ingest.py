"""`protodask ingest`."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.commands import check_failed, json_of

from protodask.errors import Code

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
    check_failed(again, 1, "exists", tmp_path / "data.zarr", "--overwrite")
    assert call(*arguments, "--overwrite").exit_code == 0


@pytest.mark.parametrize(
    ("text", "code", "facts"),
    [
        ("x,target\n1,a\ninf,b\n", "bad-value", ["'x'", "row 1"]),
        ("x,target\n1,a\n2,a\n", "one-class", ["'target'", "'a'"]),
        ("x,target\nred,a\nblue,b\n", "wrong-type", ["x", "--categorical", "--ordinal"]),
        ("x,outcome\n1,a\n2,b\n", "setting-missing", ["target", "--target"]),
    ],
)
def test_ingest__bad_data_leaves_nothing_behind(
    text: str, code: Code, facts: list[str], call: Call, tmp_path: Path
) -> None:
    table = tmp_path / "table.csv"
    table.write_text(text)
    done = call("ingest", table, "--out", tmp_path / "data.zarr")
    check_failed(done, 1, code, *facts)
    assert [path.name for path in tmp_path.iterdir()] == ["table.csv"]


def test_ingest__missing_file(call: Call, tmp_path: Path) -> None:
    done = call("ingest", tmp_path / "none.csv", "--out", tmp_path / "data.zarr")
    check_failed(done, 1, "not-found", tmp_path / "none.csv")


@pytest.mark.parametrize(
    ("options", "code", "facts"),
    [
        (("--ordinal", "size"), "bad-setting", ["--ordinal size", "size=small,medium,large"]),
        (("--ordinal", "size=a,b", "--ordinal", "size=b,a"), "named-twice", ["'size'"]),
        (("--append", "--overwrite"), "settings-conflict", ["append and overwrite"]),
    ],
)
def test_ingest__wrong_use(options: tuple[str, ...], code: Code, facts: list[str], call: Call, tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("size,target\na,a\nb,b\n")
    done = call("ingest", table, "--out", tmp_path / "data.zarr", *options)
    check_failed(done, 2, code, *facts)
    assert not (tmp_path / "data.zarr").exists()


@pytest.mark.parametrize(
    ("options", "named"),
    [(("--memory-limit", "much"), "1GiB"), (("--threads", "0"), "--threads"), (("--dtype", "int8"), "float32")],
)
def test_ingest__values_that_options_do_not_take(
    options: tuple[str, ...], named: str, call: Call, tmp_path: Path
) -> None:
    (tmp_path / "table.csv").write_text("size,target\na,a\nb,b\n")
    done = call("ingest", tmp_path / "table.csv", "--out", tmp_path / "data.zarr", *options)
    assert done.exit_code == 2
    assert named in done.stderr
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
        fitted = call("fit", data, "--out", model, "--recipe", "source", "--candidates", 30, "--max-iterations", 20)
        assert fitted.exit_code == 0
        models.append(json_of("info", model)["batches"])
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
