"""`protodask explain` and `protodask export`."""

import csv
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import openpyxl
import pyarrow.parquet
import pytest
from support.commands import check_failed
from typer.testing import CliRunner

from protodask.cli import app
from protodask.data import Dataset
from protodask.errors import Code
from protodask.prototypes import load_model
from protodask.prototypes.fitted import probabilities

Call = Callable[..., Any]


@contextmanager
def succeeding(done: Any) -> Iterator[Any]:
    assert done.exit_code == 0, done.output
    yield done


def told(done: Any) -> Any:
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def source_rows(example: Any) -> list[dict[str, str]]:
    with example.table.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("n_batches", [0, 1, 2])
def test_explain__of_a_dataset_as_json(n_batches: int, call: Call, example: Any) -> None:
    found = told(
        call("explain", example.model, example.data, "--row", 7, "--row", 250, "--batches", n_batches, "--json")
    )
    features, target = (Dataset.open(example.data).read(0)[name] for name in ("features", "target"))
    (scores,) = load_model(example.model).scores(features, [n_batches])
    assert (found["batches"], found["classes"]) == (n_batches, ["high", "low"])
    assert [entry["row"] for entry in found["rows"]] == [7, 250]
    for entry in found["rows"]:
        source = source_rows(example)[entry["row"]]
        np.testing.assert_allclose(entry["probability"], probabilities(scores)[entry["row"]], rtol=1e-5)
        assert entry["actual"] == source["outcome"] == found["classes"][target[entry["row"]]]
        assert entry["values"]["colour"] == source["colour"]
        assert entry["values"]["size"] == source["size"]
        assert entry["values"]["age"] == pytest.approx(float(source["age"]), rel=1e-6)
        assert len(entry["contributions"]) <= 10
        shares = np.array(entry["marginal"]) + np.array(entry["others"])
        for item in entry["contributions"]:
            shares[found["classes"].index(item["class"])] += item["share"]
            assert item["original"] is None
        np.testing.assert_allclose(shares, entry["probability"], rtol=0, atol=1e-12)
        assert entry["familiarity_p_value"] is None


def test_explain__of_a_raw_table_is_that_of_the_dataset(call: Call, example: Any) -> None:
    arguments = ("--row", 3, "--most", 4, "--json")
    of_table, of_data = (
        told(call("explain", example.model, place, *arguments)) for place in (example.table, example.data)
    )
    assert of_table["rows"][0].pop("actual") is None
    assert of_data["rows"][0].pop("actual") is not None
    assert of_table["rows"] == of_data["rows"]


def test_explain__with_the_training_data_shows_the_rows_of_the_table(call: Call, example: Any) -> None:
    arguments = ("explain", example.model, example.data, "--row", 3, "--training", example.data)
    found = told(call(*arguments, "--json"))
    items = found["rows"][0]["contributions"]
    for item in items:
        source = source_rows(example)[item["training_row"]]
        assert (item["original"]["colour"], item["original"]["size"]) == (source["colour"], source["size"])
        assert item["original"]["age"] == pytest.approx(float(source["age"]), rel=1e-6)
        assert item["class"] == source["outcome"]
    with succeeding(call(*arguments)) as done:
        table = done.stdout.split("In the training data", 1)[1]
        colours = next(line for line in table.splitlines() if line.startswith("colour")).split()
    assert colours[1:] == [found["rows"][0]["values"]["colour"], *(item["original"]["colour"] for item in items[:6])]


def test_explain__with_a_reference_gives_a_p_value(call: Call, example: Any) -> None:
    arguments = ("explain", example.model, example.data, "--row", 3, "--reference", example.table)
    found = told(call(*arguments, "--json"))
    assert found["reference"] == {"rows": 300, "sampled": 300}
    entry = found["rows"][0]
    features = Dataset.open(example.data).read(0)["features"]
    familiarity = load_model(example.model).scores(features, [2])[0].sum(axis=1) - 1
    assert entry["familiarity_p_value"] == (1 + (familiarity <= familiarity[3] * 1.00001).sum()) / 301
    assert entry["familiarity_quantile"] == (familiarity <= familiarity[3] * 1.00001).mean()
    with succeeding(call(*arguments)) as done:
        assert f"p-value for a row of their kind is {entry['familiarity_p_value']:.3g}" in done.stdout


def test_explain__is_readable(call: Call, example: Any) -> None:
    with succeeding(call("explain", example.model, example.data, "--row", 3, "--most", 2)) as done:
        said = done.stdout
    entry = told(call("explain", example.model, example.data, "--row", 3, "--most", 2, "--json"))["rows"][0]
    assert f"Row 3 of {example.data}: {entry['predicted']}, with probability" in said
    assert f"{entry['dominant_size']} strongest prototype" in said.replace("The strongest", "The 1 strongest")
    for rank, item in enumerate(entry["contributions"], start=1):
        mark = r"\*" if item["dominant"] else ""
        assert re.search(rf"{mark}#{rank} +{item['class']} +{item['share']:.4f} .* {item['training_row']}\s*\n", said)
    assert "#3" not in said
    assert "age" in said


@pytest.mark.parametrize("width", [40, 80, 120])
def test_explain__keeps_to_the_width_of_the_terminal(width: int, example: Any) -> None:
    runner = CliRunner(env={"COLUMNS": str(width)})
    arguments = ["explain", example.model, example.data, "--row", 3, "--training", example.data]
    with succeeding(runner.invoke(app, list(map(str, arguments)))) as done:
        tables = [line for line in done.stdout.splitlines() if "──" in line]
    assert len(tables) == 4
    assert max(map(len, tables)) <= width
    assert done.stdout.count("#5") == {40: 1, 80: 2, 120: 3}[width]


def test_explain__without_batches_is_the_class_shares(call: Call, example: Any) -> None:
    with succeeding(call("explain", example.model, example.data, "--row", 3, "--batches", 0)) as done:
        assert "The class shares of the training data fix the decision" in done.stdout
        assert "#1" not in done.stdout


def test_explain__writes_tables(call: Call, example: Any, tmp_path: Path) -> None:
    arguments = ("explain", example.model, example.data, "--row", 3, "--row", 4, "--most", 2, "--out")
    for suffix in ("csv", "parquet", "xlsx"):
        with succeeding(call(*arguments, tmp_path / f"e.{suffix}")) as done:
            assert f"The explanations are in {tmp_path / f'e.{suffix}'}." in done.stdout
    parts = ["row", "marginal", "marginal", "prototype", "prototype", "others", "others"] * 2
    with (tmp_path / "e.csv").open(newline="") as file:
        assert [line["part"] for line in csv.DictReader(file)] == parts
    assert pyarrow.parquet.read_table(tmp_path / "e.parquet")["part"].to_pylist() == parts
    book = openpyxl.load_workbook(tmp_path / "e.xlsx")
    assert book.sheetnames == ["rows", "explanation"]
    assert book["rows"].max_row == 3
    check_failed(call(*arguments, tmp_path / "e.csv"), 1, "exists", tmp_path / "e.csv", "--overwrite")
    assert call(*arguments, tmp_path / "e.csv", "--overwrite").exit_code == 0


def test_explain__names_the_value_it_cannot_use(call: Call, example: Any, tmp_path: Path) -> None:
    table = tmp_path / "new.csv"
    table.write_text("age,colour,size\n1,red,small\n,green,large\n2,violet,small\n")
    arguments = ("explain", example.model, table)
    check_failed(call(*arguments, "--row", 1), 1, "bad-value", "'age'", "row 1")
    table.write_text("age,colour,size\n1,red,small\n2,violet,small\n")
    check_failed(call(*arguments, "--row", 1), 1, "bad-value", "'colour'", "'violet'", "row 1")
    found = told(call(*arguments, "--row", 1, "--unseen", "zero", "--json"))
    assert found["rows"][0]["values"] == {"age": 2, "colour": None, "size": "small"}


def test_explain__of_a_row_beside_bad_ones(call: Call, example: Any, tmp_path: Path) -> None:
    table = tmp_path / "new.csv"
    table.write_text("age,colour,size\nold,red,small\n3,green,large\n2,violet,small\n")
    arguments = ("explain", example.model, table, "--json")
    found = told(call(*arguments, "--row", 1))
    assert found["rows"][0]["values"] == {"age": 3, "colour": "green", "size": "large"}
    check_failed(call(*arguments, "--row", 1, "--row", 2), 1, "bad-value", "'colour'", "'violet'", "row 2")
    check_failed(call(*arguments, "--row", 0), 1, "bad-value", "'age'", "'old'", "row 0")


@pytest.mark.slow
def test_explain__of_labels_with_markup_and_control_characters(call: Call, tmp_path: Path) -> None:
    names = ["[bold]x[/bold]", "=1+1, <b>"]
    table = tmp_path / "t.csv"
    with table.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*names, "what"])
        rng = np.random.default_rng(0)
        for one, other in rng.uniform(size=(120, 2)):
            writer.writerow([one, other, "[red]yes\n\x1b[31m" if one > 0.5 else "=no"])
    assert call("ingest", table, "--target", "what", "--out", tmp_path / "d.zarr").exit_code == 0
    fitted = call("fit", tmp_path / "d.zarr", "--out", tmp_path / "m.zarr", "--recipe", "source", "--candidates", 20)
    assert fitted.exit_code == 0, fitted.output
    with succeeding(call("explain", tmp_path / "m.zarr", tmp_path / "d.zarr", "--row", 0, "--row", 1)) as done:
        assert "[bold]x[/bold]" in done.stdout
        assert "[red]yes" in done.stdout
        assert "\x1b" not in done.stdout
    out = tmp_path / "p.xlsx"
    assert call("export", tmp_path / "m.zarr", "--out", out).exit_code == 0
    classes = {cell.value: cell.data_type for cell in openpyxl.load_workbook(out)["prototypes"]["D"][1:]}
    assert classes == {"=no": "s", "[red]yes\n_x001B_[31m": "s"}


@pytest.mark.parametrize(
    ("options", "exit_code", "code", "facts"),
    [
        (["--row", 300], 1, "bad-setting", ["300 rows", "row 300", 299]),
        (["--row", 1, "--batches", 3], 1, "bad-setting", ["--batches", 3, "2 batches"]),
        (["--row", 1, "--out", "table.txt"], 2, "bad-setting", ["table.txt", ".csv, .parquet, .xlsx"]),
        (["--row", 1, "--reference", "nowhere"], 1, "not-found", ["nowhere"]),
    ],
)
def test_explain__refuses(
    options: list[object], exit_code: int, code: Code, facts: list[object], call: Call, example: Any
) -> None:
    check_failed(call("explain", example.model, example.data, *options), exit_code, code, *facts)


@pytest.mark.parametrize("options", [["--row", -1], []])
def test_explain__needs_rows(options: list[object], call: Call, example: Any) -> None:
    done = call("explain", example.model, example.data, *options)
    assert done.exit_code == 2, done.output
    assert "--row" in done.stderr


def test_explain__refuses_data_of_another_model(call: Call, example: Any, tmp_path: Path) -> None:
    other = tmp_path / "other.zarr"
    call("sample-data", "checker", "--rows", 20, "--out", other)
    arguments = ("explain", example.model, example.data, "--row", 1)
    check_failed(call("explain", example.model, other, "--row", 1), 1, "columns-differ", other, "has x0, x1")
    check_failed(call(*arguments, "--training", other), 1, "other-run", other, "fingerprint")
    check_failed(call(*arguments, "--reference", other), 1, "columns-differ", other, "has x0, x1")


def test_export__of_a_model(call: Call, example: Any, tmp_path: Path) -> None:
    model = load_model(example.model)
    with succeeding(call("export", example.model, "--out", tmp_path / "m.xlsx")) as done:
        assert f"prototypes ({model.n_prototypes} rows) and feature weights" in done.stdout
    book = openpyxl.load_workbook(tmp_path / "m.xlsx")
    assert book.sheetnames == ["prototypes", "feature weights"]
    assert book["prototypes"].max_row == 1 + model.n_prototypes
    found = told(call("export", example.model, "--out", tmp_path / "w.csv", "--table", "weights", "--json"))
    assert found["tables"][0]["rows"] == sum(batch.n_features for batch in model.batches)
    check_failed(
        call("export", example.model, "--out", tmp_path / "w.csv"), 1, "exists", tmp_path / "w.csv", "--overwrite"
    )
    unknown = call("export", example.model, "--out", tmp_path / "w.json")
    check_failed(unknown, 2, "bad-setting", tmp_path / "w.json", ".csv", ".parquet", ".xlsx")


def test_export__of_prototypes_as_they_were(call: Call, example: Any, tmp_path: Path) -> None:
    out = tmp_path / "p.parquet"
    assert call("export", example.model, "--out", out, "--training", example.data).exit_code == 0
    source = source_rows(example)
    for line in pyarrow.parquet.read_table(out).to_pylist():
        origin = source[line["row"]]
        assert (line["class"], line["colour"], line["size"]) == (origin["outcome"], origin["colour"], origin["size"])
        assert line["age"] == pytest.approx(float(origin["age"]), rel=1e-6)
    check_failed(
        call("export", example.model, "--out", tmp_path / "w.csv", "--table", "weights", "--training", example.data),
        1,
        "settings-conflict",
        "Training data",
        "weights",
    )


def test_explain_and_export__do_not_write_into_what_they_read(call: Call, example: Any) -> None:
    for place in (example.model, example.data):
        inside = place / "t.csv"
        done = call("explain", example.model, example.data, "--row", 0, "--out", inside)
        check_failed(done, 2, "places-overlap", inside)
        assert not inside.exists()
    for name in ("x.onnx", "x.csv"):
        check_failed(call("export", example.model, "--out", example.model / name), 2, "places-overlap", name)
